//! Bars on a terminal: one a host, capped at the terminal's height, beneath the lines that `line` prints.
//!
//! Uses `event`, `state` and its neighbours; the only door to indicatif. Belongs on a thread of its own (`aside`): drawing may wait.

use std::io;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::diagnose::command_formatter::CommandFormatter;
use crate::event::{Event, EventKind, Phase, UnixMillis};
use crate::model::step_status::StepStatus;
use crate::state::{ConnectionStatus, HostState, RunState, StepState};

use super::ReportSink;
use super::log_lines::LogSelection;
use super::plain::PlainSink;
use super::style::{self, TextStyle, Tone, truncate_text};
use crate::text::sanitize::Sanitizer;

/// How often rows are worked out anew, in the time of the events.
const REDRAW_INTERVAL_MS: i64 = 100;
/// How wide a bar is.
const BAR_WIDTH: usize = 12;
/// GPU values older than this are not shown.
const GPU_STALE_MS: i64 = 30_000;
/// The lines of the terminal that stay free of bars.
const RESERVED_LINES: usize = 4;

/// Rows and columns of a terminal.
pub(crate) type TerminalSizeFn = Box<dyn Fn() -> (usize, usize) + Send>;

pub(crate) struct ProgressBars {
    multi: MultiProgress,
    header: ProgressBar,
    rows: Vec<ProgressBar>,
    plain_sink: PlainSink<Vec<String>>,
    sanitizer: Sanitizer,
    style: TextStyle,
    terminal_size: TerminalSizeFn,
    last_draw: Option<UnixMillis>,
    dirty: bool,
}

impl ProgressBars {
    pub(crate) fn stderr(sanitizer: Sanitizer, style: TextStyle, logs: LogSelection) -> Self {
        let size = || match rustix::termios::tcgetwinsize(io::stderr()) {
            Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (usize::from(size.ws_row), usize::from(size.ws_col)),
            _ => (24, 80),
        };
        Self::new(ProgressDrawTarget::stderr(), Box::new(size), sanitizer, style, logs)
    }

    pub(crate) fn new(
        target: ProgressDrawTarget,
        size: TerminalSizeFn,
        sanitizer: Sanitizer,
        style: TextStyle,
        logs: LogSelection,
    ) -> Self {
        let multi = MultiProgress::with_draw_target(target);
        let head = multi.add(ProgressBar::new_spinner());
        if let Ok(look) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            head.set_style(look.tick_chars("|/-\\ "));
        }
        head.enable_steady_tick(Duration::from_millis(200));
        let lines = PlainSink::new(Vec::new(), sanitizer.clone(), style, logs);
        ProgressBars {
            multi,
            header: head,
            rows: Vec::new(),
            plain_sink: lines,
            sanitizer,
            style,
            terminal_size: size,
            last_draw: None,
            dirty: true,
        }
    }

    /// Advises commands as the person has to type them.
    #[must_use]
    pub(crate) fn with_advice(self, advice: CommandFormatter) -> Self {
        ProgressBars { plain_sink: self.plain_sink.with_advice(advice), ..self }
    }

    /// Moves the lines above the bars.
    fn print_lines(&mut self) -> io::Result<()> {
        let lines = std::mem::take(self.plain_sink.output());
        if lines.is_empty() { Ok(()) } else { self.multi.println(self.sanitizer.to_printable(&lines.join("\n")).as_str()) }
    }

    fn draw(&mut self, now: UnixMillis, state: &RunState) {
        let soon = self.last_draw.is_some_and(|drawn| now - drawn < REDRAW_INTERVAL_MS);
        if !self.dirty || soon {
            return;
        }
        (self.dirty, self.last_draw) = (false, Some(now));
        let (height, width) = (self.terminal_size)();
        let head = truncate_text(&header_text(state, &self.sanitizer), width.saturating_sub(12));
        self.header.set_message(self.sanitizer.to_printable(&head).as_str().to_owned());
        let texts = host_rows(state, &self.sanitizer, self.style, height.saturating_sub(RESERVED_LINES), width, now);
        while self.rows.len() > texts.len() {
            if let Some(row) = self.rows.pop() {
                row.finish_and_clear();
                self.multi.remove(&row);
            }
        }
        while self.rows.len() < texts.len() {
            let row = self.multi.add(ProgressBar::no_length());
            if let Ok(look) = ProgressStyle::with_template("{msg}") {
                row.set_style(look);
            }
            self.rows.push(row);
        }
        for (row, text) in self.rows.iter().zip(texts) {
            let text = self.sanitizer.to_printable(&text);
            if row.message() != text.as_str() {
                row.set_message(text.as_str().to_owned());
            }
        }
    }
}

impl ReportSink for ProgressBars {
    fn on_event(&mut self, event: &Event, state: &RunState) -> io::Result<()> {
        self.plain_sink.on_event(event, state)?;
        self.print_lines()?;
        self.dirty |= !matches!(event.kind, EventKind::Log { .. });
        self.draw(event.at, state);
        Ok(())
    }

    fn tick(&mut self, now: UnixMillis, state: &RunState) -> io::Result<()> {
        self.plain_sink.tick(now, state)?;
        self.print_lines()?;
        self.draw(now, state);
        Ok(())
    }

    fn finish(&mut self, state: &RunState) -> io::Result<()> {
        self.plain_sink.finish(state)?;
        self.print_lines()?;
        self.header.finish_and_clear();
        self.rows.drain(..).for_each(|row| row.finish_and_clear());
        self.multi.clear()
    }
}

/// The first line: what is under way.
fn header_text(state: &RunState, sanitizer: &Sanitizer) -> String {
    let title = style::run_title(&state.info, sanitizer);
    let counts = state.rank_counts();
    let doing = match state.current_phase() {
        _ if counts.running > 0 && state.stopping_since.is_none() => {
            format!("{} of {} running", style::count_noun(counts.running, "rank"), state.ranks.len())
        }
        Some(phase) => format!("{} {}", phase.name(), phase_progress(state, phase)),
        None => "connect".to_owned(),
    };
    format!("{title}  {doing}")
}

fn phase_progress(state: &RunState, phase: Phase) -> String {
    let (ended, all) =
        state.step_tracker.steps_in_phase(phase).fold((0, 0), |(ended, all), step| (ended + usize::from(step.status.has_ended()), all + 1));
    if all == 0 { String::new() } else { format!("{ended}/{all}") }
}

/// What a host's steps amount to.
#[derive(Default, Clone, Copy)]
struct HostProgress<'a> {
    ended_steps: usize,
    total_steps: usize,
    failed_step: Option<&'a StepState>,
    running_step: Option<&'a StepState>,
}

/// One row a host, at most `room` of them; the rest is one row. What is wrong and what is under way comes before the rest.
fn host_rows(state: &RunState, sanitizer: &Sanitizer, style: TextStyle, room: usize, width: usize, now: UnixMillis) -> Vec<String> {
    let mut sums = vec![HostProgress::default(); state.hosts.len()];
    for step in state.step_tracker.steps() {
        let Some(sum) = sums.get_mut(step.info.host as usize) else { continue };
        sum.total_steps += 1;
        sum.ended_steps += usize::from(step.status.has_ended());
        match step.status {
            StepStatus::Failed => sum.failed_step = Some(step),
            StepStatus::Running => sum.running_step = Some(step),
            StepStatus::Waiting | StepStatus::Done | StepStatus::Satisfied => {}
        }
    }
    let mut order: Vec<usize> = (0..sums.len()).collect();
    let mut rest = Vec::new();
    if sums.len() > room.max(1) {
        let dull = |at: &usize| (!has_problem(&state.hosts[*at], &sums[*at]), sums[*at].running_step.is_none(), *at);
        order.sort_by_key(dull);
        rest = order.split_off(room.max(1) - 1);
        order.sort_unstable();
    }
    let name = order.iter().map(|at| sanitizer.sanitize_line(&state.hosts[*at].name).chars().count()).max().unwrap_or(0).min(24);
    let mut texts: Vec<String> = order.iter().map(|at| host_row(state, *at, &sums[*at], (name, width), sanitizer, style, now)).collect();
    if !rest.is_empty() {
        let done = rest.iter().filter(|at| sums[**at].ended_steps == sums[**at].total_steps).count();
        let bad = rest.iter().filter(|at| has_problem(&state.hosts[**at], &sums[**at])).count();
        let bad = if bad > 0 { format!(", {bad} failed") } else { String::new() };
        texts
            .push(truncate_text(&format!("  … {}: {done} done{bad}", style::count_noun(rest.len(), "more host")), width.saturating_sub(1)));
    }
    texts
}

fn has_problem(host: &HostState, progress: &HostProgress<'_>) -> bool {
    progress.failed_step.is_some() || matches!(host.connection_status, ConnectionStatus::Unreachable | ConnectionStatus::Retrying)
}

fn host_row(
    state: &RunState,
    at: usize,
    progress: &HostProgress<'_>,
    (name, width): (usize, usize),
    sanitizer: &Sanitizer,
    style: TextStyle,
    now: UnixMillis,
) -> String {
    let host = &state.hosts[at];
    let full = (progress.ended_steps * BAR_WIDTH).checked_div(progress.total_steps).unwrap_or(0);
    let bar = format!("{}{}", "#".repeat(full), "-".repeat(BAR_WIDTH - full));
    let (role, text) = host_activity(state, at, progress, sanitizer, now);
    let room = width.saturating_sub(name + BAR_WIDTH + 7);
    format!(
        "  {:<name$} [{bar}] {}",
        truncate_text(&sanitizer.sanitize_line(&host.name), name.max(1)),
        style.paint(role, &truncate_text(&text, room))
    )
}

fn host_activity(state: &RunState, at: usize, progress: &HostProgress<'_>, sanitizer: &Sanitizer, now: UnixMillis) -> (Tone, String) {
    let host = &state.hosts[at];
    match host.connection_status {
        ConnectionStatus::Unreachable => return (Tone::Bad, format!("UNREACHABLE {}", sanitizer.sanitize_line(&host.connection_error))),
        ConnectionStatus::Retrying => {
            return (Tone::Warn, format!("no connection, trying again: {}", sanitizer.sanitize_line(&host.connection_error)));
        }
        ConnectionStatus::Unknown | ConnectionStatus::Connecting | ConnectionStatus::Connected => {}
    }
    if let Some(step) = progress.failed_step {
        return (Tone::Bad, format!("FAILED {}: {}", step.info.phase.name(), sanitizer.sanitize_line(&step.note)));
    }
    if let Some(step) = progress.running_step {
        let again = if step.retries > 0 { format!(" (attempt {})", step.retries + 1) } else { String::new() };
        return (Tone::Plain, format!("{}{again}", sanitizer.sanitize_line(&step.info.title)));
    }
    let ranks = state.ranks.values().filter(|rank| rank.host as usize == at);
    let running = ranks.filter(|rank| rank.started_at.is_some() && rank.exit.is_none()).count();
    match (running, host.launcher_exit, host.connection_status) {
        (1.., _, _) => (Tone::Ok, format!("{} running{}", style::count_noun(running, "rank"), gpu_utilization(host, now))),
        (0, Some((exit, _)), _) if exit.is_success() => (Tone::Ok, "ended well".to_owned()),
        (0, Some((exit, _)), _) => (Tone::Bad, style::format_exit(exit)),
        (0, None, ConnectionStatus::Connecting) => (Tone::Dim, "connecting".to_owned()),
        (0, None, _) if progress.total_steps > 0 && progress.ended_steps == progress.total_steps => (Tone::Ok, "done".to_owned()),
        (0, None, _) => (Tone::Dim, "waiting".to_owned()),
    }
}

/// `  GPUs 87 %`, where the values are fresh.
fn gpu_utilization(host: &HostState, now: UnixMillis) -> String {
    let known: Vec<f32> = host.gpus.iter().filter_map(|gpu| gpu.utilization).collect();
    if known.is_empty() || now - host.gpus_at > GPU_STALE_MS {
        return String::new();
    }
    // At most 256 GPUs: the count is exact.
    #[expect(clippy::cast_precision_loss, reason = "a few hundred at most")]
    let mean = known.iter().sum::<f32>() / known.len() as f32;
    format!("  GPUs {mean:.0} %")
}

#[cfg(test)]
#[path = "progress_bars_tests.rs"]
mod tests;
