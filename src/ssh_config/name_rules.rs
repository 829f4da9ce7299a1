//! Which names ssh takes as a host or a user: OpenSSH's own rules (`valid_hostname` and `valid_ruser` in its misc.c, since 9.6:
//! CVE-2023-51385). A `$` is refused in a user too where a shell reads it.

/// What OpenSSH refuses in a host's name.
const FORBIDDEN_IN_HOST: &str = "'`\"$\\;&<>|(){},";
/// What it refuses in a user's, and the `$`.
const FORBIDDEN_IN_USER: &str = "'`\"$;&<>|(){}";

/// An error is a fragment: `` `a;b` holds `;`, which a shell would interpret ``.
pub(crate) fn validate_host(text: &str) -> Result<(), String> {
    reject_unsafe_chars(text, |c, _| FORBIDDEN_IN_HOST.contains(c) || c.is_whitespace() || c.is_control())
}

/// As [`validate_host`]. A blank before a `-` would begin an option, a `\` at the end would take the next sign's meaning.
pub(crate) fn validate_user(text: &str) -> Result<(), String> {
    let refused = |c: char, next: Option<char>| {
        let option = c.is_whitespace() && next == Some('-');
        FORBIDDEN_IN_USER.contains(c) || c.is_control() || option || (c == '\\' && next.is_none())
    };
    reject_unsafe_chars(text, refused)
}

fn reject_unsafe_chars(text: &str, refused: impl Fn(char, Option<char>) -> bool) -> Result<(), String> {
    if text.starts_with('-') {
        return Err(format!("`{}` begins with `-`: a command would read it as an option", escape_for_display(text)));
    }
    let bad = text.char_indices().find(|(at, c)| refused(*c, text[at + c.len_utf8()..].chars().next()));
    bad.map_or(Ok(()), |(_, c)| Err(format!("`{}` holds {}, which a shell would interpret", escape_for_display(text), quote_char(c))))
}

fn quote_char(c: char) -> String {
    if c == '`' { "a backtick".to_owned() } else { format!("`{}`", c.escape_debug()) }
}

pub(crate) fn escape_for_display(text: &str) -> String {
    text.chars().take(60).flat_map(char::escape_debug).collect()
}

/// `user@host:port`, each half by its own rule.
pub(crate) fn validate_jump(jump: &str) -> Result<(), String> {
    let (name, place) = jump.rsplit_once('@').map_or((None, jump), |(name, place)| (Some(name), place));
    name.map_or(Ok(()), validate_user)?;
    validate_host(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_user_rules_match_openssh() {
        for good in ["gpu01", "10.0.0.1", "fe80::1%eth0", "[h]:22", "a_b", "a*b", "损失", "a!b"] {
            assert_eq!(validate_host(good), Ok(()), "{good}");
        }
        for bad in [
            "-oX", "a'b", "a`id`", "a\"b", "$(id)", "a\\b", "a;b", "a&b", "a<b", "a>b", "a|b", "a(b", "a{b", "a,b", "a b", "a\tb", "a\nb",
            "a\u{7f}",
        ] {
            assert!(validate_host(bad).is_err(), "{bad}");
        }
        for good in ["root", "CORP\\li", "li wei", "li@corp", "a,b", "a#b"] {
            assert_eq!(validate_user(good), Ok(()), "{good}");
        }
        for bad in [
            "-l", "a'b", "a`id`", "a\"b", "a;b", "a&b", "a<b", "a>b", "a|b", "a(b", "a)b", "a{b", "a}b", "a -oX", "a\t-l", "a\\", "$IFS",
            "a\u{1}b",
        ] {
            assert!(validate_user(bad).is_err(), "{bad}");
        }
        assert_eq!(validate_host("a`b"), Err("`a`b` holds a backtick, which a shell would interpret".to_owned()));
        assert_eq!(validate_user("a\nb"), Err("`a\\nb` holds `\\n`, which a shell would interpret".to_owned()));
    }
}
