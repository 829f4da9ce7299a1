//! `nccl-conf`: a file that changes NCCL unseen.

use super::probe::Probe;
use super::scene::Scene;
use super::{Area, Cell, Check};
use crate::plan::words::Level;

/// See its `looks`.
pub(super) const CHECK: Check =
    Check { name: "nccl-conf", area: Area::Network, looks: "/etc/nccl.conf differs between the hosts", needs: &[Probe::Host], judge };

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    scene.alike(Level::Warn, "compare with `orchestrate exec -- cat /etc/nccl.conf`", |host| {
        Ok(host.told.one("nccl_conf").map_or_else(|| "no /etc/nccl.conf".to_owned(), |digest| format!("/etc/nccl.conf ({digest})")))
    })
}
