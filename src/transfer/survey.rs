//! Opens a session with a host and finds out what a tree would change there. Changes nothing.

use super::compare::{Change, TreeChanges, compare_trees, find_deletions};
use super::entry::{EntryKind, SYNC_MARKER, TreeEntry};
use super::error::TransferError;
use super::host_hello::{DirectoryState, HostHello, SyncMarker};
use super::host_stream::{HostDirectory, HostStream};
use super::listing::{HostListing, ListingReader};
use super::local_tree::left_out::LocalFilter;
use crate::remote::Remote;

/// Space that a transfer leaves free on a host.
const RESERVED_SPACE: u64 = 16 << 20;
/// What a small file takes on a disk beyond its bytes.
const FILE_OVERHEAD: u64 = 4 << 10;

/// A host with an open session.
pub(crate) struct SurveyedHost {
    /// Its number among the hosts of the transfer.
    pub(crate) host: usize,
    pub(crate) stream: HostStream,
    pub(crate) hello: HostHello,
    pub(crate) changes: TreeChanges,
    /// The directory is to be marked as made by a sync.
    pub(crate) mark: bool,
}

/// What a directory of a host is to hold.
#[derive(Clone, Copy)]
pub(crate) struct WantedTree<'a> {
    pub(crate) entries: &'a [TreeEntry],
    /// The whole directory is compared, not these names alone.
    pub(crate) is_directory: bool,
    /// Whether a directory that is new or empty is marked as made by a sync.
    pub(crate) mark: bool,
    /// What else is in the directory is removed, unless this filter leaves it out.
    pub(crate) delete: Option<&'a LocalFilter>,
}

/// Which entries of a host are listed.
pub(crate) enum ListingScope<'a> {
    Tree,
    /// What is in the directory itself, not below.
    Children,
    Names(&'a [TreeEntry]),
}

/// Compares what is wanted with the directory of one host.
///
/// # Errors
/// The host cannot be reached, or cannot take the tree.
pub(crate) async fn survey_host(
    (host, remote): (usize, &dyn Remote),
    directory: &HostDirectory,
    wanted: WantedTree<'_>,
    nonce: &str,
) -> Result<SurveyedHost, TransferError> {
    let (mut stream, hello) = HostStream::open(remote, directory, nonce).await?;
    let found = match hello.state {
        DirectoryState::NoDirectory => {
            let hint = "choose another destination, or give the ssh user access to it";
            return Err(TransferError::new(format!("{}: it is no directory, or there is no permission to enter it", hello.path), hint));
        }
        DirectoryState::Missing => HostListing::default(),
        DirectoryState::Exists if wanted.is_directory => read_listing(&mut stream, ListingScope::Tree).await?,
        DirectoryState::Exists => read_listing(&mut stream, ListingScope::Names(wanted.entries)).await?,
    };
    let mut changes = compare_trees(wanted.entries, &found.entries);
    if let Some((index, noun)) = changes.conflicts.first() {
        return Err(conflict_error(&hello, wanted.entries.get(*index), noun));
    }
    if let Some(filter) = wanted.delete {
        changes.deletions = find_deletions(wanted.entries, &found.entries, |entry| filter.leaves_out(entry));
    }
    if let Some(first) = changes.deletions.last()
        && hello.marker != SyncMarker::Present
    {
        return Err(unmarked_error(&hello, changes.deletions.len(), first));
    }
    check_space(&hello, &changes, wanted.entries)?;
    let mark = wanted.mark && hello.marker == SyncMarker::Missing && found.entries.is_empty() && found.refused_count == 0;
    Ok(SurveyedHost { host, stream, hello, changes, mark })
}

fn unmarked_error(hello: &HostHello, count: usize, first: &TreeEntry) -> TransferError {
    let (reason, hint) = match hello.marker {
        SyncMarker::OtherPath => (
            format!("its {SYNC_MARKER} is for another path, or a link leads here"),
            "write `to` as the sync that made the directory did (the last line of that file); if everything in it may go, empty the file there"
                .to_owned(),
        ),
        SyncMarker::Missing | SyncMarker::Present => (
            "no sync has made this directory".to_owned(),
            format!("leave out `delete`, or remove the directory there; if everything else in it may go, make the empty file {SYNC_MARKER} in it"),
        ),
    };
    let first = first.name.display();
    TransferError::new(format!("{}: {count} entries, for example {first}, would be removed, but {reason}", hello.path), hint)
}

fn conflict_error(hello: &HostHello, entry: Option<&TreeEntry>, noun: &str) -> TransferError {
    let Some(entry) = entry else { return TransferError::protocol("an unknown entry") };
    let path = format!("{}/{}", hello.path.trim_end_matches('/'), entry.name.display());
    let hint = match (&entry.kind, noun) {
        (EntryKind::File { .. }, "a directory") => {
            format!("write `{path}/` as the destination to put the file inside, or remove the directory")
        }
        _ => format!("remove {noun} there, or choose another destination; nothing is written through a link"),
    };
    TransferError::new(format!("{path} is {noun}, not {}", entry.kind.noun()), hint)
}

fn check_space(hello: &HostHello, changes: &TreeChanges, entries: &[TreeEntry]) -> Result<(), TransferError> {
    let sent = changes.changes.iter().filter(|(_, change)| *change != Change::Mode).filter_map(|(index, _)| entries.get(*index));
    // Blocks of holes are not counted: what is not sent needs no space.
    let needed = sent.fold(0_u64, |sum, entry| sum.saturating_add(entry.size()).saturating_add(FILE_OVERHEAD));
    match hello.free {
        Some(free) if needed > 0 && needed.saturating_add(RESERVED_SPACE) > free => Err(TransferError::new(
            format!(
                "{}: no space: {} MiB are needed, {} MiB are free",
                hello.path,
                needed.saturating_add(RESERVED_SPACE).div_ceil(1 << 20),
                free >> 20
            ),
            "free space there, or choose a directory on another disk",
        )),
        _ => Ok(()),
    }
}

/// Lists a tree or some names of the session's directory.
///
/// # Errors
/// The host cannot be reached or violates the protocol.
pub(crate) async fn read_listing(stream: &mut HostStream, scope: ListingScope<'_>) -> Result<HostListing, TransferError> {
    match scope {
        ListingScope::Tree => stream.bulk_command("T", b"").await?,
        ListingScope::Children => stream.bulk_command("L", b"").await?,
        ListingScope::Names(entries) => {
            let names = name_list(entries.iter());
            stream.bulk_command(&format!("S {}", names.len()), &names).await?;
        }
    }
    read_records(stream).await
}

/// Reads the answer to `T`, `L` or `S`.
///
/// # Errors
/// The host cannot be reached or violates the protocol.
pub(super) async fn read_records(stream: &mut HostStream) -> Result<HostListing, TransferError> {
    let mut reader = ListingReader::new(stream.nonce());
    loop {
        let bytes = stream.read_bulk().await?;
        if reader.push(&bytes).map_err(TransferError::protocol)? {
            return Ok(reader.finish());
        }
    }
}

/// Names for `xargs -0`, below `.` so that none is taken for an option.
pub(crate) fn name_list<'a>(entries: impl Iterator<Item = &'a TreeEntry>) -> Vec<u8> {
    entries.fold(Vec::new(), |mut all, entry| {
        all.extend_from_slice(b"./");
        all.extend_from_slice(entry.name.as_bytes());
        all.push(0);
        all
    })
}
