//! `paths`: `checks.paths`: there, with the same content.

use super::mount_content::content;
use super::mounts::file;
use super::probe::Probe;
use super::probe::files;
use super::scene::Place;
use super::scene::Scene;
use super::{Area, Cell, Check};
use crate::plan::words::Level;
use std::collections::BTreeSet;

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "paths",
    area: Area::Files,
    looks: "a path of checks.paths is missing, or has other files or sizes than on the other hosts",
    needs: &[Probe::Files],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    let paths = &scene.job.checks.paths;
    let mut cells =
        scene.each(|_| if paths.is_empty() { Cell::skipped("checks.paths is empty") } else { Cell::pass("the same everywhere") });
    for (n, path) in paths.iter().enumerate() {
        let place = |host: &Place<'_>| files(scene.job, host.index).len() - paths.len() + n;
        let compared =
            scene.alike(Level::Fail, "copy what is missing, or mount the same there", |host| match file(host, place(host), "type") {
                Some("missing") => Err(Cell::fail(format!("{path} is not there"), "copy it there, or mount it")),
                Some("hung") => Err(Cell::fail(format!("{path} does not answer within 5 s: a stale network mount?"), "mount it again")),
                _ => content(host, place(host)).ok_or_else(|| Cell::skipped(format!("{path} could not be listed within 20 s"))),
            });
        let lists: Vec<BTreeSet<&String>> = scene.hosts.iter().map(|h| h.told.all(&format!("in{}", place(h))).iter().collect()).collect();
        let model = compared.iter().position(|c| c.level == Level::Pass);
        for ((cell, mut found), list) in cells.iter_mut().zip(compared).zip(&lists) {
            if found.agree > 0 {
                found.what = format!("{path}: {}", found.what);
                let model = model.and_then(|m| lists.get(m)).cloned().unwrap_or_default();
                let lacks = model.difference(list).map(|line| format!("lacks {line}"));
                let more = list.difference(&model).map(|line| format!("has {line}"));
                found = found.showing(lacks.take(4).chain(more.take(4)).collect::<Vec<_>>());
            }
            if found.level > Level::Pass && found.level > cell.level || found.level == Level::Skipped && cell.level == Level::Pass {
                *cell = found;
            }
        }
    }
    cells
}
