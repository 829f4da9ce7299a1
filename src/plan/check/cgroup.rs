//! `cgroup`: containers that lose their GPUs when systemd reloads.

use super::probe::Probe;
use super::scene::Scene;
use super::{Area, Cell, Check};

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "cgroup",
    area: Area::Docker,
    looks: "docker leaves cgroups to systemd and GPUs come by NVIDIA's hook: a `systemctl daemon-reload` takes them from running containers (NVML: Unknown Error)",
    needs: &[Probe::Docker],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    scene.each(|host| {
        if !host.wants_gpus() || host.container().is_none() {
            return Cell::skipped("no container with GPUs");
        }
        let Some(info) = host.told.one("docker_info") else {
            return Cell::skipped(host.told.one("docker_error").unwrap_or("docker info told nothing").to_owned());
        };
        let driver = info.split('|').next().unwrap_or_default();
        let devices = host.container().is_some_and(|c| c.args.iter().any(|a| a.contains("/dev/nvidia") || a.contains("nvidia.com/gpu")));
        if driver != "systemd" || devices || host.told.one("char_links").is_some() {
            return Cell::pass(format!("cgroup driver {driver}"));
        }
        Cell::warn(
            "cgroups by systemd: a daemon-reload takes the GPUs from running containers",
            "`nvidia-ctk system create-dev-char-symlinks --create-all` there, or container.args: [--device=/dev/nvidia0, …, --device=/dev/nvidiactl, --device=/dev/nvidia-uvm]",
        )
    })
}
