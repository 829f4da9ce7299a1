//! What may name a host, a user, a jump host, an address and a run: they become words of commands, parts of paths and labels, here and on the
//! hosts. The same rules hold for an inventory and for a record that a host hands out.
//!
//! Uses `expand`. A name that these rules let through holds nothing that a shell would interpret.

use super::expand;
use super::tree::shorten;

/// What is wrong with a text, and what would be right.
pub(super) type Wrong = (String, String);

/// The longest user name: useradd(8) stops at 256 with what it adds.
const USER: usize = 255;
/// The longest `name` of an inventory.
const NAME: usize = 40;

/// Whether a text can name a host of an inventory, or one in ssh_config.
pub fn valid_host_name(text: &str) -> bool {
    expand::is_host(text)
}

/// Whether a text can be a user on a host: letters, digits and `_ . + -`, and `CORP\\li` of a directory service. Stricter than OpenSSH's
/// `valid_ruser`: nothing that any shell would interpret.
pub fn valid_user(text: &str) -> bool {
    let letter = |c: char| c.is_alphanumeric() || "_.+-\\".contains(c);
    let ends = text.starts_with(|c: char| c.is_alphanumeric() || c == '_') && !text.ends_with('\\');
    ends && text.len() <= USER && text.chars().all(letter)
}

/// Whether a text can be where ssh connects: an IP address or a host's name.
pub fn valid_address(text: &str) -> bool {
    address(text).is_ok()
}

/// Whether a text is a jump host: `[user@]host[:port]`.
pub fn valid_jump(text: &str) -> bool {
    expand::short(text).is_ok_and(|short| expand::is_host(&short.host) && short.user.as_deref().is_none_or(valid_user))
}

/// Whether a text is the id of a run: `20261122-054703-04da`.
pub fn valid_run_id(text: &str) -> bool {
    let digits = |text: &str, count| text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    match text.split('-').collect::<Vec<_>>()[..] {
        [day, time, random] => {
            digits(day, 8) && digits(time, 6) && random.len() == 4 && random.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        }
        _ => false,
    }
}

/// Whether a text can be the `name` of an inventory.
pub fn valid_name(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.len() <= NAME && text.bytes().next().is_some_and(plain) && text.bytes().all(|b| plain(b) || b == b'-')
}

pub(super) fn user(text: &str) -> Result<(), Wrong> {
    if valid_user(text) {
        return Ok(());
    }
    let hint = "write the name alone, like root: only letters, digits and _ . + -";
    Err((format!("`{}` is not a user", shorten(text)), hint.to_owned()))
}

pub(super) fn address(text: &str) -> Result<(), Wrong> {
    if let Some((host, port)) = text.rsplit_once(':')
        && !host.contains(':')
        && port.parse::<u16>().is_ok()
    {
        return Err((format!("`{}` holds a port", shorten(text)), format!("write address: {host} and ssh: {{ port: {port} }}")));
    }
    let plain = text.split('%').next().unwrap_or_default();
    if !expand::is_host(text) || (text.contains(':') && plain.parse::<std::net::Ipv6Addr>().is_err()) {
        return Err((format!("`{}` is not an address", shorten(text)), "write an IP address or a host's name".to_owned()));
    }
    Ok(())
}

pub(super) fn name(text: &str) -> Result<(), Wrong> {
    if valid_name(text) {
        return Ok(());
    }
    let near: String = text.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(NAME).collect();
    let near = near.trim_matches('-');
    let hint = "lower-case letters, digits and -, at most 40, no - first";
    let hint = if near.is_empty() { hint.to_owned() } else { format!("{hint}: for example {near}") };
    Err((format!("`{}` cannot name a run", shorten(text)), hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a shell, a path or a terminal would interpret, in the middle and at both ends.
    fn hostile() -> Vec<String> {
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
    fn nothing_that_a_shell_interprets_is_a_name() {
        for text in hostile() {
            assert!(!valid_user(&text), "user {text:?}");
            assert!(!valid_host_name(&text), "host {text:?}");
            assert!(!valid_address(&text), "address {text:?}");
            assert!(!valid_run_id(&text), "run {text:?}");
            assert!(!valid_name(&text), "name {text:?}");
            let jump = text == "ab" || matches!(text.as_str(), "a@b");
            assert_eq!(valid_jump(&text), jump, "jump {text:?}");
        }
    }

    #[test]
    fn names_as_they_are_written_are_names() {
        for user in ["root", "li", "_apt", "li.wei", "li-wei+gpu", "CORP\\li", "损失", "7", "ubuntu"] {
            assert!(valid_user(user), "{user}");
        }
        for host in ["gpu01", "10.0.0.9", "fd00::1", "fe80::1%eth0", "a.b-c_d"] {
            assert!(valid_host_name(host) && valid_address(host), "{host}");
        }
        for jump in ["bastion", "li@bastion:2222", "li@[fd00::1]:22", "10.0.0.1"] {
            assert!(valid_jump(jump), "{jump}");
        }
        assert!(!valid_jump("$(id)@bastion") && !valid_jump("li@b;id") && !valid_jump("a,b"));
        assert!(valid_run_id("20261122-054703-04da"));
        for run in [
            "20261122-054703-04DA",
            "20261122-054703-04da ",
            "20261122-054703-04da/x",
            "20261122-54703-04da",
            "20261122-054703",
            "2026١122-054703-04da",
        ] {
            assert!(!valid_run_id(run), "{run}");
        }
        assert!(valid_name("wan22") && valid_name("a-b-") && !valid_name("-a") && !valid_name("A") && !valid_name(&"a".repeat(41)));
    }
}
