//! The help: the effective key bindings, those of the current screen first.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Clear;

use crate::tui::key_bindings::KeyBindings;
use crate::tui::keymap::KeyContext;
use crate::tui::model::Model;
use crate::tui::theme::DisplayStatus;

use super::formatting;
use super::gpu_matrix_rows::signs_text;
use super::lines::{render_lines, rows_area};

/// Help lines for these contexts.
pub(super) fn lines(model: &Model, bindings: &KeyBindings, contexts: &[KeyContext]) -> Vec<Line<'static>> {
    let (theme, lang) = (model.theme, model.lang);
    let mut lines: Vec<Line<'static>> = Vec::new();
    for context in contexts {
        lines.push(Line::styled(format!(" {}", lang.term(context.title())), theme.header()));
        for row in bindings.bindings_in(*context).filter(|row| !row.keys.is_empty()) {
            let keys = formatting::pad(&row.join_keys("  "), 16);
            lines.push(Line::from(vec![Span::raw("   "), Span::styled(keys, theme.accent()), Span::raw(lang.term(row.default.help))]));
        }
    }
    lines.extend(symbol_lines(model));
    lines
}

/// What the symbols mean.
fn symbol_lines(model: &Model) -> Vec<Line<'static>> {
    let (theme, lang) = (model.theme, model.lang);
    let symbols = [
        (DisplayStatus::Error, lang.tr("failed")),
        (DisplayStatus::Warn, lang.tr("needs attention")),
        (DisplayStatus::Lost, lang.tr("does not answer")),
        (DisplayStatus::Ok, lang.tr("running or in progress")),
        (DisplayStatus::Done, lang.tr("ended without a failure")),
        (DisplayStatus::Pending, lang.tr("waiting")),
    ];
    let title = Line::styled(format!(" {}", lang.tr("Symbols (in the title with the number of hosts)")), theme.header());
    let line = |(status, meaning): (DisplayStatus, &'static str)| {
        let symbol = Span::styled(formatting::pad(theme.symbol(status), 16), theme.status_style(status));
        Line::from(vec![Span::raw("   "), symbol, Span::raw(meaning)])
    };
    let gpus = Line::styled(format!(" {}", lang.tr("A GPU as one character")), theme.header());
    let signs = [lang.tr("0-9 tenths of its utilization").to_owned(), signs_text(model)].map(|text| Line::raw(format!("   {text}")));
    std::iter::once(title).chain(symbols.map(line)).chain([gpus]).chain(signs).collect()
}

/// Draws the help over the whole screen from line `top` on and clamps `top`; returns the page size in rows.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, mut lines: Vec<Line<'static>>, top: &mut usize) -> usize {
    let room = usize::from(area.height).saturating_sub(1);
    let most = lines.len().saturating_sub(room);
    *top = (*top).min(most);
    let more = most - *top;
    frame.render_widget(Clear, area);
    render_lines(frame, rows_area(area, 0, area.height.saturating_sub(1)), lines.split_off(*top));
    let foot = match more {
        0 => model.lang.tr(" ? closes").to_owned(),
        more => model.lang.tr_fill(" {} more lines: down, pgdn; ? closes", &[&more.to_string()]),
    };
    render_lines(frame, rows_area(area, area.height.saturating_sub(1), 1), vec![Line::styled(foot, model.theme.dim())]);
    room
}
