//! `limits`: what a process may have.

use super::context::CheckContext;
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "limits",
    area: CheckArea::Host,
    description: "ranks may open fewer than 1024 files, or may not lock memory on a host with InfiniBand",
    probes: &[Probe::Host],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.check_each_host(|host| {
        let contained = host.container().is_some();
        let inside = host.probe_output.is_complete(Probe::Environment) && !host.has_failed_inside();
        if contained && !inside {
            let reason = if host.probe_output.is_complete(Probe::Environment) {
                "only visible inside the container, which did not start"
            } else {
                let request = "only visible inside the container: run `orchestrate check`, or use --preflight full";
                host.probe_output.known_missing_reason(Probe::Environment).unwrap_or(request)
            };
            return CheckResult::skipped(reason);
        }
        let of = |name: &str| host.probe_output.last_value(&format!("{}_{name}", if contained { "inside" } else { "limit" }));
        let Some(files) = of("nofile") else { return CheckResult::skipped("this shell does not report limits") };
        let what = format!("{files} open files, {} locked memory", of("memlock").unwrap_or("?"));
        if files.parse::<u64>().is_ok_and(|n| n < 1024) {
            let hint = if contained { "container.args: [--ulimit=nofile=1048576]" } else { "raise nofile in /etc/security/limits.conf" };
            return CheckResult::warn(what, hint);
        }
        if !host.probe_output.values("ib").is_empty() && of("memlock").is_some_and(|l| l != "unlimited") {
            let hint = if contained {
                "remove --ulimit=memlock from container.args; if docker refuses it, give dockerd CAP_SYS_RESOURCE or LimitMEMLOCK=infinity"
            } else {
                "set memlock to unlimited in /etc/security/limits.conf"
            };
            return CheckResult::warn(format!("{what}: InfiniBand needs unlimited locked memory"), hint);
        }
        CheckResult::pass(what)
    })
}
