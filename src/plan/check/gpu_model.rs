//! `gpu-model`: one model everywhere.

use super::probe::Probe;
use super::scene::Scene;
use super::scene::{field, no_gpus};
use super::{Area, Cell, Check};
use crate::plan::words::Level;

/// See its `looks`.
pub(super) const CHECK: Check =
    Check { name: "gpu-model", area: Area::Gpu, looks: "GPUs are of different models", needs: &[Probe::Gpus], judge };

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    scene.alike(Level::Warn, "the slowest GPU sets the pace of all; leave the odd host out with --limit", |host| match no_gpus(host) {
        Some(cell) => Err(cell),
        None => field(host, "name"),
    })
}
