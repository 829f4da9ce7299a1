//! The commands by their names, above the last line.
//!
//! Uses `palette`.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Clear;

use crate::tui::app::{App, Overlay};

use super::{put, text};

/// The most commands that are shown at once.
const MOST: usize = 12;

/// Draws it.
pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let Some(Overlay::Palette(palette)) = &app.overlay else { return };
    let found = palette.entries(&app.bindings, &app.places());
    let room = usize::from(area.height).saturating_sub(2).min(MOST);
    let at = palette.at.min(found.len().saturating_sub(1));
    let skip = (at + 1).saturating_sub(room);
    let width = usize::from(area.width);
    let mut lines: Vec<Line<'static>> = Vec::new();
    for (n, entry) in found.iter().enumerate().skip(skip).take(room) {
        let row = format!(" {} {} {}", text::pad(&entry.name, 14), text::pad(&entry.keys, 10), entry.help);
        let row = Line::raw(text::pad(&row, width));
        lines.push(if n == at { row.style(app.theme.chosen()) } else { row });
    }
    if found.is_empty() {
        lines.push(Line::styled(text::pad(" no command is called so", width), app.theme.dim()));
    }
    let skipped = palette.prompt.text.chars().count().saturating_sub(width.saturating_sub(4));
    let seen: String = palette.prompt.text.chars().skip(skipped).collect();
    lines.push(Line::from(vec![Span::styled(" :", app.theme.accent()), Span::raw(seen), Span::styled(" ", app.theme.chosen())]));
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX).min(area.height);
    let place = Rect { y: area.y + area.height - height, height, ..area };
    frame.render_widget(Clear, place);
    put(frame, place, lines);
}
