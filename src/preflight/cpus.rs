//! `cpus`: processors.

use super::context::CheckContext;
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::model::level::Level;

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "cpus",
    area: CheckArea::Host,
    description: "hosts have different numbers of processors, or fewer processors than ranks",
    probes: &[Probe::Host],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    let mut cells = context.compare_hosts(Level::Warn, "the slowest host slows down all ranks", |host| {
        host.probe_output
            .last_number("cpus")
            .map(|n| format!("{n} processors"))
            .ok_or_else(|| CheckResult::skipped("could not read the number of processors"))
    });
    for (host, cell) in context.hosts.iter().zip(&mut cells) {
        let ranks = u64::from(host.job_host.nproc.unwrap_or(0));
        if let Some(n) = host.probe_output.last_number("cpus").filter(|n| *n < ranks) {
            let message = match n {
                1 => format!("1 processor for {ranks} ranks"),
                n => format!("{n} processors for {ranks} ranks"),
            };
            *cell = CheckResult::warn(message, "lower launch.nproc_per_node, or add processors");
        }
    }
    cells
}
