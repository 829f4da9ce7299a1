//! Collects a script's output: in memory up to a limit, or forwarded as it arrives.

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::framing::{BoundedBuffer, push_tail};
use crate::remote::OutputChunk;

#[derive(Default)]
pub(super) struct CapturedOutput {
    pub(super) stdout: BoundedBuffer,
    pub(super) stderr: BoundedBuffer,
}

/// Destination of a script's output.
pub(super) enum OutputSink {
    /// In memory, up to a limit per stream.
    Capture(CapturedOutput, usize),
    /// Forwarded as it arrives; the end of standard error is kept.
    Forward(mpsc::Sender<OutputChunk>, Vec<u8>),
}

impl OutputSink {
    /// Keeps up to `limit` bytes per stream.
    pub(super) fn capture(limit: usize) -> Self {
        OutputSink::Capture(CapturedOutput::default(), limit)
    }

    pub(super) fn forward(chunks: mpsc::Sender<OutputChunk>) -> Self {
        OutputSink::Forward(chunks, Vec::new())
    }

    /// Adds a chunk; `false` if it was not taken before the deadline.
    pub(super) async fn push(&mut self, chunk: OutputChunk, deadline: Instant) -> bool {
        match (self, chunk) {
            (OutputSink::Capture(kept, limit), OutputChunk::Stdout(bytes)) => kept.stdout.push(&bytes, *limit),
            (OutputSink::Capture(kept, limit), OutputChunk::Stderr(bytes)) => kept.stderr.push(&bytes, *limit),
            (OutputSink::Forward(chunks, tail), chunk) => {
                if let OutputChunk::Stderr(bytes) = &chunk {
                    push_tail(tail, bytes);
                }
                let (OutputChunk::Stdout(bytes) | OutputChunk::Stderr(bytes)) = &chunk;
                return bytes.is_empty() || matches!(tokio::time::timeout_at(deadline, chunks.send(chunk)).await, Ok(Ok(())));
            }
        }
        true
    }

    /// Completes when the receiver is dropped.
    pub(super) async fn wait_closed(&self) {
        match self {
            OutputSink::Capture(..) => std::future::pending().await,
            OutputSink::Forward(chunks, _) => chunks.closed().await,
        }
    }

    /// The end of standard error.
    pub(super) fn stderr_tail(&self) -> &[u8] {
        match self {
            OutputSink::Capture(kept, _) => &kept.stderr.bytes,
            OutputSink::Forward(_, tail) => tail,
        }
    }

    pub(super) fn into_captured(self) -> CapturedOutput {
        match self {
            OutputSink::Capture(kept, _) => kept,
            OutputSink::Forward(..) => CapturedOutput::default(),
        }
    }
}
