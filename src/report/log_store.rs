#![expect(clippy::disallowed_methods, reason = "owns the log files of the laptop")]
//! The laptop's copies of a run's logs, byte for byte: `rank-<n>.log`, after a restart `rank-<n>.<k>.log`, and `node-<n>.log`, where n is the
//! host's node rank in the run's record. What a host has cut or written anew since it was copied is kept beside: `rank-<n>.log.1`.
//!
//! Uses `event`, `files` and `nodes`. Hosts are known by name. What is read here is as dangerous as the host made it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::event::LogFile;

use super::disk_reserve::{DiskFull, DiskReserve, format_size};
use super::node_list::NodeList;
use super::private_files::{lock_dir, make_dir, private_options, read_bounded, sync_dir};

/// How many files are open at once: a laptop allows few.
const MAX_OPEN_FILES: usize = 64;
/// The file that remembers which node wrote which rank's log.
const OWNERS_FILE: &str = ".hosts";
/// The most bytes of it.
const MAX_OWNERS_BYTES: u64 = 64 << 20;
/// The most bytes that [`LogStore::tail`] looks at.
const MAX_TAIL_BYTES: u64 = 8 << 20;
/// How many earlier copies of one file are kept each by itself; those after them are joined in the last one.
const MAX_GENERATIONS: u32 = 100;

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
    /// The file could not be read or written: a full disk, a missing right.
    #[error("could not {what} {path}")]
    Io {
        /// `write`, `read`, `make`, `sync`, `rename`.
        what: &'static str,
        path: String,
        #[source]
        source: io::Error,
    },
    /// Some of the disk stays free.
    #[error("{path}: {} are free here, and {} stay free", format_size(*.free), format_size(*.reserved))]
    LowDiskSpace {
        path: String,
        /// How much is free.
        free: u64,
        /// How much stays free.
        reserved: u64,
    },
    /// Nothing is kept yet.
    #[error("the run has no folder on this laptop")]
    NoRunDir,
    /// The event is about a host that no `run-started` has named.
    #[error("host number {0} has no name")]
    UnknownHost(u32),
}

type LogKey = (u32, LogFile);

/// A folder of logs.
#[derive(Debug)]
pub struct LogStore {
    dir: PathBuf,
    nodes: NodeList,
    rank_owners: BTreeMap<String, u32>,
    lengths: HashMap<LogKey, u64>,
    open_files: VecDeque<(LogKey, File)>,
    reserve: DiskReserve,
    /// Names of files that were written since they were last known to be on the disk.
    unsynced: BTreeSet<String>,
    /// Whether what others have written before is known to be on the disk too.
    earlier_files_synced: bool,
}

impl LogStore {
    /// Opens a folder, and makes it if it is not there.
    ///
    /// # Errors
    /// When it cannot be made or read.
    pub fn open(dir: &Path) -> Result<Self, LogStoreError> {
        make_dir(dir).map_err(|source| io_error("make", dir, source))?;
        Ok(LogStore {
            nodes: NodeList::read(dir).map_err(|source| io_error("read", &dir.join(".nodes"), source))?,
            rank_owners: read_owners(dir)?,
            dir: dir.to_owned(),
            lengths: HashMap::new(),
            open_files: VecDeque::new(),
            reserve: DiskReserve::default(),
            unsynced: BTreeSet::new(),
            earlier_files_synced: false,
        })
    }

    /// Whether the folder says which hosts its numbers mean.
    pub fn has_node_list(&self) -> bool {
        self.nodes.is_saved()
    }

    /// The hosts whose logs are here, in node-rank order.
    pub fn hosts(&self) -> &[String] {
        self.nodes.names()
    }

    /// Takes these hosts for node 0, 1, … where neither the folder nor an earlier call says; nothing is written yet.
    pub fn set_default_hosts(&mut self, hosts: &[String]) {
        self.nodes.set_default_names(hosts);
    }

    /// Writes down which hosts the numbers mean, if the folder does not say.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save_node_list(&mut self) -> Result<(), LogStoreError> {
        self.nodes.save_if_missing(&self.dir).map_err(|source| io_error("write", &self.dir.join(".nodes"), source))
    }

    /// Where the file lies; `None`: nothing of that host is here.
    pub fn path(&self, host: &str, file: LogFile) -> Option<PathBuf> {
        self.nodes.find_number(host).map(|node| self.dir.join(self.file_name(node, file)))
    }

    /// Under a rendezvous that hands out ranks, two hosts may write the same rank: the second one's node rank is in the name.
    fn file_name(&self, node: u32, file: LogFile) -> String {
        let stem = file_stem(node, file);
        let name = format!("{stem}.log");
        if self.rank_owners.get(&name).is_some_and(|owner| *owner != node) { format!("{stem}@{node}.log") } else { name }
    }

    /// How many bytes are here: the next ones are wanted from this offset.
    ///
    /// # Errors
    /// When the file is there and cannot be looked at.
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
            Ok(_) => return Err(io_error("write", &path, io::Error::other("something else is in its place"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(source) => return Err(io_error("read", &path, source)),
        };
        self.lengths.insert((node, file), len);
        Ok(len)
    }

    /// The files of a host of which there are bytes here, and how many.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn log_lengths(&mut self, host: &str) -> Result<Vec<(LogFile, u64)>, LogStoreError> {
        let mut files = BTreeSet::from([LogFile::Launcher]);
        files.extend(self.list_files()?.iter().filter_map(|(name, _)| parse_file_name(name)));
        let known = files.into_iter().filter_map(|file| self.log_len(host, file).ok().map(|len| (file, len)));
        Ok(known.filter(|(_, len)| *len > 0).collect())
    }

    /// Writes bytes that belong at `offset`. What is here already is not written again.
    ///
    /// # Errors
    /// When there would be a gap, or the disk does not take them; what it took of them stays.
    pub fn write_at(&mut self, host: &str, file: LogFile, offset: u64, bytes: &[u8]) -> Result<(), LogStoreError> {
        let node = self.nodes.find_or_append(&self.dir, host).map_err(|source| io_error("write", &self.dir.join(".nodes"), source))?;
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
        let full =
            |DiskFull { free, reserved: keep }| LogStoreError::LowDiskSpace { path: self.dir.display().to_string(), free, reserved: keep };
        self.reserve.try_take(&self.dir, fresh.len() as u64).map_err(full)?;
        let written = self.open_file(node, file).and_then(|out| out.write_all_at(fresh, len));
        let name = self.file_name(node, file);
        match written {
            Ok(()) => {
                self.lengths.insert((node, file), len + fresh.len() as u64);
                self.unsynced.insert(name);
                Ok(())
            }
            Err(source) => {
                // Some of it may be there: ask the disk again next time.
                self.lengths.remove(&(node, file));
                self.open_files.retain(|(key, _)| *key != (node, file));
                Err(io_error("write", &self.dir.join(name), source))
            }
        }
    }

    /// Whether the disk has room for more, as far as that can be told without writing.
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

    /// Notes who writes a rank's log, if nobody does yet.
    fn claim_rank_log(&mut self, node: u32, file: LogFile) -> io::Result<()> {
        let name = self.file_name(node, file);
        if file == LogFile::Launcher || self.rank_owners.contains_key(&name) {
            return Ok(());
        }
        let _held = lock_dir(&self.dir)?;
        // Another process may have found another owner meanwhile.
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

    /// The host has cut the file or written it anew, and it has `size` bytes now: what was copied of it so far is kept beside, under a name that
    /// is free, and the copy begins again at byte 0. Where it is kept; `None`: there is nothing that is longer, since nothing was here or another
    /// process has kept it.
    ///
    /// # Errors
    /// When it cannot be kept: then nothing has changed.
    pub fn start_new_generation(&mut self, host: &str, file: LogFile, size: u64) -> Result<Option<PathBuf>, LogStoreError> {
        let Some(node) = self.nodes.find_number(host) else { return Ok(None) };
        self.lengths.remove(&(node, file));
        if self.node_len(node, file)? <= size {
            return Ok(None);
        }
        let name = self.file_name(node, file);
        let kept = self.move_to_generation(&name)?;
        if let Some(kept) = &kept {
            let whole = File::open(kept).and_then(|file| file.sync_all()).and_then(|()| sync_dir(&self.dir));
            whole.map_err(|source| io_error("sync", kept, source))?;
        }
        Ok(kept)
    }

    fn move_to_generation(&mut self, name: &str) -> Result<Option<PathBuf>, LogStoreError> {
        let path = self.dir.join(name);
        self.lengths.clear();
        self.open_files.clear();
        let moved = (|| {
            let _held = lock_dir(&self.dir)?;
            match fs::symlink_metadata(&path) {
                Ok(meta) if meta.is_file() && meta.len() > 0 => {}
                Ok(meta) if meta.is_file() => return Ok(None),
                Ok(_) => return Err(io::Error::other("something else is in its place")),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            }
            for number in 1..=MAX_GENERATIONS {
                let kept = generation_path(&path, number);
                match fs::symlink_metadata(&kept) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        fs::rename(&path, &kept)?;
                        return Ok(Some(kept));
                    }
                    Err(error) => return Err(error),
                    Ok(_) => {}
                }
            }
            let last = generation_path(&path, MAX_GENERATIONS);
            let mut joined = private_options(OpenOptions::new().append(true)).open(&last)?;
            io::copy(&mut private_options(OpenOptions::new().read(true)).open(&path)?, &mut joined)?;
            joined.sync_all()?;
            fs::remove_file(&path)?;
            Ok(Some(last))
        })();
        self.unsynced.remove(name);
        moved.map_err(|source| io_error("rename", &path, source))
    }

    /// Waits until every log of the run that was written here, by this process or one before it, is on the disk: files, folder, and the folders
    /// above up to the one of all runs. What the disk has refused cannot be believed later either: it is set aside, to be fetched anew.
    ///
    /// # Errors
    /// When any of it is not on the disk.
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
                tracing::warn!(%error, "a copy that the disk refused is still in its place");
            }
            return Err(error);
        }
        // The folder itself, the run's, that of all runs, and the state folder.
        for dir in self.dir.ancestors().take(4) {
            if let Err(source) = sync_dir(dir) {
                self.earlier_files_synced = false;
                return Err(io_error("sync", dir, source));
            }
        }
        self.earlier_files_synced = true;
        Ok(())
    }

    /// The SHA-256 of the whole file as hex digits; that of nothing where there is no file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn sha256(&self, host: &str, file: LogFile) -> Result<String, LogStoreError> {
        let mut hash = Sha256::new();
        if let Some(path) = self.path(host, file).filter(|path| path.exists()) {
            let mut input = open_read(&path)?;
            let mut buffer = vec![0; 256 << 10];
            loop {
                match input.read(&mut buffer).map_err(|source| io_error("read", &path, source))? {
                    0 => break,
                    n => hash.update(&buffer[..n]),
                }
            }
        }
        Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The last `lines` lines as they are, within the last 8 MiB; nothing where there is no file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn tail(&self, host: &str, file: LogFile, lines: usize) -> Result<Vec<u8>, LogStoreError> {
        let Some(path) = self.path(host, file).filter(|path| path.exists() && lines > 0) else { return Ok(Vec::new()) };
        let input = open_read(&path)?;
        let len = input.metadata().map_err(|source| io_error("read", &path, source))?.len();
        let mut start = len;
        let mut kept = Vec::new();
        while start > 0 && len - start < MAX_TAIL_BYTES {
            let block = start.min(64 << 10);
            start -= block;
            let mut buffer = vec![0; usize::try_from(block).unwrap_or(0)];
            input.read_exact_at(&mut buffer, start).map_err(|source| io_error("read", &path, source))?;
            buffer.append(&mut kept);
            kept = buffer;
            let body = kept.strip_suffix(b"\n").unwrap_or(&kept);
            if let Some(at) = memchr::memrchr_iter(b'\n', body).nth(lines - 1) {
                kept.drain(..=at);
                break;
            }
        }
        Ok(kept)
    }

    /// At most `most` bytes from `from` on; fewer at the end, none where there is no file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read_at(&self, host: &str, file: LogFile, from: u64, most: usize) -> Result<Vec<u8>, LogStoreError> {
        self.path(host, file).map_or(Ok(Vec::new()), |path| read_range(&path, from, most))
    }

    /// As [`LogStore::read_at`], of the copy that was set aside as number `number`; where there is none, of the present one.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read_generation(&self, host: &str, file: LogFile, number: u32, from: u64, most: usize) -> Result<Vec<u8>, LogStoreError> {
        let Some(path) = self.path(host, file) else { return Ok(Vec::new()) };
        let kept = generation_path(&path, number.min(MAX_GENERATIONS));
        read_range(if kept.exists() { &kept } else { &path }, from, most)
    }

    /// The names and lengths of all files, in order.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn list_files(&self) -> Result<Vec<(String, u64)>, LogStoreError> {
        let read = |source| io_error("read", &self.dir, source);
        let shown = self.list_entries()?.into_iter().filter(|name| !name.starts_with('.'));
        let mut files = Vec::new();
        for name in shown {
            let len = fs::symlink_metadata(self.dir.join(&name)).map_err(read)?.len();
            files.push((name, len));
        }
        files.sort();
        Ok(files)
    }

    fn list_entries(&self) -> Result<Vec<String>, LogStoreError> {
        let read = |source| io_error("read", &self.dir, source);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(read)? {
            names.push(entry.map_err(read)?.file_name().to_string_lossy().into_owned());
        }
        Ok(names)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

fn file_stem(node: u32, file: LogFile) -> String {
    match file {
        LogFile::Launcher => format!("node-{node}"),
        LogFile::Rank { rank, restart: 0 } => format!("rank-{rank}"),
        LogFile::Rank { rank, restart } => format!("rank-{rank}.{restart}"),
    }
}

/// Which file a copy's name means; `None`: none, or what was set aside.
fn parse_file_name(name: &str) -> Option<LogFile> {
    let stem = name.strip_suffix(".log")?;
    let stem = stem.split('@').next().unwrap_or(stem);
    if stem.starts_with("node-") {
        return Some(LogFile::Launcher);
    }
    if stem.contains('.') { stem.parse().ok() } else { format!("{stem}.0").parse().ok() }
}

fn generation_path(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

fn read_owners(dir: &Path) -> Result<BTreeMap<String, u32>, LogStoreError> {
    let path = dir.join(OWNERS_FILE);
    let text = read_bounded(&path, MAX_OWNERS_BYTES).map_err(|source| io_error("read", &path, source))?.unwrap_or_default();
    let owner = |line: &str| line.split_once(' ').and_then(|(name, node)| Some((name.to_owned(), node.parse().ok()?)));
    Ok(String::from_utf8_lossy(&text).lines().filter_map(owner).collect())
}

fn open_read(path: &Path) -> Result<File, LogStoreError> {
    private_options(OpenOptions::new().read(true)).open(path).map_err(|source| io_error("read", path, source))
}

fn read_range(path: &Path, from: u64, most: usize) -> Result<Vec<u8>, LogStoreError> {
    let input = match private_options(OpenOptions::new().read(true)).open(path) {
        Ok(input) => input,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(io_error("read", path, source)),
    };
    let mut bytes = vec![0; most];
    let mut have = 0;
    while have < most {
        match input.read_at(&mut bytes[have..], from + have as u64).map_err(|source| io_error("read", path, source))? {
            0 => break,
            n => have += n,
        }
    }
    bytes.truncate(have);
    Ok(bytes)
}

fn io_error(what: &'static str, path: &Path, source: io::Error) -> LogStoreError {
    LogStoreError::Io { what, path: path.display().to_string(), source }
}

#[cfg(test)]
#[path = "log_store_tests.rs"]
mod tests;
