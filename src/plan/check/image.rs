//! `image`: the same image everywhere, whatever its tag says.

use super::scene::Scene;
use super::{Area, Cell, Check};
use crate::inventory::Pull;
use crate::plan::action::pull::short;
use crate::plan::words::Level;

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "image",
    area: Area::Image,
    looks: "the image has different ids on the hosts that have it, or is not there and may not be pulled",
    needs: &[],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    let hint = "pull or load the same image everywhere (container.pull: always, or a digest: image@sha256:…)";
    scene.alike(Level::Fail, hint, |host| {
        let Some(container) = host.container() else { return Err(Cell::skipped("bare host")) };
        match (&host.facts.image, container.pull) {
            (_, Pull::Always) => Err(Cell::skipped("it is pulled anew in any case")),
            (Some(id), _) => Ok(short(id)),
            (None, Pull::Missing) => Err(Cell::skipped("not there yet: it will be pulled; the registry is not asked before")),
            // The step that gets the image tells it.
            (None, Pull::Never) if scene.launching => Err(Cell::skipped("")),
            (None, Pull::Never) => {
                Err(Cell::fail(format!("{} is not there", container.image), "load it there, or set container.pull: missing"))
            }
        }
    })
}
