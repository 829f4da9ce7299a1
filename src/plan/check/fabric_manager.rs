//! `fabric-manager`: who connects the NVSwitches.

use super::probe::Probe;
use super::scene::Scene;
use super::{Area, Cell, Check};

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "fabric-manager",
    area: Area::Gpu,
    looks: "a machine with NVSwitches does not run nvidia-fabricmanager: CUDA fails with error 802",
    needs: &[Probe::Gpus],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    scene.each_gpu_host(|host| {
        if host.told.one("nvswitch").is_none() {
            return Cell::skipped("no NVSwitch");
        }
        match host.told.one("fabric_manager") {
            Some("active") => Cell::pass("active"),
            Some(state) => {
                Cell::fail(format!("nvidia-fabricmanager is {state}"), "`sudo systemctl enable --now nvidia-fabricmanager` there")
            }
            None => Cell::skipped("there is no systemctl to ask"),
        }
    })
}
