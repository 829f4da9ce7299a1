//! What a pull from one host would change on the laptop. Changes nothing.

use std::path::Path;

use super::compare::{TreeChanges, compare_trees};
use super::entry::{EntryKind, TreeEntry, TreeName, link_stays_inside};
use super::error::TransferError;
use super::host_hello::DirectoryState;
use super::host_stream::{HostDirectory, HostStream};
use super::local_dir::{LocalDir, free_bytes};
use super::survey::{ListingScope, read_listing};
use crate::remote::Remote;

/// Space that is left free on the laptop.
const RESERVED_SPACE: u64 = 256 << 20;
/// Lines about what was not copied.
pub(super) const MAX_SKIPPED: usize = 20;

/// What is pulled from a host.
pub(crate) struct PullSource {
    pub(crate) directory: HostDirectory,
    /// The directory and name to use if it is a file.
    pub(crate) as_file: Option<(HostDirectory, TreeName)>,
}

/// A host's tree compared with the laptop's copy.
pub(crate) struct PullSurvey {
    pub(crate) changes: TreeChanges,
    pub(crate) entries: Vec<TreeEntry>,
    /// What is not copied, and why; at most 20 lines.
    pub(crate) skipped: Vec<String>,
    pub(super) stream: HostStream,
    pub(super) local: Option<LocalDir>,
}

/// Lists a host's tree and compares it with `destination/name`.
///
/// # Errors
/// The host cannot be reached, there is nothing, or the laptop has no space.
pub(crate) async fn survey_pull(
    remote: &dyn Remote,
    source: &PullSource,
    (destination, name): (&Path, &str),
    nonce: &str,
) -> Result<PullSurvey, TransferError> {
    let (mut stream, hello) = HostStream::open(remote, &source.directory, nonce).await?;
    let listing = match (hello.state, &source.as_file) {
        (DirectoryState::Exists, _) => read_listing(&mut stream, ListingScope::Tree).await?,
        (DirectoryState::NoDirectory, Some((directory, file))) => {
            stream.finish().await?;
            (stream, _) = HostStream::open(remote, directory, nonce).await?;
            let probe = TreeEntry { name: file.clone(), kind: EntryKind::Directory, mode: 0, mtime: 0 };
            let listing = read_listing(&mut stream, ListingScope::Names(&[probe])).await?;
            if listing.entries.iter().any(|entry| entry.kind == EntryKind::Directory) {
                let what = format!("{}: there is no permission to enter it", source.directory.path);
                return Err(TransferError::new(what, "give the ssh user access to the directory on the host"));
            }
            listing
        }
        _ => return Err(TransferError::new(format!("{}: no such file or directory", source.directory.path), "check the path on the host")),
    };
    let mut skipped: Vec<String> = listing.refused.clone();
    if listing.refused_count > skipped.len() {
        skipped.push(format!("… {} more names", listing.refused_count - skipped.len()));
    }
    let mut entries = listing.entries;
    entries.retain(|entry| match refusal(entry) {
        Some(reason) if skipped.len() < MAX_SKIPPED => {
            skipped.push(format!("{}: {reason}", entry.name.display()));
            false
        }
        refused => refused.is_none(),
    });
    let mut local = LocalDir::open(destination, name, nonce, false).map_err(local_error)?;
    let found: Vec<TreeEntry> = entries.iter().filter_map(|entry| local.as_mut()?.find(&entry.name)).collect();
    let changes = compare_trees(&entries, &found);
    if let Some((index, noun)) = changes.conflicts.first()
        && let Some(entry) = entries.get(*index)
    {
        let path = destination.join(name).join(entry.name.display());
        let what = format!("{} is {noun} on this laptop, not {}", path.display(), entry.kind.noun());
        return Err(TransferError::new(what, "remove it, or choose another destination"));
    }
    if let Some(free) = free_bytes(destination)
        && changes.bytes > 0
        && changes.bytes.saturating_add(RESERVED_SPACE) > free
    {
        let what = format!(
            "{}: no space on this laptop: {} MiB are announced, {} MiB are free",
            destination.display(),
            changes.bytes >> 20,
            free >> 20
        );
        return Err(TransferError::new(what, "free space, or choose a destination on another disk"));
    }
    Ok(PullSurvey { changes, entries, skipped, stream, local })
}

fn refusal(entry: &TreeEntry) -> Option<String> {
    match &entry.kind {
        EntryKind::Special(noun) => Some(format!("{noun} is not copied")),
        EntryKind::Link(text) if !link_stays_inside(&entry.name, text) => Some("the link leads out of the directory".to_owned()),
        _ => None,
    }
}

pub(super) fn local_error(what: String) -> TransferError {
    TransferError::new(what, "check the destination on this laptop")
}

/// Ends a session that changes nothing.
pub(crate) async fn end_survey(survey: PullSurvey) -> Result<Vec<String>, TransferError> {
    survey.stream.finish().await?;
    Ok(survey.skipped)
}
