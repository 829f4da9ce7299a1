//! `gpu-capability`: what code for them must be compiled for.

use super::probe::Probe;
use super::scene::Scene;
use super::scene::{field, no_gpus};
use super::{Area, Cell, Check};
use crate::plan::words::Level;

/// See its `looks`.
pub(super) const CHECK: Check =
    Check { name: "gpu-capability", area: Area::Gpu, looks: "GPUs have different compute capabilities", needs: &[Probe::Gpus], judge };

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    scene.alike(Level::Warn, "kernels must be compiled for all of them (TORCH_CUDA_ARCH_LIST)", |host| match no_gpus(host) {
        Some(cell) => Err(cell),
        None => field(host, "compute_cap"),
    })
}
