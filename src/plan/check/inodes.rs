//! `inodes`: a disk can be full of small files.

use super::disk;
use super::probe::Probe;
use super::scene::Scene;
use super::{Area, Cell, Check};

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "inodes",
    area: Area::Host,
    looks: "less than 2 % of the inodes are free where logs or results go; none is a failure",
    needs: &[Probe::Host],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    scene.each(|host| {
        let mut told = Vec::new();
        for row in disk::rows(host) {
            // A file system that makes them as they are needed tells none.
            let (Some(all), Some(free)) = (row.inodes.filter(|n| *n > 0), row.inodes_free) else { continue };
            let what = format!("{free} of {all} inodes free under {}", row.path);
            let hint = "remove small files there: `du --inodes -d1` shows where they are";
            match free {
                0 => return Cell::fail(what, hint),
                _ if free < all / 50 => return Cell::warn(what, hint),
                _ => told.push(what),
            }
        }
        if told.is_empty() { Cell::skipped("no file system here counts inodes") } else { Cell::pass(told.join(", ")) }
    })
}
