//! Plain lines: what a person or a CI log reads while nothing draws. One line a phase, equal news of many hosts as one line.
//!
//! Uses `event`, `state` and its neighbours. Time is the events', so that a journal gives the same lines again.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use crate::diagnose::advice::Advice;
use crate::event::{Event, EventKind, Goal, Level, Millis, Phase, RunInfo};
use crate::state::{self, RunState};

use super::Sink;
use super::finding;
use super::loglines::{LogLines, Logs};
use super::outlet::Out;
use super::sanitize::Cleaner;
use super::words::{self, Role, Style};

/// How long a piece of news waits for the same from other hosts.
const WINDOW: i64 = 250;
/// How long one that a host could not be reached waits while others are still being reached: it may be the same with them. Who looks on is
/// not kept waiting for the slowest of them.
const REACHING: i64 = 1_500;

/// What to do about a run that seems to hang.
const HANG_HINT: [&str; 2] = ["stacks", "logs"];

/// News that may come from many hosts at once.
#[derive(Debug, Clone, PartialEq, Eq)]
enum News {
    Failed { phase: Phase, title: String, error: String, hint: String },
    Retrying { phase: Phase, error: String },
    Lost { error: String, retrying: bool },
    Back,
    RankExit { exit: String, stopped: bool },
    NodeExit(String),
    Signalled(String),
    Notice { text: String, warn: bool },
    Leftover(String),
}

/// The same news of several hosts.
#[derive(Debug)]
struct Held {
    news: News,
    hosts: BTreeSet<u32>,
    ranks: BTreeSet<u32>,
}

/// A phase whose steps have begun to end.
#[derive(Debug, Default)]
struct Tally {
    since: Millis,
    done: BTreeSet<u32>,
    satisfied: BTreeSet<u32>,
    failed: BTreeSet<u32>,
    open: usize,
    begun: bool,
}

/// Prints lines.
pub struct Lines<O> {
    out: O,
    cleaner: Cleaner,
    style: Style,
    advice: Advice,
    logs: LogLines,
    steps: BTreeMap<u32, (Phase, u32, String)>,
    phases: BTreeMap<Phase, Tally>,
    held: Vec<Held>,
    since: Millis,
    lost: BTreeSet<u32>,
    connecting: BTreeSet<u32>,
    told: (String, u32, usize),
    /// When the checks began to ask the hosts, while there is no plan.
    asked: Option<Millis>,
    /// The run and attempt whose logs are shown.
    shown: (String, u32),
}

impl<O: Out> Lines<O> {
    /// Prints to `out`.
    pub fn new(out: O, cleaner: Cleaner, style: Style, logs: Logs) -> Self {
        Lines {
            out,
            cleaner,
            style,
            advice: Advice::default(),
            logs: LogLines::new(logs),
            steps: BTreeMap::new(),
            phases: BTreeMap::new(),
            held: Vec::new(),
            since: 0,
            lost: BTreeSet::new(),
            connecting: BTreeSet::new(),
            told: (String::new(), 0, 0),
            asked: None,
            shown: (String::new(), 0),
        }
    }

    /// Advises commands as the person has to type them.
    #[must_use]
    pub fn advising(self, advice: Advice) -> Self {
        Lines { advice, ..self }
    }

    /// Where the lines go.
    pub fn out(&mut self) -> &mut O {
        &mut self.out
    }

    fn say(&mut self, role: Role, text: &str) -> io::Result<()> {
        self.out.line(&self.style.paint(role, text))
    }

    fn begin(&mut self, info: &RunInfo, state: &RunState) -> io::Result<()> {
        self.steps = info.steps.iter().map(|step| (step.id, (step.phase, step.host, step.title.clone()))).collect();
        self.phases.clear();
        for step in &info.steps {
            self.phases.entry(step.phase).or_default().open += 1;
        }
        // What the checks ask is asked before there is a plan.
        if let Some(at) = self.asked
            && let Some(tally) = self.phases.get_mut(&Phase::Preflight)
        {
            (tally.begun, tally.since, self.asked) = (true, at, None);
        }
        let run = (info.run.clone(), info.attempt);
        if !info.run.is_empty() && run != self.shown {
            // The logs of another run begin at their first byte again.
            self.release(state)?;
            self.logs.another_run();
            self.shown = run;
        }
        let told = (info.run.clone(), info.attempt, info.ranks.len());
        if told == self.told || info.hosts.is_empty() {
            return Ok(());
        }
        self.told = told;
        let mut text = format!("{}: {}", words::title(info, &self.cleaner), words::count(info.hosts.len(), "host"));
        if !info.ranks.is_empty() {
            text.push_str(&format!(", {}", words::count(info.ranks.len(), "rank")));
        }
        if !info.run.is_empty() {
            text.push_str(&format!(", run {}", self.cleaner.line(&info.run)));
        }
        if info.attempt > 1 {
            text.push_str(&format!(", attempt {}", info.attempt));
        }
        self.release(state)?;
        self.say(Role::Plain, &text)
    }

    /// Notes the end of a step; a phase whose steps have all ended is told at once.
    fn ended(&mut self, step: u32, how: fn(&mut Tally) -> &mut BTreeSet<u32>, at: Millis, state: &RunState) -> io::Result<()> {
        let Some((phase, host, _)) = self.steps.get(&step) else { return Ok(()) };
        let (phase, host) = (*phase, *host);
        let Some(tally) = self.phases.get_mut(&phase) else { return Ok(()) };
        if !tally.begun {
            (tally.begun, tally.since) = (true, at);
        }
        how(tally).insert(host);
        tally.open = tally.open.saturating_sub(1);
        if tally.open == 0 { self.close(phase, at, state) } else { Ok(()) }
    }

    /// One line for a phase.
    fn close(&mut self, phase: Phase, at: Millis, state: &RunState) -> io::Result<()> {
        let Some(tally) = self.phases.remove(&phase) else { return Ok(()) };
        if tally.done.is_empty() && tally.satisfied.is_empty() && tally.failed.is_empty() {
            return Ok(());
        }
        self.release(state)?;
        // A host counts once, by the most telling of its steps; where nothing can change, having looked is all there is to say.
        let changes = state::changes(phase);
        let looked = |host: &&u32| !changes && !tally.failed.contains(*host);
        let done: BTreeSet<u32> = tally.done.difference(&tally.failed).chain(tally.satisfied.iter().filter(looked)).copied().collect();
        let satisfied: BTreeSet<u32> =
            tally.satisfied.iter().filter(|host| !done.contains(host) && !tally.failed.contains(host)).copied().collect();
        let (word, good) = if changes { ("changed", Role::Warn) } else { ("ok", Role::Ok) };
        let parts = [(Role::Bad, "FAILED", &tally.failed), (good, word, &done), (Role::Ok, "as it was", &satisfied)];
        let texts: Vec<String> = parts
            .iter()
            .filter(|(_, _, hosts)| !hosts.is_empty())
            .map(|(role, word, hosts)| format!("{} {}", self.style.paint(*role, word), words::hosts(state, &self.cleaner, *hosts)))
            .collect();
        let time = self.style.paint(Role::Dim, &format!("({})", words::span(at - tally.since)));
        self.out.line(&format!("{:<10} {} {time}", phase.name(), texts.join("; ")))
    }

    fn hold(&mut self, at: Millis, news: News, host: Option<u32>, rank: Option<u32>) {
        if self.held.is_empty() {
            self.since = at;
        }
        let place = self.held.iter().position(|held| held.news == news).unwrap_or_else(|| {
            self.held.push(Held { news, hosts: BTreeSet::new(), ranks: BTreeSet::new() });
            self.held.len() - 1
        });
        self.held[place].hosts.extend(host);
        self.held[place].ranks.extend(rank);
    }

    /// Tells what waits.
    fn release(&mut self, state: &RunState) -> io::Result<()> {
        for line in self.logs.take(state, &self.cleaner, self.style) {
            self.out.line(&line)?;
        }
        for held in std::mem::take(&mut self.held) {
            let hosts = words::hosts(state, &self.cleaner, &held.hosts);
            if let News::Lost { error, retrying: false } = &held.news
                && held.hosts.len() > 1
            {
                self.say(Role::Bad, &format!("UNREACHABLE {} hosts: {}", held.hosts.len(), self.cleaner.line(error)))?;
                self.say(Role::Plain, &format!("  {hosts}"))?;
                continue;
            }
            let ranks: Vec<u32> = held.ranks.into_iter().collect();
            let (role, text, hint) = self.tell(held.news, &hosts, &ranks);
            self.say(role, &text)?;
            if !hint.is_empty() {
                self.say(Role::Plain, &format!("  hint: {hint}"))?;
            }
        }
        Ok(())
    }

    fn tell(&self, news: News, hosts: &str, ranks: &[u32]) -> (Role, String, String) {
        let clean = |text: &str| self.cleaner.line(text);
        match news {
            News::Failed { phase, title, error, hint } => {
                (Role::Bad, format!("FAILED {hosts} {}: {}: {}", phase.name(), clean(&title), clean(&error)), clean(&hint))
            }
            News::Retrying { phase, error } => {
                (Role::Warn, format!("{hosts} {}: trying again: {}", phase.name(), clean(&error)), String::new())
            }
            News::Lost { error, retrying: true } => {
                (Role::Warn, format!("{hosts}: no connection: {}; trying again", clean(&error)), String::new())
            }
            News::Lost { error, retrying: false } => (Role::Bad, format!("UNREACHABLE {hosts}: {}", clean(&error)), String::new()),
            News::Back => (Role::Ok, format!("{hosts}: connected again"), String::new()),
            News::RankExit { exit, stopped: true } => {
                (Role::Dim, format!("{} on {hosts}: stopped, {exit}", words::ranks(ranks)), String::new())
            }
            News::RankExit { exit, stopped: false } => (Role::Bad, format!("{} on {hosts}: {exit}", words::ranks(ranks)), String::new()),
            News::NodeExit(exit) => (Role::Bad, format!("{hosts}: the launcher ended: {exit}"), String::new()),
            News::Signalled(signal) => (Role::Warn, format!("{} sent to the ranks on {hosts}", clean(&signal)), String::new()),
            News::Notice { text, warn } => {
                let role = if warn { Role::Warn } else { Role::Plain };
                let mark = if warn { "warning: " } else { "" };
                let place = if hosts.is_empty() { String::new() } else { format!("{hosts}: ") };
                (role, format!("{mark}{place}{}", clean(&text)), String::new())
            }
            News::Leftover(text) => (Role::Bad, format!("LEFT on {hosts}: {}", clean(&text)), String::new()),
        }
    }

    fn step_failed(&mut self, step: u32, error: &str, hint: &str, at: Millis) {
        if let Some((phase, host, title)) = self.steps.get(&step).cloned() {
            self.hold(at, News::Failed { phase, title, error: error.to_owned(), hint: hint.to_owned() }, Some(host), None);
        }
    }

    fn logs(&mut self, all: bool, now: Millis, state: &RunState) -> io::Result<()> {
        let lines = if all {
            self.logs.end(now);
            self.logs.take(state, &self.cleaner, self.style)
        } else {
            self.logs.due(now, state, &self.cleaner, self.style)
        };
        lines.iter().try_for_each(|line| self.out.line(line))
    }

    fn goal(&mut self, goal: Goal, why: &str) -> io::Result<()> {
        let (role, text) = match goal {
            Goal::Up => (Role::Plain, "going up"),
            Goal::Stop => (Role::Warn, "stopping every rank"),
            Goal::Kill => (Role::Bad, "killing every rank"),
            Goal::Down => (Role::Plain, "tearing down"),
        };
        let why = self.cleaner.line(why);
        self.say(role, &if why.is_empty() { text.to_owned() } else { format!("{text}: {why}") })
    }

    fn ready(&mut self, state: &RunState) -> io::Result<()> {
        let hosts: BTreeSet<u32> = state.ranks.values().map(|rank| rank.host).collect();
        let text = format!(
            "ready      {} on {} ({})",
            words::count(state.ranks.len(), "rank"),
            words::count(hosts.len(), "host"),
            words::span(state.elapsed())
        );
        self.say(Role::Ok, &text)
    }

    fn culprit(&mut self, ranks: &[u32], hosts: &[u32], state: &RunState) -> io::Result<()> {
        let places = words::hosts(state, &self.cleaner, hosts);
        let text = match ranks {
            [] => format!("first to fail: the launcher on {places}"),
            _ => format!("first to fail: {} on {places}", words::ranks(ranks)),
        };
        self.say(Role::Bad, &text)
    }

    /// What is told at once, after all that waits.
    fn now(&mut self, event: &Event, state: &RunState) -> io::Result<()> {
        match &event.kind {
            EventKind::RunStarted(info) => self.begin(info, state),
            EventKind::PhaseStarted { phase } => {
                let before: Vec<Phase> = self.phases.iter().filter(|(p, tally)| *p != phase && tally.begun).map(|(p, _)| *p).collect();
                before.into_iter().try_for_each(|phase| self.close(phase, event.at, state))?;
                match self.phases.get_mut(phase) {
                    Some(tally) if !tally.begun => (tally.begun, tally.since) = (true, event.at),
                    None if *phase == Phase::Preflight => self.asked = Some(event.at),
                    _ => {}
                }
                Ok(())
            }
            EventKind::StepSatisfied { step, .. } => self.ended(*step, |tally| &mut tally.satisfied, event.at, state),
            EventKind::StepDone { step, .. } => self.ended(*step, |tally| &mut tally.done, event.at, state),
            EventKind::StepFailed { step, error, hint } => {
                self.step_failed(*step, error, hint, event.at);
                self.ended(*step, |tally| &mut tally.failed, event.at, state)
            }
            EventKind::Ready => self.release(state).and_then(|()| self.ready(state)),
            EventKind::Culprit { ranks, hosts } => self.release(state).and_then(|()| self.culprit(ranks, hosts, state)),
            EventKind::Hang(hang) => {
                self.release(state)?;
                let text = finding::hang(hang, event.at, state, &self.cleaner);
                self.say(Role::Warn, &format!("HANG {text}"))?;
                for line in &hang.evidence {
                    let text = format!("  | {}", self.cleaner.line(line));
                    self.say(Role::Plain, &text)?;
                }
                let hint = HANG_HINT.map(|verb| self.advice.command(verb, "")).join("; ");
                self.say(Role::Plain, &format!("  hint: {hint}"))
            }
            EventKind::HangOver => self.release(state).and_then(|()| self.say(Role::Ok, "it goes on: what was waited for has come")),
            EventKind::GoalChanged { goal, why } => self.release(state).and_then(|()| self.goal(*goal, why)),
            EventKind::RunFinished { .. } => {
                self.logs(true, event.at, state)?;
                self.release(state)?;
                let open: Vec<Phase> = self.phases.keys().copied().collect();
                open.into_iter().try_for_each(|phase| self.close(phase, event.at, state))
            }
            EventKind::Log { host, file, offset, bytes, .. } => {
                self.logs.push((*host, *file), *offset, bytes, event.at);
                Ok(())
            }
            EventKind::LogShrunk { host, file, .. } => {
                self.logs.begin_again((*host, *file));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// What may be the same on many hosts waits a moment.
    fn later(&mut self, event: &Event, state: &RunState) {
        let at = event.at;
        match &event.kind {
            EventKind::HostConnecting { host } => {
                self.connecting.insert(*host);
            }
            EventKind::HostLost { host, error, retrying } => {
                self.connecting.remove(host);
                self.lost.insert(*host);
                self.hold(at, News::Lost { error: error.clone(), retrying: *retrying }, Some(*host), None);
            }
            EventKind::HostConnected { host, .. } => {
                self.connecting.remove(host);
                if self.lost.remove(host) {
                    self.hold(at, News::Back, Some(*host), None);
                }
            }
            EventKind::StepRetrying { step, error } => {
                if let Some((phase, host, _)) = self.steps.get(step).cloned() {
                    self.hold(at, News::Retrying { phase, error: error.clone() }, Some(host), None);
                }
            }
            EventKind::RankExited { host, rank, exit, .. } if !exit.ok() => {
                let stopped = state.ranks.get(rank).is_some_and(|rank| state.was_stopped(rank));
                self.hold(at, News::RankExit { exit: words::exit(*exit), stopped }, Some(*host), Some(*rank));
            }
            EventKind::NodeExited { host, exit, .. } if !exit.ok() => self.hold(at, News::NodeExit(words::exit(*exit)), Some(*host), None),
            EventKind::Signalled { host, signal } => self.hold(at, News::Signalled(signal.clone()), Some(*host), None),
            EventKind::Notice { host, text, warn } => self.hold(at, News::Notice { text: text.clone(), warn: *warn }, *host, None),
            EventKind::Checked { check, level, hosts, what, hint } if *level == Level::Warn => {
                let help = if hint.is_empty() { String::new() } else { format!("; help: {hint}") };
                let text = format!("{check}: {what}{help}");
                for host in hosts {
                    self.hold(at, News::Notice { text: text.clone(), warn: true }, Some(*host), None);
                }
            }
            EventKind::Leftover { host, text } => self.hold(at, News::Leftover(text.clone()), Some(*host), None),
            _ => {}
        }
    }
}

impl<O: Out> Sink for Lines<O> {
    fn on(&mut self, event: &Event, state: &RunState) -> io::Result<()> {
        self.tick(event.at, state)?;
        self.now(event, state)?;
        self.later(event, state);
        self.tick(event.at, state)
    }

    fn tick(&mut self, now: Millis, state: &RunState) -> io::Result<()> {
        self.logs(false, now, state)?;
        let unreached = |held: &Held| matches!(held.news, News::Lost { retrying: false, .. });
        let window = if !self.connecting.is_empty() && self.held.iter().all(unreached) { REACHING } else { WINDOW };
        if !self.held.is_empty() && now - self.since >= window {
            self.release(state)?;
        }
        self.out.flush()
    }

    fn finish(&mut self, state: &RunState) -> io::Result<()> {
        self.logs(true, state.now, state)?;
        self.release(state)?;
        self.out.flush()
    }
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
