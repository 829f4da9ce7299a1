//! Parses an answer as it arrives: noise, begin mark, body, end mark; keeps up to a limit and counts the rest.

use bytes::Bytes;

use crate::model::script_frame::{EndMarker, ScriptFrame};

/// Bytes kept before the begin mark, to find the mark and to show what came instead.
const MAX_NOISE: usize = 64 << 10;
/// Bytes kept of standard error.
const STDERR_TAIL_BYTES: usize = 4 << 10;
/// Printed by a shell before its script, so that it can be killed by pid where sshd delivers no signals (as root, for example).
pub(super) const PRINT_SHELL_PID: &str = "printf '\\036shell %d\\n' \"$$\"\n";

/// Finds the begin mark after login noise.
pub(super) struct BeginMarkScanner {
    mark: Vec<u8>,
    noise: Vec<u8>,
    /// Whether the mark was seen.
    mark_seen: bool,
}

impl BeginMarkScanner {
    pub(super) fn new(frame: &ScriptFrame) -> Self {
        BeginMarkScanner { mark: frame.begin_marker(), noise: Vec::new(), mark_seen: false }
    }

    /// Adds received bytes; returns those after the mark, once it was seen.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.noise.extend_from_slice(bytes);
        if let Some(at) = memchr::memmem::find(&self.noise, &self.mark) {
            let rest = self.noise.split_off(at + self.mark.len());
            self.noise.truncate(at);
            self.mark_seen = true;
            return Some(rest);
        }
        if self.noise.len() > MAX_NOISE {
            self.noise.drain(..self.noise.len() - MAX_NOISE / 2);
        }
        None
    }

    /// The bytes before the mark, or instead of it.
    pub(super) fn noise(&self) -> &[u8] {
        &self.noise
    }

    /// Whether the shell may still print its pid: it does so before the mark.
    pub(super) fn may_print_shell_pid(&self) -> bool {
        !self.mark_seen && self.shell_pid().is_none()
    }

    /// The pid that the shell printed; never 0 or 1, `None` while the line is incomplete.
    pub(super) fn shell_pid(&self) -> Option<u32> {
        let head = b"\x1eshell ";
        let at = memchr::memmem::rfind(&self.noise, head)? + head.len();
        let line = self.noise.get(at..)?;
        let number = line.get(..memchr::memchr(b'\n', line)?)?;
        std::str::from_utf8(number).ok()?.parse().ok().filter(|pid| *pid > 1)
    }
}

/// Removes the marks from an answer as it arrives.
pub(super) struct FrameDecoder {
    frame: ScriptFrame,
    scanner: BeginMarkScanner,
    /// A possible start of the end mark.
    pending: Vec<u8>,
    exit_status: Option<i32>,
}

impl FrameDecoder {
    pub(super) fn new(frame: ScriptFrame) -> Self {
        let scanner = BeginMarkScanner::new(&frame);
        FrameDecoder { frame, scanner, pending: Vec::new(), exit_status: None }
    }

    /// Adds received bytes; returns the script's output as far as it is certain.
    pub(super) fn push(&mut self, bytes: Bytes) -> Bytes {
        if self.exit_status.is_some() {
            return Bytes::new();
        }
        if self.scanner.mark_seen {
            return self.push_body(bytes);
        }
        let Some(rest) = self.scanner.push(&bytes) else { return Bytes::new() };
        self.push_body(rest.into())
    }

    fn push_body(&mut self, bytes: Bytes) -> Bytes {
        let bytes = if self.pending.is_empty() { bytes } else { [&std::mem::take(&mut self.pending), &bytes[..]].concat().into() };
        match self.frame.find_end_marker(&bytes) {
            EndMarker::None => bytes,
            EndMarker::Partial(at) => {
                self.pending = bytes.slice(at..).to_vec();
                bytes.slice(..at)
            }
            EndMarker::Complete(at, code) => {
                self.exit_status = Some(code);
                bytes.slice(..at)
            }
        }
    }

    /// The script's exit status, once the end mark was seen.
    pub(super) fn exit_status(&self) -> Option<i32> {
        self.exit_status
    }

    /// The bytes before the begin mark, or instead of it.
    pub(super) fn noise(&self) -> &[u8] {
        self.scanner.noise()
    }

    /// The bytes before the answer.
    pub(super) fn into_scanner(self) -> BeginMarkScanner {
        self.scanner
    }
}

/// Bytes up to a limit; the rest is counted.
#[derive(Default)]
pub(super) struct BoundedBuffer {
    pub(super) bytes: Vec<u8>,
    pub(super) dropped: u64,
}

impl BoundedBuffer {
    pub(super) fn push(&mut self, bytes: &[u8], limit: usize) {
        let taken = bytes.len().min(limit.saturating_sub(self.bytes.len()));
        self.bytes.extend_from_slice(bytes.get(..taken).unwrap_or_default());
        self.dropped = self.dropped.saturating_add(u64::try_from(bytes.len() - taken).unwrap_or(u64::MAX));
    }
}

/// Adds bytes of standard error; only the end is kept, for error messages.
pub(super) fn push_tail(tail: &mut Vec<u8>, bytes: &[u8]) {
    tail.extend_from_slice(bytes);
    tail.drain(..tail.len().saturating_sub(STDERR_TAIL_BYTES));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode_in_chunks(text: &[u8], cut: usize) -> (Option<i32>, Vec<u8>) {
        let mut answer = FrameDecoder::new(ScriptFrame::new("n"));
        let body = text.chunks(cut).flat_map(|chunk| answer.push(Bytes::copy_from_slice(chunk))).collect();
        (answer.exit_status(), body)
    }

    #[test]
    fn shell_pid_needs_a_complete_line_before_mark() {
        let mut scanner = BeginMarkScanner::new(&ScriptFrame::new("n"));
        assert_eq!(scanner.push(b"motd\n\x1eshell 12"), None);
        assert_eq!((scanner.shell_pid(), scanner.may_print_shell_pid()), (None, true));
        assert_eq!(scanner.push(b"34\n"), None);
        assert_eq!((scanner.shell_pid(), scanner.may_print_shell_pid()), (Some(1234), false));
        assert_eq!(scanner.push(b"\x1ebegin-n\nrest"), Some(b"rest".to_vec()));
        assert_eq!(scanner.shell_pid(), Some(1234));
        let mut silent = BeginMarkScanner::new(&ScriptFrame::new("n"));
        assert_eq!(silent.push(&ScriptFrame::new("n").begin_marker()), Some(Vec::new()));
        assert_eq!((silent.shell_pid(), silent.may_print_shell_pid()), (None, false));
        let mut init = BeginMarkScanner::new(&ScriptFrame::new("n"));
        init.push(b"\x1eshell 1\n");
        assert_eq!(init.shell_pid(), None);
    }

    proptest! {
        #[test]
        fn decoding_is_independent_of_chunking(
            noise in prop::collection::vec(any::<u8>(), 0..300),
            body in prop::collection::vec(prop_oneof![Just(0x1e_u8), any::<u8>()], 0..2000),
            code in 0..256_i32,
            cut in 1_usize..700,
        ) {
            let mut text = noise;
            text.extend(ScriptFrame::new("n").begin_marker());
            text.extend(&body);
            text.extend(format!("\u{1e}end-n {code}\n").bytes());
            text.extend(b"logout\n");
            prop_assert_eq!(decode_in_chunks(&text, cut), (Some(code), body));
        }
    }

    #[test]
    fn bounded_buffer_counts_dropped_bytes() {
        let mut kept = BoundedBuffer::default();
        [b'x'; 5000].chunks(333).for_each(|chunk| kept.push(chunk, 1000));
        assert_eq!((kept.bytes.len(), kept.dropped), (1000, 4000));
    }

    #[test]
    fn noise_buffer_is_bounded() {
        let mut answer = FrameDecoder::new(ScriptFrame::new("n"));
        for _ in 0..100 {
            answer.push(Bytes::from_static(&[b'.'; 10_000]));
        }
        assert!(answer.noise().len() <= MAX_NOISE);
        assert_eq!(&answer.push(Bytes::from_static(b"\x1ebegin-n\nyes\x1eend-n 0\n"))[..], b"yes");
        assert_eq!(answer.exit_status(), Some(0));
    }
}
