//! Writes a frame to the terminal: only the changed cells, in as few bytes as possible, for slow connections.
//!
//! ratatui's own backend addresses every cell by row and column, sends both colors where one changes and
//! resets all of them at the end; a screen of changing numbers costs twice the bytes that way. Sequences as in ECMA-48: CUP, CUF, CHA, SGR.

use std::collections::HashMap;
use std::io::{self, Write};

use ratatui::backend::{Backend, ClearType, CrosstermBackend, WindowSize};
use ratatui::buffer::Cell;
use ratatui::layout::{Position, Size};
use ratatui::style::{Color, Modifier};

/// Frames above this size are also written grouped by style, and the shorter form is sent.
const REORDER_THRESHOLD_BYTES: usize = 3 << 10;

/// A ratatui backend that writes to any writer.
#[derive(Debug, Default)]
pub(super) struct CompactBackend<W: Write> {
    inner: CrosstermBackend<W>,
}

impl<W: Write> CompactBackend<W> {
    pub(super) fn new(writer: W) -> CompactBackend<W> {
        CompactBackend { inner: CrosstermBackend::new(writer) }
    }
}

/// A cell and its position.
type PlacedCell<'a> = (u16, u16, &'a Cell);

impl<W: Write> Backend for CompactBackend<W> {
    type Error = io::Error;

    fn draw<'a, I: Iterator<Item = PlacedCell<'a>>>(&mut self, content: I) -> io::Result<()> {
        let mut cells: Vec<PlacedCell<'a>> = content.collect();
        let mut encoded = encode_cells(&cells);
        if encoded.len() > REORDER_THRESHOLD_BYTES {
            group_by_style(&mut cells);
            let sorted = encode_cells(&cells);
            if sorted.len() < encoded.len() {
                encoded = sorted;
            }
        }
        self.inner.write_all(&encoded)
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.inner.hide_cursor()
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.inner.show_cursor()
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        self.inner.get_cursor_position()
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        self.inner.set_cursor_position(position)
    }

    fn clear(&mut self) -> io::Result<()> {
        self.inner.clear()
    }

    fn clear_region(&mut self, part: ClearType) -> io::Result<()> {
        self.inner.clear_region(part)
    }

    fn size(&self) -> io::Result<Size> {
        self.inner.size()
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        self.inner.window_size()
    }

    fn flush(&mut self) -> io::Result<()> {
        Backend::flush(&mut self.inner)
    }
}

/// Style of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct CellStyle {
    fg: Color,
    bg: Color,
    modifier: Modifier,
}

impl CellStyle {
    fn from_cell(cell: &Cell) -> CellStyle {
        CellStyle { fg: cell.fg, bg: cell.bg, modifier: cell.modifier }
    }
}

/// Groups cells by style, in order of first use; cells of one style keep their order.
fn group_by_style(cells: &mut [PlacedCell<'_>]) {
    let mut order = HashMap::new();
    for (_, _, cell) in cells.iter() {
        let next = order.len();
        order.entry(CellStyle::from_cell(cell)).or_insert(next);
    }
    // Each style is looked up once a cell, not at each comparison.
    cells.sort_by_cached_key(|(_, _, cell)| order.get(&CellStyle::from_cell(cell)).copied());
}

/// Encodes these cells in this order. Output starts and ends with the default style; the final cursor position is undefined.
fn encode_cells(cells: &[PlacedCell<'_>]) -> Vec<u8> {
    let mut out = Vec::with_capacity(cells.len() * 4);
    let mut current = CellStyle::default();
    // The expected cursor position, and whether it is certain: terminals disagree about the width of some characters.
    let mut cursor: Option<(u16, u16, bool)> = None;
    for (x, y, cell) in cells {
        move_cursor(cursor, (*x, *y), &mut out);
        change_style(current, CellStyle::from_cell(cell), &mut out);
        current = CellStyle::from_cell(cell);
        out.extend_from_slice(cell.symbol().as_bytes());
        cursor = Some((x + 1, *y, cell.symbol().len() == 1));
    }
    change_style(current, CellStyle::default(), &mut out);
    out
}

fn move_cursor(from: Option<(u16, u16, bool)>, to: (u16, u16), out: &mut Vec<u8>) {
    match from {
        Some((x, y, _)) if (x, y) == to => {}
        Some((x, y, true)) if y == to.1 && x < to.0 => match to.0 - x {
            1 => out.extend_from_slice(b"\x1b[C"),
            n => out.extend_from_slice(format!("\x1b[{n}C").as_bytes()),
        },
        Some((x, y, false)) if y == to.1 && x < to.0 => out.extend_from_slice(format!("\x1b[{}G", to.0 + 1).as_bytes()),
        _ => out.extend_from_slice(format!("\x1b[{};{}H", to.1 + 1, to.0 + 1).as_bytes()),
    }
}

/// Changes the style: only the difference, or a full reset where that is shorter.
fn change_style(from: CellStyle, to: CellStyle, out: &mut Vec<u8>) {
    if from == to {
        return;
    }
    let (mut differs, mut full) = (Vec::new(), Vec::new());
    sgr_parameters(from, to, &mut differs);
    sgr_parameters(CellStyle::default(), to, &mut full);
    if !full.is_empty() {
        full.splice(0..0, *b"0;");
    }
    out.extend_from_slice(b"\x1b[");
    out.extend_from_slice(if full.len() < differs.len() { &full } else { &differs });
    out.push(b'm');
}

/// SGR parameters that set each modifier and that reset it; bold and dim share a reset.
const SGR_MODIFIERS: [(Modifier, u8, u8); 9] = [
    (Modifier::BOLD, 1, 22),
    (Modifier::DIM, 2, 22),
    (Modifier::ITALIC, 3, 23),
    (Modifier::UNDERLINED, 4, 24),
    (Modifier::SLOW_BLINK, 5, 25),
    (Modifier::RAPID_BLINK, 6, 25),
    (Modifier::REVERSED, 7, 27),
    (Modifier::HIDDEN, 8, 28),
    (Modifier::CROSSED_OUT, 9, 29),
];

/// SGR parameters that lead from one style to another.
fn sgr_parameters(from: CellStyle, to: CellStyle, out: &mut Vec<u8>) {
    let mut has = from.modifier;
    for (modifier, _, end) in SGR_MODIFIERS {
        if has.contains(modifier) && !to.modifier.contains(modifier) {
            SGR_MODIFIERS.iter().filter(|(_, _, other)| *other == end).for_each(|(ended, ..)| has.remove(*ended));
            push_parameter(end, out);
        }
    }
    for (modifier, begin, _) in SGR_MODIFIERS {
        if to.modifier.contains(modifier) && !has.contains(modifier) {
            push_parameter(begin, out);
        }
    }
    if from.fg != to.fg {
        push_color(to.fg, 38, out);
    }
    if from.bg != to.bg {
        push_color(to.bg, 48, out);
    }
}

fn push_parameter(n: u8, out: &mut Vec<u8>) {
    if !out.is_empty() {
        out.push(b';');
    }
    out.extend_from_slice(n.to_string().as_bytes());
}

/// A color for the text (38) or the background (48). The themes have indexes and the default, as which any other color is written.
fn push_color(color: Color, ground: u8, out: &mut Vec<u8>) {
    match color {
        Color::Indexed(index) => [ground, 5, index].into_iter().for_each(|n| push_parameter(n, out)),
        _ => push_parameter(ground + 1, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ratatui::buffer::Buffer;
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    const WIDTH: u16 = 24;
    const HEIGHT: u16 = 6;

    fn style_change(from: &str, to: &str) -> String {
        let style_of = |words: &str| {
            words.split_whitespace().fold(CellStyle::default(), |style, word| match word {
                "bold" => CellStyle { modifier: style.modifier | Modifier::BOLD, ..style },
                "dim" => CellStyle { modifier: style.modifier | Modifier::DIM, ..style },
                number => CellStyle { fg: Color::Indexed(number.parse().expect("a number")), ..style },
            })
        };
        let mut out = Vec::new();
        change_style(style_of(from), style_of(to), &mut out);
        String::from_utf8(out).expect("ASCII").replace('\x1b', "^")
    }

    #[test]
    fn style_change_is_minimal() {
        assert_eq!(style_change("74", "74"), "");
        assert_eq!(style_change("74", "113"), "^[38;5;113m");
        assert_eq!(style_change("74", "74 bold"), "^[1m");
        assert_eq!(style_change("74 bold dim", "74 dim"), "^[22;2m");
        assert_eq!(style_change("74 bold", "113"), "^[0;38;5;113m", "a full reset is shorter");
        assert_eq!(style_change("74 bold", "74"), "^[22m");
        assert_eq!(style_change("74 bold", ""), "^[m");
    }

    #[test]
    fn cursor_move_is_shortest() {
        let moved = |from, to| {
            let mut out = Vec::new();
            move_cursor(from, to, &mut out);
            String::from_utf8(out).expect("ASCII").replace('\x1b', "^")
        };
        assert_eq!(moved(None, (0, 0)), "^[1;1H");
        assert_eq!(moved(Some((3, 1, true)), (3, 1)), "");
        assert_eq!(moved(Some((3, 1, true)), (4, 1)), "^[C");
        assert_eq!(moved(Some((3, 1, true)), (90, 1)), "^[87C");
        assert_eq!(moved(Some((3, 1, false)), (90, 1)), "^[91G", "how far the cursor went is not certain");
        assert_eq!(moved(Some((3, 1, true)), (2, 1)), "^[2;3H");
        assert_eq!(moved(Some((3, 1, true)), (3, 2)), "^[3;4H");
    }

    /// Test frame with styled texts.
    fn styled_buffer(texts: &[(u16, u16, String, u8, u16)]) -> Buffer {
        let mut buffer = Buffer::empty(Rect::new(0, 0, WIDTH, HEIGHT));
        for (x, y, text, color, modifier) in texts {
            let modifier = Modifier::from_bits_truncate(*modifier) & supported_modifiers();
            // vt100 supports either bold or dim.
            let modifier = if modifier.contains(Modifier::BOLD) { modifier - Modifier::DIM } else { modifier };
            let style = Style::new().add_modifier(modifier).remove_modifier(supported_modifiers() - modifier);
            let style = if *color == 0 { style } else { style.fg(Color::Indexed(*color)).bg(Color::Indexed(color.wrapping_mul(3))) };
            buffer.set_string(*x, *y, text, style);
        }
        buffer
    }

    /// The modifiers that vt100 supports.
    fn supported_modifiers() -> Modifier {
        Modifier::BOLD | Modifier::DIM | Modifier::ITALIC | Modifier::UNDERLINED | Modifier::REVERSED
    }

    fn nonzero(n: u16) -> std::num::NonZeroU16 {
        std::num::NonZeroU16::new(n).expect("not 0")
    }

    fn styled_texts() -> impl Strategy<Value = Vec<(u16, u16, String, u8, u16)>> {
        proptest::collection::vec((0..WIDTH, 0..HEIGHT, "[ab ●中⣿é]{1,9}", 0..4_u8, any::<u16>()), 0..24)
    }

    proptest! {
        #[test]
        fn screen_equals_crossterm_backend(first in styled_texts(), second in styled_texts()) {
            let none = Buffer::empty(Rect::new(0, 0, WIDTH, HEIGHT));
            let (first, second) = (styled_buffer(&first), styled_buffer(&second));
            let mut screens = [(); 3].map(|()| vt100::Parser::new(nonzero(HEIGHT), nonzero(WIDTH), 0));
            for (old, new) in [(&none, &first), (&first, &second)] {
                let changes = old.diff(new);
                let mut theirs = Vec::new();
                CrosstermBackend::new(&mut theirs).draw(changes.iter().copied()).expect("drawn");
                let mut ours = Vec::new();
                CompactBackend::new(&mut ours).draw(changes.iter().copied()).expect("drawn");
                let mut sorted = changes.clone();
                group_by_style(&mut sorted);
                for (screen, bytes) in screens.iter_mut().zip([&theirs, &ours, &encode_cells(&sorted)]) {
                    screen.process(bytes);
                }
                prop_assert!(ours.len() <= theirs.len());
                for y in 0..HEIGHT {
                    for x in 0..WIDTH {
                        let [wanted, ours, sorted] = screens.each_ref().map(|screen| screen.screen().cell(y, x).expect("a cell"));
                        prop_assert_eq!(ours, wanted, "{} {}", x, y);
                        prop_assert_eq!(sorted, wanted, "{} {} sorted", x, y);
                    }
                }
            }
        }
    }
}
