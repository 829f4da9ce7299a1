//! `reach-master`: from each worker to the master's port, with a listener there.

use super::probe::Probe;
use super::scene::Place;
use super::scene::Scene;
use super::told::Told;
use super::{Area, Cell, Check};

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "reach-master",
    area: Area::Network,
    looks: "a worker cannot reach the master's port: a firewall drops or rejects it",
    needs: &[Probe::Reach],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    let master = scene.inventory.hosts.first().map_or("the master", |h| h.name.as_str());
    let port = scene.job.launch.master_port.unwrap_or_default();
    scene.each(|host| {
        if host.index == 0 {
            return Cell::skipped("");
        }
        let hint =
            format!("let TCP port {port} through {master}'s firewall, or set the master's fabric_address to one that the workers reach");
        match way(host, "given>0") {
            None => Cell::skipped("it was not tried"),
            Some(Way::Untold(why)) => Cell::skipped(why),
            Some(Way::Blocked(why)) => Cell::fail(format!("no answer from {master}:{port}: {why} (DROP?)"), hint),
            Some(Way::Refused(false)) | Some(Way::Open(false)) => Cell::pass(format!("{master}:{port} can be reached")),
            Some(Way::Refused(true)) => Cell::fail(format!("{master}:{port} is refused though it listens (REJECT)"), hint),
            Some(Way::Open(true)) => Cell::pass(format!("{master}:{port} answers")),
        }
    })
}

/// What came of a connection; with whether a listener of ours was there.
pub(super) enum Way<'a> {
    Open(bool),
    Refused(bool),
    Blocked(&'a str),
    Untold(&'a str),
}

/// `way LABEL LISTENS RESULT WHY`.
pub(super) fn way<'a>(host: &Place<'a>, label: &'a str) -> Option<Way<'a>> {
    let told: &'a Told = host.told;
    let text = told.of("way", label).next()?;
    let (listens, rest) = text.split_once(' ')?;
    let (result, why) = rest.split_once(' ').unwrap_or((rest, ""));
    Some(match result {
        "open" => Way::Open(listens == "yes"),
        "refused" => Way::Refused(listens == "yes"),
        "blocked" => Way::Blocked(why),
        _ => Way::Untold(why),
    })
}
