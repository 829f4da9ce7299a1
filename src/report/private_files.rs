#![expect(clippy::disallowed_methods, reason = "opens files of the laptop")]
//! Files and folders for this user only: never through a link, on the disk when asked for.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// For this user only, and not through a link that someone else put there.
pub(super) fn private_options(options: &mut OpenOptions) -> &OpenOptions {
    options.mode(0o600).custom_flags(i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0))
}

/// Makes a folder, and those above it, for this user only.
pub(super) fn make_dir(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// The bytes of a file; `None` where there is none.
pub(super) fn read_bounded(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match private_options(OpenOptions::new().read(true)).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Keeps other processes from changing what the folder says of itself until the answer is dropped. A file system without locks has none to
/// give, and then nobody is kept.
pub(super) fn lock_dir(dir: &Path) -> io::Result<File> {
    let file = private_options(OpenOptions::new().write(true).create(true)).open(dir.join(".lock"))?;
    if let Err(error) = file.lock() {
        tracing::debug!(%error, dir = %dir.display(), "the folder cannot be locked");
    }
    Ok(file)
}

/// Waits until what was made, renamed and removed in a folder is on the disk. Some file systems do that by themselves and have no call for it.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    match File::open(dir)?.sync_all() {
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
        done => done,
    }
}
