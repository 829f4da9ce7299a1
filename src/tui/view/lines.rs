//! Draws lines, and the lines that several panes share.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Clear;
use unicode_width::UnicodeWidthStr as _;

use crate::event::UnixMillis;
use crate::report::style;
use crate::tui::model::Model;
use crate::tui::theme::{DisplayStatus, Theme};

use super::formatting;

pub(super) fn rows_area(area: Rect, from: u16, count: u16) -> Rect {
    Rect { y: area.y.saturating_add(from), height: count.min(area.height.saturating_sub(from)), ..area }
}

/// Draws the lines from the top; what is wider or lower than the area is cut. A quarter of what ratatui's `Paragraph` costs, which can wrap.
pub(super) fn render_lines(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'_>>) {
    let buffer = frame.buffer_mut();
    let area = area.intersection(buffer.area);
    for (line, y) in lines.iter().zip(area.top()..area.bottom()) {
        let mut x = area.left();
        for span in &line.spans {
            let style = line.style.patch(span.style);
            let text = span.content.as_ref();
            let room = usize::from(area.right() - x);
            if room == 0 {
                break;
            }
            if !text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
                let (end, _) = buffer.set_stringn(x, y, text, room, style);
                // A wide character that is cut ends the line.
                if usize::from(end - x) < room.min(text.width()) {
                    break;
                }
                x = end;
                continue;
            }
            let shown = &text[..text.len().min(room)];
            for at in 0..shown.len() {
                if let Some(cell) = buffer.cell_mut((x, y)) {
                    cell.set_symbol(&shown[at..=at]).set_style(style);
                }
                x += 1;
            }
        }
    }
}

/// Clears the place of what is drawn over the rest; a wide character that reaches into it goes as a whole.
pub(crate) fn clear_area(frame: &mut Frame<'_>, area: Rect) {
    for y in area.top()..area.bottom() {
        if let Some(before) = area.x.checked_sub(1)
            && let Some(cell) = frame.buffer_mut().cell_mut((before, y))
            && cell.symbol().width() > 1
        {
            cell.set_symbol(" ");
        }
    }
    frame.render_widget(Clear, area);
}

/// The row under the cursor: one style over its whole width, since parts in colors of their own would look like patches; only what is
/// wrong keeps its color.
pub(super) fn selected_row(line: &Line<'_>, theme: Theme, width: usize) -> Line<'static> {
    let rest = width.saturating_sub(formatting::spans_width(&line.spans));
    let select = |span: &Span<'_>| {
        let alarms = [DisplayStatus::Warn, DisplayStatus::Lost, DisplayStatus::Error];
        let is_alarm = alarms.iter().any(|status| theme.status_style(*status) == span.style);
        let style = if is_alarm { span.style.patch(theme.selected()) } else { theme.selected() };
        Span::styled(span.content.clone().into_owned(), style)
    };
    let padding = Span::styled(" ".repeat(rest), theme.selected());
    Line::from(line.spans.iter().map(select).chain([padding]).collect::<Vec<_>>())
}

/// Age of a value as text.
pub(super) fn age_text(model: &Model, at: UnixMillis) -> String {
    let (lang, age) = (model.lang, formatting::format_age(at, model.now));
    match at {
        0 => lang.tr("never seen").to_owned(),
        at if model.is_stale(at) => lang.tr_fill("? {} old", &[&age]),
        _ => lang.tr_fill("{} ago", &[&age]),
    }
}

/// `over 46 s`: from the first to the last of these times; empty where there are no two.
pub(super) fn history_span(model: &Model, times: impl DoubleEndedIterator<Item = UnixMillis>) -> String {
    let mut times = times;
    match (times.next(), times.next_back()) {
        (Some(first), Some(last)) if last > first => model.lang.tr_fill("over {}", &[&style::format_duration(last - first)]),
        _ => String::new(),
    }
}

/// The parts that are not empty, side by side.
pub(super) fn join_parts<const N: usize>(parts: [String; N]) -> String {
    Vec::from_iter(parts.into_iter().filter(|part| !part.is_empty())).join("  ")
}
