//! `cpus`: processors.

use super::probe::Probe;
use super::scene::Scene;
use super::{Area, Cell, Check};
use crate::plan::words::Level;

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "cpus",
    area: Area::Host,
    looks: "the hosts have different numbers of processors, or fewer than ranks",
    needs: &[Probe::Host],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    let ranks = u64::from(scene.job.nproc_per_node.unwrap_or(0));
    let mut cells = scene.alike(Level::Warn, "the slowest host sets the pace of all", |host| {
        host.told.number("cpus").map(|n| format!("{n} processors")).ok_or_else(|| Cell::skipped("their number could not be read"))
    });
    for (host, cell) in scene.hosts.iter().zip(&mut cells) {
        if let Some(n) = host.told.number("cpus").filter(|n| *n < ranks) {
            *cell = Cell::warn(format!("{n} processors for {ranks} ranks"), "lower launch.nproc_per_node, or give the machine more");
        }
    }
    cells
}
