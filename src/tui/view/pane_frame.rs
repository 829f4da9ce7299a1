//! The frame around a pane: rounded and dim, its title at the left, its state at the right, the accent colour where the focus is.

use std::borrow::Cow;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::symbols::border;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders};

use crate::tui::theme::{DisplayStatus, Theme};

use super::formatting;

/// What a frame shows in its upper edge.
#[derive(Debug, Clone, Default)]
pub(super) struct PaneFrame {
    pub(super) left: Vec<Span<'static>>,
    pub(super) right: Vec<Span<'static>>,
    /// The pane has the focus or the cursor.
    pub(super) selected: bool,
    /// The state of what it holds; an error colours the frame.
    pub(super) status: DisplayStatus,
}

impl PaneFrame {
    /// A name at the left; a hint, if there is one, at the right.
    pub(super) fn titled(theme: Theme, name: &'static str, hint: impl Into<Cow<'static, str>>) -> PaneFrame {
        let hint = Some(hint.into()).filter(|hint| !hint.is_empty());
        let right = hint.map(|hint| Span::styled(hint, theme.dim())).into_iter().collect();
        PaneFrame { left: vec![Span::styled(name, theme.header())], right, ..PaneFrame::default() }
    }
}

/// The border where only ASCII is drawn.
pub(super) const ASCII_BORDER: border::Set<'_> = border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};

/// The border of something that failed where only ASCII is drawn.
const ASCII_ERROR_BORDER: border::Set<'_> = border::Set { horizontal_top: "=", horizontal_bottom: "=", ..ASCII_BORDER };

/// The border and its style. A failure has another shape as well, so that no color is needed to see it.
pub(super) fn edge(theme: Theme, selected: bool, status: DisplayStatus) -> (border::Set<'static>, Style) {
    let failed = status == DisplayStatus::Error;
    let set = match (theme.ascii, failed) {
        (true, true) => ASCII_ERROR_BORDER,
        (true, false) => ASCII_BORDER,
        (false, true) => border::THICK,
        (false, false) => border::ROUNDED,
    };
    let style = match status {
        _ if selected => theme.accent(),
        DisplayStatus::Error => theme.status_style(DisplayStatus::Error),
        _ => theme.dim(),
    };
    (set, style)
}

/// Whether a table has room for a frame: it depends on the size alone, so that no new row makes a frame come and go.
pub(super) fn has_frame_room(area: Rect) -> bool {
    area.width >= 70 && area.height >= 30
}

/// Draws the frame. Gives the area inside.
pub(super) fn draw_frame(frame: &mut Frame<'_>, area: Rect, theme: Theme, pane: &PaneFrame) -> Rect {
    if area.width < 2 || area.height < 2 {
        return Rect { width: 0, height: 0, ..area };
    }
    let (border, style) = edge(theme, pane.selected, pane.status);
    let width = usize::from(area.width) - 2;
    let right_width = formatting::spans_width(&pane.right) + 2;
    // A title that does not fit is cut; the state stays.
    let shows_right = !pane.right.is_empty() && right_width + 6 <= width;
    let room = width.saturating_sub(if shows_right { right_width + 3 } else { 2 });
    let padded =
        |spans: Vec<Span<'static>>| Line::from_iter(std::iter::once(Span::raw(" ")).chain(spans).chain(std::iter::once(Span::raw(" "))));
    let mut block = Block::new()
        .borders(Borders::ALL)
        .border_set(border)
        .border_style(style)
        .title_style(theme.on_frame())
        .title_top(padded(formatting::truncate_spans(&pane.left, room)).left_aligned());
    if shows_right {
        block = block.title_top(padded(pane.right.clone()).right_aligned());
    }
    let inner = block.inner(area);
    frame.render_widget(block, area);
    inner
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::theme::ColorScheme;

    #[test]
    fn frames_differ_in_every_theme() {
        for theme in ColorScheme::ALL.into_iter().flat_map(|scheme| [Theme::new(scheme, false), Theme::new(scheme, true)]) {
            let plain = edge(theme, false, DisplayStatus::Ok);
            let focused = edge(theme, true, DisplayStatus::Ok);
            let failed = edge(theme, false, DisplayStatus::Error);
            let failed_focused = edge(theme, true, DisplayStatus::Error);
            assert_ne!(plain.1, focused.1);
            assert!(plain.0 != failed.0 && focused.0 != failed_focused.0, "a failure has another border");
        }
    }
}
