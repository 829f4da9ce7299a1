//! The newest lines of all logs in order of arrival, for the merged view.
//!
//! Bounded in lines and bytes; older lines are in the files. Texts are as the hosts wrote them and must be sanitized before display.

use std::collections::{BTreeMap, VecDeque};

use crate::event::{LogFile, UnixMillis};

/// Maximum number of lines.
const MAX_LINES: usize = 50_000;
/// Maximum bytes of text.
const MAX_BYTES: usize = 24 << 20;
/// Maximum bytes of a line.
const MAX_LINE_BYTES: usize = 2 << 10;
/// Maximum lines taken from one chunk; earlier lines of the chunk are in the file only.
const MAX_LINES_PER_CHUNK: usize = 2_000;
/// Maximum number of logs.
const MAX_LOGS: usize = 1 << 14;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingLine {
    /// Sequence number.
    pub seq: u64,
    pub received_at: UnixMillis,
    pub log: (u32, LogFile),
    /// Offset in its log.
    pub offset: u64,
    pub text: Box<[u8]>,
}

/// A line without its newline yet.
#[derive(Debug, Clone, Default)]
struct PartialLine {
    text: Vec<u8>,
    offset: u64,
    next_offset: u64,
}

#[derive(Debug, Clone, Default)]
pub struct LogRing {
    lines: VecDeque<RingLine>,
    bytes: usize,
    next_seq: u64,
    partial_lines: BTreeMap<(u32, LogFile), PartialLine>,
    /// Lines skipped because too many arrived in one chunk.
    pub skipped_lines: u64,
}

/// Bytes of a log that came at once.
#[derive(Clone, Copy)]
pub struct LogChunk<'a> {
    /// The host's index and the file.
    pub log: (u32, LogFile),
    /// Where in the log they begin.
    pub offset: u64,
    /// Empty where only their number is known.
    pub bytes: &'a [u8],
    pub len: u64,
    pub at: UnixMillis,
}

impl LogRing {
    /// Adds the bytes at `offset` of a log; no lines if only their number is known.
    pub fn push_chunk(&mut self, chunk: LogChunk<'_>) {
        let LogChunk { log, offset, bytes, len, .. } = chunk;
        if self.partial_lines.len() >= MAX_LOGS && !self.partial_lines.contains_key(&log) {
            return;
        }
        let mut open = self.partial_lines.remove(&log).unwrap_or_default();
        let end = offset.saturating_add(len);
        if end > open.next_offset || open.next_offset == 0 {
            if bytes.len() as u64 == len {
                let seen = usize::try_from(open.next_offset.saturating_sub(offset)).unwrap_or(usize::MAX).min(bytes.len());
                if offset > open.next_offset {
                    open.text.clear();
                    open.offset = offset;
                }
                let start = offset.max(open.next_offset);
                self.split_chunk(&mut open, LogChunk { offset: start, bytes: &bytes[seen..], ..chunk });
            } else {
                open.text.clear();
                open.offset = end;
            }
            open.next_offset = end;
        }
        self.partial_lines.insert(log, open);
    }

    /// The log starts again at offset 0.
    pub fn restart_log(&mut self, log: (u32, LogFile)) {
        self.partial_lines.remove(&log);
    }

    fn split_chunk(&mut self, open: &mut PartialLine, LogChunk { log, offset: start, bytes, at, .. }: LogChunk<'_>) {
        let mut from = 0;
        let ends = memchr::memchr_iter(b'\n', bytes).count();
        if ends > MAX_LINES_PER_CHUNK
            && let Some(last) = memchr::memrchr_iter(b'\n', bytes).nth(MAX_LINES_PER_CHUNK)
        {
            self.skipped_lines += (ends - MAX_LINES_PER_CHUNK) as u64;
            from = last + 1;
            open.text.clear();
            open.offset = start + from as u64;
        }
        while let Some(end) = memchr::memchr(b'\n', &bytes[from..]).map(|end| from + end) {
            if open.text.is_empty() {
                self.push_line(log, open.offset, after_last_carriage_return(&bytes[from..end]), at);
            } else {
                extend_partial(&mut open.text, &bytes[from..end]);
                let text = std::mem::take(&mut open.text);
                self.push_line(log, open.offset, after_last_carriage_return(&text), at);
            }
            from = end + 1;
            open.offset = start + from as u64;
        }
        extend_partial(&mut open.text, &bytes[from..]);
    }

    fn push_line(&mut self, log: (u32, LogFile), offset: u64, text: &[u8], at: UnixMillis) {
        let text: Box<[u8]> = text[..text.len().min(MAX_LINE_BYTES)].into();
        self.bytes += text.len();
        self.lines.push_back(RingLine { seq: self.next_seq, received_at: at, log, offset, text });
        self.next_seq += 1;
        while self.lines.len() > MAX_LINES || self.bytes > MAX_BYTES {
            self.bytes -= self.lines.pop_front().map_or(0, |entry| entry.text.len());
        }
    }

    /// Sequence number of the first line kept, and of the next one.
    pub fn seq_range(&self) -> (u64, u64) {
        (self.lines.front().map_or(self.next_seq, |entry| entry.seq), self.next_seq)
    }

    /// The line with this number, if it is kept.
    pub fn get(&self, seq: u64) -> Option<&RingLine> {
        let (first, _) = self.seq_range();
        self.lines.get(usize::try_from(seq.checked_sub(first)?).ok()?)
    }

    /// The lines from this number on that are still kept.
    pub fn lines_from(&self, seq: u64) -> impl DoubleEndedIterator<Item = &RingLine> {
        let (first, _) = self.seq_range();
        let skip = usize::try_from(seq.saturating_sub(first)).unwrap_or(usize::MAX).min(self.lines.len());
        self.lines.range(skip..)
    }
}

/// Of a line with more bytes only the last redraw is kept.
const MIN_REDRAWN_BYTES: usize = 200;

/// What follows the last carriage return, in a long text; one at the very end does not count.
fn after_last_carriage_return(text: &[u8]) -> &[u8] {
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    memchr::memrchr(b'\r', text).filter(|_| text.len() > MIN_REDRAWN_BYTES).map_or(text, |at| &text[at + 1..])
}

/// Extends an incomplete line up to the limit; of a progress bar only the last redraw is kept.
fn extend_partial(text: &mut Vec<u8>, more: &[u8]) {
    let more = if more.len() > MAX_LINE_BYTES { after_last_carriage_return(more) } else { more };
    if text.len() + more.len() > 2 * MAX_LINE_BYTES
        && let Some(at) = memchr::memrchr(b'\r', text)
    {
        text.drain(..=at);
    }
    let room = (4 * MAX_LINE_BYTES).saturating_sub(text.len()).min(more.len());
    text.extend_from_slice(&more[..room]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: (u32, LogFile) = (0, LogFile::Rank { rank: 0, restart: 0 });
    const B: (u32, LogFile) = (1, LogFile::Rank { rank: 1, restart: 0 });

    fn push_text(ring: &mut LogRing, log: (u32, LogFile), offset: u64, text: &str) {
        ring.push_chunk(LogChunk { log, offset, bytes: text.as_bytes(), len: text.len() as u64, at: 1 });
    }

    fn line_texts(ring: &LogRing) -> Vec<(u32, String, u64)> {
        ring.lines_from(0).map(|entry| (entry.log.0, String::from_utf8_lossy(&entry.text).into_owned(), entry.offset)).collect()
    }

    #[test]
    fn lines_are_complete_and_unique() {
        let mut ring = LogRing::default();
        push_text(&mut ring, A, 0, "one\ntw");
        push_text(&mut ring, B, 0, "b\n");
        push_text(&mut ring, A, 2, "e\ntwo\nth");
        push_text(&mut ring, A, 100, "far\n");
        ring.push_chunk(LogChunk { log: A, offset: 104, bytes: b"", len: 50, at: 2 });
        push_text(&mut ring, A, 154, "on\n");
        let expected = [(0, "one", 0), (1, "b", 0), (0, "two", 4), (0, "far", 100), (0, "on", 154)];
        assert_eq!(line_texts(&ring), expected.map(|(host, text, location)| (host, text.to_owned(), location)));
        assert_eq!((ring.seq_range(), ring.get(2).map(|entry| entry.offset), ring.get(9)), ((0, 5), Some(4), None));
    }

    #[test]
    fn ring_is_bounded() {
        let mut ring = LogRing::default();
        let flood = format!("{}\n", "x".repeat(50)).repeat(MAX_LINES_PER_CHUNK + 500);
        push_text(&mut ring, A, 0, &flood);
        assert_eq!((ring.seq_range(), ring.skipped_lines), ((0, MAX_LINES_PER_CHUNK as u64), 500));
        let long = format!("{}\n", "y".repeat(100_000)).repeat(10);
        for n in 0..200 {
            push_text(&mut ring, B, n * long.len() as u64, &long);
        }
        for n in 0..100 {
            push_text(&mut ring, A, flood.len() as u64 * (n + 1), &flood);
        }
        assert!(ring.lines.len() <= MAX_LINES && ring.bytes <= MAX_BYTES);
        assert_eq!(ring.bytes, ring.lines.iter().map(|entry| entry.text.len()).sum::<usize>());
        let (first, next) = ring.seq_range();
        assert_eq!(next - first, ring.lines.len() as u64);
        assert_eq!(ring.lines_from(first + 5).next().map(|entry| entry.seq), Some(first + 5));
        push_text(&mut ring, A, 1 << 40, &"\r 1%|#| 1/9".repeat(10_000));
        assert!(ring.partial_lines[&A].text.len() <= 4 * MAX_LINE_BYTES);
    }

    proptest! {
        #[test]
        fn chunk_boundaries_do_not_matter(text in "[ab\n]{0,100}", cuts in proptest::collection::vec(0..100_usize, 0..5)) {
            let mut whole = LogRing::default();
            push_text(&mut whole, A, 0, &text);
            let mut parts = LogRing::default();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|at| at.min(text.len())).chain([0, text.len()]).collect();
            cuts.sort_unstable();
            for pair in cuts.windows(2) {
                push_text(&mut parts, A, pair[0] as u64, &text[pair[0]..pair[1]]);
            }
            prop_assert_eq!(line_texts(&whole), line_texts(&parts));
        }
    }
}
