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
use crate::tui::app::App;
use crate::tui::keymap::UiCommand;
use crate::tui::line_filter::{self, LineFilter, LineOrigin, LogLevel};
use crate::tui::log_groups::LogGroups;
use crate::tui::log_index::{LineQuery, LogIndex};

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

/// The one log that is shown, or was before all of them were.
pub(crate) fn log_at_cursor(app: &App) -> Option<(u32, LogFile)> {
    shown_log(app)
}

fn shown_log(app: &App) -> Option<(u32, LogFile)> {
    app.logs_pane.selected_log.or_else(|| all_logs(&app.model.state).first().copied())
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
pub(crate) fn update(app: &mut App, cmd: UiCommand) {
    update_merged(app);
    let page = app.model.page_rows.max(1);
    let half = page.div_ceil(2);
    match cmd {
        UiCommand::Up => scroll_up(app, 1),
        UiCommand::Down => scroll_down(app, 1),
        UiCommand::PageUp => scroll_up(app, page),
        UiCommand::PageDown => scroll_down(app, page),
        UiCommand::HalfUp => scroll_up(app, half),
        UiCommand::HalfDown => scroll_down(app, half),
        UiCommand::Top => {
            stop_following(app);
            app.logs_pane.first_position = 0;
        }
        UiCommand::Bottom => app.logs_pane.follow = true,
        UiCommand::Follow if app.logs_pane.follow => scroll_up(app, 0),
        UiCommand::Follow => app.logs_pane.follow = true,
        UiCommand::Wrap => app.logs_pane.wrap = !app.logs_pane.wrap,
        UiCommand::Left => app.logs_pane.first_column = app.logs_pane.first_column.saturating_sub(20),
        UiCommand::Right => app.logs_pane.first_column = (app.logs_pane.first_column + 20).min(16 << 10),
        UiCommand::PrevRank => show_adjacent_log(app, false),
        UiCommand::NextRank => show_adjacent_log(app, true),
        UiCommand::PrevHost => show_adjacent_host(app, false),
        UiCommand::NextHost => show_adjacent_host(app, true),
        UiCommand::NodeLog => toggle_launcher_log(app),
        UiCommand::FindNext => find_match(app, true),
        UiCommand::FindPrev => find_match(app, false),
        UiCommand::NextError | UiCommand::PrevError => {
            let wrong = |row: &LogRow| line_filter::detect_level(&row.bytes) == LogLevel::Error;
            seek_row(app, cmd == UiCommand::PrevError, wrong, "says that something is wrong");
        }
        UiCommand::Merge => cycle_scope(app),
        UiCommand::Fold => {
            app.logs_pane.fold = !app.logs_pane.fold;
            app.logs_pane.reset_view();
        }
        UiCommand::Open => open_own_log(app),
        UiCommand::Times => {
            app.logs_pane.time_column = match app.logs_pane.time_column {
                TimeColumn::Off => TimeColumn::Relative,
                TimeColumn::Relative => TimeColumn::TimeOfDay,
                TimeColumn::TimeOfDay => TimeColumn::Off,
            }
        }
        UiCommand::Bytes => app.logs_pane.show_bytes = !app.logs_pane.show_bytes,
        UiCommand::Collapse => app.logs_pane.show_all_redraws = !app.logs_pane.show_all_redraws,
        UiCommand::Zoom => app.logs_pane.zoomed = !app.logs_pane.zoomed,
        UiCommand::Mark => toggle_mark(app),
        UiCommand::NextMark => go_to_next_mark(app),
        UiCommand::Copy => export::copy_line(app),
        UiCommand::CopyView => export::copy_screen(app),
        UiCommand::Save => export::save_all(app),
        _ => {}
    }
}

/// One log, all, those of its host.
fn cycle_scope(app: &mut App) {
    app.logs_pane.scope = match app.logs_pane.scope {
        LogScope::Single => LogScope::All,
        LogScope::All => LogScope::Host,
        LogScope::Host => LogScope::Single,
    };
    app.logs_pane.reset_view();
}

/// From a line of several logs to its own log, at its place.
fn open_own_log(app: &mut App) {
    if app.logs_pane.scope == LogScope::Single {
        return;
    }
    let Some((log, place)) = current_row(app).map(|row| (row.log, row.offset)) else { return };
    app.logs_pane.show_log(log);
    go_to_offset(app, place);
}

fn show_adjacent_log(app: &mut App, next: bool) {
    let all = all_logs(&app.model.state);
    let Some(at) =
        shown_log(app).and_then(|who| all.iter().position(|log| *log == who).or_else(|| all.iter().position(|log| log.0 == who.0)))
    else {
        return;
    };
    let to = if next { (at + 1) % all.len() } else { (at + all.len() - 1) % all.len() };
    app.logs_pane.show_log(all[to]);
}

fn show_adjacent_host(app: &mut App, next: bool) {
    let hosts = u32::try_from(app.model.state.hosts.len()).unwrap_or(u32::MAX);
    let Some((host, _)) = shown_log(app).filter(|_| hosts > 0) else { return };
    let to = if next { (host + 1) % hosts } else { (host + hosts - 1) % hosts };
    let first = all_logs(&app.model.state).into_iter().find(|log| log.0 == to).unwrap_or((to, LogFile::Launcher));
    let mode = app.logs_pane.scope;
    app.logs_pane.show_log(first);
    if mode == LogScope::Host {
        app.logs_pane.scope = mode;
    }
}

fn toggle_launcher_log(app: &mut App) {
    let Some((host, file)) = shown_log(app) else { return };
    let to = match file {
        LogFile::Rank { .. } => (host, LogFile::Launcher),
        LogFile::Launcher => all_logs(&app.model.state).into_iter().find(|log| log.0 == host).unwrap_or((host, LogFile::Launcher)),
    };
    app.logs_pane.show_log(to);
}

/// Looks for a text from the newest line backwards: as a regular expression where it is one, without regard to case where it has no capital.
pub(crate) fn set_search(app: &mut App, text: &str) {
    app.logs_pane.found_position = None;
    if text.is_empty() {
        app.logs_pane.search = None;
        app.logs_pane.clear_caches();
        return;
    }
    match line_filter::compile_pattern(text) {
        Ok(wanted) => {
            app.logs_pane.search = Some(wanted);
            app.logs_pane.clear_caches();
            update_merged(app);
            find_match(app, false);
        }
        Err(error) => app.show_toast(&error),
    }
}

/// Shows only lines that the typed text describes; all again for an empty one.
pub(crate) fn set_filter(app: &mut App, text: &str) {
    match LineFilter::parse(text) {
        Ok(filter) => {
            app.logs_pane.filter = filter;
            app.logs_pane.reset_view();
            index_more(app, SEARCH_BYTES);
            update_merged(app);
        }
        Err(why) => app.show_toast(&why),
    }
}

/// Goes to the next line that has what is looked for, or the one before.
fn find_match(app: &mut App, next: bool) {
    let Some(wanted) = app.logs_pane.search.clone() else { return app.show_toast("nothing is looked for: / asks") };
    seek_row(app, next, |row| wanted.is_match(&row.bytes), "has it");
}

/// Goes to the next row that passes, or the one before.
fn seek_row(app: &mut App, next: bool, passes: impl Fn(&LogRow) -> bool, what: &str) {
    let from = match app.logs_pane.found_position {
        Some(found) => found,
        None if app.logs_pane.follow => u64::MAX,
        None => first_visible(app),
    };
    let hit = if next { search_forward(app, from, &passes) } else { search_backward(app, from, &passes) };
    match hit {
        Ok(LogSearchResult::Found(at)) => {
            stop_following(app);
            app.logs_pane.found_position = Some(at);
            // A few lines of what went before help to understand it.
            let above = rows_before(app, at, app.model.page_rows / 3).ok();
            app.logs_pane.first_position = above.and_then(|rows| rows.first().map(|row| row.position)).unwrap_or(at);
        }
        Ok(LogSearchResult::NotFound) => app.show_toast(&format!("no {} line {what}", if next { "further" } else { "earlier" })),
        Ok(LogSearchResult::LimitReached(at)) => {
            app.logs_pane.found_position = Some(at);
            app.show_toast("not within 64 MiB from here; once more looks further");
        }
        Err(error) => app.show_toast(&error.to_string()),
    }
}

enum LogSearchResult {
    /// In the line that begins there.
    Found(u64),
    /// Nowhere.
    NotFound,
    /// Not before that place; more is to be searched.
    LimitReached(u64),
}

fn search_forward(app: &App, from: u64, passes: &impl Fn(&LogRow) -> bool) -> io::Result<LogSearchResult> {
    if from == u64::MAX {
        return Ok(LogSearchResult::NotFound);
    }
    // After the line that was found before; else from the first one on the screen.
    let mut at = match app.logs_pane.found_position {
        Some(found) => rows_from(app, found, 1)?.first().map_or(found, |row| row.next_position),
        None => from,
    };
    let end = at.saturating_add(SEARCH_BYTES);
    while at < end {
        let rows = rows_from(app, at, 1_000)?;
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

fn search_backward(app: &App, from: u64, passes: &impl Fn(&LogRow) -> bool) -> io::Result<LogSearchResult> {
    let mut at = from;
    let mut end = None;
    loop {
        let rows = rows_before(app, at, 1_000)?;
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
fn first_visible(app: &App) -> u64 {
    app.logs_pane.cached_rows.as_ref().and_then(|(_, rows)| rows.first()).map_or(app.logs_pane.first_position, |row| row.position)
}

/// The line that is meant where one is meant: the one that was found, if it is on the screen, else the newest or the first one there.
fn current_row(app: &App) -> Option<&LogRow> {
    let rows = &app.logs_pane.cached_rows.as_ref()?.1;
    let found = app.logs_pane.found_position.and_then(|at| rows.iter().find(|row| row.position == at));
    found.or_else(|| if app.logs_pane.follow { rows.last() } else { rows.first() })
}

/// Leaves the newest line: from now on what comes is counted.
fn stop_following(app: &mut App) {
    if app.logs_pane.follow {
        app.logs_pane.lines_when_left = count_lines(app);
        app.logs_pane.follow = false;
    }
}

/// Shows the log from near that place on, which need not be the beginning of a line.
pub(crate) fn go_to_offset(app: &mut App, place: u64) {
    let line = with_log(app, |source| Ok(source.lines_before(place.saturating_add(1), 1)?.first().map_or(0, |line| line.offset)));
    match line {
        Ok(Some(line)) => {
            stop_following(app);
            app.logs_pane.found_position = Some(line);
            let above = rows_before(app, line, app.model.page_rows / 3).ok();
            app.logs_pane.first_position = above.and_then(|rows| rows.first().map(|row| row.position)).unwrap_or(line);
        }
        Ok(None) => {}
        Err(error) => app.show_toast(&error.to_string()),
    }
}

fn scroll_up(app: &mut App, by: usize) {
    let from = if app.logs_pane.follow { first_visible(app) } else { app.logs_pane.first_position };
    match rows_before(app, from, by) {
        Ok(rows) => {
            stop_following(app);
            app.logs_pane.first_position = rows.first().map_or(from, |row| row.position);
        }
        Err(error) => app.show_toast(&error.to_string()),
    }
}

fn scroll_down(app: &mut App, by: usize) {
    if app.logs_pane.follow {
        return;
    }
    let (from, page) = (app.logs_pane.first_position, app.model.page_rows.max(1));
    let found = rows_from(app, from, by + 1).and_then(|rows| {
        let end = rows_before(app, u64::MAX, page)?.first().map_or(0, |row| row.position);
        Ok(rows.last().map_or(from, |row| row.position).min(end.max(from)))
    });
    match found {
        Ok(top) => app.logs_pane.first_position = top,
        Err(error) => app.show_toast(&error.to_string()),
    }
}

fn toggle_mark(app: &mut App) {
    let Some((mark, text)) = current_row(app).map(|row| (LineMark { log: row.log, offset: row.offset }, row.bytes.clone())) else { return };
    let known = app.logs_pane.marks.iter().position(|known| *known == mark);
    match known {
        Some(at) => {
            app.logs_pane.marks.remove(at);
        }
        None if app.logs_pane.marks.len() >= MAX_MARKS => app.show_toast("no more marks: take some away"),
        None => {
            app.logs_pane.marks.push(mark);
            let text = String::from_utf8_lossy(&text[..text.len().min(200)]).into_owned();
            app.model.timeline.add_mark(app.model.now, &text, mark.log);
        }
    }
}

/// The mark after the line that is meant, in the order of logs and places; then the first one again.
fn go_to_next_mark(app: &mut App) {
    let here = current_row(app).map(|row| (row.log, row.offset));
    let mut marks: Vec<(_, u64)> = app.logs_pane.marks.iter().map(|mark| (mark.log, mark.offset)).collect();
    marks.sort_unstable();
    let next = marks.iter().find(|mark| here.is_none_or(|here| **mark > here)).or(marks.first()).copied();
    let Some((log, place)) = next else { return app.show_toast("no line is marked: m marks one") };
    if app.logs_pane.scope != LogScope::Single || shown_log(app) != Some(log) {
        app.logs_pane.show_log(log);
    }
    go_to_offset(app, place);
}

/// Whether there is more of the log to look at.
pub(crate) fn is_indexing(app: &App) -> bool {
    app.logs_pane.scope == LogScope::Single && app.logs_pane.index.is_scanning()
}

/// Time goes by: looks at more of the log. Whether that shows.
pub(crate) fn index_on_tick(app: &mut App) -> bool {
    let counts =
        |app: &App| [&app.logs_pane.index.errors, &app.logs_pane.index.filtered, &app.logs_pane.index.matches].map(|at| at.offsets().len());
    let before = counts(app);
    let whole = index_more(app, SCAN_BYTES_PER_TICK);
    before != counts(app) || whole
}

/// Looks at so many bytes more of the one log; whether its beginning was reached just now.
fn index_more(app: &mut App, budget: u64) -> bool {
    if app.logs_pane.scope != LogScope::Single {
        return false;
    }
    let mut scan = std::mem::take(&mut app.logs_pane.index);
    let whole = scan.is_complete();
    let done = with_log(app, |source| {
        let (text, filter) = (app.logs_pane.search.as_ref(), app.logs_pane.filter.as_ref());
        scan.scan_more(
            source,
            LineQuery { pattern: text, filter, origin: line_origin(&app.model.state, (source.host, source.file)) },
            budget,
        )
    });
    app.logs_pane.index = scan;
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
