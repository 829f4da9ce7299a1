//! The look of the logs: a head that says what is shown and how, the rows, and a bar at the right that says where one is.
//!
//! Uses the rows. What a host wrote is cleaned here, or shown escaped byte by byte; nothing else of it reaches a cell.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthChar;

use crate::event::LogFile;
use crate::report::words;
use crate::tui::app::App;
use crate::tui::feed::Role;
use crate::tui::groups;
use crate::tui::theme::Status;

use super::rows::{Row, newest, read, with};
use super::{Clock, Mode, who};
use crate::tui::view::{put, rows, sum, text};

/// Draws it.
pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, app: &mut App) {
    let width = usize::from(area.width);
    let head_rows = usize::from(!app.logs.zoom);
    let room = usize::from(area.height).saturating_sub(head_rows);
    app.page = room;
    super::look(app, 1 << 20);
    let Some(_) = who(app) else {
        put(frame, area, vec![Line::styled(" no log is known yet", app.theme.dim())]);
        return;
    };
    let read = read(app, room);
    let mut lines = Vec::new();
    if !app.logs.zoom {
        lines.push(head(app, width, read.as_ref().map_or(0, |(size, _)| *size)));
    }
    // One column is the bar's.
    let bar = !app.logs.zoom && width > 30;
    let inner = width - usize::from(bar);
    match read {
        Ok((size, found)) => {
            let shown = found.iter().flat_map(|row| painted(app, row, inner));
            let shown: Vec<Line<'static>> = ends(app, found.first(), inner).into_iter().chain(shown).collect();
            let skip = if app.logs.follow { shown.len().saturating_sub(room) } else { 0 };
            lines.extend(shown.into_iter().skip(skip).take(room));
            if found.is_empty() {
                lines.push(Line::styled(nothing(app), app.theme.dim()));
            }
            put(frame, Rect { width: area.width - u16::from(bar), ..area }, lines);
            if bar && found.len() >= room {
                let place = Rect { x: area.x + area.width - 1, width: 1, ..rows(area, 1, area.height.saturating_sub(1)) };
                put(frame, place, scrollbar(app, size, &found, room));
            }
        }
        Err(error) => {
            lines.push(Line::styled(format!(" the log cannot be read: {}", app.clean(&error.to_string())), app.theme.dim()));
            put(frame, area, lines);
        }
    }
}

/// Of several logs the newest lines are kept: above the oldest of them it is said where the others are.
fn ends(app: &App, first: Option<&Row>, width: usize) -> Option<Line<'static>> {
    if !super::rows::ends(app, first?) {
        return None;
    }
    let text = format!(" {} older lines are in each rank's own log: enter goes to that of a line", app.theme.more());
    Some(Line::styled(words::cut(&text, width), app.theme.dim()))
}

fn nothing(app: &App) -> &'static str {
    match (app.logs.filter.is_some(), app.logs.mode) {
        (true, _) => " no line passes the filter yet: & changes it",
        (false, Mode::One) => " nothing was written yet",
        (false, _) => " nothing has come since this screen was opened: older lines are in the log of each rank",
    }
}

fn head(app: &App, width: usize, size: u64) -> Line<'static> {
    let mut spans = vec![Span::styled(" LOG ", app.theme.head())];
    spans.extend(subject(app));
    spans.push(Span::raw("  "));
    let used = text::width(&spans);
    let right = facts(app, size).join(" | ");
    // What was cut at the left is the less important part.
    let room = width.saturating_sub(used);
    let long = right.chars().count() + 1;
    let right = if long > room { right.chars().skip(long - room).collect() } else { right };
    spans.push(Span::styled(text::right(&format!("{right} "), room), app.theme.dim()));
    Line::from(spans)
}

/// Whose lines.
fn subject(app: &App) -> Vec<Span<'static>> {
    let state = &app.state;
    let Some((host, file)) = who(app) else { return Vec::new() };
    let place = app.clean(state.host_name(host));
    let fold = if app.logs.fold { "folded" } else { "each line" };
    match (app.logs.mode, file) {
        (Mode::All, _) => vec![Span::raw(format!("of all, {fold}"))],
        (Mode::Host, _) => vec![Span::raw(format!("of all on {place}, {fold}"))],
        (Mode::One, LogFile::Node) => vec![Span::raw(format!("launcher on {place}"))],
        (Mode::One, LogFile::Rank { rank, restart }) => {
            let known = state.ranks.get(&rank);
            let gpu = known.and_then(|rank| rank.local_rank).map_or_else(String::new, |local| format!(":g{local}"));
            let again = if restart > 0 { format!(" restart {restart}") } else { String::new() };
            let mut spans = vec![Span::raw(format!("r{rank} {place}{gpu}{again}  "))];
            if let Some((status, word)) = known.map(|rank| sum::rank_status(state, rank)) {
                spans.push(Span::styled(format!("{} {word}", app.theme.symbol(status)), app.theme.status(status)));
            }
            spans
        }
    }
}

/// How it is shown, the least important first.
fn facts(app: &App, size: u64) -> Vec<String> {
    let logs = &app.logs;
    let mut facts = Vec::new();
    if logs.mode == Mode::One {
        let heard = who(app).and_then(|who| app.times.last(who)).unwrap_or(0);
        if heard > 0 {
            facts.push(format!("last {} ago", text::age(heard, app.now)));
        }
    } else if app.ring.skipped > 0 {
        facts.push(format!("{} not shown", words::count(usize::try_from(app.ring.skipped).unwrap_or(usize::MAX), "line")));
    }
    // Lines carry no time of their own: it is when their bytes came here, live or in the journal.
    let source = if app.offer.role == Role::Replay { "journal" } else { "arrival" };
    match logs.clock {
        Clock::Off => {}
        Clock::Ago => facts.push(format!("ago by {source}")),
        Clock::Day => facts.push(format!("time of {source}")),
    }
    let ways = [(logs.raw, "bytes"), (logs.pictures, "all pictures"), (logs.wrap, "wrap")];
    facts.extend(ways.iter().filter(|(on, _)| *on).map(|(_, word)| (*word).to_owned()));
    if logs.left > 0 && !logs.wrap {
        facts.push(format!("column {}", logs.left));
    }
    if logs.mode == Mode::One {
        facts.push(bytes(size));
        let number = logs.drawn.as_ref().and_then(|(_, rows)| rows.first()).filter(|_| !logs.follow);
        let number = number.and_then(|row| with(app, |source| logs.scan.number(source, row.at)).ok().flatten().flatten());
        facts.extend(number.map(|number| format!("line {number}")));
    } else {
        facts.push(words::count(logs.kept.all.len(), "line"));
    }
    if let Some(filter) = &logs.filter {
        let part = logs.scan.percent(size);
        let part = if logs.mode == Mode::One && !logs.scan.whole() { format!(" ({part}% looked at)") } else { String::new() };
        facts.push(format!("&{}{part}", words::cut(&app.clean(&filter.text), 24)));
    }
    if let Some(wanted) = &logs.wanted {
        let hits = &logs.scan.hits;
        let all = if hits.cut || !logs.scan.whole() { format!("{}+", hits.all().len()) } else { hits.all().len().to_string() };
        let count = match logs.found {
            _ if logs.mode != Mode::One => String::new(),
            Some(at) if hits.all().contains(&at) => format!(" {}/{all}", hits.before(at) + 1),
            _ => format!(" {all}"),
        };
        facts.push(format!("/{}{count}", words::cut(&app.clean(wanted.as_str()), 20)));
    }
    let new = newest(app).saturating_sub(logs.left_at);
    facts.push(match (logs.follow, new) {
        (true, _) => "FOLLOW".to_owned(),
        (false, 0) => "at a place".to_owned(),
        (false, new) => format!("v {new} new"),
    });
    facts
}

fn bytes(n: u64) -> String {
    match n {
        0..1024 => format!("{n} B"),
        1024..1_048_576 => format!("{} KiB", n >> 10),
        1_048_576..1_073_741_824 => format!("{} MiB", n >> 20),
        _ => format!("{}.{} GiB", n >> 30, ((n >> 20) & 1023) * 10 / 1024),
    }
}

/// A row's text, safe to show.
pub(super) fn safe(app: &App, row: &Row) -> String {
    let text = app.clean(&String::from_utf8_lossy(&row.bytes));
    if app.logs.raw && row.group.is_none() {
        let escaped = escape(&row.bytes);
        // An escape within a secret must not save it.
        let plain = crate::report::sanitize::clean(&String::from_utf8_lossy(&row.bytes)).replace('\t', "    ");
        return if plain == text || !app.cleaner.hides() { app.clean(&escaped) } else { text };
    }
    text
}

/// Every byte that is not a plain character as an escape.
pub(super) fn escape(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\t' => text.push_str("\\t"),
                '\r' => text.push_str("\\r"),
                '\u{1b}' => text.push_str("\\e"),
                '\\' => text.push_str("\\\\"),
                ' '..='~' => text.push(c),
                c if c.is_alphanumeric() && c.width().unwrap_or(0) > 0 => text.push(c),
                c => text.extend(c.escape_unicode()),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Who wrote a row of several logs.
pub(super) fn author(app: &App, row: &Row) -> String {
    let hosts = |list: &[u32]| words::hosts(&app.state, &app.cleaner, list);
    match &row.group {
        Some((logs, _)) => groups::who(logs, hosts),
        None => groups::who(&[row.log], hosts),
    }
}

/// A row as it is shown: cut at the window, or in as many rows as it needs; what was looked for stands out.
fn painted(app: &App, row: &Row, width: usize) -> Vec<Line<'static>> {
    let marked = app.logs.marks.iter().any(|mark| mark.log == row.log && mark.place == row.place);
    let sign = match (app.logs.found == Some(row.at), marked) {
        (true, _) => ">",
        (_, true) => "*",
        _ => " ",
    };
    let mut before = vec![Span::styled(sign, app.theme.accent())];
    match (app.logs.clock, row.time) {
        (Clock::Off, _) => {}
        (Clock::Ago, time) => before.push(Span::styled(
            text::right(&time.map_or("-".to_owned(), |at| format!("-{} ", text::age(at, app.now))), 6),
            app.theme.dim(),
        )),
        (Clock::Day, Some(at)) => before.push(Span::styled(format!("{} ", app.time(at)), app.theme.dim())),
        (Clock::Day, None) => before.push(Span::styled("   -     ", app.theme.dim())),
    }
    if app.logs.mode != Mode::One {
        let room = (width / 4).clamp(6, 28);
        let mut who = author(app, row);
        if let Some((logs, _)) = row.group.as_ref().filter(|(logs, _)| logs.len() > 1) {
            let count = format!(" {}", logs.len());
            who = format!("{}{count}", text::pad(&who, room.saturating_sub(count.len())));
        }
        before.push(Span::styled(text::pad(&who, room), app.theme.dim()));
        before.push(Span::raw(" "));
    }
    let used = text::width(&before);
    let room = width.saturating_sub(used).max(1);
    let count = if row.drawn > 1 { format!(" (x{})", row.drawn) } else { String::new() };
    let text = safe(app, row) + &count;
    if app.logs.wrap {
        let indent = || vec![Span::raw(" ".repeat(used))];
        let parts = wrap(&text, room).into_iter().enumerate();
        return parts
            .map(|(n, part)| Line::from_iter(if n == 0 { before.clone() } else { indent() }.into_iter().chain(lit(app, part))))
            .collect();
    }
    if let Some((_, spans)) = row.group.as_ref().filter(|_| app.logs.wanted.is_none() && app.logs.left == 0) {
        let mut left = room;
        for (text, differs) in spans {
            let part = words::cut(text, left);
            left = left.saturating_sub(text::width(&[Span::raw(part.clone())]));
            before.push(if *differs { Span::styled(part, app.theme.accent()) } else { Span::raw(part) });
            if left == 0 {
                break;
            }
        }
        return vec![Line::from(before)];
    }
    let rest: String = skip(&text, app.logs.left);
    let (shown, more) = take(&rest, room);
    let more = more.then(|| Span::styled(app.theme.more(), app.theme.dim()));
    vec![Line::from_iter(before.into_iter().chain(lit(app, shown)).chain(more))]
}

/// Where one is, and where errors, hits and marks are.
fn scrollbar(app: &App, size: u64, found: &[Row], room: usize) -> Vec<Line<'static>> {
    let logs = &app.logs;
    let (from, to) = match (logs.mode, logs.fold) {
        (Mode::One, _) => (0, size),
        (_, false) => app.ring.range(),
        (_, true) => logs.groups.range(),
    };
    let span = to.saturating_sub(from).max(1);
    let row = |at: u64| {
        usize::try_from(u128::from(at.saturating_sub(from)) * room as u128 / u128::from(span)).unwrap_or(0).min(room.saturating_sub(1))
    };
    let (track, thumb) = if app.theme.ascii { ("|", "#") } else { ("│", "█") };
    let mut cells = vec![(track, app.theme.dim()); room];
    if let (Some(first), Some(last)) = (found.first(), found.last()) {
        let last = if logs.follow { room.saturating_sub(1) } else { row(last.at) };
        for cell in cells.iter_mut().take(last + 1).skip(row(first.at).min(last)) {
            *cell = (thumb, app.theme.dim());
        }
    }
    let mut tick = |at: u64, sign: &'static str, status: Status| {
        if let Some(cell) = cells.get_mut(row(at)) {
            *cell = (sign, app.theme.status(status));
        }
    };
    match (logs.mode, logs.fold) {
        (Mode::One, _) => {
            logs.scan.errors.all().iter().for_each(|at| tick(*at, "!", Status::Bad));
            logs.scan.hits.all().iter().for_each(|at| tick(*at, "=", Status::Warn));
            let own = logs.marks.iter().filter(|mark| Some(mark.log) == who(app));
            own.for_each(|mark| tick(mark.place, "*", Status::Ok));
        }
        (_, false) => logs.kept.errors.iter().for_each(|at| tick(*at, "!", Status::Bad)),
        (_, true) => {}
    }
    cells.into_iter().map(|(sign, style)| Line::styled(sign, style)).collect()
}

/// The text with what was looked for marked.
fn lit(app: &App, text: String) -> Vec<Span<'static>> {
    let Some(wanted) = &app.logs.wanted else { return vec![Span::raw(text)] };
    let (mut spans, mut done) = (Vec::new(), 0);
    for hit in wanted.find_iter(text.as_bytes()).filter(|hit| !hit.is_empty()).take(100) {
        // A pattern of bytes may cut a character: then it is not marked.
        let (Some(before), Some(inside)) = (text.get(done..hit.start()), text.get(hit.range())) else { continue };
        spans.push(Span::raw(before.to_owned()));
        spans.push(Span::styled(inside.to_owned(), app.theme.chosen()));
        done = hit.end();
    }
    spans.push(Span::raw(text.get(done..).unwrap_or_default().to_owned()));
    spans
}

/// What stands right of the first `columns` columns.
pub(super) fn skip(text: &str, columns: usize) -> String {
    let mut used = 0;
    text.chars()
        .skip_while(|c| {
            used += c.width().unwrap_or(0);
            used <= columns
        })
        .collect()
}

/// What fits into `room` columns, one of them kept for the mark if more follows.
pub(super) fn take(text: &str, room: usize) -> (String, bool) {
    // Only as much of a long line is looked at as can be shown.
    let near: String = text.chars().take(4 * room + 8).collect();
    let rows = wrap(&near, room);
    if rows.len() <= 1 && near.len() == text.len() {
        return (rows.into_iter().next().unwrap_or_default(), false);
    }
    (wrap(&near, room.saturating_sub(1).max(1)).into_iter().next().unwrap_or_default(), true)
}

/// Rows of at most `room` columns.
pub(super) fn wrap(text: &str, room: usize) -> Vec<String> {
    let mut rows = vec![String::new()];
    let mut used = 0;
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide > room && used > 0 {
            rows.push(String::new());
            used = 0;
        }
        if let Some(row) = rows.last_mut() {
            row.push(c);
        }
        used += wide;
    }
    rows
}
