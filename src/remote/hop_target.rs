//! What a hop is asked for.
//!
//! Uses `inventory` and `ssh_config`.

use crate::inventory::{HostSshSettings, InventoryHost};
use crate::ssh_config::{JumpHost, SettingOrigin};

/// What a hop is asked for: a host of the inventory, or a jump host on the way to one.
#[derive(Debug, Clone)]
pub(super) struct HopTarget<'a> {
    /// The alias that ssh_config is asked for.
    pub(super) alias: &'a str,
    /// Stands over ssh_config: `-o HostName`, `-l`, `-p`.
    pub(super) address: Option<&'a str>,
    pub(super) user: Option<&'a str>,
    pub(super) port: Option<u16>,
    /// How it must be reached, whatever ssh_config says: through these jump hosts, or, where it is empty, through none.
    pub(super) forced_jumps: Option<String>,
    /// Who says all this.
    pub(super) origin: SettingOrigin,
    /// The inventory's settings for the host at the end of the way.
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

    /// `origin`: who names the jump host.
    pub(super) fn for_jump_host(jump: &'a JumpHost, ssh: &'a HostSshSettings, origin: &SettingOrigin) -> Self {
        let (user, port, origin) = (jump.user.as_deref(), jump.port, origin.clone());
        HopTarget { alias: &jump.host, address: None, user, port, forced_jumps: None, origin, ssh, is_jump: true }
    }
}
