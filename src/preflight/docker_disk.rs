//! `docker-disk`: room for the image and for what containers write.

use super::context::CheckContext;
use super::disk;
use super::memory::format_kib;
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};

/// See its `looks`.
pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "docker-disk",
    area: CheckArea::Docker,
    description: "less than 5 GiB or 2 % of the inodes are free where docker stores; less than 1 GiB and the image is not there yet is a failure",
    probes: &[Probe::Docker],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.check_each_host(|host| {
        let Some(row) = host.probe_output.last_value("docker_disk").and_then(disk::parse_disk_usage) else {
            return CheckResult::skipped("docker does not tell where it stores");
        };
        let Some(free) = row.free_kib else { return CheckResult::skipped("df tells nothing of it") };
        let what = format!("{} free under {}", format_kib(free), row.path);
        let hint = "`docker system df` there shows what docker uses, `docker image prune` frees some";
        if free < 1 << 20 && host.facts.image_id.is_none() {
            return CheckResult::fail(format!("{what}, and the image is not there yet"), hint);
        }
        let few = row.total_inodes.zip(row.free_inodes).is_some_and(|(all, free)| all > 0 && free < all / 50);
        if free < 5 << 20 || few {
            CheckResult::warn(if few { format!("few inodes left under {}", row.path) } else { what }, hint)
        } else {
            CheckResult::pass(what)
        }
    })
}
