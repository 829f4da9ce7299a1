//! `mounts`: what is mounted is there.

use super::context::{CheckContext, CheckedHost};
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::plan::fact_rules::mount_missing;

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "mounts",
    area: CheckArea::Files,
    description: "a mount's source is missing on the host (unless `create: true`), or does not respond",
    probes: &[Probe::Files],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.check_each_host(|host| {
        let mounts = host.mounts();
        if mounts.is_empty() {
            return CheckResult::skipped("no mounts");
        }
        let kind = |at: usize| probed_file_value(host, at, "type");
        for (at, mount) in mounts.iter().enumerate() {
            match kind(at) {
                Some("missing") if !mount.create_source => {
                    return mount_missing(&mount.source, &mount.target).into();
                }
                Some("hung") => {
                    return CheckResult::fail(
                        format!("{} does not respond within 5 s (stale network mount?)", mount.source),
                        format!("run `umount -l` for it on that host and mount it again; `df {}` shows whether it responds", mount.source),
                    );
                }
                _ => {}
            }
        }
        CheckResult::pass(match mounts.len() {
            1 => "1 mount".to_owned(),
            n => format!("{n} mounts"),
        })
    })
}

/// Whether the launch makes the source of the n-th mount, which is not there yet.
pub(crate) fn is_mount_made_later(host: &CheckedHost<'_>, at: usize) -> bool {
    host.mounts().get(at).is_some_and(|mount| mount.create_source) && probed_file_value(host, at, "type") == Some("missing")
}

/// What a host reports about its n-th mount or path.
pub(crate) fn probed_file_value<'a>(host: &CheckedHost<'a>, at: usize, what: &str) -> Option<&'a str> {
    let head = format!("{at} {what} ");
    host.probe_output.values("file").iter().find_map(|line| line.strip_prefix(&head))
}
