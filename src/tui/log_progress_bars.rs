//! Renders progress bars in logs as a terminal would: one changing row instead of thousands.
//!
//! A carriage return restarts the row, `CSI n A` moves up to four rows up; earlier content of a row is counted and dropped.

use super::log_source::StoredLine;

/// Maximum number of rows a bar may move up.
const MAX_ROWS_UP: usize = 4;
/// Maximum bytes of a row.
const MAX_ROW_BYTES: usize = 16 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TerminalLogRow {
    /// Offset of its first byte in the log.
    pub offset: u64,
    /// Offset after the last write to it.
    pub next_offset: u64,
    pub bytes: Vec<u8>,
    /// Number of draws, at least 1.
    pub draw_count: u32,
}

/// Consecutive rows in their final state.
pub(crate) fn collapse_progress(lines: &[StoredLine]) -> Vec<TerminalLogRow> {
    let mut rows: Vec<TerminalLogRow> = Vec::with_capacity(lines.len());
    // Row of the cursor; equal to the length for a row that does not exist yet.
    let mut cursor = 0;
    let mut open = false;
    for line in lines {
        if !open && memchr::memchr2(b'\r', 0x1b, &line.bytes).is_none() && cursor == rows.len() {
            rows.push(TerminalLogRow { offset: line.offset, next_offset: line.next_offset, bytes: line.bytes.clone(), draw_count: 1 });
        } else {
            for (up, part) in split_at_cursor_up(&line.bytes) {
                cursor -= up.min(MAX_ROWS_UP).min(cursor);
                write_row(&mut rows, cursor, line, part);
            }
            if cursor >= rows.len() {
                rows.push(TerminalLogRow { offset: line.offset, next_offset: line.next_offset, bytes: Vec::new(), draw_count: 1 });
            }
        }
        // The continuation of a line stays on its row.
        open = line.next_offset - line.offset == line.bytes.len() as u64;
        cursor += usize::from(!open);
    }
    rows
}

/// Every redraw as a row of its own.
pub(crate) fn expand_progress(lines: &[StoredLine]) -> Vec<TerminalLogRow> {
    let mut rows = Vec::new();
    for line in lines {
        let row = |part: &[u8]| TerminalLogRow { offset: line.offset, next_offset: line.next_offset, bytes: part.to_vec(), draw_count: 1 };
        let before = rows.len();
        let drawn = line.bytes.split(|byte| *byte == b'\r').filter(|part| has_visible_text(part));
        rows.extend(drawn.map(row));
        if rows.len() == before {
            rows.push(row(b""));
        }
    }
    rows
}

/// Texts between upward movements, each with its distance from the previous one.
fn split_at_cursor_up(bytes: &[u8]) -> Vec<(usize, &[u8])> {
    let (mut parts, mut start, mut up, mut at) = (Vec::new(), 0, 0, 0);
    while let Some(found) = memchr::memmem::find(&bytes[at..], b"\x1b[") {
        let digits = bytes[at + found + 2..].iter().take_while(|byte| byte.is_ascii_digit()).take(4).count();
        let end = at + found + 2 + digits;
        if bytes.get(end) == Some(&b'A') {
            parts.push((up, &bytes[start..at + found]));
            let number = std::str::from_utf8(&bytes[at + found + 2..end]).ok().and_then(|text| text.parse().ok());
            up = number.unwrap_or(1);
            start = end + 1;
        }
        at = end.min(bytes.len());
    }
    parts.push((up, &bytes[start..]));
    parts
}

/// Writes text to a row: the part after its last carriage return overwrites the content.
fn write_row(rows: &mut Vec<TerminalLogRow>, cursor: usize, line: &StoredLine, part: &[u8]) {
    let mut drawn: u32 = 0;
    let mut last: &[u8] = b"";
    for text in part.split(|byte| *byte == b'\r').filter(|text| has_visible_text(text)) {
        drawn = drawn.saturating_add(1);
        last = text;
    }
    if drawn == 0 {
        return;
    }
    let bytes = last[..last.len().min(MAX_ROW_BYTES)].to_vec();
    match rows.get_mut(cursor) {
        Some(row) => {
            row.draw_count = row.draw_count.saturating_add(drawn);
            (row.bytes, row.next_offset) = (bytes, row.next_offset.max(line.next_offset));
        }
        None => rows.push(TerminalLogRow { offset: line.offset, next_offset: line.next_offset, bytes, draw_count: drawn }),
    }
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
            prop_assert!(rows.len() <= lines.len());
            prop_assert!(rows.iter().map(|row| row.offset).is_sorted());
            expand_progress(&lines);
        }
    }
}
