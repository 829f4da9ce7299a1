//! Fits log text to columns: escape, truncate, wrap.

use ratatui::style::Style;
use ratatui::text::Span;
use unicode_width::UnicodeWidthChar as _;

use crate::text::width::split_to_width;
use crate::tui::line_filter::{LogLevel, detect_level};
use crate::tui::model::Model;
use crate::tui::theme::DisplayStatus;

use super::pane::LogRow;
use crate::tui::view::formatting;

/// Escapes every byte that is not a plain character.
pub(super) fn escape_bytes(bytes: &[u8]) -> String {
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

/// Drops the first `columns` columns.
pub(super) fn skip_columns(text: &str, columns: usize) -> String {
    let mut used = 0;
    text.chars()
        .skip_while(|c| {
            used += c.width().unwrap_or(0);
            used <= columns
        })
        .collect()
}

/// Truncates to `room` columns, one of them reserved for the mark if text was cut.
pub(super) fn truncate_columns(text: &str, room: usize) -> (String, bool) {
    // Only as much of a long line is examined as can be shown.
    let near: String = text.chars().take(4 * room + 8).collect();
    let rows = split_to_width(&near, room);
    if rows.len() <= 1 && near.len() == text.len() {
        return (rows.first().copied().unwrap_or_default().to_owned(), false);
    }
    (split_to_width(&near, room.saturating_sub(1).max(1)).first().copied().unwrap_or_default().to_owned(), true)
}

/// The colour of a line's level; `None` for the usual one.
pub(in crate::tui::view) fn style_of_level(model: &Model, line: &[u8]) -> Option<Style> {
    match detect_level(line) {
        LogLevel::Error => Some(model.theme.status_style(DisplayStatus::Error)),
        LogLevel::Warn => Some(model.theme.status_style(DisplayStatus::Warn)),
        _ => None,
    }
}

/// The level of a row, in columns of one width; nothing for the usual one.
pub(super) fn level_span(model: &Model, row: &LogRow) -> Span<'static> {
    match detect_level(&row.bytes) {
        LogLevel::Error => Span::styled(formatting::pad(model.lang.tr("error"), 6), model.theme.status_style(DisplayStatus::Error)),
        LogLevel::Warn => Span::styled(formatting::pad(model.lang.tr("warn"), 6), model.theme.status_style(DisplayStatus::Warn)),
        _ => Span::raw("      "),
    }
}
