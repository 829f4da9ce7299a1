//! `gpu-idle`: no foreign processes on the GPUs.

use super::context::{CheckContext, CheckedHost};
use super::probe::Probe;
use super::row_remap::gpu_index_by_uuid;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::inventory::ContainerGpus;
use crate::text::width::shorten_to_chars;

/// What is shown of a command.
const MAX_COMMAND_CHARS: usize = 60;

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "gpu-idle",
    area: CheckArea::Gpu,
    description: "a process of another job uses a GPU that this job may use",
    probes: &[Probe::Gpus],
    judge,
};

/// A process on a GPU: `ours|- container user pid, uuid, MiB, name|command`.
struct ProbedGpuProcess<'a> {
    ours: bool,
    user: &'a str,
    pid: &'a str,
    uuid: &'a str,
    mib: &'a str,
    command: &'a str,
}

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.check_each_gpu_host(|host| {
        let apps: Vec<ProbedGpuProcess<'_>> =
            host.probe_output.values("app").iter().filter_map(|line| parse_gpu_process(line, host)).collect();
        let foreign: Vec<(String, &ProbedGpuProcess<'_>)> =
            apps.iter().filter(|a| !a.ours).map(|a| (gpu_index_by_uuid(host, a.uuid), a)).filter(|(i, _)| host.allows_gpu(i)).collect();
        // So many are chosen among the idle ones.
        if let Some(ContainerGpus::Count(count)) = host.container().map(|c| &c.gpus) {
            let idle = host
                .probe_output
                .gpu_rows()
                .iter()
                .filter(|gpu| !foreign.iter().any(|(i, _)| gpu.get("index") == Some(&i.as_str())))
                .count();
            if idle >= *count as usize {
                return CheckResult::pass(format!("{idle} idle, the job takes {count} of them"));
            }
        }
        let Some((_, first)) = foreign.first() else { return CheckResult::pass("GPUs are idle") };
        let mut gpus: Vec<&str> = foreign.iter().map(|(i, _)| i.as_str()).collect();
        gpus.dedup();
        let more = match foreign.len() {
            1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        let what = format!(
            "GPU {}: {} runs `{}` (pid {}, {} MiB){more}",
            gpus.join(","),
            first.user,
            shorten_to_chars(first.command, MAX_COMMAND_CHARS),
            first.pid,
            first.mib
        );
        let lines = foreign
            .iter()
            .map(|(i, a)| format!("GPU {i}: pid {} {} {} MiB {}", a.pid, a.user, a.mib, shorten_to_chars(a.command, MAX_COMMAND_CHARS)));
        CheckResult::fail(
            what,
            "wait for it, ask its owner, list free GPUs in hosts[].gpus, or skip this check: checks: { skip: [gpu-idle] }",
        )
        .with_evidence(lines)
    })
}

fn parse_gpu_process<'a>(line: &'a str, host: &CheckedHost<'_>) -> Option<ProbedGpuProcess<'a>> {
    let mut words = line.splitn(4, ' ');
    let (mark, container, user, rest) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let (values, command) = rest.split_once('|').unwrap_or((rest, ""));
    let mut values = values.splitn(4, ',').map(str::trim);
    let (pid, uuid, mib, name) = (values.next()?, values.next()?, values.next()?, values.next().unwrap_or_default());
    let ours = mark == "ours" || host.facts.containers.iter().any(|c| c.id == container);
    Some(ProbedGpuProcess { ours, user, pid, uuid, mib, command: if command.trim().is_empty() { name } else { command.trim() } })
}
