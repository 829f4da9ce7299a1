//! `disk`: room for logs and results.

use super::context::{CheckContext, CheckedHost};
use super::memory::format_kib;
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::plan::fact_rules::MIN_FREE_KIB;

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "disk",
    area: CheckArea::Host,
    description: "less than 1 GiB is free under run_dir, or nothing under a mount that is written to (failures); less than 5 GiB and 1 GiB (warnings)",
    probes: &[Probe::Host],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.check_each_host(|host| {
        let mut reports = Vec::new();
        for (at, row) in disk_usages(host).into_iter().enumerate() {
            let Some(free) = row.free_kib else { continue };
            let what = format!("{} free under {}", format_kib(free), row.path);
            let hint = "free space on that host, or choose another disk";
            match (at, free) {
                (0, ..MIN_FREE_KIB) => return CheckResult::fail(format!("{what}, 1 GiB needed: a rank whose log cannot grow dies"), hint),
                (1.., ..1024) => return CheckResult::fail(what, hint),
                (0, ..5_242_880) | (1.., ..1_048_576) => return CheckResult::warn(what, hint),
                _ => reports.push(what),
            }
        }
        if reports.is_empty() { CheckResult::skipped("df printed nothing") } else { CheckResult::pass(reports.join(", ")) }
    })
}

/// One line of `df` of a place that matters.
pub(crate) struct DiskUsage<'a> {
    pub(crate) path: &'a str,
    pub(crate) free_kib: Option<u64>,
    pub(crate) total_inodes: Option<u64>,
    pub(crate) free_inodes: Option<u64>,
}

/// `path KiB KiB-free inodes inodes-free`, the run directory first.
pub(crate) fn disk_usages<'a>(host: &CheckedHost<'a>) -> Vec<DiskUsage<'a>> {
    host.probe_output.values("disk").iter().filter_map(|line| parse_disk_usage(line)).collect()
}

pub(crate) fn parse_disk_usage(line: &str) -> Option<DiskUsage<'_>> {
    let mut words = line.rsplitn(5, ' ');
    let mut number = || words.next().map(|w| w.parse::<u64>().ok());
    let (inodes_free, inodes, free, _) = (number()?, number()?, number()?, number()?);
    Some(DiskUsage { path: words.next()?, free_kib: free, total_inodes: inodes, free_inodes: inodes_free })
}
