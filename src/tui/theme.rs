//! One theme for all panes. A status is a symbol and a word first; color comes second.
//!
//! The monochrome theme sets no colors at all, since a color filter of the library also resets bold.

use ratatui::style::{Color, Modifier, Style};

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColorScheme {
    /// For a dark background.
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
        ColorScheme::ALL.into_iter().find(|skin| skin.name() == name)
    }

    #[must_use]
    pub fn next(self) -> ColorScheme {
        let at = ColorScheme::ALL.iter().position(|skin| *skin == self).unwrap_or(0);
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GraphStyle {
    Braille,
    Block,
    Ascii,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
        self.effective_graph_style() == GraphStyle::Ascii
    }

    /// The characters for graphs.
    pub fn effective_graph_style(self) -> GraphStyle {
        if self.ascii { GraphStyle::Ascii } else { self.graph_style }
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

    /// Style of a status.
    pub fn status_style(self, status: DisplayStatus) -> Style {
        let (at, modifier) = match status {
            DisplayStatus::Pending => (0, Modifier::DIM),
            DisplayStatus::Ok | DisplayStatus::Busy => (1, Modifier::empty()),
            DisplayStatus::Done => (2, Modifier::empty()),
            DisplayStatus::Warn => (3, Modifier::empty()),
            DisplayStatus::Lost => (4, Modifier::REVERSED),
            DisplayStatus::Error => (5, Modifier::BOLD),
        };
        self.status_color_style(at).add_modifier(modifier)
    }

    /// Style of the program name, the current tab and keys.
    pub fn accent(self) -> Style {
        self.status_color_style(1).add_modifier(Modifier::BOLD)
    }

    pub fn dim(self) -> Style {
        self.status_color_style(0).add_modifier(Modifier::DIM)
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
            ColorScheme::Ansi16 => Style::new().fg(Color::Indexed(4)),
            _ => Style::new().fg(Color::Indexed(103)),
        }
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
            ColorScheme::Light => [60, 61, 25, 24, 30, 23],
            ColorScheme::Ansi16 => [4, 4, 4, 6, 6, 6],
            _ => [61, 67, 74, 80, 116, 123],
        };
        let at = ((percent.clamp(0.0, 100.0) / 100.0) * 5.0).round();
        // Between 0 and 5 by the line above.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 5")]
        let index = ramp.get(at as usize).copied().unwrap_or(ramp[5]);
        Style::new().fg(Color::Indexed(index))
    }

    /// Between the parts of a title.
    pub(crate) fn separator(self) -> &'static str {
        if self.ascii { "-" } else { "·" }
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
mod tests {
    use super::*;

    type ColorMatrix = [[f64; 3]; 3];

    /// Simulated color vision after Machado, Oliveira and Fernandes 2009 (severity 1): normal, without green, red, or blue.
    const VISION_MODELS: [ColorMatrix; 4] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [[0.367_322, 0.860_646, -0.227_968], [0.280_085, 0.672_501, 0.047_413], [-0.011_820, 0.042_940, 0.968_881]],
        [[0.152_286, 1.052_583, -0.204_868], [0.114_503, 0.786_281, 0.099_216], [-0.003_882, -0.048_116, 1.051_998]],
        [[1.255_528, -0.076_749, -0.178_779], [-0.078_411, 0.930_809, 0.147_602], [0.004_733, 0.691_367, 0.303_900]],
    ];

    /// An xterm color of the 256, in linear RGB.
    fn linear_rgb(index: u8) -> [f64; 3] {
        let level = |n: u8| [0.0, 95.0, 135.0, 175.0, 215.0, 255.0][usize::from(n)];
        let rgb = if index >= 232 {
            [8.0 + 10.0 * f64::from(index - 232); 3]
        } else {
            let n = index - 16;
            [level(n / 36), level(n / 6 % 6), level(n % 6)]
        };
        rgb.map(|value| {
            let value: f64 = value / 255.0;
            if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        })
    }

    fn cie_lab(index: u8, eyes: &ColorMatrix) -> [f64; 3] {
        let rgb = linear_rgb(index);
        let [r, g, b] = eyes.map(|row| row.iter().zip(rgb).map(|(m, c)| m * c).sum::<f64>().clamp(0.0, 1.0));
        let x = (0.412_456_4 * r + 0.357_576_1 * g + 0.180_437_5 * b) / 0.950_47;
        let y = 0.212_672_9 * r + 0.715_152_2 * g + 0.072_175 * b;
        let z = (0.019_333_9 * r + 0.119_192 * g + 0.950_304_1 * b) / 1.088_83;
        let f = |t: f64| if t > 216.0 / 24_389.0 { t.cbrt() } else { (24_389.0 / 27.0 * t + 16.0) / 116.0 };
        [116.0 * f(y) - 16.0, 500.0 * (f(x) - f(y)), 200.0 * (f(y) - f(z))]
    }

    /// The smallest color distance (CIE76) between any two statuses.
    fn smallest_distance(palette: [u8; 6], eyes: &ColorMatrix) -> f64 {
        let seen = palette.map(|index| cie_lab(index, eyes));
        let pairs = (0..6).flat_map(|a| (0..a).map(move |b| (a, b)));
        let distance = |(a, b): (usize, usize)| seen[a].iter().zip(seen[b]).map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt();
        pairs.map(distance).fold(f64::INFINITY, f64::min)
    }

    /// Minimum distances of each scheme for each kind of vision, mainly for the one that it is made for.
    #[test]
    fn status_colors_differ_for_intended_vision() {
        let known = [
            (ColorScheme::Dark, [33.0, 19.0, 29.0, 27.0]),
            (ColorScheme::Light, [32.0, 26.0, 27.0, 27.0]),
            (ColorScheme::HighContrast, [34.0, 26.0, 29.0, 26.0]),
            (ColorScheme::Deuteranopia, [44.0, 36.0, 38.0, 12.0]),
            (ColorScheme::Tritanopia, [49.0, 19.0, 19.0, 47.0]),
        ];
        for (skin, least) in known {
            let palette = skin.status_colors().expect("it has colours");
            for (eyes, least) in VISION_MODELS.iter().zip(least) {
                let nearest = smallest_distance(palette, eyes);
                assert!(nearest >= least, "{}: {nearest:.1} is nearer than {least}", skin.name());
            }
        }
        // The other two use the terminal's colors, or none.
        assert_eq!(known.len() + 2, ColorScheme::ALL.len());
        // A set chosen by eye fails: green, yellow and red look alike without red.
        assert!(smallest_distance([244, 40, 254, 220, 134, 196], &VISION_MODELS[2]) < 19.0);
    }

    /// Contrast against the intended background: at least 4.2 to 1 for text, 7 in the high-contrast scheme.
    #[test]
    fn colors_contrast_with_background() {
        let light = |index: u8| {
            let [r, g, b] = linear_rgb(index);
            0.212_672_9 * r + 0.715_152_2 * g + 0.072_175 * b
        };
        let skins = [(ColorScheme::Dark, 0.0, 4.5), (ColorScheme::Light, 1.0, 4.5), (ColorScheme::HighContrast, 0.0, 7.0)];
        for (skin, ground, least) in skins.into_iter().chain([(ColorScheme::Deuteranopia, 0.0, 4.5), (ColorScheme::Tritanopia, 0.0, 4.5)]) {
            for index in skin.status_colors().expect("it has colours") {
                let (a, b): (f64, f64) = (light(index), ground);
                let contrast = (a.max(b) + 0.05) / (a.min(b) + 0.05);
                assert!(contrast >= least, "{} {index}: {contrast:.1}", skin.name());
            }
        }
    }

    #[test]
    fn mono_theme_sets_no_color() {
        let theme = Theme::new(ColorScheme::Mono, false);
        let all = [
            DisplayStatus::Done,
            DisplayStatus::Ok,
            DisplayStatus::Pending,
            DisplayStatus::Busy,
            DisplayStatus::Warn,
            DisplayStatus::Lost,
            DisplayStatus::Error,
        ];
        let looks =
            all.map(|status| theme.status_style(status)).into_iter().chain([theme.accent(), theme.dim(), theme.heat(50.0), theme.header()]);
        assert!(looks.into_iter().all(|look| look.fg.is_none() && look.bg.is_none()));
        // A status is also told by its symbol.
        for ascii in [false, true] {
            let mut symbols = all.map(|status| Theme::new(ColorScheme::Dark, ascii).symbol(status)).to_vec();
            symbols.sort_unstable();
            symbols.dedup();
            assert_eq!(symbols.len(), 6, "running and under way share one");
        }
    }

    #[test]
    fn color_schemes_parse_by_name() {
        assert!(ColorScheme::ALL.iter().all(|skin| ColorScheme::from_name(skin.name()) == Some(*skin)));
        let mut skin = ColorScheme::Dark;
        (0..ColorScheme::ALL.len()).for_each(|_| skin = skin.next());
        assert_eq!((skin, ColorScheme::from_name("pink")), (ColorScheme::Dark, None));
    }
}
