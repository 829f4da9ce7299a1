//! What a check is, and what it found on all hosts.

use super::check_result::CheckResult;
use super::context::CheckContext;
use super::probe::Probe;
use crate::model::level::Level;
use crate::plan::action::Issue;
use crate::plan::action::verify_facts::HostCheckSummary;

/// What a check is about: a column of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum CheckArea {
    Host,
    Docker,
    /// Where ranks run, the image or the host itself: what is in it.
    Environment,
    Gpu,
    /// Mounts, paths, outputs that must be equal.
    Files,
    Network,
}

impl CheckArea {
    /// All, in their order.
    pub(crate) const ALL: [CheckArea; 6] =
        [CheckArea::Host, CheckArea::Docker, CheckArea::Environment, CheckArea::Gpu, CheckArea::Files, CheckArea::Network];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            CheckArea::Host => "host",
            CheckArea::Docker => "docker",
            CheckArea::Environment => "env",
            CheckArea::Gpu => "gpu",
            CheckArea::Files => "files",
            CheckArea::Network => "network",
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct PreflightCheck {
    /// Its stable name, one of [`CHECK_NAMES`](crate::inventory::check_settings::CHECK_NAMES).
    pub name: &'static str,
    /// What it is about.
    pub area: CheckArea,
    /// What it looks at and when it complains, for people.
    pub description: &'static str,
    /// What the hosts must be asked for it.
    pub probes: &'static [Probe],
    /// Evaluates the check: one result per host of the context, in its order.
    pub judge: fn(&CheckContext<'_>) -> Vec<CheckResult>,
}

impl PreflightCheck {
    /// Whether a launch does it with `--preflight full` only: it looks where ranks run, and the inventory does not ask for it as for `same`.
    pub(crate) fn is_left_to_full(&self) -> bool {
        self.probes.contains(&Probe::Environment) && self.name != "same"
    }
}

/// What the checks found on one host, for the plan's preflight step.
pub(crate) fn summarize_host(reports: &[CheckReport], host: usize) -> HostCheckSummary {
    let mut found = HostCheckSummary::default();
    for report in reports {
        let Some((_, result)) = report.results.iter().find(|(h, _)| *h == host) else { continue };
        match result.level {
            Level::Pass => found.pass_warn_counts.0 += 1,
            Level::Warn => found.pass_warn_counts.1 += 1,
            Level::Fail => {
                found.failures.push((report.check.name, Issue::new(format!("{}: {}", report.check.name, result.message), &result.hint)));
            }
            Level::Skipped => {}
        }
    }
    found
}

/// What one check found on all hosts that answered.
#[derive(Debug, Clone)]
pub(crate) struct CheckReport {
    pub check: PreflightCheck,
    /// The host's index in the inventory, and its cell.
    pub results: Vec<(usize, CheckResult)>,
}

/// Equal cells of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CheckResultGroup {
    /// The indexes of the hosts in the inventory.
    pub hosts: Vec<usize>,
    /// What was found on each of them.
    pub result: CheckResult,
}

impl CheckReport {
    /// The worst of its cells; without any it was not looked at.
    pub(crate) fn level(&self) -> Level {
        self.results.iter().map(|(_, cell)| cell.level).max().unwrap_or(Level::Skipped)
    }

    /// Equal cells put together, the worst first.
    pub(crate) fn groups(&self) -> Vec<CheckResultGroup> {
        let mut groups: Vec<CheckResultGroup> = Vec::new();
        for (host, cell) in &self.results {
            match groups.iter_mut().find(|g| {
                (g.result.level, &g.result.message, &g.result.hint, g.result.majority_size)
                    == (cell.level, &cell.message, &cell.hint, cell.majority_size)
            }) {
                Some(group) => group.hosts.push(*host),
                None => groups.push(CheckResultGroup { hosts: vec![*host], result: cell.clone() }),
            }
        }
        groups.sort_by_key(|g| (std::cmp::Reverse(g.result.level), g.hosts.first().copied()));
        groups
    }
}
