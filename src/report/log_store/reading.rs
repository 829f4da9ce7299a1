//! Reads the copies: ranges, tails, the list of files.

use std::fs::{self, OpenOptions};
use std::path::Path;

use super::super::log_tail::tail_offset;
use super::super::private_files::{private_options, read_bounded};
use super::{LogStore, LogStoreError, MAX_TAIL_BYTES, io_error};
use crate::event::LogFile;

/// Empty if there is no file.
pub(super) fn read_range(path: &Path, offset: u64, max_len: u64) -> Result<Vec<u8>, LogStoreError> {
    Ok(read_bounded(path, offset, max_len).map_err(|source| io_error("read", path, source))?.unwrap_or_default())
}

impl LogStore {
    /// The last `lines` lines within the last 8 MiB, unchanged; empty if there is no file.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn tail(&self, host: &str, file: LogFile, lines: usize) -> Result<Vec<u8>, LogStoreError> {
        let Some(path) = self.path(host, file).filter(|path| path.exists() && lines > 0) else { return Ok(Vec::new()) };
        let start = private_options(OpenOptions::new().read(true))
            .open(&path)
            .and_then(|file| tail_offset(&file, lines, MAX_TAIL_BYTES))
            .map_err(|source| io_error("read", &path, source))?;
        read_range(&path, start, MAX_TAIL_BYTES)
    }

    /// At most `max_len` bytes from `offset`; fewer at the end, none if there is no file.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read_at(&self, host: &str, file: LogFile, offset: u64, max_len: usize) -> Result<Vec<u8>, LogStoreError> {
        self.path(host, file).map_or(Ok(Vec::new()), |path| read_range(&path, offset, max_len as u64))
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
