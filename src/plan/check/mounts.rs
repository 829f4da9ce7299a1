//! `mounts`: what is mounted is there.

use super::probe::Probe;
use super::scene::Place;
use super::scene::Scene;
use super::{Area, Cell, Check};

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "mounts",
    area: Area::Files,
    looks: "a mount's source is not on the host (unless `create: true`), or does not answer",
    needs: &[Probe::Files],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    scene.each(|host| {
        let mounts = host.container().map_or(&[][..], |c| c.mounts.as_slice());
        if mounts.is_empty() {
            return Cell::skipped("no mounts");
        }
        let kind = |at: usize| file(host, at, "type");
        for (at, mount) in mounts.iter().enumerate() {
            match kind(at) {
                Some("missing") if !mount.create => {
                    return Cell::fail(
                        format!("{} is not there", mount.from),
                        "correct container.mounts, make it on the host, or give the mount `create: true`",
                    );
                }
                Some("hung") => {
                    return Cell::fail(
                        format!("{} does not answer within 5 s: a stale network mount?", mount.from),
                        format!("`umount -l` it there and mount it again; `df {}` shows whether it answers", mount.from),
                    );
                }
                _ => {}
            }
        }
        Cell::pass(match mounts.len() {
            1 => "1 mount".to_owned(),
            n => format!("{n} mounts"),
        })
    })
}

/// What a host told of its n-th mount or path.
pub(super) fn file<'a>(host: &Place<'a>, at: usize, what: &str) -> Option<&'a str> {
    let head = format!("{at} {what} ");
    host.told.all("file").iter().find_map(|line| line.strip_prefix(&head))
}
