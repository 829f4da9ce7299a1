//! Plain lines, for CI logs and terminals without bars. One line per phase; equal events of several hosts are one line.
//!
//! All times come from the events, so a journal replays to the same lines.

mod grouping;
mod phase_lines;

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use crate::diagnose::advice_formatter::AdviceFormatter;
use crate::event::{Event, EventKind, Hang, Phase, RunGoal, UnixMillis};
use crate::state::RunState;

use super::ReportSink;
use super::finding;
use super::groupable_event::GroupableEvent;
use super::line_writer::LineOutput;
use super::log_lines::{LogLineMerger, LogSelection};
use super::style::{self, TextStyle, Tone};
use crate::text::sanitize::Sanitizer;
use crate::text::translation::Lang;
use crate::text::width::{pad_end, wrap_indented};

/// The longest name of a phase, `requirements`.
const PHASE_COLUMNS: usize = 12;
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
    /// When the first of them happened, on the laptop's clock.
    happened_at: UnixMillis,
}

/// A phase whose steps have begun to end.
#[derive(Debug, Default)]
struct PhaseTally {
    started_at: Option<UnixMillis>,
    /// The name of the task, where the phase is one.
    task: String,
    open_steps: usize,
}

/// How lines look, and which logs are shown; by default those of the main rank.
#[derive(Clone, Default)]
pub(crate) struct PlainSettings {
    pub(crate) sanitizer: Sanitizer,
    pub(crate) style: TextStyle,
    /// For log lines, which may go to another output.
    pub(crate) log_style: TextStyle,
    pub(crate) lang: Lang,
    /// Breaks status lines, but not log lines, at the terminal's columns; `None`: not.
    pub(crate) columns: Option<usize>,
    /// The inventory and flags that suggested commands need.
    pub(crate) advice: AdviceFormatter,
    pub(crate) logs: LogSelection,
    /// How many of the lines that a log has when this command attaches are shown; `None`: all.
    pub(crate) history_lines: Option<usize>,
}

pub(crate) struct PlainSink<O> {
    out: O,
    pub(super) settings: PlainSettings,
    log_filter: LogLineMerger,
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
    pub(crate) fn new(out: O, settings: PlainSettings) -> Self {
        PlainSink {
            out,
            log_filter: LogLineMerger::new(settings.logs.clone()),
            settings,
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

    pub(crate) fn output(&mut self) -> &mut O {
        &mut self.out
    }

    fn write_line(&mut self, tone: Tone, text: &str) -> io::Result<()> {
        let Some(columns) = self.settings.columns else { return self.out.write_line(&self.settings.style.paint(tone, text)) };
        let lines = wrap_indented(text, columns);
        lines.iter().try_for_each(|line| self.out.write_line(&self.settings.style.paint(tone, line)))
    }

    fn write_logs(&mut self, all: bool, now: UnixMillis, state: &RunState) -> io::Result<()> {
        let lines = if all {
            self.log_filter.flush_partial_lines(now);
            self.log_filter.take_all(state, &self.settings.sanitizer, self.settings.log_style)
        } else {
            self.log_filter.take_due(now, state, &self.settings.sanitizer, self.settings.log_style)
        };
        if !lines.is_empty() && self.log_filter.take_cut_history() {
            let all = self.settings.advice.format_run_command("logs", "");
            let text = self.settings.lang.tr_fill("earlier log lines are not shown: `{}` prints all, `--tail N` shows more", &[&all]);
            self.write_line(Tone::Dim, &text)?;
        }
        lines.iter().try_for_each(|line| self.out.write_log_line(line))
    }

    fn write_goal(&mut self, goal: RunGoal, reason: &str, state: &RunState) -> io::Result<()> {
        let lang = self.settings.lang;
        let (tone, text) = match goal {
            RunGoal::Up if state.info.command == "prepare" => (Tone::Plain, lang.tr("running the tasks")),
            RunGoal::Up => (Tone::Plain, lang.tr("launching")),
            RunGoal::Stop => (Tone::Warn, lang.tr("stopping all ranks")),
            RunGoal::Kill => (Tone::Bad, lang.tr("killing what still runs")),
            RunGoal::Down => (Tone::Plain, lang.tr("tearing down")),
        };
        let reason = self.settings.sanitizer.sanitize_line(reason);
        let reason = lang.message(&reason);
        self.write_line(tone, &if reason.is_empty() { text.to_owned() } else { format!("{text}{}{reason}", lang.colon()) })
    }

    fn write_ready(&mut self, state: &RunState) -> io::Result<()> {
        let hosts: BTreeSet<u32> = state.ranks.values().map(|rank| rank.host).collect();
        // Of a run that was launched before this command began, its age.
        let earlier = state.run_started_at().filter(|started| state.first_event_at.is_some_and(|first| *started < first));
        let duration = match earlier {
            Some(started) => self.settings.lang.tr_fill("ranks running for {}", &[&style::format_duration(state.last_event_at - started)]),
            None => self.settings.lang.tr_fill("after {}", &[&style::format_duration(state.elapsed())]),
        };
        let text = self.settings.lang.tr_fill(
            "{} on {} ({})",
            &[&self.settings.lang.count(state.ranks.len(), "rank"), &self.settings.lang.count(hosts.len(), "host"), &duration],
        );
        let text = format!("{} {text}", pad_end(self.settings.lang.tr("ready"), PHASE_COLUMNS));
        self.write_line(Tone::Ok, &text)?;
        if self.settings.logs != LogSelection::MainRank || state.ranks.len() < 2 {
            return Ok(());
        }
        let follow = self.settings.advice.format_run_command("logs", "-f");
        self.write_line(
            Tone::Dim,
            &self.settings.lang.tr_fill("             shown: rank 0 and the errors of the others; every rank: `{}`", &[&follow]),
        )?;
        let text = match (state.info.command.as_str(), earlier) {
            ("up", None) => {
                self.settings.lang.tr("             Ctrl-C stops this run; `up -d` starts one that keeps running after the command ends")
            }
            ("up" | "attach", _) => self.settings.lang.tr("             Ctrl-C detaches: the run keeps running"),
            _ => return Ok(()),
        };
        self.write_line(Tone::Dim, text)
    }

    fn write_first_failure(&mut self, ranks: &[u32], hosts: &[u32], state: &RunState) -> io::Result<()> {
        let hosts = style::format_hosts(state, &self.settings.sanitizer, hosts);
        let text = match ranks {
            [] => self.settings.lang.tr_fill("first to fail: the launcher on {}", &[&hosts]),
            _ => self.settings.lang.tr_fill("first to fail: {} on {}", &[&style::format_ranks(ranks), &hosts]),
        };
        self.write_line(Tone::Bad, &text)
    }

    fn write_hang(&mut self, hang: &Hang, at: UnixMillis, state: &RunState) -> io::Result<()> {
        let text = self.settings.lang.message(&finding::describe_hang(hang, at, state, &self.settings.sanitizer)).into_owned();
        self.write_line(Tone::Warn, &format!("{} {text}", self.settings.lang.tr("HANG")))?;
        for line in &hang.evidence {
            let text = self.settings.lang.message(&self.settings.sanitizer.sanitize_line(line)).into_owned();
            self.write_line(Tone::Plain, &format!("  | {text}"))?;
        }
        let hint = HANG_HINT_COMMANDS.map(|verb| self.settings.advice.format_run_command(verb, "")).join("; ");
        self.write_line(Tone::Plain, &format!("  {}", self.settings.lang.tr_fill("help: {}", &[&hint])))
    }

    /// Handles events that print at once, after all pending lines.
    fn handle_immediate(&mut self, event: &Event, state: &RunState) -> io::Result<()> {
        match &event.kind {
            EventKind::RunStarted(info) => self.on_run_started(info, state),
            EventKind::PhaseStarted { phase } => {
                let before: Vec<Phase> =
                    self.phases.iter().filter(|(p, tally)| *p != phase && tally.started_at.is_some()).map(|(p, _)| *p).collect();
                before.into_iter().try_for_each(|phase| self.write_phase_line(phase, event.at, state))?;
                match self.phases.get_mut(phase) {
                    Some(tally) => _ = tally.started_at.get_or_insert(event.at),
                    None if *phase == Phase::Preflight => self.checks_started_at = Some(event.at),
                    None => {}
                }
                Ok(())
            }
            EventKind::StepSatisfied { step, .. } | EventKind::StepDone { step, .. } | EventKind::StepSkipped { step, .. } => {
                self.on_step_ended(*step, event.at, state)
            }
            EventKind::StepFailed { step, error, hint, .. } => {
                self.queue_step_failed(*step, (error, hint), event.at, state);
                self.on_step_ended(*step, event.at, state)
            }
            EventKind::Ready => self.flush_pending(state).and_then(|()| self.write_ready(state)),
            EventKind::Culprit { ranks, hosts } => self.flush_pending(state).and_then(|()| self.write_first_failure(ranks, hosts, state)),
            EventKind::Hang(hang) => self.flush_pending(state).and_then(|()| self.write_hang(hang, event.at, state)),
            EventKind::HangEnded => self
                .flush_pending(state)
                .and_then(|()| self.write_line(Tone::Ok, self.settings.lang.tr("the run is making progress again"))),
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
                self.log_filter.limit_history(self.settings.history_lines);
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
