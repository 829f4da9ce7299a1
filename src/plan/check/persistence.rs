//! `persistence`: a driver that stays loaded.

use super::mig::picked;
use super::probe::Probe;
use super::scene::Scene;
use super::scene::field;
use super::{Area, Cell, Check};

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "persistence",
    area: Area::Gpu,
    looks: "persistence mode is off: the driver is loaded anew for each first process, which takes seconds and forgets settings",
    needs: &[Probe::Gpus],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    scene.each_gpu_host(|host| {
        if let Err(cell) = field(host, "persistence_mode") {
            return cell;
        }
        let off = picked(host, |gpu| gpu.get("persistence_mode") == Some(&"Disabled"));
        if off.is_empty() {
            Cell::pass("on")
        } else {
            Cell::warn(format!("off on GPU {off}"), "`sudo nvidia-smi -pm 1` there, or enable nvidia-persistenced")
        }
    })
}
