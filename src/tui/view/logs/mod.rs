//! Logs: one rank's or launcher's, all of a host, or all; the newest lines as they come, or the place that was scrolled to, which nothing moves.
//!
//! Uses `pager`, `scan`, `ring` and `groups`. The text of one log is read from the stored file; of several the newest lines are kept, each
//! or those that are alike as one. Every place is a number of its own kind: a byte of the file, a line of the ring, a group.

mod paint;
mod rows;
mod take;

pub(crate) use paint::draw;

use std::io;

use regex::bytes::Regex;

use crate::event::LogFile;
use crate::state::RunState;
use crate::tui::app::App;
use crate::tui::filter::{self, Filter, Level, Writer};
use crate::tui::groups::Groups;
use crate::tui::keymap::Cmd;
use crate::tui::scan::{Scan, Wanted};

use rows::{Kept, Row, after, before, catch_up, newest, with};

/// Whose lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Mode {
    /// Of one log.
    #[default]
    One,
    /// Of all logs.
    All,
    /// Of all logs of a host.
    Host,
}

/// When a line came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Clock {
    /// Not shown.
    #[default]
    Off,
    /// How long ago.
    Ago,
    /// The time of day.
    Day,
}

/// A line that the person marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    log: (u32, LogFile),
    place: u64,
}

/// How many marks are kept.
const MARKS: usize = 1_000;
/// How many bytes one key searches: so much of a file is read in a moment.
const SEARCH: u64 = 64 << 20;
/// How many bytes of a log are looked at while time goes by.
const PART: u64 = 4 << 20;

/// What the logs remember.
#[derive(Debug, Clone)]
pub struct View {
    /// Whose log; none: that of the first rank.
    who: Option<(u32, LogFile)>,
    mode: Mode,
    /// Equal lines of several logs are one.
    fold: bool,
    /// The newest lines are shown as they come.
    follow: bool,
    /// Else the place of the first line that is shown, and how much there was when the screen left the newest line.
    top: u64,
    left_at: u64,
    /// Long lines are shown whole.
    wrap: bool,
    /// The first column that is shown.
    left: usize,
    clock: Clock,
    /// Every byte as it is.
    raw: bool,
    /// Every picture of a progress bar.
    pictures: bool,
    zoom: bool,
    /// What is looked for.
    wanted: Option<Regex>,
    /// The line that was found last.
    found: Option<u64>,
    filter: Option<Filter>,
    marks: Vec<Mark>,
    /// What is known of the one log.
    scan: Scan,
    /// What is known of several.
    kept: Kept,
    groups: Groups,
    /// What was drawn last, and of what.
    drawn: Option<(rows::Key, Vec<Row>)>,
}

impl Default for View {
    fn default() -> Self {
        View {
            who: None,
            mode: Mode::One,
            fold: true,
            follow: true,
            top: 0,
            left_at: 0,
            wrap: false,
            left: 0,
            clock: Clock::Off,
            raw: false,
            pictures: false,
            zoom: false,
            wanted: None,
            found: None,
            filter: None,
            marks: Vec::new(),
            scan: Scan::default(),
            kept: Kept::default(),
            groups: Groups::default(),
            drawn: None,
        }
    }
}

impl View {
    /// Shows another log, from its newest lines on.
    pub(crate) fn show(&mut self, who: (u32, LogFile)) {
        (self.who, self.mode) = (Some(who), Mode::One);
        self.begin();
    }

    /// Something else is shown: from its newest line on, and nothing is known of it.
    fn begin(&mut self) {
        (self.follow, self.top, self.left, self.found) = (true, 0, 0, None);
        self.forget();
    }

    /// What was found out is void.
    fn forget(&mut self) {
        (self.scan, self.kept, self.groups, self.drawn) = (Scan::default(), Kept::default(), Groups::default(), None);
    }

    /// The feed begins anew.
    pub(crate) fn anew(&mut self) {
        self.begin();
    }

    /// Whether nothing but the log is to be on the screen.
    pub(crate) fn zoomed(&self) -> bool {
        self.zoom
    }

    /// The filter as it was typed.
    pub(crate) fn filter_text(&self) -> String {
        self.filter.as_ref().map_or_else(String::new, |filter| filter.text.clone())
    }
}

/// All logs of ranks in their order; those of launchers where there are no ranks yet.
fn all(state: &RunState) -> Vec<(u32, LogFile)> {
    let ranks: Vec<_> = state.ranks.values().map(|rank| (rank.host, LogFile::Rank { rank: rank.rank, restart: rank.restart })).collect();
    if ranks.is_empty() { (0_u32..).zip(&state.hosts).map(|(at, _)| (at, LogFile::Node)).collect() } else { ranks }
}

/// The one log that is shown, or was before all of them were.
pub(crate) fn under(app: &App) -> Option<(u32, LogFile)> {
    who(app)
}

fn who(app: &App) -> Option<(u32, LogFile)> {
    app.logs.who.or_else(|| all(&app.state).first().copied())
}

/// Whose line it is, for filters.
fn writer(state: &RunState, log: (u32, LogFile)) -> Writer<'_> {
    let rank = match log.1 {
        LogFile::Rank { rank, .. } => Some(rank),
        LogFile::Node => None,
    };
    Writer { rank, host: state.host_name(log.0) }
}

/// Obeys a command.
pub(crate) fn update(app: &mut App, cmd: Cmd) {
    catch_up(app);
    let page = app.page.max(1);
    let half = page.div_ceil(2);
    match cmd {
        Cmd::Up => up(app, 1),
        Cmd::Down => down(app, 1),
        Cmd::PageUp => up(app, page),
        Cmd::PageDown => down(app, page),
        Cmd::HalfUp => up(app, half),
        Cmd::HalfDown => down(app, half),
        Cmd::Top => {
            leave(app);
            app.logs.top = 0;
        }
        Cmd::Bottom => app.logs.follow = true,
        Cmd::Follow if app.logs.follow => up(app, 0),
        Cmd::Follow => app.logs.follow = true,
        Cmd::Wrap => app.logs.wrap = !app.logs.wrap,
        Cmd::Left => app.logs.left = app.logs.left.saturating_sub(20),
        Cmd::Right => app.logs.left = (app.logs.left + 20).min(16 << 10),
        Cmd::PrevRank => neighbour(app, false),
        Cmd::NextRank => neighbour(app, true),
        Cmd::PrevHost => host(app, false),
        Cmd::NextHost => host(app, true),
        Cmd::NodeLog => node(app),
        Cmd::FindNext => find(app, true),
        Cmd::FindPrev => find(app, false),
        Cmd::NextError | Cmd::PrevError => {
            let wrong = |row: &Row| filter::level(&row.bytes) == Level::Error;
            seek(app, cmd == Cmd::PrevError, wrong, "says that something is wrong");
        }
        Cmd::Merge => merge(app),
        Cmd::Fold => {
            app.logs.fold = !app.logs.fold;
            app.logs.begin();
        }
        Cmd::Open => open(app),
        Cmd::Times => {
            app.logs.clock = match app.logs.clock {
                Clock::Off => Clock::Ago,
                Clock::Ago => Clock::Day,
                Clock::Day => Clock::Off,
            }
        }
        Cmd::Bytes => app.logs.raw = !app.logs.raw,
        Cmd::Collapse => app.logs.pictures = !app.logs.pictures,
        Cmd::Zoom => app.logs.zoom = !app.logs.zoom,
        Cmd::Mark => mark(app),
        Cmd::NextMark => next_mark(app),
        Cmd::Copy => take::line(app),
        Cmd::CopyView => take::view(app),
        Cmd::Save => take::save(app),
        _ => {}
    }
}

/// One log, all, those of its host.
fn merge(app: &mut App) {
    app.logs.mode = match app.logs.mode {
        Mode::One => Mode::All,
        Mode::All => Mode::Host,
        Mode::Host => Mode::One,
    };
    app.logs.begin();
}

/// From a line of several logs to its own log, at its place.
fn open(app: &mut App) {
    if app.logs.mode == Mode::One {
        return;
    }
    let Some((log, place)) = current(app).map(|row| (row.log, row.place)) else { return };
    app.logs.show(log);
    go_to(app, place);
}

fn neighbour(app: &mut App, next: bool) {
    let all = all(&app.state);
    let Some(at) = who(app).and_then(|who| all.iter().position(|log| *log == who).or_else(|| all.iter().position(|log| log.0 == who.0)))
    else {
        return;
    };
    let to = if next { (at + 1) % all.len() } else { (at + all.len() - 1) % all.len() };
    app.logs.show(all[to]);
}

fn host(app: &mut App, next: bool) {
    let hosts = u32::try_from(app.state.hosts.len()).unwrap_or(u32::MAX);
    let Some((host, _)) = who(app).filter(|_| hosts > 0) else { return };
    let to = if next { (host + 1) % hosts } else { (host + hosts - 1) % hosts };
    let first = all(&app.state).into_iter().find(|log| log.0 == to).unwrap_or((to, LogFile::Node));
    let mode = app.logs.mode;
    app.logs.show(first);
    if mode == Mode::Host {
        app.logs.mode = mode;
    }
}

fn node(app: &mut App) {
    let Some((host, file)) = who(app) else { return };
    let to = match file {
        LogFile::Rank { .. } => (host, LogFile::Node),
        LogFile::Node => all(&app.state).into_iter().find(|log| log.0 == host).unwrap_or((host, LogFile::Node)),
    };
    app.logs.show(to);
}

/// Looks for a text from the newest line backwards: as a regular expression where it is one, without regard to case where it has no capital.
pub(crate) fn look_for(app: &mut App, text: &str) {
    app.logs.found = None;
    if text.is_empty() {
        app.logs.wanted = None;
        app.logs.forget();
        return;
    }
    match filter::pattern(text) {
        Ok(wanted) => {
            app.logs.wanted = Some(wanted);
            app.logs.forget();
            catch_up(app);
            find(app, false);
        }
        Err(error) => app.say(&error),
    }
}

/// Shows only lines that the typed text describes; all again for an empty one.
pub(crate) fn filter(app: &mut App, text: &str) {
    match Filter::parse(text) {
        Ok(filter) => {
            app.logs.filter = filter;
            app.logs.begin();
            look(app, SEARCH);
            catch_up(app);
        }
        Err(why) => app.say(&why),
    }
}

/// Goes to the next line that has what is looked for, or the one before.
fn find(app: &mut App, next: bool) {
    let Some(wanted) = app.logs.wanted.clone() else { return app.say("nothing is looked for: / asks") };
    seek(app, next, |row| wanted.is_match(&row.bytes), "has it");
}

/// Goes to the next row that passes, or the one before.
fn seek(app: &mut App, next: bool, passes: impl Fn(&Row) -> bool, what: &str) {
    let from = match app.logs.found {
        Some(found) => found,
        None if app.logs.follow => u64::MAX,
        None => first(app),
    };
    let hit = if next { forward(app, from, &passes) } else { backward(app, from, &passes) };
    match hit {
        Ok(Hit::At(at)) => {
            leave(app);
            app.logs.found = Some(at);
            // A few lines of what went before help to understand it.
            let above = before(app, at, app.page / 3).ok();
            app.logs.top = above.and_then(|rows| rows.first().map(|row| row.at)).unwrap_or(at);
        }
        Ok(Hit::None) => app.say(&format!("no {} line {what}", if next { "further" } else { "earlier" })),
        Ok(Hit::Far(at)) => {
            app.logs.found = Some(at);
            app.say("not within 64 MiB from here; once more looks further");
        }
        Err(error) => app.say(&error.to_string()),
    }
}

enum Hit {
    /// In the line that begins there.
    At(u64),
    /// Nowhere.
    None,
    /// Not before that place; more is to be searched.
    Far(u64),
}

fn forward(app: &App, from: u64, passes: &impl Fn(&Row) -> bool) -> io::Result<Hit> {
    if from == u64::MAX {
        return Ok(Hit::None);
    }
    // After the line that was found before; else from the first one on the screen.
    let mut at = match app.logs.found {
        Some(found) => after(app, found, 1)?.first().map_or(found, |row| row.next),
        None => from,
    };
    let end = at.saturating_add(SEARCH);
    while at < end {
        let rows = after(app, at, 1_000)?;
        if let Some(row) = rows.iter().find(|row| passes(row)) {
            return Ok(Hit::At(row.at));
        }
        match rows.last() {
            Some(row) if row.next > at => at = row.next,
            _ => return Ok(Hit::None),
        }
    }
    Ok(Hit::Far(at))
}

fn backward(app: &App, from: u64, passes: &impl Fn(&Row) -> bool) -> io::Result<Hit> {
    let mut at = from;
    let mut end = None;
    loop {
        let rows = before(app, at, 1_000)?;
        if let Some(row) = rows.iter().rev().find(|row| passes(row)) {
            return Ok(Hit::At(row.at));
        }
        match rows.first() {
            Some(row) if row.at > 0 && row.at < at => at = row.at,
            _ => return Ok(Hit::None),
        }
        if at < *end.get_or_insert(at.saturating_sub(SEARCH)) {
            return Ok(Hit::Far(at));
        }
    }
}

/// The place of the first line that is on the screen.
fn first(app: &App) -> u64 {
    app.logs.drawn.as_ref().and_then(|(_, rows)| rows.first()).map_or(app.logs.top, |row| row.at)
}

/// The line that is meant where one is meant: the one that was found, if it is on the screen, else the newest or the first one there.
fn current(app: &App) -> Option<&Row> {
    let rows = &app.logs.drawn.as_ref()?.1;
    let found = app.logs.found.and_then(|at| rows.iter().find(|row| row.at == at));
    found.or_else(|| if app.logs.follow { rows.last() } else { rows.first() })
}

/// Leaves the newest line: from now on what comes is counted.
fn leave(app: &mut App) {
    if app.logs.follow {
        app.logs.left_at = newest(app);
        app.logs.follow = false;
    }
}

/// Shows the log from near that place on, which need not be the beginning of a line.
pub(crate) fn go_to(app: &mut App, place: u64) {
    let line = with(app, |source| Ok(source.before(place.saturating_add(1), 1)?.first().map_or(0, |line| line.at)));
    match line {
        Ok(Some(line)) => {
            leave(app);
            app.logs.found = Some(line);
            let above = before(app, line, app.page / 3).ok();
            app.logs.top = above.and_then(|rows| rows.first().map(|row| row.at)).unwrap_or(line);
        }
        Ok(None) => {}
        Err(error) => app.say(&error.to_string()),
    }
}

fn up(app: &mut App, by: usize) {
    let from = if app.logs.follow { first(app) } else { app.logs.top };
    match before(app, from, by) {
        Ok(rows) => {
            leave(app);
            app.logs.top = rows.first().map_or(from, |row| row.at);
        }
        Err(error) => app.say(&error.to_string()),
    }
}

fn down(app: &mut App, by: usize) {
    if app.logs.follow {
        return;
    }
    let (from, page) = (app.logs.top, app.page.max(1));
    let found = after(app, from, by + 1).and_then(|rows| {
        let end = before(app, u64::MAX, page)?.first().map_or(0, |row| row.at);
        Ok(rows.last().map_or(from, |row| row.at).min(end.max(from)))
    });
    match found {
        Ok(top) => app.logs.top = top,
        Err(error) => app.say(&error.to_string()),
    }
}

fn mark(app: &mut App) {
    let Some((mark, text)) = current(app).map(|row| (Mark { log: row.log, place: row.place }, row.bytes.clone())) else { return };
    let known = app.logs.marks.iter().position(|known| *known == mark);
    match known {
        Some(at) => {
            app.logs.marks.remove(at);
        }
        None if app.logs.marks.len() >= MARKS => app.say("no more marks: take some away"),
        None => {
            app.logs.marks.push(mark);
            let text = String::from_utf8_lossy(&text[..text.len().min(200)]).into_owned();
            app.timeline.mark(app.now, &text, mark.log);
        }
    }
}

/// The mark after the line that is meant, in the order of logs and places; then the first one again.
fn next_mark(app: &mut App) {
    let here = current(app).map(|row| (row.log, row.place));
    let mut marks: Vec<(_, u64)> = app.logs.marks.iter().map(|mark| (mark.log, mark.place)).collect();
    marks.sort_unstable();
    let next = marks.iter().find(|mark| here.is_none_or(|here| **mark > here)).or(marks.first()).copied();
    let Some((log, place)) = next else { return app.say("no line is marked: m marks one") };
    if app.logs.mode != Mode::One || who(app) != Some(log) {
        app.logs.show(log);
    }
    go_to(app, place);
}

/// Whether there is more of the log to look at.
pub(crate) fn behind(app: &App) -> bool {
    app.logs.mode == Mode::One && app.logs.scan.behind()
}

/// Time goes by: looks at more of the log. Whether that shows.
pub(crate) fn work(app: &mut App) -> bool {
    let before = (app.logs.scan.errors.all().len(), app.logs.scan.kept.all().len(), app.logs.scan.hits.all().len());
    let percent = look(app, PART);
    let now = (app.logs.scan.errors.all().len(), app.logs.scan.kept.all().len(), app.logs.scan.hits.all().len());
    before != now || percent
}

/// Looks at so many bytes more of the one log; whether its beginning was reached just now.
fn look(app: &mut App, budget: u64) -> bool {
    if app.logs.mode != Mode::One {
        return false;
    }
    let mut scan = std::mem::take(&mut app.logs.scan);
    let whole = scan.whole();
    let done = with(app, |source| {
        let (text, filter) = (app.logs.wanted.as_ref(), app.logs.filter.as_ref());
        scan.step(source, Wanted { text, filter, writer: writer(&app.state, (source.host, source.file)) }, budget)
    });
    app.logs.scan = scan;
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
