//! `reach-master`: from each worker to the master's port, with a listener there.

use super::connection::ConnectionTarget;
use super::context::CheckContext;
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::model::tcp_reachability::PathState;
use crate::plan::action::reach_master::master_port_hint;

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "reach-master",
    area: CheckArea::Network,
    description: "a worker cannot reach the master's port: a firewall drops or rejects it",
    probes: &[Probe::Connectivity],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    let master = context.inventory.hosts.first().map_or("the master", |h| h.name.as_str());
    let port = context.job.launch.master_port.unwrap_or_default();
    context.check_each_host(|host| {
        if host.index == 0 {
            return CheckResult::skipped(match (context.hosts.len(), context.inventory.hosts.len()) {
                (1, 1) => "only one host",
                (1, _) => "no other host answered",
                _ => "",
            });
        }
        let Some(attempt) = host.probe_output.connection(ConnectionTarget::MasterPort) else {
            return CheckResult::skipped("not tried: the port is in use, or an address is unknown");
        };
        let failed = |what: String| CheckResult::fail(what, master_port_hint(port, master));
        match attempt.path_state() {
            PathState::Open if attempt.has_listener => CheckResult::pass(format!("{master}:{port} answers")),
            PathState::Open => CheckResult::pass(format!("{master}:{port} is reachable")),
            PathState::Rejected => failed(format!("{master}:{port} is refused although it listens (firewall REJECT?)")),
            PathState::Dropped(why) => failed(format!("no answer from {master}:{port}: {why} (firewall DROP?)")),
            PathState::Unknown(why) => CheckResult::skipped(why),
        }
    })
}
