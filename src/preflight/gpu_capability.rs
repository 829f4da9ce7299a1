//! `gpu-capability`: what code for them must be compiled for.

use super::context::CheckContext;
use super::context::{gpu_field, gpu_skip_result};
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::model::level::Level;

/// See its `looks`.
pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "gpu-capability",
    area: CheckArea::Gpu,
    description: "GPUs have different compute capabilities",
    probes: &[Probe::Gpus],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.compare_hosts(Level::Warn, "compile kernels for all of them (TORCH_CUDA_ARCH_LIST)", |host| match gpu_skip_result(host) {
        Some(cell) => Err(cell),
        None => gpu_field(host, "compute_cap"),
    })
}
