//! The newest lines of all logs in the order in which they came, for those who look at several logs at once.
//!
//! Uses `event`. Bounded in lines and in bytes; the files have what is older. Texts are as the hosts wrote them: unsafe to show.

use std::collections::{BTreeMap, VecDeque};

use crate::event::{LogFile, Millis};

/// How many lines are kept.
const LINES: usize = 50_000;
/// How many bytes of text are kept.
const BYTES: usize = 24 << 20;
/// The most bytes of one line.
const LINE: usize = 2 << 10;
/// How many lines of one chunk are taken; those before them are in the file alone.
const CHUNK: usize = 2_000;
/// How many logs are cut.
const LOGS: usize = 1 << 14;

/// A line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its number; they follow each other.
    pub seq: u64,
    /// When it came.
    pub at: Millis,
    /// Whose.
    pub log: (u32, LogFile),
    /// Where it stands in its log.
    pub place: u64,
    /// Its text.
    pub text: Box<[u8]>,
}

/// A line that has no end yet.
#[derive(Debug, Clone, Default)]
struct Open {
    text: Vec<u8>,
    place: u64,
    next: u64,
}

/// The lines.
#[derive(Debug, Clone, Default)]
pub struct Ring {
    entries: VecDeque<Entry>,
    bytes: usize,
    next: u64,
    open: BTreeMap<(u32, LogFile), Open>,
    /// Lines that were not taken, since too many came at once.
    pub skipped: u64,
}

impl Ring {
    /// Takes the bytes at `offset` of a log; nothing where only their number is known.
    pub fn take(&mut self, log: (u32, LogFile), offset: u64, bytes: &[u8], len: u64, at: Millis) {
        if self.open.len() >= LOGS && !self.open.contains_key(&log) {
            return;
        }
        let mut open = self.open.remove(&log).unwrap_or_default();
        let end = offset.saturating_add(len);
        if end > open.next || open.next == 0 {
            if bytes.len() as u64 == len {
                let seen = usize::try_from(open.next.saturating_sub(offset)).unwrap_or(usize::MAX).min(bytes.len());
                if offset > open.next {
                    open.text.clear();
                    open.place = offset;
                }
                let start = offset.max(open.next);
                self.cut(&mut open, log, start, &bytes[seen..], at);
            } else {
                open.text.clear();
                open.place = end;
            }
            open.next = end;
        }
        self.open.insert(log, open);
    }

    /// A log begins again at its first byte.
    pub fn begin_again(&mut self, log: (u32, LogFile)) {
        self.open.remove(&log);
    }

    fn cut(&mut self, open: &mut Open, log: (u32, LogFile), start: u64, bytes: &[u8], at: Millis) {
        let mut from = 0;
        let ends = memchr::memchr_iter(b'\n', bytes).count();
        if ends > CHUNK
            && let Some(last) = memchr::memrchr_iter(b'\n', bytes).nth(CHUNK)
        {
            self.skipped += (ends - CHUNK) as u64;
            from = last + 1;
            open.text.clear();
            open.place = start + from as u64;
        }
        while let Some(end) = memchr::memchr(b'\n', &bytes[from..]).map(|end| from + end) {
            if open.text.is_empty() {
                self.push(log, open.place, last_picture(&bytes[from..end]), at);
            } else {
                extend(&mut open.text, &bytes[from..end]);
                let text = std::mem::take(&mut open.text);
                self.push(log, open.place, last_picture(&text), at);
            }
            from = end + 1;
            open.place = start + from as u64;
        }
        extend(&mut open.text, &bytes[from..]);
    }

    fn push(&mut self, log: (u32, LogFile), place: u64, text: &[u8], at: Millis) {
        let text: Box<[u8]> = text[..text.len().min(LINE)].into();
        self.bytes += text.len();
        self.entries.push_back(Entry { seq: self.next, at, log, place, text });
        self.next += 1;
        while self.entries.len() > LINES || self.bytes > BYTES {
            self.bytes -= self.entries.pop_front().map_or(0, |entry| entry.text.len());
        }
    }

    /// The number of the first line that is kept, and of the next one that will come.
    pub fn range(&self) -> (u64, u64) {
        (self.entries.front().map_or(self.next, |entry| entry.seq), self.next)
    }

    /// The line of that number, if it is kept.
    pub fn get(&self, seq: u64) -> Option<&Entry> {
        let (first, _) = self.range();
        self.entries.get(usize::try_from(seq.checked_sub(first)?).ok()?)
    }

    /// The lines from that number on, the older ones that are gone left out.
    pub fn from(&self, seq: u64) -> impl DoubleEndedIterator<Item = &Entry> {
        let (first, _) = self.range();
        let skip = usize::try_from(seq.saturating_sub(first)).unwrap_or(usize::MAX).min(self.entries.len());
        self.entries.range(skip..)
    }
}

/// What stands behind the last carriage return that something visible follows.
fn last_picture(text: &[u8]) -> &[u8] {
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    memchr::memrchr(b'\r', text).filter(|_| text.len() > 200).map_or(text, |at| &text[at + 1..])
}

/// Adds to a line that has no end yet, within its bound: of a bar only the last picture.
fn extend(text: &mut Vec<u8>, more: &[u8]) {
    let more = if more.len() > LINE { last_picture(more) } else { more };
    if text.len() + more.len() > 2 * LINE
        && let Some(at) = memchr::memrchr(b'\r', text)
    {
        text.drain(..=at);
    }
    let room = (4 * LINE).saturating_sub(text.len()).min(more.len());
    text.extend_from_slice(&more[..room]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: (u32, LogFile) = (0, LogFile::Rank { rank: 0, restart: 0 });
    const B: (u32, LogFile) = (1, LogFile::Rank { rank: 1, restart: 0 });

    fn take(ring: &mut Ring, log: (u32, LogFile), offset: u64, text: &str) {
        ring.take(log, offset, text.as_bytes(), text.len() as u64, 1);
    }

    fn texts(ring: &Ring) -> Vec<(u32, String, u64)> {
        ring.from(0).map(|entry| (entry.log.0, String::from_utf8_lossy(&entry.text).into_owned(), entry.place)).collect()
    }

    #[test]
    fn lines_come_whole_and_once_with_their_places() {
        let mut ring = Ring::default();
        take(&mut ring, A, 0, "one\ntw");
        take(&mut ring, B, 0, "b\n");
        take(&mut ring, A, 2, "e\ntwo\nth");
        take(&mut ring, A, 100, "far\n");
        ring.take(A, 104, b"", 50, 2);
        take(&mut ring, A, 154, "on\n");
        let expected = [(0, "one", 0), (1, "b", 0), (0, "two", 4), (0, "far", 100), (0, "on", 154)];
        assert_eq!(texts(&ring), expected.map(|(host, text, place)| (host, text.to_owned(), place)));
        assert_eq!((ring.range(), ring.get(2).map(|entry| entry.place), ring.get(9)), ((0, 5), Some(4), None));
    }

    #[test]
    fn it_is_bounded() {
        let mut ring = Ring::default();
        let flood = format!("{}\n", "x".repeat(50)).repeat(CHUNK + 500);
        take(&mut ring, A, 0, &flood);
        assert_eq!((ring.range(), ring.skipped), ((0, CHUNK as u64), 500));
        let long = format!("{}\n", "y".repeat(100_000)).repeat(10);
        for n in 0..200 {
            take(&mut ring, B, n * long.len() as u64, &long);
        }
        for n in 0..100 {
            take(&mut ring, A, flood.len() as u64 * (n + 1), &flood);
        }
        assert!(ring.entries.len() <= LINES && ring.bytes <= BYTES);
        assert_eq!(ring.bytes, ring.entries.iter().map(|entry| entry.text.len()).sum::<usize>());
        let (first, next) = ring.range();
        assert_eq!(next - first, ring.entries.len() as u64);
        assert_eq!(ring.from(first + 5).next().map(|entry| entry.seq), Some(first + 5));
        take(&mut ring, A, 1 << 40, &"\r 1%|#| 1/9".repeat(10_000));
        assert!(ring.open[&A].text.len() <= 4 * LINE);
    }

    proptest! {
        #[test]
        fn chunks_do_not_matter(text in "[ab\n]{0,100}", cuts in proptest::collection::vec(0..100_usize, 0..5)) {
            let mut whole = Ring::default();
            take(&mut whole, A, 0, &text);
            let mut parts = Ring::default();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|at| at.min(text.len())).chain([0, text.len()]).collect();
            cuts.sort_unstable();
            for pair in cuts.windows(2) {
                take(&mut parts, A, pair[0] as u64, &text[pair[0]..pair[1]]);
            }
            prop_assert_eq!(texts(&whole), texts(&parts));
        }
    }
}
