//! `mig`: GPUs that are cut into pieces.

use super::probe::Probe;
use super::scene::Place;
use super::scene::Scene;
use super::{Area, Cell, Check};
use std::collections::BTreeMap;

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "mig",
    area: Area::Gpu,
    looks: "a GPU that the job may use is cut into MIG devices: a rank would get a slice of it, and slices cannot talk to each other by NCCL",
    needs: &[Probe::Gpus],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    scene.each_gpu_host(|host| {
        let cut = picked(host, |gpu| gpu.get("mig.mode.current") == Some(&"Enabled"));
        if cut.is_empty() {
            Cell::pass("off")
        } else {
            Cell::warn(format!("on, on GPU {cut}"), format!("`sudo nvidia-smi -i {cut} -mig 0` there, with nobody on it"))
        }
    })
}

/// The indexes of those GPUs that may be used and of which something holds.
pub(super) fn picked(host: &Place<'_>, holds: impl Fn(&BTreeMap<&str, &str>) -> bool) -> String {
    let rows = host.told.gpus();
    let used = rows.iter().filter(|gpu| {
        let index = gpu.get("index").and_then(|i| i.parse::<u32>().ok());
        host.allowed().is_none_or(|allowed| index.is_some_and(|i| allowed.contains(&i)))
    });
    used.filter(|gpu| holds(gpu)).filter_map(|gpu| gpu.get("index").copied()).collect::<Vec<_>>().join(",")
}
