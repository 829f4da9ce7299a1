//! What is known: the fold of the feed, the time, what can be asked for, and what text and colours need. Panes read it, the app changes it.
//!
//! Uses `event`, `state`, `diagnose`, and the stores of log text. Reads no clock; `now` comes from the feed.

use crate::diagnose::{Evidence, Lang};
use crate::event::{Event, EventKind, Phase, UnixMillis};
use crate::state::{RunState, StepStatus};
use crate::text::sanitize::Sanitizer;

use super::feed::{DashboardCapabilities, DashboardRole, ReplayClock, StoredLogs};
use super::log_arrival_times::LogArrivalTimes;
use super::log_ring::LogRing;
use super::theme::Theme;
use super::timeline::Timeline;
use super::view::formatting;
use super::view::host_status::{self, HostStatus};

/// All that a pane may look at.
pub struct Model {
    /// What is known of the run.
    pub state: RunState,
    /// What explains its failures.
    pub evidence: Evidence,
    /// The language of what is said of failures.
    pub lang: Lang,
    /// The time of the feed.
    pub now: UnixMillis,
    /// What can be asked for.
    pub capabilities: DashboardCapabilities,
    /// Where a journal that is played stands.
    pub replay_clock: Option<ReplayClock>,
    /// What makes remote text safe.
    pub sanitizer: Sanitizer,
    pub theme: Theme,
    /// Nothing may be changed from here.
    pub readonly: bool,
    /// Where log text is.
    pub stored_logs: Option<Box<dyn StoredLogs>>,
    /// The newest lines of all logs.
    pub log_ring: LogRing,
    /// Log bytes that the feed dropped because the dashboard read too slowly; the ring lacks them.
    pub skipped_log_bytes: u64,
    /// When which part of a log came.
    pub log_times: LogArrivalTimes,
    pub timeline: Timeline,
    /// Seconds that the person's clock is ahead of UTC.
    pub utc_offset: i64,
    /// How every host stood when the last frame was begun.
    pub host_statuses: Vec<HostStatus>,
    /// A page of the pane that is shown, in rows; as it was drawn last.
    pub page_rows: usize,
}

impl Model {
    /// Nothing is known yet.
    pub fn new(role: DashboardRole, sanitizer: Sanitizer, theme: Theme) -> Self {
        Model {
            state: RunState::new(),
            evidence: Evidence::with_built_in_rules(),
            lang: Lang::default(),
            now: 0,
            capabilities: DashboardCapabilities::view_only(role),
            replay_clock: None,
            sanitizer,
            theme,
            readonly: false,
            stored_logs: None,
            log_ring: LogRing::default(),
            skipped_log_bytes: 0,
            log_times: LogArrivalTimes::default(),
            timeline: Timeline::default(),
            utc_offset: 0,
            host_statuses: Vec::new(),
            page_rows: 10,
        }
    }

    /// The feed begins again: what was told of the run is void.
    pub fn reset(&mut self) {
        self.state = RunState::new();
        self.evidence.clear();
        self.log_times.clear();
        self.log_ring = LogRing::default();
        self.skipped_log_bytes = 0;
        self.timeline = Timeline::default();
        self.now = 0;
    }

    /// Takes an event of a time that `now` knows already.
    pub fn record(&mut self, event: &Event) {
        self.state.apply(event);
        self.evidence.apply(event);
        self.timeline.record(event, &self.state);
        if let EventKind::Log { host, file, offset, bytes, len } = &event.kind {
            self.log_times.record_growth((*host, *file), *offset, event.at);
            self.log_ring.push_chunk((*host, *file), *offset, bytes, *len, event.at);
        }
        if let EventKind::LogTruncated { host, file, .. } = event.kind {
            self.log_times.restart_log((host, file));
            self.log_ring.restart_log((host, file));
        }
    }

    /// Works out how every host stands: once a frame, before it is drawn.
    pub fn update_host_statuses(&mut self) {
        self.host_statuses = host_status::compute_host_statuses(&self.state, &self.sanitizer, &self.log_times);
    }

    /// Remote text, safe and on one line.
    pub fn sanitize(&self, text: &str) -> String {
        self.sanitizer.sanitize_line(text).replace('\t', "    ")
    }

    /// The time of day on the person's clock.
    pub fn format_time(&self, at: UnixMillis) -> String {
        formatting::time_of_day(at, self.utc_offset)
    }

    /// Whether a value of then is too old to be believed now: three rounds of the sampler, or of what a journal keeps of it. What was last
    /// seen of a run that is over stays.
    pub fn is_stale(&self, at: UnixMillis) -> bool {
        let limit = if self.capabilities.role == DashboardRole::Replay { 30_000 } else { 6_000 };
        at > 0 && self.now - at > limit && self.state.outcome.is_none()
    }

    /// Whether a value of then is older than that, while the run goes on.
    pub fn is_older_than(&self, at: UnixMillis, limit: i64) -> bool {
        self.now - at > limit && self.state.outcome.is_none()
    }

    /// Whether steps of a plan wait or run: then their matrix is the overview.
    pub fn has_open_steps(&self) -> bool {
        let open = |status: StepStatus| matches!(status, StepStatus::Waiting | StepStatus::Running);
        self.state.outcome.is_none() && self.state.step_tracker.steps().iter().any(|step| open(step.status))
            || self.capabilities.start_summary.is_some() && !self.state.step_tracker.steps().is_empty()
    }

    /// Whether a teardown is under way.
    pub fn is_tearing_down(&self) -> bool {
        let back = |phase: Phase| matches!(phase, Phase::Stop | Phase::Remove | Phase::Fetch | Phase::Clean | Phase::Verify);
        self.state.step_tracker.steps().iter().any(|step| back(step.info.phase)) && self.has_open_steps()
    }
}
