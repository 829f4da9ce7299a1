//! `fabric-manager`: who connects the NVSwitches.

use super::context::CheckContext;
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};

/// See its `looks`.
pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "fabric-manager",
    area: CheckArea::Gpu,
    description: "a machine with NVSwitches does not run nvidia-fabricmanager: CUDA fails with error 802",
    probes: &[Probe::Gpus],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.check_each_gpu_host(|host| {
        if host.probe_output.last_value("nvswitch").is_none() {
            return CheckResult::skipped("no NVSwitch");
        }
        match host.probe_output.last_value("fabric_manager") {
            Some("active") => CheckResult::pass("active"),
            Some(state) => {
                CheckResult::fail(format!("nvidia-fabricmanager is {state}"), "`sudo systemctl enable --now nvidia-fabricmanager` there")
            }
            None => CheckResult::skipped("there is no systemctl to ask"),
        }
    })
}
