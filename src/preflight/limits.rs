//! `limits`: what a process may have.

use super::context::CheckContext;
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};

/// See its `looks`.
pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "limits",
    area: CheckArea::Host,
    description: "fewer than 1024 open files are allowed where ranks run, or memory cannot be locked on a host with InfiniBand",
    probes: &[Probe::Host],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.check_each_host(|host| {
        let contained = host.container().is_some();
        let inside = host.probe_output.is_complete(Probe::Environment) && host.probe_output.last_value("inside_failed").is_none();
        if contained && !inside {
            return CheckResult::skipped("it is seen inside the container alone: `orchestrate check`, or --preflight full");
        }
        let of = |name: &str| host.probe_output.last_value(&format!("{}_{name}", if contained { "inside" } else { "limit" }));
        let Some(files) = of("nofile") else { return CheckResult::skipped("this shell tells no limits") };
        let what = format!("{files} open files, {} locked memory", of("memlock").unwrap_or("?"));
        if files.parse::<u64>().is_ok_and(|n| n < 1024) {
            let hint = if contained { "container.args: [--ulimit=nofile=1048576]" } else { "raise nofile in /etc/security/limits.conf" };
            return CheckResult::warn(what, hint);
        }
        if !host.probe_output.values("ib").is_empty() && of("memlock").is_some_and(|l| l != "unlimited") {
            let hint = if contained {
                "leave --ulimit=memlock out of container.args; where docker itself refuses to give it, give dockerd CAP_SYS_RESOURCE or LimitMEMLOCK=infinity"
            } else {
                "set memlock to unlimited in /etc/security/limits.conf"
            };
            return CheckResult::warn(format!("{what}: InfiniBand needs unlimited"), hint);
        }
        CheckResult::pass(what)
    })
}
