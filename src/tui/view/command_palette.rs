//! Draws the command palette above the footer.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Clear;

use crate::tui::command_palette::CommandPalette;
use crate::tui::key_bindings::BoundCommand;
use crate::tui::model::Model;

use super::formatting;
use super::lines::render_lines;

/// Maximum number of visible commands.
const MAX_ENTRIES: usize = 12;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, palette: &CommandPalette, found: &[BoundCommand]) {
    let (theme, lang) = (model.theme, model.lang);
    let room = usize::from(area.height).saturating_sub(2).min(MAX_ENTRIES);
    let at = palette.selected.min(found.len().saturating_sub(1));
    let skip = (at + 1).saturating_sub(room);
    let width = usize::from(area.width);
    let mut lines: Vec<Line<'static>> = Vec::new();
    for (n, entry) in found.iter().enumerate().skip(skip).take(room) {
        let row = format!(" {} {} {}", formatting::pad(&entry.command.name(), 14), formatting::pad(&entry.keys, 10), lang.term(entry.help));
        let row = Line::raw(formatting::pad(&row, width));
        lines.push(if n == at { row.style(theme.selected()) } else { row });
    }
    if found.is_empty() {
        lines.push(Line::styled(formatting::pad(lang.tr(" no such command"), width), theme.dim()));
    }
    let seen = formatting::keep_end(&palette.prompt.text, width.saturating_sub(4)).to_owned();
    lines.push(Line::from(vec![Span::styled(" :", theme.accent()), Span::raw(seen), Span::styled(" ", theme.selected())]));
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX).min(area.height);
    let covered = Rect { y: area.y + area.height - height, height, ..area };
    frame.render_widget(Clear, covered);
    render_lines(frame, covered, lines);
}
