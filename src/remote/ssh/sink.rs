//! Where what a script writes goes: into memory up to a limit, or to someone who takes it as it comes.
//!
//! Uses `collect`.

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::collect::Bounded;
use crate::remote::Piece;

/// What is kept of a passed script's standard error, for its last words.
const LAST_WORDS: usize = 4 << 10;

/// What was kept.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) stdout: Bounded,
    pub(super) stderr: Bounded,
}

/// Takes what a script writes.
pub(super) enum Sink {
    /// Into memory, up to so many bytes of each.
    Keep(Kept, usize),
    /// To someone who takes it as it comes; the last words are kept.
    Pass(mpsc::Sender<Piece>, Bounded),
}

impl Sink {
    /// Keeps up to `limit` bytes of each.
    pub(super) fn keep(limit: usize) -> Self {
        Sink::Keep(Kept::default(), limit)
    }

    /// Passes on.
    pub(super) fn pass(pieces: mpsc::Sender<Piece>) -> Self {
        Sink::Pass(pieces, Bounded::default())
    }

    /// Takes a piece; whether it was taken before the deadline.
    pub(super) async fn take(&mut self, piece: Piece, deadline: Instant) -> bool {
        match (self, piece) {
            (Sink::Keep(kept, limit), Piece::Out(bytes)) => kept.stdout.push(&bytes, *limit),
            (Sink::Keep(kept, limit), Piece::Err(bytes)) => kept.stderr.push(&bytes, *limit),
            (Sink::Pass(pieces, words), piece) => {
                if let Piece::Err(bytes) = &piece {
                    words.roll(bytes, LAST_WORDS);
                }
                return piece.is_empty() || matches!(tokio::time::timeout_at(deadline, pieces.send(piece)).await, Ok(Ok(())));
            }
        }
        true
    }

    /// Ends when nobody takes pieces any more.
    pub(super) async fn unread(&self) {
        match self {
            Sink::Keep(..) => std::future::pending().await,
            Sink::Pass(pieces, _) => pieces.closed().await,
        }
    }

    /// The newest of standard error.
    pub(super) fn last_words(&self) -> &[u8] {
        match self {
            Sink::Keep(kept, _) => &kept.stderr.bytes,
            Sink::Pass(_, words) => &words.bytes,
        }
    }

    /// What was kept.
    pub(super) fn kept(self) -> Kept {
        match self {
            Sink::Keep(kept, _) => kept,
            Sink::Pass(..) => Kept::default(),
        }
    }
}
