//! `run-dir`: docker can reach the run directory.

use super::probe::Probe;
use super::scene::Scene;
use super::{Area, Cell, Check};

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "run-dir",
    area: Area::Docker,
    looks: "run_dir lies on NFS or Lustre and ranks run in containers: a server that squashes root keeps docker out of it",
    needs: &[Probe::Host],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    scene.each(|host| {
        if host.container().is_none() {
            return Cell::skipped("bare host");
        }
        let run_dir = &host.facts.run_dir;
        match host.told.one("run_dir_system") {
            None | Some("-" | "") => Cell::skipped("its file system could not be looked at"),
            // Who owns the directory does not matter: it is 0700, and the daemon mounts it as root.
            Some(system) if system.starts_with("nfs") || system == "lustre" => Cell::warn(
                format!("{run_dir} lies on {system}: if the server squashes root (root_squash, the default), docker cannot mount it"),
                "set run_dir to a directory on a disk of the host, for example /var/tmp/orchestrate",
            ),
            Some(system) => Cell::pass(format!("{run_dir} on {system}")),
        }
    })
}
