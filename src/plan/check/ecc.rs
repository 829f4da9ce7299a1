//! `ecc`: memory errors of the GPUs.

use super::mig::picked;
use super::probe::Probe;
use super::scene::Scene;
use super::scene::{field, no_gpus};
use super::{Area, Cell, Check};
use crate::plan::words::Level;
use std::collections::BTreeMap;

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "ecc",
    area: Area::Gpu,
    looks: "a GPU has memory errors that could not be corrected, or ECC is on only on some hosts",
    needs: &[Probe::Gpus],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    let mut cells = scene.alike(Level::Warn, "`sudo nvidia-smi -e 1` there, then reboot it", |host| match no_gpus(host) {
        Some(cell) => Err(cell),
        None => field(host, "ecc.mode.current").map(|mode| format!("ECC {mode}")),
    });
    for (host, cell) in scene.hosts.iter().zip(&mut cells).filter(|(host, _)| no_gpus(host).is_none()) {
        let errors = |gpu: &BTreeMap<&str, &str>| {
            gpu.get("ecc.errors.uncorrected.volatile.total").is_some_and(|n| n.parse::<u64>().is_ok_and(|n| n > 0))
        };
        let bad = picked(host, errors);
        if !bad.is_empty() {
            *cell = Cell::warn(
                format!("uncorrected memory errors on GPU {bad}"),
                format!("`nvidia-smi -q -d ECC,ROW_REMAPPER -i {bad}` there; reset or replace it"),
            );
        }
    }
    cells
}
