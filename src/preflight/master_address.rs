//! `master-address`: every host means the same machine by the master's address.

use super::context::CheckContext;
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::model::level::Level;
use std::net::IpAddr;

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "master-address",
    area: CheckArea::Network,
    description: "the master's address is a loopback address, or resolves to one, to different addresses, or not at all on some host",
    probes: &[Probe::Network],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    let Some(address) = context.fabric_addresses.first().map(String::as_str).filter(|a| !a.is_empty()) else {
        return context.check_each_host(|_| CheckResult::skipped("the master's address is not known"));
    };
    if context.inventory.hosts.len() == 1 {
        return context.check_each_host(|_| CheckResult::pass("only one host"));
    }
    let one_machine = is_one_machine(context);
    let hint = "set the master's fabric_address to an address that all hosts can reach";
    if address.parse::<IpAddr>().is_ok() {
        let cell = if is_loopback(address) && !one_machine {
            CheckResult::fail(format!("{address} is a loopback address"), hint)
        } else {
            CheckResult::pass(address)
        };
        return context.check_each_host(|_| cell.clone());
    }
    context.compare_hosts(
        Level::Fail,
        "correct /etc/hosts or DNS on that host, or set the master's fabric_address to an IP address",
        |host| {
            let found = host.probe_output.values_starting_with("resolves", address).next().unwrap_or_default();
            if found.is_empty() {
                return Err(CheckResult::fail(
                    format!("{address} does not resolve"),
                    "correct /etc/hosts or DNS on that host, or set the master's fabric_address to an IP address",
                ));
            }
            match found.split_whitespace().find(|a| is_loopback(a)) {
                Some(loopback) if !one_machine => Err(CheckResult::fail(
                    format!("{address} resolves to {loopback}"),
                    "remove the name from the 127.* line of /etc/hosts on that host, or set the master's fabric_address to an IP address",
                )),
                _ => Ok(format!("{address} is {found}")),
            }
        },
    )
}

/// Whether all hosts are reached at a loopback address.
pub(crate) fn is_one_machine(context: &CheckContext<'_>) -> bool {
    context.hosts.iter().all(|h| h.facts.ssh_address.as_deref().is_some_and(is_loopback))
}

/// `127.*` or `::1`.
pub(crate) fn is_loopback(address: &str) -> bool {
    address.parse::<IpAddr>().is_ok_and(|a| a.is_loopback())
}
