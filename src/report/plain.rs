//! Plain lines, for CI logs and terminals without bars. One line per phase; equal events of several hosts are one line.
//!
//! All times come from the events, so a journal replays to the same lines.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use crate::diagnose::advice_formatter::AdviceFormatter;
use crate::event::{Event, EventKind, Hang, Level, Phase, RunGoal, RunInfo, UnixMillis};
use crate::state::RunState;

use super::ReportSink;
use super::finding;
use super::groupable_event::{EventTexts, GroupableEvent};
use super::line_writer::LineOutput;
use super::log_lines::{LogLineMerger, LogSelection};
use super::style::{self, TextStyle, Tone};
use crate::text::sanitize::Sanitizer;
use crate::text::translation::Lang;
use crate::text::width::pad_end;

/// How long an event waits for equal ones of other hosts.
const GROUPING_WINDOW_MS: i64 = 250;
/// The same for an unreachable host while other hosts are still connecting. Bounded, so that the slowest host does not delay the message.
const UNREACHABLE_WINDOW_MS: i64 = 1_500;

/// The commands that the hint of a hang suggests.
const HANG_HINT_COMMANDS: [&str; 2] = ["stacks", "logs"];

/// One event and the hosts and ranks that reported it.
#[derive(Debug)]
struct EventGroup {
    event: GroupableEvent,
    hosts: BTreeSet<u32>,
    ranks: BTreeSet<u32>,
}

/// A phase whose steps have begun to end.
#[derive(Debug, Default)]
struct PhaseTally {
    started_at: UnixMillis,
    done: BTreeSet<u32>,
    satisfied: BTreeSet<u32>,
    skipped: BTreeSet<u32>,
    failed: BTreeSet<u32>,
    /// The name of the task, where the phase is one.
    task: String,
    open_steps: usize,
    started: bool,
}

pub(crate) struct PlainSink<O> {
    out: O,
    sanitizer: Sanitizer,
    style: TextStyle,
    /// For log lines, which may go to another output.
    log_style: TextStyle,
    lang: Lang,
    advice: AdviceFormatter,
    log_filter: LogLineMerger,
    /// How many of the lines that a log has when this command attaches are shown; `None`: all.
    history_lines: Option<usize>,
    steps: BTreeMap<u32, (Phase, u32, String)>,
    phases: BTreeMap<Phase, PhaseTally>,
    pending_groups: Vec<EventGroup>,
    pending_since: UnixMillis,
    lost_hosts: BTreeSet<u32>,
    connecting_hosts: BTreeSet<u32>,
    announced: (String, u32, usize),
    /// When the preflight probes began; they begin before there is a plan.
    checks_started_at: Option<UnixMillis>,
    /// The run and attempt whose logs are shown.
    log_run: (String, u32),
}

impl<O: LineOutput> PlainSink<O> {
    pub(crate) fn new(out: O, sanitizer: Sanitizer, style: TextStyle, logs: LogSelection) -> Self {
        PlainSink {
            out,
            sanitizer,
            style,
            log_style: style,
            lang: Lang::En,
            advice: AdviceFormatter::default(),
            log_filter: LogLineMerger::new(logs),
            history_lines: None,
            steps: BTreeMap::new(),
            phases: BTreeMap::new(),
            pending_groups: Vec::new(),
            pending_since: 0,
            lost_hosts: BTreeSet::new(),
            connecting_hosts: BTreeSet::new(),
            announced: (String::new(), 0, 0),
            checks_started_at: None,
            log_run: (String::new(), 0),
        }
    }

    /// Sets the inventory and flags that suggested commands need.
    #[must_use]
    pub(crate) fn with_advice(self, advice: AdviceFormatter) -> Self {
        PlainSink { advice, ..self }
    }

    #[must_use]
    pub(crate) fn with_lang(self, lang: Lang) -> Self {
        PlainSink { lang, ..self }
    }

    #[must_use]
    pub(crate) fn with_log_style(self, log_style: TextStyle) -> Self {
        PlainSink { log_style, ..self }
    }

    /// Of a run that this command attaches to, shows only the last lines of each log.
    #[must_use]
    pub(crate) fn with_history(self, history_lines: Option<usize>) -> Self {
        PlainSink { history_lines, ..self }
    }

    pub(crate) fn output(&mut self) -> &mut O {
        &mut self.out
    }

    fn count(&self, n: usize, noun: &str) -> String {
        self.lang.message(&style::count_noun(n, noun)).into_owned()
    }

    fn write_line(&mut self, tone: Tone, text: &str) -> io::Result<()> {
        self.out.write_line(&self.style.paint(tone, text))
    }

    fn on_run_started(&mut self, info: &RunInfo, state: &RunState) -> io::Result<()> {
        self.steps = info.steps.iter().map(|step| (step.id, (step.phase, step.host, step.title.clone()))).collect();
        self.phases.clear();
        for step in &info.steps {
            let tally = self.phases.entry(step.phase).or_default();
            tally.open_steps += 1;
            if matches!(step.phase, Phase::Task(_)) {
                tally.task = format!("{}: ", self.sanitizer.sanitize_line(&step.title));
            }
        }
        // The preflight probes begin before there is a plan.
        if let Some(at) = self.checks_started_at
            && let Some(tally) = self.phases.get_mut(&Phase::Preflight)
        {
            (tally.started, tally.started_at, self.checks_started_at) = (true, at, None);
        }
        let run = (info.run_id.clone(), info.attempt);
        if !info.run_id.is_empty() && run != self.log_run {
            // The log offsets of another run start at 0.
            self.flush_pending(state)?;
            self.log_filter.start_next_run();
            self.log_run = run;
        }
        let announcement = (info.run_id.clone(), info.attempt, info.ranks.len());
        // A command that follows a run learns its ranks a moment after its id: one line says both.
        let incomplete = info.ranks.is_empty() && self.announced != (String::new(), 0, 0);
        if announcement == self.announced || info.hosts.is_empty() || incomplete {
            return Ok(());
        }
        self.announced = announcement;
        let mut text = format!("{}: {}", style::run_title(info, &self.sanitizer), self.count(info.hosts.len(), "host"));
        if !info.ranks.is_empty() {
            text.push_str(&self.lang.tr_fill(", {}", &[&self.count(info.ranks.len(), "rank")]));
        }
        if !info.run_id.is_empty() {
            text.push_str(&self.lang.tr_fill(", run {}", &[&self.sanitizer.sanitize_line(&info.run_id)]));
        }
        if info.attempt > 1 {
            text.push_str(&self.lang.tr_fill(", attempt {}", &[&info.attempt.to_string()]));
        }
        self.flush_pending(state)?;
        self.write_line(Tone::Plain, &text)
    }

    /// Counts the end of a step; the last step of a phase prints the phase's line.
    fn on_step_ended(
        &mut self,
        step: u32,
        result_set: fn(&mut PhaseTally) -> &mut BTreeSet<u32>,
        at: UnixMillis,
        state: &RunState,
    ) -> io::Result<()> {
        let Some((phase, host, _)) = self.steps.get(&step) else { return Ok(()) };
        let (phase, host) = (*phase, *host);
        let Some(tally) = self.phases.get_mut(&phase) else { return Ok(()) };
        if !tally.started {
            (tally.started, tally.started_at) = (true, at);
        }
        result_set(tally).insert(host);
        tally.open_steps = tally.open_steps.saturating_sub(1);
        if tally.open_steps == 0 { self.write_phase_line(phase, at, state) } else { Ok(()) }
    }

    fn write_phase_line(&mut self, phase: Phase, at: UnixMillis, state: &RunState) -> io::Result<()> {
        let Some(tally) = self.phases.remove(&phase) else { return Ok(()) };
        if [&tally.done, &tally.satisfied, &tally.skipped, &tally.failed].into_iter().all(BTreeSet::is_empty) {
            return Ok(());
        }
        self.flush_pending(state)?;
        // Each host counts once: failed before changed before ok. Phases that only read report ok for every step that did not fail.
        let mut changed: BTreeSet<u32> = tally.done.difference(&tally.failed).copied().collect();
        let mut ok: BTreeSet<u32> = tally.satisfied.difference(&tally.failed).filter(|host| !changed.contains(host)).copied().collect();
        if !phase.changes_host() {
            ok.append(&mut changed);
        }
        let results = [
            (Tone::Bad, self.lang.tr("FAILED"), &tally.failed),
            (Tone::Warn, self.lang.tr("changed"), &changed),
            (Tone::Ok, self.lang.tr("ok"), &ok),
            (Tone::Dim, self.lang.tr("skipped"), &tally.skipped),
        ];
        let texts: Vec<String> = results
            .iter()
            .filter(|(_, _, hosts)| !hosts.is_empty())
            .map(|(tone, label, hosts)| {
                format!("{} {}", self.style.paint(*tone, label), style::format_hosts(state, &self.sanitizer, *hosts))
            })
            .collect();
        let (layers, duration) = (style::pulled_layers_prefix(phase, state), style::format_duration(at - tally.started_at));
        let time = self.style.paint(Tone::Dim, &format!("({layers}{duration})"));
        self.out.write_line(&format!("{} {}{} {time}", pad_end(phase.name(), 11), tally.task, texts.join("; ")))
    }

    fn queue_event(&mut self, at: UnixMillis, event: GroupableEvent, host: Option<u32>, rank: Option<u32>) {
        if self.pending_groups.is_empty() {
            self.pending_since = at;
        }
        let index = self.pending_groups.iter().position(|group| group.event == event).unwrap_or_else(|| {
            self.pending_groups.push(EventGroup { event, hosts: BTreeSet::new(), ranks: BTreeSet::new() });
            self.pending_groups.len() - 1
        });
        self.pending_groups[index].hosts.extend(host);
        self.pending_groups[index].ranks.extend(rank);
    }

    fn flush_pending(&mut self, state: &RunState) -> io::Result<()> {
        for line in self.log_filter.take_all(state, &self.sanitizer, self.log_style) {
            self.out.write_log_line(&line)?;
        }
        for group in std::mem::take(&mut self.pending_groups) {
            let hosts = style::format_hosts(state, &self.sanitizer, &group.hosts);
            let texts = EventTexts { lang: self.lang, sanitizer: &self.sanitizer };
            if let GroupableEvent::HostLost { error, retrying: false } = &group.event
                && group.hosts.len() > 1
            {
                let text = texts.several_unreachable(group.hosts.len(), error);
                self.write_line(Tone::Bad, &text)?;
                self.write_line(Tone::Plain, &format!("  {hosts}"))?;
                continue;
            }
            let ranks: Vec<u32> = group.ranks.into_iter().collect();
            let (tone, text, hint) = texts.describe(group.event, &hosts, &ranks);
            self.write_line(tone, &text)?;
            if !hint.is_empty() {
                self.write_line(Tone::Plain, &format!("  {}", self.lang.tr_fill("hint: {}", &[&hint])))?;
            }
        }
        Ok(())
    }

    fn queue_step_failed(&mut self, step: u32, error: &str, hint: &str, at: UnixMillis) {
        if let Some((phase, host, title)) = self.steps.get(&step).cloned() {
            self.queue_event(
                at,
                GroupableEvent::StepFailed { phase, title, error: error.to_owned(), hint: hint.to_owned() },
                Some(host),
                None,
            );
        }
    }

    fn write_logs(&mut self, all: bool, now: UnixMillis, state: &RunState) -> io::Result<()> {
        let lines = if all {
            self.log_filter.flush_partial_lines(now);
            self.log_filter.take_all(state, &self.sanitizer, self.log_style)
        } else {
            self.log_filter.take_due(now, state, &self.sanitizer, self.log_style)
        };
        if !lines.is_empty() && self.log_filter.take_cut_history() {
            let all = self.advice.format_command("logs", "");
            let text = self.lang.tr_fill("earlier log lines are not shown: `{}` prints all, `--tail N` more of them", &[&all]);
            self.write_line(Tone::Dim, &text)?;
        }
        lines.iter().try_for_each(|line| self.out.write_log_line(line))
    }

    fn write_goal(&mut self, goal: RunGoal, reason: &str, state: &RunState) -> io::Result<()> {
        let lang = self.lang;
        let (tone, text) = match goal {
            RunGoal::Up if state.info.command == "prepare" => (Tone::Plain, lang.tr("preparing")),
            RunGoal::Up => (Tone::Plain, lang.tr("launching")),
            RunGoal::Stop => (Tone::Warn, lang.tr("stopping all ranks")),
            RunGoal::Kill => (Tone::Bad, lang.tr("killing all ranks")),
            RunGoal::Down => (Tone::Plain, lang.tr("tearing down")),
        };
        let reason = self.sanitizer.sanitize_line(reason);
        let reason = lang.message(&reason);
        self.write_line(tone, &if reason.is_empty() { text.to_owned() } else { format!("{text}{}{reason}", lang.colon()) })
    }

    fn write_ready(&mut self, state: &RunState) -> io::Result<()> {
        let hosts: BTreeSet<u32> = state.ranks.values().map(|rank| rank.host).collect();
        // Of a run that was launched before this command began, its age.
        let earlier = state.run_started_at().filter(|started| state.first_event_at.is_some_and(|first| *started < first));
        let duration = match earlier {
            Some(started) => self.lang.tr_fill("running for {}", &[&style::format_duration(state.last_event_at - started)]),
            None => style::format_duration(state.elapsed()),
        };
        let text =
            self.lang.tr_fill("{} on {} ({})", &[&self.count(state.ranks.len(), "rank"), &self.count(hosts.len(), "host"), &duration]);
        let text = format!("{} {text}", pad_end(self.lang.tr("ready"), 11));
        self.write_line(Tone::Ok, &text)
    }

    fn write_first_failure(&mut self, ranks: &[u32], hosts: &[u32], state: &RunState) -> io::Result<()> {
        let hosts = style::format_hosts(state, &self.sanitizer, hosts);
        let text = match ranks {
            [] => self.lang.tr_fill("first to fail: the launcher on {}", &[&hosts]),
            _ => self.lang.tr_fill("first to fail: {} on {}", &[&style::format_ranks(ranks), &hosts]),
        };
        self.write_line(Tone::Bad, &text)
    }

    fn write_hang(&mut self, hang: &Hang, at: UnixMillis, state: &RunState) -> io::Result<()> {
        let text = self.lang.message(&finding::describe_hang(hang, at, state, &self.sanitizer)).into_owned();
        self.write_line(Tone::Warn, &format!("{} {text}", self.lang.tr("HANG")))?;
        for line in &hang.evidence {
            let text = format!("  | {}", self.sanitizer.sanitize_line(line));
            self.write_line(Tone::Plain, &text)?;
        }
        let hint = HANG_HINT_COMMANDS.map(|verb| self.advice.format_command(verb, "")).join("; ");
        self.write_line(Tone::Plain, &format!("  {}", self.lang.tr_fill("hint: {}", &[&hint])))
    }

    /// Handles events that print at once, after all pending lines.
    fn handle_immediate(&mut self, event: &Event, state: &RunState) -> io::Result<()> {
        match &event.kind {
            EventKind::RunStarted(info) => self.on_run_started(info, state),
            EventKind::PhaseStarted { phase } => {
                let before: Vec<Phase> = self.phases.iter().filter(|(p, tally)| *p != phase && tally.started).map(|(p, _)| *p).collect();
                before.into_iter().try_for_each(|phase| self.write_phase_line(phase, event.at, state))?;
                match self.phases.get_mut(phase) {
                    Some(tally) if !tally.started => (tally.started, tally.started_at) = (true, event.at),
                    None if *phase == Phase::Preflight => self.checks_started_at = Some(event.at),
                    _ => {}
                }
                Ok(())
            }
            EventKind::StepSatisfied { step, .. } => self.on_step_ended(*step, |tally| &mut tally.satisfied, event.at, state),
            EventKind::StepDone { step, .. } => self.on_step_ended(*step, |tally| &mut tally.done, event.at, state),
            EventKind::StepSkipped { step, .. } => self.on_step_ended(*step, |tally| &mut tally.skipped, event.at, state),
            EventKind::StepFailed { step, error, hint, .. } => {
                self.queue_step_failed(*step, error, hint, event.at);
                self.on_step_ended(*step, |tally| &mut tally.failed, event.at, state)
            }
            EventKind::Ready => self.flush_pending(state).and_then(|()| self.write_ready(state)),
            EventKind::Culprit { ranks, hosts } => self.flush_pending(state).and_then(|()| self.write_first_failure(ranks, hosts, state)),
            EventKind::Hang(hang) => self.flush_pending(state).and_then(|()| self.write_hang(hang, event.at, state)),
            EventKind::HangEnded => {
                self.flush_pending(state).and_then(|()| self.write_line(Tone::Ok, self.lang.tr("the run is making progress again")))
            }
            EventKind::GoalChanged { goal, reason } => self.flush_pending(state).and_then(|()| self.write_goal(*goal, reason, state)),
            EventKind::RunFinished { .. } => {
                self.write_logs(true, event.at, state)?;
                self.flush_pending(state)?;
                let open: Vec<Phase> = self.phases.keys().copied().collect();
                open.into_iter().try_for_each(|phase| self.write_phase_line(phase, event.at, state))
            }
            EventKind::Log { host, file, offset, bytes, .. } => {
                self.log_filter.push((*host, *file), *offset, bytes, event.at);
                Ok(())
            }
            EventKind::RunEndReported { .. } => {
                self.log_filter.limit_history(self.history_lines);
                Ok(())
            }
            EventKind::LogCurrent { host, file } => {
                self.log_filter.mark_current((*host, *file), event.at);
                Ok(())
            }
            EventKind::LogTruncated { host, file, .. } => {
                self.log_filter.restart_file((*host, *file));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Queues events that several hosts may report, to print equal ones once.
    fn queue_groupable(&mut self, event: &Event, state: &RunState) {
        let at = event.at;
        match &event.kind {
            EventKind::HostConnecting { host } => {
                self.connecting_hosts.insert(*host);
            }
            EventKind::HostLost { host, error, will_retry } => {
                self.connecting_hosts.remove(host);
                self.lost_hosts.insert(*host);
                self.queue_event(at, GroupableEvent::HostLost { error: error.clone(), retrying: *will_retry }, Some(*host), None);
            }
            EventKind::HostConnected { host, .. } => {
                self.connecting_hosts.remove(host);
                if self.lost_hosts.remove(host) {
                    self.queue_event(at, GroupableEvent::HostReconnected, Some(*host), None);
                }
            }
            EventKind::StepRetrying { step, error } => {
                if let Some((phase, host, _)) = self.steps.get(step).cloned() {
                    self.queue_event(at, GroupableEvent::StepRetrying { phase, error: error.clone() }, Some(host), None);
                }
            }
            EventKind::RankExited { host, rank, exit, .. } if !exit.is_success() => {
                let stopped = state.ranks.get(rank).is_some_and(|rank| rank.was_stopped);
                self.queue_event(at, GroupableEvent::RankExited { exit: style::format_exit(*exit), stopped }, Some(*host), Some(*rank));
            }
            EventKind::LauncherExited { host, exit, .. } if !exit.is_success() => {
                self.queue_event(at, GroupableEvent::NodeExited(style::format_exit(*exit)), Some(*host), None)
            }
            EventKind::RanksSignaled { host, signal } => self.queue_event(at, GroupableEvent::Signalled(signal.clone()), Some(*host), None),
            EventKind::Notice { host, text, warn } => {
                self.queue_event(at, GroupableEvent::Notice { text: text.clone(), warn: *warn }, *host, None)
            }
            EventKind::CheckFinished { check, level, hosts, message, hint } if *level == Level::Warn => {
                let help = if hint.is_empty() { String::new() } else { format!("; help: {hint}") };
                let text = format!("{check}: {message}{help}");
                for host in hosts {
                    self.queue_event(at, GroupableEvent::Notice { text: text.clone(), warn: true }, Some(*host), None);
                }
            }
            EventKind::Leftover { host, text } => self.queue_event(at, GroupableEvent::Leftover(text.clone()), Some(*host), None),
            _ => {}
        }
    }
}

impl<O: LineOutput> ReportSink for PlainSink<O> {
    fn on_event(&mut self, event: &Event, state: &RunState) -> io::Result<()> {
        self.tick(event.at, state)?;
        self.handle_immediate(event, state)?;
        self.queue_groupable(event, state);
        self.tick(event.at, state)
    }

    fn tick(&mut self, now: UnixMillis, state: &RunState) -> io::Result<()> {
        self.write_logs(false, now, state)?;
        let unreachable = |group: &EventGroup| matches!(group.event, GroupableEvent::HostLost { retrying: false, .. });
        let window = if !self.connecting_hosts.is_empty() && self.pending_groups.iter().all(unreachable) {
            UNREACHABLE_WINDOW_MS
        } else {
            GROUPING_WINDOW_MS
        };
        if !self.pending_groups.is_empty() && now - self.pending_since >= window {
            self.flush_pending(state)?;
        }
        self.out.flush()
    }

    fn finish(&mut self, state: &RunState) -> io::Result<()> {
        self.write_logs(true, state.last_event_at, state)?;
        self.flush_pending(state)?;
        self.out.flush()
    }
}

#[cfg(test)]
#[path = "plain_tests.rs"]
mod tests;
