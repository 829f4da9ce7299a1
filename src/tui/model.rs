//! What is known: state of the run, time, capabilities, sanitizer and theme. Panes read it, the app changes it.
//!
//! Reads no clock; `now` comes from the feed.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::diagnose::DiagnosisFinding;
use crate::diagnose::advice_formatter::AdviceFormatter;
use crate::event::{Event, EventKind, Phase, UnixMillis};
use crate::model::step_status::StepStatus;
use crate::report::RunSnapshot;
use crate::state::{RankCounts, RankState, RunState};
use crate::text::sanitize::Sanitizer;
use crate::text::translation::Lang;

use super::feed::{DashboardCapabilities, DashboardRole, ReplayClock, StoredLogs};
use super::key_bindings::KeyBindings;
use super::keymap::{KeyContext, UiCommand};
use super::log_arrival_times::LogArrivalTimes;
use super::log_ring::{LogChunk, LogRing};
use super::slow_ranks::SlowRanks;
use super::theme::Theme;
use super::timeline::Timeline;
use super::view::formatting;
use super::view::host_status::{self, HostStatus};

/// Everything a pane may read.
#[derive(Default)]
pub struct Model {
    /// The run as of the last snapshot.
    pub state: Arc<RunState>,
    /// What went wrong, as of the last snapshot; the first cause first.
    pub findings: Arc<[DiagnosisFinding]>,
    /// Writes the commands that are suggested.
    pub advice: AdviceFormatter,
    /// Language of the screens.
    pub lang: Lang,
    /// Time of the feed.
    pub now: UnixMillis,
    pub capabilities: DashboardCapabilities,
    /// Position of the replay.
    pub replay_clock: Option<ReplayClock>,
    pub sanitizer: Sanitizer,
    pub theme: Theme,
    pub bindings: KeyBindings,
    /// Where keys apply, as of the last frame, nearest first.
    pub key_contexts: Vec<KeyContext>,
    /// Mutating commands are disabled.
    pub readonly: bool,
    pub stored_logs: Option<Box<dyn StoredLogs>>,
    /// The newest lines of all logs.
    pub log_ring: LogRing,
    /// The run and its attempt whose logs these are, if known.
    logged_run: Option<(String, u32)>,
    /// Log bytes that the feed dropped because the dashboard read too slowly; the ring lacks them.
    pub skipped_log_bytes: u64,
    /// Events that never came, because the dashboard was too slow.
    pub skipped_events: u64,
    /// When each part of a log arrived.
    pub log_times: LogArrivalTimes,
    pub timeline: Timeline,
    /// Offset of local time from UTC in seconds.
    pub utc_offset: i64,
    /// Status of every host as of the last frame.
    pub host_statuses: Vec<HostStatus>,
    /// [`Model::combined_metrics`] of this frame, once one of its screens has asked.
    combined_metrics: OnceCell<BTreeMap<u8, (f64, UnixMillis)>>,
    /// Ranks that hold up the others, as of the last frame.
    pub(crate) slow_ranks: SlowRanks,
    /// Page size of the current pane in rows, as of the last frame.
    pub page_rows: usize,
}

impl Model {
    pub fn new(role: DashboardRole, sanitizer: Sanitizer) -> Self {
        let capabilities = DashboardCapabilities::view_only(role);
        Model { capabilities, sanitizer, page_rows: 10, ..Model::default() }
    }

    /// The key of a command, as hints name it.
    pub fn key(&self, cmd: UiCommand) -> String {
        self.bindings.key_hint(cmd, &self.key_contexts)
    }

    /// The feed restarts: what was collected of the run is discarded. The snapshot that follows replaces its state.
    pub fn reset(&mut self) {
        self.forget_logs();
        self.logged_run = None;
        self.skipped_events = 0;
        self.timeline = Timeline::default();
        self.slow_ranks = SlowRanks::default();
        self.now = 0;
    }

    pub fn apply_snapshot(&mut self, snapshot: RunSnapshot) {
        (self.state, self.findings) = (snapshot.state, snapshot.findings);
        if self.state.info.attempt > 0 {
            self.logged_run.get_or_insert_with(|| (self.state.info.run_id.clone(), self.state.info.attempt));
        }
    }

    /// Takes the log bytes of an event. `true`: a known log starts again at its beginning; panes discard what they cached of it.
    pub fn record_log(&mut self, event: &Event) -> bool {
        if let EventKind::Log { host, file, offset, bytes, len } = &event.kind {
            self.log_times.record_growth((*host, *file), *offset, event.at);
            self.log_ring.push_chunk(LogChunk { log: (*host, *file), offset: *offset, bytes, len: *len, at: event.at });
        }
        if let EventKind::LogTruncated { host, file, .. } = event.kind {
            self.log_times.restart_log((host, file));
            self.log_ring.restart_log((host, file));
            return true;
        }
        // What has no run of its own, like a step of a teardown, has no other logs.
        if let EventKind::RunStarted(info) = &event.kind
            && !info.run_id.is_empty()
        {
            let before = self.logged_run.replace((info.run_id.clone(), info.attempt));
            let is_other = before.is_some_and(|(run_id, attempt)| info.is_other_run((&run_id, attempt)));
            if is_other {
                self.forget_logs();
            }
            return is_other;
        }
        false
    }

    fn forget_logs(&mut self) {
        self.log_times = LogArrivalTimes::default();
        self.log_ring = LogRing::default();
        self.skipped_log_bytes = 0;
    }

    /// Computes what a frame needs of all hosts and ranks: the status of every host, and which ranks are slow. Once before each frame.
    pub fn update_totals(&mut self) {
        self.slow_ranks.update(&self.state, self.now);
        self.combined_metrics.take();
        self.host_statuses = host_status::compute_host_statuses(&self.state, &self.sanitizer, &self.log_times);
        for host in &mut self.host_statuses {
            if let Cow::Owned(translated) = self.lang.message(&host.reason) {
                host.reason = Cow::Owned(translated);
            }
        }
    }

    /// A metric as the ranks stand now, and when one of them spoke last. Those of all ranks are read once a frame.
    pub(super) fn combined_metric(&self, metric: u8) -> Option<(f64, UnixMillis)> {
        self.combined_metrics.get_or_init(|| self.state.combined_metrics()).get(&metric).copied()
    }

    /// How many ranks stand how, as of the last [`Model::update_totals`]: there are fewer hosts than ranks.
    pub(super) fn rank_counts(&self) -> RankCounts {
        let mut counts = RankCounts::default();
        for HostStatus { ranks, .. } in &self.host_statuses {
            counts.running += ranks.running;
            counts.ok += ranks.ok;
            counts.stopped += ranks.stopped;
            counts.failed += ranks.failed.len();
            counts.waiting += ranks.total - ranks.running - ranks.ok - ranks.stopped - ranks.failed.len();
        }
        counts
    }

    /// How many of the running ranks are on hosts that do not answer: their state is unknown.
    pub(super) fn unknown_ranks(&self) -> usize {
        let hosts = self.host_statuses.iter().zip(&self.state.hosts);
        hosts.filter(|(_, host)| host.is_lost()).map(|(standing, _)| standing.ranks.running).sum()
    }

    /// `2 hosts`.
    pub(super) fn count(&self, n: usize, noun: &str) -> String {
        self.lang.count(n, noun)
    }

    /// `2, 16 ranks` in the user's language, sanitized.
    pub(super) fn counts_text(&self, english: &str) -> String {
        let text = match self.lang.message(english) {
            Cow::Borrowed(text) => text.split(", ").map(|part| self.lang.message(part)).collect::<Vec<_>>().join(self.lang.comma()),
            Cow::Owned(chinese) => chinese,
        };
        self.sanitize(&text)
    }

    /// Remote text, sanitized and on one line.
    pub fn sanitize(&self, text: &str) -> String {
        self.sanitizer.sanitize_line(text).replace('\t', "    ")
    }

    /// The newest line of a rank, sanitized; empty where it has written none.
    pub(super) fn last_line(&self, rank: &RankState) -> String {
        rank.recent_lines.last_lines(1).pop().map(|line| self.sanitize(&line)).unwrap_or_default()
    }

    /// Local time of day.
    pub fn format_time(&self, at: UnixMillis) -> String {
        formatting::time_of_day(at, self.utc_offset)
    }

    /// Whether a value is too old to be current: three sampling intervals, or those of a journal. The last values
    /// of a finished run are never stale.
    pub fn is_stale(&self, at: UnixMillis) -> bool {
        let limit = if self.capabilities.role == DashboardRole::Replay { 30_000 } else { 6_000 };
        at > 0 && self.now - at > limit && self.state.outcome.is_none()
    }

    /// Whether a value is older than the limit while the run is live.
    pub fn is_older_than(&self, at: UnixMillis, limit: i64) -> bool {
        self.now - at > limit && self.state.outcome.is_none()
    }

    /// Whether plan steps are waiting or running: the overview then shows the launch matrix.
    pub fn has_open_steps(&self) -> bool {
        let open = |status: StepStatus| matches!(status, StepStatus::Waiting | StepStatus::Running);
        self.state.outcome.is_none() && self.state.step_tracker.steps().iter().any(|step| open(step.status))
            || self.capabilities.start_summary.is_some() && self.state.outcome.is_none() && !self.state.step_tracker.steps().is_empty()
    }

    pub fn is_tearing_down(&self) -> bool {
        let back = |phase: Phase| matches!(phase, Phase::Stop | Phase::Remove | Phase::Fetch | Phase::Clean | Phase::Verify);
        self.state.step_tracker.steps().iter().any(|step| back(step.info.phase)) && self.has_open_steps()
    }
}
