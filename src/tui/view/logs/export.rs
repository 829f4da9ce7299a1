//! Text that leaves the dashboard: a line, what is on the screen, all that can be scrolled to. Always clean, always bounded.
//!
//! Uses the rows and the `Clipboard` that `cli` gave. It is said which way a text went, since a terminal may refuse it and never says so.

use crate::event::LogFile;
use crate::report::style;
use crate::tui::app::App;

use super::rows::{LogRow, rows_before};
use super::{LogScope, current_row, render, shown_log};

/// The longest text for a clipboard, bytes; a longer one goes to a file.
const MAX_CLIPBOARD_BYTES: usize = 64 << 10;
/// The longest text of a file, bytes.
const MAX_FILE_BYTES: usize = 16 << 20;
/// How many rows are read at once.
const ROWS_PER_READ: usize = 2_000;

/// Copies the line that is meant.
pub(super) fn copy_line(app: &mut App) {
    let Some(text) = current_row(app).map(|row| export_text(app, row)) else { return app.show_toast("there is no line to copy") };
    copy_text(app, &text, 1);
}

/// Copies what is on the screen, whole lines.
pub(super) fn copy_screen(app: &mut App) {
    let rows = app
        .logs_pane
        .cached_rows
        .as_ref()
        .map(|(_, rows)| rows.iter().map(|row| export_text(app, row)).collect::<Vec<_>>())
        .unwrap_or_default();
    if rows.is_empty() {
        return app.show_toast("there is no line to copy");
    }
    copy_text(app, &rows.join("\n"), rows.len());
}

/// Saves all that can be scrolled to, or its newest part.
pub(super) fn save_all(app: &mut App) {
    let (mut parts, mut size, mut at, mut count) = (Vec::new(), 0, u64::MAX, 0);
    while size < MAX_FILE_BYTES {
        let rows = match rows_before(app, at, ROWS_PER_READ) {
            Ok(rows) => rows,
            Err(error) => return app.show_toast(&error.to_string()),
        };
        let Some(first) = rows.first().map(|row| row.position).filter(|first| *first < at) else { break };
        let mut part = String::new();
        for row in &rows {
            part += &export_text(app, row);
            part.push('\n');
        }
        (size, count, at) = (size + part.len(), count + rows.len(), first);
        parts.push(part);
    }
    let cut = if size >= MAX_FILE_BYTES { ", the newest" } else { "" };
    let text: String = parts.into_iter().rev().collect();
    match save_file(app, &text) {
        Ok(path) => app.show_toast(&format!("{}{cut} saved in {path}", style::count_noun(count, "line"))),
        Err(why) => app.show_toast(&why),
    }
}

/// A row as it is written elsewhere: clean, whole, with whose it is where there are several.
fn export_text(app: &App, row: &LogRow) -> String {
    let text = render::safe_text(app, row);
    if app.logs_pane.scope == LogScope::Single { text } else { format!("{}: {text}", render::writer_label(app, row)) }
}

fn copy_text(app: &mut App, text: &str, lines: usize) {
    let what = style::count_noun(lines, "line");
    if text.len() > MAX_CLIPBOARD_BYTES {
        let said = match save_file(app, text) {
            Ok(path) => format!("{what}, too long for a clipboard: saved in {path}"),
            Err(why) => why,
        };
        return app.show_toast(&said);
    }
    match app.clipboard.as_ref().and_then(|hand| hand.copy_to_multiplexer(text)) {
        Some(Ok(())) => app.show_toast(&format!("{what} copied: tmux has it, and gives it to the clipboard where it may")),
        Some(Err(error)) => {
            app.pending_clipboard = Some(text.to_owned());
            app.show_toast(&format!("tmux did not take it ({error}): {what} sent to the terminal (OSC 52), which may refuse"));
        }
        None => {
            app.pending_clipboard = Some(text.to_owned());
            app.show_toast(&format!("{what} sent to the terminal's clipboard (OSC 52), which it may refuse; ctrl-s saves a file"));
        }
    }
}

/// Writes a file; its path, or why not.
fn save_file(app: &App, text: &str) -> Result<String, String> {
    let name = match (app.logs_pane.scope, shown_log(app)) {
        (LogScope::Single, Some((_, LogFile::Rank { rank, .. }))) => format!("rank-{rank}"),
        (LogScope::Single, Some((host, LogFile::Launcher))) => format!("launcher-{host}"),
        (LogScope::Host, Some((host, _))) => format!("host-{host}"),
        _ => "merged".to_owned(),
    };
    let Some(hand) = &app.clipboard else { return Err("there is no place for files here".to_owned()) };
    hand.save_to_file(&name, text).map_err(|error| format!("not saved: {error}"))
}
