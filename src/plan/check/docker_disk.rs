//! `docker-disk`: room for the image and for what containers write.

use super::disk;
use super::memory::gib;
use super::probe::Probe;
use super::scene::Scene;
use super::{Area, Cell, Check};

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "docker-disk",
    area: Area::Docker,
    looks: "less than 5 GiB or 2 % of the inodes are free where docker stores; less than 1 GiB and the image is not there yet is a failure",
    needs: &[Probe::Docker],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    scene.each(|host| {
        let Some(row) = host.told.one("docker_disk").and_then(disk::row) else {
            return Cell::skipped("docker does not tell where it stores");
        };
        let Some(free) = row.free else { return Cell::skipped("df tells nothing of it") };
        let what = format!("{} free under {}", gib(free), row.path);
        let hint = "`docker system df` there shows what docker uses, `docker image prune` frees some";
        if free < 1 << 20 && host.facts.image.is_none() {
            return Cell::fail(format!("{what}, and the image is not there yet"), hint);
        }
        let few = row.inodes.zip(row.inodes_free).is_some_and(|(all, free)| all > 0 && free < all / 50);
        if free < 5 << 20 || few {
            Cell::warn(if few { format!("few inodes left under {}", row.path) } else { what }, hint)
        } else {
            Cell::pass(what)
        }
    })
}
