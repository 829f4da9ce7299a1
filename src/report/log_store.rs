#![expect(clippy::disallowed_methods, reason = "owns the log files of the laptop")]
//! The laptop's copies of a run's logs, byte for byte: `rank-<n>.log`, after a restart `rank-<n>.<k>.log`, and `node-<n>.log`, where n is the
//! host's node rank in the run's record. If a log was truncated on its host, the previous copy is kept as `rank-<n>.log.1`.
//!
//! Hosts are identified by name. Log text is untrusted: sanitize it before you print it.

mod generations;
mod reading;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::event::LogFile;

use super::disk_reserve::{DiskFull, DiskReserve, format_size};
use super::node_list::{LIST_FILE, NodeList};
use super::private_files::{lock_dir, make_dir, private_options, read_bounded, sync_dir};

/// The maximum number of open files; laptops have low limits.
const MAX_OPEN_FILES: usize = 64;
/// Records which node wrote which rank's log.
const OWNERS_FILE: &str = ".hosts";
const MAX_OWNERS_BYTES: u64 = 64 << 20;
/// The maximum that [`LogStore::tail`] reads.
const MAX_TAIL_BYTES: u64 = 8 << 20;
/// Why log bytes are not on the laptop.
#[derive(Debug, thiserror::Error)]
pub enum LogStoreError {
    /// The bytes do not follow what is there.
    #[error("{name} has {len} bytes, the next come from {offset}")]
    Gap {
        name: String,
        len: u64,
        /// Where the bytes belong.
        offset: u64,
    },
    #[error("could not {what} {path}")]
    Io {
        /// `write`, `read`, `create`, `sync`, `rename`.
        what: &'static str,
        path: String,
        #[source]
        source: io::Error,
    },
    /// A reserve of the disk is kept free.
    #[error("{path}: only {} free, {} are kept in reserve", format_size(*.free), format_size(*.reserved))]
    LowDiskSpace { path: String, free: u64, reserved: u64 },
    #[error("the run has no directory on this laptop")]
    NoRunDir,
    /// No `run-started` has named the event's host.
    #[error("host number {0} has no name")]
    UnknownHost(u32),
}

/// A longer host name is replaced by its node rank, since file names are bounded.
const MAX_HOST_IN_FILE_NAME: usize = 200;

type LogKey = (u32, LogFile);

/// The log directory of one run.
#[derive(Debug)]
pub struct LogStore {
    dir: PathBuf,
    nodes: NodeList,
    rank_owners: BTreeMap<String, u32>,
    lengths: HashMap<LogKey, u64>,
    open_files: VecDeque<(LogKey, File)>,
    reserve: DiskReserve,
    /// Names of files that were written since the last sync.
    unsynced: BTreeSet<String>,
    /// Whether the files that earlier processes wrote are synced.
    earlier_files_synced: bool,
}

impl LogStore {
    /// Opens a directory; a missing one is created.
    ///
    /// # Errors
    /// When it cannot be created or read.
    pub fn open(dir: &Path) -> Result<Self, LogStoreError> {
        make_dir(dir).map_err(|source| io_error("create", dir, source))?;
        Ok(LogStore {
            nodes: NodeList::read(dir).map_err(|source| io_error("read", &dir.join(LIST_FILE), source))?,
            rank_owners: read_owners(dir)?,
            dir: dir.to_owned(),
            lengths: HashMap::new(),
            open_files: VecDeque::new(),
            reserve: DiskReserve::default(),
            unsynced: BTreeSet::new(),
            earlier_files_synced: false,
        })
    }

    /// Whether the directory has a node list.
    pub fn has_node_list(&self) -> bool {
        self.nodes.is_saved()
    }

    /// The hosts whose logs are here, in node-rank order.
    pub fn hosts(&self) -> &[String] {
        self.nodes.names()
    }

    /// Sets the hosts of node 0, 1, … unless the directory or an earlier call has set them. Nothing is written yet.
    pub fn set_default_hosts(&mut self, hosts: &[String]) {
        self.nodes.set_default_names(hosts);
    }

    /// Writes the node list if the directory has none.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save_node_list(&mut self) -> Result<(), LogStoreError> {
        self.nodes.save_if_missing(&self.dir).map_err(|source| io_error("write", &self.dir.join(LIST_FILE), source))
    }

    /// The file's path; `None` if there is nothing of that host.
    pub fn path(&self, host: &str, file: LogFile) -> Option<PathBuf> {
        self.nodes.find_number(host).map(|node| self.dir.join(self.file_name(node, file)))
    }

    /// With a dynamic rendezvous, two hosts may write the same rank: the second host's file name includes its node rank.
    fn file_name(&self, node: u32, file: LogFile) -> String {
        let stem = match (file, self.nodes.names().get(node as usize).filter(|host| host.len() <= MAX_HOST_IN_FILE_NAME)) {
            (LogFile::Task { number }, Some(host)) => format!("task-{number}-{host}"),
            _ => file_stem(node, file),
        };
        let name = format!("{stem}.log");
        if self.rank_owners.get(&name).is_some_and(|owner| *owner != node) { format!("{stem}@{node}.log") } else { name }
    }

    /// The length of the copy, which is the offset of the next bytes.
    ///
    /// # Errors
    /// When the file exists and cannot be read.
    pub fn log_len(&mut self, host: &str, file: LogFile) -> Result<u64, LogStoreError> {
        self.nodes.find_number(host).map_or(Ok(0), |node| self.node_len(node, file))
    }

    fn node_len(&mut self, node: u32, file: LogFile) -> Result<u64, LogStoreError> {
        if let Some(len) = self.lengths.get(&(node, file)) {
            return Ok(*len);
        }
        let path = self.dir.join(self.file_name(node, file));
        let len = match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_file() => meta.len(),
            Ok(_) => return Err(io_error("write", &path, io::Error::other("not a regular file"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(source) => return Err(io_error("read", &path, source)),
        };
        self.lengths.insert((node, file), len);
        Ok(len)
    }

    /// The non-empty copies of a host's files and their lengths.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn log_lengths(&mut self, host: &str) -> Result<Vec<(LogFile, u64)>, LogStoreError> {
        let mut files = BTreeSet::from([LogFile::Launcher]);
        files.extend(self.list_files()?.iter().filter_map(|(name, _)| parse_file_name(name)));
        let known = files.into_iter().filter_map(|file| self.log_len(host, file).ok().map(|len| (file, len)));
        Ok(known.filter(|(_, len)| *len > 0).collect())
    }

    /// Appends bytes that start at `offset`; bytes that the copy already has are skipped.
    ///
    /// # Errors
    /// When there would be a gap, or a write fails; bytes written before the failure stay.
    pub fn write_at(&mut self, host: &str, file: LogFile, offset: u64, bytes: &[u8]) -> Result<(), LogStoreError> {
        let node = self.nodes.find_or_append(&self.dir, host).map_err(|source| io_error("write", &self.dir.join(LIST_FILE), source))?;
        self.claim_rank_log(node, file).map_err(|source| io_error("write", &self.dir.join(OWNERS_FILE), source))?;
        let len = self.node_len(node, file)?;
        if offset > len {
            return Err(LogStoreError::Gap { name: self.file_name(node, file), len, offset });
        }
        let known = usize::try_from(len - offset).unwrap_or(usize::MAX).min(bytes.len());
        let fresh = &bytes[known..];
        if fresh.is_empty() && len > 0 {
            return Ok(());
        }
        let low_space = |DiskFull { free, reserved }| LogStoreError::LowDiskSpace { path: self.dir.display().to_string(), free, reserved };
        self.reserve.try_take(&self.dir, fresh.len() as u64).map_err(low_space)?;
        let written = self.open_file(node, file).and_then(|out| out.write_all_at(fresh, len));
        let name = self.file_name(node, file);
        match written {
            Ok(()) => {
                self.lengths.insert((node, file), len + fresh.len() as u64);
                self.unsynced.insert(name);
                Ok(())
            }
            Err(source) => {
                // A part may be written: read the length again next time.
                self.lengths.remove(&(node, file));
                self.open_files.retain(|(key, _)| *key != (node, file));
                Err(io_error("write", &self.dir.join(name), source))
            }
        }
    }

    /// Whether the disk seems to have space again.
    pub fn has_disk_space(&mut self) -> bool {
        self.reserve.has_space(&self.dir)
    }

    fn open_file(&mut self, node: u32, file: LogFile) -> io::Result<&File> {
        let key = (node, file);
        if let Some(at) = self.open_files.iter().position(|(k, _)| *k == key) {
            return Ok(&self.open_files[at].1);
        }
        if self.open_files.len() >= MAX_OPEN_FILES {
            self.open_files.pop_front();
        }
        let opened = private_options(OpenOptions::new().write(true).create(true)).open(self.dir.join(self.file_name(node, file)))?;
        self.open_files.push_back((key, opened));
        let last = self.open_files.len() - 1;
        Ok(&self.open_files[last].1)
    }

    /// Records this node as the writer of a rank's log, unless there is one.
    fn claim_rank_log(&mut self, node: u32, file: LogFile) -> io::Result<()> {
        let name = self.file_name(node, file);
        if !matches!(file, LogFile::Rank { .. }) || self.rank_owners.contains_key(&name) {
            return Ok(());
        }
        let _lock = lock_dir(&self.dir)?;
        // Another process may have recorded an owner meanwhile.
        self.rank_owners.extend(read_owners(&self.dir).map_err(io::Error::other)?);
        self.lengths.remove(&(node, file));
        let name = self.file_name(node, file);
        if !self.rank_owners.contains_key(&name) {
            let mut owners = private_options(OpenOptions::new().append(true).create(true)).open(self.dir.join(OWNERS_FILE))?;
            owners.write_all(format!("{name} {node}\n").as_bytes())?;
            self.unsynced.insert(OWNERS_FILE.to_owned());
            self.rank_owners.insert(name, node);
        }
        Ok(())
    }

    /// Syncs every log of the run, including those that earlier processes wrote, and the directories above up to the state directory.
    /// A copy that fails to sync cannot be trusted later: it is moved aside, so that the log is fetched again.
    ///
    /// # Errors
    /// When a file or directory could not be synced.
    pub fn sync(&mut self) -> Result<(), LogStoreError> {
        let mut names = std::mem::take(&mut self.unsynced);
        if !self.earlier_files_synced {
            let regular = |name: &String| fs::symlink_metadata(self.dir.join(name)).is_ok_and(|meta| meta.is_file());
            let ours = |name: &String| parse_file_name(name).is_some() || !matches!(name.as_str(), ".lock" | ".nodes.new") && regular(name);
            names.extend(self.list_entries()?.into_iter().filter(ours));
        }
        let synced = names.iter().try_for_each(|name| {
            let path = self.dir.join(name);
            let file = private_options(OpenOptions::new().write(true)).open(&path).and_then(|file| file.sync_all());
            file.map_err(|source| (name.clone(), io_error("sync", &path, source)))
        });
        if let Err((name, error)) = synced {
            self.earlier_files_synced = false;
            if parse_file_name(&name).is_some()
                && let Err(error) = self.move_to_generation(&name)
            {
                tracing::warn!(%error, "a log copy that failed to sync could not be moved aside");
            }
            return Err(error);
        }
        // `logs`, the run's directory, `runs`, and the state directory.
        for dir in self.dir.ancestors().take(4) {
            if let Err(source) = sync_dir(dir) {
                self.earlier_files_synced = false;
                return Err(io_error("sync", dir, source));
            }
        }
        self.earlier_files_synced = true;
        Ok(())
    }

    fn list_entries(&self) -> Result<Vec<String>, LogStoreError> {
        let read = |source| io_error("read", &self.dir, source);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(read)? {
            names.push(entry.map_err(read)?.file_name().to_string_lossy().into_owned());
        }
        Ok(names)
    }
}

fn file_stem(node: u32, file: LogFile) -> String {
    match file {
        LogFile::Launcher => format!("node-{node}"),
        LogFile::Task { number } => format!("task-{number}-{node}"),
        LogFile::Rank { rank, restart: 0 } => format!("rank-{rank}"),
        LogFile::Rank { rank, restart } => format!("rank-{rank}.{restart}"),
    }
}

/// The log file of a copy's name; `None` for other names and earlier copies.
fn parse_file_name(name: &str) -> Option<LogFile> {
    let stem = name.strip_suffix(".log")?;
    if let Some((number, _)) = stem.strip_prefix("task-").and_then(|rest| rest.split_once('-')) {
        return LogFile::parse(&format!("task-{number}"));
    }
    let stem = stem.split('@').next().unwrap_or(stem);
    if stem.starts_with("node-") {
        return Some(LogFile::Launcher);
    }
    if stem.contains('.') { LogFile::parse(stem) } else { LogFile::parse(&format!("{stem}.0")) }
}

fn read_owners(dir: &Path) -> Result<BTreeMap<String, u32>, LogStoreError> {
    let path = dir.join(OWNERS_FILE);
    let text = read_bounded(&path, 0, MAX_OWNERS_BYTES).map_err(|source| io_error("read", &path, source))?.unwrap_or_default();
    let owner = |line: &str| line.split_once(' ').and_then(|(name, node)| Some((name.to_owned(), node.parse().ok()?)));
    Ok(String::from_utf8_lossy(&text).lines().filter_map(owner).collect())
}

fn io_error(what: &'static str, path: &Path, source: io::Error) -> LogStoreError {
    LogStoreError::Io { what, path: path.display().to_string(), source }
}

#[cfg(test)]
#[path = "log_store_tests.rs"]
mod tests;
