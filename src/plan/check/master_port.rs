//! `master-port`: the port of the rendezvous.

use super::probe::Probe;
use super::scene::Scene;
use super::{Area, Cell, Check};

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "master-port",
    area: Area::Network,
    looks: "something listens on the master's port (a failure), or the kernel may give it to anybody: it lies in ip_local_port_range (a warning)",
    needs: &[Probe::Host],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    scene.each(|host| {
        if host.index != 0 {
            return Cell::skipped("");
        }
        let Some(port) = scene.job.launch.master_port else { return Cell::pass("a free one is chosen") };
        if host.live {
            return Cell::pass(format!("{port}: a run of this name is live"));
        }
        if host.facts.busy.contains(&port) {
            return Cell::fail(
                format!("port {port} is already in use"),
                format!("choose another launch.master_port, or end what listens there: `ss -ltnp 'sport = :{port}'`"),
            );
        }
        let mut range = host.told.one("port_range").unwrap_or_default().split_whitespace().filter_map(|w| w.parse::<u16>().ok());
        if let (Some(low), Some(high)) = (range.next(), range.next())
            && (low..=high).contains(&port)
        {
            let what = format!("port {port} is one that the kernel gives to outgoing connections ({low} to {high})");
            return Cell::warn(what, format!("choose a launch.master_port below {low}"));
        }
        Cell::pass(format!("port {port} is free"))
    })
}
