//! Moving in logs: scrolling, searching, marks, and from a line of several logs to its own log.
//!
//! Uses the rows. Each move reads no more than it needs; where a log cannot be read, the view stays where it is.

use std::io;

use crate::tui::log_source::LogSource;
use crate::tui::model::Model;
use crate::tui::pane_action::PaneAction;

use super::pane::{LineMark, LogRow, LogScope, LogsPane};
use super::rows::{count_lines, rows_before, rows_from, with_shown_log};

/// How many marks are kept.
const MAX_MARKS: usize = 1_000;
/// How many bytes one key searches: so much of a file is read in a moment.
pub(super) const SEARCH_BYTES: u64 = 64 << 20;

/// Asks for a line for the person.
pub(super) fn toast(text: impl Into<String>) -> Option<PaneAction> {
    Some(PaneAction::ShowToast(text.into()))
}

/// What a command asks for beyond this pane; an error where the log cannot be read.
pub(super) type LogsResult = io::Result<Option<PaneAction>>;

/// From a line of several logs to its own log, at its place.
pub(super) fn open_log_of_row(pane: &mut LogsPane, model: &Model) -> LogsResult {
    let several = pane.scope != LogScope::Single;
    let Some((log, place)) = current_row(pane).filter(|_| several).map(|row| (row.log, row.offset)) else { return Ok(None) };
    pane.show_log(log);
    seek_offset(pane, model, place)
}

/// Goes to the next line that has what is looked for, or the one before.
pub(super) fn find_match(pane: &mut LogsPane, model: &Model, next: bool) -> LogsResult {
    let Some(wanted) = pane.search.clone() else { return Ok(toast("no search pattern: press /")) };
    seek_row(pane, model, next, |row| wanted.is_match(&row.bytes), "matches")
}

/// Goes to the next row that passes, or the one before.
pub(super) fn seek_row(pane: &mut LogsPane, model: &Model, next: bool, passes: impl Fn(&LogRow) -> bool, what: &str) -> LogsResult {
    let from = match pane.found_position {
        Some(found) => found,
        None if pane.follow => u64::MAX,
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

/// Shows the line that begins there, beneath a few lines of what went before: they help to understand it.
fn show_found(pane: &mut LogsPane, model: &Model, line: u64) {
    stop_following(pane, model);
    pane.found_position = Some(line);
    let above = rows_before(pane, model, line, model.page_rows / 3).ok();
    pane.first_position = above.and_then(|rows| rows.first().map(|row| row.position)).unwrap_or(line);
}

enum LogSearchResult {
    /// In the line that begins there.
    Found(u64),
    NotFound,
    /// Not before that place; more is to be searched.
    LimitReached(u64),
}

fn search_forward(pane: &LogsPane, model: &Model, from: u64, passes: &impl Fn(&LogRow) -> bool) -> io::Result<LogSearchResult> {
    if from == u64::MAX {
        return Ok(LogSearchResult::NotFound);
    }
    // After the line that was found before; else from the first one on the screen.
    let mut at = match pane.found_position {
        Some(found) => rows_from(pane, model, found, 1)?.first().map_or(found, |row| row.next_position),
        None => from,
    };
    let end = at.saturating_add(SEARCH_BYTES);
    while at < end {
        let rows = rows_from(pane, model, at, 1_000)?;
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
        let rows = rows_before(pane, model, at, 1_000)?;
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

/// The place of the first line that is on the screen.
fn first_visible(pane: &LogsPane) -> u64 {
    pane.cached_rows.as_ref().and_then(|(_, rows)| rows.first()).map_or(pane.first_position, |row| row.position)
}

/// The line that is meant where one is meant: the one that was found, if it is on the screen, else the newest or the first one there.
pub(super) fn current_row(pane: &LogsPane) -> Option<&LogRow> {
    let rows = &pane.cached_rows.as_ref()?.1;
    let found = pane.found_position.and_then(|at| rows.iter().find(|row| row.position == at));
    found.or_else(|| if pane.follow { rows.last() } else { rows.first() })
}

/// Leaves the newest line: from now on what comes is counted.
pub(super) fn stop_following(pane: &mut LogsPane, model: &Model) {
    if pane.follow {
        pane.lines_when_left = count_lines(pane, model);
        pane.follow = false;
    }
}

/// Shows the log from near that place on, which need not be the beginning of a line.
pub(crate) fn go_to_offset(pane: &mut LogsPane, model: &Model, offset: u64) -> Option<PaneAction> {
    seek_offset(pane, model, offset).unwrap_or_else(|error| toast(error.to_string()))
}

fn seek_offset(pane: &mut LogsPane, model: &Model, place: u64) -> LogsResult {
    let begins = |source: &LogSource<'_>| Ok(source.lines_before(place.saturating_add(1), 1)?.first().map_or(0, |line| line.offset));
    if let Some(line) = with_shown_log(pane, model, begins)? {
        show_found(pane, model, line);
    }
    Ok(None)
}

pub(super) fn scroll_up(pane: &mut LogsPane, model: &Model, by: usize) -> LogsResult {
    let from = if pane.follow { first_visible(pane) } else { pane.first_position };
    let rows = rows_before(pane, model, from, by)?;
    stop_following(pane, model);
    pane.first_position = rows.first().map_or(from, |row| row.position);
    Ok(None)
}

pub(super) fn scroll_down(pane: &mut LogsPane, model: &Model, by: usize) -> LogsResult {
    if !pane.follow {
        let from = pane.first_position;
        let rows = rows_from(pane, model, from, by + 1)?;
        let end = rows_before(pane, model, u64::MAX, model.page_rows.max(1))?.first().map_or(0, |row| row.position);
        pane.first_position = rows.last().map_or(from, |row| row.position).min(end.max(from));
    }
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

/// The mark after the line that is meant, in the order of logs and places; then the first one again.
pub(super) fn go_to_next_mark(pane: &mut LogsPane, model: &Model) -> LogsResult {
    let here = current_row(pane).map(|row| (row.log, row.offset));
    let mut marks: Vec<(_, u64)> = pane.marks.iter().map(|mark| (mark.log, mark.offset)).collect();
    marks.sort_unstable();
    let next = marks.iter().find(|mark| here.is_none_or(|here| **mark > here)).or(marks.first()).copied();
    let Some((log, place)) = next else { return Ok(toast("no marked lines: press m to mark one")) };
    if pane.scope != LogScope::Single || pane.shown_log(&model.state) != Some(log) {
        pane.show_log(log);
    }
    seek_offset(pane, model, place)
}
