//! What happened, in its order: the life of hosts and ranks, retries, warnings, alerts of GPUs and the person's own marks.
//!
//! Uses `event` and `state`. Bounded; the same of many hosts or ranks at nearly the same time is one item.

use std::collections::{BTreeMap, VecDeque};

use crate::event::{Event, EventKind, Exit, Goal, Level, LogFile, Millis, Outcome};
use crate::report::sanitize::Cleaner;
use crate::report::{finding, words};
use crate::state::RunState;

use super::theme::Status;
use super::view::sum;

/// How many items are kept.
const ITEMS: usize = 10_000;
/// The most bytes of an item's text.
const TEXT: usize = 500;
/// What happens within this time of others of its kind joins them, milliseconds.
const TOGETHER: i64 = 2_000;
/// How many of the last items are looked at for that.
const BACK: usize = 8;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// When it began.
    pub at: Millis,
    /// How bad.
    pub status: Status,
    /// What, as the host wrote it: unsafe to show.
    pub text: String,
    /// To which hosts.
    pub hosts: Vec<u32>,
    /// To which ranks.
    pub ranks: Vec<u32>,
    /// The log that tells more.
    pub log: Option<(u32, LogFile)>,
}

impl Item {
    /// How many things it stands for.
    pub fn weight(&self) -> usize {
        self.hosts.len().max(self.ranks.len()).max(1)
    }
}

/// All of it.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    items: VecDeque<Item>,
    /// How many were forgotten.
    pub dropped: u64,
    /// The last trouble of each host's GPUs.
    troubles: BTreeMap<u32, String>,
}

/// Who something is about.
enum Who {
    Run,
    Host(u32),
    Rank(u32, u32, u32),
}

impl Timeline {
    /// All items, the oldest first.
    pub fn items(&self) -> &VecDeque<Item> {
        &self.items
    }

    /// Takes an event that `state` knows already.
    pub fn take(&mut self, event: &Event, state: &RunState) {
        let Some((status, text, who)) = told(&event.kind, state) else {
            if let EventKind::Gpus { host, .. } = &event.kind {
                self.gpus(*host, event.at, state);
            }
            return;
        };
        self.add(event.at, status, &text, &who);
    }

    /// The person marked a line.
    pub fn mark(&mut self, at: Millis, text: &str, log: (u32, LogFile)) {
        let who = match log.1 {
            LogFile::Rank { rank, restart } => Who::Rank(log.0, rank, restart),
            LogFile::Node => Who::Host(log.0),
        };
        self.add(at, Status::Pending, &format!("mark: {text}"), &who);
    }

    fn gpus(&mut self, host: u32, at: Millis, state: &RunState) {
        let now = state.hosts.get(host as usize).and_then(sum::gpu_trouble).unwrap_or_default();
        let before = self.troubles.get(&host).map_or("", String::as_str);
        if before == now {
            return;
        }
        if now.is_empty() {
            self.add(at, Status::Ok, "its GPUs are well again", &Who::Host(host));
        } else {
            self.add(at, Status::Warn, &now, &Who::Host(host));
        }
        self.troubles.insert(host, now);
    }

    fn add(&mut self, at: Millis, status: Status, text: &str, who: &Who) {
        let end = (0..=TEXT.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let text = &text[..end];
        let (host, rank, log) = match who {
            Who::Run => (None, None, None),
            Who::Host(host) => (Some(*host), None, Some((*host, LogFile::Node))),
            Who::Rank(host, rank, restart) => (Some(*host), Some(*rank), Some((*host, LogFile::Rank { rank: *rank, restart: *restart }))),
        };
        let alike = |item: &&mut Item| {
            item.status == status
                && item.text == text
                && host.is_some()
                && item.ranks.is_empty() == rank.is_none()
                && at - item.at < TOGETHER
        };
        if let Some(item) = self.items.iter_mut().rev().take(BACK).find(alike) {
            if let Some(host) = host.filter(|host| !item.hosts.contains(host)) {
                item.hosts.push(host);
            }
            item.ranks.extend(rank);
            return;
        }
        if self.items.len() >= ITEMS {
            self.items.pop_front();
            self.dropped += 1;
        }
        self.items.push_back(Item {
            at,
            status,
            text: text.to_owned(),
            hosts: host.into_iter().collect(),
            ranks: rank.into_iter().collect(),
            log,
        });
    }
}

/// What an event tells a person who looks back, if anything.
fn told(kind: &EventKind, state: &RunState) -> Option<(Status, String, Who)> {
    let step = |id: u32| state.ledger.steps().iter().find(|step| step.info.id == id).map(|step| &step.info);
    let exited = |what: &str, exit: &Exit| {
        let status = if exit.ok() { Status::Done } else { Status::Bad };
        (status, format!("{what} ended: {}", words::exit(*exit)))
    };
    Some(match kind {
        EventKind::RunStarted(info) if info.steps.is_empty() => return None,
        EventKind::RunStarted(info) => {
            let again = if info.attempt > 1 { format!(", attempt {}", info.attempt) } else { String::new() };
            (Status::Pending, format!("a plan of {}{again}", words::count(info.steps.len(), "step")), Who::Run)
        }
        EventKind::HostConnected { host, .. } => (Status::Ok, "connected".to_owned(), Who::Host(*host)),
        EventKind::HostLost { host, error, retrying } => {
            let what = if *retrying { "connection lost" } else { "given up" };
            (Status::Lost, format!("{what}: {error}"), Who::Host(*host))
        }
        EventKind::PhaseStarted { phase } => (Status::Busy, format!("phase {} begins", phase.name()), Who::Run),
        EventKind::StepRetrying { step: id, error } => {
            let step = step(*id)?;
            (Status::Warn, format!("{} is tried again: {error}", step.title), Who::Host(step.host))
        }
        EventKind::StepFailed { step: id, error, .. } => {
            let step = step(*id)?;
            (Status::Bad, format!("{} failed: {error}", step.title), Who::Host(step.host))
        }
        EventKind::Checked { level, .. } if *level <= Level::Pass => return None,
        EventKind::Checked { check, level, hosts, what, .. } => {
            let status = if *level == Level::Fail { Status::Bad } else { Status::Warn };
            let who = if let [host] = hosts.as_slice() { Who::Host(*host) } else { Who::Run };
            (status, format!("{check}: {what}"), who)
        }
        EventKind::NodeStarted { host } => (Status::Ok, "launcher started".to_owned(), Who::Host(*host)),
        EventKind::NodeExited { host, exit, .. } => {
            let (status, text) = exited("launcher", exit);
            (status, text, Who::Host(*host))
        }
        EventKind::RankStarted { host, rank, restart, .. } => {
            let again = if *restart > 0 { format!(" again, restart {restart}") } else { String::new() };
            (Status::Ok, format!("rank started{again}"), Who::Rank(*host, *rank, *restart))
        }
        EventKind::RankExited { host, rank, restart, exit, .. } => {
            let stopped = state.ranks.get(rank).is_some_and(|rank| state.was_stopped(rank));
            let (status, text) = exited("rank", exit);
            (if stopped { Status::Warn } else { status }, text, Who::Rank(*host, *rank, *restart))
        }
        EventKind::Ready => (Status::Ok, "ready".to_owned(), Who::Run),
        EventKind::Culprit { ranks, .. } if ranks.is_empty() => (Status::Bad, "a launcher failed first".to_owned(), Who::Run),
        EventKind::Culprit { ranks, hosts } => {
            let who = match (ranks.first(), hosts.first()) {
                (Some(rank), Some(host)) => Who::Rank(*host, *rank, state.ranks.get(rank).map_or(0, |rank| rank.restart)),
                _ => Who::Run,
            };
            (Status::Bad, "failed first".to_owned(), who)
        }
        EventKind::Hang(hang) => {
            let text = finding::hang(hang, state.now, state, &Cleaner::default());
            (Status::Warn, format!("hang: {text}"), Who::Run)
        }
        EventKind::HangOver => (Status::Ok, "it goes on: what was waited for has come".to_owned(), Who::Run),
        EventKind::Signalled { host, signal } => (Status::Warn, format!("{signal} was sent"), Who::Host(*host)),
        EventKind::GpusUnread { host, error } => (Status::Warn, format!("nvidia-smi gives no values: {error}"), Who::Host(*host)),
        EventKind::Aftermath { host, lines } => {
            let said = lines.iter().find(|line| !line.starts_with("docker: status=running"))?;
            (Status::Warn, said.clone(), Who::Host(*host))
        }
        EventKind::Notice { host, text, warn } => {
            let status = if *warn { Status::Warn } else { Status::Pending };
            (status, text.clone(), host.map_or(Who::Run, Who::Host))
        }
        EventKind::GoalChanged { goal, why } => {
            let (status, what) = match goal {
                Goal::Up => (Status::Ok, "the run is to go on"),
                Goal::Stop => (Status::Warn, "stopping"),
                Goal::Kill => (Status::Bad, "killing"),
                Goal::Down => (Status::Warn, "tearing down"),
            };
            (status, format!("{what}: {why}"), Who::Run)
        }
        EventKind::Leftover { host, text } => (Status::Bad, format!("left: {text}"), Who::Host(*host)),
        EventKind::RunFinished { outcome, why } => {
            let status = match outcome {
                Outcome::Ok => Status::Done,
                Outcome::Detached | Outcome::Signal(_) | Outcome::Stopped => Status::Warn,
                _ => Status::Bad,
            };
            let why = if why.is_empty() { String::new() } else { format!(": {why}") };
            let word = words::ending(state).unwrap_or_else(|| words::outcome(outcome)).0;
            (status, format!("{word}{why}"), Who::Run)
        }
        EventKind::HostConnecting { .. }
        | EventKind::RunFound { .. }
        | EventKind::StepStarted { .. }
        | EventKind::StepSatisfied { .. }
        | EventKind::StepDone { .. }
        | EventKind::Log { .. }
        | EventKind::LogShrunk { .. }
        | EventKind::Gpus { .. }
        | EventKind::GpuProcesses { .. }
        | EventKind::NvidiaSmi { .. }
        | EventKind::Vitals { .. }
        | EventKind::Disk { .. } => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tell(timeline: &mut Timeline, at: Millis, kind: EventKind) {
        timeline.take(&Event { seq: 1, at, kind }, &RunState::new());
    }

    #[test]
    fn the_same_of_many_is_one_and_later_is_another() {
        let mut timeline = Timeline::default();
        for host in 0..16 {
            tell(&mut timeline, 1000 + i64::from(host), EventKind::HostConnected { host, clock_offset: 0, uncertainty: 0 });
        }
        tell(&mut timeline, 9000, EventKind::HostConnected { host: 3, clock_offset: 0, uncertainty: 0 });
        tell(&mut timeline, 9001, EventKind::Notice { host: None, text: "x".to_owned(), warn: true });
        tell(&mut timeline, 9002, EventKind::Notice { host: None, text: "x".to_owned(), warn: true });
        let all: Vec<(usize, i64)> = timeline.items().iter().map(|item| (item.hosts.len(), item.at)).collect();
        assert_eq!(all, [(16, 1000), (1, 9000), (0, 9001), (0, 9002)]);
    }

    #[test]
    fn it_is_bounded_and_texts_are() {
        let mut timeline = Timeline::default();
        for n in 0..(ITEMS as i64 + 500) {
            tell(&mut timeline, n, EventKind::Notice { host: None, text: format!("{n}{}", "é".repeat(1000)), warn: false });
        }
        assert_eq!((timeline.items().len(), timeline.dropped), (ITEMS, 500));
        assert!(timeline.items().iter().all(|item| item.text.len() <= TEXT));
    }
}
