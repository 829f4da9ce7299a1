//! The content of files as a source reads them, piece by piece.

use bytes::Bytes;
use tokio::sync::mpsc;

use super::entry::TreeEntry;
use super::error::TransferError;

/// What to do after a source could not be read.
const RETRY_HINT: &str = "run the same command again: what was complete before stays on the hosts";

/// Pieces of files in order. An error ends them.
pub(super) type ContentPieces = mpsc::Receiver<Result<Bytes, TransferError>>;

/// Pieces that wait for the hosts.
const QUEUED_PIECES: usize = 64;

/// Where a source puts the pieces.
pub(super) type PieceSender = mpsc::Sender<Result<Bytes, TransferError>>;

pub(super) fn piece_channel() -> (PieceSender, ContentPieces) {
    mpsc::channel(QUEUED_PIECES)
}

/// A length as sizes and offsets of files are counted.
pub(super) fn as_u64(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// A file that cannot be read, or changed meanwhile.
pub(super) fn source_error(what: impl Into<String>) -> TransferError {
    TransferError::new(what, RETRY_HINT)
}

/// The pieces of a file ended too early.
pub(super) fn ended_early(entry: &TreeEntry) -> TransferError {
    source_error(format!("{}: it could not be read", entry.name.display()))
}
