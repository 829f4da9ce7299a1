//! `paths`: `checks.paths`: there, with the same content.

use super::context::{CheckContext, CheckedHost};
use super::mount_content::content_summary;
use super::mounts::probed_file_value;
use super::probe::Probe;
use super::probe::checked_paths;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::model::level::Level;
use std::collections::BTreeSet;

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "paths",
    area: CheckArea::Files,
    description: "a path of checks.paths is missing, or its files or file sizes differ between hosts",
    probes: &[Probe::Files],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    let paths = &context.job.checks.same_content_paths;
    let mut cells = context.check_each_host(|_| {
        if paths.is_empty() { CheckResult::skipped("checks.paths is empty") } else { CheckResult::pass("equal on all hosts") }
    });
    for (n, path) in paths.iter().enumerate() {
        let place = |host: &CheckedHost<'_>| checked_paths(context.job, host.index).len() - paths.len() + n;
        let compared = context.compare_hosts(Level::Fail, "copy what is missing to that host, or mount the same file system", |host| {
            match probed_file_value(host, place(host), "type") {
                Some("missing") => Err(CheckResult::fail(format!("{path} is missing"), "copy it to that host, or mount it")),
                Some("hung") => {
                    Err(CheckResult::fail(format!("{path} does not respond within 5 s (stale network mount?)"), "mount it again"))
                }
                _ => content_summary(host, place(host))
                    .ok_or_else(|| CheckResult::skipped(format!("{path} could not be listed within 20 s"))),
            }
        });
        let lists: Vec<BTreeSet<&String>> =
            context.hosts.iter().map(|h| h.probe_output.values(&format!("in{}", place(h))).iter().collect()).collect();
        let model = compared.iter().position(|c| c.level == Level::Pass);
        for ((cell, mut found), list) in cells.iter_mut().zip(compared).zip(&lists) {
            if found.majority_size > 0 {
                found.message = format!("{path}: {}", found.message);
                let model = model.and_then(|m| lists.get(m)).cloned().unwrap_or_default();
                let lacks = model.difference(list).map(|line| format!("lacks {line}"));
                let more = list.difference(&model).map(|line| format!("has {line}"));
                found = found.with_evidence(lacks.take(4).chain(more.take(4)).collect::<Vec<_>>());
            }
            cell.keep_worse(found);
        }
    }
    cells
}
