//! Progress bars on a terminal, one per host up to the terminal's height, below the lines of `plain`.
//!
//! Drawing may block, so this sink belongs on its own thread (`threaded_sink`).

use std::io;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::diagnose::command_formatter::CommandFormatter;
use crate::event::{Event, EventKind, Phase, UnixMillis};
use crate::model::step_status::StepStatus;
use crate::state::{ConnectionStatus, HostState, RunState, StepState};

use super::ReportSink;
use super::line_writer::{LineOutput, SplitLineOutput};
use super::log_lines::LogSelection;
use super::plain::PlainSink;
use super::style::{self, TextStyle, Tone, truncate_text};
use crate::text::sanitize::Sanitizer;

/// The minimum time between redraws, in the time of the events.
const REDRAW_INTERVAL_MS: i64 = 100;
const BAR_WIDTH: usize = 12;
/// GPU values older than this are not shown.
const GPU_STALE_MS: i64 = 30_000;
/// Terminal lines that are kept free of bars.
const RESERVED_LINES: usize = 4;

/// Returns rows and columns.
pub(crate) type TerminalSizeFn = Box<dyn Fn() -> (usize, usize) + Send>;

/// The lines above the bars, and log lines where they go elsewhere.
type BarLines = SplitLineOutput<Vec<String>>;

pub(crate) struct ProgressBars {
    multi: MultiProgress,
    header: ProgressBar,
    rows: Vec<ProgressBar>,
    plain_sink: PlainSink<BarLines>,
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
        let header = multi.add(ProgressBar::new_spinner());
        if let Ok(template) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            header.set_style(template.tick_chars("|/-\\ "));
        }
        header.enable_steady_tick(Duration::from_millis(200));
        let plain_sink = PlainSink::new(SplitLineOutput::new(Vec::new(), None), sanitizer.clone(), style, logs);
        ProgressBars { multi, header, rows: Vec::new(), plain_sink, sanitizer, style, terminal_size: size, last_draw: None, dirty: true }
    }

    /// Sets the inventory and flags that suggested commands need.
    #[must_use]
    pub(crate) fn with_advice(self, advice: CommandFormatter) -> Self {
        ProgressBars { plain_sink: self.plain_sink.with_advice(advice), ..self }
    }

    /// Of a run that this command attaches to, shows only the last lines of each log.
    #[must_use]
    pub(crate) fn with_history(self, history_lines: Option<usize>) -> Self {
        ProgressBars { plain_sink: self.plain_sink.with_history(history_lines), ..self }
    }

    /// Writes log lines there instead of above the bars.
    #[must_use]
    pub(crate) fn with_log_output(mut self, logs: Box<dyn LineOutput>, log_style: TextStyle) -> Self {
        *self.plain_sink.output() = SplitLineOutput::new(Vec::new(), Some(logs));
        ProgressBars { plain_sink: self.plain_sink.with_log_style(log_style), ..self }
    }

    /// Prints the pending plain lines above the bars.
    fn print_lines(&mut self) -> io::Result<()> {
        let lines = std::mem::take(self.plain_sink.output().talk());
        if lines.is_empty() { Ok(()) } else { self.multi.println(self.sanitizer.to_printable(&lines.join("\n")).as_str()) }
    }

    fn draw(&mut self, now: UnixMillis, state: &RunState) {
        let too_soon = self.last_draw.is_some_and(|last| now - last < REDRAW_INTERVAL_MS);
        if !self.dirty || too_soon {
            return;
        }
        (self.dirty, self.last_draw) = (false, Some(now));
        let (height, width) = (self.terminal_size)();
        let header = truncate_text(&header_text(state, &self.sanitizer), width.saturating_sub(12));
        self.header.set_message(self.sanitizer.to_printable(&header).as_str().to_owned());
        let texts = host_rows(state, &self.sanitizer, self.style, height.saturating_sub(RESERVED_LINES), width, now);
        while self.rows.len() > texts.len() {
            if let Some(row) = self.rows.pop() {
                row.finish_and_clear();
                self.multi.remove(&row);
            }
        }
        while self.rows.len() < texts.len() {
            let row = self.multi.add(ProgressBar::no_length());
            if let Ok(template) = ProgressStyle::with_template("{msg}") {
                row.set_style(template);
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

/// The first line: the command and its progress.
fn header_text(state: &RunState, sanitizer: &Sanitizer) -> String {
    let title = style::run_title(&state.info, sanitizer);
    let counts = state.rank_counts();
    let progress = match state.current_phase() {
        _ if counts.running > 0 && state.stopping_since.is_none() => {
            format!("{} of {} running", style::count_noun(counts.running, "rank"), state.ranks.len())
        }
        Some(phase) => format!("{} {}", phase.name(), phase_progress(state, phase)),
        None => "connect".to_owned(),
    };
    format!("{title}  {progress}")
}

fn phase_progress(state: &RunState, phase: Phase) -> String {
    let (ended, all) =
        state.step_tracker.steps_in_phase(phase).fold((0, 0), |(ended, all), step| (ended + usize::from(step.status.has_ended()), all + 1));
    if all == 0 { String::new() } else { format!("{ended}/{all}") }
}

/// A summary of a host's steps.
#[derive(Default, Clone, Copy)]
struct HostProgress<'a> {
    ended_steps: usize,
    total_steps: usize,
    failed_step: Option<&'a StepState>,
    running_step: Option<&'a StepState>,
}

/// At most `max_rows` rows, one per host; the last row sums up the rest. The words are those of the dashboard. Hosts with problems or running steps take precedence.
fn host_rows(state: &RunState, sanitizer: &Sanitizer, style: TextStyle, max_rows: usize, width: usize, now: UnixMillis) -> Vec<String> {
    let mut progress = vec![HostProgress::default(); state.hosts.len()];
    for step in state.step_tracker.steps() {
        let Some(host) = progress.get_mut(step.info.host as usize) else { continue };
        host.total_steps += 1;
        host.ended_steps += usize::from(step.status.has_ended());
        match step.status {
            StepStatus::Failed => host.failed_step = Some(step),
            StepStatus::Running => host.running_step = Some(step),
            StepStatus::Waiting | StepStatus::Done | StepStatus::Satisfied | StepStatus::Skipped => {}
        }
    }
    let mut order: Vec<usize> = (0..progress.len()).collect();
    let mut rest = Vec::new();
    if max_rows == 0 {
        return Vec::new();
    }
    if progress.len() > max_rows {
        let priority = |at: &usize| (!has_problem(&state.hosts[*at], &progress[*at]), progress[*at].running_step.is_none(), *at);
        order.sort_by_key(priority);
        rest = order.split_off(max_rows - 1);
        order.sort_unstable();
    }
    let name_width = order.iter().map(|at| sanitizer.sanitize_line(&state.hosts[*at].name).chars().count()).max().unwrap_or(0).min(24);
    let mut texts: Vec<String> =
        order.iter().map(|at| host_row(state, *at, &progress[*at], (name_width, width), sanitizer, style, now)).collect();
    if !rest.is_empty() {
        let done = rest.iter().filter(|at| progress[**at].ended_steps == progress[**at].total_steps).count();
        let failed = rest.iter().filter(|at| has_problem(&state.hosts[**at], &progress[**at])).count();
        let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
        let summary = format!("  … {}: {done} done{failed}", style::count_noun(rest.len(), "more host"));
        texts.push(truncate_text(&summary, width.saturating_sub(1)));
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
    (name_width, width): (usize, usize),
    sanitizer: &Sanitizer,
    style: TextStyle,
    now: UnixMillis,
) -> String {
    let host = &state.hosts[at];
    let filled = (progress.ended_steps * BAR_WIDTH).checked_div(progress.total_steps).unwrap_or(0);
    let bar = format!("{}{}", "#".repeat(filled), "-".repeat(BAR_WIDTH - filled));
    let (tone, text) = host_activity(state, at, progress, sanitizer, now);
    let text_width = width.saturating_sub(name_width + BAR_WIDTH + 7);
    format!(
        "  {:<name_width$} [{bar}] {}",
        truncate_text(&sanitizer.sanitize_line(&host.name), name_width.max(1)),
        style.paint(tone, &truncate_text(&text, text_width))
    )
}

fn host_activity(state: &RunState, at: usize, progress: &HostProgress<'_>, sanitizer: &Sanitizer, now: UnixMillis) -> (Tone, String) {
    let host = &state.hosts[at];
    match host.connection_status {
        ConnectionStatus::Unreachable => return (Tone::Bad, format!("? unreachable: {}", sanitizer.sanitize_line(&host.connection_error))),
        ConnectionStatus::Retrying => {
            return (Tone::Warn, format!("? no connection, retrying: {}", sanitizer.sanitize_line(&host.connection_error)));
        }
        ConnectionStatus::Unknown | ConnectionStatus::Connecting | ConnectionStatus::Connected => {}
    }
    if let Some(step) = progress.failed_step {
        return (Tone::Bad, format!("✗ {}: {}", step.info.phase.name(), sanitizer.sanitize_line(&step.note)));
    }
    if let Some(step) = progress.running_step {
        let attempt = if step.retries > 0 { format!(" (attempt {})", step.retries + 1) } else { String::new() };
        return (Tone::Plain, format!("● {}{attempt}", sanitizer.sanitize_line(&step.info.title)));
    }
    let ranks = state.ranks.values().filter(|rank| rank.host as usize == at);
    let running = ranks.filter(|rank| rank.started_at.is_some() && rank.exit.is_none()).count();
    match (running, host.launcher_exit, host.connection_status) {
        (1.., _, _) => (Tone::Ok, format!("● {} running{}", style::count_noun(running, "rank"), gpu_utilization(host, now))),
        (0, Some((exit, _)), _) if exit.is_success() => (Tone::Ok, "✓ ended".to_owned()),
        (0, Some(_), _) if host.launcher_was_stopped => (Tone::Warn, "▲ stopped".to_owned()),
        (0, Some((exit, _)), _) => (Tone::Bad, format!("✗ launcher: {}", style::format_exit(exit))),
        (0, None, ConnectionStatus::Connecting) => (Tone::Dim, "● connecting".to_owned()),
        (0, None, _) if progress.total_steps > 0 && progress.ended_steps == progress.total_steps => (Tone::Ok, "✓ done".to_owned()),
        (0, None, _) => (Tone::Dim, "· waiting".to_owned()),
    }
}

/// `  GPUs 87%` if the values are recent, else empty.
fn gpu_utilization(host: &HostState, now: UnixMillis) -> String {
    let known: Vec<f32> = host.gpus.iter().filter_map(|gpu| gpu.utilization).collect();
    if known.is_empty() || now - host.gpus_at > GPU_STALE_MS {
        return String::new();
    }

    #[expect(clippy::cast_precision_loss, reason = "a few hundred at most")]
    let mean = known.iter().sum::<f32>() / known.len() as f32;
    format!("  GPUs {mean:.0}%")
}

#[cfg(test)]
#[path = "progress_bars_tests.rs"]
mod tests;
