//! Progress bars on a terminal, one per host up to the terminal's height, below the lines of `plain`.
//!
//! Drawing may block: `threaded_sink` puts a queue between the sink, which makes the texts, and the terminal.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::event::{Event, EventKind, UnixMillis};
use crate::state::RunState;
use crate::text::sanitize::{PrintableText, Sanitizer};

use super::ReportSink;
use super::host_rows::{HostRows, header_text};
use super::line_writer::{BarTexts, LineOutput};
use super::plain::{PlainSettings, PlainSink};
use super::style::truncate_text;

/// The minimum time between redraws, in the time of the events.
const REDRAW_INTERVAL_MS: i64 = 100;
/// Terminal lines that are kept free of bars.
const RESERVED_LINES: usize = 4;

/// The bars on standard error while they are drawn, and the modes that the terminal had before.
static DRAWN: Mutex<Option<(MultiProgress, Option<Termios>)>> = Mutex::new(None);

/// Prints a message of another place above the bars, which would draw over it; `false`: none are drawn, or this thread panics: then indicatif draws
/// nothing, and may hold its own lock.
pub(crate) fn print_above_bars(text: &PrintableText) -> bool {
    if std::thread::panicking() {
        return false;
    }
    let drawn = DRAWN.lock().unwrap_or_else(PoisonError::into_inner);
    drawn.as_ref().is_some_and(|(bars, _)| bars.println(text.as_str()).is_ok())
}

/// The echo of Ctrl-C would move the cursor, and the next drawing leave old bars behind. Returns the modes before.
fn hide_control_echo() -> Option<Termios> {
    if !is_in_foreground() {
        return None;
    }
    let before = tcgetattr(io::stderr()).ok()?;
    let mut modes = before.clone();
    modes.local_modes.remove(LocalModes::ECHOCTL);
    tcsetattr(io::stderr(), OptionalActions::Now, &modes).ok().map(|()| before)
}

/// Whether this process may change the terminal's modes: the kernel stops a background job that does.
fn is_in_foreground() -> bool {
    rustix::termios::tcgetpgrp(io::stderr()).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// Forgets the bars, and gives the terminal its modes back; does nothing a second time.
pub(crate) fn release_terminal() {
    // The lock is free again before anything is logged.
    let drawn = DRAWN.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((_, Some(before))) = drawn
        && is_in_foreground()
        && let Err(error) = tcsetattr(io::stderr(), OptionalActions::Now, &before)
    {
        tracing::debug!(%error, "the terminal's modes could not be restored");
    }
}

/// Returns rows and columns.
pub(crate) type TerminalSizeFn = Box<dyn Fn() -> (usize, usize) + Send>;

/// Makes the lines and the texts of the bars.
pub(crate) struct ProgressBars<O> {
    plain_sink: PlainSink<O>,
    terminal_size: TerminalSizeFn,
    last_draw: Option<UnixMillis>,
    dirty: bool,
}

/// The size of the terminal on standard error.
pub(crate) fn stderr_size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(io::stderr()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (usize::from(size.ws_row), usize::from(size.ws_col)),
        _ => (24, 80),
    }
}

impl<O: LineOutput> ProgressBars<O> {
    pub(crate) fn new(out: O, size: TerminalSizeFn, settings: PlainSettings) -> Self {
        let plain_sink = PlainSink::new(out, PlainSettings { columns: Some(size().1), ..settings });
        ProgressBars { plain_sink, terminal_size: size, last_draw: None, dirty: true }
    }

    fn draw(&mut self, now: UnixMillis, state: &RunState) -> io::Result<()> {
        let too_soon = self.last_draw.is_some_and(|last| now - last < REDRAW_INTERVAL_MS);
        if !self.dirty || too_soon {
            return Ok(());
        }
        (self.dirty, self.last_draw) = (false, Some(now));
        let (height, width) = (self.terminal_size)();
        let PlainSettings { ref sanitizer, style, lang, .. } = self.plain_sink.settings;
        let header = truncate_text(&header_text(state, sanitizer, lang), width.saturating_sub(12));
        let rows = HostRows { state, sanitizer, style, width, now, lang };
        let rows = rows.format(height.saturating_sub(RESERVED_LINES));
        self.plain_sink.output().draw_bars(&BarTexts { header, rows })
    }
}

impl<O: LineOutput> ReportSink for ProgressBars<O> {
    fn on_event(&mut self, event: &Event, state: &RunState) -> io::Result<()> {
        self.plain_sink.on_event(event, state)?;
        self.dirty |= !matches!(event.kind, EventKind::Log { .. });
        self.draw(event.at, state)
    }

    fn tick(&mut self, now: UnixMillis, state: &RunState) -> io::Result<()> {
        self.plain_sink.tick(now, state)?;
        self.draw(now, state)
    }

    fn finish(&mut self, state: &RunState) -> io::Result<()> {
        self.plain_sink.finish(state)
    }
}

/// The bars as indicatif draws them, with lines above.
pub(crate) struct BarTerminal {
    multi: MultiProgress,
    header: ProgressBar,
    rows: Vec<ProgressBar>,
    /// Lines to print above the bars.
    pending_lines: Vec<String>,
    sanitizer: Sanitizer,
}

impl BarTerminal {
    pub(crate) fn stderr(sanitizer: Sanitizer) -> Self {
        let terminal = Self::new(ProgressDrawTarget::stderr(), sanitizer);
        *DRAWN.lock().unwrap_or_else(PoisonError::into_inner) = Some((terminal.multi.clone(), hide_control_echo()));
        terminal
    }

    pub(crate) fn new(target: ProgressDrawTarget, sanitizer: Sanitizer) -> Self {
        let multi = MultiProgress::with_draw_target(target);
        let header = multi.add(ProgressBar::new_spinner());
        if let Ok(template) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            header.set_style(template.tick_chars("|/-\\ "));
        }
        BarTerminal { multi, header, rows: Vec::new(), pending_lines: Vec::new(), sanitizer }
    }
}

impl LineOutput for BarTerminal {
    fn write_line(&mut self, text: &str) -> io::Result<()> {
        self.pending_lines.push(text.to_owned());
        Ok(())
    }

    fn draw_bars(&mut self, bars: &BarTexts) -> io::Result<()> {
        self.flush()?;
        // A tick draws: it begins when there is something to draw.
        if self.header.message().is_empty() {
            self.header.enable_steady_tick(Duration::from_millis(200));
        }
        self.header.set_message(self.sanitizer.to_printable(&bars.header).as_str().to_owned());
        while self.rows.len() > bars.rows.len() {
            if let Some(row) = self.rows.pop() {
                row.finish_and_clear();
                self.multi.remove(&row);
            }
        }
        while self.rows.len() < bars.rows.len() {
            let row = self.multi.add(ProgressBar::no_length());
            if let Ok(template) = ProgressStyle::with_template("{msg}") {
                row.set_style(template);
            }
            self.rows.push(row);
        }
        for (row, text) in self.rows.iter().zip(&bars.rows) {
            let text = self.sanitizer.to_printable(text);
            if row.message() != text.as_str() {
                row.set_message(text.as_str().to_owned());
            }
        }
        Ok(())
    }

    /// Prints the pending lines above the bars.
    fn flush(&mut self) -> io::Result<()> {
        let lines = std::mem::take(&mut self.pending_lines);
        if lines.is_empty() { Ok(()) } else { self.multi.println(self.sanitizer.to_printable(&lines.join("\n")).as_str()) }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.flush()?;
        self.header.finish_and_clear();
        self.rows.drain(..).for_each(|row| row.finish_and_clear());
        let cleared = self.multi.clear();
        release_terminal();
        cleared
    }
}

#[cfg(test)]
#[path = "progress_bars_tests.rs"]
mod tests;
