//! Reads an answer as it arrives: noise, begin mark, body, end mark; keeps what is allowed and counts the rest.
//!
//! Uses `shell`. Pure.

use bytes::Bytes;

use crate::shell::{Frame, Mark};

/// Noise before the begin mark that is kept, to find the mark and to show what was there instead.
const NOISE: usize = 64 << 10;
/// What a shell is told before its script, so that it can be killed by its number where sshd delivers no signals (to root, for one).
pub(super) const INTRODUCE: &str = "printf '\\036shell %d\\n' \"$$\"\n";

/// Looks for the begin mark behind login noise.
pub(super) struct Opening {
    mark: Vec<u8>,
    noise: Vec<u8>,
    /// Whether the mark was seen.
    begun: bool,
}

impl Opening {
    pub(super) fn new(frame: &Frame) -> Self {
        Opening { mark: frame.begin(), noise: Vec::new(), begun: false }
    }

    /// Takes what has arrived; gives what came behind the mark, once it was seen.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.noise.extend_from_slice(bytes);
        if let Some(at) = memchr::memmem::find(&self.noise, &self.mark) {
            let rest = self.noise.split_off(at + self.mark.len());
            self.noise.truncate(at);
            self.begun = true;
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

    /// Whether the shell may still say its number: it does so before the mark.
    pub(super) fn may_introduce(&self) -> bool {
        !self.begun && self.shell().is_none()
    }

    /// The shell's process number, as it introduced itself; never 0 or 1, and none while its line is not whole.
    pub(super) fn shell(&self) -> Option<u32> {
        let head = b"\x1eshell ";
        let at = memchr::memmem::rfind(&self.noise, head)? + head.len();
        let line = self.noise.get(at..)?;
        let number = line.get(..memchr::memchr(b'\n', line)?)?;
        std::str::from_utf8(number).ok()?.parse().ok().filter(|pid| *pid > 1)
    }
}

/// Takes the marks away from an answer as it comes.
pub(super) struct Answer {
    frame: Frame,
    opening: Opening,
    begun: bool,
    /// What may be the beginning of the end mark.
    held: Vec<u8>,
    ended: Option<i32>,
}

impl Answer {
    pub(super) fn new(frame: Frame) -> Self {
        let opening = Opening::new(&frame);
        Answer { frame, opening, begun: false, held: Vec::new(), ended: None }
    }

    /// Takes what has arrived; gives what of it the script wrote, as far as that is certain.
    pub(super) fn push(&mut self, bytes: Bytes) -> Bytes {
        if self.ended.is_some() {
            return Bytes::new();
        }
        if self.begun {
            return self.body(bytes);
        }
        let Some(rest) = self.opening.push(&bytes) else { return Bytes::new() };
        self.begun = true;
        self.body(rest.into())
    }

    fn body(&mut self, bytes: Bytes) -> Bytes {
        let bytes = if self.held.is_empty() { bytes } else { [&std::mem::take(&mut self.held), &bytes[..]].concat().into() };
        match self.frame.end(&bytes) {
            Mark::None => bytes,
            Mark::Maybe(at) => {
                self.held = bytes.slice(at..).to_vec();
                bytes.slice(..at)
            }
            Mark::Ended(at, code) => {
                self.ended = Some(code);
                bytes.slice(..at)
            }
        }
    }

    /// The script's exit status, once its end mark was seen.
    pub(super) fn ended(&self) -> Option<i32> {
        self.ended
    }

    /// What came before the begin mark, or instead of it.
    pub(super) fn noise(&self) -> &[u8] {
        self.opening.noise()
    }

    /// What came before the answer.
    pub(super) fn into_opening(self) -> Opening {
        self.opening
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

    fn collect(text: &[u8], cut: usize) -> (Option<i32>, Vec<u8>) {
        let mut answer = Answer::new(Frame::new("n"));
        let body = text.chunks(cut).flat_map(|chunk| answer.push(Bytes::copy_from_slice(chunk))).collect();
        (answer.ended(), body)
    }

    #[test]
    fn a_shells_number_counts_when_its_line_is_whole_and_is_awaited_until_the_mark() {
        let mut opening = Opening::new(&Frame::new("n"));
        assert_eq!(opening.push(b"motd\n\x1eshell 12"), None);
        assert_eq!((opening.shell(), opening.may_introduce()), (None, true));
        assert_eq!(opening.push(b"34\n"), None);
        assert_eq!((opening.shell(), opening.may_introduce()), (Some(1234), false));
        let mut silent = Opening::new(&Frame::new("n"));
        assert_eq!(silent.push(&Frame::new("n").begin()), Some(Vec::new()));
        assert_eq!((silent.shell(), silent.may_introduce()), (None, false));
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
            prop_assert_eq!(collect(&text, cut), (Some(code), body));
        }
    }

    #[test]
    fn what_is_beyond_the_limit_is_counted() {
        let mut kept = Bounded::default();
        [b'x'; 5000].chunks(333).for_each(|chunk| kept.push(chunk, 1000));
        assert_eq!((kept.bytes.len(), kept.dropped), (1000, 4000));
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
        let mut answer = Answer::new(Frame::new("n"));
        for _ in 0..100 {
            answer.push(Bytes::from_static(&[b'.'; 10_000]));
        }
        assert!(answer.noise().len() <= NOISE);
        assert_eq!(&answer.push(Bytes::from_static(b"\x1ebegin-n\nyes\x1eend-n 0\n"))[..], b"yes");
        assert_eq!(answer.ended(), Some(0));
    }
}
