//! Reads one file of a host through a session, from a whole MiB on: never more than was announced, and proven at the end.

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::content_pieces::as_u64;
use super::digest::hex;
use super::entry::TreeEntry;
use super::error::TransferError;
use super::host_stream::HostStream;
use super::survey::name_list;

/// A file is read from a multiple of this on.
pub(super) const BLOCK: u64 = 1 << 20;

/// The host's answer after the last byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileEnd {
    Unchanged,
    /// It changed while it was read, vanished, or cannot be read.
    Changed,
    /// What arrived is not what was sent.
    Damaged,
}

pub(super) struct HostFileReader<'a> {
    stream: &'a mut HostStream,
    entry: &'a TreeEntry,
    digest: Sha256,
    left: u64,
}

/// A name for the script, without the NUL of a list.
pub(super) fn script_name(entry: &TreeEntry) -> Vec<u8> {
    let mut name = name_list(std::iter::once(entry));
    name.pop();
    name
}

/// Asks for the checksum of the first `size` bytes of a file; the answer is read later.
pub(super) async fn ask_prefix_digest(stream: &mut HostStream, entry: &TreeEntry, size: u64) -> Result<(), TransferError> {
    let name = script_name(entry);
    stream.command(&format!("P {size} {}", name.len()), "P").await?;
    stream.send(&name).await
}

impl<'a> HostFileReader<'a> {
    /// Starts after `blocks` whole MiB.
    pub(super) async fn start(stream: &'a mut HostStream, entry: &'a TreeEntry, blocks: u64) -> Result<HostFileReader<'a>, TransferError> {
        let left = entry.size().saturating_sub(blocks.saturating_mul(BLOCK));
        let name = script_name(entry);
        stream.bulk_command(&format!("R {blocks} {left} {}", name.len()), &name).await?;
        Ok(HostFileReader { stream, entry, digest: Sha256::new(), left })
    }

    /// The next bytes; `None` after the last one.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, TransferError> {
        if self.left == 0 {
            return Ok(None);
        }
        let mut bytes = self.stream.read_bulk().await?;
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        let rest = bytes.split_off(most);
        self.stream.unread(&rest);
        self.left -= as_u64(bytes.len());
        self.digest.update(&bytes);
        Ok(Some(bytes))
    }

    /// Reads what the host says about the whole of it.
    pub(super) async fn finish(self) -> Result<FileEnd, TransferError> {
        let line = self.stream.read_line().await?;
        let (sum, read) = line.strip_prefix("R ").and_then(|line| line.split_once(' ')).unwrap_or_default();
        Ok(if sum != hex(self.digest) {
            FileEnd::Damaged
        } else if read == format!("0 {} {}", self.entry.size(), self.entry.mtime) {
            FileEnd::Unchanged
        } else {
            FileEnd::Changed
        })
    }
}
