//! `fabric-manager`: the service that connects the NVSwitches.

use super::context::CheckContext;
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "fabric-manager",
    area: CheckArea::Gpu,
    description: "nvidia-fabricmanager does not run on a host with NVSwitches: CUDA fails with error 802",
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
            Some(state) => CheckResult::fail(
                format!("nvidia-fabricmanager is {state}"),
                "run `sudo systemctl enable --now nvidia-fabricmanager` on that host",
            ),
            None => CheckResult::skipped("no systemctl on this host: state unknown"),
        }
    })
}
