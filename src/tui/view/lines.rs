//! Draws lines, and the lines that several panes share.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use crate::event::UnixMillis;
use crate::tui::model::Model;
use crate::tui::theme::Theme;

use super::formatting;

pub(super) fn rows_area(area: Rect, from: u16, count: u16) -> Rect {
    Rect { y: area.y.saturating_add(from), height: count.min(area.height.saturating_sub(from)), ..area }
}

pub(super) fn render_lines(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'_>>) {
    if area.width > 0 && area.height > 0 {
        frame.render_widget(Paragraph::new(lines), area);
    }
}

/// The row under the cursor: one style over its whole width, since parts in colors of their own would look like patches.
pub(super) fn selected_row(line: &Line<'_>, theme: Theme, width: usize) -> Line<'static> {
    let text: String = line.spans.iter().map(|span| span.content.as_ref()).collect();
    Line::styled(formatting::pad(&text, width), theme.selected())
}

/// Age of a value as text.
pub(super) fn age_text(model: &Model, at: UnixMillis) -> String {
    match at {
        0 => "never seen".to_owned(),
        at if model.is_stale(at) => format!("? {} old", formatting::format_age(at, model.now)),
        at => format!("{} ago", formatting::format_age(at, model.now)),
    }
}

pub(super) fn section_title(model: &Model, text: &str, width: usize) -> Line<'static> {
    Line::styled(formatting::pad(&format!(" {text}"), width), model.theme.header())
}
