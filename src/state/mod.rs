//! What is known of a run: the fold of its events. One pen writes it, [`RunState::apply`].
//!
//! Uses `event`. Reads no clock, file or terminal; time comes in the events. Every event is accepted, whatever it names, and memory is
//! bounded whatever comes.

mod ending;
pub mod hang;
pub mod host;
pub mod ledger;
pub mod lines;
pub mod metrics;
mod text;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::event::{Event, EventKind, Goal, Hang, Level, LogFile, Millis, Outcome, Phase, RunEnd, RunInfo};

pub use host::{Disk, HostState, Liveness, RankState, TRACE, Tally, Trace};
pub use ledger::{Ledger, Status, Step};
use metrics::{Found, Metrics, Scanner};
use text::{bounded, cut};

/// How many notices are kept.
const NOTICES: usize = 200;
/// How many checks are counted.
const CHECKS: usize = 200;
/// How many leftovers are kept; the rest is counted.
const LEFTOVERS: usize = 1000;
/// How many failed steps are kept.
const FAILURES: usize = 1000;
/// How many processes on the GPUs of a host are kept.
const PROCESSES: usize = 512;
/// The most bytes of what nvidia-smi prints that are kept.
const PRINTED: usize = 64 << 10;
/// How many ranks are followed.
const RANKS: usize = 1 << 16;

/// The ranks that failed first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Culprit {
    /// Global ranks; empty when a launcher failed before any rank.
    pub ranks: Vec<u32>,
    /// The indexes of their hosts.
    pub hosts: Vec<u32>,
    /// When it was known.
    pub at: Millis,
}

/// One line for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// When.
    pub at: Millis,
    /// The index of the host it is about.
    pub host: Option<u32>,
    /// The line.
    pub text: String,
    /// Whether it is a warning.
    pub warn: bool,
}

/// Something that could not be removed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leftover {
    /// The index of its host.
    pub host: u32,
    /// What, and why.
    pub text: String,
}

/// Ranks counted by how they stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RankCounts {
    /// Ended well.
    pub ok: usize,
    /// Ended otherwise, by themselves.
    pub failed: usize,
    /// Ended because we ended them.
    pub stopped: usize,
    /// Started, no end known.
    pub running: usize,
    /// Never seen.
    pub waiting: usize,
}

/// What is known of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunState {
    /// The plan in force.
    pub info: RunInfo,
    /// In the plan's order.
    pub hosts: Vec<HostState>,
    /// By global rank.
    pub ranks: BTreeMap<u32, RankState>,
    /// The steps of the plan in force.
    pub ledger: Ledger,
    /// The steps that failed in earlier plans of this attempt.
    failures: Vec<Step>,
    /// The phases as they began, with their time.
    pub phases: Vec<(Phase, Millis)>,
    /// What should be the case, and why.
    pub goal: (Goal, String),
    /// When it was first no longer that the gang runs.
    pub stopping: Option<Millis>,
    /// What the hosts said of the run's end, and when that was (0: unknown).
    found: Option<(RunEnd, Millis)>,
    /// When its first rank started.
    first_started: Option<Millis>,
    /// When the run was ready.
    pub ready: Option<Millis>,
    /// Who failed first.
    pub culprit: Option<Culprit>,
    /// How the run seems to hang, and when that was told; none once it goes on.
    pub hang: Option<(Hang, Millis)>,
    /// When the ranks wrote, and how long they were silent.
    pub pace: hang::Pace,
    /// The worst that each check of preflight found, by its name.
    pub checks: BTreeMap<String, Level>,
    /// The last notices.
    pub notices: VecDeque<Note>,
    /// What is left on hosts.
    pub leftovers: Vec<Leftover>,
    /// What the lines of all ranks told of the training.
    pub metrics: Metrics,
    /// What finds it.
    scanner: Arc<Scanner>,
    /// How it ended, and why.
    pub outcome: Option<(Outcome, String)>,
    /// The time of the first event.
    pub began: Option<Millis>,
    /// The time of the last event.
    pub now: Millis,
    /// The number of the last event.
    pub seq: u64,
    /// Events that told of something impossible and were not believed.
    pub refused: u64,
}

impl Default for RunState {
    fn default() -> Self {
        RunState {
            info: RunInfo::default(),
            hosts: Vec::new(),
            ranks: BTreeMap::new(),
            ledger: Ledger::default(),
            failures: Vec::new(),
            phases: Vec::new(),
            goal: (Goal::Up, String::new()),
            stopping: None,
            found: None,
            first_started: None,
            ready: None,
            culprit: None,
            hang: None,
            pace: hang::Pace::default(),
            checks: BTreeMap::new(),
            notices: VecDeque::new(),
            leftovers: Vec::new(),
            metrics: Metrics::new(),
            scanner: Arc::new(Scanner::new(&BTreeMap::new())),
            outcome: None,
            began: None,
            now: 0,
            seq: 0,
            refused: 0,
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
        self.began.get_or_insert(at);
        self.now = at;
        self.seq = event.seq;
        match &event.kind {
            EventKind::RunStarted(info) => self.begin(info),
            EventKind::PhaseStarted { phase } => {
                if self.phases.len() < 1000 {
                    self.phases.push((*phase, at));
                }
            }
            EventKind::StepStarted { .. }
            | EventKind::StepSatisfied { .. }
            | EventKind::StepDone { .. }
            | EventKind::StepRetrying { .. }
            | EventKind::StepFailed { .. } => self.step(&event.kind, at),
            EventKind::HostConnecting { .. }
            | EventKind::HostConnected { .. }
            | EventKind::HostLost { .. }
            | EventKind::NodeStarted { .. }
            | EventKind::NodeExited { .. }
            | EventKind::Signalled { .. }
            | EventKind::Gpus { .. }
            | EventKind::GpusUnread { .. }
            | EventKind::GpuProcesses { .. }
            | EventKind::NvidiaSmi { .. }
            | EventKind::Vitals { .. }
            | EventKind::Disk { .. } => self.host(&event.kind, at),
            EventKind::RankStarted { .. } | EventKind::RankExited { .. } => self.rank(&event.kind, at),
            EventKind::Log { host, file, offset, bytes, len } => self.log((*host, *file), *offset, bytes, *len, at),
            EventKind::LogShrunk { host, file, .. } => self.log_shrunk(*host, *file),
            EventKind::RunFound { end, when } => self.found = Some((*end, *when)),
            EventKind::Ready => {
                self.ready.get_or_insert(at);
            }
            EventKind::Culprit { ranks, hosts } => {
                self.culprit = Some(Culprit { ranks: ranks.clone(), hosts: hosts.clone(), at });
            }
            EventKind::Hang(hang) => self.hang = Some((hang::bounded(hang), at)),
            EventKind::HangOver => self.hang = None,
            EventKind::Notice { host, text, warn } => self.notice(Note { at, host: *host, text: bounded(text), warn: *warn }),
            EventKind::Checked { check, level, hosts, what, hint } => self.checked(at, check, *level, hosts, (what, hint)),
            EventKind::GoalChanged { goal, why } => {
                self.goal = (*goal, why.clone());
                self.stopping = if *goal == Goal::Up { None } else { self.stopping.or(Some(at)) };
            }
            EventKind::Leftover { host, text } => {
                let leftover = Leftover { host: *host, text: bounded(text) };
                if self.leftovers.len() < LEFTOVERS && !self.leftovers.contains(&leftover) {
                    self.leftovers.push(leftover);
                }
            }
            // `diagnose` reads it.
            EventKind::Aftermath { .. } => {}
            EventKind::RunFinished { outcome, why } => {
                self.outcome = Some((outcome.clone(), why.clone()));
                self.end_lost_ranks();
            }
        }
    }

    fn begin(&mut self, info: &RunInfo) {
        self.put_counts_by();
        let other_run = !self.info.run.is_empty() && self.info.run != info.run;
        if other_run || self.info.attempt != info.attempt {
            self.ranks.clear();
            self.metrics.clear();
            self.failures.clear();
            self.culprit = None;
            self.hang = None;
            self.pace = hang::Pace::default();
            self.ready = None;
            self.stopping = None;
            self.found = None;
            self.first_started = None;
            for host in &mut self.hosts {
                (host.node_started, host.node_exit, host.signalled) = (None, None, None);
                host.tail = lines::Tail::default();
            }
        }
        if !info.hosts.is_empty() {
            self.rename_hosts(&info.hosts);
        }
        for planned in info.ranks.iter().take(RANKS) {
            let rank = self.ranks.entry(planned.rank).or_insert_with(|| RankState { rank: planned.rank, ..RankState::default() });
            if rank.started.is_none() {
                rank.host = planned.host;
            }
            rank.local_rank = Some(planned.local_rank);
        }
        self.ledger = Ledger::new(&info.steps);
        if self.info.metrics != info.metrics {
            self.scanner = Arc::new(Scanner::new(&info.metrics));
        }
        self.outcome = None;
        self.info = info.clone();
    }

    /// Adds the steps of the plan in force to what is counted for good: a new plan follows.
    fn put_counts_by(&mut self) {
        for host in 0..self.hosts.len() {
            let all = self.tally(host);
            self.hosts[host].before = all;
        }
        let failed: Vec<Step> = self.failed_now().take(FAILURES.saturating_sub(self.failures.len())).cloned().collect();
        self.failures.extend(failed);
        self.ledger = Ledger::default();
    }

    /// Hosts keep what is known of them by their name.
    fn rename_hosts(&mut self, names: &[String]) {
        let mut old = std::mem::take(&mut self.hosts);
        let place = |name: &str| names.iter().position(|n| n == name).and_then(|at| u32::try_from(at).ok());
        let moved: Vec<Option<u32>> = old.iter().map(|host| place(&host.name)).collect();
        let places = self.ranks.values_mut().map(|rank| &mut rank.host).chain(self.failures.iter_mut().map(|step| &mut step.info.host));
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
    fn checked(&mut self, at: Millis, check: &str, level: Level, hosts: &[u32], (what, hint): (&str, &str)) {
        // A check ends in several ways on several hosts: it counts once, by the worst.
        if self.checks.len() < CHECKS || self.checks.contains_key(check) {
            let worst = self.checks.entry(bounded(check)).or_insert(level);
            *worst = level.max(*worst);
        }
        if level != Level::Warn {
            return;
        }
        let help = if hint.is_empty() { String::new() } else { format!("; help: {hint}") };
        for host in hosts {
            self.notice(Note { at, host: Some(*host), text: bounded(&format!("{check}: {what}{help}")), warn: true });
        }
    }

    fn step(&mut self, kind: &EventKind, at: Millis) {
        let told = match kind {
            EventKind::StepStarted { step } => self.ledger.set(*step, Status::Running, at).map(|_| ()),
            EventKind::StepSatisfied { step, note } => self.ledger.set(*step, Status::Satisfied, at).map(|s| s.note = bounded(note)),
            EventKind::StepDone { step, note } => self.ledger.set(*step, Status::Done, at).map(|s| s.note = bounded(note)),
            EventKind::StepFailed { step, error, hint } => self.ledger.set(*step, Status::Failed, at).map(|s| {
                s.note = bounded(error);
                s.hint = bounded(hint);
            }),
            EventKind::StepRetrying { step, error } => self.ledger.retry(*step, &bounded(error)),
            _ => Ok(()),
        };
        self.refused += u64::from(told.is_err());
    }

    fn host(&mut self, kind: &EventKind, at: Millis) {
        let (EventKind::HostConnecting { host }
        | EventKind::HostConnected { host, .. }
        | EventKind::HostLost { host, .. }
        | EventKind::NodeStarted { host }
        | EventKind::NodeExited { host, .. }
        | EventKind::Signalled { host, .. }
        | EventKind::Gpus { host, .. }
        | EventKind::GpusUnread { host, .. }
        | EventKind::GpuProcesses { host, .. }
        | EventKind::NvidiaSmi { host, .. }
        | EventKind::Vitals { host, .. }
        | EventKind::Disk { host, .. }) = kind
        else {
            return;
        };
        let Some(host) = self.hosts.get_mut(*host as usize) else {
            self.refused += 1;
            return;
        };
        match kind {
            EventKind::HostConnecting { .. } => host.turn(Liveness::Connecting, "", at),
            EventKind::HostConnected { clock_offset, uncertainty, .. } => {
                self.pace.hears(at);
                host.turn(Liveness::Connected, "", at);
                host.clock = Some((*clock_offset, *uncertainty));
            }
            EventKind::HostLost { error, retrying, .. } => {
                host.turn(if *retrying { Liveness::Retrying } else { Liveness::Unreachable }, error, at);
            }
            EventKind::NodeStarted { .. } => (host.node_started, host.node_exit) = (Some(at), None),
            EventKind::NodeExited { exit, when, .. } => host.node_exit = Some((*exit, *when)),
            EventKind::Signalled { signal, .. } => host.signalled = Some((signal.clone(), at)),
            EventKind::Gpus { gpus, .. } => host.look(gpus, at),
            EventKind::GpusUnread { error, .. } => host.gpus_unread = Some((bounded(error), at)),
            EventKind::GpuProcesses { processes, .. } => {
                host.processes = processes.iter().take(PROCESSES).cloned().collect();
                host.processes_at = at;
            }
            EventKind::NvidiaSmi { text, error, .. } => {
                (host.smi, host.smi_error, host.smi_at) = (cut(text, PRINTED), bounded(error), at);
            }
            EventKind::Vitals { vitals, .. } => (host.vitals, host.vitals_at) = (vitals.clone(), at),
            EventKind::Disk { free, total, .. } => host.disk = Some(Disk { free: *free, total: *total, at }),
            _ => {}
        }
    }

    fn rank(&mut self, kind: &EventKind, at: Millis) {
        match kind {
            EventKind::RankStarted { host, rank, restart, when } => {
                let Some(state) = self.seen(*host, *rank, *restart, Some(*when)) else { return };
                let started = if *when > 0 { *when } else { at };
                state.started = Some(started);
                state.host = *host;
                self.first_started = Some(self.first_started.map_or(started, |first| first.min(started)));
            }
            EventKind::RankExited { host, rank, restart, exit, when, uncertainty } => {
                let Some(state) = self.seen(*host, *rank, *restart, None) else { return };
                (state.exit, state.when, state.uncertainty) = (Some(*exit), *when, *uncertainty);
            }
            _ => {}
        }
    }

    /// The rank, begun anew if its launcher has restarted it or another host has it now; `None` for news of a life before. `began`: where it is
    /// the news that it started, when; 0: unknown.
    fn seen(&mut self, host: u32, rank: u32, restart: u32, began: Option<Millis>) -> Option<&mut RankState> {
        if self.ranks.len() >= RANKS && !self.ranks.contains_key(&rank) || host as usize >= self.hosts.len() {
            self.refused += 1;
            return None;
        }
        let state = self.ranks.entry(rank).or_insert_with(|| RankState { rank, host, restart, ..RankState::default() });
        // Two hosts count the lives of a rank apart: the clock tells which of them has it now, and only a start is news of that.
        let moved = match (began, state.started.filter(|_| state.host != host)) {
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

    fn log(&mut self, (host, file): (u32, LogFile), offset: u64, bytes: &[u8], len: u64, at: Millis) {
        self.pace.wrote(at);
        let LogFile::Rank { rank, restart } = file else {
            if let Some(host) = self.hosts.get_mut(host as usize) {
                whole(&mut host.tail, offset, bytes, len, |_| {});
            }
            return;
        };
        let scanner = Arc::clone(&self.scanner);
        let (mut found, mut told) = (Found::new(), Found::new());
        let Some(state) = self.seen(host, rank, restart, None) else { return };
        let RankState { tail, progress, spoke, reading, .. } = state;
        *spoke = at;
        whole(tail, offset, bytes, len, |line| {
            if !reading.takes(at) {
                return;
            }
            scanner.scan(line.as_bytes(), &mut found);
            told.append(&mut found);
            *progress = metrics::progress(line.as_bytes(), at).or(*progress);
        });
        for (metric, _) in &told {
            metrics::of_run(&mut self.metrics, *metric, at, self.ranks.values().map(|rank| &rank.metrics));
        }
        if let Some(state) = self.ranks.get_mut(&rank) {
            metrics::take(&mut state.metrics, &told, at);
        }
    }

    fn log_shrunk(&mut self, host: u32, file: LogFile) {
        let tail = match file {
            LogFile::Node => self.hosts.get_mut(host as usize).map(|host| &mut host.tail),
            LogFile::Rank { rank, restart } => {
                self.ranks.get_mut(&rank).filter(|state| state.host == host && state.restart == restart).map(|state| &mut state.tail)
            }
        };
        if let Some(tail) = tail {
            tail.begin_again();
        }
    }

    /// A metric as the ranks stand now, the furthest step and the mean of the others, and when one of them spoke last.
    pub fn metric(&self, metric: u8) -> Option<(f64, Millis)> {
        metrics::together(metric, self.ranks.values().map(|rank| &rank.metrics))
    }

    /// The name of a metric.
    pub fn metric_name(&self, metric: u8) -> &str {
        self.scanner.name(metric)
    }

    fn notice(&mut self, note: Note) {
        if self.notices.len() >= NOTICES {
            self.notices.pop_front();
        }
        self.notices.push_back(note);
    }

    /// Host number `host`'s name, for display; empty if there is no such host.
    pub fn host_name(&self, host: u32) -> &str {
        self.hosts.get(host as usize).map_or("", |host| host.name.as_str())
    }

    /// The phase under way, or the last one.
    pub fn phase(&self) -> Option<Phase> {
        self.phases.last().map(|(phase, _)| *phase)
    }

    /// Milliseconds from the first to the last event.
    pub fn elapsed(&self) -> i64 {
        self.began.map_or(0, |began| (self.now - began).max(0))
    }

    /// Whether a rank ended because we ended it: after the goal changed, on a host whose ranks were signalled.
    pub fn was_stopped(&self, rank: &RankState) -> bool {
        let signalled = self.hosts.get(rank.host as usize).is_some_and(|host| host.signalled.is_some());
        let blamed = self.culprit.as_ref().is_some_and(|culprit| culprit.ranks.contains(&rank.rank));
        if matches!(self.found, Some((RunEnd::Stopped, _))) {
            return rank.failed() && !blamed;
        }
        let late = self.stopping.is_some_and(|at| rank.when == 0 || rank.when + rank.uncertainty >= at);
        rank.failed() && signalled && late && !blamed
    }

    /// The ranks that ended other than well and by themselves, the first to end before the others; unknown times last.
    pub fn failed_ranks(&self) -> Vec<&RankState> {
        let mut failed: Vec<&RankState> = self.ranks.values().filter(|rank| rank.failed() && !self.was_stopped(rank)).collect();
        failed.sort_by_key(|rank| (if rank.when > 0 { rank.when } else { Millis::MAX }, rank.rank));
        failed
    }

    /// The steps that failed, over all plans of this attempt: a teardown does not hide what it was for.
    pub fn failed_steps(&self) -> impl Iterator<Item = &Step> {
        self.failures.iter().chain(self.failed_now())
    }

    fn failed_now(&self) -> impl Iterator<Item = &Step> {
        self.ledger.steps().iter().filter(|step| step.status == Status::Failed)
    }

    /// How the ranks stand.
    pub fn rank_counts(&self) -> RankCounts {
        let mut counts = RankCounts::default();
        for rank in self.ranks.values() {
            match (rank.exit, rank.started) {
                (Some(exit), _) if exit.ok() => counts.ok += 1,
                (Some(_), _) if self.was_stopped(rank) => counts.stopped += 1,
                (Some(_), _) => counts.failed += 1,
                (None, Some(_)) => counts.running += 1,
                (None, None) => counts.waiting += 1,
            }
        }
        counts
    }

    /// The steps of one host, over all plans of this operation.
    pub fn tally(&self, host: usize) -> Tally {
        let mut tally = self.hosts.get(host).map(|host| host.before).unwrap_or_default();
        for step in self.ledger.steps().iter().filter(|step| step.info.host as usize == host) {
            match step.status {
                Status::Waiting | Status::Running => {}
                Status::Satisfied => tally.ok += 1,
                Status::Done => {
                    tally.ok += 1;
                    tally.changed += u32::from(changes(step.info.phase));
                }
                Status::Failed => tally.failed += 1,
            }
        }
        tally
    }
}

impl HostState {
    fn turn(&mut self, liveness: Liveness, error: &str, at: Millis) {
        self.liveness = liveness;
        self.since = at;
        self.error = bounded(error);
    }
}

/// Takes bytes where they came whole; a journal keeps ranges, not bytes.
fn whole(tail: &mut lines::Tail, offset: u64, bytes: &[u8], len: u64, each: impl FnMut(&str)) {
    if bytes.len() as u64 == len {
        tail.push_each(offset, bytes, each);
    } else {
        tail.skip_to(offset.saturating_add(len));
    }
}

/// Whether a step that is done in this phase changed something that stays: the others look, or hold a lock meanwhile.
pub fn changes(phase: Phase) -> bool {
    match phase {
        Phase::Connect | Phase::Facts | Phase::Lock | Phase::Preflight | Phase::Prove | Phase::Fetch | Phase::Verify => false,
        Phase::Pull | Phase::Container | Phase::Master | Phase::Workers | Phase::Stop | Phase::Remove | Phase::Clean => true,
    }
}

#[cfg(test)]
mod tests;
