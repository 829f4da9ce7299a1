//! What `sync` and `copy` tasks send: directories and files of this laptop, files of hosts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::engine::send_files::FileInput;
use crate::inventory::{FileSource, FileTask, PrepareTask};
use crate::lifecycle::error::WorkflowError;
use crate::transfer::host_files::HostFilesQuery;
use crate::transfer::local_tree::{LocalTree, TreeFilter};
use crate::transfer::tree_source::{SyncMode, TreeSource};

/// What one task sends.
pub(crate) struct TaskFiles {
    /// The name of the task.
    task: String,
    source: TaskFileSource,
}

enum TaskFileSource {
    Directory {
        path: PathBuf,
        /// Globs of what stays here.
        exclude: Vec<String>,
        /// Hosts lose what the directory does not have.
        delete: bool,
    },
    /// A file or a pattern of files, the name that a single one gets, and the mode.
    Files {
        path: PathBuf,
        rename: Option<String>,
        mode: Option<u32>,
    },
    OnHost(usize, HostFilesQuery),
}

/// The sources of these tasks, by number. `base`: the inventory's folder.
///
/// # Errors
/// What is missing on this laptop; no host was contacted.
pub(crate) fn find_file_sources(
    tasks: &[&PrepareTask],
    host_names: &[&str],
    base: &Path,
) -> Result<BTreeMap<u32, TaskFiles>, WorkflowError> {
    let mut sources = BTreeMap::new();
    let mut problems = Vec::new();
    for (task, files) in tasks.iter().filter_map(|task| Some((task, task.files.as_ref()?))) {
        let found = TaskFiles { task: task.name.clone(), source: TaskFileSource::new(files, host_names, base) };
        problems.extend(found.source.problems().into_iter().map(|problem| format!("task `{}`: {problem}", task.name)));
        sources.insert(task.number, found);
    }
    if problems.is_empty() { Ok(sources) } else { Err(WorkflowError::Usage(problems.join("\n"))) }
}

impl TaskFileSource {
    fn new(files: &FileTask, host_names: &[&str], base: &Path) -> TaskFileSource {
        // Without `.`: messages name it.
        let path: PathBuf = base.join(&files.from).components().collect();
        match &files.source {
            FileSource::Directory { exclude, delete } => TaskFileSource::Directory { path, exclude: exclude.clone(), delete: *delete },
            FileSource::LaptopFiles => TaskFileSource::Files { path, rename: files.rename.clone(), mode: files.mode },
            FileSource::HostFiles { host, path } => {
                let (directory, pattern) = path.rsplit_once('/').unwrap_or(("", path));
                let query = HostFilesQuery {
                    host: host_names.get(*host).map_or_else(String::new, |name| (*name).to_owned()),
                    directory: if directory.is_empty() { "/".to_owned() } else { directory.to_owned() },
                    pattern: pattern.to_owned(),
                    rename: files.rename.clone().map(String::into_bytes),
                    mode: files.mode,
                };
                TaskFileSource::OnHost(*host, query)
            }
        }
    }

    /// Why it cannot be sent, as far as this laptop knows. What the hosts get is read again when they are ready for it.
    fn problems(&self) -> Vec<String> {
        match self {
            TaskFileSource::Directory { path, .. } if !path.is_dir() => {
                vec![format!("{}: no such directory on this laptop", path.display())]
            }
            TaskFileSource::Directory { .. } | TaskFileSource::Files { .. } => self.read().err().unwrap_or_default(),
            TaskFileSource::OnHost(..) => Vec::new(),
        }
    }

    fn read(&self) -> Result<FileInput, Vec<String>> {
        let (tree, mode) = match self {
            TaskFileSource::Directory { path, exclude, delete } => {
                let tree = LocalTree::walk(path, &TreeFilter { exclude: exclude.clone(), gitignore: true })?;
                if *delete && tree.entries.is_empty() {
                    return Err(vec![format!("{}: it is empty, and `delete` would remove everything on the hosts", path.display())]);
                }
                (tree, SyncMode { mark: true, delete: *delete })
            }
            TaskFileSource::Files { path, rename, mode } => (
                LocalTree::matching(path, rename.as_deref().map(str::as_bytes), *mode).map_err(|problem| vec![problem])?,
                SyncMode::default(),
            ),
            TaskFileSource::OnHost(host, query) => return Ok(FileInput::OnHost(*host, query.clone())),
        };
        Ok(FileInput::Local(Arc::new(TreeSource::Local(tree)), mode))
    }
}

/// Reads names, sizes and times of what the tasks send, as they are now; the files of a host are looked for when their task begins.
///
/// # Errors
/// What cannot be read, or cannot be sent.
pub(super) fn read_file_inputs(sources: &BTreeMap<u32, TaskFiles>) -> Result<BTreeMap<u32, FileInput>, WorkflowError> {
    let mut inputs = BTreeMap::new();
    let mut problems = Vec::new();
    for (number, files) in sources {
        match files.source.read() {
            Ok(input) => drop(inputs.insert(*number, input)),
            Err(lines) => problems.extend(lines.into_iter().map(|line| format!("task `{}`: {line}", files.task))),
        }
    }
    if problems.is_empty() { Ok(inputs) } else { Err(WorkflowError::Usage(problems.join("\n"))) }
}
