//! `gpu-model`: one model everywhere.

use super::context::CheckContext;
use super::context::{gpu_field, gpu_skip_result};
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::model::level::Level;

/// See its `looks`.
pub(crate) const CHECK: PreflightCheck =
    PreflightCheck { name: "gpu-model", area: CheckArea::Gpu, description: "GPUs are of different models", probes: &[Probe::Gpus], judge };

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.compare_hosts(Level::Warn, "the slowest GPU sets the pace of all; leave the odd host out with --limit", |host| {
        match gpu_skip_result(host) {
            Some(cell) => Err(cell),
            None => gpu_field(host, "name"),
        }
    })
}
