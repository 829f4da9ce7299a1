//! `cgroup`: containers that lose their GPUs when systemd reloads.

use super::context::CheckContext;
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "cgroup",
    area: CheckArea::Docker,
    description: "docker uses the systemd cgroup driver and NVIDIA's hook adds the GPUs: `systemctl daemon-reload` removes them from running containers (NVML: Unknown Error)",
    probes: &[Probe::Docker],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.check_each_host(|host| {
        if !host.wants_gpus() || host.container().is_none() {
            return CheckResult::skipped("no container with GPUs");
        }
        let info = match host.docker_info() {
            Ok(info) => info,
            Err(skipped) => return skipped,
        };
        let driver = info.split('|').next().unwrap_or_default();
        let devices = host.container().is_some_and(|c| c.docker_args.iter().any(|a| a.contains("/dev/nvidia") || a.contains("nvidia.com/gpu")));
        if driver != "systemd" || devices || host.probe_output.last_value("char_links").is_some() {
            return CheckResult::pass(format!("cgroup driver {driver}"));
        }
        CheckResult::warn(
            "systemd cgroup driver: a daemon-reload removes the GPUs from running containers",
            "run `nvidia-ctk system create-dev-char-symlinks --create-all` on that host, or set container.args: [--device=/dev/nvidia0, …, --device=/dev/nvidiactl, --device=/dev/nvidia-uvm]",
        )
    })
}
