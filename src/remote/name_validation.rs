//! Which names may become words of a command on the laptop: ProxyCommand, KnownHostsCommand, and the `Match exec` that `ssh -G` runs.
//!
//! Uses `inventory`. The rules for texts of ssh_config are OpenSSH's own (`valid_hostname` and `valid_ruser` in its misc.c, since 9.6:
//! CVE-2023-51385); a `$` is refused in a user too where a shell reads it. What an inventory says passes the inventory's stricter rules again.

use super::RemoteError;
use super::hop_request::HopRequest;
use super::ssh_config::SettingOrigin;
use crate::inventory;

/// What OpenSSH refuses in a host's name.
const FORBIDDEN_IN_HOST: &str = "'`\"$\\;&<>|(){},";
/// What it refuses in a user's, and the `$`.
const FORBIDDEN_IN_USER: &str = "'`\"$;&<>|(){}";

/// An error is a fragment: `` `a;b` holds `;`, which a shell would interpret ``.
pub(super) fn validate_host(text: &str) -> Result<(), String> {
    reject_unsafe_chars(text, |c, _| FORBIDDEN_IN_HOST.contains(c) || c.is_whitespace() || c.is_control())
}

/// As `host`. A blank before a `-` would begin an option, a `\` at the end would take the next sign's meaning.
pub(super) fn validate_user(text: &str) -> Result<(), String> {
    let refused = |c: char, next: Option<char>| {
        let option = c.is_whitespace() && next == Some('-');
        FORBIDDEN_IN_USER.contains(c) || c.is_control() || option || (c == '\\' && next.is_none())
    };
    reject_unsafe_chars(text, refused)
}

fn reject_unsafe_chars(text: &str, refused: impl Fn(char, Option<char>) -> bool) -> Result<(), String> {
    if text.starts_with('-') {
        return Err(format!("`{}` begins with `-`: a command would take it for an option", escape_for_display(text)));
    }
    let bad = text.char_indices().find(|(at, c)| refused(*c, text[at + c.len_utf8()..].chars().next()));
    bad.map_or(Ok(()), |(_, c)| Err(format!("`{}` holds {}, which a shell would interpret", escape_for_display(text), quote_char(c))))
}

fn quote_char(c: char) -> String {
    if c == '`' { "a backtick".to_owned() } else { format!("`{}`", c.escape_debug()) }
}

fn escape_for_display(text: &str) -> String {
    text.chars().take(60).flat_map(char::escape_debug).collect()
}

/// Looks at what ssh would be given on its command line, before anything is run with it.
pub(super) fn validate_request(asked: &HopRequest<'_>) -> Result<(), RemoteError> {
    let strict = asked.origin == SettingOrigin::Inventory;
    let fine = |what: &str, text: &str, own: fn(&str) -> bool, theirs: fn(&str) -> Result<(), String>| {
        let wrong = theirs(text).err().or_else(|| (strict && !own(text)).then(|| format!("`{}` is no {what}", escape_for_display(text))));
        wrong.map_or(Ok(()), |why| {
            Err(RemoteError::InvalidConfig {
                what: format!("{}: {what}: {why}", asked.origin),
                hint: format!("give it a {what} of letters, digits and - _ . +: local commands of ssh_config are made with it"),
            })
        })
    };
    fine("host", asked.alias, inventory::is_valid_host_name, validate_host)?;
    asked.address.map_or(Ok(()), |address| fine("address", address, inventory::is_valid_address, validate_host))?;
    asked.user.map_or(Ok(()), |name| fine("user", name, inventory::is_valid_user, validate_user))?;
    // The hop before a jump host may be one that ssh_config names.
    let own = if asked.is_jump { |_: &str| true } else { inventory::is_valid_jump_host };
    let mut jumps = asked.forced_jumps.as_deref().filter(|via| !via.is_empty()).into_iter().flat_map(|via| via.split(','));
    jumps.try_for_each(|jump| fine("jump host", jump, own, validate_jump))
}

/// `user@host:port`, each half by its own rule.
fn validate_jump(jump: &str) -> Result<(), String> {
    let (name, place) = jump.rsplit_once('@').map_or((None, jump), |(name, place)| (Some(name), place));
    name.map_or(Ok(()), validate_user)?;
    validate_host(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::HostSshSettings;

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

    #[test]
    fn unsafe_requests_are_rejected_before_ssh_runs() {
        let ssh = HostSshSettings::default();
        let asked = |alias, address, user, via: Option<&str>, origin| {
            let asked =
                HopRequest { alias, address, user, port: None, forced_jumps: via.map(str::to_owned), origin, ssh: &ssh, is_jump: false };
            validate_request(&asked).map_err(|e| e.to_string())
        };
        assert_eq!(asked("gpu01", Some("10.0.0.1"), Some("root"), Some("li@b:22,c"), SettingOrigin::Inventory), Ok(()));
        assert_eq!(
            asked("li's;host", None, None, None, SettingOrigin::Inventory).unwrap_err(),
            "inventory: host: `li\\'s;host` holds `\\'`, which a shell would interpret"
        );
        assert!(asked("a", Some("$(id)"), None, None, SettingOrigin::Inventory).is_err());
        assert!(asked("a", None, Some("a|b"), None, SettingOrigin::Inventory).is_err());
        assert!(asked("a", None, Some("li wei"), None, SettingOrigin::Inventory).unwrap_err().contains("is no user"));
        assert_eq!(asked("a", None, Some("li wei"), None, SettingOrigin::SshG), Ok(()), "as OpenSSH");
        assert!(asked("a", None, None, Some("b,`id`@c"), SettingOrigin::Inventory).is_err());
    }
}
