//! `gpu-count`: as many GPUs as the inventory and the ranks need.

use super::context::{CheckContext, CheckedHost};
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::inventory::{ContainerGpus, GpuSelection};
use crate::model::level::Level;
use crate::plan::fact_rules::required_gpu_count;
use crate::plan::protocol::nvidia_smi;

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "gpu-count",
    area: CheckArea::Gpu,
    description: "a host has fewer GPUs than the inventory or the ranks need, or (warnings) a different number than the other hosts, or the GPUs of another host",
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
    for (at, (host, cell)) in context.hosts.iter().zip(&mut cells).enumerate() {
        if !host.wants_gpus() {
            continue;
        }
        let uuids = usable_uuids(host);
        let shares = |other: &&CheckedHost<'_>| other.wants_gpus() && usable_uuids(other).iter().any(|uuid| uuids.contains(uuid));
        if let Some(other) = context.hosts.iter().take(at).find(shares) {
            *cell = CheckResult::warn(
                format!("it has the same GPUs as {}: both names lead to one machine", other.name()),
                "give each machine once; NCCL refuses two ranks on one GPU",
            );
        }
        let there = u32::try_from(host.facts.gpu_lines.len()).unwrap_or(u32::MAX);
        let needed = match (host.container().map(|c| &c.gpus), &host.host.gpus) {
            // All GPUs that the host may use must be there, though some of them are enough.
            (Some(ContainerGpus::Count(_)), listed @ GpuSelection::List(_)) => required_gpu_count(None, listed, 0),
            (_, listed) => required_gpu_count(host.container(), listed, host.job_host.nproc.unwrap_or(1)),
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

/// The GPUs that the ranks of a host may use, as far as their UUIDs are known.
fn usable_uuids(host: &CheckedHost<'_>) -> Vec<String> {
    let allowed = host.allowed_gpus();
    let listed = nvidia_smi::parse_gpu_list(&host.facts.gpu_lines.join("\n")).into_iter();
    listed.filter(|gpu| !gpu.uuid.is_empty() && allowed.is_none_or(|list| list.contains(&gpu.index))).map(|gpu| gpu.uuid).collect()
}
