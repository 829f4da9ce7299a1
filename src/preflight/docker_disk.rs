//! `docker-disk`: room for the image and for what containers write.

use super::context::CheckContext;
use super::disk;
use super::memory::format_kib;
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "docker-disk",
    area: CheckArea::Docker,
    description: "less than 5 GiB or 2 % of the inodes are free under docker's data root (a failure below 1 GiB if the image still has to be pulled)",
    probes: &[Probe::Docker],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.check_each_host(|host| {
        let Some(row) = host.probe_output.last_value("docker_disk").and_then(disk::parse_disk_usage) else {
            return CheckResult::skipped("docker info does not name its data root");
        };
        let Some(free) = row.free_kib else { return CheckResult::skipped("df does not report it") };
        let what = format!("{} free under {}", format_kib(free), row.path);
        let hint = "`docker system df` on that host shows what docker uses; `docker image prune` frees space";
        if free < 1 << 20 && host.facts.image_id.is_none() {
            return CheckResult::fail(format!("{what}, and the image still has to be pulled"), hint);
        }
        let few = row.total_inodes.zip(row.free_inodes).is_some_and(|(all, free)| all > 0 && free < all / 50);
        if free < 5 << 20 || few {
            CheckResult::warn(if few { format!("few inodes left under {}", row.path) } else { what }, hint)
        } else {
            CheckResult::pass(what)
        }
    })
}
