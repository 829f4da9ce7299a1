//! `same`: `checks.same`: commands that must print the same on all hosts.

use super::context::CheckContext;
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::model::level::Level;

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "same",
    area: CheckArea::Files,
    description: "a command of checks.same fails, or its output differs between hosts",
    probes: &[Probe::Environment],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    let commands = &context.job.checks.same_output_commands;
    let mut cells = context.check_each_host(|_| {
        if commands.is_empty() { CheckResult::skipped("checks.same is empty") } else { CheckResult::pass("equal on all hosts") }
    });
    for (n, command) in commands.iter().enumerate() {
        let n = n.to_string();
        let short: String = command.chars().take(40).collect();
        let compared = context.compare_hosts(Level::Fail, "make its output equal on all hosts, or remove it from checks.same", |host| {
            if host.has_failed_inside() {
                return Err(CheckResult::skipped("no container of the image started"));
            }
            let Some(reported) = host.probe_output.values_starting_with("same", &n).next() else {
                return Err(CheckResult::skipped("not run"));
            };
            let mut words = reported.splitn(3, ' ');
            let (code, digest, text) =
                (words.next().unwrap_or_default(), words.next().unwrap_or_default(), words.next().unwrap_or_default());
            match code {
                "0" if text.chars().count() < 100 => Ok(text.to_owned()),
                "0" => Ok(format!("{}… ({digest})", text.chars().take(60).collect::<String>())),
                code => {
                    Err(CheckResult::fail(format!("`{short}` ends with {code}: {text}"), "correct checks.same, or what the command reads"))
                }
            }
        });
        for (cell, mut found) in cells.iter_mut().zip(compared) {
            if found.majority_size > 0 {
                found.message = format!("`{short}`: {}", found.message);
            }
            cell.keep_worse(found);
        }
    }
    cells
}
