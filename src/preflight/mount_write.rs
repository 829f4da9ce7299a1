//! `mount-write`: ranks can write where they are to write.

use super::context::CheckContext;
use super::mounts::is_mount_made_later;
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::inventory::Mount;

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "mount-write",
    area: CheckArea::Files,
    description: "the container's user cannot write into a mount that is not read-only",
    probes: &[Probe::Environment],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.check_each_host(|host| {
        // The probe counts the mounts that are written to.
        let writable = host.mounts().iter().enumerate().filter(|(_, mount)| !mount.read_only);
        // Its container does not have those that a launch makes: what is written there is written elsewhere.
        let (later, tested): (Vec<_>, Vec<_>) = writable.enumerate().partition(|(_, (at, _))| is_mount_made_later(host, *at));
        let paths = |mounts: &[(usize, (usize, &Mount))]| mounts.iter().map(|(_, (_, m))| m.target.as_str()).collect::<Vec<_>>().join(", ");
        if later.is_empty() && tested.is_empty() {
            return CheckResult::skipped("no writable mounts");
        }
        if host.has_failed_inside() {
            return CheckResult::skipped("no container of the image started");
        }
        let user = host.probe_output.last_value("inside_user").unwrap_or("?");
        if tested.is_empty() {
            return CheckResult::skipped(format!("{}: its source is not there yet: the launch makes it", paths(&later)));
        }
        for (nth, (_, Mount { target: path, .. })) in &tested {
            let nth = nth.to_string();
            if let Some(why) = host.probe_output.values_starting_with("write", &nth).find_map(|v| v.strip_prefix("no ")) {
                return CheckResult::fail(
                    format!("{user} cannot write to {path} inside the container: {}", why.trim()),
                    "make it writable on that host, set container.user, or mount it `:ro` if nothing writes to it",
                );
            }
        }
        CheckResult::pass(format!("{} by {user}", paths(&tested)))
    })
}
