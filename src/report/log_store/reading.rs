//! Reads the copies: ranges, tails, checksums, the list of files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::super::log_tail::tail_offset;
use super::super::private_files::private_options;
use super::{LogStore, LogStoreError, MAX_TAIL_BYTES, io_error};
use crate::event::LogFile;

fn open_read(path: &Path) -> Result<File, LogStoreError> {
    private_options(OpenOptions::new().read(true)).open(path).map_err(|source| io_error("read", path, source))
}

pub(super) fn read_range(path: &Path, offset: u64, max_len: usize) -> Result<Vec<u8>, LogStoreError> {
    let input = match private_options(OpenOptions::new().read(true)).open(path) {
        Ok(input) => input,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(io_error("read", path, source)),
    };
    let there = input.metadata().map_err(|source| io_error("read", path, source))?.len().saturating_sub(offset);
    let max_len = max_len.min(usize::try_from(there).unwrap_or(usize::MAX));
    let mut bytes = vec![0; max_len];
    let mut len = 0;
    while len < max_len {
        match input.read_at(&mut bytes[len..], offset + len as u64).map_err(|source| io_error("read", path, source))? {
            0 => break,
            n => len += n,
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

impl LogStore {
    /// The SHA-256 of the file in hex; of no bytes if there is no file.
    ///
    /// # Errors
    /// When the file cannot be read.
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

    /// The last `lines` lines within the last 8 MiB, unchanged; empty if there is no file.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn tail(&self, host: &str, file: LogFile, lines: usize) -> Result<Vec<u8>, LogStoreError> {
        let Some(path) = self.path(host, file).filter(|path| path.exists() && lines > 0) else { return Ok(Vec::new()) };
        let start = tail_offset(&open_read(&path)?, lines, MAX_TAIL_BYTES).map_err(|source| io_error("read", &path, source))?;
        read_range(&path, start, usize::try_from(MAX_TAIL_BYTES).unwrap_or(usize::MAX))
    }

    /// At most `max_len` bytes from `offset`; fewer at the end, none if there is no file.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read_at(&self, host: &str, file: LogFile, offset: u64, max_len: usize) -> Result<Vec<u8>, LogStoreError> {
        self.path(host, file).map_or(Ok(Vec::new()), |path| read_range(&path, offset, max_len))
    }

    /// The names and lengths of all log files, sorted.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn list_files(&self) -> Result<Vec<(String, u64)>, LogStoreError> {
        let read = |source| io_error("read", &self.dir, source);
        let visible = self.list_entries()?.into_iter().filter(|name| !name.starts_with('.'));
        let mut files = Vec::new();
        for name in visible {
            let len = fs::symlink_metadata(self.dir.join(&name)).map_err(read)?.len();
            files.push((name, len));
        }
        files.sort();
        Ok(files)
    }
}
