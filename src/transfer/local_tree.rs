//! A file or a tree of the laptop: what is in it, and its content, read once for all hosts.
#![expect(clippy::disallowed_methods, reason = "files of the laptop are read")]

pub(crate) mod left_out;

use std::fs::{File, Metadata};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ignore::WalkBuilder;
use ignore::overrides::OverrideBuilder;
use sha2::{Digest as _, Sha256};

use self::left_out::{LocalFilter, io_problems};
use super::content_pieces::{ContentPieces, PieceSender, piece_channel, source_error};
use super::digest::hex;
use super::entry::{EntryKind, TreeEntry, TreeName, is_reserved, link_stays_inside};
use super::error::TransferError;
use super::host_stream::CHUNK_BYTES;
use crate::text::error_chain::plain_io_error;
use crate::text::glob::{file_name_matches, has_wildcards};

const MAX_PROBLEMS: usize = 8;

/// What of a tree is left out.
#[derive(Debug, Clone, Default)]
pub(crate) struct TreeFilter {
    /// Globs as in `.gitignore`.
    pub(crate) exclude: Vec<String>,
    /// Leaves out `.git` and what `.gitignore` files name.
    pub(crate) gitignore: bool,
}

/// Where the entries of a tree are.
#[derive(Debug, Clone)]
enum TreePaths {
    Directory(PathBuf, Arc<LocalFilter>),
    /// Of each entry.
    Files(Arc<Vec<PathBuf>>),
}

#[derive(Debug, Clone)]
pub(crate) struct LocalTree {
    paths: TreePaths,
    /// Sorted by name.
    pub(crate) entries: Arc<Vec<TreeEntry>>,
}

impl LocalTree {
    /// A single file that gets this name.
    ///
    /// # Errors
    /// What is wrong with the file or the name.
    pub(crate) fn single_file(path: &Path, name: &[u8]) -> Result<LocalTree, String> {
        LocalTree::files(&[(path.to_owned(), name.to_vec())], None)
    }

    /// Single files with the names that they get, and the mode if it is not their own.
    ///
    /// # Errors
    /// What is wrong with a file or a name.
    pub(crate) fn files(files: &[(PathBuf, Vec<u8>)], mode: Option<u32>) -> Result<LocalTree, String> {
        let mut all: Vec<(TreeEntry, PathBuf)> = Vec::new();
        for (path, name) in files {
            let entry = read_single_file(path, name)?;
            all.push((TreeEntry { mode: mode.unwrap_or(entry.mode), ..entry }, path.clone()));
        }
        all.sort_by(|a, b| a.0.name.cmp(&b.0.name));
        let (entries, paths): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        Ok(LocalTree { paths: TreePaths::Files(Arc::new(paths)), entries: Arc::new(entries) })
    }

    /// A file, or the files of its directory that its name, a pattern, matches. `rename`: the name that a single file gets.
    ///
    /// # Errors
    /// There is none, or what is wrong with one.
    pub(crate) fn matching(path: &Path, rename: Option<&[u8]>, mode: Option<u32>) -> Result<LocalTree, String> {
        let directory = path.parent().unwrap_or(Path::new("."));
        let name = path.file_name().unwrap_or_default();
        let pattern = name.to_string_lossy();
        let mut files = Vec::new();
        if has_wildcards(&pattern) {
            for entry in std::fs::read_dir(directory).map_err(|e| format!("{}: {}", directory.display(), plain_io_error(&e)))? {
                let entry = entry.map_err(|e| format!("{}: {}", directory.display(), plain_io_error(&e)))?;
                if file_name_matches(&pattern, entry.file_name().as_bytes()) {
                    files.push((entry.path(), entry.file_name().into_vec()));
                }
            }
        } else {
            files.push((path.to_owned(), rename.unwrap_or(name.as_bytes()).to_vec()));
        }
        match files.iter().find(|(path, _)| path.is_dir()) {
            Some((path, _)) => Err(format!("{}: it is a directory; `copy` takes files, `sync` a directory", path.display())),
            None if files.is_empty() => Err(format!("{}: no file matches", path.display())),
            None => LocalTree::files(&files, mode),
        }
    }

    /// A directory with everything in it.
    ///
    /// # Errors
    /// What cannot be sent, at most 8 lines.
    pub(crate) fn walk(root: &Path, filter: &TreeFilter) -> Result<LocalTree, Vec<String>> {
        let root = root.canonicalize().map_err(|e| vec![format!("{}: {}", root.display(), plain_io_error(&e))])?;
        let mut builder = WalkBuilder::new(&root);
        builder.standard_filters(false).follow_links(false).git_ignore(filter.gitignore).parents(filter.gitignore).require_git(false);
        let without_git = filter.gitignore;
        builder.filter_entry(move |entry| {
            let name = entry.file_name();
            // Parts of an interrupted transfer and markers are no part of the tree.
            !(is_reserved(name.as_bytes()) || without_git && name == ".git")
        });
        let mut excluded = OverrideBuilder::new(&root);
        for glob in &filter.exclude {
            excluded.add(&format!("!{glob}")).map_err(|e| vec![format!("exclude `{glob}`: {e}")])?;
        }
        let excluded = excluded.build().map_err(|e| vec![e.to_string()])?;
        builder.overrides(excluded.clone());
        let (mut entries, mut problems) = (Vec::new(), Vec::new());
        for found in builder.build() {
            let found = found.map_err(|e| e.to_string());
            // A `.gitignore` that cannot be read: what it names would be sent, or deleted on the hosts.
            if let Some(error) = found.as_ref().ok().and_then(|entry| entry.error()) {
                problems.extend(io_problems(error));
            }
            match found.and_then(|entry| read_entry(&root, entry.path())) {
                Ok(entry) => entries.extend(entry),
                Err(problem) => problems.push(problem),
            }
        }
        let count = problems.len();
        problems.truncate(MAX_PROBLEMS);
        if count > MAX_PROBLEMS {
            problems.push(format!("… {} more", count - MAX_PROBLEMS));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let left_out = LocalFilter::new(root.clone(), excluded, filter.gitignore);
        Ok(LocalTree { paths: TreePaths::Directory(root, Arc::new(left_out)), entries: Arc::new(entries) })
    }

    /// What stayed out of it; `None`: single files.
    pub(super) fn left_out(&self) -> Option<&LocalFilter> {
        match &self.paths {
            TreePaths::Directory(_, filter) => Some(filter),
            TreePaths::Files(_) => None,
        }
    }

    fn path_of(&self, index: usize, entry: &TreeEntry) -> PathBuf {
        match &self.paths {
            TreePaths::Directory(root, _) => root.join(std::ffi::OsStr::from_bytes(entry.name.as_bytes())),
            TreePaths::Files(paths) => paths.get(index).cloned().unwrap_or_default(),
        }
    }

    /// Whether the file takes less of the disk than its size.
    pub(super) fn has_holes(&self, index: usize) -> bool {
        let metadata = self.entries.get(index).map(|entry| std::fs::metadata(self.path_of(index, entry)));
        metadata.is_some_and(|found| found.is_ok_and(|found| found.blocks().saturating_mul(512) < found.size()))
    }

    /// Reads these files in order, each from its offset to its end. An error ends the pieces.
    pub(crate) fn read_contents(&self, files: Vec<(usize, u64)>) -> ContentPieces {
        let (sender, pieces) = piece_channel();
        let tree = self.clone();
        tokio::task::spawn_blocking(move || {
            for (index, offset) in files {
                let Some(entry) = tree.entries.get(index) else { return };
                if let Err(problem) = send_content(&tree.path_of(index, entry), entry, offset, &sender) {
                    // A receiver that is gone wants no reason.
                    drop(sender.blocking_send(Err(source_error(problem))));
                    return;
                }
            }
        });
        pieces
    }

    /// The checksum of the beginning of a file up to each of these offsets, which are sorted.
    pub(super) async fn prefix_digests(&self, index: usize, offsets: Vec<u64>) -> Result<Vec<String>, TransferError> {
        let Some(entry) = self.entries.get(index) else { return Err(source_error("no such file")) };
        let path = self.path_of(index, entry);
        let read = move || -> std::io::Result<Vec<String>> {
            let (mut file, mut state, mut at) = (File::open(path)?, Sha256::new(), 0);
            let mut digests = Vec::new();
            let mut buffer = vec![0; CHUNK_BYTES];
            for offset in offsets {
                while at < offset {
                    let most = usize::try_from(offset - at).unwrap_or(usize::MAX).min(buffer.len());
                    let count = file.read(buffer.get_mut(..most).unwrap_or_default())?;
                    if count == 0 {
                        return Err(std::io::Error::other("it became shorter"));
                    }
                    state.update(buffer.get(..count).unwrap_or_default());
                    at += u64::try_from(count).unwrap_or(0);
                }
                digests.push(hex(state.clone()));
            }
            Ok(digests)
        };
        let name = entry.name.display();
        let read = tokio::task::spawn_blocking(read).await.map_err(|e| source_error(e.to_string()))?;
        read.map_err(|e| source_error(format!("{name}: {}", plain_io_error(&e))))
    }
}

fn read_single_file(path: &Path, name: &[u8]) -> Result<TreeEntry, String> {
    let metadata = std::fs::metadata(path).map_err(|e| format!("{}: {}", path.display(), plain_io_error(&e)))?;
    let name = TreeName::parse(name).map_err(|reason| format!("{}: {reason}", path.display()))?;
    let entry = tree_entry(name, &metadata, Vec::new());
    if !metadata.is_file() {
        return Err(format!("{}: {} cannot be sent", path.display(), entry.kind.noun()));
    }
    File::open(path).map_err(|e| format!("{}: {}", path.display(), plain_io_error(&e)))?;
    Ok(entry)
}

/// `None` for the root itself.
fn read_entry(root: &Path, path: &Path) -> Result<Option<TreeEntry>, String> {
    let Ok(relative) = path.strip_prefix(root) else { return Ok(None) };
    if relative.as_os_str().is_empty() {
        return Ok(None);
    }
    let with_path = |reason: &str| format!("{}: {reason}", path.display());
    let name = TreeName::parse(relative.as_os_str().as_bytes()).map_err(with_path)?;
    let metadata = std::fs::symlink_metadata(path).map_err(|e| with_path(&plain_io_error(&e)))?;
    let text = if metadata.is_symlink() {
        std::fs::read_link(path).map_err(|e| with_path(&plain_io_error(&e)))?.into_os_string().into_vec()
    } else {
        Vec::new()
    };
    let entry = tree_entry(name, &metadata, text);
    match &entry.kind {
        EntryKind::Special(noun) => Err(with_path(&format!("{noun} cannot be sent; exclude it"))),
        EntryKind::Link(text) if !link_stays_inside(&entry.name, text) => Err(with_path("the link leads out of the directory; exclude it")),
        _ => Ok(Some(entry)),
    }
}

fn tree_entry(name: TreeName, metadata: &Metadata, link: Vec<u8>) -> TreeEntry {
    let kind = match EntryKind::from_mode(metadata.mode(), metadata.size()) {
        EntryKind::Link(_) => EntryKind::Link(link),
        kind => kind,
    };
    TreeEntry { name, kind, mode: metadata.mode() & 0o777, mtime: metadata.mtime() }
}

fn send_content(path: &Path, entry: &TreeEntry, offset: u64, sender: &PieceSender) -> Result<(), String> {
    let with_path = |reason: String| format!("{}: {reason}", path.display());
    let changed = || with_path("it changed while it was read; run the command again".to_owned());
    let mut file = File::open(path).map_err(|e| with_path(plain_io_error(&e)))?;
    file.seek(SeekFrom::Start(offset)).map_err(|e| with_path(plain_io_error(&e)))?;
    let mut left = entry.size().saturating_sub(offset);
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        let mut buffer = vec![0; most];
        file.read_exact(&mut buffer).map_err(|_| changed())?;
        left -= u64::try_from(most).unwrap_or(left);
        if sender.blocking_send(Ok(buffer.into())).is_err() {
            return Ok(());
        }
    }
    let now = file.metadata().map_err(|e| with_path(plain_io_error(&e)))?;
    if now.size() == entry.size() && now.mtime() == entry.mtime { Ok(()) } else { Err(changed()) }
}

#[cfg(test)]
mod tests;
