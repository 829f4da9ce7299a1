//! `leftovers`: what earlier runs of this name have left.

use super::scene::Scene;
use super::{Area, Cell, Check};
use crate::plan::found::Found;

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "leftovers",
    area: Area::Docker,
    looks: "a container or keeper of this name is there and no run of it is live, or a smoke of it; what is kept on purpose passes",
    needs: &[],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    scene.each(|host| {
        if host.live {
            return Cell::pass("a run of this name is live");
        }
        let hint = "`orchestrate down` fetches its logs and removes it";
        if host.facts.smoke {
            return Cell::warn("a smoke was cut off here, or is under way", hint);
        }
        if let [first, ..] = host.facts.elsewhere.checks.as_slice()
            && !scene.launching
        {
            return Cell::warn(format!("a check was cut off here, or is under way: {}", first.shown()), "`orchestrate down` removes it");
        }
        // What stands in the way of a launch is cleared away by it.
        if scene.launching {
            return Cell::pass("cleared away by the launch");
        }
        let containers: Vec<String> = host.facts.containers.iter().map(Found::shown).collect();
        match (containers.as_slice(), host.facts.keep) {
            ([], _) if host.facts.keeper.is_some() => Cell::warn("the keeper of an earlier run", hint),
            ([], _) => Cell::pass("none"),
            (some, true) => Cell::pass(format!("kept: {}", some.join(", "))),
            (some, false) => Cell::warn(format!("of an earlier run: {}", some.join(", ")), hint),
        }
    })
}
