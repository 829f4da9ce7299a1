//! `ecc`: memory errors of the GPUs.

use super::context::{CheckContext, gpu_field, gpu_skip_result};
use super::mig::matching_gpus;
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::model::level::Level;
use std::collections::BTreeMap;

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "ecc",
    area: CheckArea::Gpu,
    description: "a GPU has uncorrected memory errors, or ECC is enabled on some hosts only",
    probes: &[Probe::Gpus],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    let mut cells = context.compare_hosts(Level::Warn, "run `sudo nvidia-smi -e 1` on that host, then reboot it", |host| {
        gpu_field(host, "ecc.mode.current").map(|mode| format!("ECC {mode}"))
    });
    for (host, cell) in context.hosts.iter().zip(&mut cells).filter(|(host, _)| gpu_skip_result(host).is_none()) {
        let errors = |gpu: &BTreeMap<&str, &str>| {
            gpu.get("ecc.errors.uncorrected.volatile.total").is_some_and(|n| n.parse::<u64>().is_ok_and(|n| n > 0))
        };
        let bad = matching_gpus(host, errors);
        if !bad.is_empty() {
            *cell = CheckResult::warn(
                format!("uncorrected memory errors on GPU {bad}"),
                format!("see `nvidia-smi -q -d ECC,ROW_REMAPPER -i {bad}` on that host; reset or replace the GPU"),
            );
        }
    }
    cells
}
