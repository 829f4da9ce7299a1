//! Where the files of a transfer to hosts come from: the laptop, or another host, whose files are relayed as they arrive.

use super::content_pieces::ContentPieces;
use super::entry::TreeEntry;
use super::error::TransferError;
use super::host_files::HostFiles;
use super::local_tree::LocalTree;
use super::survey::WantedTree;

/// What is done to a directory beyond sending the files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SyncMode {
    /// A directory that is new or empty is marked as made by a sync.
    pub(crate) mark: bool,
    /// What the source does not have is removed, in a marked directory alone.
    pub(crate) delete: bool,
}

pub(crate) enum TreeSource {
    Local(LocalTree),
    Host(HostFiles),
}

impl TreeSource {
    /// Sorted by name.
    pub(crate) fn entries(&self) -> &[TreeEntry] {
        match self {
            TreeSource::Local(tree) => &tree.entries,
            TreeSource::Host(files) => files.entries(),
        }
    }

    /// Whether the laptop has the files.
    pub(super) fn is_local(&self) -> bool {
        matches!(self, TreeSource::Local(_))
    }

    /// What hosts are to have.
    pub(crate) fn wanted_tree(&self, mode: SyncMode) -> WantedTree<'_> {
        let left_out = match self {
            TreeSource::Local(tree) => tree.left_out(),
            TreeSource::Host(_) => None,
        };
        WantedTree {
            entries: self.entries(),
            is_directory: left_out.is_some(),
            mark: mode.mark && left_out.is_some(),
            delete: left_out.filter(|_| mode.delete),
        }
    }

    /// Whether a file of the laptop has holes; those of a host's file are not known.
    pub(super) fn has_holes(&self, index: usize) -> bool {
        matches!(self, TreeSource::Local(tree) if tree.has_holes(index))
    }

    /// Reads these files in order, each from its offset to its end; after the last one, whether it changed meanwhile.
    pub(super) fn read_contents(&self, files: Vec<(usize, u64)>) -> ContentPieces {
        match self {
            TreeSource::Local(tree) => tree.read_contents(files),
            TreeSource::Host(host_files) => host_files.read_contents(files),
        }
    }

    /// The checksum of the beginning of a file up to each of these offsets, which are sorted.
    pub(super) async fn prefix_digests(&self, index: usize, offsets: Vec<u64>) -> Result<Vec<String>, TransferError> {
        match self {
            TreeSource::Local(tree) => tree.prefix_digests(index, offsets).await,
            TreeSource::Host(files) => files.prefix_digests(index, &offsets).await,
        }
    }
}
