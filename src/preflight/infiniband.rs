//! `infiniband`: InfiniBand cards and whether their ports are up.

use super::context::CheckContext;
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::model::level::Level;

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "infiniband",
    area: CheckArea::Network,
    description: "the hosts have different InfiniBand ports, or ports in different states",
    probes: &[Probe::Host],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    if context.hosts.iter().all(|h| h.probe_output.values("ib").is_empty()) {
        return context.check_each_host(|_| CheckResult::skipped("no InfiniBand"));
    }
    context.compare_hosts(Level::Warn, "see `ibstat` on that host; check cable and switch, or restrict NCCL_IB_HCA", |host| {
        let mut ports: Vec<String> = host
            .probe_output
            .values("ib")
            .iter()
            .map(|line| {
                let mut words = line.split(' ');
                let (port, state, _, rate) = (words.next(), words.next(), words.next(), words.next());
                format!("{} {} {}", port.unwrap_or("?"), state.unwrap_or("?"), rate.unwrap_or_default().replace('_', " ")).trim().to_owned()
            })
            .collect();
        ports.sort();
        Ok(if ports.is_empty() { "none".to_owned() } else { ports.join(", ") })
    })
}
