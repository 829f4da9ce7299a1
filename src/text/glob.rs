//! Patterns with `*` and `?`, as ssh_config, known_hosts and `--limit` have them, and patterns for file names.

/// Whether `text` matches `pattern`, where `*` is any run of bytes and `?` any one.
pub(crate) fn glob_match(pattern: &str, text: &str) -> bool {
    matches_stars(pattern.as_bytes(), text.as_bytes(), |pattern, byte| {
        pattern.first().filter(|first| **first == b'?' || **first == byte).map(|_| 1)
    })
}

/// Whether a path component is a pattern.
pub(crate) fn has_wildcards(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// Whether a file name matches `pattern` as in a shell: `*`, `?`, `[a-z]` and `[!a-z]`, by bytes; a dot at the beginning only matches a dot.
pub(crate) fn file_name_matches(pattern: &str, name: &[u8]) -> bool {
    let pattern = pattern.as_bytes();
    if name.first() == Some(&b'.') && pattern.first() != Some(&b'.') {
        return false;
    }
    matches_stars(pattern, name, one_byte_matches)
}

/// Whether a text matches a pattern with stars. `one`: how long the first element of a pattern is, if it matches a byte.
fn matches_stars(pattern: &[u8], text: &[u8], one: impl Fn(&[u8], u8) -> Option<usize>) -> bool {
    let (mut p, mut t, mut star) = (0, 0, None);
    while let Some(byte) = text.get(t) {
        let rest = pattern.get(p..).unwrap_or_default();
        if rest.first() == Some(&b'*') {
            star = Some((p, t));
            p += 1;
            continue;
        }
        if let Some(length) = one(rest, *byte) {
            p += length;
            t += 1;
            continue;
        }
        let Some((at, from)) = star else { return false };
        star = Some((at, from + 1));
        p = at + 1;
        t = from + 1;
    }
    pattern.get(p..).unwrap_or_default().iter().all(|byte| *byte == b'*')
}

/// How long the first element of `pattern` is, if it matches this byte.
fn one_byte_matches(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'[', set @ ..] => {
            let negated = set.first() == Some(&b'!');
            let start = usize::from(negated);
            // A bracket right at the beginning belongs to the set.
            let Some(length) = set.iter().skip(start + 1).position(|b| *b == b']').map(|at| at + 1) else {
                return (byte == b'[').then_some(1);
            };
            let set = set.get(start..start + length).unwrap_or_default();
            let mut found = false;
            let mut at = 0;
            while let Some(low) = set.get(at) {
                match (set.get(at + 1), set.get(at + 2)) {
                    (Some(b'-'), Some(high)) => {
                        found |= (*low..=*high).contains(&byte);
                        at += 3;
                    }
                    _ => {
                        found |= *low == byte;
                        at += 1;
                    }
                }
            }
            (found != negated).then_some(1 + start + length + 1)
        }
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn glob_matching_terminates(pattern in "[a*?]{0,12}", name in "[ab]{0,20}") {
            glob_match(&pattern, &name);
            prop_assert!(glob_match("*", &name) && glob_match(&name, &name));
        }
    }

    #[test]
    fn file_names_match_as_in_a_shell() {
        for (pattern, name) in [
            ("*.whl", "a.whl"),
            ("deepspeed-*.whl", "deepspeed-0.14.0+x-cp310-linux_x86_64.whl"),
            ("a?c", "abc"),
            ("[a-c]x[!0-9]", "bxz"),
            ("[]]", "]"),
            ("[", "["),
            (".*", ".hidden"),
            ("*a*b*", "xxaybzz"),
            ("plain", "plain"),
        ] {
            assert!(file_name_matches(pattern, name.as_bytes()), "{pattern} {name}");
        }
        for (pattern, name) in
            [("*", ".hidden"), ("?x", ".x"), ("[!0-9]", "5"), ("[a-c]", "d"), ("*.whl", "a.whl.part"), ("a", "ab"), ("ab", "a"), ("", "a")]
        {
            assert!(!file_name_matches(pattern, name.as_bytes()), "{pattern} {name}");
        }
        assert!(file_name_matches("*\u{ff}*", "a\u{ff}b".as_bytes()));
        assert!(has_wildcards("a[b") && !has_wildcards("a-b.whl"));
    }
}
