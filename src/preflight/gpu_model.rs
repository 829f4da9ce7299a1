//! `gpu-model`: one model everywhere.

use super::context::{CheckContext, gpu_field};
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::model::level::Level;

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "gpu-model",
    area: CheckArea::Gpu,
    description: "hosts have different GPU models",
    probes: &[Probe::Gpus],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.compare_hosts(Level::Warn, "the slowest GPU slows down all ranks; exclude the host that differs with --limit", |host| {
        gpu_field(host, "name")
    })
}
