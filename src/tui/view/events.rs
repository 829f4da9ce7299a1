//! What happened, in its order: a bar of time with how much happened when, and the list, with the newest at its end.
//!
//! Uses `timeline`. The cursor stands on an item by its number, so that nothing that comes moves it; live it stands on the newest.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::event::{LogFile, Millis};
use crate::report::{fold, words};
use crate::tui::app::{App, Screen};
use crate::tui::keymap::Cmd;
use crate::tui::theme::Status;
use crate::tui::timeline::Item;

use super::{put, rows, text};

/// The narrowest window of time, milliseconds.
const NARROW: i64 = 1_000;

/// What the screen remembers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct View {
    /// The number of the item under the cursor since the beginning; none: the newest, as it comes.
    at: Option<u64>,
    /// How often the window of time was halved.
    zoom: u32,
}

/// Obeys a command.
pub(crate) fn update(app: &mut App, cmd: Cmd) {
    let count = app.timeline.items().len();
    let last = count.saturating_sub(1);
    let at = place(app);
    let page = app.page.max(1);
    let to = match cmd {
        Cmd::Up | Cmd::PrevEvent => at.saturating_sub(1),
        Cmd::Down | Cmd::NextEvent => at + 1,
        Cmd::PageUp => at.saturating_sub(page),
        Cmd::PageDown => at + page,
        Cmd::HalfUp => at.saturating_sub(page.div_ceil(2)),
        Cmd::HalfDown => at + page.div_ceil(2),
        Cmd::Top => 0,
        Cmd::Bottom | Cmd::Live => {
            app.events.at = None;
            return;
        }
        Cmd::ZoomIn => {
            app.events.zoom = (app.events.zoom + 1).min(20);
            return;
        }
        Cmd::ZoomOut => {
            app.events.zoom = app.events.zoom.saturating_sub(1);
            return;
        }
        Cmd::Open | Cmd::Output => return open(app, at),
        _ => return,
    };
    app.events.at = (count > 0).then(|| number(app, to.min(last)));
}

/// The host of the item under the cursor, and its rank where it is about one.
pub(crate) fn under(app: &App) -> Option<(u32, Option<u32>)> {
    let item = app.timeline.items().get(place(app))?;
    let host = item.log.map(|(host, _)| host).or_else(|| item.hosts.first().copied())?;
    let rank = match item.log {
        Some((_, LogFile::Rank { rank, .. })) => Some(rank),
        _ => None,
    };
    Some((host, rank))
}

/// The log around that time.
fn open(app: &mut App, at: usize) {
    let Some(item) = app.timeline.items().get(at) else { return };
    let (when, log) = (item.at, item.log);
    match log {
        Some(log) => {
            app.logs.show(log);
            if let Some(place) = app.times.place(log, when) {
                super::logs::go_to(app, place);
            }
            app.screen = Screen::Logs;
        }
        None => app.say("it is about no log"),
    }
}

fn number(app: &App, at: usize) -> u64 {
    app.timeline.dropped + at as u64
}

/// Where the cursor stands in what is kept.
fn place(app: &App) -> usize {
    let last = app.timeline.items().len().saturating_sub(1);
    let at = app.events.at.map(|at| usize::try_from(at.saturating_sub(app.timeline.dropped)).unwrap_or(last));
    at.unwrap_or(last).min(last)
}

/// Draws it.
pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, app: &mut App) {
    let width = usize::from(area.width);
    if app.timeline.items().is_empty() {
        put(frame, area, vec![Line::styled(" nothing has happened yet", app.theme.dim())]);
        return;
    }
    let at = place(app);
    let room = usize::from(area.height).saturating_sub(4).max(1);
    app.page = room;
    let window = window(app, at);
    let mut lines = vec![head(app, at, width), bar(app, window, width), scale(app, at, window, width)];
    let items = app.timeline.items();
    // The cursor stays in the middle where there is something on both sides of it.
    let top = at.saturating_sub(room / 2).min(items.len().saturating_sub(room));
    for (n, item) in items.iter().enumerate().skip(top).take(room) {
        let line = row(app, item, width);
        lines.push(if n == at { line.style(app.theme.chosen()) } else { line });
    }
    put(frame, rows(area, 0, area.height), lines);
}

fn head(app: &App, at: usize, width: usize) -> Line<'static> {
    let live = if app.events.at.is_none() { "LIVE" } else { "at a place" };
    let all = app.timeline.items().len();
    let left = format!(" EVENTS  {live}");
    let gone = if app.timeline.dropped > 0 { format!(", {} older forgotten", app.timeline.dropped) } else { String::new() };
    let right = format!("{} of {all}{gone} ", at + 1);
    Line::from(vec![
        Span::styled(left.clone(), app.theme.head()),
        Span::styled(text::right(&right, width.saturating_sub(left.len())), app.theme.dim()),
    ])
}

/// The window of time that the bar shows: all, or half of it as often as was asked, around the cursor.
fn window(app: &App, at: usize) -> (Millis, Millis) {
    let items = app.timeline.items();
    let from = items.front().map_or(0, |item| item.at);
    let to = items.back().map_or(0, |item| item.at).max(app.now).max(from + NARROW);
    let span = ((to - from) >> app.events.zoom.min(62)).max(NARROW);
    let middle = items.get(at).map_or(to, |item| item.at);
    let start = if app.events.at.is_none() { to - span } else { (middle - span / 2).min(to - span) }.max(from);
    (start, start + span)
}

/// How much happened when, the worst of each column in its colour.
fn bar(app: &App, (from, to): (Millis, Millis), width: usize) -> Line<'static> {
    const BARS: [&str; 8] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
    const PLAIN: [&str; 8] = [".", ":", "-", "=", "+", "*", "%", "#"];
    let bars = if app.theme.ascii { PLAIN } else { BARS };
    let room = width.saturating_sub(2);
    let mut columns: Vec<(usize, Option<Status>)> = vec![(0, None); room];
    for item in app.timeline.items() {
        if let Some((count, worst)) = column(item.at, from, to, room).and_then(|at| columns.get_mut(at)) {
            *count += item.weight();
            *worst = (*worst).max(Some(item.status));
        }
    }
    let mut spans = vec![Span::raw(" ")];
    for (count, worst) in columns {
        let Some(worst) = worst else {
            spans.push(Span::styled(if app.theme.ascii { "_" } else { "─" }, app.theme.dim()));
            continue;
        };
        // One, two, four, … of them.
        let level = (usize::BITS - count.leading_zeros()).saturating_sub(1) as usize;
        spans.push(Span::styled(bars[level.min(7)], app.theme.status(worst)));
    }
    Line::from(spans)
}

/// The column of a time; none outside of the window.
fn column(at: Millis, from: Millis, to: Millis, room: usize) -> Option<usize> {
    if at < from || at > to || room == 0 {
        return None;
    }
    let share = i128::from(at - from) * (room as i128 - 1) / i128::from((to - from).max(1));
    usize::try_from(share).ok()
}

/// Under the bar: its ends, and where the cursor is.
fn scale(app: &App, at: usize, (from, to): (Millis, Millis), width: usize) -> Line<'static> {
    let room = width.saturating_sub(2);
    let (left, right) = (app.time(from), format!("{} ({})", app.time(to), words::span(to - from)));
    let cursor = app.timeline.items().get(at).and_then(|item| column(item.at, from, to, room));
    Line::styled(format!(" {}", marked(&left, &right, cursor, room)), app.theme.dim())
}

/// The times at both ends, and a mark at the cursor: a time that would stand there stands beside it.
fn marked(left: &str, right: &str, cursor: Option<usize>, room: usize) -> String {
    let mut row: Vec<char> = vec![' '; room];
    if let Some(cell) = cursor.and_then(|at| row.get_mut(at)) {
        *cell = '^';
    }
    let mut write = |text: &str, from: usize| {
        let cells = from..from + text.chars().count();
        if row.get(cells.clone()).is_some_and(|cells| cells.iter().all(|c| *c == ' ')) {
            row.splice(cells, text.chars());
        }
    };
    let (long, last) = (left.chars().count(), room.saturating_sub(right.chars().count()));
    write(left, cursor.filter(|at| *at <= long).map_or(0, |at| at + 2));
    let long = right.chars().count();
    write(right, cursor.filter(|at| at + 1 >= last).map_or(last, |at| at.saturating_sub(long + 1)));
    row.into_iter().collect()
}

fn row(app: &App, item: &Item, width: usize) -> Line<'static> {
    let who = match (&item.ranks[..], &item.hosts[..]) {
        ([], []) => String::new(),
        ([], hosts) => words::hosts(&app.state, &app.cleaner, hosts),
        ([rank], [host]) => format!("r{rank} {}", app.clean(app.state.host_name(*host))),
        ([rank], _) => format!("r{rank}"),
        (ranks, _) => format!("r[{}]", fold::numbers(ranks)),
    };
    let count = if item.weight() > 1 { format!(" ({})", item.weight()) } else { String::new() };
    let room = (width / 4).clamp(8, 30);
    let mut spans = vec![
        Span::styled(format!(" {} ", app.time(item.at)), app.theme.dim()),
        Span::styled(app.theme.symbol(item.status), app.theme.status(item.status)),
        Span::raw(format!(" {} ", text::pad(&who, room))),
    ];
    let rest = width.saturating_sub(text::width(&spans));
    spans.push(Span::raw(words::cut(&format!("{}{count}", app.clean(&item.text)), rest)));
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_covers_no_time() {
        let scale = |cursor| marked("12:00:00", "12:01:00 (1m)", cursor, 40);
        assert_eq!(scale(None), "12:00:00                   12:01:00 (1m)");
        assert_eq!(scale(Some(20)), "12:00:00            ^      12:01:00 (1m)");
        assert_eq!(scale(Some(0)), "^ 12:00:00                 12:01:00 (1m)");
        assert_eq!(scale(Some(8)), "        ^ 12:00:00         12:01:00 (1m)");
        assert_eq!(scale(Some(39)), "12:00:00                 12:01:00 (1m) ^");
        assert_eq!(scale(Some(26)), "12:00:00    12:01:00 (1m) ^             ");
        assert_eq!(marked("12:00:00", "12:01:00 (1m)", Some(3), 10), "   ^      ");
    }

    #[test]
    fn times_have_columns() {
        assert_eq!([0, 50, 100, 101].map(|at| column(at, 0, 100, 11)), [Some(0), Some(5), Some(10), None]);
        assert_eq!((column(5, 5, 5, 3), column(5, 0, 9, 0)), (Some(0), None));
    }
}
