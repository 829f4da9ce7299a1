//! `mount-system`: one kind of file system beneath a mount.

use super::context::{CheckContext, CheckedHost};
use super::mounts::{is_mount_made_later, probed_file_value};
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::inventory::Mount;
use crate::model::level::Level;

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "mount-system",
    area: CheckArea::Files,
    description: "a mount's source has a different file system type on some hosts (a local directory where others have a network mount)",
    probes: &[Probe::Files],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    compare_mounts(
        context,
        (|_| true, "no mounts to compare"),
        "mount the same file system on that host: `df -T` shows what is mounted",
        |host, at| probed_file_value(host, at, "system").map(str::to_owned),
    )
}

/// Compares something of each mount between the hosts that have it; the first that differs is reported.
pub(crate) fn compare_mounts(
    context: &CheckContext<'_>,
    (wanted, none): (impl Fn(&Mount) -> bool, &str),
    hint: &str,
    value: impl Fn(&CheckedHost<'_>, usize) -> Option<String>,
) -> Vec<CheckResult> {
    let mut targets: Vec<&str> = Vec::new();
    for mount in context.hosts.iter().filter_map(CheckedHost::container).flat_map(|c| &c.mounts).filter(|m| wanted(m)) {
        if !targets.contains(&mount.target.as_str()) {
            targets.push(&mount.target);
        }
    }
    let mut cells = context.check_each_host(|_| CheckResult::skipped(none));
    for (nth, target) in targets.into_iter().enumerate() {
        let compared = context.compare_hosts(Level::Warn, hint, |host| {
            let at = host.mounts().iter().position(|mount| mount.target == *target);
            let is_made_later = at.is_some_and(|at| is_mount_made_later(host, at));
            let unknown = if is_made_later { "its source is not there yet: the launch makes it" } else { "it could not be read" };
            at.and_then(|at| value(host, at)).ok_or_else(|| CheckResult::skipped(unknown))
        });
        for (cell, mut found) in cells.iter_mut().zip(compared) {
            found.message = format!("{target}: {}", found.message);
            if nth == 0 || found.level > cell.level {
                *cell = found;
            }
        }
    }
    cells
}
