//! The Events screen: the phases with their durations, a histogram over time and the list of events, newest last.
//!
//! The cursor keeps its item by sequence number when events arrive; in live mode it follows the newest.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

use crate::event::{LogFile, UnixMillis};
use crate::report::style;
use crate::state::RankState;
use crate::tui::keymap::UiCommand;
use crate::tui::model::Model;
use crate::tui::pane_action::PaneAction;
use crate::tui::theme::DisplayStatus;

use super::event_rows::EventColumns;
use super::lines::{render_lines, rows_area, selected_row};
use super::pane_frame::{PaneFrame, draw_frame, has_frame_room};
use super::{followed_log, formatting, phase_bars, ranks};

/// Minimum time window in milliseconds.
const MIN_WINDOW_MS: i64 = 1_000;
/// The fewest rows of the events with a log below them, and of that log.
const MIN_EVENT_ROWS: u16 = 12;
const MIN_LOG_ROWS: u16 = 7;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventsPane {
    /// Sequence number of the item under the cursor; `None` follows the newest.
    selected_item: Option<u64>,
    /// How often the time window was halved.
    zoom_level: u32,
    /// The log that the last frame showed beside an event without a rank.
    followed_log: Option<(u32, LogFile)>,
}

pub(crate) fn update(view: &mut EventsPane, model: &Model, cmd: UiCommand) -> Option<PaneAction> {
    let count = model.timeline.items().len();
    let last = count.saturating_sub(1);
    let at = cursor_index(view, model);
    let to = match cmd {
        UiCommand::PrevEvent => at.saturating_sub(1),
        UiCommand::NextEvent => at + 1,
        UiCommand::Bottom | UiCommand::Live => {
            view.selected_item = None;
            return None;
        }
        UiCommand::ZoomIn => {
            view.zoom_level = (view.zoom_level + 1).min(20);
            return None;
        }
        UiCommand::ZoomOut => {
            view.zoom_level = view.zoom_level.saturating_sub(1);
            return None;
        }
        UiCommand::Open | UiCommand::Output => {
            let item = model.timeline.items().get(at)?;
            let own = item.log.map(|log| PaneAction::ShowLogAt(log, item.at));
            let nothing = || PaneAction::ShowToast("this event has no log".to_owned());
            return Some(view.followed_log.map(PaneAction::ShowLog).or(own).unwrap_or_else(nothing));
        }
        _ => cmd.target_row(at, model.page_rows, last)?,
    };
    view.followed_log = None;
    view.selected_item = (count > 0).then(|| item_number(model, to.min(last)));
    None
}

/// The host of the item under the cursor, and its rank if it has one.
pub(crate) fn target_at_cursor(view: &EventsPane, model: &Model) -> Option<(u32, Option<u32>)> {
    let item = model.timeline.items().get(cursor_index(view, model))?;
    let host = item.log.map(|(host, _)| host).or_else(|| item.hosts.first().copied())?;
    Some((host, item.log.and_then(|(_, file)| file.rank())))
}

fn item_number(model: &Model, at: usize) -> u64 {
    model.timeline.dropped_items + at as u64
}

/// Index of the cursor in the items kept.
fn cursor_index(view: &EventsPane, model: &Model) -> usize {
    let last = model.timeline.items().len().saturating_sub(1);
    let at = view.selected_item.map(|at| usize::try_from(at.saturating_sub(model.timeline.dropped_items)).unwrap_or(last));
    at.unwrap_or(last).min(last)
}

/// Draws the screen; returns the page size in rows.
pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, view: &mut EventsPane) -> usize {
    view.followed_log = None;
    if model.timeline.items().is_empty() {
        render_lines(frame, area, vec![Line::styled(model.lang.tr(" no events yet"), model.theme.dim())]);
        return model.page_rows;
    }
    // The phases above take a third at most.
    let most = usize::from(area.height) / 3;
    if !has_frame_room(area) {
        let width = usize::from(area.width);
        let mut lines = phase_bars::rows(model, width, most);
        lines.push(header_line(model, view, width));
        let used = u16::try_from(lines.len()).unwrap_or(u16::MAX);
        render_lines(frame, area, lines);
        return draw_events(frame, rows_area(area, used, area.height.saturating_sub(used)), model, view);
    }
    let phases = phase_bars::rows(model, usize::from(area.width) - 2, most.saturating_sub(2));
    let mut area = area;
    if !phases.is_empty() {
        let rows = u16::try_from(phases.len() + 2).unwrap_or(u16::MAX);
        let title = PaneFrame::titled(model.theme, model.lang.tr("phases"), "");
        let inner = draw_frame(frame, rows_area(area, 0, rows), model.theme, &title);
        render_lines(frame, inner, phases);
        area = rows_area(area, rows, area.height.saturating_sub(rows));
    }
    // Scale, axis and frame.
    let needed = u16::try_from(model.timeline.items().len() + 4).unwrap_or(u16::MAX);
    let own = target_at_cursor(view, model).and_then(|(_, rank)| model.state.ranks.get(&rank?));
    let rank = own.or_else(|| followed_log::followed_rank(model).filter(|_| view.selected_item.is_none()));
    let log = rank.filter(|_| area.height >= MIN_EVENT_ROWS + MIN_LOG_ROWS);
    // The events keep what the log can spare.
    let rows = if log.is_some() { needed.min(area.height - MIN_LOG_ROWS).max(MIN_EVENT_ROWS) } else { area.height };
    let [left, right] = header_texts(model, view);
    let legend = model.lang.tr("  bars: how many, color: the worst");
    let fits = left.width() + legend.width() + right.width() + 9 <= usize::from(area.width);
    let mut explained = vec![Span::styled(left, model.theme.header())];
    explained.extend(fits.then(|| Span::styled(legend, model.theme.dim())));
    let title = PaneFrame { left: explained, right: vec![Span::styled(right, model.theme.dim())], ..PaneFrame::default() };
    let inner = draw_frame(frame, rows_area(area, 0, rows), model.theme, &title);
    let page = draw_events(frame, inner, model, view);
    view.followed_log = log.filter(|_| own.is_none()).map(RankState::log);
    if let Some(rank) = log {
        ranks::draw_log(frame, rows_area(area, rows, area.height - rows), model, rank);
    }
    page
}

/// The histogram, its axis and the list.
fn draw_events(frame: &mut Frame<'_>, area: Rect, model: &Model, view: &EventsPane) -> usize {
    let (width, at) = (usize::from(area.width), cursor_index(view, model));
    let window = time_window(model, view, at);
    let mut lines = vec![histogram_line(model, window, width), axis_line(model, at, window, width)];
    let room = usize::from(area.height).saturating_sub(lines.len()).max(1);
    let items = model.timeline.items();
    // The cursor stays in the middle while there are items on both sides.
    let top = at.saturating_sub(room / 2).min(items.len().saturating_sub(room));
    let columns = EventColumns::fit(model, items.iter().skip(top).take(room), width);
    for (n, item) in items.iter().enumerate().skip(top).take(room) {
        let line = columns.row(model, item);
        lines.push(if n == at { selected_row(&line, model.theme, width) } else { line });
    }
    render_lines(frame, area, lines);
    room
}

fn header_line(model: &Model, view: &EventsPane, width: usize) -> Line<'static> {
    let [left, right] = header_texts(model, view);
    let left = format!(" {left}");
    Line::from(vec![
        Span::styled(left.clone(), model.theme.header()),
        Span::styled(formatting::pad_left(&format!("{right} "), width.saturating_sub(left.width())), model.theme.dim()),
    ])
}

/// Whether the newest event is shown; which of how many is under the cursor.
fn header_texts(model: &Model, view: &EventsPane) -> [String; 2] {
    let lang = model.lang;
    let live = if view.selected_item.is_none() { lang.tr("LIVE") } else { lang.tr("scrolled back") };
    let (at, all) = (cursor_index(view, model), model.timeline.items().len());
    let mut gone = if model.timeline.dropped_items > 0 {
        lang.tr_fill(", {} older dropped", &[&model.timeline.dropped_items.to_string()])
    } else {
        String::new()
    };
    if model.skipped_events > 0 {
        gone.push_str(&lang.tr_fill(", {} not shown", &[&model.skipped_events.to_string()]));
    }
    let right = format!("{}{gone}", lang.tr_fill("event {} of {}", &[&(at + 1).to_string(), &all.to_string()]));
    [format!("{}  {live}", lang.tr("EVENTS")), right]
}

/// Time window of the histogram: everything, or halved per zoom level around the cursor.
fn time_window(model: &Model, view: &EventsPane, at: usize) -> (UnixMillis, UnixMillis) {
    let items = model.timeline.items();
    let from = items.front().map_or(0, |item| item.at);
    let to = items.back().map_or(0, |item| item.at).max(model.now).max(from + MIN_WINDOW_MS);
    let span = ((to - from) >> view.zoom_level).max(MIN_WINDOW_MS);
    let middle = items.get(at).map_or(to, |item| item.at);
    let start = if view.selected_item.is_none() { to - span } else { (middle - span / 2).min(to - span) }.max(from);
    (start, start + span)
}

/// Events over time, each column in the color of its worst status.
fn histogram_line(model: &Model, (from, to): (UnixMillis, UnixMillis), width: usize) -> Line<'static> {
    const BARS: [&str; 8] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
    const ASCII_BARS: [&str; 8] = [".", ":", "-", "=", "+", "*", "%", "#"];
    let bars = if model.theme.ascii { ASCII_BARS } else { BARS };
    let room = width.saturating_sub(2);
    let mut columns: Vec<(usize, Option<DisplayStatus>)> = vec![(0, None); room];
    for item in model.timeline.items() {
        if let Some((count, worst)) = time_to_column(item.at, from, to, room).and_then(|at| columns.get_mut(at)) {
            *count += item.affected_count();
            *worst = (*worst).max(Some(item.status));
        }
    }
    let mut spans = vec![Span::raw(" ")];
    for (count, worst) in columns {
        let Some(worst) = worst else {
            spans.push(Span::styled(if model.theme.ascii { "_" } else { "─" }, model.theme.dim()));
            continue;
        };
        // Logarithmic: one, two, four, … events. A reversed bar would look like its rest.
        let level = (usize::BITS - count.leading_zeros()).saturating_sub(1) as usize;
        spans.push(Span::styled(bars[level.min(7)], model.theme.status_style(worst).remove_modifier(Modifier::REVERSED)));
    }
    Line::from(spans)
}

/// The column of a time; `None` outside of the window.
fn time_to_column(at: UnixMillis, from: UnixMillis, to: UnixMillis, room: usize) -> Option<usize> {
    if at < from || at > to || room == 0 {
        return None;
    }
    let share = i128::from(at - from) * (room as i128 - 1) / i128::from((to - from).max(1));
    usize::try_from(share).ok()
}

/// Axis below the histogram: both ends and the cursor.
fn axis_line(model: &Model, at: usize, (from, to): (UnixMillis, UnixMillis), width: usize) -> Line<'static> {
    let room = width.saturating_sub(2);
    let length = style::format_duration(to - from);
    let with_length = |at| format!("{} ({length})", model.format_time(at));
    let item = model.timeline.items().get(at);
    let cursor = item.and_then(|item| Some((time_to_column(item.at, from, to, room)?, item.at)));
    let own = cursor.map(|(at, time)| (at, [model.format_time(time), with_length(time)]));
    Line::styled(format!(" {}", axis_text([&model.format_time(from), &with_length(to)], own, room)), model.theme.dim())
}

/// The times at both ends and a mark at the cursor. `cursor`: its column, and its time as the left and as the right end are written; it replaces
/// an end that would touch the mark.
fn axis_text([left, right]: [&str; 2], cursor: Option<(usize, [String; 2])>, room: usize) -> String {
    let mut row: Vec<char> = vec![' '; room];
    if let Some(cell) = cursor.as_ref().and_then(|(at, _)| row.get_mut(*at)) {
        *cell = '^';
    }
    let mut write = |text: &str, from: usize| {
        let cells = from..from + text.chars().count();
        if row.get(cells.clone()).is_some_and(|cells| cells.iter().all(|c| *c == ' ')) {
            row.splice(cells, text.chars());
        }
    };
    match &cursor {
        Some((at, [own, _])) if *at <= left.chars().count() => write(own, at + 2),
        _ => write(left, 0),
    }
    let last = room.saturating_sub(right.chars().count());
    match &cursor {
        Some((at, [_, own])) if at + 1 >= last => write(own, at.saturating_sub(own.chars().count() + 1)),
        _ => write(right, last),
    }
    row.into_iter().collect()
}

/// The newest events in a frame.
pub(super) fn draw_newest(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let title = PaneFrame::titled(
        model.theme,
        model.lang.tr("events"),
        model.lang.tr_fill("{} opens the events", &[&model.key(UiCommand::Events)]),
    );
    let inner = draw_frame(frame, area, model.theme, &title);
    render_lines(frame, inner, newest_rows(model, usize::from(inner.width), usize::from(inner.height)));
}

/// The newest events, the oldest of them first.
pub(super) fn newest_rows(model: &Model, width: usize, room: usize) -> Vec<Line<'static>> {
    let items = model.timeline.items();
    let newest = || items.iter().skip(items.len().saturating_sub(room));
    let columns = EventColumns::fit(model, newest(), width);
    newest().map(|item| columns.row(model, item)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_mark_stands_beside_no_other_time() {
        let own = |at| (at, ["12:00:30".to_owned(), "12:00:30 (1m)".to_owned()]);
        let scale = |cursor: Option<usize>| axis_text(["12:00:00", "12:01:00 (1m)"], cursor.map(own), 40);
        assert_eq!(scale(None), "12:00:00                   12:01:00 (1m)");
        assert_eq!(scale(Some(20)), "12:00:00            ^      12:01:00 (1m)");
        assert_eq!(scale(Some(0)), "^ 12:00:30                 12:01:00 (1m)");
        assert_eq!(scale(Some(8)), "        ^ 12:00:30         12:01:00 (1m)");
        assert_eq!(scale(Some(39)), "12:00:00                 12:00:30 (1m) ^");
        assert_eq!(scale(Some(26)), "12:00:00    12:00:30 (1m) ^             ");
        assert_eq!(axis_text(["12:00:00", "12:01:00 (1m)"], Some(own(3)), 10), "   ^      ");
    }

    #[test]
    fn times_map_to_columns() {
        assert_eq!([0, 50, 100, 101].map(|at| time_to_column(at, 0, 100, 11)), [Some(0), Some(5), Some(10), None]);
        assert_eq!((time_to_column(5, 5, 5, 3), time_to_column(5, 0, 9, 0)), (Some(0), None));
    }
}
