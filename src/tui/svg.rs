//! Renders a screen as SVG for the README: each run of cells with one style is a text element on a grid.
//!
//! Cell content is escaped.

use std::fmt::Write as _;

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};

/// Cell size in pixels.
const CELL_SIZE: (f32, f32) = (8.4, 18.0);
const FOREGROUND: &str = "#d0d0d0";
const BACKGROUND: &str = "#14161b";

pub(super) fn render_svg(buffer: &Buffer, title: &str) -> String {
    let area = buffer.area;
    let (width, height) = (f32::from(area.width) * CELL_SIZE.0 + 16.0, f32::from(area.height) * CELL_SIZE.1 + 16.0);
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
            let mut text = String::new();
            while x < area.width && view(x) == view(from) {
                text.push_str(buffer[(x, y)].symbol());
                x += 1;
            }
            write_text_run(&mut out, (from, y), x - from, &text, view(from));
        }
    }
    out.push_str("</g>\n</svg>\n");
    out
}

fn write_text_run(out: &mut String, (x, y): (u16, u16), count: u16, text: &str, (color, modifier): (Color, Modifier)) {
    let reversed = modifier.contains(Modifier::REVERSED);
    if text.trim().is_empty() && !reversed {
        return;
    }
    let (left, top) = (f32::from(x) * CELL_SIZE.0 + 8.0, f32::from(y) * CELL_SIZE.1 + 8.0);
    let own = css_color(color);
    let width = f32::from(count) * CELL_SIZE.0;
    if reversed {
        writeln!(out, "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{own}\"/>", CELL_SIZE.1)
            .expect("a String takes all");
    }
    let fill = if reversed { BACKGROUND.to_owned() } else { own };
    let weight = if modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
    let faint = if modifier.contains(Modifier::DIM) { " opacity=\"0.7\"" } else { "" };
    let base = top + CELL_SIZE.1 - 4.5;
    // `textLength` keeps the grid with any font.
    writeln!(
        out,
        "<text x=\"{left:.1}\" y=\"{base:.1}\" textLength=\"{width:.1}\" lengthAdjust=\"spacingAndGlyphs\" fill=\"{fill}\"{weight}{faint}>{}</text>",
        escape_xml(text)
    )
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
        Color::Rgb(red, green, blue) => format!("#{red:02x}{green:02x}{blue:02x}"),
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
    assert!(text.contains("aria-label=\"a\u{a0}&lt;\u{a0}b\"") && text.contains(">&lt;a\u{a0}b=&quot;&amp;&quot;&gt;</text>"), "{text}");
    assert!(text.contains("fill=\"#ffaf00\"") && !text.contains("<a b"), "{text}");
}
