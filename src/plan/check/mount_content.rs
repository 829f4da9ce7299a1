//! `mount-content`: the same files beneath a mount that is only read.

use super::mount_system::by_mount;
use super::mounts::file;
use super::probe::Probe;
use super::scene::Place;
use super::scene::Scene;
use super::{Area, Cell, Check};

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "mount-content",
    area: Area::Files,
    looks: "a read-only mount's source has other files, or files of other sizes, on some hosts",
    needs: &[Probe::Files],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    let hint = "compare with `orchestrate exec -- ls -lR PATH`, and copy what is missing";
    by_mount(scene, |mount| mount.read_only, hint, content)
}

/// How many files there are, and a digest of their names and sizes.
pub(super) fn content(host: &Place<'_>, at: usize) -> Option<String> {
    let text = file(host, at, "content")?;
    let (count, digest) = text.split_once(' ')?;
    (count != "?").then(|| format!("{count} files ({})", digest.rsplit(':').next().unwrap_or_default().chars().take(8).collect::<String>()))
}
