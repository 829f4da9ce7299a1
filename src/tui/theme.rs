//! One theme for all panes. A status is a symbol and a word first; color comes second.
//!
//! The monochrome theme sets no colors at all, since a color filter of the library also resets bold.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;

/// Status of an item, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum DisplayStatus {
    /// Ended successfully.
    Done,
    /// Healthy.
    Ok,
    #[default]
    Pending,
    Busy,
    Warn,
    /// Connection lost: the status is unknown.
    Lost,
    Error,
}

/// A set of colors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ColorScheme {
    /// For a dark background.
    #[default]
    Dark,
    /// For a light background.
    Light,
    /// Maximum contrast on black.
    HighContrast,
    /// The terminal's own 16 colors.
    Ansi16,
    /// For red-green color blindness.
    Deuteranopia,
    /// For blue-green color blindness.
    Tritanopia,
    Mono,
}

impl ColorScheme {
    /// All schemes, in the order of the key that cycles through them.
    pub const ALL: [ColorScheme; 7] = [
        ColorScheme::Dark,
        ColorScheme::Light,
        ColorScheme::HighContrast,
        ColorScheme::Ansi16,
        ColorScheme::Deuteranopia,
        ColorScheme::Tritanopia,
        ColorScheme::Mono,
    ];

    /// Name in the settings.
    pub fn name(self) -> &'static str {
        match self {
            ColorScheme::Dark => "dark",
            ColorScheme::Light => "light",
            ColorScheme::HighContrast => "high-contrast",
            ColorScheme::Ansi16 => "ansi16",
            ColorScheme::Deuteranopia => "deuteranopia",
            ColorScheme::Tritanopia => "tritanopia",
            ColorScheme::Mono => "mono",
        }
    }

    /// The scheme with this name.
    pub fn from_name(name: &str) -> Option<ColorScheme> {
        ColorScheme::ALL.into_iter().find(|scheme| scheme.name() == name)
    }

    #[must_use]
    pub fn next(self) -> ColorScheme {
        let at = ColorScheme::ALL.iter().position(|scheme| *scheme == self).unwrap_or(0);
        ColorScheme::ALL[(at + 1) % ColorScheme::ALL.len()]
    }

    /// Colors for pending, busy, done, warning, lost and error: indexes into the 256 colors of xterm, chosen so that
    /// any two differ for the eyes that the scheme is made for (see the test).
    fn status_colors(self) -> Option<[u8; 6]> {
        Some(match self {
            ColorScheme::Dark => [244, 74, 254, 214, 134, 166],
            ColorScheme::Light => [243, 24, 232, 130, 55, 88],
            ColorScheme::HighContrast => [247, 156, 231, 220, 177, 173],
            // Bright black, cyan, white, yellow, magenta, red.
            ColorScheme::Ansi16 => [8, 6, 7, 3, 5, 1],
            ColorScheme::Deuteranopia => [243, 63, 255, 226, 140, 196],
            ColorScheme::Tritanopia => [243, 44, 231, 214, 200, 196],
            ColorScheme::Mono => return None,
        })
    }
}

/// Characters for graphs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GraphStyle {
    #[default]
    Braille,
    Block,
    Ascii,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Theme {
    pub color_scheme: ColorScheme,
    /// Draw only ASCII.
    pub ascii: bool,
    /// Characters for graphs; ASCII if only ASCII is drawn.
    pub graph_style: GraphStyle,
}

impl Theme {
    /// A theme with the default graph characters.
    pub const fn new(color_scheme: ColorScheme, ascii: bool) -> Theme {
        Theme { color_scheme, ascii, graph_style: if ascii { GraphStyle::Ascii } else { GraphStyle::Braille } }
    }

    /// Whether graphs use ASCII.
    pub fn uses_ascii_graphs(self) -> bool {
        self.graph_style == GraphStyle::Ascii
    }

    /// Symbol of a status; one cell wide.
    pub fn symbol(self, status: DisplayStatus) -> &'static str {
        match (status, self.ascii) {
            (DisplayStatus::Pending, false) => "·",
            (DisplayStatus::Ok | DisplayStatus::Busy, false) => "●",
            (DisplayStatus::Done, false) => "✓",
            (DisplayStatus::Warn, false) => "▲",
            (DisplayStatus::Error, false) => "✗",
            (DisplayStatus::Pending, true) => ".",
            (DisplayStatus::Ok | DisplayStatus::Busy, true) => "o",
            (DisplayStatus::Done, true) => "+",
            (DisplayStatus::Warn, true) => "~",
            (DisplayStatus::Error, true) => "!",
            (DisplayStatus::Lost, _) => "?",
        }
    }

    /// Symbol of a status in its style.
    pub(crate) fn symbol_span(self, status: DisplayStatus) -> Span<'static> {
        Span::styled(self.symbol(status), self.status_style(status))
    }

    /// Style of a status.
    pub fn status_style(self, status: DisplayStatus) -> Style {
        let (at, modifier) = match status {
            DisplayStatus::Pending => (0, self.dim_modifier()),
            DisplayStatus::Ok | DisplayStatus::Busy => (1, Modifier::empty()),
            DisplayStatus::Done => (2, Modifier::empty()),
            DisplayStatus::Warn => (3, Modifier::empty()),
            DisplayStatus::Lost => (4, Modifier::REVERSED),
            DisplayStatus::Error => (5, Modifier::BOLD),
        };
        self.status_color_style(at).add_modifier(modifier)
    }

    /// Style of a text about a status: calmer than that of its symbol.
    pub(crate) fn status_text_style(self, status: DisplayStatus) -> Style {
        let style = self.status_style(status);
        Style { add_modifier: style.add_modifier - Modifier::REVERSED, ..style }
    }

    /// Style of the program name, the current tab and keys.
    pub fn accent(self) -> Style {
        self.status_color_style(1).add_modifier(Modifier::BOLD)
    }

    pub fn dim(self) -> Style {
        self.status_color_style(0).add_modifier(self.dim_modifier())
    }

    /// Terminals draw dim text in about half the brightness: a grey would become unreadable.
    fn dim_modifier(self) -> Modifier {
        if self.color_scheme == ColorScheme::Mono { Modifier::DIM } else { Modifier::empty() }
    }

    /// Text in the edge of a frame: it takes neither the frame's colour nor its dimness.
    pub(crate) fn on_frame(self) -> Style {
        let plain = Style::new().remove_modifier(Modifier::DIM | Modifier::BOLD);
        if self.color_scheme == ColorScheme::Mono { plain } else { plain.fg(Color::Reset) }
    }

    /// A second quantity beside one in the accent colour, and as calm as that.
    pub(crate) fn secondary(self) -> Style {
        match self.color_scheme {
            ColorScheme::Mono => Style::new(),
            ColorScheme::Light => Style::new().fg(Color::Indexed(60)),
            ColorScheme::HighContrast => Style::new().fg(Color::Indexed(146)),
            ColorScheme::Ansi16 => Style::new().fg(Color::Indexed(4)),
            _ => Style::new().fg(Color::Indexed(103)),
        }
    }

    /// Style of the ranks of one host in a merged log: calm colours, none of which stands for a status.
    pub(crate) fn host_style(self, host: u32) -> Style {
        let colors: [u8; 6] = match self.color_scheme {
            ColorScheme::Mono => return self.dim(),
            ColorScheme::Light => [25, 22, 60, 58, 23, 53],
            ColorScheme::HighContrast => [153, 151, 182, 187, 152, 189],
            ColorScheme::Ansi16 => [14, 12, 2, 10, 4, 13],
            _ => [110, 108, 139, 144, 109, 146],
        };
        Style::new().fg(Color::Indexed(colors[host as usize % colors.len()]))
    }

    /// Style of a table header.
    pub fn header(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Style of the row under the cursor.
    pub fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Style of a percentage, cold to hot; no color in the monochrome theme.
    pub fn heat(self, percent: f32) -> Style {
        let ramp: [u8; 6] = match self.color_scheme {
            ColorScheme::Mono => return Style::new(),
            ColorScheme::Light => [60, 61, 25, 24, 23, 22],
            ColorScheme::HighContrast => [110, 116, 117, 123, 159, 195],
            ColorScheme::Ansi16 => [4, 4, 4, 6, 6, 6],
            _ => [66, 67, 73, 74, 80, 116],
        };
        let at = ((percent.clamp(0.0, 100.0) / 100.0) * 5.0).round();
        // Between 0 and 5 by the line above.
        let index = ramp.get(at as usize).copied().unwrap_or(ramp[5]);
        Style::new().fg(Color::Indexed(index))
    }

    /// Between the parts of a title.
    pub(crate) fn separator(self) -> &'static str {
        if self.ascii { "-" } else { "·" }
    }

    /// Unit of a temperature.
    pub(crate) fn degree(self) -> &'static str {
        if self.ascii { "C" } else { "°" }
    }

    /// Mark after truncated text.
    pub fn ellipsis(self) -> &'static str {
        if self.ascii { ">" } else { "…" }
    }

    fn status_color_style(self, at: usize) -> Style {
        match self.color_scheme.status_colors() {
            Some(palette) => Style::new().fg(Color::Indexed(palette[at])),
            None => Style::new(),
        }
    }
}

#[cfg(test)]
#[path = "theme_tests.rs"]
mod tests;
