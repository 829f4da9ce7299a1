//! What is known of a run: the fold of its events. One pen writes it, [`RunState::apply`].
//!
//! Uses `event`. Reads no clock, file or terminal; time comes in the events. Every event is accepted, whatever it names, and memory is
//! bounded whatever comes.

mod bounded_text;
pub(crate) mod hang_baseline;
pub(crate) mod host;
pub(crate) mod log_lines;
mod run_end;
pub(crate) mod step_tracker;
pub(crate) mod training_metrics;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::event::{Event, EventKind, Hang, Level, LogFile, Outcome, Phase, RunGoal, RunInfo, RunOutcome, UnixMillis};

use bounded_text::{truncate_text, truncate_text_to};
pub(crate) use host::{ConnectionStatus, DiskSpace, GpuTracePoint, HostState, RankState, StepCounts};
pub(crate) use step_tracker::{StepState, StepStatus, StepTracker};
use training_metrics::{MetricScanner, MetricValues, TrainingMetrics};

/// How many notices are kept.
const MAX_NOTICES: usize = 200;
/// How many checks are counted.
const MAX_CHECKS: usize = 200;
/// How many leftovers are kept; the rest is counted.
const MAX_LEFTOVERS: usize = 1000;
/// How many failed steps are kept.
const MAX_FAILED_STEPS: usize = 1000;
/// How many processes on the GPUs of a host are kept.
const MAX_GPU_PROCESSES: usize = 512;
/// The most bytes of what nvidia-smi prints that are kept.
const MAX_NVIDIA_SMI_BYTES: usize = 64 << 10;
/// How many ranks are followed.
const MAX_RANKS: usize = 1 << 16;

/// The ranks that failed first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Culprit {
    /// Global ranks; empty when a launcher failed before any rank.
    pub ranks: Vec<u32>,
    /// The indexes of their hosts.
    pub hosts: Vec<u32>,
    /// When it was known.
    pub at: UnixMillis,
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
}

/// Ranks counted by how they stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RankCounts {
    pub ok: usize,
    /// Ended otherwise, by themselves.
    pub failed: usize,
    /// Ended because we ended them.
    pub stopped: usize,
    /// Started, no end known.
    pub running: usize,
    pub waiting: usize,
}

/// What is known of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunState {
    /// The plan in force.
    pub info: RunInfo,
    /// In the plan's order.
    pub hosts: Vec<HostState>,
    pub ranks: BTreeMap<u32, RankState>,
    /// The steps of the plan in force.
    pub step_tracker: StepTracker,
    /// The steps that failed in earlier plans of this attempt.
    earlier_failed_steps: Vec<StepState>,
    /// The phases as they began, with their time.
    pub phases: Vec<(Phase, UnixMillis)>,
    /// What should be the case, and why.
    pub goal: (RunGoal, String),
    /// When it was first no longer that the gang runs.
    pub stopping_since: Option<UnixMillis>,
    /// What the hosts said of the run's end, and when that was (0: unknown).
    reported_end: Option<(RunOutcome, UnixMillis)>,
    /// When its first rank started.
    first_rank_started: Option<UnixMillis>,
    /// When the run was ready.
    pub ready_at: Option<UnixMillis>,
    pub culprit: Option<Culprit>,
    /// How the run seems to hang, and when that was told; none once it goes on.
    pub hang: Option<(Hang, UnixMillis)>,
    /// When the ranks wrote, and how long they were silent.
    pub output_activity: hang_baseline::OutputActivity,
    /// The worst that each check of preflight found, by its name.
    pub check_levels: BTreeMap<String, Level>,
    pub notices: VecDeque<Notice>,
    /// What is left on hosts.
    pub leftovers: Vec<Leftover>,
    /// What the lines of all ranks told of the training.
    pub metrics: TrainingMetrics,
    scanner: Arc<MetricScanner>,
    /// How it ended, and why.
    pub outcome: Option<(Outcome, String)>,
    /// The time of the first event.
    pub first_event_at: Option<UnixMillis>,
    /// The time of the last event.
    pub last_event_at: UnixMillis,
    /// The number of the last event.
    pub last_seq: u64,
    /// Events that told of something impossible and were not believed.
    pub rejected_events: u64,
}

impl Default for RunState {
    fn default() -> Self {
        RunState {
            info: RunInfo::default(),
            hosts: Vec::new(),
            ranks: BTreeMap::new(),
            step_tracker: StepTracker::default(),
            earlier_failed_steps: Vec::new(),
            phases: Vec::new(),
            goal: (RunGoal::Up, String::new()),
            stopping_since: None,
            reported_end: None,
            first_rank_started: None,
            ready_at: None,
            culprit: None,
            hang: None,
            output_activity: hang_baseline::OutputActivity::default(),
            check_levels: BTreeMap::new(),
            notices: VecDeque::new(),
            leftovers: Vec::new(),
            metrics: TrainingMetrics::new(),
            scanner: Arc::new(MetricScanner::new(&BTreeMap::new())),
            outcome: None,
            first_event_at: None,
            last_event_at: 0,
            last_seq: 0,
            rejected_events: 0,
        }
    }
}

impl RunState {
    /// Nothing is known yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes one event. The only way in which a state changes.
    pub fn apply(&mut self, event: &Event) {
        let at = event.at;
        self.first_event_at.get_or_insert(at);
        self.last_event_at = at;
        self.last_seq = event.seq;
        match &event.kind {
            EventKind::RunStarted(info) => self.start_plan(info),
            EventKind::PhaseStarted { phase } => {
                if self.phases.len() < 1000 {
                    self.phases.push((*phase, at));
                }
            }
            EventKind::StepStarted { .. }
            | EventKind::StepSatisfied { .. }
            | EventKind::StepDone { .. }
            | EventKind::StepRetrying { .. }
            | EventKind::StepFailed { .. } => self.apply_step_event(&event.kind, at),
            EventKind::HostConnecting { .. }
            | EventKind::HostConnected { .. }
            | EventKind::HostLost { .. }
            | EventKind::LauncherStarted { .. }
            | EventKind::LauncherExited { .. }
            | EventKind::RanksSignaled { .. }
            | EventKind::Gpus { .. }
            | EventKind::GpusUnavailable { .. }
            | EventKind::GpuProcesses { .. }
            | EventKind::NvidiaSmi { .. }
            | EventKind::HostMetrics { .. }
            | EventKind::DiskSpace { .. } => self.apply_host_event(&event.kind, at),
            EventKind::RankStarted { .. } | EventKind::RankExited { .. } => self.apply_rank_event(&event.kind, at),
            EventKind::Log { host, file, offset, bytes, len } => self.apply_log((*host, *file), *offset, bytes, *len, at),
            EventKind::LogTruncated { host, file, .. } => self.apply_log_truncated(*host, *file),
            EventKind::RunEndReported { end, ended_at: when } => self.reported_end = Some((*end, *when)),
            EventKind::Ready => {
                self.ready_at.get_or_insert(at);
            }
            EventKind::Culprit { ranks, hosts } => {
                self.culprit = Some(Culprit { ranks: ranks.clone(), hosts: hosts.clone(), at });
            }
            EventKind::Hang(hang) => self.hang = Some((hang_baseline::truncate_hang(hang), at)),
            EventKind::HangEnded => self.hang = None,
            EventKind::Notice { host, text, warn } => self.push_notice(Notice { at, host: *host, text: truncate_text(text), warn: *warn }),
            EventKind::CheckFinished { check, level, hosts, message: what, hint } => {
                self.record_check(at, check, *level, hosts, (what, hint))
            }
            EventKind::GoalChanged { goal, reason: why } => {
                self.goal = (*goal, why.clone());
                self.stopping_since = if *goal == RunGoal::Up { None } else { self.stopping_since.or(Some(at)) };
            }
            EventKind::Leftover { host, text } => {
                let leftover = Leftover { host: *host, text: truncate_text(text) };
                if self.leftovers.len() < MAX_LEFTOVERS && !self.leftovers.contains(&leftover) {
                    self.leftovers.push(leftover);
                }
            }
            // `diagnose` reads it.
            EventKind::Postmortem { .. } => {}
            EventKind::RunFinished { outcome, reason: why } => {
                self.outcome = Some((outcome.clone(), why.clone()));
                self.mark_lost_ranks_killed();
            }
        }
    }

    fn start_plan(&mut self, info: &RunInfo) {
        self.archive_plan_counts();
        let other_run = !self.info.run_id.is_empty() && self.info.run_id != info.run_id;
        if other_run || self.info.attempt != info.attempt {
            self.ranks.clear();
            self.metrics.clear();
            self.earlier_failed_steps.clear();
            self.culprit = None;
            self.hang = None;
            self.output_activity = hang_baseline::OutputActivity::default();
            self.ready_at = None;
            self.stopping_since = None;
            self.reported_end = None;
            self.first_rank_started = None;
            for host in &mut self.hosts {
                (host.launcher_started, host.launcher_exit, host.last_signal) = (None, None, None);
                host.launcher_recent_lines = log_lines::RecentLines::default();
            }
        }
        if !info.hosts.is_empty() {
            self.replace_hosts(&info.hosts);
        }
        for planned in info.ranks.iter().take(MAX_RANKS) {
            let rank = self.ranks.entry(planned.rank).or_insert_with(|| RankState { rank: planned.rank, ..RankState::default() });
            if rank.started_at.is_none() {
                rank.host = planned.host;
            }
            rank.local_rank = Some(planned.local_rank);
        }
        self.step_tracker = StepTracker::new(&info.steps);
        if self.info.metrics != info.metrics {
            self.scanner = Arc::new(MetricScanner::new(&info.metrics));
        }
        self.outcome = None;
        self.info = info.clone();
    }

    /// Adds the steps of the plan in force to what is counted for good: a new plan follows.
    fn archive_plan_counts(&mut self) {
        for host in 0..self.hosts.len() {
            let all = self.step_counts(host);
            self.hosts[host].earlier_step_counts = all;
        }
        let failed: Vec<StepState> =
            self.failed_steps_of_plan().take(MAX_FAILED_STEPS.saturating_sub(self.earlier_failed_steps.len())).cloned().collect();
        self.earlier_failed_steps.extend(failed);
        self.step_tracker = StepTracker::default();
    }

    /// Hosts keep what is known of them by their name.
    fn replace_hosts(&mut self, names: &[String]) {
        let mut old = std::mem::take(&mut self.hosts);
        let place = |name: &str| names.iter().position(|n| n == name).and_then(|at| u32::try_from(at).ok());
        let moved: Vec<Option<u32>> = old.iter().map(|host| place(&host.name)).collect();
        let places =
            self.ranks.values_mut().map(|rank| &mut rank.host).chain(self.earlier_failed_steps.iter_mut().map(|step| &mut step.info.host));
        for place in places {
            if let Some(Some(to)) = moved.get(*place as usize) {
                *place = *to;
            }
        }
        self.hosts = names
            .iter()
            .map(|name| match old.iter_mut().find(|host| host.name == *name) {
                Some(host) => std::mem::take(host),
                None => HostState { name: name.clone(), ..HostState::default() },
            })
            .collect();
    }

    /// Counts what a check found; what it warns of is a notice about each of its hosts.
    fn record_check(&mut self, at: UnixMillis, check: &str, level: Level, hosts: &[u32], (what, hint): (&str, &str)) {
        // A check ends in several ways on several hosts: it counts once, by the worst.
        if self.check_levels.len() < MAX_CHECKS || self.check_levels.contains_key(check) {
            let worst = self.check_levels.entry(truncate_text(check)).or_insert(level);
            *worst = level.max(*worst);
        }
        if level != Level::Warn {
            return;
        }
        let help = if hint.is_empty() { String::new() } else { format!("; help: {hint}") };
        for host in hosts {
            self.push_notice(Notice { at, host: Some(*host), text: truncate_text(&format!("{check}: {what}{help}")), warn: true });
        }
    }

    fn apply_step_event(&mut self, kind: &EventKind, at: UnixMillis) {
        let told = match kind {
            EventKind::StepStarted { step } => self.step_tracker.set_status(*step, StepStatus::Running, at).map(|_| ()),
            EventKind::StepSatisfied { step, note } => {
                self.step_tracker.set_status(*step, StepStatus::Satisfied, at).map(|s| s.note = truncate_text(note))
            }
            EventKind::StepDone { step, note } => {
                self.step_tracker.set_status(*step, StepStatus::Done, at).map(|s| s.note = truncate_text(note))
            }
            EventKind::StepFailed { step, error, hint } => self.step_tracker.set_status(*step, StepStatus::Failed, at).map(|s| {
                s.note = truncate_text(error);
                s.hint = truncate_text(hint);
            }),
            EventKind::StepRetrying { step, error } => self.step_tracker.record_retry(*step, &truncate_text(error)),
            _ => Ok(()),
        };
        self.rejected_events += u64::from(told.is_err());
    }

    fn apply_host_event(&mut self, kind: &EventKind, at: UnixMillis) {
        let (EventKind::HostConnecting { host }
        | EventKind::HostConnected { host, .. }
        | EventKind::HostLost { host, .. }
        | EventKind::LauncherStarted { host }
        | EventKind::LauncherExited { host, .. }
        | EventKind::RanksSignaled { host, .. }
        | EventKind::Gpus { host, .. }
        | EventKind::GpusUnavailable { host, .. }
        | EventKind::GpuProcesses { host, .. }
        | EventKind::NvidiaSmi { host, .. }
        | EventKind::HostMetrics { host, .. }
        | EventKind::DiskSpace { host, .. }) = kind
        else {
            return;
        };
        let Some(host) = self.hosts.get_mut(*host as usize) else {
            self.rejected_events += 1;
            return;
        };
        match kind {
            EventKind::HostConnecting { .. } => host.set_connection_status(ConnectionStatus::Connecting, "", at),
            EventKind::HostConnected { clock_offset, uncertainty, .. } => {
                self.output_activity.record_connected(at);
                host.set_connection_status(ConnectionStatus::Connected, "", at);
                host.clock_offset = Some((*clock_offset, *uncertainty));
            }
            EventKind::HostLost { error, will_retry: retrying, .. } => {
                host.set_connection_status(if *retrying { ConnectionStatus::Retrying } else { ConnectionStatus::Unreachable }, error, at);
            }
            EventKind::LauncherStarted { .. } => (host.launcher_started, host.launcher_exit) = (Some(at), None),
            EventKind::LauncherExited { exit, ended_at: when, .. } => host.launcher_exit = Some((*exit, *when)),
            EventKind::RanksSignaled { signal, .. } => host.last_signal = Some((signal.clone(), at)),
            EventKind::Gpus { gpus, .. } => host.record_gpu_samples(gpus, at),
            EventKind::GpusUnavailable { error, .. } => host.gpus_error = Some((truncate_text(error), at)),
            EventKind::GpuProcesses { processes, .. } => {
                host.gpu_processes = processes.iter().take(MAX_GPU_PROCESSES).cloned().collect();
                host.gpu_processes_at = at;
            }
            EventKind::NvidiaSmi { text, error, .. } => {
                (host.nvidia_smi_output, host.nvidia_smi_error, host.nvidia_smi_at) =
                    (truncate_text_to(text, MAX_NVIDIA_SMI_BYTES), truncate_text(error), at);
            }
            EventKind::HostMetrics { metrics: vitals, .. } => (host.host_metrics, host.host_metrics_at) = (vitals.clone(), at),
            EventKind::DiskSpace { free, total, .. } => host.disk = Some(DiskSpace { free: *free, total: *total, at }),
            _ => {}
        }
    }

    fn apply_rank_event(&mut self, kind: &EventKind, at: UnixMillis) {
        match kind {
            EventKind::RankStarted { host, rank, restart, started_at: when } => {
                let Some(state) = self.rank_for_event(*host, *rank, *restart, Some(*when)) else { return };
                let started = if *when > 0 { *when } else { at };
                state.started_at = Some(started);
                state.host = *host;
                self.first_rank_started = Some(self.first_rank_started.map_or(started, |first| first.min(started)));
            }
            EventKind::RankExited { host, rank, restart, exit, ended_at: when, uncertainty } => {
                let Some(state) = self.rank_for_event(*host, *rank, *restart, None) else { return };
                (state.exit, state.ended_at, state.ended_at_uncertainty) = (Some(*exit), *when, *uncertainty);
            }
            _ => {}
        }
    }

    /// The rank, begun anew if its launcher has restarted it or another host has it now; `None` for news of a life before. `began`: where it is
    /// the news that it started, when; 0: unknown.
    fn rank_for_event(&mut self, host: u32, rank: u32, restart: u32, began: Option<UnixMillis>) -> Option<&mut RankState> {
        if self.ranks.len() >= MAX_RANKS && !self.ranks.contains_key(&rank) || host as usize >= self.hosts.len() {
            self.rejected_events += 1;
            return None;
        }
        let state = self.ranks.entry(rank).or_insert_with(|| RankState { rank, host, restart, ..RankState::default() });
        // Two hosts count the lives of a rank apart: the clock tells which of them has it now, and only a start is news of that.
        let moved = match (began, state.started_at.filter(|_| state.host != host)) {
            (_, None) | (Some(0), Some(_)) => false,
            (Some(when), Some(before)) if when > before => true,
            _ => return None,
        };
        if !moved && restart < state.restart {
            return None;
        }
        if moved || restart > state.restart {
            *state = RankState { rank, host, restart, local_rank: state.local_rank, ..RankState::default() };
        }
        Some(state)
    }

    fn apply_log(&mut self, (host, file): (u32, LogFile), offset: u64, bytes: &[u8], len: u64, at: UnixMillis) {
        self.output_activity.record_output(at);
        let LogFile::Rank { rank, restart } = file else {
            if let Some(host) = self.hosts.get_mut(host as usize) {
                append_log_bytes(&mut host.launcher_recent_lines, offset, bytes, len, |_| {});
            }
            return;
        };
        let scanner = Arc::clone(&self.scanner);
        let (mut found, mut told) = (MetricValues::new(), MetricValues::new());
        let Some(state) = self.rank_for_event(host, rank, restart, None) else { return };
        let RankState { recent_lines: tail, progress, last_output_at: spoke, line_sampler: reading, .. } = state;
        *spoke = at;
        append_log_bytes(tail, offset, bytes, len, |line| {
            if !reading.should_scan(at) {
                return;
            }
            scanner.scan_line(line.as_bytes(), &mut found);
            told.append(&mut found);
            let new = training_metrics::parse_progress(line.as_bytes(), at)
                .or_else(|| training_metrics::parse_step_of_total(line.as_bytes(), at));
            *progress = new.map(|new| new.after(progress.as_ref())).or(*progress);
        });
        for (metric, _) in &told {
            training_metrics::sample_run_metric(&mut self.metrics, *metric, at, self.ranks.values().map(|rank| &rank.metrics));
        }
        if let Some(state) = self.ranks.get_mut(&rank) {
            training_metrics::record_values(&mut state.metrics, &told, at);
        }
    }

    fn apply_log_truncated(&mut self, host: u32, file: LogFile) {
        let tail = match file {
            LogFile::Launcher => self.hosts.get_mut(host as usize).map(|host| &mut host.launcher_recent_lines),
            LogFile::Rank { rank, restart } => self
                .ranks
                .get_mut(&rank)
                .filter(|state| state.host == host && state.restart == restart)
                .map(|state| &mut state.recent_lines),
        };
        if let Some(tail) = tail {
            tail.restart_file();
        }
    }

    /// A metric as the ranks stand now, the furthest step and the mean of the others, and when one of them spoke last.
    pub fn combined_metric(&self, metric: u8) -> Option<(f64, UnixMillis)> {
        training_metrics::combine_rank_metrics(metric, self.ranks.values().map(|rank| &rank.metrics))
    }

    /// The name of a metric.
    pub fn metric_name(&self, metric: u8) -> &str {
        self.scanner.metric_name(metric)
    }

    fn push_notice(&mut self, notice: Notice) {
        if self.notices.len() >= MAX_NOTICES {
            self.notices.pop_front();
        }
        self.notices.push_back(notice);
    }

    /// Host number `host`'s name, for display; empty if there is no such host.
    pub fn host_name(&self, host: u32) -> &str {
        self.hosts.get(host as usize).map_or("", |host| host.name.as_str())
    }

    /// The phase under way, or the last one.
    pub fn current_phase(&self) -> Option<Phase> {
        self.phases.last().map(|(phase, _)| *phase)
    }

    /// Milliseconds from the first to the last event.
    pub fn elapsed(&self) -> i64 {
        self.first_event_at.map_or(0, |began| (self.last_event_at - began).max(0))
    }

    /// Whether a rank ended because we ended it: after the goal changed, on a host whose ranks were signalled.
    pub fn was_stopped(&self, rank: &RankState) -> bool {
        let signalled = self.hosts.get(rank.host as usize).is_some_and(|host| host.last_signal.is_some());
        let blamed = self.culprit.as_ref().is_some_and(|culprit| culprit.ranks.contains(&rank.rank));
        if matches!(self.reported_end, Some((RunOutcome::Stopped, _))) {
            return rank.has_failed() && !blamed;
        }
        let late = self.stopping_since.is_some_and(|at| rank.ended_at == 0 || rank.ended_at + rank.ended_at_uncertainty >= at);
        rank.has_failed() && signalled && late && !blamed
    }

    /// The ranks that ended other than well and by themselves, the first to end before the others; unknown times last.
    pub fn failed_ranks(&self) -> Vec<&RankState> {
        let mut failed: Vec<&RankState> = self.ranks.values().filter(|rank| rank.has_failed() && !self.was_stopped(rank)).collect();
        failed.sort_by_key(|rank| (if rank.ended_at > 0 { rank.ended_at } else { UnixMillis::MAX }, rank.rank));
        failed
    }

    /// The steps that failed, over all plans of this attempt: a teardown does not hide what it was for.
    pub fn failed_steps(&self) -> impl Iterator<Item = &StepState> {
        self.earlier_failed_steps.iter().chain(self.failed_steps_of_plan())
    }

    fn failed_steps_of_plan(&self) -> impl Iterator<Item = &StepState> {
        self.step_tracker.steps().iter().filter(|step| step.status == StepStatus::Failed)
    }

    /// How the ranks stand.
    pub fn rank_counts(&self) -> RankCounts {
        let mut counts = RankCounts::default();
        for rank in self.ranks.values() {
            match (rank.exit, rank.started_at) {
                (Some(exit), _) if exit.is_success() => counts.ok += 1,
                (Some(_), _) if self.was_stopped(rank) => counts.stopped += 1,
                (Some(_), _) => counts.failed += 1,
                (None, Some(_)) => counts.running += 1,
                (None, None) => counts.waiting += 1,
            }
        }
        counts
    }

    /// The steps of one host, over all plans of this operation.
    pub fn step_counts(&self, host: usize) -> StepCounts {
        let mut tally = self.hosts.get(host).map(|host| host.earlier_step_counts).unwrap_or_default();
        for step in self.step_tracker.steps().iter().filter(|step| step.info.host as usize == host) {
            match step.status {
                StepStatus::Waiting | StepStatus::Running => {}
                StepStatus::Satisfied => tally.ok += 1,
                StepStatus::Done => {
                    tally.ok += 1;
                    tally.changed += u32::from(phase_changes_host(step.info.phase));
                }
                StepStatus::Failed => tally.failed += 1,
            }
        }
        tally
    }
}

impl HostState {
    fn set_connection_status(&mut self, status: ConnectionStatus, error: &str, at: UnixMillis) {
        self.connection_status = status;
        self.connection_since = at;
        self.connection_error = truncate_text(error);
    }
}

/// Takes bytes where they came whole; a journal keeps ranges, not bytes.
fn append_log_bytes(tail: &mut log_lines::RecentLines, offset: u64, bytes: &[u8], len: u64, each: impl FnMut(&str)) {
    if bytes.len() as u64 == len {
        tail.push_with(offset, bytes, each);
    } else {
        tail.skip_to(offset.saturating_add(len));
    }
}

/// Whether a step that is done in this phase changed something that stays: the others look, or hold a lock meanwhile.
pub fn phase_changes_host(phase: Phase) -> bool {
    match phase {
        Phase::Connect | Phase::Facts | Phase::Lock | Phase::Preflight | Phase::Environment | Phase::Fetch | Phase::Verify => false,
        Phase::Pull | Phase::Container | Phase::Master | Phase::Workers | Phase::Stop | Phase::Remove | Phase::Clean => true,
    }
}

#[cfg(test)]
mod tests;
