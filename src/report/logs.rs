#![expect(clippy::disallowed_methods, reason = "owns the log files of the laptop")]
//! The laptop's copies of a run's logs, byte for byte: `rank-<n>.log`, after a restart `rank-<n>.<k>.log`, and `node-<n>.log`.
//!
//! Uses `event`. Knows no host and no terminal: what is read here is as dangerous as the host made it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::event::LogFile;

/// How many files are open at once: a laptop allows few.
const OPEN: usize = 64;
/// The file that remembers which host wrote which log.
const OWNERS: &str = ".hosts";
/// The most bytes that [`LogStore::tail`] looks at.
const LOOK: u64 = 8 << 20;

/// Why log bytes are not on the laptop.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The bytes do not follow what is there.
    #[error("{name} has {len} bytes, the next come from {offset}")]
    Gap {
        /// The file.
        name: String,
        /// Its length.
        len: u64,
        /// Where the bytes belong.
        offset: u64,
    },
    /// The file could not be read or written: a full disk, a missing right.
    #[error("could not {what} {path}")]
    Io {
        /// `write`, `read`, `make`.
        what: &'static str,
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A folder of logs. One writer at a time.
#[derive(Debug)]
pub struct LogStore {
    dir: PathBuf,
    owners: BTreeMap<String, u32>,
    lens: HashMap<(u32, LogFile), u64>,
    open: VecDeque<((u32, LogFile), File)>,
}

impl LogStore {
    /// Opens a folder, and makes it if it is not there.
    ///
    /// # Errors
    /// When it cannot be made or read.
    pub fn open(dir: &Path) -> Result<Self, LogError> {
        make_dir(dir).map_err(|source| failed("make", dir, source))?;
        let path = dir.join(OWNERS);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(failed("read", &path, source)),
        };
        let owner = |line: &str| line.split_once(' ').and_then(|(name, host)| Some((name.to_owned(), host.parse().ok()?)));
        let owners = text.lines().filter_map(owner).collect();
        Ok(LogStore { dir: dir.to_owned(), owners, lens: HashMap::new(), open: VecDeque::new() })
    }

    /// Where the file lies. Under a rendezvous that hands out ranks, two hosts may write the same rank: the second one's host is in its name.
    pub fn path(&self, host: u32, file: LogFile) -> PathBuf {
        self.dir.join(self.name(host, file))
    }

    fn name(&self, host: u32, file: LogFile) -> String {
        let stem = match file {
            LogFile::Node => return format!("node-{host}.log"),
            LogFile::Rank { rank, restart: 0 } => format!("rank-{rank}"),
            LogFile::Rank { rank, restart } => format!("rank-{rank}.{restart}"),
        };
        let name = format!("{stem}.log");
        if self.owners.get(&name).is_some_and(|owner| *owner != host) { format!("{stem}@{host}.log") } else { name }
    }

    /// How many bytes are here: the next ones are wanted from this offset.
    ///
    /// # Errors
    /// When the file is there and cannot be looked at.
    pub fn len(&mut self, host: u32, file: LogFile) -> Result<u64, LogError> {
        if let Some(len) = self.lens.get(&(host, file)) {
            return Ok(*len);
        }
        let path = self.path(host, file);
        let len = match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_file() => meta.len(),
            Ok(_) => return Err(failed("write", &path, io::Error::other("something else is in its place"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(source) => return Err(failed("read", &path, source)),
        };
        self.lens.insert((host, file), len);
        Ok(len)
    }

    /// Writes bytes that belong at `offset`. What is here already is not written again.
    ///
    /// # Errors
    /// When there would be a gap, or the disk does not take them; what it took of them stays.
    pub fn write_at(&mut self, host: u32, file: LogFile, offset: u64, bytes: &[u8]) -> Result<(), LogError> {
        let len = self.len(host, file)?;
        if offset > len {
            return Err(LogError::Gap { name: self.name(host, file), len, offset });
        }
        let known = usize::try_from(len - offset).unwrap_or(usize::MAX).min(bytes.len());
        let fresh = &bytes[known..];
        if fresh.is_empty() && len > 0 {
            return Ok(());
        }
        let path = self.path(host, file);
        let written = self.file(host, file).and_then(|out| out.write_all_at(fresh, len));
        match written {
            Ok(()) => {
                self.lens.insert((host, file), len + fresh.len() as u64);
                Ok(())
            }
            Err(source) => {
                // Some of it may be there: ask the disk again next time.
                self.lens.remove(&(host, file));
                self.open.retain(|(key, _)| *key != (host, file));
                Err(failed("write", &path, source))
            }
        }
    }

    fn file(&mut self, host: u32, file: LogFile) -> io::Result<&File> {
        let key = (host, file);
        if let Some(at) = self.open.iter().position(|(k, _)| *k == key) {
            return Ok(&self.open[at].1);
        }
        if self.open.len() >= OPEN {
            self.open.pop_front();
        }
        let name = self.name(host, file);
        let opened = private(OpenOptions::new().write(true).create(true)).open(self.dir.join(&name))?;
        if let (LogFile::Rank { .. }, false) = (file, self.owners.contains_key(&name)) {
            let mut owners = private(OpenOptions::new().append(true).create(true)).open(self.dir.join(OWNERS))?;
            owners.write_all(format!("{name} {host}\n").as_bytes())?;
            self.owners.insert(name, host);
        }
        self.open.push_back((key, opened));
        let last = self.open.len() - 1;
        Ok(&self.open[last].1)
    }

    /// The SHA-256 of the whole file as hex digits; that of nothing where there is no file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn sha256(&self, host: u32, file: LogFile) -> Result<String, LogError> {
        let path = self.path(host, file);
        let mut hash = Sha256::new();
        if path.exists() {
            let mut input = open_read(&path)?;
            let mut buffer = vec![0; 256 << 10];
            loop {
                match input.read(&mut buffer).map_err(|source| failed("read", &path, source))? {
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
    pub fn tail(&self, host: u32, file: LogFile, lines: usize) -> Result<Vec<u8>, LogError> {
        let path = self.path(host, file);
        if !path.exists() || lines == 0 {
            return Ok(Vec::new());
        }
        let input = open_read(&path)?;
        let len = input.metadata().map_err(|source| failed("read", &path, source))?.len();
        let mut start = len;
        let mut kept = Vec::new();
        while start > 0 && len - start < LOOK {
            let block = start.min(64 << 10);
            start -= block;
            let mut buffer = vec![0; usize::try_from(block).unwrap_or(0)];
            input.read_exact_at(&mut buffer, start).map_err(|source| failed("read", &path, source))?;
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
    pub fn read_at(&self, host: u32, file: LogFile, from: u64, most: usize) -> Result<Vec<u8>, LogError> {
        let path = self.path(host, file);
        let input = match private(OpenOptions::new().read(true)).open(&path) {
            Ok(input) => input,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(failed("read", &path, source)),
        };
        let mut bytes = vec![0; most];
        let mut have = 0;
        while have < most {
            match input.read_at(&mut bytes[have..], from + have as u64).map_err(|source| failed("read", &path, source))? {
                0 => break,
                n => have += n,
            }
        }
        bytes.truncate(have);
        Ok(bytes)
    }

    /// The names and lengths of all files, in order.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn files(&self) -> Result<Vec<(String, u64)>, LogError> {
        let read = |source| failed("read", &self.dir, source);
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(read)? {
            let entry = entry.map_err(read)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !name.starts_with('.') {
                files.push((name, entry.metadata().map_err(read)?.len()));
            }
        }
        files.sort();
        Ok(files)
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

fn open_read(path: &Path) -> Result<File, LogError> {
    private(OpenOptions::new().read(true)).open(path).map_err(|source| failed("read", path, source))
}

/// For this user only, and not through a link that someone else put there.
pub(super) fn private(options: &mut OpenOptions) -> &OpenOptions {
    options.mode(0o600).custom_flags(i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0))
}

/// Makes a folder, and those above it, for this user only.
pub(super) fn make_dir(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

fn failed(what: &'static str, path: &Path, source: io::Error) -> LogError {
    LogError::Io { what, path: path.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt;

    const RANK: LogFile = LogFile::Rank { rank: 3, restart: 0 };

    fn store() -> (tempfile::TempDir, LogStore) {
        let dir = tempfile::tempdir().expect("a folder");
        let store = LogStore::open(&dir.path().join("logs")).expect("a store");
        (dir, store)
    }

    #[test]
    fn bytes_come_once_and_without_gaps() {
        let (_dir, mut store) = store();
        assert_eq!(store.len(1, RANK).expect("len"), 0);
        store.write_at(1, RANK, 0, b"hello ").expect("written");
        store.write_at(1, RANK, 3, b"lo world\n").expect("the known part is skipped");
        store.write_at(1, RANK, 0, b"hello").expect("all known");
        assert!(matches!(store.write_at(1, RANK, 16, b"x"), Err(LogError::Gap { len: 12, offset: 16, .. })));
        assert_eq!(fs::read(store.path(1, RANK)).expect("there"), b"hello world\n");
        let again = LogStore::open(store.dir()).map(|mut store| store.len(1, RANK).expect("len"));
        assert_eq!(again.expect("opens"), 12, "another process goes on where this one was");
    }

    #[test]
    fn names_modes_and_two_hosts_with_one_rank() {
        let (_dir, mut store) = store();
        let restarted = LogFile::Rank { rank: 3, restart: 2 };
        for (host, file) in [(0, RANK), (5, RANK), (5, restarted), (7, LogFile::Node)] {
            store.write_at(host, file, 0, format!("{host}").as_bytes()).expect("written");
        }
        let mut store = LogStore::open(store.dir()).expect("opens again");
        store.write_at(5, RANK, 1, b"!").expect("goes on");
        let names: Vec<(String, u64)> = store.files().expect("listed");
        let expected = [("node-7.log", 1), ("rank-3.2.log", 1), ("rank-3.log", 1), ("rank-3@5.log", 2)];
        assert_eq!(names, expected.map(|(name, len)| (name.to_owned(), len)));
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(store.dir()), mode(&store.path(0, RANK))), (0o700, 0o600));
    }

    #[test]
    fn more_files_than_may_be_open() {
        let (_dir, mut store) = store();
        for round in 0..3_u64 {
            for rank in 0..(OPEN as u32 * 2) {
                store.write_at(0, LogFile::Rank { rank, restart: 0 }, round, b"x").expect("written");
            }
        }
        assert!(store.open.len() <= OPEN);
        assert!(store.files().expect("listed").iter().all(|(_, len)| *len == 3));
    }

    #[test]
    fn a_link_is_not_followed() {
        let (dir, mut store) = store();
        let victim = dir.path().join("victim");
        fs::write(&victim, "precious").expect("written");
        std::os::unix::fs::symlink(&victim, store.path(0, RANK)).expect("linked");
        assert!(matches!(store.write_at(0, RANK, 0, b"evil"), Err(LogError::Io { what: "write", .. })));
        store.lens.insert((0, RANK), 0);
        assert!(matches!(store.write_at(0, RANK, 0, b"evil"), Err(LogError::Io { what: "write", .. })), "nor one that came later");
        assert_eq!(fs::read(&victim).expect("there"), b"precious");
    }

    #[test]
    fn tails_and_sums() {
        let (_dir, mut store) = store();
        let text: String = (0..20_000).map(|n| format!("line {n}\n")).collect();
        store.write_at(0, RANK, 0, text.as_bytes()).expect("written");
        store.write_at(0, RANK, text.len() as u64, b"half").expect("written");
        assert_eq!(store.tail(0, RANK, 2).expect("read"), b"line 19999\nhalf");
        assert_eq!(store.tail(0, RANK, 0).expect("read"), b"");
        assert_eq!(store.tail(0, RANK, 1 << 20).expect("read").len(), text.len() + 4);
        assert_eq!(store.tail(0, LogFile::Node, 3).expect("no file"), b"");
        let sum = store.sha256(0, LogFile::Node).expect("sum");
        assert_eq!(sum, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }

    proptest! {
        #[test]
        fn any_replay_gives_the_same_file(cuts in proptest::collection::vec((0..100_usize, 0..100_usize), 0..20)) {
            let (_dir, mut store) = store();
            let text: Vec<u8> = (0..100).collect();
            for (from, len) in cuts {
                let piece = &text[from..(from + len).min(100)];
                match store.write_at(0, RANK, from as u64, piece) {
                    Ok(()) | Err(LogError::Gap { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            let have = fs::read(store.path(0, RANK)).unwrap_or_default();
            prop_assert_eq!(&have[..], &text[..have.len()]);
            prop_assert_eq!(store.len(0, RANK).expect("len"), have.len() as u64);
        }
    }
}
