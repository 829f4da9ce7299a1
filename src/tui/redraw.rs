//! Progress bars in a log as a terminal would show them: one row that changes, not thousands.
//!
//! Uses `pager`. A carriage return starts the row anew, `CSI n A` goes up to four rows back; what a row was before is counted and left out.

use super::pager::Line;

/// How many rows back a bar may go.
const ROWS: usize = 4;
/// The most bytes of a row.
const WIDE: usize = 16 << 10;

/// A row as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The place of its first byte in the log.
    pub at: u64,
    /// The place after what was written to it last.
    pub next: u64,
    /// What stands there.
    pub bytes: Vec<u8>,
    /// How often it was drawn, once included.
    pub drawn: u32,
}

/// Rows that follow each other, the changing ones as they are in the end.
pub fn collapse(lines: &[Line]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::with_capacity(lines.len());
    // Where the cursor is; at the end: on a row that is not there yet.
    let mut cursor = 0;
    let mut open = false;
    for line in lines {
        if !open && memchr::memchr2(b'\r', 0x1b, &line.bytes).is_none() && cursor == rows.len() {
            rows.push(Row { at: line.at, next: line.next, bytes: line.bytes.clone(), drawn: 1 });
        } else {
            for (up, part) in parts(&line.bytes) {
                cursor -= up.min(ROWS).min(cursor);
                write(&mut rows, cursor, line, part);
            }
            if cursor >= rows.len() {
                rows.push(Row { at: line.at, next: line.next, bytes: Vec::new(), drawn: 1 });
            }
        }
        // A piece of a line that goes on stays on its row.
        open = line.next - line.at == line.bytes.len() as u64;
        cursor += usize::from(!open);
    }
    rows
}

/// Every picture that was drawn, a row each.
pub fn all(lines: &[Line]) -> Vec<Row> {
    let mut rows = Vec::new();
    for line in lines {
        let row = |part: &[u8]| Row { at: line.at, next: line.next, bytes: part.to_vec(), drawn: 1 };
        let before = rows.len();
        let drawn = line.bytes.split(|byte| *byte == b'\r').filter(|part| visible(part));
        rows.extend(drawn.map(row));
        if rows.len() == before {
            rows.push(row(b""));
        }
    }
    rows
}

/// Texts between movements up, each with how far up it is from the one before.
fn parts(bytes: &[u8]) -> Vec<(usize, &[u8])> {
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

/// Writes a text to a row: what stands behind its last carriage return, over what was there.
fn write(rows: &mut Vec<Row>, cursor: usize, line: &Line, part: &[u8]) {
    let mut drawn: u32 = 0;
    let mut last: &[u8] = b"";
    for text in part.split(|byte| *byte == b'\r').filter(|text| visible(text)) {
        drawn = drawn.saturating_add(1);
        last = text;
    }
    if drawn == 0 {
        return;
    }
    let bytes = last[..last.len().min(WIDE)].to_vec();
    match rows.get_mut(cursor) {
        Some(row) => {
            row.drawn = row.drawn.saturating_add(drawn);
            (row.bytes, row.next) = (bytes, row.next.max(line.next));
        }
        None => rows.push(Row { at: line.at, next: line.next, bytes, drawn }),
    }
}

/// Whether there is anything but movements and spaces in a text.
fn visible(text: &[u8]) -> bool {
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

    fn lines(text: &str) -> Vec<Line> {
        let mut at = 0;
        text.split_inclusive('\n')
            .map(|line| {
                let next = at + line.len() as u64;
                let line = Line { at, bytes: line.trim_end_matches('\n').as_bytes().to_vec(), next };
                at = next;
                line
            })
            .collect()
    }

    fn shown(text: &str) -> Vec<(String, u32)> {
        collapse(&lines(text)).into_iter().map(|row| (String::from_utf8_lossy(&row.bytes).into_owned(), row.drawn)).collect()
    }

    #[test]
    fn a_bar_is_one_row() {
        let bar: String = (0..371).map(|n| format!("\r{n:3}%|##| {n}/371")).collect();
        assert_eq!(shown(&format!("a\n{bar}\nb\n")), [("a".into(), 1), ("370%|##| 370/371".into(), 371), ("b".into(), 1)]);
        assert_eq!(shown("a\r\nb\r\n"), [("a".into(), 1), ("b".into(), 1)], "the end of a line on other systems");
        assert_eq!(shown("10%\r\x1b[K\n"), [("10%".into(), 1)]);
    }

    #[test]
    fn nested_bars_and_live_tables_are_as_many_rows() {
        let nested: String = (1..5).map(|n| format!("\router {n}\n\rinner {n}\x1b[A")).collect();
        assert_eq!(shown(&nested), [("outer 4".into(), 4), ("inner 4".into(), 4)]);
        let live: String = (1..5)
            .map(|n| format!("{}one {n}\ntwo {n}\nthree {n}", if n > 1 { "\r\x1b[2K\x1b[1A\x1b[2K\x1b[1A\x1b[2K" } else { "" }))
            .collect();
        assert_eq!(
            shown(&format!("head\n{live}\nend\n")),
            [("head".into(), 1), ("\x1b[2Kone 4".into(), 4), ("two 4".into(), 4), ("three 4".into(), 4), ("end".into(), 1)]
        );
    }

    #[test]
    fn pieces_of_one_line_stay_on_its_row() {
        let piece = |at: u64, text: &str, end: u64| Line { at, bytes: text.as_bytes().to_vec(), next: at + text.len() as u64 + end };
        let rows = collapse(&[piece(0, "\r1%\r2%", 0), piece(6, "\r3%\r4", 0), piece(11, "\r5%", 1), piece(15, "next", 1)]);
        let texts: Vec<(&[u8], u32, u64)> = rows.iter().map(|row| (&row.bytes[..], row.drawn, row.next)).collect();
        assert_eq!(texts, [(&b"5%"[..], 5, 15), (b"next", 1, 20)]);
    }

    #[test]
    fn all_pictures_can_be_seen() {
        let rows = all(&lines("\r1%\r2%\n\nend\n"));
        assert_eq!(rows.iter().map(|row| String::from_utf8_lossy(&row.bytes).into_owned()).collect::<Vec<_>>(), ["1%", "2%", "", "end"]);
    }

    proptest! {
        #[test]
        fn there_are_never_more_rows_than_lines(text in "[ab\r\n\x1b\\[A2K ]{0,120}") {
            let lines = lines(&text);
            let rows = collapse(&lines);
            prop_assert!(rows.len() <= lines.len());
            prop_assert!(rows.iter().map(|row| row.at).is_sorted());
            all(&lines);
        }
    }
}
