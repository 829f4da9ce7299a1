//! Draws the Logs screen: a header with the view settings, the rows, and a scrollbar.
//!
//! Log text is sanitized or escaped here; nothing else of it reaches a cell.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

use crate::report::style;
use crate::text::width::split_to_width;
use crate::tui::keymap::UiCommand;
use crate::tui::line_groups::LogWriters;
use crate::tui::model::Model;
use crate::tui::theme::DisplayStatus;

use super::header::header_line;
use super::indexing::index_more;
use super::pane::{LogRow, LogScope, LogsPane, TimeColumn};
use super::rows::{is_oldest_kept, read_visible};
use super::text::{escape_bytes, level_span, skip_columns, style_of_level, truncate_columns};
use crate::tui::view::formatting;
use crate::tui::view::lines::{render_lines, rows_area};

/// From this width on each row has its time and its level.
const WIDE: usize = 160;

/// For more columns than these the newest row does not widen the column of the writers.
const MAX_NEWEST_WRITERS: usize = 14;
/// By fewer columns the column of the writers does not become narrower.
const MIN_NARROWING: usize = 6;

/// Draws the screen; returns the page size in rows.
pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, pane: &mut LogsPane) -> usize {
    let width = usize::from(area.width);
    let head_rows = usize::from(!pane.zoomed);
    let room = usize::from(area.height).saturating_sub(head_rows);
    index_more(pane, model, 1 << 20);
    let Some(_) = pane.shown_log(&model.state) else {
        render_lines(frame, area, vec![Line::styled(model.lang.tr(" no logs yet"), model.theme.dim())]);
        return room;
    };
    let read = read_visible(pane, model, room);
    let mut lines = Vec::new();
    if !pane.zoomed {
        lines.push(header_line(pane, model, width, read.as_ref().map_or(0, |(size, _)| *size)));
    }
    // One column for the scrollbar.
    let bar = !pane.zoomed && width > 30;
    let inner = width - usize::from(bar);
    match read {
        Ok((size, found)) => {
            fit_writer_width(pane, model, &found);
            let shown = found.iter().flat_map(|row| row_lines(pane, model, row, inner));
            let shown: Vec<Line<'static>> = older_lines_note(pane, model, found.first(), inner).into_iter().chain(shown).collect();
            let skip = if pane.top.is_none() { shown.len().saturating_sub(room) } else { 0 };
            lines.extend(shown.into_iter().skip(skip).take(room));
            if found.is_empty() {
                lines.push(Line::styled(empty_log_text(pane, model), model.theme.dim()));
            }
            render_lines(frame, Rect { width: area.width - u16::from(bar), ..area }, lines);
            if bar && found.len() >= room {
                let column = Rect { x: area.x + area.width - 1, width: 1, ..rows_area(area, 1, area.height.saturating_sub(1)) };
                render_lines(frame, column, scrollbar(pane, model, size, &found, room));
            }
        }
        Err(error) => {
            lines.push(Line::styled(
                model.lang.tr_fill(" cannot read the log: {}", &[&model.sanitize(&error.to_string())]),
                model.theme.dim(),
            ));
            render_lines(frame, area, lines);
        }
    }
    room
}

/// Draws the rows alone, without a header. Gives whether there is any.
pub(crate) fn draw_rows(frame: &mut Frame<'_>, area: Rect, model: &Model, pane: &mut LogsPane) -> bool {
    let (width, room) = (usize::from(area.width), usize::from(area.height));
    let Ok((_, found)) = read_visible(pane, model, room) else { return false };
    fit_writer_width(pane, model, &found);
    let lines: Vec<Line<'static>> = found.iter().flat_map(|row| row_lines(pane, model, row, width)).collect();
    let skip = if pane.top.is_none() { lines.len().saturating_sub(room) } else { 0 };
    let any = !lines.is_empty();
    render_lines(frame, area, lines.into_iter().skip(skip).take(room).collect());
    any
}

/// Merged logs keep only the newest lines: a note above the oldest one says where the rest is.
fn older_lines_note(pane: &LogsPane, model: &Model, first: Option<&LogRow>, width: usize) -> Option<Line<'static>> {
    if !is_oldest_kept(pane, model, first?) {
        return None;
    }
    let mark = model.theme.ellipsis();
    let text =
        model.lang.tr_fill(" {} older lines are in each rank's log: press {} on a line to open it", &[mark, &model.key(UiCommand::Open)]);
    Some(Line::styled(style::truncate_text(&text, width), model.theme.dim()))
}

fn empty_log_text(pane: &LogsPane, model: &Model) -> String {
    let lang = model.lang;
    match (pane.filter.is_some(), pane.scope) {
        (true, _) => lang.tr_fill(" no line matches the filter: press {} to change it", &[&model.key(UiCommand::Filter)]),
        (false, LogScope::Single) => lang.tr(" no output yet").to_owned(),
        (false, _) => lang.tr(" no lines since the dashboard opened: older ones are in each rank's log").to_owned(),
    }
}

/// A row's text, sanitized.
pub(super) fn safe_text(pane: &LogsPane, model: &Model, row: &LogRow) -> String {
    let text = model.sanitize(&String::from_utf8_lossy(&row.bytes));
    if pane.show_bytes && row.group.is_none() {
        let escaped = escape_bytes(&row.bytes);
        // An escape sequence inside a secret must not prevent its masking.
        let plain = crate::text::sanitize::sanitize_text(&String::from_utf8_lossy(&row.bytes)).replace('\t', "    ");
        return if plain == text || !model.sanitizer.has_secrets() { model.sanitize(&escaped) } else { text };
    }
    text
}

/// The writer of a merged row.
pub(super) fn writer_label(model: &Model, row: &LogRow) -> String {
    let hosts = |list: &[u32]| style::format_hosts(&model.state, &model.sanitizer, list);
    match &row.group {
        Some(group) => group.writers.format(hosts),
        None => LogWriters::of(&[row.log]).format(hosts),
    }
}

/// ` 32`: how many logs a folded row stands for; empty where it is one.
fn writer_count(row: &LogRow) -> String {
    let count = row.group.as_ref().map_or(1, |group| group.writers.count);
    if count > 1 { format!(" {count}") } else { String::new() }
}

/// Fits the column to the writers of these rows.
fn fit_writer_width(pane: &mut LogsPane, model: &Model, rows: &[LogRow]) {
    let width = |row: &LogRow| writer_label(model, row).width() + writer_count(row).len();
    // Of the newest round the lines of some ranks may be on their way: until then their list is long.
    let newest = rows.last().filter(|_| pane.top.is_none()).map(|row| width(row).min(MAX_NEWEST_WRITERS));
    let whole = if newest.is_some() { &rows[..rows.len() - 1] } else { rows };
    let needed = whole.iter().map(width).chain(newest).max().unwrap_or(0);
    if pane.scope != LogScope::Single && (needed > pane.writer_width || pane.writer_width - needed >= MIN_NARROWING) {
        pane.writer_width = needed;
    }
}

/// The colour of a level that has no column of its own, else of the host, if the writers share one.
fn writer_style(model: &Model, row: &LogRow, has_level_column: bool) -> Style {
    let host = row.group.as_ref().map_or(Some(row.log.0), |group| group.writers.host);
    let own = host.map_or_else(|| model.theme.dim(), |host| model.theme.host_style(host));
    if has_level_column { own } else { style_of_level(model, &row.bytes).unwrap_or(own) }
}

/// A row as displayed: truncated or wrapped, with search matches highlighted.
fn row_lines(pane: &LogsPane, model: &Model, row: &LogRow, width: usize) -> Vec<Line<'static>> {
    let marked = pane.marks.iter().any(|mark| mark.log == row.log && mark.offset == row.offset);
    let sign = match (pane.found_position == Some(row.position), marked) {
        (true, _) => ">",
        (_, true) => "*",
        _ => " ",
    };
    let mut before = vec![Span::styled(sign, model.theme.accent())];
    let has_times = model.stored_logs.is_some() || row.received_at.is_some();
    let is_added = width >= WIDE && pane.time_column == TimeColumn::Off && has_times;
    let time_column = if is_added { TimeColumn::TimeOfDay } else { pane.time_column };
    match (time_column, row.received_at) {
        (TimeColumn::Off, _) => {}
        (TimeColumn::Relative, time) => before.push(Span::styled(
            formatting::pad_left(&time.map_or("-".to_owned(), |at| format!("-{} ", formatting::format_age(at, model.now))), 6),
            model.theme.dim(),
        )),
        (TimeColumn::TimeOfDay, Some(at)) => before.push(Span::styled(format!("{} ", model.format_time(at)), model.theme.dim())),
        (TimeColumn::TimeOfDay, None) => before.push(Span::styled("   -     ", model.theme.dim())),
    }
    if width >= WIDE {
        before.push(level_span(model, row));
    }
    if pane.scope != LogScope::Single {
        let room = pane.writer_width.min((width / 4).clamp(6, 28));
        let count = writer_count(row);
        let owner = format!("{}{count}", formatting::pad(&writer_label(model, row), room.saturating_sub(count.len())));
        before.push(Span::styled(formatting::pad(&owner, room), writer_style(model, row, width >= WIDE)));
        before.push(Span::raw(" "));
    }
    let used = formatting::spans_width(&before);
    let room = width.saturating_sub(used).max(1);
    if let Some(group) = row.group.as_ref().filter(|_| pane.search.is_none() && pane.first_column == 0 && !pane.wrap) {
        let style = |differs: bool| if differs { model.theme.accent() } else { Style::new() };
        let pieces: Vec<Span<'_>> = group.spans.iter().map(|(text, differs)| Span::styled(text.as_str(), style(*differs))).collect();
        before.extend(formatting::truncate_spans(&pieces, room));
        return vec![Line::from(before)];
    }
    let count = if row.draw_count > 1 { model.lang.tr_fill(" ({} updates)", &[&row.draw_count.to_string()]) } else { String::new() };
    let text = safe_text(pane, model, row) + &count;
    if pane.wrap {
        let indent = || vec![Span::raw(" ".repeat(used))];
        let parts = split_to_width(&text, room).into_iter().enumerate();
        return parts
            .map(|(n, part)| {
                Line::from_iter(if n == 0 { before.clone() } else { indent() }.into_iter().chain(highlight_matches(
                    pane,
                    model,
                    part.to_owned(),
                )))
            })
            .collect();
    }
    let rest: String = skip_columns(&text, pane.first_column);
    let (shown, more) = truncate_columns(&rest, room);
    let more = more.then(|| Span::styled(model.theme.ellipsis(), model.theme.dim()));
    vec![Line::from_iter(before.into_iter().chain(highlight_matches(pane, model, shown)).chain(more))]
}

/// The scrollbar, with errors, matches and marks.
fn scrollbar(pane: &LogsPane, model: &Model, size: u64, shown: &[LogRow], room: usize) -> Vec<Line<'static>> {
    let (from, to) = match (pane.scope, pane.is_unfolded) {
        (LogScope::Single, _) => (0, size),
        (_, true) => model.log_ring.seq_range(),
        (_, false) => pane.groups.id_range(),
    };
    let span = to.saturating_sub(from).max(1);
    let row = |at: u64| {
        usize::try_from(u128::from(at.saturating_sub(from)) * room as u128 / u128::from(span)).unwrap_or(0).min(room.saturating_sub(1))
    };
    let (track, thumb) = if model.theme.ascii { ("|", "#") } else { ("│", "█") };
    let mut cells = vec![(track, model.theme.dim()); room];
    if let (Some(first), Some(last)) = (shown.first(), shown.last()) {
        let last = if pane.top.is_none() { room.saturating_sub(1) } else { row(last.position) };
        for cell in cells.iter_mut().take(last + 1).skip(row(first.position).min(last)) {
            *cell = (thumb, model.theme.dim());
        }
    }
    let mut tick = |at: u64, sign: &'static str, status: DisplayStatus| {
        if let Some(cell) = cells.get_mut(row(at)) {
            *cell = (sign, model.theme.status_style(status));
        }
    };
    match (pane.scope, pane.is_unfolded) {
        (LogScope::Single, _) => {
            pane.index.errors.offsets().iter().for_each(|at| tick(*at, "!", DisplayStatus::Error));
            pane.index.matches.offsets().iter().for_each(|at| tick(*at, "=", DisplayStatus::Warn));
            let own = pane.marks.iter().filter(|mark| Some(mark.log) == pane.shown_log(&model.state));
            own.for_each(|mark| tick(mark.offset, "*", DisplayStatus::Ok));
        }
        (_, true) => pane.merged.errors.iter().for_each(|at| tick(*at, "!", DisplayStatus::Error)),
        (_, false) => {}
    }
    cells.into_iter().map(|(sign, style)| Line::styled(sign, style)).collect()
}

/// The text with search matches highlighted.
fn highlight_matches(pane: &LogsPane, model: &Model, text: String) -> Vec<Span<'static>> {
    let Some(wanted) = &pane.search else { return vec![Span::raw(text)] };
    let (mut spans, mut done) = (Vec::new(), 0);
    for hit in wanted.find_iter(text.as_bytes()).filter(|hit| !hit.is_empty()).take(100) {
        // A byte pattern may split a character: then nothing is highlighted.
        let (Some(before), Some(inside)) = (text.get(done..hit.start()), text.get(hit.range())) else { continue };
        spans.push(Span::raw(before.to_owned()));
        spans.push(Span::styled(inside.to_owned(), model.theme.selected()));
        done = hit.end();
    }
    spans.push(Span::raw(text.get(done..).unwrap_or_default().to_owned()));
    spans
}
