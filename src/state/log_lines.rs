//! Lines out of log bytes: cut as they come, progress bars collapsed, everything bounded.

use std::collections::VecDeque;
use std::sync::Arc;

/// The most bytes of one line that are kept.
pub(crate) const MAX_LINE_BYTES: usize = 2 << 10;

/// How many lines a [`RecentLines`] keeps.
pub(crate) const MAX_RECENT_LINES: usize = 50;

/// The most bytes of text that a [`RecentLines`] keeps, so that a thousand ranks stay small.
pub(crate) const MAX_RECENT_BYTES: usize = 48 << 10;

/// Cuts a stream of bytes into lines. A carriage return without a newline after it restarts the line, as on a screen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LineSplitter {
    line: Vec<u8>,
    dropped_bytes: u64,
    after_carriage_return: bool,
    is_redrawn: bool,
}

impl LineSplitter {
    /// Takes the next bytes; gives every line that they complete to `out`.
    pub(crate) fn push(&mut self, mut bytes: &[u8], mut out: impl FnMut(String)) {
        while let Some(at) = memchr::memchr2(b'\n', b'\r', bytes) {
            self.append(&bytes[..at]);
            if bytes[at] == b'\n' {
                out(self.decode_line());
                self.clear_line();
            } else {
                self.after_carriage_return = true;
            }
            bytes = &bytes[at + 1..];
        }
        self.append(bytes);
    }

    /// The line that has no end yet, if it has any text.
    pub(crate) fn partial_line(&self) -> Option<String> {
        (!self.line.is_empty()).then(|| self.decode_line())
    }

    /// Ends the line under way.
    pub(crate) fn finish_line(&mut self) -> Option<String> {
        let last = self.partial_line();
        self.clear_line();
        last
    }

    /// Forgets the line under way.
    pub(crate) fn clear_line(&mut self) {
        self.line.clear();
        self.dropped_bytes = 0;
        self.after_carriage_return = false;
        self.is_redrawn = false;
    }

    /// Whether the line under way is being redrawn, as progress bars do.
    pub(crate) fn is_redrawn(&self) -> bool {
        self.is_redrawn
    }

    fn append(&mut self, text: &[u8]) {
        if text.is_empty() {
            return;
        }
        if std::mem::take(&mut self.after_carriage_return) {
            self.is_redrawn = true;
            self.line.clear();
            self.dropped_bytes = 0;
        }
        let room = MAX_LINE_BYTES.saturating_sub(self.line.len()).min(text.len());
        self.line.extend_from_slice(&text[..room]);
        self.dropped_bytes += (text.len() - room) as u64;
    }

    fn decode_line(&self) -> String {
        if self.dropped_bytes == 0 {
            return String::from_utf8_lossy(&self.line).into_owned();
        }
        let whole = match std::str::from_utf8(&self.line) {
            Err(error) if error.error_len().is_none() => &self.line[..error.valid_up_to()],
            _ => &self.line,
        };
        format!("{}…", String::from_utf8_lossy(whole))
    }
}

/// The numbers of the first and the last frame in a line of a C++ stack: of one as torch prints it, `frame #3: c10::Error …`, and of frames that
/// are kept as one line. A long stack would else push out the words that explain it.
fn stack_frame(line: &str) -> Option<(u32, u32)> {
    let rest = line.strip_prefix("frame #")?;
    let (first, rest) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
    let first = first.parse().ok()?;
    match rest.strip_prefix(" … #") {
        Some(last) => Some((first, last.parse().ok()?)),
        None => rest.starts_with(": ").then_some((first, first)),
    }
}

/// The part of the bytes at `offset` that comes at or after `next_offset`.
pub(crate) fn unseen(next_offset: u64, offset: u64, bytes: &[u8]) -> &[u8] {
    let seen = usize::try_from(next_offset.saturating_sub(offset)).unwrap_or(usize::MAX);
    bytes.get(seen..).unwrap_or_default()
}

/// The last lines of one file, and how much of it was seen. A run of stack frames of C++ is one line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecentLines {
    /// Shared with copies, since a dashboard copies every rank that has written.
    kept_lines: VecDeque<Arc<str>>,
    held_bytes: usize,
    splitter: LineSplitter,
    /// The place after the last byte seen.
    pub next_offset: u64,
    pub total_lines: u64,
}

impl RecentLines {
    /// Takes the `len` bytes at `offset`; a journal keeps only their range, then `bytes` is empty. What was seen before is not counted twice; a
    /// jump forward starts a new line. Gives every line that it cuts to `each`, which are all but those that a flood buries at once, and the one
    /// under way.
    pub(super) fn push(&mut self, offset: u64, bytes: &[u8], len: u64, mut each: impl FnMut(&str)) {
        let end = offset.saturating_add(len);
        if end <= self.next_offset {
            return;
        }
        let has_text = bytes.len() as u64 == len;
        let fresh = unseen(self.next_offset, offset, bytes);
        if !has_text || offset > self.next_offset {
            self.splitter.clear_line();
        }
        self.next_offset = end;
        if has_text {
            self.append(fresh, &mut each);
            if let Some(line) = self.progress_line() {
                each(&line);
            }
        }
    }

    /// The progress bar under way: the line without an end, where it is drawn again and again.
    pub fn progress_line(&self) -> Option<String> {
        self.splitter.partial_line().filter(|_| self.splitter.is_redrawn())
    }

    /// The file begins again at its first byte; the lines stay.
    pub fn restart_file(&mut self) {
        self.splitter.clear_line();
        self.next_offset = 0;
    }

    fn append(&mut self, bytes: &[u8], each: &mut impl FnMut(&str)) {
        let ended = memchr::memchr_iter(b'\n', bytes).count();
        self.total_lines += ended as u64;
        let mut rest = bytes;
        if ended > MAX_RECENT_LINES {
            // Only the last lines can stay: the others are counted and never cut.
            if let Some(at) = memchr::memrchr_iter(b'\n', bytes).nth(MAX_RECENT_LINES) {
                rest = &bytes[at + 1..];
                self.splitter.clear_line();
            }
        }
        let RecentLines { kept_lines, held_bytes, splitter, .. } = self;
        splitter.push(rest, |line| {
            each(&line);
            let frames = stack_frame(&line).and_then(|last| Some((stack_frame(kept_lines.back()?)?.0, last.1)));
            let line = match frames {
                Some((first, last)) => {
                    *held_bytes -= kept_lines.pop_back().map_or(0, |line| line.len());
                    format!("frame #{first} … #{last}")
                }
                None => line,
            };
            *held_bytes += line.len();
            kept_lines.push_back(line.into());
            while kept_lines.len() > MAX_RECENT_LINES || (*held_bytes > MAX_RECENT_BYTES && kept_lines.len() > 1) {
                *held_bytes -= kept_lines.pop_front().map_or(0, |line| line.len());
            }
        });
    }

    /// The last line, also an unfinished one.
    pub fn last_line(&self) -> Option<String> {
        self.splitter.partial_line().or_else(|| self.kept_lines.back().map(|line| line.to_string()))
    }

    /// The last `count` lines, oldest first, the unfinished one included.
    pub fn last_lines(&self, count: usize) -> Vec<String> {
        let partial = self.splitter.partial_line();
        let whole = count.saturating_sub(usize::from(partial.is_some())).min(self.kept_lines.len());
        let mut lines: Vec<String> = self.kept_lines.iter().skip(self.kept_lines.len() - whole).map(|line| String::from(&**line)).collect();
        lines.extend(partial.filter(|_| count > 0));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn push(tail: &mut RecentLines, offset: u64, bytes: &[u8]) {
        tail.push(offset, bytes, bytes.len() as u64, |_| {});
    }

    fn split_chunks(chunks: &[&[u8]]) -> Vec<String> {
        let mut cutter = LineSplitter::default();
        let mut lines = Vec::new();
        for chunk in chunks {
            cutter.push(chunk, |line| lines.push(line));
        }
        lines.extend(cutter.finish_line());
        lines
    }

    #[test]
    fn splits_at_newlines_and_collapses_progress_bars() {
        assert_eq!(split_chunks(&[b"a\nb", b"c\r\n\nd"]), ["a", "bc", "", "d"]);
        assert_eq!(split_chunks(&[b"\r 1%\r 2%", b"\r 3", b"%\nnext\n"]), [" 3%", "next"]);
        assert_eq!(split_chunks(&[b"10%\r", b"20%\r", b"\ndone"]), ["20%", "done"]);
        assert_eq!(split_chunks(&["中".as_bytes().split_at(1).0, "中\n".as_bytes().split_at(1).1]), ["中"]);
    }

    #[test]
    fn long_line_is_cut_at_char_boundary() {
        let long = "é".repeat(MAX_LINE_BYTES);
        let mut text = b"x".to_vec();
        text.extend(long.as_bytes());
        text.push(b'\n');
        let lines = split_chunks(&[&text]);
        assert!(lines[0].ends_with("é…"), "the cut falls between characters");
        assert!(lines[0].len() <= MAX_LINE_BYTES + '…'.len_utf8());
    }

    #[test]
    fn all_lines_are_counted_last_are_kept() {
        let mut tail = RecentLines::default();
        let text: String = (0..500).map(|n| format!("line {n}\n")).collect();
        push(&mut tail, 0, text.as_bytes());
        push(&mut tail, text.len() as u64, b"half");
        assert_eq!((tail.total_lines, tail.next_offset), (500, text.len() as u64 + 4));
        assert_eq!(tail.last_lines(3), ["line 498", "line 499", "half"]);
        assert_eq!(tail.last_lines(1000).len(), MAX_RECENT_LINES + 1);
        assert_eq!(tail.last_lines(0), Vec::<String>::new());
    }

    #[test]
    fn frames_of_a_stack_are_one_line() {
        let mut tail = RecentLines::default();
        let frames: String = (0..40).map(|n| format!("frame #{n}: <unknown function> + 0x{n:x} (0x7fa8 in libc10.so)\n")).collect();
        let text = format!("CUDA error: device-side assert triggered\n{frames}<omitting python frames>\nframe #63: main\nframe 64\n");
        let mut seen = 0;
        tail.push(0, text.as_bytes(), text.len() as u64, |_| seen += 1);
        let wanted =
            ["CUDA error: device-side assert triggered", "frame #0 … #39", "<omitting python frames>", "frame #63: main", "frame 64"];
        assert_eq!(tail.last_lines(9), wanted);
        assert_eq!(tail.held_bytes, wanted.iter().map(|line| line.len()).sum::<usize>());
    }

    #[test]
    fn repeated_bytes_are_ignored() {
        let mut tail = RecentLines::default();
        push(&mut tail, 0, b"one\ntw");
        push(&mut tail, 2, b"e\ntwo\n");
        push(&mut tail, 0, b"one\n");
        assert_eq!(tail.last_lines(9), ["one", "two"]);
        push(&mut tail, 100, b"far\n");
        assert_eq!((tail.last_lines(1), tail.last_line()), (vec!["far".to_owned()], Some("far".to_owned())));
    }

    #[test]
    fn recent_lines_memory_is_bounded() {
        let mut tail = RecentLines::default();
        for n in 0..2000_u64 {
            push(&mut tail, n * 5000, &[b'x'; 5000]);
            push(&mut tail, n * 5000 + 4999, b"\n");
        }
        for n in 0..200_u64 {
            let at = tail.next_offset;
            push(&mut tail, at, format!("{n}{}\n", "y".repeat(3000)).as_bytes());
        }
        assert!(tail.held_bytes <= MAX_RECENT_BYTES);
        assert_eq!(tail.kept_lines.iter().map(|line| line.len()).sum::<usize>(), tail.held_bytes);
    }

    proptest! {
        #[test]
        fn splitting_is_independent_of_chunk_boundaries(text in "[a-c\r\n]{0,80}", at in 0..80_usize) {
            let at = at.min(text.len());
            let (head, rest) = text.as_bytes().split_at(at);
            prop_assert_eq!(split_chunks(&[head, rest]), split_chunks(&[text.as_bytes()]));
        }

        #[test]
        fn recent_lines_match_line_splitter(text in "[ab\r\n]{0,400}") {
            let mut tail = RecentLines::default();
            push(&mut tail, 0, text.as_bytes());
            let all = split_chunks(&[text.as_bytes()]);
            let last = tail.last_lines(MAX_RECENT_LINES);
            prop_assert_eq!(&all[all.len() - last.len()..], &last[..]);
        }
    }
}
