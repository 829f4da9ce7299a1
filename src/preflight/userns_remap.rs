//! `userns-remap`: docker maps the users of containers to others, and then shares no network of the host.

use super::context::CheckContext;
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "userns-remap",
    area: CheckArea::Docker,
    description: "dockerd remaps users (userns-remap): it refuses containers with the host's network, and container users own mounted files under other ids",
    probes: &[Probe::Docker],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.check_each_host(|host| {
        let Some(container) = host.container() else { return CheckResult::skipped("bare host") };
        let info = match host.docker_info() {
            Ok(info) => info,
            Err(skipped) => return skipped,
        };
        let remapped = info.rsplit('|').next().is_some_and(|options| options.contains("name=userns"));
        if !remapped {
            return CheckResult::pass("users are not remapped");
        }
        let hint = "container.args: [--userns=host]";
        match container.docker_args.iter().any(|arg| arg == "--userns=host") {
            true => CheckResult::pass("not for this container (--userns=host)"),
            false if container.network == "host" => {
                CheckResult::fail("users are remapped (userns-remap): dockerd refuses containers with the host's network", hint)
            }
            false => {
                CheckResult::warn("users are remapped (userns-remap): files that ranks write into mounts belong to other user ids", hint)
            }
        }
    })
}
