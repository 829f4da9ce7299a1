//! `mount-write`: ranks can write where they are to write.

use super::context::CheckContext;
use super::mounts::probed_file_value;
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
        let mounts = host.container().map_or(&[][..], |container| &container.mounts);
        // The probe's container does not have them: what is written there is written elsewhere.
        let is_made_later = |path: &str| {
            let at = mounts.iter().position(|mount| mount.target == path);
            at.is_some_and(|at| mounts[at].create_source && probed_file_value(host, at, "type") == Some("missing"))
        };
        let (later, tested): (Vec<_>, Vec<_>) = writes.iter().enumerate().partition(|(_, path)| is_made_later(path));
        if tested.is_empty() {
            let paths: Vec<&str> = later.iter().map(|(_, path)| path.as_str()).collect();
            return CheckResult::skipped(format!("{}: its source is not there yet: the launch makes it", paths.join(", ")));
        }
        for (at, path) in &tested {
            let at = at.to_string();
            if let Some(why) = host.probe_output.values_starting_with("write", &at).find_map(|v| v.strip_prefix("no ")) {
                return CheckResult::fail(
                    format!("{user} cannot write to {path} inside the container: {}", why.trim()),
                    "make it writable on that host, set container.user, or mount it `:ro` if nothing writes to it",
                );
            }
        }
        let paths: Vec<&str> = tested.iter().map(|(_, path)| path.as_str()).collect();
        CheckResult::pass(format!("{} by {user}", paths.join(", ")))
    })
}
