//! `mtu`: the size of packets on that card.

use super::context::CheckContext;
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::model::level::Level;

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "mtu",
    area: CheckArea::Network,
    description: "the hosts' fabric interfaces have different MTUs: large messages hang where path MTU discovery fails",
    probes: &[Probe::Host],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.compare_hosts(Level::Warn, "run `ip link set INTERFACE mtu N` on that host, or on the others", |host| {
        let card = host.fabric_address.and_then(|a| host.facts.interface_for(a));
        let Some(card) = card else { return Err(CheckResult::skipped("its fabric interface is unknown")) };
        let mtu = host
            .probe_output
            .values_starting_with("nic", card.split(['.', ':']).next().unwrap_or(card))
            .next()
            .and_then(|l| l.split(' ').next());
        let exact = host.probe_output.values_starting_with("nic", card).next().and_then(|l| l.split(' ').next());
        exact.or(mtu).map(str::to_owned).ok_or_else(|| CheckResult::skipped("could not read its MTU"))
    })
}
