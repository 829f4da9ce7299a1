//! `nic`: the network interface that ranks use.

use super::context::CheckContext;
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "nic",
    area: CheckArea::Network,
    description: "NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME matches no interface of the host, or the route to the other hosts uses another interface than the fabric address's",
    probes: &[Probe::Host, Probe::Network],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.check_each_host(|host| {
        let cards: Vec<&str> = host.probe_output.values("nic").iter().filter_map(|l| l.split(' ').next()).collect();
        for name in ["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"] {
            if let Some(value) = host.variable(name).filter(|v| !cards.is_empty() && !v.starts_with('^'))
                && !value.trim_start_matches('=').split(',').any(|want| {
                    cards.iter().any(|c| if value.starts_with('=') || name.starts_with("GLOO") { *c == want } else { c.starts_with(want) })
                })
            {
                return CheckResult::fail(
                    format!("{name}={value} matches none of {}", cards.join(" ")),
                    "correct it in env, or in this host's env",
                );
            }
        }
        let Some(address) = host.fabric_address else { return CheckResult::skipped("its address is unknown") };
        let Some(card) = host.facts.interface_for(address) else {
            return CheckResult::skipped(format!("no known interface has {address}"));
        };
        let peers = context.fabric_addresses.iter().filter(|a| a.as_str() != address);
        for route in peers.filter_map(|peer| host.probe_output.values_starting_with("route", peer).next()) {
            let device = route.split(' ').next().unwrap_or("-");
            if device == "-" {
                return CheckResult::fail(
                    "no route to another host's fabric address",
                    "see `ip route get ADDRESS` on that host; set fabric_address to addresses of one network",
                );
            }
            if device != card && device != "lo" {
                return CheckResult::warn(
                    format!("{address} is on {card}, but the route to the other hosts uses {device}"),
                    format!("set fabric_address to the address of {device}, or env: {{ NCCL_SOCKET_IFNAME: {card} }}"),
                );
            }
        }
        CheckResult::pass(format!("{card} ({address})"))
    })
}
