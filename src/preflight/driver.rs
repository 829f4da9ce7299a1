//! `driver`: one driver everywhere.

use super::context::{CheckContext, gpu_field};
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::model::level::Level;

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "driver",
    area: CheckArea::Gpu,
    description: "hosts have different NVIDIA drivers",
    probes: &[Probe::Gpus],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.compare_hosts(Level::Warn, "install the same driver everywhere: NCCL and CUDA may behave differently", |host| {
        gpu_field(host, "driver_version")
    })
}
