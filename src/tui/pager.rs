//! Lines of a stored log by their place in the file, so that a log of any size is shown without being held.
//!
//! Uses `feed` for the reader. A line is what stands before a newline; one longer than the bound is shown in pieces.

use std::io;

use crate::event::LogFile;

use super::feed::Stored;

/// The longest piece of a line, in bytes.
pub(super) const PIECE: usize = 16 << 10;
/// How much is read at once.
const BLOCK: usize = 64 << 10;

/// A line: where it begins, its bytes without the newline, and where the next one begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The place of its first byte.
    pub at: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The place after it and its newline.
    pub next: u64,
}

/// One log within the bounds that are known of it.
pub struct Source<'a> {
    /// Who reads.
    pub stored: &'a dyn Stored,
    /// Whose log.
    pub host: u32,
    /// That host's name.
    pub name: &'a str,
    /// Which.
    pub file: LogFile,
    /// Its end.
    pub len: u64,
}

impl Source<'_> {
    fn read(&self, from: u64, to: u64) -> io::Result<Vec<u8>> {
        let most = usize::try_from(to.min(self.len).saturating_sub(from)).unwrap_or(BLOCK);
        if most == 0 { Ok(Vec::new()) } else { self.stored.read(self.name, self.file, from, most) }
    }

    /// The first `count` lines from `from` on, which must be the beginning of one.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn after(&self, from: u64, count: usize) -> io::Result<Vec<Line>> {
        let mut lines = Vec::new();
        let (mut start, mut held) = (from, Vec::new());
        while lines.len() < count {
            let at = start + held.len() as u64;
            let block = self.read(at, at + BLOCK as u64)?;
            let end = block.is_empty();
            held.extend_from_slice(&block);
            if held.is_empty() {
                break;
            }
            let used = cut(&held, start, end, &mut lines);
            held.drain(..used);
            start += used as u64;
            if end {
                break;
            }
        }
        lines.truncate(count);
        Ok(lines)
    }

    /// The last `count` lines that end at or before `end`, the oldest first.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn before(&self, end: u64, count: usize) -> io::Result<Vec<Line>> {
        let end = end.min(self.len);
        let (mut from, mut span) = (end, BLOCK as u64);
        loop {
            from = from.saturating_sub(span);
            let block = self.read(from, end)?;
            // What stands before the first newline belongs to a line that began earlier.
            let skip = if from == 0 { Some(0) } else { memchr::memchr(b'\n', &block).map(|at| at + 1) };
            let enough = block.len() >= 64 * BLOCK || from == 0;
            let start = match skip {
                Some(skip) if skip < block.len() || from == 0 => skip,
                // One endless line: its pieces are counted from where we look.
                _ if enough => 0,
                _ => {
                    span *= 2;
                    continue;
                }
            };
            let mut lines = Vec::new();
            cut(&block[start..], from + start as u64, true, &mut lines);
            if lines.len() >= count || enough {
                return Ok(lines.split_off(lines.len().saturating_sub(count)));
            }
            span *= 2;
        }
    }
}

/// Cuts text that begins at `start` into lines; gives how many bytes were used. Without `end` a last line without newline stays.
fn cut(text: &[u8], start: u64, end: bool, lines: &mut Vec<Line>) -> usize {
    let mut used = 0;
    while used < text.len() {
        let rest = &text[used..];
        let (len, whole) = match memchr::memchr(b'\n', &rest[..rest.len().min(PIECE)]) {
            Some(at) => (at, at + 1),
            None if rest.len() >= PIECE => (PIECE, PIECE),
            None if end => (rest.len(), rest.len()),
            None => break,
        };
        let at = start + used as u64;
        used += whole;
        lines.push(Line { at, bytes: rest[..len].to_vec(), next: at + whole as u64 });
    }
    used
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) struct Text(pub Vec<u8>);

    impl Stored for Text {
        fn len(&self, _: &str, _: LogFile) -> io::Result<u64> {
            Ok(self.0.len() as u64)
        }
        fn read(&self, _: &str, _: LogFile, from: u64, most: usize) -> io::Result<Vec<u8>> {
            let from = usize::try_from(from).expect("small").min(self.0.len());
            Ok(self.0[from..(from + most).min(self.0.len())].to_vec())
        }
    }

    fn source(text: &Text) -> Source<'_> {
        Source { stored: text, host: 0, name: "", file: LogFile::Node, len: text.0.len() as u64 }
    }

    fn texts(lines: &[Line]) -> Vec<String> {
        lines.iter().map(|line| String::from_utf8_lossy(&line.bytes).into_owned()).collect()
    }

    #[test]
    fn the_end_and_the_beginning_of_a_long_log() {
        let text = Text((0..100_000).map(|n| format!("line {n}\n")).collect::<String>().into_bytes());
        let source = source(&text);
        let last = source.before(u64::MAX, 3).expect("read");
        assert_eq!(texts(&last), ["line 99997", "line 99998", "line 99999"]);
        assert_eq!(texts(&source.before(last[0].at, 1).expect("read")), ["line 99996"]);
        assert_eq!(texts(&source.after(0, 2).expect("read")), ["line 0", "line 1"]);
        assert_eq!(source.before(u64::MAX, 20_000).expect("read").len(), 20_000);
        assert_eq!(source.before(0, 5).expect("read"), []);
    }

    #[test]
    fn a_line_without_end_comes_in_pieces() {
        let text = Text(vec![b'x'; 5 * PIECE + 7]);
        let source = source(&text);
        assert_eq!(source.after(0, 100).expect("read").len(), 6);
        assert_eq!(source.before(u64::MAX, 2).expect("read").len(), 2);
    }

    proptest! {
        #[test]
        fn forward_and_backward_agree(text in "[ab\n]{0,300}", count in 0..40_usize) {
            let text = Text(text.into_bytes());
            let source = source(&text);
            let all = source.after(0, 1000).expect("read");
            let back = source.before(u64::MAX, count).expect("read");
            prop_assert_eq!(&all[all.len().saturating_sub(count)..], &back[..]);
            for line in &all {
                prop_assert_eq!(&source.after(line.at, 1).expect("read")[0], line);
            }
        }
    }
}
