//! `master-port`: the port of the rendezvous.

use super::context::CheckContext;
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::plan::fact_rules::master_port_in_use;

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "master-port",
    area: CheckArea::Network,
    description: "the master's port is in use (a failure), or the kernel may assign it to any process: it lies in ip_local_port_range (a warning)",
    probes: &[Probe::Host],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.check_each_host(|host| {
        if host.index != 0 {
            return CheckResult::skipped("");
        }
        let Some(port) = context.job.launch.master_port else { return CheckResult::pass("a free port is chosen at launch") };
        if host.has_live_run {
            return CheckResult::pass(format!("{port}: a run of this name is live"));
        }
        if let Some(problem) = master_port_in_use(host.facts, port, host.name()) {
            return problem.into();
        }
        let mut range =
            host.probe_output.last_value("port_range").unwrap_or_default().split_whitespace().filter_map(|w| w.parse::<u16>().ok());
        if let (Some(low), Some(high)) = (range.next(), range.next())
            && (low..=high).contains(&port)
        {
            let what = format!("port {port} is in the kernel's range for outgoing connections ({low} to {high})");
            return CheckResult::warn(what, format!("choose a launch.master_port below {low}"));
        }
        CheckResult::pass(format!("port {port} is free"))
    })
}
