//! Values over time as characters: a row of bars, or a graph over several rows; both also in ASCII.
//!
//! The caller fixes the axis (0 to 100). The newest value is at the right; unknown values are gaps.

use crate::tui::theme::GraphStyle;

/// One bar per value, from 0 to 100; the last `width` values.
pub(super) fn sparkline(values: &[Option<f32>], width: usize, ascii: bool) -> String {
    let shown = &values[values.len().saturating_sub(width)..];
    shown.iter().map(|value| value.map_or(' ', |percent| bar(percent, ascii))).collect()
}

/// The bar of a value from 0 to 100.
pub(super) fn bar(percent: f32, ascii: bool) -> char {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const ASCII_BARS: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];
    let bars = if ascii { ASCII_BARS } else { BARS };
    bars[scale_level(percent, 7)]
}

/// A graph of `height` rows, top first: in braille two values per column and four steps per row; in blocks one value and
/// eight steps, in ASCII one value and two steps.
pub(super) fn render_graph(values: &[Option<f32>], width: usize, height: usize, style: GraphStyle) -> Vec<String> {
    let (across, steps) = match style {
        GraphStyle::Braille => (2, 4),
        GraphStyle::Block => (1, 8),
        GraphStyle::Ascii => (1, 2),
    };
    let full = height * steps;
    let shown = &values[values.len().saturating_sub(width * across)..];
    // Missing values at the left are a gap, so that the time axis never stretches.
    let gap = width * across - shown.len();
    let levels: Vec<usize> = std::iter::repeat_n(0, gap)
        .chain(shown.iter().map(|value| value.map_or(0, |percent| scale_level(percent, full.saturating_sub(1)) + 1)))
        .collect();
    (0..height)
        .map(|row| {
            let floor = (height - 1 - row) * steps;
            levels.chunks(across).map(|pair| graph_char(pair, floor, style)).collect()
        })
        .collect()
}

/// The points that a graph of this width shows.
pub(super) fn point_count(width: usize, style: GraphStyle) -> usize {
    width * if style == GraphStyle::Braille { 2 } else { 1 }
}

/// As many points as a graph of this width shows: each value is repeated, or represents its neighbours.
pub(super) fn stretch(values: &[Option<f32>], width: usize, style: GraphStyle) -> Vec<Option<f32>> {
    let count = point_count(width, style);
    (0..count).filter_map(|at| values.get(at * values.len() / count).copied()).collect()
}

/// The character of a column in the row that starts at `floor` steps.
fn graph_char(levels: &[usize], floor: usize, style: GraphStyle) -> char {
    let filled = |at: usize| levels.get(at).map_or(0, |level| level.saturating_sub(floor));
    if style == GraphStyle::Block {
        const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        return BLOCKS.get(filled(0)).copied().unwrap_or('█');
    }
    if style == GraphStyle::Ascii {
        return match filled(0) {
            0 => ' ',
            1 => '.',
            _ => '#',
        };
    }
    // Braille dots from the lowest row up, of the left and of the right column.
    const LEFT_DOTS: [u32; 4] = [0x40, 0x04, 0x02, 0x01];
    const RIGHT_DOTS: [u32; 4] = [0x80, 0x20, 0x10, 0x08];
    let dots = |column: [u32; 4], count: usize| column.iter().take(count).sum::<u32>();
    let all = dots(LEFT_DOTS, filled(0)) + dots(RIGHT_DOTS, filled(1));
    if all == 0 { ' ' } else { char::from_u32(0x2800 + all).unwrap_or(' ') }
}

/// Scaled to 0 to `most`, clamped.
fn scale_level(percent: f32, most: usize) -> usize {
    // Few steps, and within the bounds.
    let scaled = percent.clamp(0.0, 100.0) / 100.0 * most as f32;
    (scaled.round() as usize).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparkline_keeps_newest_and_gaps() {
        let values = [Some(0.0), None, Some(50.0), Some(100.0), Some(f32::NAN), Some(900.0)];
        assert_eq!(sparkline(&values, 4, false), "▅█▁█");
        assert_eq!(sparkline(&values, 9, true), "_ =#_#");
        assert_eq!(sparkline(&[], 3, false), "");
    }

    #[test]
    fn stretched_values_fill_the_width() {
        let values = [Some(1.0), None, Some(3.0)];
        assert_eq!(stretch(&values, 6, GraphStyle::Block), [Some(1.0), Some(1.0), None, None, Some(3.0), Some(3.0)]);
        assert_eq!(stretch(&values, 1, GraphStyle::Braille), [Some(1.0), None]);
        assert_eq!(stretch(&[], 6, GraphStyle::Ascii), []);
    }

    #[test]
    fn graph_is_right_aligned() {
        assert_eq!(render_graph(&[Some(100.0), Some(0.0)], 2, 2, GraphStyle::Braille), [" ⡇", " ⣇"]);
        assert_eq!(render_graph(&[None, Some(100.0)], 1, 1, GraphStyle::Braille), ["⢸"]);
        assert_eq!(render_graph(&[Some(0.0), Some(40.0), Some(100.0)], 3, 2, GraphStyle::Ascii), ["  #", ".##"]);
        assert_eq!(render_graph(&[], 3, 1, GraphStyle::Ascii), ["   "]);
        assert_eq!(render_graph(&[Some(0.0), Some(40.0), Some(100.0)], 3, 1, GraphStyle::Block), ["▁▄█"]);
        assert!(render_graph(&[Some(1.0)], 3, 0, GraphStyle::Braille).is_empty());
    }
}
