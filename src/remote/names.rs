//! Which names may become words of a command on the laptop: ProxyCommand, KnownHostsCommand, and the `Match exec` that `ssh -G` runs.
//!
//! Uses `inventory`. The rules for texts of ssh_config are OpenSSH's own (`valid_hostname` and `valid_ruser` in its misc.c, since 9.6:
//! CVE-2023-51385); a `$` is refused in a user too where a shell reads it. What an inventory says passes the inventory's stricter rules again.

use super::RemoteError;
use super::hop_request::Asked;
use super::ssh_config::Origin;
use crate::inventory;

/// What OpenSSH refuses in a host's name.
const HOST: &str = "'`\"$\\;&<>|(){},";
/// What it refuses in a user's, and the `$`.
const USER: &str = "'`\"$;&<>|(){}";

/// An error is a fragment: `` `a;b` holds `;`, which a shell would interpret ``.
pub(super) fn host(text: &str) -> Result<(), String> {
    judge(text, |c, _| HOST.contains(c) || c.is_whitespace() || c.is_control())
}

/// As `host`. A blank before a `-` would begin an option, a `\` at the end would take the next sign's meaning.
pub(super) fn user(text: &str) -> Result<(), String> {
    let refused = |c: char, next: Option<char>| {
        let option = c.is_whitespace() && next == Some('-');
        USER.contains(c) || c.is_control() || option || (c == '\\' && next.is_none())
    };
    judge(text, refused)
}

fn judge(text: &str, refused: impl Fn(char, Option<char>) -> bool) -> Result<(), String> {
    if text.starts_with('-') {
        return Err(format!("`{}` begins with `-`: a command would take it for an option", shown(text)));
    }
    let bad = text.char_indices().find(|(at, c)| refused(*c, text[at + c.len_utf8()..].chars().next()));
    bad.map_or(Ok(()), |(_, c)| Err(format!("`{}` holds {}, which a shell would interpret", shown(text), sign(c))))
}

fn sign(c: char) -> String {
    if c == '`' { "a backtick".to_owned() } else { format!("`{}`", c.escape_debug()) }
}

fn shown(text: &str) -> String {
    text.chars().take(60).flat_map(char::escape_debug).collect()
}

/// Looks at what ssh would be given on its command line, before anything is run with it.
pub(super) fn given(asked: &Asked<'_>) -> Result<(), RemoteError> {
    let strict = asked.origin == Origin::Inventory;
    let fine = |what: &str, text: &str, own: fn(&str) -> bool, theirs: fn(&str) -> Result<(), String>| {
        let wrong = theirs(text).err().or_else(|| (strict && !own(text)).then(|| format!("`{}` is no {what}", shown(text))));
        wrong.map_or(Ok(()), |why| {
            Err(RemoteError::Settings {
                what: format!("{}: {what}: {why}", asked.origin),
                hint: format!("give it a {what} of letters, digits and - _ . +: local commands of ssh_config are made with it"),
            })
        })
    };
    fine("host", asked.alias, inventory::valid_host_name, host)?;
    asked.address.map_or(Ok(()), |address| fine("address", address, inventory::valid_address, host))?;
    asked.user.map_or(Ok(()), |name| fine("user", name, inventory::valid_user, user))?;
    // The hop before a jump host may be one that ssh_config names.
    let own = if asked.jump { |_: &str| true } else { inventory::valid_jump };
    let mut jumps = asked.via.as_deref().filter(|via| !via.is_empty()).into_iter().flat_map(|via| via.split(','));
    jumps.try_for_each(|jump| fine("jump host", jump, own, halves))
}

/// `user@host:port`, each half by its own rule.
fn halves(jump: &str) -> Result<(), String> {
    let (name, place) = jump.rsplit_once('@').map_or((None, jump), |(name, place)| (Some(name), place));
    name.map_or(Ok(()), user)?;
    host(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::Ssh;

    #[test]
    fn the_rules_are_those_of_openssh() {
        for good in ["gpu01", "10.0.0.1", "fe80::1%eth0", "[h]:22", "a_b", "a*b", "损失", "a!b"] {
            assert_eq!(host(good), Ok(()), "{good}");
        }
        for bad in [
            "-oX", "a'b", "a`id`", "a\"b", "$(id)", "a\\b", "a;b", "a&b", "a<b", "a>b", "a|b", "a(b", "a{b", "a,b", "a b", "a\tb", "a\nb",
            "a\u{7f}",
        ] {
            assert!(host(bad).is_err(), "{bad}");
        }
        for good in ["root", "CORP\\li", "li wei", "li@corp", "a,b", "a#b"] {
            assert_eq!(user(good), Ok(()), "{good}");
        }
        for bad in [
            "-l", "a'b", "a`id`", "a\"b", "a;b", "a&b", "a<b", "a>b", "a|b", "a(b", "a)b", "a{b", "a}b", "a -oX", "a\t-l", "a\\", "$IFS",
            "a\u{1}b",
        ] {
            assert!(user(bad).is_err(), "{bad}");
        }
        assert_eq!(host("a`b"), Err("`a`b` holds a backtick, which a shell would interpret".to_owned()));
        assert_eq!(user("a\nb"), Err("`a\\nb` holds `\\n`, which a shell would interpret".to_owned()));
    }

    #[test]
    fn what_is_asked_for_is_looked_at_before_a_command_is_made() {
        let ssh = Ssh::default();
        let asked = |alias, address, user, via: Option<&str>, origin| {
            let asked = Asked { alias, address, user, port: None, via: via.map(str::to_owned), origin, ssh: &ssh, jump: false };
            given(&asked).map_err(|e| e.to_string())
        };
        assert_eq!(asked("gpu01", Some("10.0.0.1"), Some("root"), Some("li@b:22,c"), Origin::Inventory), Ok(()));
        assert_eq!(
            asked("li's;host", None, None, None, Origin::Inventory).unwrap_err(),
            "inventory: host: `li\\'s;host` holds `\\'`, which a shell would interpret"
        );
        assert!(asked("a", Some("$(id)"), None, None, Origin::Inventory).is_err());
        assert!(asked("a", None, Some("a|b"), None, Origin::Inventory).is_err());
        assert!(asked("a", None, Some("li wei"), None, Origin::Inventory).unwrap_err().contains("is no user"));
        assert_eq!(asked("a", None, Some("li wei"), None, Origin::Ssh), Ok(()), "as OpenSSH");
        assert!(asked("a", None, None, Some("b,`id`@c"), Origin::Inventory).is_err());
    }
}
