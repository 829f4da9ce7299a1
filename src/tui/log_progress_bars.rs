//! Renders progress bars in logs as a terminal would: one changing row instead of thousands.
//!
//! A carriage return restarts the row, `CSI n A` moves up to four rows up; earlier content of a row is counted and dropped.

use crate::state::training_metrics::{parse_progress, parse_step_of_total};

use super::log_source::StoredLine;

/// Maximum number of rows a bar may move up.
const MAX_ROWS_UP: usize = 4;
/// Maximum number of rows between a bar and where it is drawn again.
const MAX_ROWS_DISPLACED: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TerminalLogRow {
    /// Offset of its first byte in the log.
    pub offset: u64,
    /// Offset after the last write to it.
    pub next_offset: u64,
    pub bytes: Vec<u8>,
    /// Number of draws, at least 1.
    pub draw_count: u32,
    /// A bar that a line has overwritten: when it is drawn again it continues below that line.
    is_displaced: bool,
}

impl TerminalLogRow {
    fn new(offset: u64, next_offset: u64, bytes: &[u8], draw_count: u32) -> TerminalLogRow {
        TerminalLogRow { offset, next_offset, bytes: bytes.to_vec(), draw_count, is_displaced: false }
    }
}

/// Consecutive rows in their final state.
pub(crate) fn collapse_progress(lines: &[StoredLine]) -> Vec<TerminalLogRow> {
    let mut rows: Vec<TerminalLogRow> = Vec::with_capacity(lines.len());
    // Row of the cursor; equal to the length for a row that does not exist yet.
    let mut cursor = 0;
    let mut open = false;
    for line in lines {
        if !open && memchr::memchr2(b'\r', 0x1b, &line.bytes).is_none() && cursor == rows.len() {
            rows.push(TerminalLogRow::new(line.offset, line.next_offset, &line.bytes, 1));
        } else {
            for (up, start, part) in split_at_cursor_up(&line.bytes) {
                cursor -= up.min(MAX_ROWS_UP).min(cursor);
                cursor = write_row(&mut rows, cursor, line, (start, part));
            }
            if cursor >= rows.len() {
                rows.push(TerminalLogRow::new(line.offset, line.next_offset, b"", 1));
            }
        }
        // The continuation of a line stays on its row.
        open = is_continued(line);
        cursor += usize::from(!open);
    }
    rows
}

/// Whether the line has no end yet.
fn is_continued(line: &StoredLine) -> bool {
    line.next_offset - line.offset == line.bytes.len() as u64
}

/// Every redraw as a row of its own.
pub(crate) fn expand_progress(lines: &[StoredLine]) -> Vec<TerminalLogRow> {
    let mut rows = Vec::new();
    for line in lines {
        let row = |part: &[u8]| TerminalLogRow::new(line.offset, line.next_offset, part, 1);
        let before = rows.len();
        let drawn = line.bytes.split(|byte| *byte == b'\r').filter(|part| has_visible_text(part));
        rows.extend(drawn.map(row));
        if rows.len() == before {
            rows.push(row(b""));
        }
    }
    rows
}

/// Texts between upward movements, each with its distance from the previous one and its place in the line.
fn split_at_cursor_up(bytes: &[u8]) -> Vec<(usize, usize, &[u8])> {
    let (mut parts, mut start, mut up, mut at) = (Vec::new(), 0, 0, 0);
    while let Some(found) = memchr::memmem::find(&bytes[at..], b"\x1b[") {
        let digits = bytes[at + found + 2..].iter().take_while(|byte| byte.is_ascii_digit()).take(4).count();
        let end = at + found + 2 + digits;
        if bytes.get(end) == Some(&b'A') {
            parts.push((up, start, &bytes[start..at + found]));
            let number = std::str::from_utf8(&bytes[at + found + 2..end]).ok().and_then(|text| text.parse().ok());
            up = number.unwrap_or(1);
            start = end + 1;
        }
        at = end.min(bytes.len());
    }
    parts.push((up, start, &bytes[start..]));
    parts
}

/// Writes text to the row of the cursor: each carriage return starts the row again. A line that is written over a progress bar is a row of its
/// own, and a bar that is drawn again after that continues below it. Returns the row of the cursor afterwards.
fn write_row(rows: &mut Vec<TerminalLogRow>, mut cursor: usize, line: &StoredLine, (start, part): (usize, &[u8])) -> usize {
    let is_open = is_continued(line);
    let mut at = start;
    for text in part.split(|byte| *byte == b'\r') {
        let offset = line.offset + at as u64;
        at += text.len() + 1;
        if !has_visible_text(text) {
            continue;
        }
        // The end of an unfinished line may be the beginning of a bar.
        let is_cut = is_open && at > line.bytes.len();
        let is_other = !is_cut && !is_progress_bar(text);
        let is_last = cursor + 1 == rows.len();
        match rows.get_mut(cursor) {
            Some(bar) if is_last && is_other && is_progress_bar(&bar.bytes) => {
                (bar.is_displaced, bar.next_offset) = (true, offset);
                rows.push(TerminalLogRow::new(offset, line.next_offset, text, 1));
                cursor += 1;
            }
            Some(row) => {
                row.draw_count = if is_other && is_progress_bar(&row.bytes) { 1 } else { row.draw_count.saturating_add(1) };
                (row.bytes, row.next_offset) = (text.to_vec(), row.next_offset.max(line.next_offset));
            }
            None => {
                let drawn = take_displaced_bar(rows, text).unwrap_or(0);
                cursor = rows.len();
                rows.push(TerminalLogRow::new(line.offset, line.next_offset, text, drawn.saturating_add(1)));
            }
        }
    }
    cursor
}

/// Removes the row of a bar over which lines were written and that is drawn again with this text. Gives how often it was drawn.
fn take_displaced_bar(rows: &mut Vec<TerminalLogRow>, text: &[u8]) -> Option<u32> {
    let shape = is_progress_bar(text).then(|| bar_shape(text))?;
    let first = rows.len().saturating_sub(MAX_ROWS_DISPLACED);
    let at = rows.iter().skip(first).position(|row| row.is_displaced && bar_shape(&row.bytes) == shape)?;
    Some(rows.remove(first + at).draw_count)
}

/// Whether a text is a progress bar: a percentage, or counted things with a time.
fn is_progress_bar(text: &[u8]) -> bool {
    let has_percent = memchr::memchr_iter(b'%', text).any(|at| at > 0 && text[at - 1].is_ascii_digit());
    has_percent && parse_step_of_total(text, 0).is_none() || parse_progress(text, 0).is_some()
}

/// What stays the same while a bar is drawn again: its letters up to the first digit.
pub(crate) fn bar_shape(text: &[u8]) -> String {
    let end = text.iter().position(u8::is_ascii_digit).unwrap_or(text.len());
    String::from_utf8_lossy(&text[..end]).chars().filter(|c| c.is_alphabetic()).collect()
}

/// Whether a text has anything but movements and spaces.
fn has_visible_text(text: &[u8]) -> bool {
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match byte {
            0x1b if text.get(at + 1) == Some(&b'[') => {
                at += 2 + text[at + 2..].iter().take_while(|byte| !(0x40..=0x7e).contains(*byte)).count();
            }
            b' ' | 0x1b => {}
            _ => return true,
        }
        at += 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stored_lines(text: &str) -> Vec<StoredLine> {
        let mut at = 0;
        text.split_inclusive('\n')
            .map(|line| {
                let next = at + line.len() as u64;
                let line = StoredLine { offset: at, bytes: line.trim_end_matches('\n').as_bytes().to_vec(), next_offset: next };
                at = next;
                line
            })
            .collect()
    }

    fn collapsed_rows(text: &str) -> Vec<(String, u32)> {
        collapse_progress(&stored_lines(text))
            .into_iter()
            .map(|row| (String::from_utf8_lossy(&row.bytes).into_owned(), row.draw_count))
            .collect()
    }

    #[test]
    fn progress_bar_is_one_row() {
        let bar: String = (0..371).map(|n| format!("\r{n:3}%|##| {n}/371")).collect();
        assert_eq!(collapsed_rows(&format!("a\n{bar}\nb\n")), [("a".into(), 1), ("370%|##| 370/371".into(), 371), ("b".into(), 1)]);
        assert_eq!(collapsed_rows("a\r\nb\r\n"), [("a".into(), 1), ("b".into(), 1)], "the end of a line on other systems");
        assert_eq!(collapsed_rows("10%\r\x1b[K\n"), [("10%".into(), 1)]);
    }

    /// A line that comes after a bar is a row of its own that came once; the bar stays one row, below what was written over it.
    #[test]
    fn line_after_a_bar_is_another_row() {
        let bar = |n: u32| format!("\rtrain: {n:3}%|##  | {n}/100 [00:01<00:09, 9.1it/s]");
        let output = |n: u32| format!("\r{}\rstep {n} loss 2.3\n", " ".repeat(40));
        let text: String = (1..4).map(|n| bar(n * 2) + &bar(n * 2 + 1) + &output(n)).collect::<String>() + &bar(8);
        let steps = [1, 2, 3].map(|n| (format!("step {n} loss 2.3"), 1));
        let shown = collapsed_rows(&text);
        assert_eq!(shown[..3], steps);
        assert_eq!(shown[3..], [(bar(8)[1..].to_owned(), 7)]);
        // Without another draw it stays where it was.
        assert_eq!(
            collapsed_rows(&format!("{}\rdone\nend\n", bar(5))),
            [(bar(5)[1..].to_owned(), 1), ("done".into(), 1), ("end".into(), 1)]
        );
        // Reading from the second row on gives the same row.
        let lines = stored_lines(&format!("{}\rdone\n", bar(5)));
        let rows = collapse_progress(&lines);
        assert_eq!((rows[0].next_offset, rows[1].next_offset), (rows[1].offset, lines[0].next_offset));
        assert_eq!(&lines[0].bytes[usize::try_from(rows[1].offset).expect("small")..], b"done");
    }

    /// Also where no label has an ASCII letter.
    #[test]
    fn bars_with_other_labels_are_other_rows() {
        let rows = collapsed_rows("\r训练:  50%|##  | 5/10\rstep loss\n\r验证:  10%|#   | 1/10\n");
        assert_eq!(rows, [("训练:  50%|##  | 5/10".into(), 1), ("step loss".into(), 1), ("验证:  10%|#   | 1/10".into(), 1)]);
    }

    #[test]
    fn nested_bars_keep_their_rows() {
        let nested: String = (1..5).map(|n| format!("\router {n}\n\rinner {n}\x1b[A")).collect();
        assert_eq!(collapsed_rows(&nested), [("outer 4".into(), 4), ("inner 4".into(), 4)]);
        let live: String = (1..5)
            .map(|n| format!("{}one {n}\ntwo {n}\nthree {n}", if n > 1 { "\r\x1b[2K\x1b[1A\x1b[2K\x1b[1A\x1b[2K" } else { "" }))
            .collect();
        assert_eq!(
            collapsed_rows(&format!("head\n{live}\nend\n")),
            [("head".into(), 1), ("\x1b[2Kone 4".into(), 4), ("two 4".into(), 4), ("three 4".into(), 4), ("end".into(), 1)]
        );
    }

    #[test]
    fn line_pieces_stay_on_one_row() {
        let piece = |at: u64, text: &str, end: u64| StoredLine {
            offset: at,
            bytes: text.as_bytes().to_vec(),
            next_offset: at + text.len() as u64 + end,
        };
        let rows = collapse_progress(&[piece(0, "\r1%\r2%", 0), piece(6, "\r3%\r4", 0), piece(11, "\r5%", 1), piece(15, "next", 1)]);
        let texts: Vec<(&[u8], u32, u64)> = rows.iter().map(|row| (&row.bytes[..], row.draw_count, row.next_offset)).collect();
        assert_eq!(texts, [(&b"5%"[..], 5, 15), (b"next", 1, 20)]);
    }

    #[test]
    fn expand_shows_every_redraw() {
        let rows = expand_progress(&stored_lines("\r1%\r2%\n\nend\n"));
        assert_eq!(rows.iter().map(|row| String::from_utf8_lossy(&row.bytes).into_owned()).collect::<Vec<_>>(), ["1%", "2%", "", "end"]);
    }

    proptest! {
        #[test]
        fn rows_never_exceed_lines(text in "[ab\r\n\x1b\\[A2K ]{0,120}") {
            let lines = stored_lines(&text);
            let rows = collapse_progress(&lines);
            prop_assert!(rows.len() <= lines.len(), "no bar is in this text");
            prop_assert!(rows.iter().map(|row| row.offset).is_sorted());
            expand_progress(&lines);
        }
    }
}
