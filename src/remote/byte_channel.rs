//! A channel bounded in bytes. The SSH reader must never wait for a consumer, so a host
//! that sends more than the bound without a request is cut off.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::mpsc;

/// Overhead of a chunk besides its bytes.
const CHUNK_OVERHEAD: usize = 128;

#[derive(Debug)]
pub struct ByteReceiver<E> {
    chunks: mpsc::UnboundedReceiver<Result<Bytes, E>>,
    queued_bytes: Arc<AtomicUsize>,
    /// An error that `try_recv` met.
    error: Option<E>,
}

/// The SSH reader's end.
#[derive(Debug)]
pub(crate) struct ByteSender<E> {
    // Bounded by `max_bytes`: a chunk that does not fit is not sent, and nothing after it.
    chunks: mpsc::UnboundedSender<Result<Bytes, E>>,
    queued_bytes: Arc<AtomicUsize>,
    max_bytes: usize,
}

/// A channel in which at most `max` bytes may wait.
pub(crate) fn byte_channel<E>(max: usize) -> (ByteSender<E>, ByteReceiver<E>) {
    let (sender, pieces) = mpsc::unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    (
        ByteSender { chunks: sender, queued_bytes: waiting.clone(), max_bytes: max },
        ByteReceiver { chunks: pieces, queued_bytes: waiting, error: None },
    )
}

impl<E> ByteReceiver<E> {
    /// The next chunk or error; `None` after the last.
    pub async fn recv(&mut self) -> Option<Result<Bytes, E>> {
        if let Some(error) = self.error.take() {
            return Some(Err(error));
        }
        let chunk = self.chunks.recv().await?;
        Some(chunk.inspect(|bytes| self.release(bytes)))
    }

    /// The next chunk, if it is there now.
    pub(crate) fn try_recv(&mut self) -> Option<Bytes> {
        match self.chunks.try_recv().ok()? {
            Ok(bytes) => {
                self.release(&bytes);
                Some(bytes)
            }
            Err(error) => {
                self.error = Some(error);
                None
            }
        }
    }

    fn release(&self, chunk: &Bytes) {
        self.queued_bytes.fetch_sub(chunk.len() + CHUNK_OVERHEAD, Ordering::Relaxed);
    }
}

impl<E> ByteSender<E> {
    /// Sends a chunk; `false` if the receiver is gone or the bound is exceeded, which the receiver gets as this error.
    pub(crate) fn send(&self, bytes: Bytes, flooded: impl FnOnce(usize) -> E) -> bool {
        let weight = bytes.len() + CHUNK_OVERHEAD;
        if self.queued_bytes.fetch_add(weight, Ordering::Relaxed) + weight > self.max_bytes {
            self.fail(flooded(self.max_bytes));
            return false;
        }
        self.chunks.send(Ok(bytes)).is_ok()
    }

    /// Sends the reason for the end to the receiver.
    pub(crate) fn fail(&self, error: E) {
        if self.chunks.send(Err(error)).is_err() {
            tracing::debug!("no task reads this stream any more");
        }
    }

    /// Waits until the receiver is dropped.
    pub(crate) async fn wait_closed(&self) {
        self.chunks.closed().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sender_over_byte_limit_is_cut_off() {
        let (sender, mut inflow) = byte_channel::<usize>(1 << 20);
        let piece = Bytes::from_static(&[b'x'; 32 << 10]);
        // A receiver that keeps up can read without limit.
        for _ in 0..1000 {
            assert!(sender.send(piece.clone(), |most| most));
            assert!(matches!(inflow.recv().await, Some(Ok(_))));
        }
        let taken = (0..1000).take_while(|_| sender.send(piece.clone(), |most| most)).count();
        assert!((30..32).contains(&taken), "{taken} pieces of 32 KiB within 1 MiB");
        for _ in 0..taken {
            assert!(matches!(inflow.recv().await, Some(Ok(_))));
        }
        assert_eq!(inflow.recv().await, Some(Err(1 << 20)));
        // What is there is taken without waiting; the reason for the end stays for `recv`.
        assert!(sender.send(piece.clone(), |most| most));
        sender.fail(7);
        assert_eq!((inflow.try_recv(), inflow.try_recv(), inflow.recv().await), (Some(piece), None, Some(Err(7))));
        // Small chunks count with their overhead.
        let taken = (0..100_000).take_while(|_| sender.send(Bytes::new(), |most| most)).count();
        assert!(taken < 10_000, "{taken}");
    }
}
