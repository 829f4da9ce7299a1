//! What a stream brings, on its way to whoever reads it. The SSH reader may not wait for anyone, so what waits here is bounded by its bytes: a host
//! that sends more than that without being asked for more is cut off.
//!
//! Uses nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::mpsc;

/// What a piece weighs beside its bytes.
const WEIGHT: usize = 128;

/// The reading end.
#[derive(Debug)]
pub struct Inflow<E> {
    pieces: mpsc::UnboundedReceiver<Result<Bytes, E>>,
    waiting: Arc<AtomicUsize>,
}

/// The SSH reader's end.
#[derive(Debug)]
pub(crate) struct InflowSender<E> {
    // Bounded by `most`: a piece that does not fit is not sent, and nothing is sent after it.
    pieces: mpsc::UnboundedSender<Result<Bytes, E>>,
    waiting: Arc<AtomicUsize>,
    most: usize,
}

/// A way for pieces of which at most `most` bytes may wait.
pub(crate) fn inflow<E>(most: usize) -> (InflowSender<E>, Inflow<E>) {
    let (sender, pieces) = mpsc::unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    (InflowSender { pieces: sender, waiting: waiting.clone(), most }, Inflow { pieces, waiting })
}

impl<E> Inflow<E> {
    /// The next piece, or why there is none; `None` after the last.
    pub async fn recv(&mut self) -> Option<Result<Bytes, E>> {
        let piece = self.pieces.recv().await?;
        if let Ok(bytes) = &piece {
            self.waiting.fetch_sub(bytes.len() + WEIGHT, Ordering::Relaxed);
        }
        Some(piece)
    }
}

impl<E> InflowSender<E> {
    /// Hands a piece over; `false`: nothing more is wanted, or the host has sent more than may wait, which the reader is told in these words.
    pub(crate) fn send(&self, bytes: Bytes, flooded: impl FnOnce(usize) -> E) -> bool {
        let weight = bytes.len() + WEIGHT;
        if self.waiting.fetch_add(weight, Ordering::Relaxed) + weight > self.most {
            self.fail(flooded(self.most));
            return false;
        }
        self.pieces.send(Ok(bytes)).is_ok()
    }

    /// Tells the reader why nothing more comes.
    pub(crate) fn fail(&self, error: E) {
        if self.pieces.send(Err(error)).is_err() {
            tracing::debug!("nobody reads this stream any more");
        }
    }

    /// Waits until nobody reads any more.
    pub(crate) async fn closed(&self) {
        self.pieces.closed().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_host_that_sends_without_being_asked_is_cut_off_within_its_bytes() {
        let (sender, mut inflow) = inflow::<usize>(1 << 20);
        let piece = Bytes::from_static(&[b'x'; 32 << 10]);
        // Who reads as it comes may read for ever.
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
        // Small pieces weigh as well.
        let taken = (0..100_000).take_while(|_| sender.send(Bytes::new(), |most| most)).count();
        assert!(taken < 10_000, "{taken}");
    }
}
