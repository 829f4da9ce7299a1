//! `mtu`: the size of packets on that card.

use super::probe::Probe;
use super::scene::Scene;
use super::{Area, Cell, Check};
use crate::plan::words::Level;

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "mtu",
    area: Area::Network,
    looks: "the fabric cards of the hosts have different MTUs: large messages hang where the way does not say so",
    needs: &[Probe::Host],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    scene.alike(Level::Warn, "`ip link set CARD mtu N` there, or on the others", |host| {
        let card = host.address.and_then(|a| host.facts.interface(a));
        let Some(card) = card else { return Err(Cell::skipped("its fabric card is not known")) };
        let mtu = host.told.of("nic", card.split(['.', ':']).next().unwrap_or(card)).next().and_then(|l| l.split(' ').next());
        let exact = host.told.of("nic", card).next().and_then(|l| l.split(' ').next());
        exact.or(mtu).map(str::to_owned).ok_or_else(|| Cell::skipped("its MTU cannot be read"))
    })
}
