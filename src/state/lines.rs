//! Lines out of log bytes: cut as they come, progress bars collapsed, everything bounded.
//!
//! Uses nothing. Knows nothing of terminals: what it yields is still the host's text, unsafe to show before `report/sanitize`.

use std::collections::VecDeque;

/// The most bytes of one line that are kept.
pub const LINE: usize = 2 << 10;

/// How many lines a [`Tail`] keeps.
pub const LINES: usize = 50;

/// The most bytes of text that a [`Tail`] keeps, so that a thousand ranks stay small.
pub const TAIL: usize = 48 << 10;

/// Cuts a stream of bytes into lines. A carriage return that no newline follows starts the line anew, as on a screen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cutter {
    line: Vec<u8>,
    dropped: u64,
    returned: bool,
    redrawn: bool,
}

impl Cutter {
    /// Takes the next bytes; gives every line that they complete to `out`.
    pub fn push(&mut self, mut bytes: &[u8], mut out: impl FnMut(String)) {
        while let Some(at) = memchr::memchr2(b'\n', b'\r', bytes) {
            self.append(&bytes[..at]);
            if bytes[at] == b'\n' {
                out(self.text());
                self.clear();
            } else {
                self.returned = true;
            }
            bytes = &bytes[at + 1..];
        }
        self.append(bytes);
    }

    /// The line that has no end yet, if it has any text.
    pub fn partial(&self) -> Option<String> {
        (!self.line.is_empty()).then(|| self.text())
    }

    /// Ends the line under way.
    pub fn finish(&mut self) -> Option<String> {
        let last = self.partial();
        self.clear();
        last
    }

    /// Forgets the line under way.
    pub fn clear(&mut self) {
        self.line.clear();
        self.dropped = 0;
        self.returned = false;
        self.redrawn = false;
    }

    /// Whether the line under way is being redrawn, as progress bars do.
    pub fn redrawn(&self) -> bool {
        self.redrawn
    }

    fn append(&mut self, text: &[u8]) {
        if text.is_empty() {
            return;
        }
        if std::mem::take(&mut self.returned) {
            self.redrawn = true;
            self.line.clear();
            self.dropped = 0;
        }
        let room = LINE.saturating_sub(self.line.len()).min(text.len());
        self.line.extend_from_slice(&text[..room]);
        self.dropped += (text.len() - room) as u64;
    }

    fn text(&self) -> String {
        if self.dropped == 0 {
            return String::from_utf8_lossy(&self.line).into_owned();
        }
        let whole = match std::str::from_utf8(&self.line) {
            Err(error) if error.error_len().is_none() => &self.line[..error.valid_up_to()],
            _ => &self.line,
        };
        format!("{}…", String::from_utf8_lossy(whole))
    }
}

/// The last lines of one file, and how much of it was seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tail {
    ring: VecDeque<String>,
    held: usize,
    cutter: Cutter,
    /// The place after the last byte seen.
    pub next: u64,
    /// Bytes seen.
    pub bytes: u64,
    /// Ended lines seen.
    pub lines: u64,
    /// Bytes that were jumped over.
    pub missing: u64,
}

impl Tail {
    /// Takes the bytes at `offset`. What was seen before is not counted twice; a jump forward starts a new line.
    pub fn push(&mut self, offset: u64, bytes: &[u8]) {
        self.push_each(offset, bytes, |_| {});
    }

    /// As [`Tail::push`]; gives every line that it cuts to `each`, which are all but those that a flood buries at once, and the one under way.
    pub fn push_each(&mut self, offset: u64, bytes: &[u8], mut each: impl FnMut(&str)) {
        let end = offset.saturating_add(bytes.len() as u64);
        if end <= self.next {
            return;
        }
        let seen = usize::try_from(self.next.saturating_sub(offset)).unwrap_or(usize::MAX).min(bytes.len());
        if offset > self.next {
            self.missing += offset - self.next;
            self.cutter.clear();
        }
        self.next = end;
        self.append(&bytes[seen..], &mut each);
        if let Some(line) = self.cutter.partial().filter(|_| self.cutter.redrawn()) {
            each(&line);
        }
    }

    /// The file begins again at its first byte; what was seen stays.
    pub fn begin_again(&mut self) {
        self.cutter.clear();
        self.next = 0;
    }

    /// Text without a place in a file, for bytes that travelled as a range only.
    pub fn skip_to(&mut self, end: u64) {
        if end > self.next {
            self.bytes += end - self.next;
            self.next = end;
            self.cutter.clear();
        }
    }

    fn append(&mut self, bytes: &[u8], each: &mut impl FnMut(&str)) {
        self.bytes += bytes.len() as u64;
        let ended = memchr::memchr_iter(b'\n', bytes).count();
        self.lines += ended as u64;
        let mut rest = bytes;
        if ended > LINES {
            // Only the last lines can stay: the others are counted and never cut.
            if let Some(at) = memchr::memrchr_iter(b'\n', bytes).nth(LINES) {
                rest = &bytes[at + 1..];
                self.cutter.clear();
            }
        }
        let Tail { ring, held, cutter, .. } = self;
        cutter.push(rest, |line| {
            each(&line);
            *held += line.len();
            ring.push_back(line);
            while ring.len() > LINES || (*held > TAIL && ring.len() > 1) {
                *held -= ring.pop_front().map_or(0, |line| line.len());
            }
        });
    }

    /// The last `count` lines, oldest first, the unfinished one included.
    pub fn last(&self, count: usize) -> Vec<String> {
        let partial = self.cutter.partial();
        let whole = count.saturating_sub(usize::from(partial.is_some())).min(self.ring.len());
        let mut lines: Vec<String> = self.ring.iter().skip(self.ring.len() - whole).cloned().collect();
        lines.extend(partial.filter(|_| count > 0));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(chunks: &[&[u8]]) -> Vec<String> {
        let mut cutter = Cutter::default();
        let mut lines = Vec::new();
        for chunk in chunks {
            cutter.push(chunk, |line| lines.push(line));
        }
        lines.extend(cutter.finish());
        lines
    }

    #[test]
    fn cuts_at_newlines_and_keeps_the_last_of_a_progress_bar() {
        assert_eq!(cut(&[b"a\nb", b"c\r\n\nd"]), ["a", "bc", "", "d"]);
        assert_eq!(cut(&[b"\r 1%\r 2%", b"\r 3", b"%\nnext\n"]), [" 3%", "next"]);
        assert_eq!(cut(&[b"10%\r", b"20%\r", b"\ndone"]), ["20%", "done"]);
        assert_eq!(cut(&["中".as_bytes().split_at(1).0, "中\n".as_bytes().split_at(1).1]), ["中"]);
    }

    #[test]
    fn bounds_a_line_and_says_so_without_breaking_a_character() {
        let long = "é".repeat(LINE);
        let mut text = b"x".to_vec();
        text.extend(long.as_bytes());
        text.push(b'\n');
        let lines = cut(&[&text]);
        assert!(lines[0].ends_with("é…"), "the cut falls between characters");
        assert!(lines[0].len() <= LINE + '…'.len_utf8());
    }

    #[test]
    fn a_tail_counts_all_and_keeps_the_last() {
        let mut tail = Tail::default();
        let text: String = (0..500).map(|n| format!("line {n}\n")).collect();
        tail.push(0, text.as_bytes());
        tail.push(text.len() as u64, b"half");
        assert_eq!((tail.lines, tail.bytes), (500, text.len() as u64 + 4));
        assert_eq!(tail.last(3), ["line 498", "line 499", "half"]);
        assert_eq!(tail.last(1000).len(), LINES + 1);
        assert_eq!(tail.last(0), Vec::<String>::new());
    }

    #[test]
    fn a_tail_takes_a_byte_once() {
        let mut tail = Tail::default();
        tail.push(0, b"one\ntw");
        tail.push(2, b"e\ntwo\n");
        tail.push(0, b"one\n");
        assert_eq!(tail.last(9), ["one", "two"]);
        tail.push(100, b"far\n");
        assert_eq!((tail.last(1), tail.missing), (vec!["far".to_owned()], 92));
    }

    #[test]
    fn a_tail_is_bounded_whatever_comes() {
        let mut tail = Tail::default();
        for n in 0..2000_u64 {
            tail.push(n * 5000, &[b'x'; 5000]);
            tail.push(n * 5000 + 4999, b"\n");
        }
        for n in 0..200_u64 {
            let at = tail.next;
            tail.push(at, format!("{n}{}\n", "y".repeat(3000)).as_bytes());
        }
        assert!(tail.held <= TAIL);
        assert_eq!(tail.ring.iter().map(String::len).sum::<usize>(), tail.held);
    }

    proptest! {
        #[test]
        fn the_cuts_do_not_depend_on_the_chunks(text in "[a-c\r\n]{0,80}", at in 0..80_usize) {
            let at = at.min(text.len());
            let (head, rest) = text.as_bytes().split_at(at);
            prop_assert_eq!(cut(&[head, rest]), cut(&[text.as_bytes()]));
        }

        #[test]
        fn a_tail_agrees_with_the_cutter(text in "[ab\r\n]{0,400}") {
            let mut tail = Tail::default();
            tail.push(0, text.as_bytes());
            let all = cut(&[text.as_bytes()]);
            let last = tail.last(LINES);
            prop_assert_eq!(&all[all.len() - last.len()..], &last[..]);
        }
    }
}
