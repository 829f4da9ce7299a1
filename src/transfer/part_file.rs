//! A file on the laptop that is not in its place yet.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};

use sha2::{Digest as _, Sha256};

use crate::text::error_chain::plain_io_error;

pub(super) type Step<T> = Result<T, String>;

/// What the laptop's disk says.
fn laptop_error(error: io::Error) -> String {
    format!("this laptop: {}", plain_io_error(&error))
}

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
        self.file.write_all(bytes).map_err(laptop_error)
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
        self.file.seek(SeekFrom::Current(skip)).map(drop).map_err(laptop_error)
    }

    /// Cuts or extends it to `size` and goes there.
    ///
    /// # Errors
    /// As `ftruncate(2)`.
    pub(crate) fn resize(&mut self, size: u64) -> Step<()> {
        let resized = self.file.set_len(size).and_then(|()| self.file.seek(SeekFrom::Start(size)));
        resized.map(drop).map_err(laptop_error)
    }

    /// Waits until the disk has it.
    ///
    /// # Errors
    /// As `fsync(2)`.
    pub(crate) fn sync(&self) -> Step<()> {
        self.file.sync_all().map_err(laptop_error)
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
        self.file.seek(SeekFrom::Start(0)).map_err(laptop_error)?;
        let (mut buffer, mut left) = (vec![0; 64 << 10], size);
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            let read = self.file.read(buffer.get_mut(..most).unwrap_or_default()).map_err(laptop_error)?;
            if read == 0 {
                return Err("a part became shorter".to_owned());
            }
            take(buffer.get(..read).unwrap_or_default())?;
            left -= u64::try_from(read).unwrap_or(left);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hosts' disks have the same complaints.
    #[test]
    fn errors_of_the_laptop_say_so() {
        let folder = tempfile::tempdir().expect("a folder");
        let unreadable = File::options().write(true).create(true).truncate(true).open(folder.path().join("part")).expect("a file");
        let mut part = PartFile { file: unreadable, name: String::new() };
        assert_eq!(part.copy_prefix(9, |_| Ok(())), Err("this laptop: bad file descriptor".to_owned()));
    }
}
