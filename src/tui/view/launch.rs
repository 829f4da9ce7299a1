//! The matrix of hosts and phases while steps are under way: where each step stands, how long it takes, and what the others wait for.
//!
//! Uses the ledger of `state`. The rows that hold the others up stand first; what a barrier waits for is said above. Where the hosts do not
//! fit, those that are equally far are one row, which can be unfolded.

use std::collections::BTreeSet;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::event::{Millis, Phase};
use crate::report::words;
use crate::state::{Status as StepStatus, Step};
use crate::tui::app::App;
use crate::tui::theme::Status;

use super::{put, text};

/// The width of a phase's column.
const CELL: usize = 10;
/// The width of a range of hosts.
const RANGE: usize = 26;

/// Where a host stands in a phase.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cell {
    status: Status,
    text: String,
}

/// A row: hosts whose cells are equal but for their times.
#[derive(Clone)]
struct Row {
    hosts: Vec<u32>,
    cells: Vec<Option<Cell>>,
    note: String,
    weight: (bool, bool),
    /// The rows of its hosts but the first.
    others: Vec<Row>,
    /// One of the hosts of an unfolded row above.
    inside: bool,
}

/// Draws it.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, app: &mut App) {
    let width = usize::from(area.width);
    let phases: Vec<Phase> = app.state.ledger.steps().iter().map(|s| s.info.phase).collect::<BTreeSet<_>>().into_iter().collect();
    let room = usize::from(area.height).saturating_sub(2);
    let longest = app.state.hosts.iter().map(|host| host.name.len()).max().unwrap_or(4);
    // The names of several hosts in one are as long as there is room.
    let name = if app.state.hosts.len() > room { RANGE.max(longest) } else { longest }.clamp(4, (width / 4).max(4));
    // The phase under way is always among those that fit.
    let fit = (width.saturating_sub(name + 2) / CELL).max(1);
    let current = current(app).and_then(|phase| phases.iter().position(|known| *known == phase)).unwrap_or(0);
    let first = (current + 1).saturating_sub(fit);
    let shown: Vec<Phase> = phases.into_iter().skip(first).take(fit).collect();
    let rows = rows(app, &shown, room);
    app.overview.groups = rows.iter().filter(|row| !row.inside).flat_map(groups).collect();
    let drawn = rows.iter().map(|row| (row.hosts.len() > 1, row.hosts[0])).collect();
    let (at, top) = app.overview.list.rows(drawn, room);
    app.overview.list.lies(area.y + 2, room);
    let left = width.saturating_sub(name + 2 + shown.len() * CELL);
    let heads: String = shown.iter().map(|phase| text::pad(phase.name(), CELL)).collect();
    let mut lines = vec![
        Line::styled(text::pad(&format!(" {}", waiting(app)), width), app.theme.dim()),
        Line::styled(format!(" {} {heads}", text::pad("HOST", name)), app.theme.head()),
    ];
    for (n, row) in rows.iter().enumerate().skip(top).take(room) {
        let label = label(app, row);
        let mut spans = vec![Span::raw(format!(" {} ", text::pad(&label, name)))];
        for cell in &row.cells {
            match cell {
                Some(cell) => {
                    spans.push(Span::styled(app.theme.symbol(cell.status), app.theme.status(cell.status)));
                    spans.push(Span::raw(text::pad(&format!(" {}", cell.text), CELL - 1)));
                }
                None => spans.push(Span::raw(" ".repeat(CELL))),
            }
        }
        spans.push(Span::raw(words::cut(&row.note, left)));
        let line = Line::from(spans);
        lines.push(if n == at { line.style(app.theme.chosen()) } else { line });
    }
    put(frame, area, lines);
}

/// The phase under way: the first that has a step which is not ended.
fn current(app: &App) -> Option<Phase> {
    let open = app.state.ledger.steps().iter().filter(|step| !step.status.ended());
    open.map(|step| step.info.phase).min()
}

/// Of the ranks of these hosts that were started, how many have not ended, and how many there are.
fn left(app: &App, hosts: &[u32]) -> (usize, usize) {
    let own = || app.state.ranks.values().filter(|rank| hosts.contains(&rank.host) && rank.started.is_some());
    (own().filter(|rank| rank.exit.is_none()).count(), own().count())
}

/// What is under way or waited for, in a sentence.
pub(super) fn waiting(app: &App) -> String {
    if let Some(what) = &app.offer.start {
        return format!("{}; U starts it", app.clean(what));
    }
    let Some(phase) = current(app) else { return "every step has ended".to_owned() };
    let steps: Vec<&Step> = app.state.ledger.phase(phase).collect();
    let running: Vec<u32> = steps.iter().filter(|s| s.status == StepStatus::Running).map(|s| s.info.host).collect();
    let ended = steps.iter().filter(|step| step.status.ended()).count();
    let since = steps.iter().filter(|s| s.status == StepStatus::Running).filter_map(|s| s.began).min();
    let title = steps.iter().find(|s| s.status == StepStatus::Running).map_or_else(String::new, |s| app.clean(&s.info.title));
    let time = since.map_or_else(String::new, |since| format!(" for {}", words::span(app.now - since)));
    if running.is_empty() {
        return format!("{}: waits to begin ({ended} of {} ended)", phase.name(), steps.len());
    }
    let rest = if app.state.ledger.steps().iter().any(|s| s.info.phase > phase) { "; the later phases wait for it" } else { "" };
    let hosts = words::hosts(&app.state, &app.cleaner, &running);
    let ranks = match left(app, &running) {
        (left, all) if phase == Phase::Stop && all > 0 => format!(", {} left", words::count(left, "rank")),
        _ => String::new(),
    };
    format!("{}: {title} on {}{time} ({ended} of {} ended{ranks}){rest}", phase.name(), words::cut(&hosts, 40), steps.len())
}

fn rows(app: &App, phases: &[Phase], room: usize) -> Vec<Row> {
    let mut rows: Vec<Row> = (0_u32..).zip(&app.state.hosts).map(|(at, _)| row(app, at, phases)).collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.weight), row.hosts[0]));
    if rows.len() <= room {
        return rows;
    }
    let mut folded: Vec<Row> = Vec::new();
    for mut row in rows {
        let look = |row: &Row| row.cells.iter().map(|cell| cell.as_ref().map(|cell| cell.status)).collect::<Vec<_>>();
        match folded.iter_mut().find(|known| !row.weight.0 && look(known) == look(&row)) {
            Some(known) => {
                known.hosts.extend(&row.hosts);
                row.inside = true;
                known.others.push(row);
            }
            None => folded.push(row),
        }
    }
    folded.into_iter().flat_map(|row| unfolded(app, row)).collect()
}

/// A row, and beneath it those of its hosts where it is unfolded.
fn unfolded(app: &App, mut row: Row) -> Vec<Row> {
    let others = std::mem::take(&mut row.others);
    if others.is_empty() || !app.overview.open.contains(&group(&row)) {
        return vec![row];
    }
    let first = Row { hosts: vec![row.hosts[0]], inside: true, ..row.clone() };
    [row, first].into_iter().chain(others).collect()
}

/// What a row is remembered by while the steps of its hosts go on: its first host.
fn group(row: &Row) -> String {
    format!("steps {}", row.hosts[0])
}

/// The group and its first host of every host of a row that stands for several.
fn groups(row: &Row) -> Vec<(u32, (String, u32))> {
    let several = row.hosts.len() > 1;
    row.hosts.iter().filter(|_| several).map(|host| (*host, (group(row), row.hosts[0]))).collect()
}

/// `+ gpu[00-89]` can be unfolded, `- gpu[00-89]` folded again.
fn label(app: &App, row: &Row) -> String {
    let names = words::hosts(&app.state, &app.cleaner, &row.hosts);
    let mark = match (row.hosts.len() > 1, row.inside) {
        (true, _) if app.overview.open.contains(&group(row)) => "- ",
        (true, _) => "+ ",
        (_, true) => "    ",
        _ => "",
    };
    format!("{mark}{names}")
}

fn row(app: &App, host: u32, phases: &[Phase]) -> Row {
    let own: Vec<&Step> = app.state.ledger.steps().iter().filter(|step| step.info.host == host).collect();
    let cell = |phase: &Phase| {
        let steps: Vec<&Step> = own.iter().copied().filter(|step| step.info.phase == *phase).collect();
        (!steps.is_empty()).then(|| cell(&steps, app.now))
    };
    let telling = own.iter().find(|s| s.status == StepStatus::Failed).or_else(|| own.iter().find(|s| s.status == StepStatus::Running));
    let note = telling.map_or_else(String::new, |step| {
        let retries = if step.retries > 0 { format!(" (try {})", step.retries + 1) } else { String::new() };
        let what = match left(app, &[host]) {
            (left, all) if step.info.phase == Phase::Stop && step.status == StepStatus::Running && all > 0 => {
                format!("{left} of {} left", words::count(all, "rank"))
            }
            _ => app.clean(if step.note.is_empty() { &step.info.title } else { &step.note }),
        };
        format!("{what}{retries}")
    });
    let failed = own.iter().any(|step| step.status == StepStatus::Failed);
    let running = own.iter().any(|step| step.status == StepStatus::Running);
    Row { hosts: vec![host], cells: phases.iter().map(cell).collect(), note, weight: (failed, running), others: Vec::new(), inside: false }
}

/// The steps of one host in one phase as one cell: the worst status, and the time they took or take.
fn cell(steps: &[&Step], now: Millis) -> Cell {
    let began = steps.iter().filter_map(|step| step.began).min();
    let ended = steps.iter().filter_map(|step| step.ended).max();
    let took = |to: Option<Millis>| began.zip(to).map_or_else(String::new, |(from, to)| words::span(to - from));
    let is = |status: StepStatus| steps.iter().any(|step| step.status == status);
    if is(StepStatus::Failed) {
        Cell { status: Status::Bad, text: "failed".to_owned() }
    } else if is(StepStatus::Running) {
        Cell { status: Status::Busy, text: took(Some(now)) }
    } else if is(StepStatus::Waiting) {
        Cell { status: Status::Pending, text: String::new() }
    } else if is(StepStatus::Done) {
        Cell { status: Status::Done, text: took(ended) }
    } else {
        Cell { status: Status::Done, text: "same".to_owned() }
    }
}
