//! What may name a host, a user, a jump host, an address and a run: they become words of commands, parts of paths and labels, here and on the
//! hosts. The same rules hold for an inventory and for a record that a host hands out.
//!
//! A name that these rules let through holds nothing that a shell would interpret.

use super::problem::{Verdict, require};
use super::yaml_tree::shorten;
use crate::text::host_patterns;

/// The longest user name: useradd(8) stops at 256 with what it adds.
const MAX_USER_LENGTH: usize = 255;
/// The longest `name` of an inventory.
const MAX_NAME_LENGTH: usize = 40;

/// Whether a text can name a host of an inventory, or one in ssh_config.
pub(crate) fn is_valid_host_name(text: &str) -> bool {
    host_patterns::is_host_name(text)
}

/// Whether a text can be a user on a host: letters, digits and `_ . + -`, and `CORP\\li` of a directory service. Stricter than OpenSSH's
/// `valid_ruser`: nothing that any shell would interpret.
pub(crate) fn is_valid_user(text: &str) -> bool {
    let letter = |c: char| c.is_alphanumeric() || "_.+-\\".contains(c);
    let ends = text.starts_with(|c: char| c.is_alphanumeric() || c == '_') && !text.ends_with('\\');
    ends && text.len() <= MAX_USER_LENGTH && text.chars().all(letter)
}

/// Whether a text can be where ssh connects: an IP address or a host's name.
pub(crate) fn is_valid_address(text: &str) -> bool {
    validate_address(text).is_ok()
}

/// Whether a text is a jump host: `[user@]host[:port]`.
pub(crate) fn is_valid_jump_host(text: &str) -> bool {
    host_patterns::parse_destination(text)
        .is_ok_and(|short| host_patterns::is_host_name(&short.host) && short.user.as_deref().is_none_or(is_valid_user))
}

/// Whether a text is the id of a run: `20261122-054703-04da`.
pub(crate) fn is_valid_run_id(text: &str) -> bool {
    let digits = |text: &str, count| text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    match text.split('-').collect::<Vec<_>>()[..] {
        [day, time, random] => {
            digits(day, 8) && digits(time, 6) && random.len() == 4 && random.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        }
        _ => false,
    }
}

/// Whether a text can be the `name` of an inventory.
pub(crate) fn is_valid_inventory_name(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.len() <= MAX_NAME_LENGTH && text.bytes().next().is_some_and(plain) && text.bytes().all(|b| plain(b) || b == b'-')
}

pub(super) fn validate_user(text: &str) -> Verdict {
    let hint = "write only the name, for example root: letters, digits and _ . + -";
    require(is_valid_user(text), format!("`{}` is not a user", shorten(text)), hint)
}

pub(super) fn validate_address(text: &str) -> Verdict {
    if let Some((host, port)) = text.rsplit_once(':')
        && !host.contains(':')
        && port.parse::<u16>().is_ok()
    {
        return Err((format!("`{}` contains a port", shorten(text)), format!("write address: {host} and ssh: {{ port: {port} }}")));
    }
    let plain = text.split('%').next().unwrap_or_default();
    let fine = host_patterns::is_host_name(text) && (!text.contains(':') || plain.parse::<std::net::Ipv6Addr>().is_ok());
    require(fine, format!("`{}` is not an address", shorten(text)), "write an IP address or a host name")
}

pub(super) fn validate_inventory_name(text: &str) -> Verdict {
    if is_valid_inventory_name(text) {
        return Ok(());
    }
    let near: String = text.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(MAX_NAME_LENGTH).collect();
    let near = near.trim_matches('-');
    let hint = "use lower-case letters, digits and -, at most 40, not beginning with -";
    let hint = if near.is_empty() { hint.to_owned() } else { format!("{hint}: for example {near}") };
    Err((format!("`{}` is not a run name", shorten(text)), hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a shell, a path or a terminal would interpret, in the middle and at both ends.
    fn hostile_texts() -> Vec<String> {
        let signs =
            "$ ; | & < > ( ) { } [ ] ` ' \" * ? ! # ~ = , @ / \n \r \t \u{1b} \0 \u{202e}".split(' ').filter(|sign| !sign.is_empty());
        let mut all: Vec<String> = signs.flat_map(|sign| [format!("a{sign}b"), format!("{sign}ab"), format!("ab{sign}")]).collect();
        all.extend(
            ["", " ", "-oProxyCommand=x", "-l", "a b", "$(id)", "`id`", "a;id", "..", "../x", "a\\", "\\a", ".", ".a"].map(str::to_owned),
        );
        all.push("x".repeat(300));
        all
    }

    #[test]
    fn names_with_shell_syntax_are_rejected() {
        for text in hostile_texts() {
            assert!(!is_valid_user(&text), "user {text:?}");
            assert!(!is_valid_host_name(&text), "host {text:?}");
            assert!(!is_valid_address(&text), "address {text:?}");
            assert!(!is_valid_run_id(&text), "run {text:?}");
            assert!(!is_valid_inventory_name(&text), "name {text:?}");
            let jump = text == "ab" || matches!(text.as_str(), "a@b");
            assert_eq!(is_valid_jump_host(&text), jump, "jump {text:?}");
        }
    }

    #[test]
    fn usual_names_are_accepted() {
        for user in ["root", "li", "_apt", "li.wei", "li-wei+gpu", "CORP\\li", "损失", "7", "ubuntu"] {
            assert!(is_valid_user(user), "{user}");
        }
        for host in ["gpu01", "10.0.0.9", "fd00::1", "fe80::1%eth0", "a.b-c_d"] {
            assert!(is_valid_host_name(host) && is_valid_address(host), "{host}");
        }
        for jump in ["bastion", "li@bastion:2222", "li@[fd00::1]:22", "10.0.0.1"] {
            assert!(is_valid_jump_host(jump), "{jump}");
        }
        assert!(!is_valid_jump_host("$(id)@bastion") && !is_valid_jump_host("li@b;id") && !is_valid_jump_host("a,b"));
        assert!(is_valid_run_id("20261122-054703-04da"));
        for run in [
            "20261122-054703-04DA",
            "20261122-054703-04da ",
            "20261122-054703-04da/x",
            "20261122-54703-04da",
            "20261122-054703",
            "2026١122-054703-04da",
        ] {
            assert!(!is_valid_run_id(run), "{run}");
        }
        assert!(
            is_valid_inventory_name("wan22")
                && is_valid_inventory_name("a-b-")
                && !is_valid_inventory_name("-a")
                && !is_valid_inventory_name("A")
                && !is_valid_inventory_name(&"a".repeat(41))
        );
    }
}
