//! Where what a script writes goes: into memory up to a limit, or to someone who takes it as it comes.
//!
//! Uses `collect`.

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::framing::BoundedBuffer;
use crate::remote::OutputChunk;

/// What is kept of a passed script's standard error, for its last words.
const STDERR_TAIL_BYTES: usize = 4 << 10;

#[derive(Default)]
pub(super) struct CapturedOutput {
    pub(super) stdout: BoundedBuffer,
    pub(super) stderr: BoundedBuffer,
}

/// Takes what a script writes.
pub(super) enum OutputSink {
    /// Into memory, up to so many bytes of each.
    Capture(CapturedOutput, usize),
    /// To someone who takes it as it comes; the last words are kept.
    Forward(mpsc::Sender<OutputChunk>, BoundedBuffer),
}

impl OutputSink {
    /// Keeps up to `limit` bytes of each.
    pub(super) fn capture(limit: usize) -> Self {
        OutputSink::Capture(CapturedOutput::default(), limit)
    }

    pub(super) fn forward(chunks: mpsc::Sender<OutputChunk>) -> Self {
        OutputSink::Forward(chunks, BoundedBuffer::default())
    }

    /// Takes a piece; whether it was taken before the deadline.
    pub(super) async fn push(&mut self, chunk: OutputChunk, deadline: Instant) -> bool {
        match (self, chunk) {
            (OutputSink::Capture(kept, limit), OutputChunk::Stdout(bytes)) => kept.stdout.push(&bytes, *limit),
            (OutputSink::Capture(kept, limit), OutputChunk::Stderr(bytes)) => kept.stderr.push(&bytes, *limit),
            (OutputSink::Forward(pieces, words), piece) => {
                if let OutputChunk::Stderr(bytes) = &piece {
                    words.push_rolling(bytes, STDERR_TAIL_BYTES);
                }
                return piece.is_empty() || matches!(tokio::time::timeout_at(deadline, pieces.send(piece)).await, Ok(Ok(())));
            }
        }
        true
    }

    /// Ends when nobody takes pieces any more.
    pub(super) async fn wait_closed(&self) {
        match self {
            OutputSink::Capture(..) => std::future::pending().await,
            OutputSink::Forward(pieces, _) => pieces.closed().await,
        }
    }

    /// The newest of standard error.
    pub(super) fn stderr_tail(&self) -> &[u8] {
        match self {
            OutputSink::Capture(kept, _) => &kept.stderr.bytes,
            OutputSink::Forward(_, words) => &words.bytes,
        }
    }

    pub(super) fn into_captured(self) -> CapturedOutput {
        match self {
            OutputSink::Capture(kept, _) => kept,
            OutputSink::Forward(..) => CapturedOutput::default(),
        }
    }
}
