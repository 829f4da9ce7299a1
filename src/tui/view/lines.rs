//! Draws lines, and the lines that several panes share.

use std::sync::Arc;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Clear;
use unicode_width::UnicodeWidthStr as _;

use crate::event::UnixMillis;
use crate::report::style;
use crate::state::GpuRound;
use crate::tui::model::Model;
use crate::tui::theme::{DisplayStatus, Theme};

use super::formatting;

pub(super) fn rows_area(area: Rect, from: u16, count: u16) -> Rect {
    Rect { y: area.y.saturating_add(from), height: count.min(area.height.saturating_sub(from)), ..area }
}

/// Draws the lines from the top; what is wider or lower than the area is cut. `Paragraph`, which can also wrap, takes four times as long.
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
                // A wide character that is cut ends the line: what follows could fit into the column that is left.
                if end + 1 >= area.right() && usize::from(end - x) < text.width() {
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

/// `over 46 s`: from the first to the last of these times; empty below a second.
pub(super) fn history_span(model: &Model, times: impl DoubleEndedIterator<Item = UnixMillis>) -> String {
    let mut times = times;
    match (times.next(), times.next_back()) {
        (Some(first), Some(last)) if last - first >= 1_000 => model.lang.tr_fill("over {}", &[&style::format_duration(last - first)]),
        _ => String::new(),
    }
}

/// `over 46 s`: what the newest samples of GPUs cover, so many of them at most. Of the hosts with the longest history that which was away
/// least counts.
pub(super) fn samples_span(model: &Model, samples: usize) -> String {
    let longest = model.state.hosts.iter().map(|host| host.gpu_history.len()).max().unwrap_or(0);
    let shown = longest.min(samples);
    let time_of = |round: Option<&Arc<GpuRound>>| Some(round?.first()?.at);
    let covered = model.state.hosts.iter().filter(|host| host.gpu_history.len() == longest).filter_map(|host| {
        let history = &host.gpu_history;
        Some([time_of(history.get(longest.checked_sub(shown)?))?, time_of(history.back())?])
    });
    covered.min_by_key(|[first, last]| last - first).map_or_else(String::new, |ends| history_span(model, ends.into_iter()))
}

/// The parts that are not empty, side by side.
pub(super) fn join_parts<const N: usize>(parts: [String; N]) -> String {
    Vec::from_iter(parts.into_iter().filter(|part| !part.is_empty())).join("  ")
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::buffer::Buffer;
    use ratatui::style::Color;
    use ratatui::widgets::Paragraph;

    use super::*;

    fn draw(area: Rect, paint: impl FnOnce(&mut Frame<'_>, Rect)) -> Buffer {
        let mut terminal = Terminal::new(TestBackend::new(12, 4)).expect("a terminal");
        terminal.draw(|frame| paint(frame, area)).expect("drawn").buffer.clone()
    }

    #[test]
    fn lines_are_drawn_as_by_a_paragraph() {
        let red = |text: &str| Span::styled(text.to_owned(), Color::Red);
        let texts = ["", "short", "exactly ten", "a wide 中中中", "中中中中中中中", "e\u{301}e\u{301} combining", "🦀 crab 🦀 crab"];
        let lines = || -> Vec<Line<'static>> {
            let pairs = texts.iter().flat_map(|first| texts.iter().map(move |second| (*first, *second)));
            pairs.map(|(first, second)| Line::from(vec![red(first), Span::raw(second), red("end")]).style(Color::Blue)).collect()
        };
        let count = lines().len();
        for area in [(0, 0, 12, 4), (1, 1, 7, 2), (5, 0, 6, 4), (8, 2, 20, 9), (3, 3, 0, 1), (0, 0, 2, 4)] {
            let area = Rect::new(area.0, area.1, area.2, area.3);
            for from in (0..count).step_by(3) {
                let part = || lines().into_iter().skip(from).collect::<Vec<_>>();
                let ours = draw(area, |frame, area| render_lines(frame, area, part()));
                let theirs = draw(area, |frame, area| {
                    let area = area.intersection(frame.area());
                    frame.render_widget(Paragraph::new(part()), area);
                });
                assert_eq!(ours, theirs, "{area:?}, from line {from}");
            }
        }
    }
}
