//! Exports log text: a line, the screen, or everything in the view. Always sanitized and bounded.

use std::io;

use crate::event::LogFile;
use crate::tui::model::Model;
use crate::tui::pane_action::{ExportedText, PaneAction};

use super::navigation::current_row;
use super::pane::{LogRow, LogScope, LogsPane};
use super::render;
use super::rows::{RowRange, read_rows};

/// Maximum file size in bytes.
const MAX_FILE_BYTES: usize = 16 << 20;
/// Rows per read.
const ROWS_PER_READ: usize = 2_000;

/// Copies the current line.
pub(super) fn copy_line(pane: &LogsPane, model: &Model) -> PaneAction {
    copy_rows(pane, model, current_row(pane).as_slice())
}

/// Copies the visible lines, not truncated.
pub(super) fn copy_screen(pane: &LogsPane, model: &Model) -> PaneAction {
    let rows: Vec<&LogRow> = pane.cached_rows.iter().flat_map(|(_, rows)| rows.iter()).collect();
    copy_rows(pane, model, &rows)
}

fn copy_rows(pane: &LogsPane, model: &Model, rows: &[&LogRow]) -> PaneAction {
    if rows.is_empty() {
        return PaneAction::ShowToast("no line to copy".to_owned());
    }
    let texts: Vec<String> = rows.iter().map(|row| export_text(pane, model, row)).collect();
    PaneAction::CopyText(ExportedText { name: file_name(pane, model), label: model.count(rows.len(), "line"), text: texts.join("\n") })
}

/// Saves everything in the view, or its newest part.
pub(super) fn save_all(pane: &LogsPane, model: &Model) -> io::Result<PaneAction> {
    let (mut parts, mut size, mut at, mut count) = (Vec::new(), 0, u64::MAX, 0);
    while size < MAX_FILE_BYTES {
        let rows = read_rows(pane, model, RowRange::Before(at), ROWS_PER_READ)?;
        let Some(first) = rows.first().map(|row| row.position).filter(|first| *first < at) else { break };
        let mut part = String::new();
        for row in &rows {
            part += &export_text(pane, model, row);
            part.push('\n');
        }
        (size, count, at) = (size + part.len(), count + rows.len(), first);
        parts.push(part);
    }
    let cut = if size >= MAX_FILE_BYTES { model.lang.tr(" (the newest)") } else { "" };
    let text = parts.into_iter().rev().collect();
    let label = format!("{}{cut}", model.count(count, "line"));
    Ok(PaneAction::SaveText(ExportedText { name: file_name(pane, model), label, text }))
}

/// A row as exported: sanitized, not truncated, with its writer in merged logs.
fn export_text(pane: &LogsPane, model: &Model, row: &LogRow) -> String {
    let text = render::safe_text(pane, model, row);
    if pane.scope == LogScope::Single { text } else { format!("{}: {text}", render::writer_label(model, row)) }
}

/// File name for the current view.
fn file_name(pane: &LogsPane, model: &Model) -> String {
    match (pane.scope, pane.shown_log(&model.state)) {
        (LogScope::Single, Some((_, LogFile::Rank { rank, .. }))) => format!("rank-{rank}"),
        (LogScope::Single, Some((host, LogFile::Launcher))) => format!("launcher-{host}"),
        (LogScope::Single, Some((host, LogFile::Task { number }))) => format!("task-{number}-{host}"),
        (LogScope::Host, Some((host, _))) => format!("host-{host}"),
        _ => "merged".to_owned(),
    }
}
