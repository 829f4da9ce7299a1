//! What a hop is asked for.
//!
//! Uses `inventory` and `ssh_config`.

use super::ssh_config::{Jump, Origin};
use crate::inventory::{Host, Ssh};

/// What a hop is asked for: a host of the inventory, or a jump host on the way to one.
#[derive(Debug, Clone)]
pub(super) struct Asked<'a> {
    /// The alias that ssh_config is asked for.
    pub(super) alias: &'a str,
    /// Stands over ssh_config: `-o HostName`, `-l`, `-p`.
    pub(super) address: Option<&'a str>,
    pub(super) user: Option<&'a str>,
    pub(super) port: Option<u16>,
    /// How it must be reached, whatever ssh_config says: through these jump hosts, or, where it is empty, through none.
    pub(super) via: Option<String>,
    /// Who says all this.
    pub(super) origin: Origin,
    /// The inventory's settings for the host at the end of the way.
    pub(super) ssh: &'a Ssh,
    pub(super) jump: bool,
}

impl<'a> Asked<'a> {
    pub(super) fn host(host: &'a Host) -> Self {
        let Host { name, address, ssh, .. } = host;
        let via = ssh.jump.as_ref().map(|jumps| jumps.join(","));
        let (user, port, origin) = (ssh.user.as_deref(), ssh.port, Origin::Inventory);
        Asked { alias: name, address: address.as_deref(), user, port, via, origin, ssh, jump: false }
    }

    /// `origin`: who names the jump host.
    pub(super) fn jump(jump: &'a Jump, ssh: &'a Ssh, origin: &Origin) -> Self {
        let (user, port, origin) = (jump.user.as_deref(), jump.port, origin.clone());
        Asked { alias: &jump.host, address: None, user, port, via: None, origin, ssh, jump: true }
    }
}
