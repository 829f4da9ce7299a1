//! The merged log of all ranks on the first screen, in its frame; the newest line of every rank where no lines have come here yet.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Span;

use crate::tui::model::Model;

use super::last_lines::LastLines;
use super::lines::{render_lines, rows_area};
use super::live_bars;
use super::logs::{self, LogsPane};
use super::pane_frame::{PaneFrame, draw_frame};

#[derive(Debug, Clone)]
pub(super) struct MergedLog {
    pub(super) pane: LogsPane,
    /// Where it was drawn; empty: it was not.
    pub(super) area: Rect,
    last_lines: LastLines,
}

impl Default for MergedLog {
    fn default() -> Self {
        MergedLog { pane: LogsPane::merged(), area: Rect::default(), last_lines: LastLines::default() }
    }
}

impl MergedLog {
    /// Whether it was drawn at this cell of the terminal.
    pub(super) fn is_at(&self, x: u16, y: u16) -> bool {
        self.area.contains((x, y).into())
    }

    /// How many rows there are to show, at most `room` of lines.
    pub(super) fn count_rows(&mut self, model: &Model, room: usize) -> usize {
        let bars = live_bars::rows(model, usize::from(u16::MAX)).len();
        bars + match logs::count_rows(&mut self.pane, model, room) {
            0 => {
                self.last_lines.update(model);
                self.last_lines.groups(room).len()
            }
            rows => rows,
        }
    }

    /// Draws it. Gives the rows of a page.
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>, area: Rect, model: &Model, selected: bool) -> usize {
        self.area = area;
        let title = PaneFrame {
            left: vec![
                Span::styled(model.lang.tr("log"), model.theme.header()),
                Span::styled(format!(" {} {}", model.theme.separator(), model.lang.tr("all ranks, folded")), model.theme.dim()),
            ],
            right: vec![Span::styled(logs::position_text(&self.pane, model), model.theme.dim())],
            selected,
            ..PaneFrame::default()
        };
        let framed = draw_frame(frame, area, model.theme, &title);
        let bars = live_bars::rows(model, usize::from(framed.width));
        let bar_rows = u16::try_from(bars.len()).unwrap_or(0).min(framed.height / 2);
        let inner = rows_area(framed, 0, framed.height - bar_rows);
        render_lines(frame, rows_area(framed, inner.height, bar_rows), bars);
        let room = usize::from(inner.height);
        if !logs::draw_rows(frame, inner, model, &mut self.pane) {
            self.last_lines.update(model);
            render_lines(frame, inner, self.last_lines.rows(model, room, usize::from(inner.width)));
        }
        room
    }
}
