//! `image-versions`: what ranks import, where they run.

use super::probe::Probe;
use super::scene::Scene;
use super::{Area, Cell, Check};
use crate::plan::words::Level;

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "image-versions",
    area: Area::Image,
    looks: "python, torch, CUDA, NCCL, accelerate, deepspeed, transformers, jax or numpy differ between the hosts; those that talk to each other are a failure",
    needs: &[Probe::Inside],
    judge,
};

/// Those whose ranks do not understand each other in other versions.
const STRICT: [&str; 5] = ["torch", "cuda", "nccl", "jax", "jaxlib"];

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    let mut names: Vec<&str> = Vec::new();
    for line in scene.hosts.iter().flat_map(|h| h.told.all("version")) {
        let name = line.split(' ').next().unwrap_or_default();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut cells = scene.each(|host| match (host.told.one("inside_failed"), host.told.one("no_python")) {
        (Some(_), _) => Cell::skipped("the image could not be looked into"),
        (None, Some(python)) => Cell::skipped(format!("there is no {python} in it")),
        (None, None) => Cell::pass(host.told.all("version").join(", ")),
    });
    for name in names {
        let level = if STRICT.contains(&name) { Level::Fail } else { Level::Warn };
        let compared = scene.alike(level, "use one image, or one environment, on all hosts", |host| {
            if host.told.one("inside_failed").is_some() || host.told.one("no_python").is_some() {
                return Err(Cell::skipped(""));
            }
            Ok(format!("{name} {}", host.told.of("version", name).next().unwrap_or("(none)")))
        });
        for (cell, found) in cells.iter_mut().zip(compared) {
            if found.level > Level::Pass && cell.level < found.level {
                let evidence = if cell.level > Level::Pass { vec![cell.what.clone()] } else { Vec::new() };
                *cell = found.showing(evidence);
            } else if found.level > Level::Pass {
                cell.what = format!("{}, {}", cell.what, found.what);
            }
        }
    }
    cells
}
