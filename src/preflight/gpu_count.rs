//! `gpu-count`: as many GPUs as the inventory and the ranks need.

use super::context::CheckContext;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::inventory::{ContainerGpus, GpuSelection};
use crate::model::level::Level;

/// See its `looks`.
pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "gpu-count",
    area: CheckArea::Gpu,
    description: "a host has fewer GPUs than the inventory or the ranks need, or (a warning) another number than the others",
    probes: &[],
    judge,
};

fn judge(scene: &CheckContext<'_>) -> Vec<CheckResult> {
    let mut cells =
        scene.compare_hosts(Level::Warn, "`nvidia-smi -L` there; `dmesg | grep -i xid` may say where the others went", |host| {
            if !host.wants_gpus() {
                return Err(CheckResult::skipped("no GPUs are used"));
            }
            Ok(format!("{} GPUs", host.facts.gpu_lines.len()))
        });
    for (host, cell) in scene.hosts.iter().zip(&mut cells) {
        let there = u32::try_from(host.facts.gpu_lines.len()).unwrap_or(u32::MAX);
        let listed = |list: &[u32]| list.iter().max().map_or(0, |m| m + 1);
        let needed = match (host.container().map(|c| &c.gpus), &host.host.gpus) {
            _ if !host.wants_gpus() => continue,
            (Some(ContainerGpus::List(list)), _) | (_, GpuSelection::List(list)) => listed(list),
            (Some(ContainerGpus::Count(n)), _) | (_, GpuSelection::Count(n)) => *n,
            (_, GpuSelection::Any) => scene.job.nproc_per_node.unwrap_or(1),
        };
        if there < needed.max(1) {
            let why = host.facts.gpu_error.as_ref().map_or_else(String::new, |e| format!(": {e}"));
            *cell = CheckResult::fail(
                format!("{there} of {needed} GPUs are there{why}"),
                "`nvidia-smi -L` there; `dmesg | grep -i xid` may say where the others went; or lower launch.nproc_per_node and hosts[].gpus",
            );
        }
    }
    cells
}
