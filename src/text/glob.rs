//! Patterns with `*` and `?`, as ssh_config, known_hosts and `--limit` have them.

/// Whether `text` matches `pattern`, where `*` is any run of bytes and `?` any one.
pub(crate) fn glob_match(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t, mut star) = (0, 0, None);
    while let Some(c) = text.get(t) {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(d) if *d == b'?' || d == c => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((at, from)) = star else { return false };
                star = Some((at, from + 1));
                p = at + 1;
                t = from + 1;
            }
        }
    }
    pattern.get(p..).unwrap_or_default().iter().all(|c| *c == b'*')
}
