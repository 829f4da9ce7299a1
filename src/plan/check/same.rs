//! `same`: `checks.same`: commands that must say the same everywhere.

use super::probe::Probe;
use super::scene::Scene;
use super::{Area, Cell, Check};
use crate::plan::words::Level;

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "same",
    area: Area::Files,
    looks: "a command of checks.same fails, or says something else than on the other hosts",
    needs: &[Probe::Inside],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    let commands = &scene.job.checks.same;
    let mut cells =
        scene.each(|_| if commands.is_empty() { Cell::skipped("checks.same is empty") } else { Cell::pass("the same everywhere") });
    for (n, command) in commands.iter().enumerate() {
        let n = n.to_string();
        let short: String = command.chars().take(40).collect();
        let compared = scene.alike(Level::Fail, "make it say the same on all hosts, or take it out of checks.same", |host| {
            if host.told.one("inside_failed").is_some() {
                return Err(Cell::skipped("the image could not be looked into"));
            }
            let Some(told) = host.told.of("same", &n).next() else { return Err(Cell::skipped("it was not run")) };
            let mut words = told.splitn(3, ' ');
            let (code, digest, text) =
                (words.next().unwrap_or_default(), words.next().unwrap_or_default(), words.next().unwrap_or_default());
            match code {
                "0" if text.chars().count() < 100 => Ok(text.to_owned()),
                "0" => Ok(format!("{}… ({digest})", text.chars().take(60).collect::<String>())),
                code => Err(Cell::fail(format!("`{short}` ends with {code}: {text}"), "correct checks.same, or what it looks at")),
            }
        });
        for (cell, mut found) in cells.iter_mut().zip(compared) {
            if found.agree > 0 {
                found.what = format!("`{short}`: {}", found.what);
            }
            if found.level > Level::Pass && found.level > cell.level || found.level == Level::Skipped {
                *cell = found;
            }
        }
    }
    cells
}
