//! What things look like: one theme for all panes. A state is a symbol and a word first; colour is the second channel.
//!
//! Uses nothing of the house. The theme without colours sets none at all, since a filter in the terminal library resets bold with them.

use ratatui::style::{Color, Modifier, Style};

/// How a thing stands, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Status {
    /// Ended as it should.
    Done,
    /// As it should be.
    Ok,
    /// Not begun.
    #[default]
    Pending,
    /// Under way.
    Busy,
    /// Worth a look.
    Warn,
    /// Not known any more.
    Lost,
    /// Wrong.
    Bad,
}

/// A set of colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skin {
    /// For a dark background.
    Dark,
    /// For a light background.
    Light,
    /// As far from black as colours go.
    HighContrast,
    /// The 16 colours that the terminal itself defines.
    Ansi16,
    /// For eyes that do not tell red from green.
    Deuteranopia,
    /// For eyes that do not tell blue from green.
    Tritanopia,
    /// None at all.
    Mono,
}

impl Skin {
    /// All, in the order in which a key goes through them.
    pub const ALL: [Skin; 7] =
        [Skin::Dark, Skin::Light, Skin::HighContrast, Skin::Ansi16, Skin::Deuteranopia, Skin::Tritanopia, Skin::Mono];

    /// How it is called in settings.
    pub fn name(self) -> &'static str {
        match self {
            Skin::Dark => "dark",
            Skin::Light => "light",
            Skin::HighContrast => "high-contrast",
            Skin::Ansi16 => "ansi16",
            Skin::Deuteranopia => "deuteranopia",
            Skin::Tritanopia => "tritanopia",
            Skin::Mono => "mono",
        }
    }

    /// The one of that name.
    pub fn named(name: &str) -> Option<Skin> {
        Skin::ALL.into_iter().find(|skin| skin.name() == name)
    }

    /// The next one.
    #[must_use]
    pub fn next(self) -> Skin {
        let at = Skin::ALL.iter().position(|skin| *skin == self).unwrap_or(0);
        Skin::ALL[(at + 1) % Skin::ALL.len()]
    }

    /// The colours of a state that waits, runs, is done, is worth a look, is lost, is wrong: indexes into the 256 of xterm, chosen so that
    /// any two differ for the eyes that the skin is for (see the test).
    fn palette(self) -> Option<[u8; 6]> {
        Some(match self {
            Skin::Dark => [244, 74, 254, 214, 134, 166],
            Skin::Light => [243, 24, 232, 130, 55, 88],
            Skin::HighContrast => [247, 156, 231, 220, 177, 173],
            // Bright black, cyan, white, yellow, magenta, red.
            Skin::Ansi16 => [8, 6, 7, 3, 5, 1],
            Skin::Deuteranopia => [243, 63, 255, 226, 140, 196],
            Skin::Tritanopia => [243, 44, 231, 214, 200, 196],
            Skin::Mono => return None,
        })
    }
}

/// What graphs are drawn with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Graph {
    /// Braille dots.
    Braille,
    /// Blocks of eighths.
    Block,
    /// ASCII.
    Ascii,
}

/// Colours and symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Theme {
    /// The colours.
    pub skin: Skin,
    /// Whether only ASCII is drawn.
    pub ascii: bool,
    /// What graphs are drawn with; where only ASCII is drawn, that.
    pub graph: Graph,
}

impl Theme {
    /// With what is usual for graphs.
    pub const fn new(skin: Skin, ascii: bool) -> Theme {
        Theme { skin, ascii, graph: if ascii { Graph::Ascii } else { Graph::Braille } }
    }

    /// Whether graphs are drawn with ASCII.
    pub fn plain_graphs(self) -> bool {
        self.graphs() == Graph::Ascii
    }

    /// What graphs are drawn with.
    pub fn graphs(self) -> Graph {
        if self.ascii { Graph::Ascii } else { self.graph }
    }

    /// The symbol of a status; one cell wide.
    pub fn symbol(self, status: Status) -> &'static str {
        match (status, self.ascii) {
            (Status::Pending, false) => "·",
            (Status::Ok | Status::Busy, false) => "●",
            (Status::Done, false) => "✓",
            (Status::Warn, false) => "▲",
            (Status::Bad, false) => "✗",
            (Status::Pending, true) => ".",
            (Status::Ok | Status::Busy, true) => "o",
            (Status::Done, true) => "+",
            (Status::Warn, true) => "~",
            (Status::Bad, true) => "!",
            (Status::Lost, _) => "?",
        }
    }

    /// The look of a status.
    pub fn status(self, status: Status) -> Style {
        let (at, modifier) = match status {
            Status::Pending => (0, Modifier::DIM),
            Status::Ok | Status::Busy => (1, Modifier::empty()),
            Status::Done => (2, Modifier::empty()),
            Status::Warn => (3, Modifier::empty()),
            Status::Lost => (4, Modifier::REVERSED),
            Status::Bad => (5, Modifier::BOLD),
        };
        self.paint(at).add_modifier(modifier)
    }

    /// The name of the program, the tab that is shown, keys.
    pub fn accent(self) -> Style {
        self.paint(1).add_modifier(Modifier::BOLD)
    }

    /// Beside the point.
    pub fn dim(self) -> Style {
        self.paint(0).add_modifier(Modifier::DIM)
    }

    /// The head of a table.
    pub fn head(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// The row under the cursor.
    pub fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// A share of a whole, from cold to hot; no colour where the digit alone must do.
    pub fn heat(self, percent: f32) -> Style {
        let ramp: [u8; 6] = match self.skin {
            Skin::Mono => return Style::new(),
            Skin::Light => [55, 61, 24, 30, 64, 130],
            Skin::Ansi16 => [4, 4, 6, 6, 2, 3],
            _ => [61, 67, 31, 36, 113, 220],
        };
        let at = ((percent.clamp(0.0, 100.0) / 100.0) * 5.0).round();
        // Between 0 and 5 by the line above.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 5")]
        let index = ramp.get(at as usize).copied().unwrap_or(ramp[5]);
        Style::new().fg(Color::Indexed(index))
    }

    /// What follows a text that was cut.
    pub fn more(self) -> &'static str {
        if self.ascii { ">" } else { "…" }
    }

    fn paint(self, at: usize) -> Style {
        match self.skin.palette() {
            Some(palette) => Style::new().fg(Color::Indexed(palette[at])),
            None => Style::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Matrix = [[f64; 3]; 3];

    /// What eyes see, after Machado, Oliveira and Fernandes 2009 (severity 1): as they are, without green, without red, without blue.
    const EYES: [Matrix; 4] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [[0.367_322, 0.860_646, -0.227_968], [0.280_085, 0.672_501, 0.047_413], [-0.011_820, 0.042_940, 0.968_881]],
        [[0.152_286, 1.052_583, -0.204_868], [0.114_503, 0.786_281, 0.099_216], [-0.003_882, -0.048_116, 1.051_998]],
        [[1.255_528, -0.076_749, -0.178_779], [-0.078_411, 0.930_809, 0.147_602], [0.004_733, 0.691_367, 0.303_900]],
    ];

    /// A colour of the 256 as xterm defines it, linear.
    fn linear(index: u8) -> [f64; 3] {
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

    fn lab(index: u8, eyes: &Matrix) -> [f64; 3] {
        let rgb = linear(index);
        let [r, g, b] = eyes.map(|row| row.iter().zip(rgb).map(|(m, c)| m * c).sum::<f64>().clamp(0.0, 1.0));
        let x = (0.412_456_4 * r + 0.357_576_1 * g + 0.180_437_5 * b) / 0.950_47;
        let y = 0.212_672_9 * r + 0.715_152_2 * g + 0.072_175 * b;
        let z = (0.019_333_9 * r + 0.119_192 * g + 0.950_304_1 * b) / 1.088_83;
        let f = |t: f64| if t > 216.0 / 24_389.0 { t.cbrt() } else { (24_389.0 / 27.0 * t + 16.0) / 116.0 };
        [116.0 * f(y) - 16.0, 500.0 * (f(x) - f(y)), 200.0 * (f(y) - f(z))]
    }

    /// The smallest distance (CIE76) between any two states.
    fn nearest(palette: [u8; 6], eyes: &Matrix) -> f64 {
        let seen = palette.map(|index| lab(index, eyes));
        let pairs = (0..6).flat_map(|a| (0..a).map(move |b| (a, b)));
        let distance = |(a, b): (usize, usize)| seen[a].iter().zip(seen[b]).map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt();
        pairs.map(distance).fold(f64::INFINITY, f64::min)
    }

    /// What each skin keeps for each kind of eyes; the ones that it is made for are the point of it.
    #[test]
    fn any_two_states_differ_for_the_eyes_that_a_skin_is_for() {
        let known = [
            (Skin::Dark, [33.0, 19.0, 29.0, 27.0]),
            (Skin::Light, [32.0, 26.0, 27.0, 27.0]),
            (Skin::HighContrast, [34.0, 26.0, 29.0, 26.0]),
            (Skin::Deuteranopia, [44.0, 36.0, 38.0, 12.0]),
            (Skin::Tritanopia, [49.0, 19.0, 19.0, 47.0]),
        ];
        for (skin, least) in known {
            let palette = skin.palette().expect("it has colours");
            for (eyes, least) in EYES.iter().zip(least) {
                let nearest = nearest(palette, eyes);
                assert!(nearest >= least, "{}: {nearest:.1} is nearer than {least}", skin.name());
            }
        }
        // The colours of the other two are the terminal's own, or none.
        assert_eq!(known.len() + 2, Skin::ALL.len());
        // A set that was made by eye: green, yellow and red are one for eyes without red.
        assert!(nearest([244, 40, 254, 220, 134, 196], &EYES[2]) < 19.0);
    }

    /// Against the background that it is for: at least 4.2 to 1 for text, 7 where contrast is the point.
    #[test]
    fn colours_stand_out_from_their_background() {
        let light = |index: u8| {
            let [r, g, b] = linear(index);
            0.212_672_9 * r + 0.715_152_2 * g + 0.072_175 * b
        };
        let skins = [(Skin::Dark, 0.0, 4.5), (Skin::Light, 1.0, 4.5), (Skin::HighContrast, 0.0, 7.0)];
        for (skin, ground, least) in skins.into_iter().chain([(Skin::Deuteranopia, 0.0, 4.5), (Skin::Tritanopia, 0.0, 4.5)]) {
            for index in skin.palette().expect("it has colours") {
                let (a, b): (f64, f64) = (light(index), ground);
                let contrast = (a.max(b) + 0.05) / (a.min(b) + 0.05);
                assert!(contrast >= least, "{} {index}: {contrast:.1}", skin.name());
            }
        }
    }

    #[test]
    fn without_colours_none_is_set() {
        let theme = Theme::new(Skin::Mono, false);
        let all = [Status::Done, Status::Ok, Status::Pending, Status::Busy, Status::Warn, Status::Lost, Status::Bad];
        let looks = all.map(|status| theme.status(status)).into_iter().chain([theme.accent(), theme.dim(), theme.heat(50.0), theme.head()]);
        assert!(looks.into_iter().all(|look| look.fg.is_none() && look.bg.is_none()));
        // A state is told by its symbol as well.
        for ascii in [false, true] {
            let mut symbols = all.map(|status| Theme::new(Skin::Dark, ascii).symbol(status)).to_vec();
            symbols.sort_unstable();
            symbols.dedup();
            assert_eq!(symbols.len(), 6, "running and under way share one");
        }
    }

    #[test]
    fn skins_are_found_by_their_names() {
        assert!(Skin::ALL.iter().all(|skin| Skin::named(skin.name()) == Some(*skin)));
        let mut skin = Skin::Dark;
        (0..Skin::ALL.len()).for_each(|_| skin = skin.next());
        assert_eq!((skin, Skin::named("pink")), (Skin::Dark, None));
    }
}
