//! `mount-write`: ranks can write where they are to write.

use super::context::CheckContext;
use super::probe::Probe;
use super::probe::writable_mounts;
use super::{CheckArea, CheckResult, PreflightCheck};

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "mount-write",
    area: CheckArea::Files,
    description: "the container's user cannot write into a mount that is not read-only",
    probes: &[Probe::Environment],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.check_each_host(|host| {
        let writes = writable_mounts(context.job, host.index);
        if writes.is_empty() {
            return CheckResult::skipped("no writable mounts");
        }
        if host.probe_output.last_value("inside_failed").is_some() {
            return CheckResult::skipped("no container of the image started");
        }
        let user = host.probe_output.last_value("inside_user").unwrap_or("?");
        for (at, path) in writes.iter().enumerate() {
            let at = at.to_string();
            if let Some(why) = host.probe_output.values_starting_with("write", &at).find_map(|v| v.strip_prefix("no ")) {
                return CheckResult::fail(
                    format!("{user} cannot write to {path} inside the container: {}", why.trim()),
                    "make it writable on that host, set container.user, or mount it `:ro` if nothing writes to it",
                );
            }
        }
        CheckResult::pass(format!("{} by {user}", writes.join(", ")))
    })
}
