//! `hostname`: gloo goes by the host's own name.

use super::context::CheckContext;
use super::master_address::{is_loopback, is_one_machine};
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "hostname",
    area: CheckArea::Network,
    description: "without GPUs (gloo): the host's own name resolves to a loopback address or not at all, and GLOO_SOCKET_IFNAME is not set",
    probes: &[Probe::Host],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    let one_machine = is_one_machine(context);
    context.check_each_host(|host| {
        if context.inventory.hosts.len() == 1 || one_machine {
            return CheckResult::skipped("all ranks are on one machine");
        }
        if host.wants_gpus() {
            return CheckResult::skipped("not needed: NCCL does not use the host name");
        }
        if let Some(name) = host.variable("GLOO_SOCKET_IFNAME") {
            return CheckResult::pass(format!("GLOO_SOCKET_IFNAME={name}"));
        }
        let own = host.probe_output.last_value("hostname").unwrap_or("its name");
        let interface = host.fabric_address.and_then(|a| host.facts.interface_for(a)).unwrap_or("eth0");
        let hint = format!("correct /etc/hosts on that host, or set env: {{ GLOO_SOCKET_IFNAME: {interface} }}");
        match host.probe_output.last_value("own_name") {
            None => CheckResult::warn(format!("{own} does not resolve on the host itself: gloo will use the loopback address"), hint),
            Some(all) if all.split_whitespace().all(is_loopback) => {
                CheckResult::warn(format!("{own} resolves to {all} on the host itself: gloo will use that address"), hint)
            }
            Some(all) => CheckResult::pass(format!("{own} is {all}")),
        }
    })
}
