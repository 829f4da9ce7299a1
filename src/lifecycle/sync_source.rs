//! The directories of this laptop that `sync` tasks send.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::lifecycle::error::WorkflowError;
use crate::transfer::local_tree::{LocalTree, TreeFilter};

/// What one `sync` task sends.
pub(crate) struct SyncSource {
    /// The name of the task.
    pub(crate) task: String,
    pub(crate) dir: PathBuf,
    /// Globs of what stays here.
    pub(crate) exclude: Vec<String>,
}

/// Reads names, sizes and times of what the tasks send, as they are now.
///
/// # Errors
/// A directory that cannot be read, or has what cannot be sent.
pub(super) fn read_sync_trees(sources: &BTreeMap<u32, SyncSource>) -> Result<BTreeMap<u32, Arc<LocalTree>>, WorkflowError> {
    let mut trees = BTreeMap::new();
    let mut problems = Vec::new();
    for (number, source) in sources {
        match LocalTree::walk(&source.dir, &TreeFilter { exclude: source.exclude.clone(), gitignore: true }) {
            Ok(tree) => drop(trees.insert(*number, Arc::new(tree))),
            Err(lines) => problems.extend(lines.into_iter().map(|line| format!("task `{}`: {line}", source.task))),
        }
    }
    if problems.is_empty() { Ok(trees) } else { Err(WorkflowError::Usage(problems.join("\n"))) }
}
