//! The timeline: hosts and ranks starting and ending, retries, warnings, GPU alerts and the user's marks.
//!
//! Bounded; equal events of many hosts or ranks at nearly the same time are merged.

use std::collections::{BTreeMap, VecDeque};

use crate::event::{Event, EventKind, Exit, Level, LogFile, Outcome, RunGoal, UnixMillis};
use crate::report::{finding, style};
use crate::state::RunState;
use crate::text::plural::count_noun;
use crate::text::sanitize::Sanitizer;
use crate::text::width::first_bytes;

use super::theme::DisplayStatus;
use super::timeline_item::TimelineItem;
use super::view::host_status;

/// Maximum number of items.
const MAX_ITEMS: usize = 10_000;
/// Maximum bytes of an item's text.
const MAX_TEXT_BYTES: usize = 500;
/// Events of one kind within this time are merged, in milliseconds.
const MERGE_WINDOW_MS: i64 = 2_000;
/// Number of recent items considered for merging.
const MERGE_LOOKBACK: usize = 8;

#[derive(Debug, Clone, Default)]
pub struct Timeline {
    items: VecDeque<TimelineItem>,
    /// Number of dropped items.
    pub dropped_items: u64,
}

/// What one event says to the timeline.
#[derive(Debug, Clone)]
pub struct TimelineEntry {
    at: UnixMillis,
    status: DisplayStatus,
    text: String,
    subject: EventSubject,
}

/// Subject of an event: its host and log; none is the run.
type EventSubject = Option<(u32, LogFile)>;

/// An event of a host leads to the log of its launcher.
fn host_subject(host: u32) -> EventSubject {
    Some((host, LogFile::Launcher))
}

impl Timeline {
    /// All items, oldest first.
    pub fn items(&self) -> &VecDeque<TimelineItem> {
        &self.items
    }

    /// Adds what an event says.
    pub fn record(&mut self, entry: &TimelineEntry) {
        self.push_item(entry.at, entry.status, &entry.text, entry.subject);
    }

    /// Adds a mark of the user.
    pub fn add_mark(&mut self, at: UnixMillis, text: &str, log: (u32, LogFile)) {
        self.push_item(at, DisplayStatus::Pending, &format!("mark: {text}"), Some(log));
    }

    fn push_item(&mut self, at: UnixMillis, status: DisplayStatus, text: &str, log: EventSubject) {
        let text = first_bytes(text, MAX_TEXT_BYTES);
        let (host, rank) = (log.map(|(host, _)| host), log.and_then(|(_, file)| file.rank()));
        let alike = |item: &&mut TimelineItem| {
            item.status == status
                && item.text == text
                && host.is_some()
                && item.ranks.is_empty() == rank.is_none()
                && at - item.at < MERGE_WINDOW_MS
        };
        if let Some(item) = self.items.iter_mut().rev().take(MERGE_LOOKBACK).find(alike) {
            if let Some(host) = host.filter(|host| !item.hosts.contains(host)) {
                item.hosts.push(host);
            }
            item.ranks.extend(rank.filter(|rank| !item.ranks.contains(rank)));
            item.forget_owner();
            return;
        }
        if self.items.len() >= MAX_ITEMS {
            self.items.pop_front();
            self.dropped_items += 1;
        }
        let (hosts, ranks) = (host.into_iter().collect(), rank.into_iter().collect());
        self.items.push_back(TimelineItem { at, status, text: text.to_owned(), hosts, ranks, log, ..TimelineItem::default() });
    }
}

/// Makes entries of events, where the run is folded: an entry says what was known at its event.
#[derive(Debug, Default)]
pub(crate) struct EventDescriber {
    /// The warnings about the GPUs and the disk of each host as of its last values.
    host_warnings: BTreeMap<u32, Vec<String>>,
}

impl EventDescriber {
    /// What to show of an event that `state` has already applied, if it is worth showing.
    pub(crate) fn describe(&mut self, event: &Event, state: &RunState) -> Option<TimelineEntry> {
        let (status, text, subject) = match &event.kind {
            EventKind::Gpus { host, .. } => self.describe_gpu_change(*host, state)?,
            kind => describe_event(kind, state)?,
        };
        Some(TimelineEntry { at: event.at, status, text, subject })
    }

    fn describe_gpu_change(&mut self, host: u32, state: &RunState) -> Option<EventDescription> {
        let now: Vec<String> =
            state.hosts.get(host as usize).map(|host| host_status::hardware_warnings(host).collect()).unwrap_or_default();
        let before = self.host_warnings.insert(host, now.clone()).unwrap_or_default();
        let new: Vec<String> = now.iter().filter(|warning| !before.contains(warning)).cloned().collect();
        let (status, text) = match (new.is_empty(), now.is_empty()) {
            (false, _) => (DisplayStatus::Warn, new.join("; ")),
            (true, true) if !before.is_empty() => (DisplayStatus::Ok, "its GPUs are healthy again".to_owned()),
            (true, _) => return None,
        };
        Some((status, text, host_subject(host)))
    }
}

type EventDescription = (DisplayStatus, String, EventSubject);

/// Describes an event, if it is worth showing.
fn describe_event(kind: &EventKind, state: &RunState) -> Option<EventDescription> {
    match kind {
        EventKind::RunStarted(_)
        | EventKind::PhaseStarted { .. }
        | EventKind::StepRetrying { .. }
        | EventKind::StepFailed { .. }
        | EventKind::CheckFinished { .. } => describe_step_event(kind, state),
        EventKind::HostConnected { .. }
        | EventKind::HostLost { .. }
        | EventKind::RanksSignaled { .. }
        | EventKind::GpusUnavailable { .. }
        | EventKind::Postmortem { .. }
        | EventKind::Leftover { .. } => describe_host_event(kind),
        EventKind::LauncherStarted { .. }
        | EventKind::LauncherExited { .. }
        | EventKind::RankStarted { .. }
        | EventKind::RankExited { .. }
        | EventKind::Culprit { .. } => describe_rank_event(kind, state),
        EventKind::Ready
        | EventKind::Hang(_)
        | EventKind::HangEnded
        | EventKind::Notice { .. }
        | EventKind::GoalChanged { .. }
        | EventKind::RunFinished { .. } => describe_run_event(kind, state),
        EventKind::HostConnecting { .. }
        | EventKind::RunEndReported { .. }
        | EventKind::StepStarted { .. }
        | EventKind::StepSatisfied { .. }
        | EventKind::StepDone { .. }
        | EventKind::StepSkipped { .. }
        | EventKind::PullProgress { .. }
        | EventKind::Log { .. }
        | EventKind::LogCurrent { .. }
        | EventKind::LogTruncated { .. }
        | EventKind::Gpus { .. }
        | EventKind::GpuProcesses { .. }
        | EventKind::NvidiaSmi { .. }
        | EventKind::HostMetrics { .. }
        | EventKind::StepProgress { .. }
        | EventKind::DiskSpace { .. } => None,
    }
}

/// Steps and checks of the plan.
fn describe_step_event(kind: &EventKind, state: &RunState) -> Option<EventDescription> {
    let step = |id: u32| state.step_tracker.steps().iter().find(|step| step.info.id == id).map(|step| &step.info);
    Some(match kind {
        EventKind::RunStarted(info) if info.steps.is_empty() => return None,
        EventKind::RunStarted(info) => {
            let again = if info.attempt > 1 { format!(", attempt {}", info.attempt) } else { String::new() };
            (DisplayStatus::Pending, format!("plan: {}{again}", count_noun(info.steps.len(), "step")), None)
        }
        EventKind::PhaseStarted { phase } => (DisplayStatus::Busy, format!("phase {} started", phase.label()), None),
        EventKind::StepRetrying { step: id, error } => {
            let step = step(*id)?;
            (DisplayStatus::Warn, format!("retrying {}: {error}", step.title), host_subject(step.host))
        }
        EventKind::StepFailed { step: id, error, .. } => {
            let step = step(*id)?;
            (DisplayStatus::Error, format!("{} failed: {error}", step.title), host_subject(step.host))
        }
        EventKind::CheckFinished { level, .. } if *level <= Level::Pass => return None,
        EventKind::CheckFinished { check, level, hosts, message: what, .. } => {
            let status = if *level == Level::Fail { DisplayStatus::Error } else { DisplayStatus::Warn };
            let owner = if let [host] = hosts.as_slice() { host_subject(*host) } else { None };
            (status, format!("{check}: {what}"), owner)
        }
        _ => return None,
    })
}

fn describe_host_event(kind: &EventKind) -> Option<EventDescription> {
    let (host, status, text) = match kind {
        EventKind::HostConnected { host, .. } => (host, DisplayStatus::Ok, "connected".to_owned()),
        EventKind::HostLost { host, error, will_retry: true, .. } => (host, DisplayStatus::Lost, format!("connection lost: {error}")),
        EventKind::HostLost { host, error, .. } => (host, DisplayStatus::Lost, format!("connection given up: {error}")),
        EventKind::RanksSignaled { host, signal } => (host, DisplayStatus::Warn, format!("{signal} sent")),
        EventKind::GpusUnavailable { host, error } => (host, DisplayStatus::Warn, format!("no data from nvidia-smi: {error}")),
        EventKind::Postmortem { host, lines } => {
            let line = lines.iter().find(|line| !line.starts_with("docker: status=running"))?;
            (host, DisplayStatus::Warn, line.clone())
        }
        EventKind::Leftover { host, text, unchecked: true } => (host, DisplayStatus::Lost, text.clone()),
        EventKind::Leftover { host, text, unchecked: false } => (host, DisplayStatus::Error, format!("leftover: {text}")),
        _ => return None,
    };
    Some((status, text, host_subject(*host)))
}

/// Launchers and ranks.
fn describe_rank_event(kind: &EventKind, state: &RunState) -> Option<EventDescription> {
    let exited = |what: &str, exit: &Exit| {
        let status = if exit.is_success() { DisplayStatus::Done } else { DisplayStatus::Error };
        (status, format!("{what} ended: {exit}"))
    };
    Some(match kind {
        EventKind::LauncherStarted { host } => (DisplayStatus::Ok, "launcher started".to_owned(), host_subject(*host)),
        EventKind::LauncherExited { host, exit, .. } => {
            let (status, text) = exited("launcher", exit);
            (status, text, host_subject(*host))
        }
        EventKind::RankStarted { host, rank, restart, .. } => {
            let again = if *restart > 0 { format!(" (restart {restart})") } else { String::new() };
            (DisplayStatus::Ok, format!("rank started{again}"), Some((*host, LogFile::Rank { rank: *rank, restart: *restart })))
        }
        EventKind::RankExited { host, rank, restart, exit, .. } => {
            let stopped = state.ranks.get(rank).is_some_and(|rank| rank.was_ended());
            let (status, text) = exited("rank", exit);
            (if stopped { DisplayStatus::Warn } else { status }, text, Some((*host, LogFile::Rank { rank: *rank, restart: *restart })))
        }
        EventKind::Culprit { ranks, .. } if ranks.is_empty() => (DisplayStatus::Error, "a launcher failed first".to_owned(), None),
        EventKind::Culprit { ranks, hosts } => {
            let owner = match (ranks.first(), hosts.first()) {
                (Some(rank), Some(host)) => {
                    let restart = state.ranks.get(rank).map_or(0, |rank| rank.restart);
                    Some((*host, LogFile::Rank { rank: *rank, restart }))
                }
                _ => None,
            };
            (DisplayStatus::Error, "failed first".to_owned(), owner)
        }
        _ => return None,
    })
}

fn describe_run_event(kind: &EventKind, state: &RunState) -> Option<EventDescription> {
    Some(match kind {
        EventKind::Ready => (DisplayStatus::Ok, "ready".to_owned(), None),
        EventKind::Hang(hang) => {
            let text = finding::describe_hang(hang, state.last_event_at, state, &Sanitizer::default());
            (DisplayStatus::Warn, format!("hang: {text}"), None)
        }
        EventKind::HangEnded => (DisplayStatus::Ok, "the run is making progress again".to_owned(), None),
        EventKind::Notice { host, text, warn } => {
            let status = if *warn { DisplayStatus::Warn } else { DisplayStatus::Pending };
            (status, text.clone(), host.and_then(host_subject))
        }
        EventKind::GoalChanged { goal, reason: why } => {
            let (status, what) = match goal {
                RunGoal::Up => (DisplayStatus::Ok, "running"),
                RunGoal::Stop => (DisplayStatus::Warn, "stopping"),
                RunGoal::Kill => (DisplayStatus::Error, "killing"),
                RunGoal::Down => (DisplayStatus::Warn, "tearing down"),
            };
            (status, format!("{what}: {why}"), None)
        }
        EventKind::RunFinished { outcome, reason: why } => {
            let status = match outcome {
                Outcome::Ok => DisplayStatus::Done,
                Outcome::Detached | Outcome::Signal(_) | Outcome::Stopped => DisplayStatus::Warn,
                _ => DisplayStatus::Error,
            };
            let why = if why.is_empty() { String::new() } else { format!(": {why}") };
            let word = style::operation_outcome_label(state).unwrap_or_else(|| style::outcome_label(outcome)).0;
            (status, format!("{word}{why}"), None)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record_event(timeline: &mut Timeline, at: UnixMillis, kind: EventKind) {
        let entry = EventDescriber::default().describe(&Event { seq: 1, at, kind }, &RunState::new());
        timeline.record(&entry.expect("worth showing"));
    }

    #[test]
    fn equal_events_merge_within_the_window() {
        let mut timeline = Timeline::default();
        for host in 0..16 {
            record_event(&mut timeline, 1000 + i64::from(host), EventKind::HostConnected { host, clock_offset: 0, uncertainty: 0 });
            // Each draw asks whose event it is.
            let owner = timeline.items()[0].owner(true, |item| item.hosts.len().to_string());
            assert_eq!(owner, (host + 1).to_string(), "the text of before is forgotten");
        }
        record_event(&mut timeline, 9000, EventKind::HostConnected { host: 3, clock_offset: 0, uncertainty: 0 });
        record_event(&mut timeline, 9001, EventKind::Notice { host: None, text: "x".to_owned(), warn: true });
        record_event(&mut timeline, 9002, EventKind::Notice { host: None, text: "x".to_owned(), warn: true });
        let all: Vec<(usize, i64)> = timeline.items().iter().map(|item| (item.hosts.len(), item.at)).collect();
        assert_eq!(all, [(16, 1000), (1, 9000), (0, 9001), (0, 9002)]);
    }

    /// A rank that ends twice with one text is one rank.
    #[test]
    fn ranks_count_once() {
        let mut timeline = Timeline::default();
        for restart in [0, 1] {
            let exit = Exit::Code(1);
            let kind = EventKind::RankExited { host: 0, rank: 5, restart, exit, ended_at: 0, uncertainty: 0, stopped: None };
            record_event(&mut timeline, 1000, kind);
        }
        assert_eq!(timeline.items()[0].ranks, [5]);
    }

    #[test]
    fn marks_keep_their_log() {
        let mut timeline = Timeline::default();
        timeline.add_mark(1, "here", (2, LogFile::Task { number: 1 }));
        assert_eq!((timeline.items()[0].log, &timeline.items()[0].hosts[..]), (Some((2, LogFile::Task { number: 1 })), &[2][..]));
    }

    #[test]
    fn items_and_texts_are_bounded() {
        let mut timeline = Timeline::default();
        for n in 0..(MAX_ITEMS as i64 + 500) {
            record_event(&mut timeline, n, EventKind::Notice { host: None, text: format!("{n}{}", "é".repeat(1000)), warn: false });
        }
        assert_eq!((timeline.items().len(), timeline.dropped_items), (MAX_ITEMS, 500));
        assert!(timeline.items().iter().all(|item| item.text.len() <= MAX_TEXT_BYTES));
    }
}
