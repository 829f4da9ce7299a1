//! The colors of every scheme: they differ for the eyes that it is made for, and have contrast.

use super::*;

type ColorMatrix = [[f64; 3]; 3];

const ALL_STATUSES: [DisplayStatus; 7] = [
    DisplayStatus::Done,
    DisplayStatus::Ok,
    DisplayStatus::Busy,
    DisplayStatus::Pending,
    DisplayStatus::Warn,
    DisplayStatus::Lost,
    DisplayStatus::Error,
];

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
    for (scheme, least) in known {
        let palette = scheme.status_colors().expect("it has colours");
        for (eyes, least) in VISION_MODELS.iter().zip(least) {
            let nearest = smallest_distance(palette, eyes);
            assert!(nearest >= least, "{}: {nearest:.1} is nearer than {least}", scheme.name());
        }
    }
    // The other two use the terminal's colors, or none.
    assert_eq!(known.len() + 2, ColorScheme::ALL.len());
    // A set chosen by eye fails: green, yellow and red look alike without red.
    assert!(smallest_distance([244, 40, 254, 220, 134, 196], &VISION_MODELS[2]) < 19.0);
}

/// Contrast of WCAG 2 between an xterm color and a background, both by their light.
fn contrast(index: u8, background: f64) -> f64 {
    let [r, g, b] = linear_rgb(index);
    let light = 0.212_672_9 * r + 0.715_152_2 * g + 0.072_175 * b;
    (light.max(background) + 0.05) / (light.min(background) + 0.05)
}

/// Every color that text has, and every color of a frame, against the background that the scheme is made for.
#[test]
fn colors_contrast_with_background() {
    const BLACK: f64 = 0.0;
    const WHITE: f64 = 1.0;
    let schemes = [
        (ColorScheme::Dark, BLACK, 4.5, 3.0),
        (ColorScheme::Light, WHITE, 4.5, 3.0),
        (ColorScheme::HighContrast, BLACK, 7.0, 4.5),
        (ColorScheme::Deuteranopia, BLACK, 4.5, 3.0),
        (ColorScheme::Tritanopia, BLACK, 4.5, 3.0),
    ];
    // The other two use the terminal's colors, or none.
    assert_eq!(schemes.len() + 2, ColorScheme::ALL.len());
    for (scheme, background, text, frame) in schemes {
        let theme = Theme::new(scheme, false);
        let heats = (0..=20_u8).map(|step| theme.heat(f32::from(step) * 5.0));
        let statuses = ALL_STATUSES.map(|status| theme.status_style(status));
        let hosts = (0..12).map(|host| theme.host_style(host));
        let texts = statuses.into_iter().chain([theme.accent(), theme.dim(), theme.secondary()]).chain(heats).chain(hosts);
        let frames = [theme.dim(), theme.accent(), theme.status_style(DisplayStatus::Error)];
        for (style, least) in texts.map(|style| (style, text)).chain(frames.map(|style| (style, frame))) {
            let Some(Color::Indexed(index)) = style.fg else { panic!("{}: {style:?}", scheme.name()) };
            let contrast = contrast(index, background);
            assert!(contrast >= least, "{} {index}: {contrast:.1} is less than {least}", scheme.name());
            assert!(!style.add_modifier.contains(Modifier::DIM), "{} {index}: dim halves the contrast", scheme.name());
        }
    }
}

/// A rank's host has no colour of a status.
#[test]
fn host_colors_are_no_status_colors() {
    for scheme in ColorScheme::ALL.into_iter().filter(|scheme| *scheme != ColorScheme::Mono) {
        let statuses = scheme.status_colors().expect("it has colours");
        let theme = Theme::new(scheme, false);
        let is_status = |host| matches!(theme.host_style(host).fg, Some(Color::Indexed(index)) if statuses.contains(&index));
        assert!(!(0..6).any(is_status), "{}", scheme.name());
    }
}

/// In every scheme, with and without Unicode, two statuses differ by their symbols or look the same on purpose.
#[test]
fn every_scheme_keeps_every_distinction() {
    for (scheme, ascii) in ColorScheme::ALL.into_iter().flat_map(|scheme| [(scheme, false), (scheme, true)]) {
        let theme = Theme::new(scheme, ascii);
        let looks: Vec<_> = ALL_STATUSES.iter().map(|status| (theme.symbol(*status), theme.status_style(*status))).collect();
        for (n, a) in looks.iter().enumerate() {
            for (m, b) in looks.iter().enumerate().skip(n + 1) {
                let alike = [ALL_STATUSES[n], ALL_STATUSES[m]] == [DisplayStatus::Ok, DisplayStatus::Busy];
                assert!(alike || a.0 != b.0, "{} {:?} {:?}", scheme.name(), ALL_STATUSES[n], ALL_STATUSES[m]);
            }
        }
        let plain = Style::new();
        for (style, name) in [(theme.dim(), "dim"), (theme.accent(), "accent"), (theme.selected(), "selected"), (theme.header(), "header")]
        {
            assert_ne!(style, plain, "{} {name}", scheme.name());
        }
        assert!(theme.dim() != theme.accent() && theme.accent() != theme.selected(), "{}", scheme.name());
    }
}

#[test]
fn mono_theme_sets_no_color() {
    let theme = Theme::new(ColorScheme::Mono, false);
    let statuses = ALL_STATUSES.map(|status| theme.status_style(status)).into_iter();
    let mut styles = statuses.chain([theme.accent(), theme.dim(), theme.heat(50.0), theme.header()]);
    assert!(styles.all(|style| style.fg.is_none() && style.bg.is_none()));
    assert_eq!(Theme::default(), Theme::new(ColorScheme::Dark, false));
}

#[test]
fn color_schemes_parse_by_name() {
    assert!(ColorScheme::ALL.iter().all(|scheme| ColorScheme::from_name(scheme.name()) == Some(*scheme)));
    let mut scheme = ColorScheme::Dark;
    (0..ColorScheme::ALL.len()).for_each(|_| scheme = scheme.next());
    assert_eq!((scheme, ColorScheme::from_name("pink")), (ColorScheme::Dark, None));
}
