//! Files of one host that other hosts get: found by a name or a pattern, and relayed as they come, without a copy on the laptop. The host is not
//! trusted: its names pass the grammar, and no more of a file is taken than it announced.

use std::sync::{Arc, PoisonError};

use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::content_pieces::{ContentPieces, PieceSender, piece_channel, source_error};
use super::entry::{EntryKind, TreeEntry, TreeName};
use super::error::TransferError;
use super::host_file_reader::{BLOCK, FileEnd, HostFileReader, ask_prefix_digest};
use super::host_hello::DirectoryState;
use super::host_stream::{HostDirectory, HostStream};
use super::survey::{ListingScope, read_listing};
use crate::remote::Remote;
use crate::text::glob::{file_name_matches, has_wildcards};

/// More files of one pattern are refused.
const MAX_FILES: usize = 10_000;

/// What to do about a directory of the source host that cannot be read.
const READ_HINT: &str = "check the path with `ls -ld` on that host, and let the ssh user enter and read the directory and those above it";

/// What is looked for on the source host.
#[derive(Debug, Clone)]
pub(crate) struct HostFilesQuery {
    /// The host's name, for messages.
    pub(crate) host: String,
    /// Absolute or `~/…`.
    pub(crate) directory: String,
    /// A file name, or a pattern for file names.
    pub(crate) pattern: String,
    /// The name that a single file gets.
    pub(crate) rename: Option<Vec<u8>>,
    /// The mode that every file gets; `None`: its own.
    pub(crate) mode: Option<u32>,
}

impl HostFilesQuery {
    fn path(&self) -> String {
        format!("{}/{}", self.directory.trim_end_matches('/'), self.pattern)
    }

    /// An error of the source host: it names the host.
    fn error(&self, what: impl std::fmt::Display, hint: &str) -> TransferError {
        TransferError::new(format!("host {}: {}: {what}", self.host, self.path()), hint)
    }

    /// An error of the session with the source host.
    pub(crate) fn named(&self, error: TransferError) -> TransferError {
        TransferError { what: format!("source host {}: {}", self.host, error.what), of_source: true, ..error }
    }
}

pub(crate) struct HostFiles {
    query: HostFilesQuery,
    /// As the hosts get them.
    entries: Vec<TreeEntry>,
    /// As they are on the source host, in the same order.
    found: Arc<Vec<TreeEntry>>,
    stream: Arc<Mutex<HostStream>>,
    /// Read the files; they end with this value.
    readers: std::sync::Mutex<JoinSet<()>>,
}

impl HostFiles {
    /// Opens a session with the source host and looks for the files.
    ///
    /// # Errors
    /// The host cannot be reached, or has no such file.
    pub(crate) async fn find(remote: &dyn Remote, query: HostFilesQuery, nonce: &str) -> Result<HostFiles, TransferError> {
        let (mut stream, hello) =
            HostStream::open(remote, &HostDirectory::on_host(&query.directory), nonce).await.map_err(|error| query.named(error))?;
        let found = match hello.state {
            DirectoryState::Exists => list_matching(&mut stream, &query).await?,
            DirectoryState::Missing => Vec::new(),
            DirectoryState::NoDirectory => {
                return Err(query.error("its directory cannot be entered: it is none, or permission is denied", READ_HINT));
            }
        };
        if found.is_empty() {
            let what = if has_wildcards(&query.pattern) { "no file matches" } else { "no such file" };
            return Err(query.error(what, "run the task that makes it first, without --tags or --start-at, or correct the path"));
        }
        let entries = found.iter().map(|entry| query.target_entry(entry)).collect::<Result<_, _>>()?;
        Ok(HostFiles { query, entries, found: Arc::new(found), stream: Arc::new(Mutex::new(stream)), readers: std::sync::Mutex::default() })
    }

    pub(super) fn entries(&self) -> &[TreeEntry] {
        &self.entries
    }

    pub(super) fn read_contents(&self, files: Vec<(usize, u64)>) -> ContentPieces {
        let (sender, pieces) = piece_channel();
        let (found, stream, query) = (self.found.clone(), self.stream.clone(), self.query.clone());
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        while readers.try_join_next().is_some() {}
        readers.spawn(async move {
            let read = async {
                let mut stream = stream.lock().await;
                for (index, offset) in files {
                    let Some(entry) = found.get(index) else { return };
                    if let Err(error) = relay_file(&mut stream, entry, offset, (&query, &sender)).await {
                        // A receiver that is gone wants no reason.
                        drop(sender.send(Err(error)).await);
                        return;
                    }
                }
            };
            tokio::select! {
                () = read => {}
                () = sender.closed() => {}
            }
        });
        pieces
    }

    pub(super) async fn prefix_digests(&self, index: usize, offsets: &[u64]) -> Result<Vec<String>, TransferError> {
        let Some(entry) = self.found.get(index) else { return Err(TransferError::protocol("no such file")) };
        let mut stream = self.stream.lock().await;
        let mut digests = Vec::new();
        for offset in offsets {
            let asked = async {
                ask_prefix_digest(&mut stream, entry, *offset).await?;
                stream.answer().await
            };
            digests.push(asked.await.map_err(|error| self.query.named(error))?);
        }
        Ok(digests)
    }
}

impl HostFilesQuery {
    /// What a file becomes on the hosts.
    fn target_entry(&self, found: &TreeEntry) -> Result<TreeEntry, TransferError> {
        let name = match &self.rename {
            Some(name) => TreeName::parse(name).map_err(TransferError::protocol)?,
            None => found.name.clone(),
        };
        Ok(TreeEntry { name, mode: self.mode.unwrap_or(found.mode), ..found.clone() })
    }
}

/// The files of the session's directory that the query names, sorted.
async fn list_matching(stream: &mut HostStream, query: &HostFilesQuery) -> Result<Vec<TreeEntry>, TransferError> {
    let listing = if has_wildcards(&query.pattern) {
        read_listing(stream, ListingScope::Children).await
    } else {
        let name = TreeName::parse(query.pattern.as_bytes()).map_err(|reason| query.error(reason, "correct the path"))?;
        let probe = TreeEntry { name, kind: EntryKind::Directory, mode: 0, mtime: 0 };
        read_listing(stream, ListingScope::Names(&[probe])).await
    };
    let listing = listing.map_err(|error| query.named(error))?;
    let complaint = listing.complaint;
    let mut found = Vec::new();
    for entry in listing.entries {
        if entry.name.components().count() != 1 {
            return Err(query.named(TransferError::protocol("a name that is not in this directory")));
        }
        let matches = match has_wildcards(&query.pattern) {
            true => file_name_matches(&query.pattern, entry.name.as_bytes()),
            false => entry.name.as_bytes() == query.pattern.as_bytes(),
        };
        if !matches {
            continue;
        }
        if !matches!(entry.kind, EntryKind::File { .. }) {
            let what = format!("{} is {}, not a file", entry.name.display(), entry.kind.noun());
            return Err(query.error(what, "`copy` takes files and follows no link: name the file itself"));
        }
        found.push(entry);
        if found.len() > MAX_FILES {
            return Err(query.error(format!("more than {MAX_FILES} files match"), "narrow the pattern, or send one archive"));
        }
    }
    // A part of the files would be taken for all of them. What else in the directory cannot be looked at does not matter.
    if let Some(complaint) = complaint.filter(|complaint| found.is_empty() || complaint.starts_with("find: ")) {
        return Err(query.error(format!("its directory cannot be listed: {complaint}"), READ_HINT));
    }
    Ok(found)
}

/// Sends one file, from `offset` on, to the receiver.
async fn relay_file(
    stream: &mut HostStream,
    entry: &TreeEntry,
    offset: u64,
    (query, sender): (&HostFilesQuery, &PieceSender),
) -> Result<(), TransferError> {
    let mut reader = HostFileReader::start(stream, entry, offset / BLOCK).await.map_err(|error| query.named(error))?;
    let mut skip = usize::try_from(offset % BLOCK).unwrap_or(0);
    while let Some(mut bytes) = reader.next().await.map_err(|error| query.named(error))? {
        let skipped = skip.min(bytes.len());
        skip -= skipped;
        let rest = bytes.split_off(skipped);
        if !rest.is_empty() && sender.send(Ok(rest)).await.is_err() {
            return Ok(());
        }
    }
    let of_file = |what: &str| source_error(format!("source host {}: {}: {what}", query.host, entry.name.display()));
    match reader.finish().await.map_err(|error| query.named(error))? {
        FileEnd::Unchanged => Ok(()),
        FileEnd::Changed => Err(of_file("it changed while it was read, vanished, or cannot be read there")),
        FileEnd::Damaged => Err(of_file("what arrived is not what was sent (SHA-256 differs)")),
    }
}
