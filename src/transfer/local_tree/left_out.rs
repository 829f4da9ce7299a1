//! What of a directory stays out of a transfer: globs, `.git` and what `.gitignore` files name. It answers for names that are not on the laptop,
//! too: what is left out here is not removed there.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ignore::gitignore::Gitignore;
use ignore::overrides::Override;

use crate::transfer::entry::{EntryKind, TreeEntry};

pub(crate) struct LocalFilter {
    root: PathBuf,
    excluded: Override,
    gitignore: bool,
    /// The rules of directories, as far as they were read.
    rules: Mutex<HashMap<PathBuf, Gitignore>>,
}

impl std::fmt::Debug for LocalFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalFilter").field("root", &self.root).field("gitignore", &self.gitignore).finish_non_exhaustive()
    }
}

impl LocalFilter {
    /// `root`: the physical path of the directory.
    pub(super) fn new(root: PathBuf, excluded: Override, gitignore: bool) -> LocalFilter {
        LocalFilter { root, excluded, gitignore, rules: Mutex::default() }
    }

    /// Whether an entry, or a directory above it, would stay out of the transfer.
    pub(crate) fn leaves_out(&self, entry: &TreeEntry) -> bool {
        let mut path = self.root.clone();
        let last = entry.name.components().count();
        for (number, component) in (1..).zip(entry.name.components()) {
            path.push(OsStr::from_bytes(component));
            let is_dir = number < last || entry.kind == EntryKind::Directory;
            if self.gitignore && component == b".git" || self.leaves_out_path(&path, is_dir) {
                return true;
            }
        }
        false
    }

    /// As [`LocalFilter::leaves_out`], without the directories above it.
    fn leaves_out_path(&self, path: &Path, is_dir: bool) -> bool {
        match self.excluded.matched(path, is_dir) {
            ignore::Match::Ignore(_) => return true,
            ignore::Match::Whitelist(_) => return false,
            ignore::Match::None => {}
        }
        if !self.gitignore {
            return false;
        }
        // The file in the nearest directory decides.
        for directory in path.ancestors().skip(1) {
            match self.match_rules(directory, path, is_dir) {
                Some(ignored) => return ignored,
                None => continue,
            }
        }
        false
    }

    fn match_rules(&self, directory: &Path, path: &Path, is_dir: bool) -> Option<bool> {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let rules = rules.entry(directory.to_owned()).or_insert_with(|| {
            let file = directory.join(".gitignore");
            // What cannot be read or understood leaves nothing out, as when the directory is walked.
            if file.is_file() { Gitignore::new(file).0 } else { Gitignore::empty() }
        });
        match rules.matched(path, is_dir) {
            ignore::Match::Ignore(_) => Some(true),
            ignore::Match::Whitelist(_) => Some(false),
            ignore::Match::None => None,
        }
    }
}

/// What could not be read of `.gitignore` files; a pattern in one that is no glob leaves nothing out, as in git.
pub(super) fn io_problems(error: &ignore::Error) -> Vec<String> {
    match error {
        ignore::Error::Partial(errors) => errors.iter().flat_map(io_problems).collect(),
        ignore::Error::Io(_) => vec![error.to_string()],
        ignore::Error::WithLineNumber { line, err } => io_problems(err).iter().map(|text| format!("line {line}: {text}")).collect(),
        ignore::Error::WithPath { path, err } => io_problems(err).iter().map(|text| format!("{}: {text}", path.display())).collect(),
        ignore::Error::WithDepth { err, .. } => io_problems(err),
        _ => Vec::new(),
    }
}
