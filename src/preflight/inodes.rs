//! `inodes`: a disk can be full of small files.

use super::context::CheckContext;
use super::disk;
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "inodes",
    area: CheckArea::Host,
    description: "less than 2 % of the inodes are free under run_dir or a writable mount (a failure if none is free)",
    probes: &[Probe::Host],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.check_each_host(|host| {
        let mut reports = Vec::new();
        for row in disk::disk_usages(host) {
            // A file system that creates inodes on demand reports none.
            let (Some(all), Some(free)) = (row.total_inodes.filter(|n| *n > 0), row.free_inodes) else { continue };
            let what = format!("{free} of {all} inodes free under {}", row.path);
            let hint = "remove small files on that host: `du --inodes -d1` shows where they are";
            match free {
                0 => return CheckResult::fail(what, hint),
                _ if free < all / 50 => return CheckResult::warn(what, hint),
                _ => reports.push(what),
            }
        }
        if reports.is_empty() {
            CheckResult::skipped("these file systems do not count inodes")
        } else {
            CheckResult::pass(reports.join(", "))
        }
    })
}
