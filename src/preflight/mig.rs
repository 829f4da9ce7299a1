//! `mig`: GPUs that are cut into pieces.

use super::context::{CheckContext, CheckedHost};
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};
use std::collections::BTreeMap;

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "mig",
    area: CheckArea::Gpu,
    description: "a GPU that the job may use has MIG enabled: a rank would get one MIG device, and NCCL does not work between MIG devices",
    probes: &[Probe::Gpus],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.check_each_gpu_host(|host| {
        let cut = matching_gpus(host, |gpu| gpu.get("mig.mode.current") == Some(&"Enabled"));
        if cut.is_empty() {
            CheckResult::pass("off")
        } else {
            CheckResult::warn(
                format!("on, on GPU {cut}"),
                format!("run `sudo nvidia-smi -i {cut} -mig 0` on that host while the GPU is idle"),
            )
        }
    })
}

/// The indexes of those GPUs that may be used and of which something holds.
pub(crate) fn matching_gpus(host: &CheckedHost<'_>, holds: impl Fn(&BTreeMap<&str, &str>) -> bool) -> String {
    let rows = host.probe_output.gpu_rows();
    let used = rows.iter().filter(|gpu| host.allows_gpu(gpu.get("index").copied().unwrap_or_default()));
    used.filter(|gpu| holds(gpu)).filter_map(|gpu| gpu.get("index").copied()).collect::<Vec<_>>().join(",")
}
