//! `gpu-count`: as many GPUs as the inventory and the ranks need.

use super::context::CheckContext;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::inventory::{ContainerGpus, GpuSelection};
use crate::model::level::Level;
use crate::plan::fact_rules::required_gpu_count;

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "gpu-count",
    area: CheckArea::Gpu,
    description: "a host has fewer GPUs than the inventory or the ranks need, or (a warning) a different number than the other hosts",
    probes: &[],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    let mut cells = context.compare_hosts(Level::Warn, "see `nvidia-smi -L` and `dmesg | grep -i xid` on that host", |host| {
        if !host.wants_gpus() {
            return Err(CheckResult::skipped("no GPUs are used"));
        }
        Ok(format!("{} GPUs", host.facts.gpu_lines.len()))
    });
    for (host, cell) in context.hosts.iter().zip(&mut cells) {
        if !host.wants_gpus() {
            continue;
        }
        let there = u32::try_from(host.facts.gpu_lines.len()).unwrap_or(u32::MAX);
        let needed = match (host.container().map(|c| &c.gpus), &host.host.gpus) {
            // All GPUs that the host may use must be there, though some of them are enough.
            (Some(ContainerGpus::Count(_)), listed @ GpuSelection::List(_)) => required_gpu_count(None, listed, 0),
            (_, listed) => required_gpu_count(host.container(), listed, context.job.nproc_per_node.unwrap_or(1)),
        };
        if there < needed.max(1) {
            let why = host.facts.gpu_error.as_ref().map_or_else(String::new, |e| format!(": {e}"));
            *cell = CheckResult::fail(
                format!("{there} of {needed} GPUs found{why}"),
                "see `nvidia-smi -L` and `dmesg | grep -i xid` on that host; or lower launch.nproc_per_node and hosts[].gpus",
            );
        }
    }
    cells
}
