//! `arch`: one image for all needs one kind of processor.

use super::scene::Scene;
use super::{Area, Cell, Check};
use crate::plan::words::Level;

/// See its `looks`.
pub(super) const CHECK: Check =
    Check { name: "arch", area: Area::Host, looks: "the hosts have different processor architectures", needs: &[], judge };

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    scene.alike(Level::Fail, "use hosts of one architecture: an image is made for one", |host| match host.facts.system.as_str() {
        "" => Err(Cell::skipped("uname told nothing")),
        system => Ok(system.to_owned()),
    })
}
