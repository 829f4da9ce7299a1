#![expect(clippy::disallowed_methods, reason = "opens files of the laptop")]
//! Files and directories that only this user can access; symbolic links are not followed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Mode 0600, and not through a symbolic link that someone else may have put there.
pub(super) fn private_options(options: &mut OpenOptions) -> &OpenOptions {
    options.mode(0o600).custom_flags(i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0))
}

/// Creates a directory and its parents with mode 0700.
pub(super) fn make_dir(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// At most `max_len` bytes of a file from `offset` on; `None` if there is no file.
pub(super) fn read_bounded(path: &Path, offset: u64, max_len: u64) -> io::Result<Option<Vec<u8>>> {
    let mut file = match private_options(OpenOptions::new().read(true)).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(max_len).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Locks the directory's own files (node list, owners) against other processes until the returned file is dropped. On file systems without
/// locks this does nothing.
pub(super) fn lock_dir(dir: &Path) -> io::Result<File> {
    let file = private_options(OpenOptions::new().write(true).create(true)).open(dir.join(".lock"))?;
    if let Err(error) = file.lock() {
        tracing::debug!(%error, dir = %dir.display(), "the directory cannot be locked");
    }
    Ok(file)
}

/// Syncs a directory's entries. File systems that do not support the call count as synced.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    match File::open(dir)?.sync_all() {
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
        done => done,
    }
}
