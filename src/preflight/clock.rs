//! `clock`: how far the clocks are apart, with what the exchange leaves uncertain.

use super::context::{CheckContext, CheckedHost};
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::model::DEFAULT_MAX_CLOCK_SKEW_MS;

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "clock",
    area: CheckArea::Host,
    description: "clocks differ by more than checks.max_clock_skew (500 ms; a failure if the inventory sets it), the measurement's uncertainty allowed for",
    probes: &[Probe::Clock],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    let bound = context.job.checks.max_clock_skew;
    let limit = bound.map_or(f64::from(DEFAULT_MAX_CLOCK_SKEW_MS), |d| d.as_secs_f64() * 1000.0);
    let value = |host: &CheckedHost<'_>| {
        let mut words = host.probe_output.last_value("clock")?.split_whitespace().map(|w| w.parse::<f64>().ok());
        Some((words.next()??, words.next()??))
    };
    let Some((first, base)) = context.hosts.iter().find_map(|h| Some((h.name(), value(h)?))) else {
        return context.check_each_host(|_| CheckResult::skipped("could not read any clock"));
    };
    context.check_each_host(|host| {
        let Some((offset, uncertain)) = value(host) else { return CheckResult::skipped("could not read its clock") };
        if context.is_alone() {
            return CheckResult::skipped("no other host answered");
        }
        if host.name() == first {
            return CheckResult::pass("reference for the other hosts");
        }
        let (apart, uncertain) = (offset - base.0, uncertain + base.1);
        let what = format!("{:+.2} s ± {:.2} s from {first}", apart / 1000.0, uncertain / 1000.0);
        if apart.abs() - uncertain <= limit {
            return CheckResult::pass(what);
        }
        let hint = "run `timedatectl set-ntp true` or `chronyc makestep` on that host: logs and checkpoints are ordered by time";
        if bound.is_some() { CheckResult::fail(what, hint) } else { CheckResult::warn(what, hint) }
    })
}
