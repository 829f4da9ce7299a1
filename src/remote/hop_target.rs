//! The request for a hop: alias and overrides.

use crate::inventory::{HostSshSettings, InventoryHost};
use crate::ssh_config::{JumpHost, SettingOrigin};

/// A host of the inventory, or a jump host on the route to one.
#[derive(Debug, Clone)]
pub(super) struct HopTarget<'a> {
    /// Alias to look up in ssh_config.
    pub(super) alias: &'a str,
    /// Overrides of ssh_config: `-o HostName`, `-l`, `-p`.
    pub(super) address: Option<&'a str>,
    pub(super) user: Option<&'a str>,
    pub(super) port: Option<u16>,
    /// Overrides the route of ssh_config: these jump hosts, or none if empty.
    pub(super) forced_jumps: Option<String>,
    /// Origin of the overrides.
    pub(super) origin: SettingOrigin,
    /// The inventory's settings for the target host.
    pub(super) ssh: &'a HostSshSettings,
    pub(super) is_jump: bool,
}

impl<'a> HopTarget<'a> {
    pub(super) fn for_host(host: &'a InventoryHost) -> Self {
        let InventoryHost { name, address, ssh, .. } = host;
        let via = ssh.jump_hosts.as_ref().map(|jumps| jumps.join(","));
        let (user, port, origin) = (ssh.user.as_deref(), ssh.port, SettingOrigin::Inventory);
        HopTarget { alias: name, address: address.as_deref(), user, port, forced_jumps: via, origin, ssh, is_jump: false }
    }

    /// `origin`: where the jump host is named.
    pub(super) fn for_jump_host(jump: &'a JumpHost, ssh: &'a HostSshSettings, origin: &SettingOrigin) -> Self {
        let (user, port, origin) = (jump.user.as_deref(), jump.port, origin.clone());
        HopTarget { alias: &jump.host, address: None, user, port, forced_jumps: None, origin, ssh, is_jump: true }
    }
}
