//! Earlier copies of a log that was truncated on its host.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::super::private_files::{lock_dir, private_options, sync_dir};
use super::reading::read_range;
use super::{LogStore, LogStoreError, io_error};
use crate::event::LogFile;

/// How many earlier copies of one file are kept separately; later ones are appended to the last of them.
pub(super) const MAX_GENERATIONS: u32 = 100;

fn generation_path(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

impl LogStore {
    /// The file was truncated or rewritten on its host and has `size` bytes now: moves the copy to a free name and starts a new one at offset 0.
    /// Returns the moved copy; `None` if the copy is not longer than `size` (there is none, or another process has moved it).
    ///
    /// # Errors
    /// When the copy cannot be moved; nothing has changed then.
    pub fn start_new_generation(&mut self, host: &str, file: LogFile, size: u64) -> Result<Option<PathBuf>, LogStoreError> {
        let Some(node) = self.nodes.find_number(host) else { return Ok(None) };
        self.lengths.remove(&(node, file));
        if self.node_len(node, file)? <= size {
            return Ok(None);
        }
        let name = self.file_name(node, file);
        let kept = self.move_to_generation(&name)?;
        if let Some(kept) = &kept {
            let synced = File::open(kept).and_then(|file| file.sync_all()).and_then(|()| sync_dir(&self.dir));
            synced.map_err(|source| io_error("sync", kept, source))?;
        }
        Ok(kept)
    }

    pub(super) fn move_to_generation(&mut self, name: &str) -> Result<Option<PathBuf>, LogStoreError> {
        let path = self.dir.join(name);
        self.lengths.clear();
        self.open_files.clear();
        let moved = (|| {
            let _lock = lock_dir(&self.dir)?;
            match fs::symlink_metadata(&path) {
                Ok(meta) if meta.is_file() && meta.len() > 0 => {}
                Ok(meta) if meta.is_file() => return Ok(None),
                Ok(_) => return Err(io::Error::other("not a regular file")),
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

    /// Like [`LogStore::read_at`], for the earlier copy with this number; if there is none, for the present copy.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read_generation(&self, host: &str, file: LogFile, number: u32, range: Range<u64>) -> Result<Vec<u8>, LogStoreError> {
        let Some(path) = self.path(host, file) else { return Ok(Vec::new()) };
        let earlier = generation_path(&path, number.min(MAX_GENERATIONS));
        read_range(if earlier.exists() { &earlier } else { &path }, range.start, range.end.saturating_sub(range.start))
    }
}
