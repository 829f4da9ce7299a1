//! A file on the laptop that is not in its place yet.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};

use sha2::{Digest as _, Sha256};

pub(super) type Step<T> = Result<T, String>;

/// A file that is not in its place yet.
pub(crate) struct PartFile {
    pub(crate) file: File,
    pub(super) name: String,
}

impl PartFile {
    pub(crate) fn len(&self) -> u64 {
        self.file.metadata().map_or(0, |metadata| metadata.len())
    }

    /// # Errors
    /// As `write(2)`.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Step<()> {
        self.file.write_all(bytes).map_err(|e| format!("this laptop: {}", super::local_tree::plain_error(&e)))
    }

    /// As [`PartFile::write`], but zeros become a hole.
    ///
    /// # Errors
    /// As `write(2)`.
    pub(crate) fn write_sparse(&mut self, bytes: &[u8]) -> Step<()> {
        if bytes.iter().any(|byte| *byte != 0) {
            return self.write(bytes);
        }
        let skip = i64::try_from(bytes.len()).unwrap_or(0);
        self.file.seek(SeekFrom::Current(skip)).map(drop).map_err(|e| e.to_string())
    }

    /// Cuts or extends it to `size` and goes there.
    ///
    /// # Errors
    /// As `ftruncate(2)`.
    pub(crate) fn resize(&mut self, size: u64) -> Step<()> {
        let resized = self.file.set_len(size).and_then(|()| self.file.seek(SeekFrom::Start(size)));
        resized.map(drop).map_err(|e| format!("this laptop: {}", super::local_tree::plain_error(&e)))
    }

    /// SHA-256 of its first `size` bytes.
    ///
    /// # Errors
    /// As `read(2)`.
    pub(crate) fn prefix_digest(&mut self, size: u64) -> Step<Sha256> {
        let mut digest = Sha256::new();
        self.copy_prefix(size, |bytes| {
            digest.update(bytes);
            Ok(())
        })?;
        Ok(digest)
    }

    /// Hands over its first `size` bytes.
    ///
    /// # Errors
    /// As `read(2)`, or what `take` says.
    pub(crate) fn copy_prefix(&mut self, size: u64, mut take: impl FnMut(&[u8]) -> Step<()>) -> Step<()> {
        self.file.seek(SeekFrom::Start(0)).map_err(|e| e.to_string())?;
        let (mut buffer, mut left) = (vec![0; 64 << 10], size);
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            let read = self.file.read(buffer.get_mut(..most).unwrap_or_default()).map_err(|e| e.to_string())?;
            if read == 0 {
                return Err("a part became shorter".to_owned());
            }
            take(buffer.get(..read).unwrap_or_default())?;
            left -= u64::try_from(read).unwrap_or(left);
        }
        Ok(())
    }
}
