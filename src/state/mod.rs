//! The state of a run: the fold of its events. Only [`RunState::apply`] changes it.
//!
//! Time comes in the events. Every event is accepted, even one that names a host or step that does not exist (it changes nothing),
//! and memory is bounded for any input.

mod bounded_text;
pub(crate) mod gpu_history;
pub(crate) mod hang_baseline;
mod host;
mod host_events;
pub(crate) mod host_trace;
pub(crate) mod log_lines;
pub(crate) mod metric_scanner;
mod plan_change;
mod rank_events;
mod run_end;
pub(crate) mod shared;
pub(crate) mod step_tracker;
mod summary;
pub(crate) mod training_metrics;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::event::{Event, EventKind, Hang, Level, Outcome, Phase, RunGoal, RunInfo, RunOutcome, UnixMillis};
use crate::model::step_status::StepStatus;
use crate::text::translation::with_help;

use bounded_text::keep_beginning;
pub(crate) use gpu_history::{GpuRound, GpuTracePoint, ValueSum};
use hang_baseline::OutputActivity;
pub(crate) use host::{ConnectionStatus, DiskSpace, HostState, PhaseCounts, RankCounts, RankState};
use metric_scanner::MetricScanner;
use shared::{SharedList, SharedMap};
pub(crate) use step_tracker::{StepState, StepTracker, StepTransfer};
pub(crate) use summary::PhaseResult;
use training_metrics::TrainingMetrics;

/// How many notices are kept.
const MAX_NOTICES: usize = 200;
/// How many checks are counted.
const MAX_CHECKS: usize = 200;
/// How many leftovers are kept; the rest is counted.
const MAX_LEFTOVERS: usize = 1000;
/// How many starts of phases are kept.
const MAX_PHASES: usize = 1000;
/// How many ranks are followed.
const MAX_RANKS: usize = 1 << 16;

/// The ranks that failed first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Culprit {
    /// Global ranks; empty when a launcher failed before any rank.
    pub ranks: Vec<u32>,
    /// The indexes of their hosts.
    pub hosts: Vec<u32>,
}

/// One line for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub at: UnixMillis,
    /// The index of the host it is about.
    pub host: Option<u32>,
    pub text: String,
    /// Whether it is a warning.
    pub warn: bool,
}

/// Something that could not be removed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leftover {
    /// The index of its host.
    pub host: u32,
    pub text: String,
    /// The host did not answer: it is not known whether anything is left there.
    pub unchecked: bool,
}

/// What is known of a run. A copy is cheap: it shares hosts, ranks, steps and the plan with the original until they change.
#[derive(Debug, Clone, Default)]
pub struct RunState {
    /// The plan in force.
    pub info: Arc<RunInfo>,
    /// In the plan's order.
    pub hosts: SharedList<HostState>,
    pub ranks: SharedMap<RankState>,
    /// The steps of the plan in force.
    pub step_tracker: Arc<StepTracker>,
    /// The steps that failed in earlier plans of this attempt.
    earlier_failed_steps: Arc<Vec<StepState>>,
    /// The steps of tasks in earlier plans of this attempt.
    earlier_task_steps: Arc<Vec<StepState>>,
    /// The phases as they began, with their time.
    pub phases: Vec<(Phase, UnixMillis)>,
    /// What should be the case, and why.
    pub goal: (RunGoal, String),
    /// When it was first no longer that the gang runs.
    pub stopping_since: Option<UnixMillis>,
    /// The run's end as reported by the hosts, and its time (0: unknown).
    reported_end: Option<(RunOutcome, UnixMillis)>,
    /// When its first rank started.
    first_rank_started: Option<UnixMillis>,
    /// When the run was ready.
    pub ready_at: Option<UnixMillis>,
    pub culprit: Option<Culprit>,
    /// How the run seems to hang, and when that was reported; none once it makes progress again.
    pub hang: Option<(Hang, UnixMillis)>,
    /// When the ranks wrote, and how long they were silent.
    pub output_activity: OutputActivity,
    /// The worst that each check of preflight found, by its name.
    pub check_levels: BTreeMap<String, Level>,
    pub notices: VecDeque<Notice>,
    /// What is left on hosts.
    pub leftovers: Vec<Leftover>,
    /// The training metrics in the lines of all ranks.
    pub(crate) metrics: TrainingMetrics,
    scanner: Arc<MetricScanner>,
    /// How it ended, and why.
    pub outcome: Option<(Outcome, String)>,
    /// The time of the first event.
    pub first_event_at: Option<UnixMillis>,
    /// The time of the last event.
    pub last_event_at: UnixMillis,
    /// The number of the last event.
    pub last_seq: u64,
}

impl RunState {
    pub fn new() -> Self {
        Self::default()
    }

    /// Folds one event in. Nothing else changes a state.
    pub fn apply(&mut self, event: &Event) {
        let at = event.at;
        self.first_event_at.get_or_insert(at);
        self.last_event_at = at;
        self.last_seq = event.seq;
        match &event.kind {
            EventKind::RunStarted(info) => self.start_plan(info),
            EventKind::PhaseStarted { phase } => {
                if self.phases.len() < MAX_PHASES {
                    self.phases.push((*phase, at));
                }
            }
            EventKind::StepStarted { .. }
            | EventKind::StepSatisfied { .. }
            | EventKind::StepDone { .. }
            | EventKind::StepSkipped { .. }
            | EventKind::StepRetrying { .. }
            | EventKind::PullProgress { .. }
            | EventKind::StepProgress { .. }
            | EventKind::StepFailed { .. } => self.apply_step_event(&event.kind, at),
            EventKind::HostConnecting { host }
            | EventKind::HostConnected { host, .. }
            | EventKind::HostLost { host, .. }
            | EventKind::LauncherStarted { host }
            | EventKind::LauncherExited { host, .. }
            | EventKind::Gpus { host, .. }
            | EventKind::GpusUnavailable { host, .. }
            | EventKind::GpuProcesses { host, .. }
            | EventKind::NvidiaSmi { host, .. }
            | EventKind::HostMetrics { host, .. }
            | EventKind::DiskSpace { host, .. } => self.apply_host_event(*host, &event.kind, at),
            EventKind::RankStarted { .. } | EventKind::RankExited { .. } => self.apply_rank_event(&event.kind, at),
            EventKind::Log { .. } | EventKind::LogTruncated { .. } => self.apply_log_event(&event.kind, at),
            EventKind::CheckFinished { .. } | EventKind::Notice { .. } | EventKind::Leftover { .. } => {
                self.apply_notice_event(&event.kind, at)
            }
            EventKind::Ready
            | EventKind::Culprit { .. }
            | EventKind::Hang(_)
            | EventKind::HangEnded
            | EventKind::RunEndReported { .. }
            | EventKind::GoalChanged { .. }
            | EventKind::RunFinished { .. } => self.apply_run_event(&event.kind, at),
            // Only `diagnose` reads the first, and outputs the others.
            EventKind::Postmortem { .. } | EventKind::LogCurrent { .. } | EventKind::RanksSignaled { .. } => {}
        }
    }

    fn apply_run_event(&mut self, kind: &EventKind, at: UnixMillis) {
        match kind {
            EventKind::Ready => {
                self.ready_at.get_or_insert(at);
            }
            EventKind::Culprit { ranks, hosts } => {
                self.culprit = Some(Culprit { ranks: ranks.clone(), hosts: hosts.clone() });
                for rank in ranks {
                    if let Some(rank) = self.ranks.get_mut(rank) {
                        rank.was_stopped = false;
                    }
                }
                hosts.iter().for_each(|host| self.mark_ended_by_launcher(*host));
            }
            EventKind::Hang(hang) => self.hang = Some((hang_baseline::truncate_hang(hang), at)),
            EventKind::HangEnded => self.hang = None,
            EventKind::RunEndReported { end, ended_at } => {
                self.reported_end = Some((*end, *ended_at));
                if *end == RunOutcome::Stopped {
                    self.mark_stopped_elsewhere();
                }
            }
            EventKind::GoalChanged { goal, reason } => {
                self.goal = (*goal, reason.clone());
                self.stopping_since = if *goal == RunGoal::Up { None } else { self.stopping_since.or(Some(at)) };
            }
            EventKind::RunFinished { outcome, reason } => {
                self.outcome = Some((outcome.clone(), reason.clone()));
                self.mark_lost_ranks_killed();
            }
            _ => {}
        }
    }

    fn apply_step_event(&mut self, kind: &EventKind, at: UnixMillis) {
        let steps = Arc::make_mut(&mut self.step_tracker);
        let (step, status, note) = match kind {
            EventKind::StepRetrying { step, error } => return steps.record_retry(*step, &keep_beginning(error), at),
            EventKind::PullProgress { step, counts } => return steps.record_pull_progress(*step, *counts),
            EventKind::StepProgress { step, done, total, .. } => return steps.record_progress(*step, (*done, *total), at),
            EventKind::StepStarted { step } => (step, StepStatus::Running, ""),
            EventKind::StepSatisfied { step, note } => (step, StepStatus::Satisfied, note.as_str()),
            EventKind::StepDone { step, note } => (step, StepStatus::Done, note.as_str()),
            EventKind::StepSkipped { step, note } => (step, StepStatus::Skipped, note.as_str()),
            EventKind::StepFailed { step, error, .. } => (step, StepStatus::Failed, error.as_str()),
            _ => return,
        };
        let Some(changed) = steps.set_status(*step, status, at) else { return };
        changed.note = keep_beginning(note);
        if let EventKind::StepFailed { hint, unreachable, .. } = kind {
            (changed.hint, changed.unreachable) = (keep_beginning(hint), *unreachable);
        }
    }

    fn apply_notice_event(&mut self, kind: &EventKind, at: UnixMillis) {
        match kind {
            EventKind::Notice { host, text, warn } => {
                self.push_notice(Notice { at, host: *host, text: keep_beginning(text), warn: *warn });
            }
            EventKind::Leftover { host, text, unchecked } => {
                let leftover = Leftover { host: *host, text: keep_beginning(text), unchecked: *unchecked };
                if self.leftovers.len() < MAX_LEFTOVERS && !self.leftovers.contains(&leftover) {
                    self.leftovers.push(leftover);
                }
            }
            EventKind::CheckFinished { check, level, hosts, message, hint } => {
                self.record_check_level(check, *level);
                if *level == Level::Warn {
                    let text = keep_beginning(&with_help(&format!("{check}: {message}"), hint));
                    hosts.iter().for_each(|host| self.push_notice(Notice { at, host: Some(*host), text: text.clone(), warn: true }));
                }
            }
            _ => {}
        }
    }

    /// A check counts once, by the worst level that any host has.
    fn record_check_level(&mut self, check: &str, level: Level) {
        if self.check_levels.len() < MAX_CHECKS || self.check_levels.contains_key(check) {
            let worst = self.check_levels.entry(keep_beginning(check)).or_insert(level);
            *worst = level.max(*worst);
        }
    }

    fn push_notice(&mut self, notice: Notice) {
        if self.notices.len() >= MAX_NOTICES {
            self.notices.pop_front();
        }
        self.notices.push_back(notice);
    }
}

#[cfg(test)]
mod tests;
