//! Navigation in logs: scrolling, searching, marks, and from a merged line to its own log.
//!
//! Each move reads only what it needs; if a log cannot be read, the view does not move.

use std::io;

use crate::tui::keymap::UiCommand;
use crate::tui::log_source::LogSource;
use crate::tui::model::Model;
use crate::tui::pane_action::PaneAction;

use super::pane::{LineMark, LogRow, LogScope, LogsPane};
use super::rows::{RowRange, count_lines, read_rows, with_shown_log};

/// Maximum number of marks.
const MAX_MARKS: usize = 1_000;
/// Bytes to search per key press: that much can be read without a visible delay.
pub(super) const SEARCH_BYTES: u64 = 64 << 20;

pub(super) fn toast(text: impl Into<String>) -> Option<PaneAction> {
    Some(PaneAction::ShowToast(text.into()))
}

/// The pane's request, or an error if the log cannot be read.
pub(super) type LogsResult = io::Result<Option<PaneAction>>;

/// Opens the log of a merged line at that line.
pub(super) fn open_log_of_row(pane: &mut LogsPane, model: &Model) -> LogsResult {
    let several = pane.scope != LogScope::Single;
    let Some((log, offset)) = current_row(pane).filter(|_| several).map(|row| (row.log, row.offset)) else { return Ok(None) };
    pane.show_log(log);
    seek_offset(pane, model, offset)
}

/// Asks for the log of the current line of a merged log, at the time of that line.
pub(crate) fn open_row(pane: &LogsPane) -> Option<PaneAction> {
    let row = current_row(pane)?;
    Some(row.received_at.map_or(PaneAction::ShowLog(row.log), |at| PaneAction::ShowLogAt(row.log, at)))
}

/// Goes to the next or previous match.
pub(super) fn find_match(pane: &mut LogsPane, model: &Model, next: bool) -> LogsResult {
    let Some(wanted) = pane.search.clone() else { return Ok(toast(format!("no search pattern: press {}", model.key(UiCommand::Find)))) };
    seek_row(pane, model, next, |row| wanted.is_match(&row.bytes), "matches")
}

/// Goes to the next or previous row that `passes` accepts.
pub(super) fn seek_row(pane: &mut LogsPane, model: &Model, next: bool, passes: impl Fn(&LogRow) -> bool, what: &str) -> LogsResult {
    let from = match pane.found_position {
        Some(found) => found,
        None if pane.top.is_none() => u64::MAX,
        None => first_visible(pane),
    };
    let hit = if next { search_forward(pane, model, from, &passes) } else { search_backward(pane, model, from, &passes) };
    match hit? {
        LogSearchResult::Found(at) => {
            show_found(pane, model, at);
            Ok(None)
        }
        LogSearchResult::NotFound => Ok(toast(format!("no {} line {what}", if next { "later" } else { "earlier" }))),
        LogSearchResult::LimitReached(at) => {
            pane.found_position = Some(at);
            Ok(toast("no match within 64 MiB; repeat to search further"))
        }
    }
}

/// Shows the found line with a few lines of context above it.
fn show_found(pane: &mut LogsPane, model: &Model, line: u64) {
    pane.found_position = Some(line);
    let above = read_rows(pane, model, RowRange::Before(line), model.page_rows / 3).ok();
    scroll_to(pane, model, above.and_then(|rows| rows.first().map(|row| row.position)).unwrap_or(line));
}

enum LogSearchResult {
    /// Start of the matching line.
    Found(u64),
    NotFound,
    /// Nothing up to this position; the search can continue from here.
    LimitReached(u64),
}

fn search_forward(pane: &LogsPane, model: &Model, from: u64, passes: &impl Fn(&LogRow) -> bool) -> io::Result<LogSearchResult> {
    if from == u64::MAX {
        return Ok(LogSearchResult::NotFound);
    }
    // After the previous match, otherwise from the first visible line.
    let mut at = match pane.found_position {
        Some(found) => read_rows(pane, model, RowRange::From(found), 1)?.first().map_or(found, |row| row.next_position),
        None => from,
    };
    let end = at.saturating_add(SEARCH_BYTES);
    while at < end {
        let rows = read_rows(pane, model, RowRange::From(at), 1_000)?;
        if let Some(row) = rows.iter().find(|row| passes(row)) {
            return Ok(LogSearchResult::Found(row.position));
        }
        match rows.last() {
            Some(row) if row.next_position > at => at = row.next_position,
            _ => return Ok(LogSearchResult::NotFound),
        }
    }
    Ok(LogSearchResult::LimitReached(at))
}

fn search_backward(pane: &LogsPane, model: &Model, from: u64, passes: &impl Fn(&LogRow) -> bool) -> io::Result<LogSearchResult> {
    let mut at = from;
    let mut end = None;
    loop {
        let rows = read_rows(pane, model, RowRange::Before(at), 1_000)?;
        if let Some(row) = rows.iter().rev().find(|row| passes(row)) {
            return Ok(LogSearchResult::Found(row.position));
        }
        match rows.first() {
            Some(row) if row.position > 0 && row.position < at => at = row.position,
            _ => return Ok(LogSearchResult::NotFound),
        }
        if at < *end.get_or_insert(at.saturating_sub(SEARCH_BYTES)) {
            return Ok(LogSearchResult::LimitReached(at));
        }
    }
}

/// Position of the first visible line.
fn first_visible(pane: &LogsPane) -> u64 {
    pane.cached_rows.as_ref().and_then(|(_, rows)| rows.first()).map_or(pane.top.unwrap_or(0), |row| row.position)
}

/// The current line: the last match if visible, otherwise the newest or the first visible line.
pub(super) fn current_row(pane: &LogsPane) -> Option<&LogRow> {
    let rows = &pane.cached_rows.as_ref()?.1;
    let found = pane.found_position.and_then(|at| rows.iter().find(|row| row.position == at));
    found.or_else(|| if pane.top.is_none() { rows.last() } else { rows.first() })
}

/// Shows the rows from this position on; when following stops, lines that arrive from now on are counted.
pub(super) fn scroll_to(pane: &mut LogsPane, model: &Model, position: u64) {
    if pane.top.is_none() {
        pane.lines_when_left = count_lines(pane, model);
    }
    pane.top = Some(position);
}

/// Shows the log from about this offset, which need not be the start of a line.
pub(crate) fn go_to_offset(pane: &mut LogsPane, model: &Model, offset: u64) -> Option<PaneAction> {
    seek_offset(pane, model, offset).unwrap_or_else(|error| toast(error.to_string()))
}

fn seek_offset(pane: &mut LogsPane, model: &Model, offset: u64) -> LogsResult {
    let begins = |source: &LogSource<'_>| Ok(source.lines_before(offset.saturating_add(1), 1)?.first().map_or(0, |line| line.offset));
    if let Some(line) = with_shown_log(pane, model, begins)? {
        show_found(pane, model, line);
    }
    Ok(None)
}

pub(super) fn scroll_up(pane: &mut LogsPane, model: &Model, by: usize) -> LogsResult {
    let from = pane.top.unwrap_or_else(|| first_visible(pane));
    let rows = read_rows(pane, model, RowRange::Before(from), by)?;
    scroll_to(pane, model, rows.first().map_or(from, |row| row.position));
    Ok(None)
}

pub(super) fn scroll_down(pane: &mut LogsPane, model: &Model, by: usize) -> LogsResult {
    let Some(from) = pane.top else { return Ok(None) };
    let rows = read_rows(pane, model, RowRange::From(from), by + 1)?;
    let end = read_rows(pane, model, RowRange::Before(u64::MAX), model.page_rows.max(1))?.first().map_or(0, |row| row.position);
    pane.top = Some(rows.last().map_or(from, |row| row.position).min(end.max(from)));
    Ok(None)
}

pub(super) fn toggle_mark(pane: &mut LogsPane) -> Option<PaneAction> {
    let row = current_row(pane)?;
    let (mark, text) = (LineMark { log: row.log, offset: row.offset }, row.bytes.clone());
    match pane.marks.iter().position(|known| *known == mark) {
        Some(at) => {
            pane.marks.remove(at);
            None
        }
        None if pane.marks.len() >= MAX_MARKS => toast("too many marks: remove some"),
        None => {
            pane.marks.push(mark);
            Some(PaneAction::AddMark(mark.log, String::from_utf8_lossy(&text[..text.len().min(200)]).into_owned()))
        }
    }
}

/// Goes to the mark after the current line, in order of logs and offsets, with wrap-around.
pub(super) fn go_to_next_mark(pane: &mut LogsPane, model: &Model) -> LogsResult {
    let here = current_row(pane).map(|row| (row.log, row.offset));
    let mut marks: Vec<(_, u64)> = pane.marks.iter().map(|mark| (mark.log, mark.offset)).collect();
    marks.sort_unstable();
    let next = marks.iter().find(|mark| here.is_none_or(|here| **mark > here)).or(marks.first()).copied();
    let Some((log, offset)) = next else { return Ok(toast(format!("no marked lines: press {} to mark one", model.key(UiCommand::Mark)))) };
    if pane.scope != LogScope::Single || pane.shown_log(&model.state) != Some(log) {
        pane.show_log(log);
    }
    seek_offset(pane, model, offset)
}
