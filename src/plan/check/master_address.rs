//! `master-address`: every host means the same machine by the master's address.

use super::probe::Probe;
use super::scene::Scene;
use super::{Area, Cell, Check};
use crate::plan::words::Level;
use std::net::IpAddr;

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "master-address",
    area: Area::Network,
    looks: "the master's address is a loopback address, resolves to one on some host, resolves differently, or not at all",
    needs: &[Probe::Net],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    let Some(address) = scene.addresses.first().map(String::as_str).filter(|a| !a.is_empty()) else {
        return scene.each(|_| Cell::skipped("the master's address is not known"));
    };
    if scene.inventory.hosts.len() == 1 {
        return scene.each(|_| Cell::pass("one host alone"));
    }
    // Hosts that are all reached at a loopback address are one machine.
    let one_machine = scene.hosts.iter().all(|h| h.facts.arrived_at.as_deref().is_some_and(is_loopback));
    let hint = "set the master's fabric_address to an address that all hosts reach";
    if address.parse::<IpAddr>().is_ok() {
        let cell = if is_loopback(address) && !one_machine {
            Cell::fail(format!("{address} is a loopback address"), hint)
        } else {
            Cell::pass(address)
        };
        return scene.each(|_| cell.clone());
    }
    scene.alike(Level::Fail, "correct /etc/hosts or DNS there, or give the master a fabric_address in numbers", |host| {
        let found = host.told.of("resolves", address).next().unwrap_or_default();
        if found.is_empty() {
            return Err(Cell::fail(
                format!("{address} does not resolve"),
                "correct /etc/hosts or DNS there, or give the master a fabric_address in numbers",
            ));
        }
        match found.split_whitespace().find(|a| is_loopback(a)) {
            Some(loopback) if !one_machine => Err(Cell::fail(
                format!("{address} resolves to {loopback}"),
                "take the name from the 127.* line of /etc/hosts there, or give the master a fabric_address in numbers",
            )),
            _ => Ok(format!("{address} is {found}")),
        }
    })
}

/// `127.*` or `::1`.
pub(super) fn is_loopback(address: &str) -> bool {
    address.parse::<IpAddr>().is_ok_and(|a| a.is_loopback())
}
