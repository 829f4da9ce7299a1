//! `hostname`: gloo goes by the host's own name.

use super::master_address::is_loopback;
use super::probe::Probe;
use super::scene::Scene;
use super::{Area, Cell, Check};

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "hostname",
    area: Area::Network,
    looks: "without GPUs (gloo) a host's own name resolves to a loopback address or not at all, and GLOO_SOCKET_IFNAME is not set",
    needs: &[Probe::Host],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    let one_machine = scene.hosts.iter().all(|h| h.facts.arrived_at.as_deref().is_some_and(is_loopback));
    scene.each(|host| {
        if scene.inventory.hosts.len() == 1 || one_machine {
            return Cell::skipped("all ranks are on one machine");
        }
        if host.wants_gpus() {
            return Cell::skipped("NCCL does not go by the host's name");
        }
        let inside = host.container().and_then(|c| c.env.get("GLOO_SOCKET_IFNAME"));
        if let Some(name) = host.part.env.get("GLOO_SOCKET_IFNAME").or(inside) {
            return Cell::pass(format!("GLOO_SOCKET_IFNAME={name}"));
        }
        let own = host.told.one("hostname").unwrap_or("its name");
        let interface = host.address.and_then(|a| host.facts.interface(a)).unwrap_or("eth0");
        let hint = format!("correct /etc/hosts there, or env: {{ GLOO_SOCKET_IFNAME: {interface} }}");
        match host.told.one("own_name") {
            None => Cell::warn(format!("{own} does not resolve on itself: gloo takes the loopback address"), hint),
            Some(all) if all.split_whitespace().all(is_loopback) => {
                Cell::warn(format!("{own} resolves to {all} on itself: gloo takes that"), hint)
            }
            Some(all) => Cell::pass(format!("{own} is {all}")),
        }
    })
}
