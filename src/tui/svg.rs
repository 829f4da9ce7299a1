//! Renders a screen as SVG for the README. Frames and bars are shapes, so that they meet in any font; each run of other cells with one style
//! is a text element on a grid.
//!
//! Cell content is escaped.

use std::fmt::Write as _;

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};
use unicode_width::UnicodeWidthStr as _;

/// Cell size in pixels.
const CELL_SIZE: (f32, f32) = (8.4, 18.0);
const MARGIN: f32 = 8.0;
const FOREGROUND: &str = "#d0d0d0";
const BACKGROUND: &str = "#14161b";

pub(super) fn render_svg(buffer: &Buffer, title: &str) -> String {
    let area = buffer.area;
    let (width, height) = (f32::from(area.width) * CELL_SIZE.0 + 2.0 * MARGIN, f32::from(area.height) * CELL_SIZE.1 + 2.0 * MARGIN);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"{}\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{BACKGROUND}\"/>\n\
         <g font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"14\" xml:space=\"preserve\">\n",
        escape_xml(title)
    );
    for y in 0..area.height {
        let mut x = 0;
        while x < area.width {
            let view = |x: u16| (buffer[(x, y)].fg, buffer[(x, y)].modifier);
            let from = x;
            while x < area.width && view(x) == view(from) {
                x += 1;
            }
            let symbols: Vec<&str> = (from..x).map(|x| buffer[(x, y)].symbol()).collect();
            StyledRun { from, y, symbols, color: view(from).0, modifier: view(from).1 }.write(&mut out);
        }
    }
    out.push_str("</g>\n</svg>\n");
    out
}

/// How a cell is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CellKind {
    Blank,
    /// Part of a frame.
    Frame,
    Bar,
    Braille,
    Text,
    /// Text that may come from another font, with other widths.
    OtherText,
}

fn cell_kind(symbol: &str) -> CellKind {
    match symbol {
        " " | "" => CellKind::Blank,
        "─" | "│" | "╭" | "╮" | "╰" | "╯" | "━" | "┃" | "┏" | "┓" | "┗" | "┛" => CellKind::Frame,
        _ if symbol.chars().all(|c| ('▁'..='▏').contains(&c)) => CellKind::Bar,
        _ if symbol.chars().all(is_braille) => CellKind::Braille,
        _ if symbol.is_ascii() => CellKind::Text,
        _ => CellKind::OtherText,
    }
}

fn is_braille(c: char) -> bool {
    ('\u{2800}'..='\u{28ff}').contains(&c)
}

/// Neighbouring cells of one style.
struct StyledRun<'a> {
    from: u16,
    y: u16,
    symbols: Vec<&'a str>,
    color: Color,
    modifier: Modifier,
}

impl StyledRun<'_> {
    /// Left and upper edge of a cell of the run.
    fn position(&self, at: usize) -> (f32, f32) {
        let column = f32::from(self.from) + f32::from(u16::try_from(at).expect("a column"));
        (column * CELL_SIZE.0 + MARGIN, f32::from(self.y) * CELL_SIZE.1 + MARGIN)
    }

    fn write(&self, out: &mut String) {
        let reversed = self.modifier.contains(Modifier::REVERSED);
        let own = css_color(self.color);
        if reversed {
            write_rect(out, self.position(0), (self.position(self.symbols.len()).0 - self.position(0).0, CELL_SIZE.1), &own);
        }
        let fill = if reversed { BACKGROUND.to_owned() } else { own };
        let mut at = 0;
        while at < self.symbols.len() {
            let kind = cell_kind(self.symbols[at]);
            let is_alike = |symbol: &&&str| match kind {
                CellKind::Bar => **symbol == self.symbols[at] && **symbol == "█",
                _ => cell_kind(symbol) == kind,
            };
            let count = self.symbols[at..].iter().take_while(is_alike).count().max(1);
            match kind {
                CellKind::Blank => {}
                CellKind::Frame => self.write_frame(out, at..at + count, &fill),
                CellKind::Bar => {
                    let (left, top) = self.position(at);
                    let (from, size) = bar_shape(self.symbols[at]);
                    let width = if count > 1 { self.position(at + count).0 - left } else { size.0 };
                    write_rect(out, (left, top + from), (width, size.1), &fill);
                }
                CellKind::Braille => self.write_braille(out, at..at + count, &fill),
                CellKind::Text | CellKind::OtherText => self.write_text(out, at..at + count, &fill),
            }
            at += count;
        }
    }

    fn write_frame(&self, out: &mut String, cells: std::ops::Range<usize>, fill: &str) {
        let (half_width, half_height) = (CELL_SIZE.0 / 2.0, CELL_SIZE.1 / 2.0);
        let mut path = String::new();
        let mut drawn_until = cells.start;
        for at in cells.clone() {
            if at < drawn_until {
                continue;
            }
            let count = self.symbols[at..cells.end].iter().take_while(|symbol| ["─", "━"].contains(symbol)).count().max(1);
            drawn_until = at + count;
            let (left, top) = self.position(at);
            let (x, y) = (left + half_width, top + half_height);
            // Where a corner's two lines end: at the left or right edge, and at the upper or lower one.
            let corner = |right: bool, down: bool| {
                let (end_x, end_y) = (if right { left + CELL_SIZE.0 } else { left }, if down { top + CELL_SIZE.1 } else { top });
                format!("M{end_x:.1} {y:.1}Q{x:.1} {y:.1} {x:.1} {end_y:.1}")
            };
            path += &match self.symbols[at] {
                "─" | "━" => format!("M{left:.1} {y:.1}H{:.1}", self.position(at + count).0),
                "╭" | "┏" => corner(true, true),
                "╮" | "┓" => corner(false, true),
                "╰" | "┗" => corner(true, false),
                "╯" | "┛" => corner(false, false),
                _ => format!("M{x:.1} {top:.1}v{:.1}", CELL_SIZE.1),
            };
        }
        let is_heavy = ["━", "┃", "┏", "┓", "┗", "┛"].contains(&self.symbols[cells.start]);
        let thickness = if is_heavy { "2.4" } else { "1.2" };
        writeln!(out, "<path d=\"{path}\" fill=\"none\" stroke=\"{fill}\" stroke-width=\"{thickness}\"/>").expect("a String takes all");
    }

    fn write_braille(&self, out: &mut String, cells: std::ops::Range<usize>, fill: &str) {
        // Column and row of the dot of each bit.
        const DOTS: [(f32, f32); 8] = [(0.0, 0.0), (0.0, 1.0), (0.0, 2.0), (1.0, 0.0), (1.0, 1.0), (1.0, 2.0), (0.0, 3.0), (1.0, 3.0)];
        let (across, down) = (CELL_SIZE.0 / 2.0, CELL_SIZE.1 / 4.0);
        let mut path = String::new();
        for at in cells {
            let (left, top) = self.position(at);
            let bits = self.symbols[at].chars().next().map_or(0, |c| u32::from(c) - 0x2800);
            for (x, y) in DOTS.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, dot)| dot) {
                write!(path, "M{:.1} {:.1}h0", left + across * (x + 0.5), top + down * (y + 0.5)).expect("a String takes all");
            }
        }
        writeln!(out, "<path d=\"{path}\" stroke=\"{fill}\" stroke-width=\"2.8\" stroke-linecap=\"round\"/>").expect("a String takes all");
    }

    fn write_text(&self, out: &mut String, cells: std::ops::Range<usize>, fill: &str) {
        let (left, top) = self.position(cells.start);
        let text = self.symbols[cells].concat();
        let width = f32::from(u16::try_from(text.width()).expect("a row")) * CELL_SIZE.0;
        let weight = if self.modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
        let faint = if self.modifier.contains(Modifier::DIM) { " opacity=\"0.7\"" } else { "" };
        let base = top + CELL_SIZE.1 - 4.5;
        // `textLength` keeps the grid with any font.
        writeln!(
            out,
            "<text x=\"{left:.1}\" y=\"{base:.1}\" textLength=\"{width:.1}\" lengthAdjust=\"spacingAndGlyphs\" fill=\"{fill}\"{weight}{faint}>{}</text>",
            escape_xml(&text)
        )
        .expect("a String takes all");
    }
}

/// Distance from the upper edge, and size, of a block that fills eighths of a cell from below or from the left.
fn bar_shape(symbol: &str) -> (f32, (f32, f32)) {
    let part = |all: &[char]| symbol.chars().next().and_then(|symbol| all.iter().position(|c| *c == symbol));
    let eighths = |at: usize| f32::from(u8::try_from(at + 1).expect("eight")) / 8.0;
    match (part(&['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█']), part(&['▏', '▎', '▍', '▌', '▋', '▊', '▉'])) {
        (Some(at), _) => (CELL_SIZE.1 * (1.0 - eighths(at)), (CELL_SIZE.0, CELL_SIZE.1 * eighths(at))),
        (None, Some(at)) => (0.0, (CELL_SIZE.0 * eighths(at), CELL_SIZE.1)),
        (None, None) => (0.0, CELL_SIZE),
    }
}

fn write_rect(out: &mut String, (left, top): (f32, f32), (width, height): (f32, f32), fill: &str) {
    writeln!(out, "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"/>")
        .expect("a String takes all");
}

/// The 256-color palette: color cube, grays, and the first sixteen as common terminals draw them.
fn css_color(color: Color) -> String {
    match color {
        Color::Indexed(index @ 16..=231) => {
            let level = |n: u8| if n == 0 { 0 } else { 55 + 40 * u16::from(n) };
            let cube = index - 16;
            format!("#{:02x}{:02x}{:02x}", level(cube / 36), level(cube / 6 % 6), level(cube % 6))
        }
        Color::Indexed(index @ 232..) => format!("#{0:02x}{0:02x}{0:02x}", 8 + 10 * u16::from(index - 232)),
        _ => FOREGROUND.to_owned(),
    }
}

fn escape_xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            ' ' => out.push('\u{a0}'),
            // Characters that XML 1.0 forbids.
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[test]
fn cell_text_is_escaped() {
    use ratatui::style::Style;
    let mut buffer = Buffer::empty(ratatui::layout::Rect::new(0, 0, 12, 1));
    buffer.set_string(0, 0, "<a b=\"&\">", Style::new().fg(Color::Indexed(214)));
    let text = render_svg(&buffer, "a < b");
    assert!(
        text.contains("aria-label=\"a\u{a0}&lt;\u{a0}b\"")
            && text.contains(">&lt;a</text>")
            && text.contains(">b=&quot;&amp;&quot;&gt;</text>"),
        "{text}"
    );
    assert!(text.contains("fill=\"#ffaf00\"") && !text.contains("<a b"), "{text}");
}

#[test]
fn frames_and_bars_are_shapes() {
    let mut buffer = Buffer::empty(ratatui::layout::Rect::new(0, 0, 8, 1));
    buffer.set_string(0, 0, "╭──╮██▌▂", ratatui::style::Style::new());
    let text = render_svg(&buffer, "");
    assert!(!text.contains("<text") && text.contains("M16.4 17.0H33.2"), "a line over two cells: {text}");
    assert!(text.contains("width=\"16.8\" height=\"18.0\"") && text.contains("width=\"4.2\" height=\"18.0\""), "{text}");
    assert!(text.contains("width=\"8.4\" height=\"4.5\""), "{text}");
}
