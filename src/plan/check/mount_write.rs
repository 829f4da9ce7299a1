//! `mount-write`: ranks can write where they are to write.

use super::probe::Probe;
use super::probe::writes;
use super::scene::Scene;
use super::{Area, Cell, Check};

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "mount-write",
    area: Area::Files,
    looks: "the container's user cannot write into a mount that is not read-only",
    needs: &[Probe::Inside],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    scene.each(|host| {
        let writes = writes(scene.job, host.index);
        if writes.is_empty() {
            return Cell::skipped("no mounts to write to");
        }
        if host.told.one("inside_failed").is_some() {
            return Cell::skipped("the image could not be looked into");
        }
        let user = host.told.one("inside_user").unwrap_or("?");
        for (at, path) in writes.iter().enumerate() {
            let at = at.to_string();
            if let Some(why) = host.told.of("write", &at).find_map(|v| v.strip_prefix("no ")) {
                return Cell::fail(
                    format!("{path} cannot be written by {user} inside: {}", why.trim()),
                    "make it writable there, set container.user, or mount it `:ro` where nothing is to be written",
                );
            }
        }
        Cell::pass(format!("{} by {user}", writes.join(", ")))
    })
}
