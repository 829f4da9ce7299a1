//! `driver`: one driver everywhere.

use super::probe::Probe;
use super::scene::Scene;
use super::scene::{field, no_gpus};
use super::{Area, Cell, Check};
use crate::plan::words::Level;

/// See its `looks`.
pub(super) const CHECK: Check =
    Check { name: "driver", area: Area::Gpu, looks: "hosts have different NVIDIA drivers", needs: &[Probe::Gpus], judge };

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    scene.alike(Level::Warn, "install the same driver everywhere: NCCL and CUDA may behave differently", |host| match no_gpus(host) {
        Some(cell) => Err(cell),
        None => field(host, "driver_version"),
    })
}
