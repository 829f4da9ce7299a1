//! Logs: one rank's or launcher's, all of a host, or all; the newest lines as they come, or the place that was scrolled to, which nothing moves.
//!
//! Uses `pager`, `scan`, `ring` and `groups`. The text of one log is read from the stored file; of several the newest lines are kept, each
//! or those that are alike as one. Every place is a number of its own kind: a byte of the file, a line of the ring, a group.

mod export;
mod render;
mod rows;

pub(crate) use render::draw;

use std::io;

use regex::bytes::Regex;

use crate::event::LogFile;
use crate::state::RunState;
use crate::tui::keymap::UiCommand;
use crate::tui::line_filter::{self, LineFilter, LineOrigin, LogLevel};
use crate::tui::log_groups::LogGroups;
use crate::tui::log_index::{LineQuery, LogIndex};
use crate::tui::log_pager::LogSource;
use crate::tui::model::Model;
use crate::tui::pane_action::PaneAction;

use rows::{LogRow, MergedLines, count_lines, rows_before, rows_from, update_merged, with_log};

/// Whose lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum LogScope {
    /// Of one log.
    #[default]
    Single,
    /// Of all logs.
    All,
    /// Of all logs of a host.
    Host,
}

/// When a line came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum TimeColumn {
    /// Not shown.
    #[default]
    Off,
    /// How long ago.
    Relative,
    /// The time of day.
    TimeOfDay,
}

/// A line that the person marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LineMark {
    log: (u32, LogFile),
    offset: u64,
}

/// How many marks are kept.
const MAX_MARKS: usize = 1_000;
/// How many bytes one key searches: so much of a file is read in a moment.
const SEARCH_BYTES: u64 = 64 << 20;
/// How many bytes of a log are looked at while time goes by.
const SCAN_BYTES_PER_TICK: u64 = 4 << 20;

/// What the logs remember.
#[derive(Debug, Clone)]
pub struct LogsPane {
    /// Whose log; none: that of the first rank.
    selected_log: Option<(u32, LogFile)>,
    scope: LogScope,
    /// Equal lines of several logs are one.
    fold: bool,
    /// The newest lines are shown as they come.
    follow: bool,
    /// Else the place of the first line that is shown, and how much there was when the screen left the newest line.
    first_position: u64,
    lines_when_left: u64,
    /// Long lines are shown whole.
    wrap: bool,
    /// The first column that is shown.
    first_column: usize,
    time_column: TimeColumn,
    /// Every byte as it is.
    show_bytes: bool,
    /// Every picture of a progress bar.
    show_all_redraws: bool,
    zoomed: bool,
    /// What is looked for.
    search: Option<Regex>,
    /// The line that was found last.
    found_position: Option<u64>,
    filter: Option<LineFilter>,
    marks: Vec<LineMark>,
    /// What is known of the one log.
    index: LogIndex,
    /// What is known of several.
    merged: MergedLines,
    groups: LogGroups,
    /// What was drawn last, and of what.
    cached_rows: Option<(rows::RowCacheKey, Vec<LogRow>)>,
}

impl Default for LogsPane {
    fn default() -> Self {
        LogsPane {
            selected_log: None,
            scope: LogScope::Single,
            fold: true,
            follow: true,
            first_position: 0,
            lines_when_left: 0,
            wrap: false,
            first_column: 0,
            time_column: TimeColumn::Off,
            show_bytes: false,
            show_all_redraws: false,
            zoomed: false,
            search: None,
            found_position: None,
            filter: None,
            marks: Vec::new(),
            index: LogIndex::default(),
            merged: MergedLines::default(),
            groups: LogGroups::default(),
            cached_rows: None,
        }
    }
}

impl LogsPane {
    /// Shows another log, from its newest lines on.
    pub(crate) fn show_log(&mut self, who: (u32, LogFile)) {
        (self.selected_log, self.scope) = (Some(who), LogScope::Single);
        self.reset_view();
    }

    /// Something else is shown: from its newest line on, and nothing is known of it.
    fn reset_view(&mut self) {
        (self.follow, self.first_position, self.first_column, self.found_position) = (true, 0, 0, None);
        self.clear_caches();
    }

    /// What was found out is void.
    fn clear_caches(&mut self) {
        (self.index, self.merged, self.groups, self.cached_rows) =
            (LogIndex::default(), MergedLines::default(), LogGroups::default(), None);
    }

    /// The feed begins anew.
    pub(crate) fn reset(&mut self) {
        self.reset_view();
    }

    /// Whether nothing but the log is to be on the screen.
    pub(crate) fn is_zoomed(&self) -> bool {
        self.zoomed
    }

    /// The one log that is shown, or was before all of them were.
    pub(crate) fn shown_log(&self, state: &RunState) -> Option<(u32, LogFile)> {
        self.selected_log.or_else(|| all_logs(state).first().copied())
    }

    /// The filter as it was typed.
    pub(crate) fn filter_text(&self) -> String {
        self.filter.as_ref().map_or_else(String::new, |filter| filter.text.clone())
    }
}

/// All logs of ranks in their order; those of launchers where there are no ranks yet.
fn all_logs(state: &RunState) -> Vec<(u32, LogFile)> {
    let ranks: Vec<_> = state.ranks.values().map(|rank| (rank.host, LogFile::Rank { rank: rank.rank, restart: rank.restart })).collect();
    if ranks.is_empty() { (0_u32..).zip(&state.hosts).map(|(at, _)| (at, LogFile::Launcher)).collect() } else { ranks }
}

/// Whose line it is, for filters.
fn line_origin(state: &RunState, log: (u32, LogFile)) -> LineOrigin<'_> {
    let rank = match log.1 {
        LogFile::Rank { rank, .. } => Some(rank),
        LogFile::Launcher => None,
    };
    LineOrigin { rank, host: state.host_name(log.0) }
}

/// Obeys a command.
pub(crate) fn update(pane: &mut LogsPane, model: &Model, cmd: UiCommand) -> Option<PaneAction> {
    obey(pane, model, cmd).unwrap_or_else(|error| toast(error.to_string()))
}

/// Asks for a line for the person.
fn toast(text: impl Into<String>) -> Option<PaneAction> {
    Some(PaneAction::ShowToast(text.into()))
}

/// What a command asks for beyond this pane; an error where the log cannot be read.
type LogsResult = io::Result<Option<PaneAction>>;

fn obey(pane: &mut LogsPane, model: &Model, cmd: UiCommand) -> LogsResult {
    update_merged(pane, model);
    let page = model.page_rows.max(1);
    let half = page.div_ceil(2);
    match cmd {
        UiCommand::Up => return scroll_up(pane, model, 1),
        UiCommand::Down => return scroll_down(pane, model, 1),
        UiCommand::PageUp => return scroll_up(pane, model, page),
        UiCommand::PageDown => return scroll_down(pane, model, page),
        UiCommand::HalfUp => return scroll_up(pane, model, half),
        UiCommand::HalfDown => return scroll_down(pane, model, half),
        UiCommand::Top => {
            stop_following(pane, model);
            pane.first_position = 0;
        }
        UiCommand::Bottom => pane.follow = true,
        UiCommand::Follow if pane.follow => return scroll_up(pane, model, 0),
        UiCommand::Follow => pane.follow = true,
        UiCommand::Wrap => pane.wrap = !pane.wrap,
        UiCommand::Left => pane.first_column = pane.first_column.saturating_sub(20),
        UiCommand::Right => pane.first_column = (pane.first_column + 20).min(16 << 10),
        UiCommand::PrevRank => show_adjacent_log(pane, model, false),
        UiCommand::NextRank => show_adjacent_log(pane, model, true),
        UiCommand::PrevHost => show_adjacent_host(pane, model, false),
        UiCommand::NextHost => show_adjacent_host(pane, model, true),
        UiCommand::NodeLog => toggle_launcher_log(pane, model),
        UiCommand::FindNext => return find_match(pane, model, true),
        UiCommand::FindPrev => return find_match(pane, model, false),
        UiCommand::NextError | UiCommand::PrevError => {
            let wrong = |row: &LogRow| line_filter::detect_level(&row.bytes) == LogLevel::Error;
            return seek_row(pane, model, cmd == UiCommand::PrevError, wrong, "says that something is wrong");
        }
        UiCommand::Merge => cycle_scope(pane),
        UiCommand::Fold => {
            pane.fold = !pane.fold;
            pane.reset_view();
        }
        UiCommand::Open => return open_own_log(pane, model),
        UiCommand::Times => {
            pane.time_column = match pane.time_column {
                TimeColumn::Off => TimeColumn::Relative,
                TimeColumn::Relative => TimeColumn::TimeOfDay,
                TimeColumn::TimeOfDay => TimeColumn::Off,
            }
        }
        UiCommand::Bytes => pane.show_bytes = !pane.show_bytes,
        UiCommand::Collapse => pane.show_all_redraws = !pane.show_all_redraws,
        UiCommand::Zoom => pane.zoomed = !pane.zoomed,
        UiCommand::Mark => return Ok(toggle_mark(pane)),
        UiCommand::NextMark => return go_to_next_mark(pane, model),
        UiCommand::Copy => return Ok(Some(export::copy_line(pane, model))),
        UiCommand::CopyView => return Ok(Some(export::copy_screen(pane, model))),
        UiCommand::Save => return export::save_all(pane, model).map(Some),
        _ => {}
    }
    Ok(None)
}

/// One log, all, those of its host.
fn cycle_scope(pane: &mut LogsPane) {
    pane.scope = match pane.scope {
        LogScope::Single => LogScope::All,
        LogScope::All => LogScope::Host,
        LogScope::Host => LogScope::Single,
    };
    pane.reset_view();
}

/// From a line of several logs to its own log, at its place.
fn open_own_log(pane: &mut LogsPane, model: &Model) -> LogsResult {
    let several = pane.scope != LogScope::Single;
    let Some((log, place)) = current_row(pane).filter(|_| several).map(|row| (row.log, row.offset)) else { return Ok(None) };
    pane.show_log(log);
    seek_offset(pane, model, place)
}

fn show_adjacent_log(pane: &mut LogsPane, model: &Model, next: bool) {
    let all = all_logs(&model.state);
    let Some(at) = pane
        .shown_log(&model.state)
        .and_then(|who| all.iter().position(|log| *log == who).or_else(|| all.iter().position(|log| log.0 == who.0)))
    else {
        return;
    };
    let to = if next { (at + 1) % all.len() } else { (at + all.len() - 1) % all.len() };
    pane.show_log(all[to]);
}

fn show_adjacent_host(pane: &mut LogsPane, model: &Model, next: bool) {
    let hosts = u32::try_from(model.state.hosts.len()).unwrap_or(u32::MAX);
    let Some((host, _)) = pane.shown_log(&model.state).filter(|_| hosts > 0) else { return };
    let to = if next { (host + 1) % hosts } else { (host + hosts - 1) % hosts };
    let first = all_logs(&model.state).into_iter().find(|log| log.0 == to).unwrap_or((to, LogFile::Launcher));
    let mode = pane.scope;
    pane.show_log(first);
    if mode == LogScope::Host {
        pane.scope = mode;
    }
}

fn toggle_launcher_log(pane: &mut LogsPane, model: &Model) {
    let Some((host, file)) = pane.shown_log(&model.state) else { return };
    let to = match file {
        LogFile::Rank { .. } => (host, LogFile::Launcher),
        LogFile::Launcher => all_logs(&model.state).into_iter().find(|log| log.0 == host).unwrap_or((host, LogFile::Launcher)),
    };
    pane.show_log(to);
}

/// Looks for a text from the newest line backwards: as a regular expression where it is one, without regard to case where it has no capital.
pub(crate) fn set_search(pane: &mut LogsPane, model: &Model, text: &str) -> Option<PaneAction> {
    pane.found_position = None;
    if text.is_empty() {
        pane.search = None;
        pane.clear_caches();
        return None;
    }
    match line_filter::compile_pattern(text) {
        Ok(wanted) => {
            pane.search = Some(wanted);
            pane.clear_caches();
            update_merged(pane, model);
            find_match(pane, model, false).unwrap_or_else(|error| toast(error.to_string()))
        }
        Err(error) => toast(error),
    }
}

/// Shows only lines that the typed text describes; all again for an empty one.
pub(crate) fn set_filter(pane: &mut LogsPane, model: &Model, text: &str) -> Option<PaneAction> {
    match LineFilter::parse(text) {
        Ok(filter) => {
            pane.filter = filter;
            pane.reset_view();
            index_more(pane, model, SEARCH_BYTES);
            update_merged(pane, model);
            None
        }
        Err(why) => toast(why),
    }
}

/// Goes to the next line that has what is looked for, or the one before.
fn find_match(pane: &mut LogsPane, model: &Model, next: bool) -> LogsResult {
    let Some(wanted) = pane.search.clone() else { return Ok(toast("nothing is looked for: / asks")) };
    seek_row(pane, model, next, |row| wanted.is_match(&row.bytes), "has it")
}

/// Goes to the next row that passes, or the one before.
fn seek_row(pane: &mut LogsPane, model: &Model, next: bool, passes: impl Fn(&LogRow) -> bool, what: &str) -> LogsResult {
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
        LogSearchResult::NotFound => Ok(toast(format!("no {} line {what}", if next { "further" } else { "earlier" }))),
        LogSearchResult::LimitReached(at) => {
            pane.found_position = Some(at);
            Ok(toast("not within 64 MiB from here; once more looks further"))
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
    /// Nowhere.
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
fn current_row(pane: &LogsPane) -> Option<&LogRow> {
    let rows = &pane.cached_rows.as_ref()?.1;
    let found = pane.found_position.and_then(|at| rows.iter().find(|row| row.position == at));
    found.or_else(|| if pane.follow { rows.last() } else { rows.first() })
}

/// Leaves the newest line: from now on what comes is counted.
fn stop_following(pane: &mut LogsPane, model: &Model) {
    if pane.follow {
        pane.lines_when_left = count_lines(pane, model);
        pane.follow = false;
    }
}

/// Shows the log from near that place on, which need not be the beginning of a line.
pub(crate) fn go_to_offset(pane: &mut LogsPane, model: &Model, place: u64) -> Option<PaneAction> {
    seek_offset(pane, model, place).unwrap_or_else(|error| toast(error.to_string()))
}

fn seek_offset(pane: &mut LogsPane, model: &Model, place: u64) -> LogsResult {
    let begins = |source: &LogSource<'_>| Ok(source.lines_before(place.saturating_add(1), 1)?.first().map_or(0, |line| line.offset));
    if let Some(line) = with_log(pane, model, begins)? {
        show_found(pane, model, line);
    }
    Ok(None)
}

fn scroll_up(pane: &mut LogsPane, model: &Model, by: usize) -> LogsResult {
    let from = if pane.follow { first_visible(pane) } else { pane.first_position };
    let rows = rows_before(pane, model, from, by)?;
    stop_following(pane, model);
    pane.first_position = rows.first().map_or(from, |row| row.position);
    Ok(None)
}

fn scroll_down(pane: &mut LogsPane, model: &Model, by: usize) -> LogsResult {
    if !pane.follow {
        let from = pane.first_position;
        let rows = rows_from(pane, model, from, by + 1)?;
        let end = rows_before(pane, model, u64::MAX, model.page_rows.max(1))?.first().map_or(0, |row| row.position);
        pane.first_position = rows.last().map_or(from, |row| row.position).min(end.max(from));
    }
    Ok(None)
}

fn toggle_mark(pane: &mut LogsPane) -> Option<PaneAction> {
    let row = current_row(pane)?;
    let (mark, text) = (LineMark { log: row.log, offset: row.offset }, row.bytes.clone());
    match pane.marks.iter().position(|known| *known == mark) {
        Some(at) => {
            pane.marks.remove(at);
            None
        }
        None if pane.marks.len() >= MAX_MARKS => toast("no more marks: take some away"),
        None => {
            pane.marks.push(mark);
            Some(PaneAction::AddMark(mark.log, String::from_utf8_lossy(&text[..text.len().min(200)]).into_owned()))
        }
    }
}

/// The mark after the line that is meant, in the order of logs and places; then the first one again.
fn go_to_next_mark(pane: &mut LogsPane, model: &Model) -> LogsResult {
    let here = current_row(pane).map(|row| (row.log, row.offset));
    let mut marks: Vec<(_, u64)> = pane.marks.iter().map(|mark| (mark.log, mark.offset)).collect();
    marks.sort_unstable();
    let next = marks.iter().find(|mark| here.is_none_or(|here| **mark > here)).or(marks.first()).copied();
    let Some((log, place)) = next else { return Ok(toast("no line is marked: m marks one")) };
    if pane.scope != LogScope::Single || pane.shown_log(&model.state) != Some(log) {
        pane.show_log(log);
    }
    seek_offset(pane, model, place)
}

/// Whether there is more of the log to look at.
pub(crate) fn is_indexing(pane: &LogsPane) -> bool {
    pane.scope == LogScope::Single && pane.index.is_scanning()
}

/// Time goes by: looks at more of the log. Whether that shows.
pub(crate) fn index_on_tick(pane: &mut LogsPane, model: &Model) -> bool {
    let counts = |pane: &LogsPane| [&pane.index.errors, &pane.index.filtered, &pane.index.matches].map(|places| places.offsets().len());
    let before = counts(pane);
    let whole = index_more(pane, model, SCAN_BYTES_PER_TICK);
    before != counts(pane) || whole
}

/// Looks at so many bytes more of the one log; whether its beginning was reached just now.
fn index_more(pane: &mut LogsPane, model: &Model, budget: u64) -> bool {
    if pane.scope != LogScope::Single {
        return false;
    }
    let mut scan = std::mem::take(&mut pane.index);
    let whole = scan.is_complete();
    let done = with_log(pane, model, |source| {
        let (text, filter) = (pane.search.as_ref(), pane.filter.as_ref());
        scan.scan_more(source, LineQuery { pattern: text, filter, origin: line_origin(&model.state, (source.host, source.file)) }, budget)
    });
    pane.index = scan;
    match done {
        Ok(done) => done.unwrap_or(false) && !whole,
        Err(error) => {
            tracing::debug!(%error, "the log could not be looked at");
            false
        }
    }
}

#[cfg(test)]
mod tests;
