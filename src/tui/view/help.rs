//! The keys, from the same rows that they are looked up in: those of this screen first.
//!
//! Uses `bindings`.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Clear;

use crate::tui::app::{App, Overlay};

use super::formatting;
use super::lines::{render_lines, row_range};

/// Draws it over the whole screen; keeps the scrolling within bounds.
pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, app: &mut App) {
    let mut lines: Vec<Line<'static>> = Vec::new();
    for place in app.key_contexts() {
        lines.push(Line::styled(format!(" {}", place.title()), app.model.theme.header()));
        for row in app.bindings.bindings_in(place).filter(|row| !row.keys.is_empty()) {
            let keys = formatting::pad(&row.join_keys("  "), 16);
            lines.push(Line::from(vec![Span::raw("   "), Span::styled(keys, app.model.theme.accent()), Span::raw(row.help)]));
        }
    }
    let room = usize::from(area.height).saturating_sub(1);
    let most = lines.len().saturating_sub(room);
    let Some(Overlay::Help(top)) = &mut app.overlay else { return };
    *top = (*top).min(most);
    let (top, more) = (*top, most - *top);
    app.model.page_rows = room;
    frame.render_widget(Clear, area);
    render_lines(frame, row_range(area, 0, area.height.saturating_sub(1)), lines.split_off(top));
    let foot = if more > 0 { format!(" {more} more lines below: down, pgdn; ? closes") } else { " ? closes".to_owned() };
    render_lines(frame, row_range(area, area.height.saturating_sub(1), 1), vec![Line::styled(foot, app.model.theme.dim())]);
}
