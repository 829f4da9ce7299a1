//! `infiniband`: InfiniBand cards and whether their ports are up.

use super::probe::Probe;
use super::scene::Scene;
use super::{Area, Cell, Check};
use crate::plan::words::Level;

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "infiniband",
    area: Area::Network,
    looks: "the hosts have different InfiniBand ports, or ports in different states",
    needs: &[Probe::Host],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    if scene.hosts.iter().all(|h| h.told.all("ib").is_empty()) {
        return scene.each(|_| Cell::skipped("no InfiniBand"));
    }
    scene.alike(Level::Warn, "`ibstat` there; look at cable and switch, or narrow NCCL_IB_HCA", |host| {
        let mut ports: Vec<String> = host
            .told
            .all("ib")
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
