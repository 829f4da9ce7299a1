//! `userns-remap`: docker maps the users of containers to others, and then shares no network of the host.

use super::probe::Probe;
use super::scene::Scene;
use super::{Area, Cell, Check};

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "userns-remap",
    area: Area::Docker,
    looks: "dockerd maps users (userns-remap): it starts no container with the host's network, and users of a container are others in mounts",
    needs: &[Probe::Docker],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    scene.each(|host| {
        let Some(container) = host.container() else { return Cell::skipped("bare host") };
        let Some(info) = host.told.one("docker_info") else {
            return Cell::skipped(host.told.one("docker_error").unwrap_or("docker info told nothing").to_owned());
        };
        let remapped = info.rsplit('|').next().is_some_and(|options| options.contains("name=userns"));
        if !remapped {
            return Cell::pass("users are not mapped");
        }
        let hint = "container.args: [--userns=host]";
        match container.args.iter().any(|arg| arg == "--userns=host") {
            true => Cell::pass("not for this container (--userns=host)"),
            false if container.network == "host" => {
                Cell::fail("users are mapped (userns-remap): dockerd starts no container with the host's network", hint)
            }
            false => Cell::warn("users are mapped (userns-remap): files that ranks write into mounts belong to others", hint),
        }
    })
}
