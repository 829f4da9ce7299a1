//! Formats text for fixed widths: truncation, padding, numbers, ages.
//!
//! Takes sanitized text only.

use ratatui::style::Style;
use ratatui::text::Span;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::event::UnixMillis;
use crate::report::style;
use crate::text::byte_size::format_bytes;
use crate::text::translation::Lang;
use crate::tui::theme::{DisplayStatus, Theme};

/// Exactly `width` columns: truncated or padded on the right.
pub(super) fn pad(text: &str, width: usize) -> String {
    if width == 0 {
        return String::new();
    }
    let text = style::truncate_text(text, width);
    let missing = width.saturating_sub(text.width());
    text + &" ".repeat(missing)
}

/// Exactly `width` columns, aligned right.
pub(super) fn pad_left(text: &str, width: usize) -> String {
    if width == 0 {
        return String::new();
    }
    let text = style::truncate_text(text, width);
    " ".repeat(width.saturating_sub(text.width())) + &text
}

/// The end of a text that fits into `width` columns.
pub(super) fn keep_end(text: &str, width: usize) -> &str {
    let mut used = 0;
    let mut fits = |c: char| {
        used += UnicodeWidthChar::width(c).unwrap_or(0);
        used <= width
    };
    let kept: usize = text.chars().rev().map_while(|c| fits(c).then_some(c.len_utf8())).sum();
    &text[text.len() - kept..]
}

/// `3s`, `12s`, `4m`, `2h`; `-` for an unknown time.
pub(super) fn format_age(at: UnixMillis, now: UnixMillis) -> String {
    if at <= 0 {
        return "-".to_owned();
    }
    let seconds = (now - at).max(0) / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

pub(super) fn format_hms(millis: i64) -> String {
    let seconds = millis.max(0) / 1000;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds % 3600 / 60, seconds % 60)
}

/// `14:02:11` at this offset from UTC in seconds.
pub(crate) fn time_of_day(at: UnixMillis, utc_offset: i64) -> String {
    format_hms((at.div_euclid(1000) + utc_offset).rem_euclid(86_400) * 1000)
}

/// `412W`, `5.1kW`.
pub(super) fn format_watts(watts: f32) -> String {
    match watts {
        w if w < 1000.0 => format!("{w:.0}W"),
        w if w < 100_000.0 => format!("{:.1}kW", w / 1000.0),
        w => format!("{:.0}kW", w / 1000.0),
    }
}

pub(super) fn or_dash(value: Option<String>) -> String {
    value.unwrap_or_else(|| "-".to_owned())
}

/// `99%`, `71°`; `-` for an unknown number.
pub(super) fn whole(value: Option<f32>, unit: &str) -> String {
    or_dash(value.map(|value| format!("{value:.0}{unit}")))
}

/// `None` without values.
pub(super) fn mean(values: impl Iterator<Item = f32>) -> Option<f32> {
    let (sum, count) = values.fold((0.0, 0.0_f32), |(sum, count), value| (sum + value, count + 1.0));
    (count > 0.0).then(|| sum / count)
}

/// `2.5 of 23.5 GiB`; both with a unit if the units differ.
pub(super) fn format_part_of(part: u64, total: u64, lang: Lang) -> String {
    let (part, whole) = (format_bytes(part), format_bytes(total));
    let unit = |text: &str| text.rsplit_once(' ').map(|(_, unit)| unit.to_owned());
    let short = part.rsplit_once(' ').filter(|_| unit(&part) == unit(&whole)).map(|(number, _)| number.to_owned());
    short.unwrap_or(part) + lang.tr(" of ") + &whole
}

/// A rate in bytes per second, as [`format_bytes`] writes it.
pub(super) fn format_rate(bytes: f64) -> String {
    // A rate is far below the 64-bit limit.
    format_bytes(bytes.max(0.0) as u64)
}

/// Total width of the spans.
pub(super) fn spans_width(spans: &[Span<'_>]) -> usize {
    spans.iter().map(|span| span.content.width()).sum()
}

/// Spans cut to `width` columns.
pub(super) fn truncate_spans(spans: &[Span<'_>], width: usize) -> Vec<Span<'static>> {
    let mut left = width;
    let mut cut = Vec::new();
    for span in spans {
        if left == 0 {
            break;
        }
        let text = style::truncate_text(&span.content, left);
        left = left.saturating_sub(text.width());
        cut.push(Span::styled(text, span.style));
    }
    cut
}

/// A share from 0 to 100 as a bar of exactly `width` columns, in eighths of a column; in ASCII in whole columns. Unknown is empty.
pub(super) fn horizontal_bar(share: Option<f32>, width: usize, ascii: bool) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let steps = width * if ascii { 1 } else { 8 };
    let scaled = share.filter(|share| share.is_finite()).unwrap_or(0.0).clamp(0.0, 100.0) / 100.0 * steps as f32;
    let filled = (scaled.round() as usize).min(steps);
    let bar = match ascii {
        true => "#".repeat(filled),
        false => "█".repeat(filled / 8) + EIGHTHS[filled % 8],
    };
    pad(&bar, width)
}

/// A [`horizontal_bar`] in this style, and dots from its end on.
pub(super) fn bar_spans(share: Option<f32>, width: usize, theme: Theme, style: Style) -> [Span<'static>; 2] {
    let bar = horizontal_bar(share, width, theme.ascii).trim_end().to_owned();
    let dots = theme.symbol(DisplayStatus::Pending).repeat(width.saturating_sub(bar.width()));
    [Span::styled(bar, style), Span::styled(dots, theme.dim())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_fit_their_width() {
        assert_eq!((pad("ab", 4), pad("abcdef", 4), pad("中中中", 4)), ("ab  ".into(), "abc…".into(), "中… ".into()));
        assert_eq!([keep_end("ab中文", 4), keep_end("ab中文", 3), keep_end("ab", 9)], ["中文", "文", "ab"]);
        assert_eq!((pad_left("7", 3), pad_left("", 0), pad_left("12345", 3)), ("  7".into(), String::new(), "12…".into()));
        assert_eq!([0, 5_000, 65_000, 7_200_000].map(|at| format_age(10_000_000 - at, 10_000_000)), ["0s", "5s", "1m", "2h"]);
        assert_eq!((format_age(0, 5), format_hms(8_024_000)), ("-".into(), "02:13:44".into()));
        assert_eq!(
            [0.0, 50.0, 98.0, 100.0, 900.0].map(|share| horizontal_bar(Some(share), 4, false)),
            ["    ", "██  ", "███▉", "████", "████"]
        );
        assert_eq!([Some(50.0), None, Some(f32::NAN)].map(|share| horizontal_bar(share, 4, true)), ["##  ", "    ", "    "]);
        assert_eq!([98.0, 5_100.0, 640_000.0].map(format_watts), ["98W", "5.1kW", "640kW"]);
    }
}
