//! Bars on a terminal: one a host, capped at the terminal's height, beneath the lines that `line` prints.
//!
//! Uses `event`, `state` and its neighbours; the only door to indicatif. Belongs on a thread of its own (`aside`): drawing may wait.

use std::io;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::diagnose::advice::Advice;
use crate::event::{Event, EventKind, Millis, Phase};
use crate::state::{HostState, Liveness, RunState, Status, Step};

use super::Sink;
use super::line::Lines;
use super::loglines::Logs;
use super::sanitize::Cleaner;
use super::words::{self, Role, Style, cut};

/// How often rows are worked out anew, in the time of the events.
const EVERY: i64 = 100;
/// How wide a bar is.
const BAR: usize = 12;
/// GPU values older than this are not shown.
const STALE: i64 = 30_000;
/// The lines of the terminal that stay free of bars.
const FREE: usize = 4;

/// Rows and columns of a terminal.
pub type Size = Box<dyn Fn() -> (usize, usize) + Send>;

/// Draws bars.
pub struct Bars {
    multi: MultiProgress,
    head: ProgressBar,
    rows: Vec<ProgressBar>,
    lines: Lines<Vec<String>>,
    cleaner: Cleaner,
    style: Style,
    size: Size,
    drawn: Option<Millis>,
    dirty: bool,
}

impl Bars {
    /// On standard error.
    pub fn stderr(cleaner: Cleaner, style: Style, logs: Logs) -> Self {
        let size = || match rustix::termios::tcgetwinsize(io::stderr()) {
            Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (usize::from(size.ws_row), usize::from(size.ws_col)),
            _ => (24, 80),
        };
        Self::new(ProgressDrawTarget::stderr(), Box::new(size), cleaner, style, logs)
    }

    /// On anything.
    pub fn new(target: ProgressDrawTarget, size: Size, cleaner: Cleaner, style: Style, logs: Logs) -> Self {
        let multi = MultiProgress::with_draw_target(target);
        let head = multi.add(ProgressBar::new_spinner());
        if let Ok(look) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            head.set_style(look.tick_chars("|/-\\ "));
        }
        head.enable_steady_tick(Duration::from_millis(200));
        let lines = Lines::new(Vec::new(), cleaner.clone(), style, logs);
        Bars { multi, head, rows: Vec::new(), lines, cleaner, style, size, drawn: None, dirty: true }
    }

    /// Advises commands as the person has to type them.
    #[must_use]
    pub fn advising(self, advice: Advice) -> Self {
        Bars { lines: self.lines.advising(advice), ..self }
    }

    /// Moves the lines above the bars.
    fn print(&mut self) -> io::Result<()> {
        let lines = std::mem::take(self.lines.out());
        if lines.is_empty() { Ok(()) } else { self.multi.println(self.cleaner.printable(&lines.join("\n")).as_str()) }
    }

    fn draw(&mut self, now: Millis, state: &RunState) {
        let soon = self.drawn.is_some_and(|drawn| now - drawn < EVERY);
        if !self.dirty || soon {
            return;
        }
        (self.dirty, self.drawn) = (false, Some(now));
        let (height, width) = (self.size)();
        let head = cut(&head(state, &self.cleaner), width.saturating_sub(12));
        self.head.set_message(self.cleaner.printable(&head).as_str().to_owned());
        let texts = rows(state, &self.cleaner, self.style, height.saturating_sub(FREE), width, now);
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
            let text = self.cleaner.printable(&text);
            if row.message() != text.as_str() {
                row.set_message(text.as_str().to_owned());
            }
        }
    }
}

impl Sink for Bars {
    fn on(&mut self, event: &Event, state: &RunState) -> io::Result<()> {
        self.lines.on(event, state)?;
        self.print()?;
        self.dirty |= !matches!(event.kind, EventKind::Log { .. });
        self.draw(event.at, state);
        Ok(())
    }

    fn tick(&mut self, now: Millis, state: &RunState) -> io::Result<()> {
        self.lines.tick(now, state)?;
        self.print()?;
        self.draw(now, state);
        Ok(())
    }

    fn finish(&mut self, state: &RunState) -> io::Result<()> {
        self.lines.finish(state)?;
        self.print()?;
        self.head.finish_and_clear();
        self.rows.drain(..).for_each(|row| row.finish_and_clear());
        self.multi.clear()
    }
}

/// The first line: what is under way.
fn head(state: &RunState, cleaner: &Cleaner) -> String {
    let title = words::title(&state.info, cleaner);
    let counts = state.rank_counts();
    let doing = match state.phase() {
        _ if counts.running > 0 && state.stopping.is_none() => {
            format!("{} of {} running", words::count(counts.running, "rank"), state.ranks.len())
        }
        Some(phase) => format!("{} {}", phase.name(), progress(state, phase)),
        None => "connect".to_owned(),
    };
    format!("{title}  {doing}")
}

fn progress(state: &RunState, phase: Phase) -> String {
    let (ended, all) = state.ledger.phase(phase).fold((0, 0), |(ended, all), step| (ended + usize::from(step.status.ended()), all + 1));
    if all == 0 { String::new() } else { format!("{ended}/{all}") }
}

/// What a host's steps amount to.
#[derive(Default, Clone, Copy)]
struct Sum<'a> {
    ended: usize,
    all: usize,
    failed: Option<&'a Step>,
    running: Option<&'a Step>,
}

/// One row a host, at most `room` of them; the rest is one row. What is wrong and what is under way comes before the rest.
fn rows(state: &RunState, cleaner: &Cleaner, style: Style, room: usize, width: usize, now: Millis) -> Vec<String> {
    let mut sums = vec![Sum::default(); state.hosts.len()];
    for step in state.ledger.steps() {
        let Some(sum) = sums.get_mut(step.info.host as usize) else { continue };
        sum.all += 1;
        sum.ended += usize::from(step.status.ended());
        match step.status {
            Status::Failed => sum.failed = Some(step),
            Status::Running => sum.running = Some(step),
            Status::Waiting | Status::Done | Status::Satisfied => {}
        }
    }
    let mut order: Vec<usize> = (0..sums.len()).collect();
    let mut rest = Vec::new();
    if sums.len() > room.max(1) {
        let dull = |at: &usize| (!wrong(&state.hosts[*at], &sums[*at]), sums[*at].running.is_none(), *at);
        order.sort_by_key(dull);
        rest = order.split_off(room.max(1) - 1);
        order.sort_unstable();
    }
    let name = order.iter().map(|at| cleaner.line(&state.hosts[*at].name).chars().count()).max().unwrap_or(0).min(24);
    let mut texts: Vec<String> = order.iter().map(|at| row(state, *at, &sums[*at], (name, width), cleaner, style, now)).collect();
    if !rest.is_empty() {
        let done = rest.iter().filter(|at| sums[**at].ended == sums[**at].all).count();
        let bad = rest.iter().filter(|at| wrong(&state.hosts[**at], &sums[**at])).count();
        let bad = if bad > 0 { format!(", {bad} failed") } else { String::new() };
        texts.push(cut(&format!("  … {}: {done} done{bad}", words::count(rest.len(), "more host")), width.saturating_sub(1)));
    }
    texts
}

fn wrong(host: &HostState, sum: &Sum<'_>) -> bool {
    sum.failed.is_some() || matches!(host.liveness, Liveness::Unreachable | Liveness::Retrying)
}

fn row(state: &RunState, at: usize, sum: &Sum<'_>, (name, width): (usize, usize), cleaner: &Cleaner, style: Style, now: Millis) -> String {
    let host = &state.hosts[at];
    let full = (sum.ended * BAR).checked_div(sum.all).unwrap_or(0);
    let bar = format!("{}{}", "#".repeat(full), "-".repeat(BAR - full));
    let (role, text) = doing(state, at, sum, cleaner, now);
    let room = width.saturating_sub(name + BAR + 7);
    format!("  {:<name$} [{bar}] {}", cut(&cleaner.line(&host.name), name.max(1)), style.paint(role, &cut(&text, room)))
}

fn doing(state: &RunState, at: usize, sum: &Sum<'_>, cleaner: &Cleaner, now: Millis) -> (Role, String) {
    let host = &state.hosts[at];
    match host.liveness {
        Liveness::Unreachable => return (Role::Bad, format!("UNREACHABLE {}", cleaner.line(&host.error))),
        Liveness::Retrying => return (Role::Warn, format!("no connection, trying again: {}", cleaner.line(&host.error))),
        Liveness::Unknown | Liveness::Connecting | Liveness::Connected => {}
    }
    if let Some(step) = sum.failed {
        return (Role::Bad, format!("FAILED {}: {}", step.info.phase.name(), cleaner.line(&step.note)));
    }
    if let Some(step) = sum.running {
        let again = if step.retries > 0 { format!(" (attempt {})", step.retries + 1) } else { String::new() };
        return (Role::Plain, format!("{}{again}", cleaner.line(&step.info.title)));
    }
    let ranks = state.ranks.values().filter(|rank| rank.host as usize == at);
    let running = ranks.filter(|rank| rank.started.is_some() && rank.exit.is_none()).count();
    match (running, host.node_exit, host.liveness) {
        (1.., _, _) => (Role::Ok, format!("{} running{}", words::count(running, "rank"), gpus(host, now))),
        (0, Some((exit, _)), _) if exit.ok() => (Role::Ok, "ended well".to_owned()),
        (0, Some((exit, _)), _) => (Role::Bad, words::exit(exit)),
        (0, None, Liveness::Connecting) => (Role::Dim, "connecting".to_owned()),
        (0, None, _) if sum.all > 0 && sum.ended == sum.all => (Role::Ok, "done".to_owned()),
        (0, None, _) => (Role::Dim, "waiting".to_owned()),
    }
}

/// `  GPUs 87 %`, where the values are fresh.
fn gpus(host: &HostState, now: Millis) -> String {
    let known: Vec<f32> = host.gpus.iter().filter_map(|gpu| gpu.utilization).collect();
    if known.is_empty() || now - host.gpus_at > STALE {
        return String::new();
    }
    // At most 256 GPUs: the count is exact.
    #[expect(clippy::cast_precision_loss, reason = "a few hundred at most")]
    let mean = known.iter().sum::<f32>() / known.len() as f32;
    format!("  GPUs {mean:.0} %")
}

#[cfg(test)]
#[path = "bar_tests.rs"]
mod tests;
