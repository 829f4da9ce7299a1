//! Text that leaves the dashboard: a line, what is on the screen, all that can be scrolled to. Always clean, always bounded.
//!
//! Uses the rows and the `Hand` that `cli` gave. It is said which way a text went, since a terminal may refuse it and never says so.

use crate::event::LogFile;
use crate::report::words;
use crate::tui::app::App;

use super::rows::{Row, before};
use super::{Mode, current, paint, who};

/// The longest text for a clipboard, bytes; a longer one goes to a file.
const CLIP: usize = 64 << 10;
/// The longest text of a file, bytes.
const FILE: usize = 16 << 20;
/// How many rows are read at once.
const BATCH: usize = 2_000;

/// Copies the line that is meant.
pub(super) fn line(app: &mut App) {
    let Some(text) = current(app).map(|row| written(app, row)) else { return app.say("there is no line to copy") };
    copy(app, &text, 1);
}

/// Copies what is on the screen, whole lines.
pub(super) fn view(app: &mut App) {
    let rows = app.logs.drawn.as_ref().map(|(_, rows)| rows.iter().map(|row| written(app, row)).collect::<Vec<_>>()).unwrap_or_default();
    if rows.is_empty() {
        return app.say("there is no line to copy");
    }
    copy(app, &rows.join("\n"), rows.len());
}

/// Saves all that can be scrolled to, or its newest part.
pub(super) fn save(app: &mut App) {
    let (mut parts, mut size, mut at, mut count) = (Vec::new(), 0, u64::MAX, 0);
    while size < FILE {
        let rows = match before(app, at, BATCH) {
            Ok(rows) => rows,
            Err(error) => return app.say(&error.to_string()),
        };
        let Some(first) = rows.first().map(|row| row.at).filter(|first| *first < at) else { break };
        let mut part = String::new();
        for row in &rows {
            part += &written(app, row);
            part.push('\n');
        }
        (size, count, at) = (size + part.len(), count + rows.len(), first);
        parts.push(part);
    }
    let cut = if size >= FILE { ", the newest" } else { "" };
    let text: String = parts.into_iter().rev().collect();
    match file(app, &text) {
        Ok(path) => app.say(&format!("{}{cut} saved in {path}", words::count(count, "line"))),
        Err(why) => app.say(&why),
    }
}

/// A row as it is written elsewhere: clean, whole, with whose it is where there are several.
fn written(app: &App, row: &Row) -> String {
    let text = paint::safe(app, row);
    if app.logs.mode == Mode::One { text } else { format!("{}: {text}", paint::author(app, row)) }
}

fn copy(app: &mut App, text: &str, lines: usize) {
    let what = words::count(lines, "line");
    if text.len() > CLIP {
        let said = match file(app, text) {
            Ok(path) => format!("{what}, too long for a clipboard: saved in {path}"),
            Err(why) => why,
        };
        return app.say(&said);
    }
    match app.hand.as_ref().and_then(|hand| hand.multiplexer(text)) {
        Some(Ok(())) => app.say(&format!("{what} copied: tmux has it, and gives it to the clipboard where it may")),
        Some(Err(error)) => {
            app.clip = Some(text.to_owned());
            app.say(&format!("tmux did not take it ({error}): {what} sent to the terminal (OSC 52), which may refuse"));
        }
        None => {
            app.clip = Some(text.to_owned());
            app.say(&format!("{what} sent to the terminal's clipboard (OSC 52), which it may refuse; ctrl-s saves a file"));
        }
    }
}

/// Writes a file; its path, or why not.
fn file(app: &App, text: &str) -> Result<String, String> {
    let name = match (app.logs.mode, who(app)) {
        (Mode::One, Some((_, LogFile::Rank { rank, .. }))) => format!("rank-{rank}"),
        (Mode::One, Some((host, LogFile::Node))) => format!("launcher-{host}"),
        (Mode::Host, Some((host, _))) => format!("host-{host}"),
        _ => "merged".to_owned(),
    };
    let Some(hand) = &app.hand else { return Err("there is no place for files here".to_owned()) };
    hand.save(&name, text).map_err(|error| format!("not saved: {error}"))
}
