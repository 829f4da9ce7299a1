//! `mount-system`: one kind of file system beneath a mount.

use super::mounts::file;
use super::probe::Probe;
use super::scene::Place;
use super::scene::Scene;
use super::{Area, Cell, Check};
use crate::inventory::Mount;
use crate::plan::words::Level;

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "mount-system",
    area: Area::Files,
    looks: "a mount's source lies on another kind of file system on some hosts (a local folder where the others have the network's)",
    needs: &[Probe::Files],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    by_mount(scene, |_| true, "mount the same there: `df -T` shows what it is", |host, at| file(host, at, "system").map(str::to_owned))
}

/// Compares something of each mount between the hosts that have it; the first that differs is told.
pub(super) fn by_mount(
    scene: &Scene<'_>,
    wanted: impl Fn(&Mount) -> bool,
    hint: &str,
    value: impl Fn(&Place<'_>, usize) -> Option<String>,
) -> Vec<Cell> {
    let mut targets: Vec<&str> = Vec::new();
    for mount in scene.hosts.iter().filter_map(Place::container).flat_map(|c| &c.mounts).filter(|m| wanted(m)) {
        if !targets.contains(&mount.to.as_str()) {
            targets.push(&mount.to);
        }
    }
    let mut cells = scene.each(|_| Cell::skipped("no such mounts"));
    for target in targets {
        let compared = scene.alike(Level::Warn, hint, |host| {
            let at = host.container().and_then(|c| c.mounts.iter().position(|m| m.to == *target));
            at.and_then(|at| value(host, at)).ok_or_else(|| Cell::skipped("it could not be looked at"))
        });
        for (cell, mut found) in cells.iter_mut().zip(compared) {
            found.what = format!("{target}: {}", found.what);
            if found.level > cell.level {
                *cell = found;
            }
        }
    }
    cells
}
