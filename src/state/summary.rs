//! Figures and lists that are computed from the state on request.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::{LogFile, Phase, UnixMillis};
use crate::model::step_status::StepStatus;

use super::log_lines::RecentLines;
use super::{ConnectionStatus, HostState, PhaseCounts, RankCounts, RankState, RunState, StepState, training_metrics};

/// What a phase of one host came to; a worse result hides a better one. A phase that only reads changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PhaseResult {
    Skipped,
    Ok,
    Changed,
    Failed,
}

/// `None` while the step has not ended.
fn step_result(step: &StepState) -> Option<PhaseResult> {
    match step.status {
        StepStatus::Waiting | StepStatus::Running => None,
        StepStatus::Skipped => Some(PhaseResult::Skipped),
        StepStatus::Done if step.info.phase.changes_host() => Some(PhaseResult::Changed),
        StepStatus::Satisfied | StepStatus::Done => Some(PhaseResult::Ok),
        StepStatus::Failed => Some(PhaseResult::Failed),
    }
}

/// What each phase or host came to; none where a step is still open, or never ran, and nothing was changed or failed before it.
fn fold_results<'a, K: Ord>(steps: impl Iterator<Item = (K, &'a StepState)>) -> BTreeMap<K, PhaseResult> {
    let mut folded: BTreeMap<K, (Option<PhaseResult>, bool)> = BTreeMap::new();
    for (key, step) in steps {
        let (worst, is_open) = folded.entry(key).or_default();
        let result = step_result(step);
        *worst = result.max(*worst);
        *is_open |= result.is_none();
    }
    let decided = folded.into_iter().filter_map(|(key, (worst, is_open))| Some((key, worst?, is_open)));
    decided.filter(|(_, worst, is_open)| !is_open || *worst >= PhaseResult::Changed).map(|(key, worst, _)| (key, worst)).collect()
}

impl RunState {
    /// The ranks that failed first; none while no rank has.
    pub fn culprit_ranks(&self) -> &[u32] {
        self.culprit.as_ref().map_or(&[], |culprit| &culprit.ranks)
    }

    /// Every metric that a rank has reported as the ranks stand now, the furthest step and the mean of the others, and when one of them spoke last.
    pub(crate) fn combined_metrics(&self) -> BTreeMap<u8, (f64, UnixMillis)> {
        training_metrics::combine_all_metrics(self.ranks.values().map(|rank| &rank.metrics))
    }

    /// The name of a metric.
    pub fn metric_name(&self, metric: u8) -> &str {
        self.scanner.metric_name(metric)
    }

    /// Host number `host`'s name, for display; empty if there is no such host.
    pub fn host_name(&self, host: u32) -> &str {
        self.hosts.get(host as usize).map_or("", |host| host.name.as_str())
    }

    /// Whether every leftover is on a host that did not answer: the same command would only find it lost again.
    pub(crate) fn has_only_unverified_leftovers(&self) -> bool {
        !self.leftovers.is_empty() && self.leftovers.iter().all(|leftover| leftover.unchecked)
    }

    /// Whether the host with this index was given up.
    pub(crate) fn is_unreachable(&self, host: u32) -> bool {
        self.hosts.get(host as usize).is_some_and(|host| host.connection_status == ConnectionStatus::Unreachable)
    }

    /// The hosts that were given up, with their indexes.
    pub(crate) fn unreachable_hosts(&self) -> impl Iterator<Item = (u32, &HostState)> {
        (0..).zip(&self.hosts).filter(|(_, host)| host.connection_status == ConnectionStatus::Unreachable)
    }

    /// The phase under way, or the last one.
    pub fn current_phase(&self) -> Option<Phase> {
        self.phases.last().map(|(phase, _)| *phase)
    }

    /// Milliseconds from the first to the last event.
    pub fn elapsed(&self) -> i64 {
        self.first_event_at.map_or(0, |began| (self.last_event_at - began).max(0))
    }

    /// The ranks that ended other than well and by themselves, the first to end before the others; unknown times last.
    pub fn failed_ranks(&self) -> Vec<&RankState> {
        let mut failed: Vec<&RankState> = self.ranks.values().filter(|rank| rank.has_failed() && !rank.was_stopped).collect();
        failed.sort_by_key(|rank| (if rank.ended_at > 0 { rank.ended_at } else { UnixMillis::MAX }, rank.rank));
        failed
    }

    /// The steps that failed, over all plans of this attempt: a teardown does not hide what it was for.
    pub fn failed_steps(&self) -> impl Iterator<Item = &StepState> {
        self.earlier_failed_steps.iter().chain(self.failed_steps_of_plan())
    }

    /// The steps of all tasks of `prepare`, over all plans of this attempt.
    pub(crate) fn task_steps(&self) -> impl Iterator<Item = &StepState> {
        let current = self.step_tracker.steps().iter().filter(|step| matches!(step.info.phase, Phase::Task(_)));
        self.earlier_task_steps.iter().chain(current)
    }

    /// The last lines of a log.
    pub(crate) fn recent_lines(&self, host: u32, file: LogFile) -> Option<&RecentLines> {
        let state = self.hosts.get(host as usize);
        match file {
            LogFile::Launcher => state.map(|host| &host.launcher_recent_lines),
            LogFile::Task { number } => state.map(|host| &host.task_recent_lines).filter(|lines| lines.0 == number).map(|lines| &lines.1),
            LogFile::Rank { rank, .. } => self.ranks.get(&rank).map(|rank| &rank.recent_lines),
        }
    }

    pub(super) fn failed_steps_of_plan(&self) -> impl Iterator<Item = &StepState> {
        self.step_tracker.steps().iter().filter(|step| step.status == StepStatus::Failed)
    }

    /// How the ranks stand.
    pub fn rank_counts(&self) -> RankCounts {
        let mut counts = RankCounts::default();
        for rank in self.ranks.values() {
            match (rank.exit, rank.started_at) {
                (Some(exit), _) if exit.is_success() => counts.ok += 1,
                (Some(_), _) if rank.was_ended() => counts.stopped += 1,
                (Some(_), _) => counts.failed += 1,
                (None, Some(_)) => counts.running += 1,
                (None, None) => counts.waiting += 1,
            }
        }
        counts
    }

    /// What a phase of the current plan came to so far, with the indexes of the hosts.
    pub(crate) fn phase_results(&self, phase: Phase) -> BTreeMap<PhaseResult, BTreeSet<u32>> {
        let mut results: BTreeMap<PhaseResult, BTreeSet<u32>> = BTreeMap::new();
        for (host, result) in fold_results(self.step_tracker.steps_in_phase(phase).map(|step| (step.info.host, step))) {
            results.entry(result).or_default().insert(host);
        }
        results
    }

    /// The phases of one host, over all plans of this operation: each counts once, as its line is printed.
    pub fn phase_counts(&self, host: usize) -> PhaseCounts {
        let mut tally = self.hosts.get(host).map(|host| host.earlier_phase_counts).unwrap_or_default();
        let steps = self.step_tracker.steps().iter().filter(|step| step.info.host as usize == host);
        for result in fold_results(steps.map(|step| (step.info.phase, step))).into_values() {
            match result {
                PhaseResult::Skipped => tally.skipped += 1,
                PhaseResult::Ok => tally.ok += 1,
                PhaseResult::Changed => tally.changed += 1,
                PhaseResult::Failed => tally.failed += 1,
            }
        }
        tally
    }
}
