//! `row-remap`: GPU memory that waits to be replaced.

use super::probe::Probe;
use super::scene::Place;
use super::scene::Scene;
use super::{Area, Cell, Check};

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "row-remap",
    area: Area::Gpu,
    looks: "a row of GPU memory waits for a reset to be replaced (a warning), or could not be replaced",
    needs: &[Probe::Gpus],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    scene.each_gpu_host(|host| {
        let rows = host.told.all("remap");
        let yes = |word: Option<&str>| matches!(word.map(str::trim), Some("1" | "Yes" | "yes"));
        // `uuid, pending, failure`.
        let of = |place: usize| -> Vec<String> {
            rows.iter().filter(|row| yes(row.split(',').nth(place))).filter_map(|row| index(host, row.split(',').next()?.trim())).collect()
        };
        let (pending, failed) = (of(1), of(2));
        if !failed.is_empty() {
            return Cell::fail(
                format!("memory rows of GPU {} could not be replaced", failed.join(",")),
                "have this GPU replaced; leave the host out with --limit",
            );
        }
        if !pending.is_empty() {
            return Cell::warn(
                format!("memory rows of GPU {} wait for a reset", pending.join(",")),
                format!("`sudo nvidia-smi -r -i {}` there, with nobody on it", pending.join(",")),
            );
        }
        if rows.is_empty() { Cell::skipped("this nvidia-smi does not tell of it") } else { Cell::pass("none") }
    })
}

/// The index of a GPU by its UUID; the UUID where it is not known.
pub(super) fn index(host: &Place<'_>, uuid: &str) -> Option<String> {
    let rows = host.told.gpus();
    let row = rows.iter().find(|gpu| gpu.get("uuid") == Some(&uuid));
    Some(row.and_then(|gpu| gpu.get("index")).map_or_else(|| uuid.to_owned(), |i| (*i).to_owned()))
}
