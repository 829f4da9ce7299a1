//! `docker`: the engine answers to the ssh user.

use super::scene::Scene;
use super::{Area, Cell, Check};
use crate::inventory::Become;
use crate::plan::action::preflight::docker_trouble;
use crate::plan::facts::Docker;

/// See its `looks`.
pub(super) const CHECK: Check =
    Check { name: "docker", area: Area::Docker, looks: "docker is missing, does not run, or may not be used", needs: &[], judge };

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    scene.each(|host| match &host.facts.docker {
        Docker::NotAsked => Cell::skipped("bare host"),
        Docker::Usable(version) => Cell::pass(version.clone()),
        Docker::Unusable(says) => {
            let trouble = docker_trouble(says, "this host", &host.facts.user, host.host.ssh.r#become == Become::Sudo);
            Cell::fail(trouble.what, trouble.hint)
        }
    })
}
