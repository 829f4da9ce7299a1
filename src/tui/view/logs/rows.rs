//! Rows of whatever is shown: of a file, of the ring of all logs, of groups of equal lines.
//!
//! Uses the logs' view. Reads no more than the rows that are asked for, and what collapses into them.

use std::collections::VecDeque;
use std::io;

use crate::event::{LogFile, Millis};
use crate::state::RunState;
use crate::tui::app::App;
use crate::tui::feed::{Role, Stored};
use crate::tui::filter::{Level, level};
use crate::tui::pager::{self, Source};
use crate::tui::redraw;
use crate::tui::ring::Entry;

use super::{Mode, who, writer};

/// How many lines are read at most for rows into which many collapse.
const DEEP: usize = 16_000;
/// How many of the newest lines are folded between two frames.
const AT_ONCE: usize = 5_000;

/// A row.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    /// Its place, and that of the row after it.
    pub at: u64,
    pub next: u64,
    /// Whose line it is, and where it stands in that log.
    pub log: (u32, LogFile),
    pub place: u64,
    /// When it came.
    pub time: Option<Millis>,
    /// Its text as the host wrote it.
    pub bytes: Vec<u8>,
    /// How often it was drawn, as progress bars are.
    pub drawn: u32,
    /// What it stands for where equal lines are one.
    pub group: Option<Alike>,
}

/// Who wrote equal lines, and their clean text in pieces, each with whether it differs among them.
type Alike = (Vec<(u32, LogFile)>, Vec<(String, bool)>);

/// What the rows on the screen depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    pub who: (u32, LogFile),
    pub several: bool,
    pub size: u64,
    pub place: Option<u64>,
    pub room: usize,
    pub raw: bool,
    pub pictures: bool,
    pub kept: usize,
}

/// The lines of several logs that are shown, by their numbers.
#[derive(Debug, Clone, Default)]
pub(super) struct Kept {
    upto: u64,
    pub all: VecDeque<u64>,
    pub errors: VecDeque<u64>,
    folded: u64,
}

/// The last lines that `state` keeps, as if they were the file.
struct Last(Vec<u8>);

impl Last {
    fn of(state: &RunState, host: u32, file: LogFile) -> Last {
        let tail = match file {
            LogFile::Node => state.hosts.get(host as usize).map(|host| &host.tail),
            LogFile::Rank { rank, .. } => state.ranks.get(&rank).map(|rank| &rank.tail),
        };
        Last(tail.map(|tail| tail.last(usize::MAX).join("\n")).unwrap_or_default().into_bytes())
    }
}

impl Stored for Last {
    fn len(&self, _: &str, _: LogFile) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read(&self, _: &str, _: LogFile, from: u64, most: usize) -> io::Result<Vec<u8>> {
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(self.0.len());
        Ok(self.0[from..from.saturating_add(most).min(self.0.len())].to_vec())
    }
}

/// Gives `act` the log that is shown: whole and live, or as far as the replay has come.
pub(super) fn with<T>(app: &App, act: impl FnOnce(&Source<'_>) -> io::Result<T>) -> io::Result<Option<T>> {
    let Some((host, file)) = who(app) else { return Ok(None) };
    let last = Last::of(&app.state, host, file);
    let stored: &dyn Stored = app.stored.as_deref().unwrap_or(&last);
    let name = app.state.host_name(host);
    let mut len = stored.len(name, file)?;
    if app.offer.role == Role::Replay && app.stored.is_some() {
        let told = match file {
            LogFile::Node => app.state.hosts.get(host as usize).map(|host| host.tail.next),
            LogFile::Rank { rank, .. } => app.state.ranks.get(&rank).map(|rank| rank.tail.next),
        };
        len = len.min(told.unwrap_or(0));
    }
    act(&Source { stored, host, name, file, len }).map(Some)
}

/// How much there is: ended lines of the one log, or lines that came of all.
pub(super) fn newest(app: &App) -> u64 {
    if app.logs.mode != Mode::One {
        return app.ring.range().1;
    }
    let Some((host, file)) = who(app) else { return 0 };
    let tail = match file {
        LogFile::Node => app.state.hosts.get(host as usize).map(|host| &host.tail),
        LogFile::Rank { rank, .. } => app.state.ranks.get(&rank).map(|rank| &rank.tail),
    };
    tail.map_or(0, |tail| tail.lines)
}

/// Takes what came of several logs since.
pub(super) fn catch_up(app: &mut App) {
    if app.logs.mode == Mode::One {
        return;
    }
    let host = who(app).map(|(host, _)| host);
    let of = (app.logs.mode == Mode::Host).then_some(host).flatten();
    let App { ring, logs, state, cleaner, .. } = app;
    let (first, next) = ring.range();
    let kept = &mut logs.kept;
    for entry in ring.from(kept.upto) {
        let mine = of.is_none_or(|host| entry.log.0 == host);
        if mine && logs.filter.as_ref().is_none_or(|filter| filter.keeps(writer(state, entry.log), &entry.text)) {
            kept.all.push_back(entry.seq);
            if level(&entry.text) == Level::Error {
                kept.errors.push_back(entry.seq);
            }
        }
    }
    kept.upto = next;
    for list in [&mut kept.all, &mut kept.errors] {
        let gone = list.partition_point(|seq| *seq < first);
        list.drain(..gone);
    }
    if !logs.fold {
        return;
    }
    let fresh = kept.all.partition_point(|seq| *seq < kept.folded);
    // In a flood the newest ones are folded; what is left out is in the ring and in the files.
    let fresh = fresh.max(kept.all.len().saturating_sub(AT_ONCE));
    for entry in kept.all.range(fresh..).filter_map(|seq| ring.get(*seq)) {
        let text = cleaner.line(&String::from_utf8_lossy(&entry.text)).replace('\t', "    ");
        // Empty lines are many and say nothing of anyone.
        if text.trim().is_empty() {
            continue;
        }
        logs.groups.take(entry.log, entry.at, entry.place, &text);
    }
    kept.folded = next;
}

/// The last `count` rows before that place, the oldest first.
pub(super) fn before(app: &App, end: u64, count: usize) -> io::Result<Vec<Row>> {
    match (app.logs.mode, app.logs.fold) {
        (Mode::One, _) => Ok(with(app, |source| of_file(app, source, end, count, true))?.unwrap_or_default()),
        (_, false) => {
            let all = &app.logs.kept.all;
            let to = all.partition_point(|seq| *seq < end);
            Ok(of_ring(app, to.saturating_sub(count)..to))
        }
        (_, true) => {
            let (from, to) = app.logs.groups.range();
            let to = end.clamp(from, to);
            Ok(of_groups(app, to.saturating_sub(count as u64).max(from), to))
        }
    }
}

/// The first `count` rows from that place on.
pub(super) fn after(app: &App, from: u64, count: usize) -> io::Result<Vec<Row>> {
    match (app.logs.mode, app.logs.fold) {
        (Mode::One, _) => Ok(with(app, |source| of_file(app, source, from, count, false))?.unwrap_or_default()),
        (_, false) => {
            let all = &app.logs.kept.all;
            let start = all.partition_point(|seq| *seq < from);
            Ok(of_ring(app, start..start.saturating_add(count).min(all.len())))
        }
        (_, true) => {
            let (first, next) = app.logs.groups.range();
            let from = from.clamp(first, next);
            Ok(of_groups(app, from, from.saturating_add(count as u64).min(next)))
        }
    }
}

/// Whether this is the oldest row of several logs that is kept, and older lines were let go or never came here.
pub(super) fn ends(app: &App, row: &Row) -> bool {
    let (first, _) = app.ring.range();
    let begun = app.ring.get(first).is_none_or(|entry| entry.place == 0);
    let (oldest, gone) = match (app.logs.mode, app.logs.fold) {
        (Mode::One, _) => return false,
        (_, false) => (app.logs.kept.all.front().copied(), false),
        (_, true) => (Some(app.logs.groups.range().0), app.logs.groups.range().0 > 0),
    };
    oldest == Some(row.at) && (gone || first > 0 || !begun || app.ring.skipped > 0)
}

fn of_ring(app: &App, range: std::ops::Range<usize>) -> Vec<Row> {
    let row = |entry: &Entry| Row {
        at: entry.seq,
        next: entry.seq + 1,
        log: entry.log,
        place: entry.place,
        time: Some(entry.at),
        bytes: entry.text.to_vec(),
        drawn: 1,
        group: None,
    };
    app.logs.kept.all.range(range).filter_map(|seq| app.ring.get(*seq)).map(row).collect()
}

fn of_groups(app: &App, from: u64, to: u64) -> Vec<Row> {
    let groups = (from..to).filter_map(|id| app.logs.groups.get(id));
    let row = |group: &crate::tui::groups::Group| Row {
        at: group.id,
        next: group.id + 1,
        log: group.logs.first().copied().unwrap_or((0, LogFile::Node)),
        place: group.place,
        time: Some(group.at),
        bytes: group.text().into_bytes(),
        drawn: 1,
        group: Some((group.logs.clone(), group.spans().collect())),
    };
    groups.map(row).collect()
}

fn of_file(app: &App, source: &Source<'_>, place: u64, count: usize, back: bool) -> io::Result<Vec<Row>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if app.logs.filter.is_some() {
        let kept = &app.logs.scan.kept;
        let at = kept.before(place);
        let range = if back { at.saturating_sub(count)..at } else { at..at.saturating_add(count).min(kept.all().len()) };
        let mut rows = Vec::new();
        for at in kept.all().range(range) {
            rows.extend(shown(app, source, &source.after(*at, 1)?));
        }
        return Ok(rows);
    }
    let mut deep = count;
    loop {
        let lines = if back { source.before(place, deep)? } else { source.after(place, deep)? };
        let rows = shown(app, source, &lines);
        if rows.len() >= count || lines.len() < deep || deep >= DEEP {
            let from = if back { rows.len().saturating_sub(count) } else { 0 };
            return Ok(rows.into_iter().skip(from).take(count).collect());
        }
        deep = (deep * 4).min(DEEP);
    }
}

/// Lines of a file as rows: bars collapsed, or every picture of them, or each byte as it is.
fn shown(app: &App, source: &Source<'_>, lines: &[pager::Line]) -> Vec<Row> {
    let log = (source.host, source.file);
    let row = |at: u64, next: u64, bytes: Vec<u8>, drawn: u32| Row {
        at,
        next,
        log,
        place: at,
        time: app.times.of(log, at),
        bytes,
        drawn,
        group: None,
    };
    if app.logs.raw {
        return lines.iter().map(|line| row(line.at, line.next, line.bytes.clone(), 1)).collect();
    }
    let rows = if app.logs.pictures { redraw::all(lines) } else { redraw::collapse(lines) };
    rows.into_iter().map(|line| row(line.at, line.next, line.bytes, line.drawn)).collect()
}

/// The rows on the screen, read again only if something changed; and how much there is to scroll through.
pub(super) fn read(app: &mut App, room: usize) -> io::Result<(u64, Vec<Row>)> {
    catch_up(app);
    let Some(who) = who(app) else { return Ok((0, Vec::new())) };
    let several = app.logs.mode != Mode::One;
    let size = if several { app.ring.range().1 } else { with(app, |source| Ok(source.len))?.unwrap_or(0) };
    let place = (!app.logs.follow).then_some(app.logs.top);
    let kept = app.logs.scan.kept.all().len();
    let key = Key { who, several, size, place, room, raw: app.logs.raw, pictures: app.logs.pictures, kept };
    if let Some((known, rows)) = &app.logs.drawn
        && *known == key
    {
        return Ok((size, rows.clone()));
    }
    let rows = match place {
        None => before(app, u64::MAX, room)?,
        Some(top) => after(app, top, room)?,
    };
    app.logs.drawn = Some((key, rows.clone()));
    Ok((size, rows))
}
