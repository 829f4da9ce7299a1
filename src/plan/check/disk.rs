//! `disk`: room for logs and results.

use super::memory::gib;
use super::probe::Probe;
use super::scene::Place;
use super::scene::Scene;
use super::{Area, Cell, Check};

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "disk",
    area: Area::Host,
    looks: "less than 1 GiB is free under run_dir, or nothing under a mount that is written to (failures); less than 5 GiB and 1 GiB (warnings)",
    needs: &[Probe::Host],
    judge,
};

/// KiB.
const GIB: u64 = 1 << 20;

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    scene.each(|host| {
        let mut told = Vec::new();
        for (at, row) in rows(host).into_iter().enumerate() {
            let Some(free) = row.free else { continue };
            let what = format!("{} free under {}", gib(free), row.path);
            let hint = "free space there, or choose another disk";
            match (at, free) {
                (0, ..GIB) => return Cell::fail(format!("{what}, 1 GiB needed: a rank whose log cannot grow dies"), hint),
                (1.., ..1024) => return Cell::fail(what, hint),
                (0, ..5_242_880) | (1.., ..GIB) => return Cell::warn(what, hint),
                _ => told.push(what),
            }
        }
        if told.is_empty() { Cell::skipped("df told nothing") } else { Cell::pass(told.join(", ")) }
    })
}

/// One line of `df` of a place that matters.
pub(super) struct Row<'a> {
    pub(super) path: &'a str,
    /// KiB.
    pub(super) free: Option<u64>,
    pub(super) inodes: Option<u64>,
    pub(super) inodes_free: Option<u64>,
}

/// `path KiB KiB-free inodes inodes-free`, the run directory first.
pub(super) fn rows<'a>(host: &Place<'a>) -> Vec<Row<'a>> {
    host.told.all("disk").iter().filter_map(|line| row(line)).collect()
}

pub(super) fn row(line: &str) -> Option<Row<'_>> {
    let mut words = line.rsplitn(5, ' ');
    let mut number = || words.next().map(|w| w.parse::<u64>().ok());
    let (inodes_free, inodes, free, _) = (number()?, number()?, number()?, number()?);
    Some(Row { path: words.next()?, free, inodes, inodes_free })
}
