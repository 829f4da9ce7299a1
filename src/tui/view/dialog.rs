//! Draws a dialog in the middle of the screen, or full-screen on small terminals.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Block;
use unicode_width::UnicodeWidthStr;

use crate::report::style;
use crate::tui::dialog::{Dialog, TEXT_WIDTH};
use crate::tui::model::Model;

use super::lines::{clear_area, render_lines};
use super::pane_frame::ASCII_BORDER;

pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, dialog: &Dialog) {
    let lang = model.lang;
    let label = |(key, label, _): &(&'static str, String, _)| format!("{:>5}  {}", format!("[{key}]"), lang.message(label));
    let mut text: Vec<String> = dialog.text.iter().map(|line| lang.message(line).into_owned()).collect();
    if model.is_tearing_down() {
        text.push(style::truncate_text(&super::launch_matrix::progress_text(model), TEXT_WIDTH));
    }
    if let Some(word) = &dialog.confirmation {
        text.push(String::new());
        text.push(lang.tr_fill("Type {} to confirm:  {}_", &[&word.expected, &word.input.text]));
        if word.is_wrong {
            text.push(lang.tr_fill("That is not the run's name. Type {}, or press Esc to change nothing.", &[&word.expected]));
        }
    }
    let texts = text.iter().map(|line| line.width());
    let wide = texts.chain(dialog.choices.iter().map(|choice| label(choice).width())).max().unwrap_or(0) + 4;
    let width = u16::try_from(wide).unwrap_or(u16::MAX).min(area.width);
    let rows = text.len() + dialog.choices.len() + 3;
    let height = u16::try_from(rows).unwrap_or(u16::MAX).min(area.height);
    let covered = Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    clear_area(frame, covered);
    let framed = covered.width > 8 && covered.height > 4;
    let inner = if framed {
        let mut block = Block::bordered().title(format!(" {} ", lang.message(&dialog.title))).border_style(model.theme.accent());
        if model.theme.ascii {
            block = block.border_set(ASCII_BORDER);
        }
        let inner = block.inner(covered);
        frame.render_widget(block, covered);
        inner
    } else {
        covered
    };
    let room = usize::from(inner.width);
    let mut lines: Vec<Line<'static>> = Vec::new();
    // If not all choices fit, the focused one stays visible.
    let fit =
        usize::from(inner.height).saturating_sub(if framed { text.len() + 1 } else { usize::from(dialog.confirmation.is_some()) }).max(1);
    let skip = (dialog.focus + 1).saturating_sub(fit);
    if framed {
        lines.extend(text.iter().map(|line| Line::raw(style::truncate_text(&format!(" {}", model.sanitize(line)), room))));
        lines.push(Line::raw(""));
    } else if let (Some(_), Some(last)) = (&dialog.confirmation, text.last()) {
        lines.push(Line::raw(style::truncate_text(last, room)));
    }
    for (n, choice) in dialog.choices.iter().enumerate().skip(skip) {
        let span = Span::raw(style::truncate_text(&label(choice), room));
        let line = Line::from(span);
        lines.push(match (n == dialog.focus, dialog.is_enabled(choice.2, model.now)) {
            (true, _) => line.style(model.theme.selected()),
            (false, true) => line,
            (false, false) => line.style(model.theme.dim()),
        });
    }
    render_lines(frame, inner, lines);
}
