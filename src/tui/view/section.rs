//! A part of a screen that scrolls as a whole: lines below a title, in a frame where there is room for one.

use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

use crate::report::style::truncate_text;
use crate::tui::theme::{DisplayStatus, Theme};

use super::formatting;
use super::pane_frame::edge;

#[derive(Debug, Clone, Default)]
pub(super) struct Section {
    pub(super) title: String,
    /// At the right of a frame; after the title without one.
    pub(super) state: String,
    pub(super) lines: Vec<Line<'static>>,
}

/// How sections are drawn: in frames, below an empty line, or close together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SectionStyle {
    Framed,
    Loose,
    Dense,
}

impl SectionStyle {
    /// The columns inside of a section.
    pub(super) fn inner(self, width: usize) -> usize {
        if self == SectionStyle::Framed { width.saturating_sub(2) } else { width }
    }

    /// The rows of a section; one without lines is not drawn.
    pub(super) fn rows(self, section: &Section) -> usize {
        match section.lines.len() {
            0 => 0,
            lines if self == SectionStyle::Dense => lines + 1,
            lines => lines + 2,
        }
    }

    pub(super) fn render(self, section: Section, theme: Theme, width: usize) -> Vec<Line<'static>> {
        match self {
            _ if section.lines.is_empty() => Vec::new(),
            SectionStyle::Framed => section.framed(theme, width),
            SectionStyle::Loose => std::iter::once(Line::raw("")).chain(section.plain(theme, width)).collect(),
            SectionStyle::Dense => section.plain(theme, width),
        }
    }
}

impl Section {
    /// The title, then the lines.
    fn plain(self, theme: Theme, width: usize) -> Vec<Line<'static>> {
        let gap = if self.state.is_empty() { "" } else { "  " };
        let title = Line::styled(formatting::pad(&format!(" {}{gap}{}", self.title, self.state), width), theme.header());
        std::iter::once(title).chain(self.lines).collect()
    }

    /// A frame of exactly `width` columns; lines that are wider than its inside are cut.
    fn framed(self, theme: Theme, width: usize) -> Vec<Line<'static>> {
        let inner = width.saturating_sub(2);
        let (set, border) = edge(theme, false, DisplayStatus::Ok);
        // A title that does not fit is cut; the state, which is often an age, stays.
        let state = if self.state.is_empty() || self.state.width() + 8 > inner { String::new() } else { format!(" {} ", self.state) };
        let title = truncate_text(&self.title, inner.saturating_sub(state.width() + 3));
        let rule = inner.saturating_sub(title.width() + 2 + state.width());
        let top = Line::from(vec![
            Span::styled(set.top_left, border),
            Span::styled(format!(" {title} "), theme.header()),
            Span::styled(set.horizontal_top.repeat(rule), border),
            Span::styled(state, theme.dim()),
            Span::styled(set.top_right, border),
        ]);
        let row = |line: Line<'static>| {
            let base = line.style;
            let mut spans = vec![Span::styled(set.vertical_left, border)];
            spans.extend(
                formatting::truncate_spans(&line.spans, inner).into_iter().map(|span| Span::styled(span.content, base.patch(span.style))),
            );
            let used = formatting::spans_width(&spans) - 1;
            spans.push(Span::raw(" ".repeat(inner.saturating_sub(used))));
            spans.push(Span::styled(set.vertical_right, border));
            Line::from(spans)
        };
        let bottom = format!("{}{}{}", set.bottom_left, set.horizontal_bottom.repeat(inner), set.bottom_right);
        std::iter::once(top).chain(self.lines.into_iter().map(row)).chain([Line::styled(bottom, border)]).collect()
    }
}

/// Two lists side by side, the second from this column on.
pub(super) fn beside(left: Vec<Line<'static>>, right: Vec<Line<'static>>, column: usize) -> Vec<Line<'static>> {
    let rows = left.len().max(right.len());
    let (mut left, mut right) = (left.into_iter(), right.into_iter());
    // The style of a line goes to its spans: it must not reach into the other half.
    let spans = |line: Line<'static>| {
        let base = line.style;
        line.spans.into_iter().map(move |span| Span::styled(span.content, base.patch(span.style))).collect::<Vec<_>>()
    };
    let row = |_| {
        let mut row = formatting::truncate_spans(&left.next().map(spans).unwrap_or_default(), column);
        row.push(Span::raw(" ".repeat(column - formatting::spans_width(&row))));
        row.extend(right.next().map(spans).unwrap_or_default());
        Line::from(row)
    };
    (0..rows).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::theme::ColorScheme;

    fn texts(lines: &[Line<'_>]) -> Vec<String> {
        lines.iter().map(|line| line.spans.iter().map(|span| span.content.as_ref()).collect()).collect()
    }

    #[test]
    fn frames_have_the_width_and_keep_the_title() {
        let theme = Theme::new(ColorScheme::Mono, true);
        let section = |state: &str| Section {
            title: "GPUs".to_owned(),
            state: state.to_owned(),
            lines: vec![Line::raw("one"), Line::raw("a line that is too long"), Line::raw("中中中中中中中中")],
        };
        let framed = texts(&section("3s ago").framed(theme, 18));
        assert_eq!(framed, ["+ GPUs -- 3s ago +", "|one             |", "|a line that is …|", "|中中中中中中中中|", "+----------------+"]);
        assert_eq!(texts(&section("a state that is too long").framed(theme, 14))[0], "+ GPUs ------+");
        assert_eq!(texts(&section("? 12m old").framed(theme, 19))[0], "+ GP… - ? 12m old +", "the age stays");
        assert_eq!(texts(&section("3s ago").plain(theme, 18))[..2], [" GPUs  3s ago     ", "one"]);
    }
}
