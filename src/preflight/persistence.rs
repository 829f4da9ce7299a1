//! `persistence`: a driver that stays loaded.

use super::context::{CheckContext, gpu_field};
use super::mig::matching_gpus;
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "persistence",
    area: CheckArea::Gpu,
    description: "persistence mode is off: the driver is reloaded for each first process, which takes seconds and loses settings",
    probes: &[Probe::Gpus],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.check_each_gpu_host(|host| {
        if let Err(cell) = gpu_field(host, "persistence_mode") {
            return cell;
        }
        let off = matching_gpus(host, |gpu| gpu.get("persistence_mode") == Some(&"Disabled"));
        if off.is_empty() {
            CheckResult::pass("on")
        } else {
            CheckResult::warn(format!("off on GPU {off}"), "run `sudo nvidia-smi -pm 1` on that host, or enable nvidia-persistenced")
        }
    })
}
