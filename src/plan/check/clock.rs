//! `clock`: how far the clocks are apart, with what the exchange leaves uncertain.

use super::probe::Probe;
use super::scene::Place;
use super::scene::Scene;
use super::{Area, Cell, Check};

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "clock",
    area: Area::Host,
    looks: "clocks differ by more than checks.max_clock_skew (500 ms; a failure where the inventory sets it) beyond what the link leaves uncertain",
    needs: &[Probe::Clock],
    judge,
};

/// Milliseconds.
const USUAL: f64 = 500.0;

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    let bound = scene.job.checks.max_clock_skew;
    let limit = bound.map_or(USUAL, |d| d.as_secs_f64() * 1000.0);
    let value = |host: &Place<'_>| {
        let mut words = host.told.one("clock")?.split_whitespace().map(|w| w.parse::<f64>().ok());
        Some((words.next()??, words.next()??))
    };
    let Some((first, base)) = scene.hosts.iter().find_map(|h| Some((h.name(), value(h)?))) else {
        return scene.each(|_| Cell::skipped("no clock could be read"));
    };
    scene.each(|host| {
        let Some((offset, uncertain)) = value(host) else { return Cell::skipped("its clock could not be read") };
        if host.name() == first {
            return Cell::pass("the others are compared with it");
        }
        let (apart, uncertain) = (offset - base.0, uncertain + base.1);
        let what = format!("{:+.2} s ± {:.2} s from {first}", apart / 1000.0, uncertain / 1000.0);
        if apart.abs() - uncertain <= limit {
            return Cell::pass(what);
        }
        let hint = "`timedatectl set-ntp true` there, or `chronyc makestep`: logs and checkpoints are told apart by time";
        if bound.is_some() { Cell::fail(what, hint) } else { Cell::warn(what, hint) }
    })
}
