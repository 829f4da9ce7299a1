//! Reads an answer as it arrives: noise, begin mark, body, end mark; keeps what is allowed and counts the rest.
//!
//! Uses `shell`. Pure.

use crate::shell::{Answer, Frame};

/// Noise before the begin mark that is kept, to find the mark and to show what was there instead.
const NOISE: usize = 64 << 10;
/// What is kept of the newest bytes, so that a mark cut in two is found.
const MARK: usize = 256;

/// What a shell is told before its script, so that it can be killed by its number where sshd delivers no signals (to root, for one).
pub(super) const INTRODUCE: &str = "printf '\\036shell %d\\n' \"$$\"\n";

/// Looks for the begin mark behind login noise.
pub(super) struct Opening {
    mark: Vec<u8>,
    noise: Vec<u8>,
}

impl Opening {
    pub(super) fn new(frame: &Frame) -> Self {
        Opening { mark: frame.begin(), noise: Vec::new() }
    }

    /// Takes what has arrived; gives what came behind the mark, once it was seen.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.noise.extend_from_slice(bytes);
        if let Some(at) = memchr::memmem::find(&self.noise, &self.mark) {
            let rest = self.noise.split_off(at + self.mark.len());
            self.noise.truncate(at);
            return Some(rest);
        }
        if self.noise.len() > NOISE {
            self.noise.drain(..self.noise.len() - NOISE / 2);
        }
        None
    }

    /// What came before the mark, or instead of it.
    pub(super) fn noise(&self) -> &[u8] {
        &self.noise
    }

    /// The shell's process number, as it introduced itself; never 0 or 1.
    pub(super) fn shell(&self) -> Option<u32> {
        let head = b"\x1eshell ";
        let at = memchr::memmem::rfind(&self.noise, head)? + head.len();
        let line = self.noise.get(at..)?.split(|b| *b == b'\n').next()?;
        std::str::from_utf8(line).ok()?.parse().ok().filter(|pid| *pid > 1)
    }
}

/// Collects one answer.
pub(super) struct Collector {
    frame: Frame,
    opening: Opening,
    begun: bool,
    limit: usize,
    body: Vec<u8>,
    /// Newest bytes of the answer that are not yet in `body`.
    tail: Vec<u8>,
    dropped: u64,
    ended: Option<i32>,
}

impl Collector {
    pub(super) fn new(frame: Frame, limit: usize) -> Self {
        let opening = Opening::new(&frame);
        Collector { frame, opening, begun: false, limit, body: Vec::new(), tail: Vec::new(), dropped: 0, ended: None }
    }

    /// Takes what has arrived.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.ended.is_some() {
            return;
        }
        if self.begun {
            self.answer(bytes);
        } else if let Some(rest) = self.opening.push(bytes) {
            self.begun = true;
            self.answer(&rest);
        }
    }

    fn answer(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        if memchr::memchr(0x1e, &self.tail).is_some() {
            let text = [self.opening.mark.as_slice(), &self.tail].concat();
            if let Answer::Ended(last, code) = self.frame.read(&text) {
                self.tail = last.to_vec();
                self.keep(self.tail.len());
                self.ended = Some(code);
                return;
            }
        }
        self.keep(self.tail.len().saturating_sub(MARK));
    }

    /// Moves the oldest bytes of the tail into the body, as far as there is room.
    fn keep(&mut self, count: usize) {
        let room = self.limit.saturating_sub(self.body.len());
        let taken = count.min(room);
        self.body.extend_from_slice(self.tail.get(..taken).unwrap_or_default());
        self.dropped = self.dropped.saturating_add(u64::try_from(count - taken).unwrap_or(u64::MAX));
        self.tail.drain(..count);
    }

    /// The script's exit status, once its end mark was seen.
    pub(super) fn ended(&self) -> Option<i32> {
        self.ended
    }

    /// What came before the begin mark, or instead of it.
    pub(super) fn noise(&self) -> &[u8] {
        self.opening.noise()
    }

    /// The shell's process number, if it introduced itself.
    pub(super) fn shell(&self) -> Option<u32> {
        self.opening.shell()
    }

    /// The body and how much of it was beyond the limit.
    pub(super) fn finish(mut self) -> (Vec<u8>, u64) {
        self.keep(self.tail.len());
        (self.body, self.dropped)
    }
}

/// Bytes up to a limit; the rest is counted.
#[derive(Default)]
pub(super) struct Bounded {
    pub(super) bytes: Vec<u8>,
    pub(super) dropped: u64,
}

impl Bounded {
    pub(super) fn push(&mut self, bytes: &[u8], limit: usize) {
        let taken = bytes.len().min(limit.saturating_sub(self.bytes.len()));
        self.bytes.extend_from_slice(bytes.get(..taken).unwrap_or_default());
        self.dropped = self.dropped.saturating_add(u64::try_from(bytes.len() - taken).unwrap_or(u64::MAX));
    }

    /// Takes bytes and forgets the oldest beyond the limit.
    pub(super) fn roll(&mut self, bytes: &[u8], limit: usize) {
        self.bytes.extend_from_slice(bytes);
        self.bytes.drain(..self.bytes.len().saturating_sub(limit));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn collect(text: &[u8], cut: usize, limit: usize) -> (Option<i32>, Vec<u8>, u64) {
        let mut collector = Collector::new(Frame::new("n"), limit);
        text.chunks(cut).for_each(|chunk| collector.push(chunk));
        let ended = collector.ended();
        let (body, dropped) = collector.finish();
        (ended, body, dropped)
    }

    proptest! {
        #[test]
        fn however_it_is_cut_the_answer_is_the_same(
            noise in prop::collection::vec(any::<u8>(), 0..300),
            body in prop::collection::vec(prop_oneof![Just(0x1e_u8), any::<u8>()], 0..2000),
            code in 0..256_i32,
            cut in 1_usize..700,
        ) {
            let mut text = noise;
            text.extend(Frame::new("n").begin());
            text.extend(&body);
            text.extend(format!("\u{1e}end-n {code}\n").bytes());
            text.extend(b"logout\n");
            prop_assert_eq!(collect(&text, cut, 1 << 20), (Some(code), body, 0));
        }
    }

    #[test]
    fn what_is_beyond_the_limit_is_counted() {
        let mut text = Frame::new("n").begin();
        text.extend(vec![b'x'; 5000]);
        text.extend(b"\x1eend-n 3\n");
        let (code, body, dropped) = collect(&text, 333, 1000);
        assert_eq!((code, body.len(), dropped), (Some(3), 1000, 4000));
    }

    #[test]
    fn a_shell_introduces_itself() {
        let mut opening = Opening::new(&Frame::new("n"));
        assert!(opening.push(b"Welcome\n\x1eshell 4711\n").is_none());
        assert_eq!(opening.shell(), Some(4711));
        assert_eq!(opening.push(b"\x1ebegin-n\nrest"), Some(b"rest".to_vec()));
        assert_eq!(opening.shell(), Some(4711));
        let mut opening = Opening::new(&Frame::new("n"));
        opening.push(b"\x1eshell 1\n");
        assert_eq!(opening.shell(), None);
    }

    #[test]
    fn endless_noise_is_not_kept() {
        let mut collector = Collector::new(Frame::new("n"), 100);
        for _ in 0..100 {
            collector.push(&[b'.'; 10_000]);
        }
        assert!(collector.noise().len() <= NOISE);
        collector.push(b"\x1ebegin-n\nyes\x1eend-n 0\n");
        assert_eq!(collector.ended(), Some(0));
        assert_eq!(collector.finish().0, b"yes");
    }
}
