//! Which names may be used in local commands: ProxyCommand, KnownHostsCommand, and the `Match exec` that `ssh -G` runs.
//!
//! Names from the inventory must also pass the inventory's stricter rules.

use super::RemoteError;
use super::hop_target::HopTarget;
use crate::inventory;
use crate::ssh_config::SettingOrigin;
use crate::ssh_config::name_rules::{escape_for_display, validate_host, validate_jump, validate_user};

/// Validates the names that would be arguments of ssh, before any command runs with them.
pub(super) fn validate_hop_names(target: &HopTarget<'_>) -> Result<(), RemoteError> {
    let strict = target.origin == SettingOrigin::Inventory;
    let fine = |what: &str, text: &str, own: fn(&str) -> bool, theirs: fn(&str) -> Result<(), String>| {
        let wrong =
            theirs(text).err().or_else(|| (strict && !own(text)).then(|| format!("`{}` is not a valid {what}", escape_for_display(text))));
        wrong.map_or(Ok(()), |why| {
            Err(RemoteError::invalid_config(
                format!("{}: {what}: {why}", target.origin),
                format!("use a {what} of letters, digits and - _ . +: local commands in ssh_config are built from it"),
            ))
        })
    };
    fine("host", target.alias, inventory::is_valid_host_name, validate_host)?;
    target.address.map_or(Ok(()), |address| fine("address", address, inventory::is_valid_address, validate_host))?;
    target.user.map_or(Ok(()), |name| fine("user", name, inventory::is_valid_user, validate_user))?;
    // The previous hop of a jump host may come from ssh_config.
    let own = if target.is_jump { |_: &str| true } else { inventory::is_valid_jump_host };
    let mut jumps = target.forced_jumps.as_deref().filter(|via| !via.is_empty()).into_iter().flat_map(|via| via.split(','));
    jumps.try_for_each(|jump| fine("jump host", jump, own, validate_jump))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::HostSshSettings;

    #[test]
    fn unsafe_requests_are_rejected_before_ssh_runs() {
        let ssh = HostSshSettings::default();
        let query = |alias, address, user, via: Option<&str>, origin| {
            let query =
                HopTarget { alias, address, user, port: None, forced_jumps: via.map(str::to_owned), origin, ssh: &ssh, is_jump: false };
            validate_hop_names(&query).map_err(|e| e.to_string())
        };
        assert_eq!(query("gpu01", Some("10.0.0.1"), Some("root"), Some("li@b:22,c"), SettingOrigin::Inventory), Ok(()));
        assert_eq!(
            query("li's;host", None, None, None, SettingOrigin::Inventory).unwrap_err(),
            "inventory: host: `li\\'s;host` holds `\\'`, which a shell would interpret"
        );
        assert!(query("a", Some("$(id)"), None, None, SettingOrigin::Inventory).is_err());
        assert!(query("a", None, Some("a|b"), None, SettingOrigin::Inventory).is_err());
        assert!(query("a", None, Some("li wei"), None, SettingOrigin::Inventory).unwrap_err().contains("is not a valid user"));
        assert_eq!(query("a", None, Some("li wei"), None, SettingOrigin::SshG), Ok(()), "as OpenSSH");
        assert!(query("a", None, None, Some("b,`id`@c"), SettingOrigin::Inventory).is_err());
    }
}
