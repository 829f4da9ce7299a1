//! `container-name`: the name that our container gets.

use super::scene::Scene;
use super::{Area, Cell, Check};
use crate::plan::build::site;

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "container-name",
    area: Area::Docker,
    looks: "another one's container has the name that ours would get",
    needs: &[],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    scene.each(|host| {
        if host.container().is_none() {
            return Cell::skipped("bare host");
        }
        let site = site(scene.inventory, host.host, &host.facts.run_dir, "", None);
        match &host.facts.taken {
            Some(labels) if *labels != format!("{}/{}", site.name, site.host) => Cell::fail(
                format!("{} is a container that is not ours", site.container()),
                format!("look at it with `docker inspect {}`; rename or remove it, or change `name:`", site.container()),
            ),
            _ => Cell::pass(site.container()),
        }
    })
}
