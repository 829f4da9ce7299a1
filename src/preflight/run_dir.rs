//! `run-dir`: docker can reach the run directory.

use super::context::CheckContext;
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "run-dir",
    area: CheckArea::Host,
    description: "run_dir is on NFS or Lustre and ranks run in containers: if the server squashes root, docker cannot mount it",
    probes: &[Probe::Host],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.check_each_host(|host| {
        if host.container().is_none() {
            return CheckResult::skipped("bare host");
        }
        let run_dir = &host.facts.run_dir;
        match host.probe_output.last_value("run_dir_system") {
            None | Some("-" | "") => CheckResult::skipped("could not read its file system type"),
            // The directory's owner does not matter: it is 0700, and the daemon mounts it as root.
            Some(system) if system.starts_with("nfs") || system == "lustre" => CheckResult::warn(
                format!("{run_dir} is on {system}: if the server squashes root (root_squash, the default), docker cannot mount it"),
                "set run_dir to a directory on a disk of the host, for example /var/tmp/orchestrate",
            ),
            Some(system) => CheckResult::pass(format!("{run_dir} on {system}")),
        }
    })
}
