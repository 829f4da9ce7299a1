//! `reach-ephemeral`: ports of the kernel's choice, both ways: NCCL and gloo need them.

use super::connection::ConnectionTarget;
use super::context::CheckContext;
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::model::tcp_reachability::PathState;

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "reach-ephemeral",
    area: CheckArea::Network,
    description: "a connection to an ephemeral port fails between the master and a worker, or from a host to the next",
    probes: &[Probe::Connectivity],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    let name = |n: usize| context.inventory.hosts.get(n).map_or("?", |h| h.name.as_str());
    context.check_each_host(|host| {
        let (mut open, mut untold, mut bad) = (0, None, Vec::new());
        for n in 0..context.inventory.hosts.len() {
            let Some(attempt) = host.probe_output.connection(ConnectionTarget::EphemeralPort(n)) else { continue };
            match attempt.path_state() {
                PathState::Open => open += 1,
                PathState::Rejected => bad.push((n, "refused although it listens (firewall REJECT?)".to_owned())),
                PathState::Dropped(why) => bad.push((n, format!("{why} (firewall DROP?)"))),
                PathState::Unknown(why) => untold = Some(why.to_owned()),
            }
        }
        if let Some((_, why)) = bad.first() {
            let names: Vec<&str> = bad.iter().map(|(n, _)| name(*n)).collect();
            let more = if names.len() > 4 { format!(" and {} more", names.len() - 4) } else { String::new() };
            return CheckResult::fail(
                format!(
                    "cannot connect to {}{more} on an ephemeral port: {why}",
                    names.iter().take(4).copied().collect::<Vec<_>>().join(", ")
                ),
                "allow all TCP between the hosts in their firewalls: NCCL and gloo listen on ephemeral ports",
            )
            .with_evidence(bad.iter().map(|(n, why)| format!("to {}: {why}", name(*n))));
        }
        match (open, untold, context.inventory.hosts.len()) {
            (_, _, 1) => CheckResult::skipped("only one host"),
            (0, Some(why), _) => CheckResult::skipped(why),
            (0, None, _) if context.is_alone() => CheckResult::skipped("no other host answered"),
            (0, None, _) => CheckResult::skipped("not tried"),
            (n, _, _) => CheckResult::pass(format!("{n} connections possible")),
        }
    })
}
