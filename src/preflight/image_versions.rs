//! `image-versions`: what ranks import, where they run.

use super::context::CheckContext;
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::model::level::Level;

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "image-versions",
    area: CheckArea::Environment,
    description: "versions of python, torch, CUDA, NCCL, accelerate, deepspeed, transformers, jax or numpy differ between hosts (a failure for those that communicate with each other)",
    probes: &[Probe::Environment],
    judge,
};

/// Those whose ranks do not understand each other in other versions.
const STRICT_PACKAGES: [&str; 5] = ["torch", "cuda", "nccl", "jax", "jaxlib"];

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    let mut names: Vec<&str> = Vec::new();
    for line in context.hosts.iter().flat_map(|h| h.probe_output.values("version")) {
        let name = line.split(' ').next().unwrap_or_default();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut cells =
        context.check_each_host(|host| match (host.probe_output.last_value("inside_failed"), host.probe_output.last_value("no_python")) {
            (Some(_), _) => CheckResult::skipped("no container of the image started"),
            (None, Some(python)) => CheckResult::skipped(format!("no {python} in the image")),
            (None, None) if context.is_alone() => CheckResult::skipped("no other host answered"),
            (None, None) => CheckResult::pass(host.probe_output.values("version").join(", ")),
        });
    let hint = if context.hosts.iter().all(|host| host.container().is_some()) {
        "use one image on all hosts; `checks: { skip: [image-versions] }` leaves this check out"
    } else {
        "use one Python environment on all hosts; `checks: { skip: [image-versions] }` leaves this check out"
    };
    for name in names {
        let level = if STRICT_PACKAGES.contains(&name) { Level::Fail } else { Level::Warn };
        let compared = context.compare_hosts(level, hint, |host| {
            if host.has_failed_inside() || host.probe_output.last_value("no_python").is_some() {
                return Err(CheckResult::skipped(""));
            }
            Ok(format!("{name} {}", host.probe_output.values_starting_with("version", name).next().unwrap_or("(none)")))
        });
        for (cell, found) in cells.iter_mut().zip(compared) {
            if found.level > Level::Pass && cell.level < found.level {
                let evidence = if cell.level > Level::Pass { vec![cell.message.clone()] } else { Vec::new() };
                *cell = found.with_evidence(evidence);
            } else if found.level > Level::Pass {
                cell.message = format!("{}; {}", cell.message, found.message);
            }
        }
    }
    cells
}
