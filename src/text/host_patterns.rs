//! Names of hosts in their short forms, both ways: `gpu[01-16]` to sixteen names and back, `user@host:port`, and `--limit` patterns.
//!
//! Knows nothing of files and hosts' settings.

use super::glob::glob_match;
use super::hostlist::{format_ranges, split_last_number};

/// The most names that one inventory may have.
pub(crate) const MAX_HOSTS: usize = 4096;

/// `user@host:port` taken apart.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SshDestination {
    pub(crate) user: Option<String>,
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
}

/// Reads `host`, `user@host:port` or `[fd00::1]:22`; the host may have ranges in it.
pub(crate) fn parse_destination(text: &str) -> Result<SshDestination, String> {
    let (user, rest) = match text.rsplit_once('@') {
        Some((user, rest)) => (Some(user), rest),
        None => (None, text),
    };
    if user.is_some_and(|user| user.is_empty() || user.starts_with('-') || user.contains(|c: char| c.is_whitespace() || c.is_control())) {
        return Err("the user before the @ is invalid".to_owned());
    }
    let (host, port) = if let Some((inner, tail)) =
        rest.strip_prefix('[').and_then(|rest| rest.split_once(']')).filter(|(inner, _)| inner.contains(':'))
    {
        match (tail.is_empty(), tail.strip_prefix(':')) {
            (true, _) => (inner, None),
            (false, Some(port)) => (inner, Some(port)),
            (false, None) => return Err(format!("`{tail}` after the ]")),
        }
    } else {
        match rest.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') => (host, Some(port)),
            _ => (rest, None),
        }
    };
    let port = match port.map(str::parse::<u16>) {
        None => None,
        Some(Ok(port)) if port > 0 => Some(port),
        Some(_) => return Err("the port after the : is not a number from 1 to 65535".to_owned()),
    };
    Ok(SshDestination { user: user.map(str::to_owned), host: host.to_owned(), port })
}

/// As [`parse_destination`], with every range written out.
pub(crate) fn expand_destination(text: &str) -> Result<Vec<SshDestination>, String> {
    let short = parse_destination(text)?;
    Ok(expand_pattern(&short.host)?.into_iter().map(|host| SshDestination { host, ..short.clone() }).collect())
}

/// Whether `name` can name a host: it becomes a part of paths, labels and ssh_config.
pub(crate) fn is_host_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    let begins = bytes.next().is_some_and(|b| b.is_ascii_alphanumeric() || b == b':' || b == b'_');
    begins && name.len() <= 253 && bytes.all(|b| b.is_ascii_alphanumeric() || b"._-:%".contains(&b))
}

/// Writes out every range of `pattern`: `r[1-2]n[01-03,07]` is eight names.
pub(crate) fn expand_pattern(pattern: &str) -> Result<Vec<String>, String> {
    let mut names = vec![String::new()];
    let mut rest = pattern;
    while let Some((before, tail)) = rest.split_once('[') {
        if before.contains(']') {
            return Err("a ] without [".to_owned());
        }
        let Some((inner, tail)) = tail.split_once(']') else { return Err("a [ without ]".to_owned()) };
        let parts = expand_ranges(inner)?;
        if names.len() * parts.len() > MAX_HOSTS {
            return Err(format!("more than {MAX_HOSTS} names"));
        }
        names = names.iter().flat_map(|name| parts.iter().map(move |part| format!("{name}{before}{part}"))).collect();
        rest = tail;
    }
    if rest.contains(']') {
        return Err("a ] without [".to_owned());
    }
    for name in &mut names {
        name.push_str(rest);
    }
    Ok(names)
}

/// `01-03,07` written out.
fn expand_ranges(inner: &str) -> Result<Vec<String>, String> {
    let mut parts = Vec::new();
    for part in inner.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<u64>().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()));
        let (Some(first), Some(last)) = (number(from), number(to)) else {
            return Err(format!("`{part}` is not a numeric range"));
        };
        if first > last {
            return Err(format!("the range `{part}` is descending"));
        }
        if last - first >= MAX_HOSTS as u64 {
            return Err(format!("more than {MAX_HOSTS} names"));
        }
        let width = if from.starts_with('0') { from.len() } else { 0 };
        parts.extend((first..=last).map(|number| format!("{number:0width$}")));
        if parts.len() > MAX_HOSTS {
            return Err(format!("more than {MAX_HOSTS} names"));
        }
    }
    Ok(parts)
}

/// Splits a comma list, leaving commas inside brackets alone.
pub(crate) fn split_commas(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    text.split(move |c| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .collect()
}

/// Writes names as shortly as they can be read back, in their order: `gpu[01-16],login`.
pub(crate) fn compress_to_pattern(names: &[String]) -> String {
    let mut folded = Vec::new();
    let mut rest = names;
    while let Some((first, tail)) = rest.split_first() {
        let Some((prefix, digits, suffix)) = split_last_number(first) else {
            folded.push(first.clone());
            rest = tail;
            continue;
        };
        let mut run = vec![digits];
        for name in tail {
            match split_last_number(name) {
                Some((p, d, s)) if p == prefix && s == suffix => run.push(d),
                _ => break,
            }
        }
        folded.push(if run.len() == 1 { first.clone() } else { format!("{prefix}[{}]{suffix}", format_ranges(&run)) });
        rest = rest.get(run.len()..).unwrap_or_default();
    }
    folded.join(",")
}

/// Which of `names` a `--limit` pattern keeps; the error is a part that means none of them.
pub(crate) fn select_hosts(pattern: &str, names: &[String]) -> Result<Vec<bool>, (String, String)> {
    let parts: Vec<&str> = split_commas(pattern).into_iter().map(str::trim).filter(|part| !part.is_empty()).collect();
    if parts.is_empty() {
        return Err(("the pattern is empty".to_owned(), "write hosts, for example gpu01, gpu[01-03], gpu* or !gpu02".to_owned()));
    }
    let hint = || format!("the hosts are {}", compress_to_pattern(names));
    let mut kept = vec![parts.iter().all(|part| part.starts_with('!')); names.len()];
    for part in parts {
        let (keep, part) = part.strip_prefix('!').map_or((true, part), |part| (false, part));
        let wanted = expand_pattern(part).map_err(|why| (format!("`{part}`: {why}"), hint()))?;
        for want in wanted {
            let mut hit = false;
            for (name, kept) in names.iter().zip(&mut kept) {
                if glob_match(&want, name) {
                    hit = true;
                    *kept = keep;
                }
            }
            if !hit {
                return Err((format!("no host is named `{want}`"), hint()));
            }
        }
    }
    if kept.contains(&true) { Ok(kept) } else { Err((format!("`{pattern}` matches no host"), hint())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split_names(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn ranges_are_expanded() {
        assert_eq!(expand_pattern("gpu[08-11]"), Ok(split_names("gpu08 gpu09 gpu10 gpu11")));
        assert_eq!(expand_pattern("gpu[8-10]"), Ok(split_names("gpu8 gpu9 gpu10")));
        assert_eq!(expand_pattern("gpu[01-03,07].lan"), Ok(split_names("gpu01.lan gpu02.lan gpu03.lan gpu07.lan")));
        assert_eq!(expand_pattern("r[1-2]n[1,3]"), Ok(split_names("r1n1 r1n3 r2n1 r2n3")));
        assert_eq!(expand_pattern("login"), Ok(split_names("login")));
        for bad in
            ["gpu[3-1]", "gpu[a-c]", "gpu[1-2", "gpu1-2]", "gpu[]", "gpu[1-]", "gpu[1-99999]", "a[1-999]b[1-999]", "g[1]]", "a]b[1-2]"]
        {
            assert!(expand_pattern(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ssh_destinations_are_parsed() {
        let made = |user: Option<&str>, host: &str, port| Ok(SshDestination { user: user.map(str::to_owned), host: host.to_owned(), port });
        assert_eq!(parse_destination("gpu01"), made(None, "gpu01", None));
        assert_eq!(parse_destination("root@172.31.0.90:2222"), made(Some("root"), "172.31.0.90", Some(2222)));
        assert_eq!(parse_destination("gpu[01-16]:22"), made(None, "gpu[01-16]", Some(22)));
        assert_eq!(parse_destination("[fd00::1]:22"), made(None, "fd00::1", Some(22)));
        assert_eq!(parse_destination("me@[fd00::1]"), made(Some("me"), "fd00::1", None));
        assert_eq!(parse_destination("fd00::1"), made(None, "fd00::1", None));
        for bad in ["@gpu01", "gpu01:", "gpu01:ssh", "gpu01:0", "gpu01:70000", "[fd00::1]22", "-oX@gpu01"] {
            assert!(parse_destination(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_are_folded_into_ranges() {
        let cases = [
            ("gpu01 gpu02 gpu03 gpu07", "gpu[01-03,07]"),
            ("gpu9 gpu10 gpu11", "gpu[9-11]"),
            ("gpu09 gpu10", "gpu[09-10]"),
            ("gpu9 gpu010", "gpu[9,010]"),
            ("gpu01 login gpu02", "gpu01,login,gpu02"),
            ("10.0.0.1 10.0.0.2", "10.0.0.[1-2]"),
            ("gpu02 gpu01", "gpu[02,01]"),
            ("", ""),
        ];
        for (list, folded) in cases {
            assert_eq!(compress_to_pattern(&split_names(list)), folded);
        }
    }

    #[test]
    fn limit_patterns_select_hosts() {
        let hosts = split_names("gpu01 gpu02 gpu03 login");
        let chosen = |pattern: &str| {
            select_hosts(pattern, &hosts)
                .map(|kept| hosts.iter().zip(kept).filter(|(_, kept)| *kept).map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(chosen("gpu[01-02]").as_deref(), Ok("gpu01 gpu02"));
        assert_eq!(chosen("gpu*,!gpu02").as_deref(), Ok("gpu01 gpu03"));
        assert_eq!(chosen("!login").as_deref(), Ok("gpu01 gpu02 gpu03"));
        assert_eq!(chosen("login, gpu0?").as_deref(), Ok("gpu01 gpu02 gpu03 login"));
        assert_eq!(chosen("gpu9"), Err(("no host is named `gpu9`".to_owned(), "the hosts are gpu[01-03],login".to_owned())));
        assert!(chosen("*,!*").is_err());
        assert!(chosen(" , ").is_err());
    }

    proptest! {
        #[test]
        fn folded_names_expand_back(list in prop::collection::vec("(gpu|n|10\\.0\\.)[0-9]{0,3}(|-ib|x7)", 1..20)) {
            let folded = compress_to_pattern(&list);
            let read: Vec<String> = split_commas(&folded).into_iter().flat_map(|part| expand_pattern(part).unwrap()).collect();
            prop_assert_eq!(read, list);
        }

        #[test]
        fn numbered_names_fold_and_expand_back(first in 0_u64..1200, length in 1_u64..40, width in 0_usize..5) {
            let list: Vec<String> = (first..first + length).map(|n| format!("gpu{n:0width$}")).collect();
            let read: Vec<String> = split_commas(&compress_to_pattern(&list)).into_iter().flat_map(|part| expand_pattern(part).unwrap()).collect();
            prop_assert_eq!(read, list);
        }

        #[test]
        fn pattern_functions_never_panic(text in "\\PC{0,30}") {
            drop(expand_pattern(&text));
            drop(parse_destination(&text));
            drop(select_hosts(&text, &["gpu01".to_owned(), "é2".to_owned()]));
            drop(compress_to_pattern(&[text]));
        }
    }
}
