//! A directory of the laptop that takes what hosts send. Every name is opened relative to a directory handle, and no link on the way is followed,
//! so that nothing outside the directory can change.
#![expect(clippy::disallowed_methods, reason = "files of the laptop are written")]

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{self, AtFlags, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

use super::entry::{EntryKind, PART_DIR, TreeEntry, TreeName};
use super::local_parts::purge_old_parts;
use super::part_file::{PartFile, Step};
use crate::text::error_chain::plain_io_error;

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::RDONLY);

pub(crate) struct LocalDir {
    root: OwnedFd,
    /// Takes files until they are proven; made when the first one comes.
    parts: Option<OwnedFd>,
    /// The directory that was opened last.
    recent: Option<(Vec<u8>, OwnedFd)>,
    next_part: u64,
    nonce: String,
}

fn explain(name: &TreeName, error: Errno) -> String {
    let reason = match error {
        Errno::LOOP | Errno::NOTDIR => "a link or a file is in the way; nothing is written through it".to_owned(),
        error => plain_io_error(&error.into()),
    };
    format!("{}: {reason}", name.display())
}

impl LocalDir {
    /// Opens `parent/name`; `parent` is the user's own path. `None` if it is missing and `create` is false.
    ///
    /// # Errors
    /// What is in the way.
    pub(crate) fn open(parent: &Path, name: &str, nonce: &str, create: bool) -> Step<Option<LocalDir>> {
        let error_at = |error: &std::io::Error| format!("{}: {}", parent.join(name).display(), plain_io_error(error));
        if create {
            std::fs::create_dir_all(parent).map_err(|e| error_at(&e))?;
        }
        let opened = File::open(parent).and_then(|above| match create {
            true => Ok(make_directory(&above, OsStr::new(name), 0o755)?),
            false => Ok(fs::openat(&above, name, DIRECTORY, Mode::empty())?),
        });
        match opened {
            Ok(root) => Ok(Some(LocalDir { root, parts: None, recent: None, next_part: 0, nonce: nonce.to_owned() })),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !create => Ok(None),
            Err(error) => Err(error_at(&error)),
        }
    }

    fn parts(&mut self) -> Result<OwnedFd, Errno> {
        if self.parts.is_none() {
            let parts = make_directory(&self.root, OsStr::new(PART_DIR), 0o700)?;
            purge_old_parts(&parts);
            self.parts = Some(parts);
        }
        let parts = self.parts.as_ref().ok_or(Errno::NOENT)?;
        rustix::io::fcntl_dupfd_cloexec(parts, 0)
    }

    /// What has this name now; `None` if there is nothing, or a link or file above it.
    pub(crate) fn find(&mut self, name: &TreeName) -> Option<TreeEntry> {
        let (parent, last) = self.parent(name, false).ok()?;
        let stat = fs::statat(parent, last, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let mode = stat.st_mode;
        let kind = match EntryKind::from_mode(mode, u64::try_from(stat.st_size).unwrap_or(0)) {
            EntryKind::Link(_) => {
                EntryKind::Link(fs::readlinkat(parent, last, Vec::new()).map(|text| text.into_bytes()).unwrap_or_default())
            }
            kind => kind,
        };
        Some(TreeEntry { name: name.clone(), kind, mode: mode & 0o777, mtime: stat.st_mtime })
    }

    /// The parent directory of a name, and its last component.
    fn parent<'a>(&'a mut self, name: &'a TreeName, create: bool) -> Result<(&'a OwnedFd, &'a OsStr), Errno> {
        let bytes = name.as_bytes();
        let (above, last) = match memchr::memrchr(b'/', bytes) {
            Some(at) => (bytes.get(..at).unwrap_or_default(), bytes.get(at + 1..).unwrap_or_default()),
            None => return Ok((&self.root, OsStr::from_bytes(bytes))),
        };
        if self.recent.as_ref().is_none_or(|(path, _)| path != above) {
            let mut current = fs::openat(&self.root, ".", DIRECTORY, Mode::empty())?;
            for component in above.split(|byte| *byte == b'/') {
                let component = OsStr::from_bytes(component);
                current = if create {
                    make_directory(&current, component, 0o755)?
                } else {
                    fs::openat(&current, component, DIRECTORY, Mode::empty())?
                };
            }
            self.recent = Some((above.to_vec(), current));
        }
        match &self.recent {
            Some((_, parent)) => Ok((parent, OsStr::from_bytes(last))),
            None => Err(Errno::NOENT),
        }
    }

    /// Makes a directory that stays writable until [`LocalDir::set_mode`].
    ///
    /// # Errors
    /// What is in the way.
    pub(crate) fn make_dir(&mut self, entry: &TreeEntry) -> Step<()> {
        let (parent, last) = self.parent(&entry.name, true).map_err(|e| explain(&entry.name, e))?;
        make_directory(parent, last, entry.mode | 0o700).map(drop).map_err(|e| explain(&entry.name, e))
    }

    /// Sets the mode of a file or directory, never through a link.
    ///
    /// # Errors
    /// What is in the way.
    pub(crate) fn set_mode(&mut self, entry: &TreeEntry) -> Step<()> {
        let set = |parent: &OwnedFd, last: &OsStr| {
            let handle = fs::openat(parent, last, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
            fs::fchmod(&handle, mode_bits(entry.mode))
        };
        self.parent(&entry.name, false).and_then(|(parent, last)| set(parent, last)).map_err(|e| explain(&entry.name, e))
    }

    /// Puts a link in its place; what has the name is replaced, not followed.
    ///
    /// # Errors
    /// What is in the way.
    pub(crate) fn put_link(&mut self, name: &TreeName, text: &[u8]) -> Step<()> {
        let part = self.new_part_name();
        let made = self.parts().and_then(|parts| fs::symlinkat(OsStr::from_bytes(text), parts, &part));
        made.map_err(|e| explain(name, e))?;
        self.rename(&part, name)
    }

    fn rename(&mut self, part: &str, name: &TreeName) -> Step<()> {
        let parts = self.parts().map_err(|e| explain(name, e))?;
        let renamed = self.parent(name, true).and_then(|(parent, last)| fs::renameat(parts, part, parent, last));
        renamed.map_err(|e| explain(name, e))
    }

    fn new_part_name(&mut self) -> String {
        self.next_part += 1;
        format!("{}.{}", self.nonce, self.next_part)
    }

    /// A new empty part.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn new_part(&mut self) -> Step<PartFile> {
        let name = self.new_part_name();
        self.open_part(&name, OFlags::CREATE | OFlags::EXCL)
    }

    /// A part that was closed: a batch has more files than a process may hold open.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub(crate) fn reopen_part(&mut self, name: &str) -> Step<PartFile> {
        self.open_part(name, OFlags::empty())
    }

    /// The part of a big file; it may exist since an earlier transfer.
    ///
    /// # Errors
    /// Why there is none, or something else has its name.
    pub(crate) fn open_resumable_part(&mut self, id: &str) -> Step<PartFile> {
        self.open_part(id, OFlags::CREATE)
    }

    fn open_part(&mut self, name: &str, more: OFlags) -> Step<PartFile> {
        let error_at = |e: Errno| format!("{PART_DIR}/{name}: {}", plain_io_error(&e.into()));
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | more;
        let parts = self.parts().map_err(error_at)?;
        let handle = fs::openat(parts, name, flags, Mode::RUSR | Mode::WUSR).map_err(error_at)?;
        let stat = fs::fstat(&handle).map_err(error_at)?;
        if stat.st_mode & 0o170_000 != 0o100_000 || stat.st_nlink != 1 {
            return Err(format!("{PART_DIR}/{name}: it is no file of a transfer; remove it"));
        }
        Ok(PartFile { file: handle.into(), name: name.to_owned() })
    }

    /// Sets mode and time of a complete part and renames it into its place.
    ///
    /// # Errors
    /// What is in the way.
    pub(crate) fn put_part(&mut self, part: PartFile, entry: &TreeEntry) -> Step<()> {
        let time = Timespec { tv_sec: entry.mtime, tv_nsec: 0 };
        let set = fs::fchmod(&part.file, mode_bits(entry.mode))
            .and_then(|()| fs::futimens(&part.file, &Timestamps { last_access: time, last_modification: time }));
        set.map_err(|e| explain(&entry.name, e))?;
        drop(part.file);
        self.rename(&part.name, &entry.name)
    }

    /// Removes a part that is no longer needed.
    pub(crate) fn discard(&mut self, part: &PartFile) {
        if let Err(error) = self.parts().and_then(|parts| fs::unlinkat(parts, &part.name, AtFlags::empty())) {
            tracing::debug!(%error, "a part could not be removed");
        }
    }

    /// Brings everything written so far to the disk.
    pub(crate) fn sync(&self) -> Step<()> {
        #[cfg(target_os = "linux")]
        return fs::syncfs(&self.root).map_err(|e| format!("the disk of this laptop: {}", plain_io_error(&e.into())));
        #[cfg(not(target_os = "linux"))]
        {
            fs::sync();
            Ok(())
        }
    }

    /// Removes the directory of parts if nothing is left in it.
    pub(crate) fn close(self) {
        if self.parts.is_none() {
            return;
        }
        if let Err(error) = fs::unlinkat(&self.root, PART_DIR, AtFlags::REMOVEDIR) {
            tracing::debug!(%error, "parts are kept");
        }
    }
}

/// Free bytes for the user where a directory is, or will be.
pub(crate) fn free_bytes(directory: &Path) -> Option<u64> {
    let stat = directory.ancestors().find_map(|path| {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        fs::statvfs(path).ok()
    })?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

fn mode_bits(mode: u32) -> Mode {
    // Other systems have a narrower type.
    Mode::from_raw_mode((mode & 0o777) as rustix::fs::RawMode)
}

fn make_directory(parent: impl std::os::fd::AsFd, name: &OsStr, mode: u32) -> Result<OwnedFd, Errno> {
    match fs::mkdirat(&parent, name, mode_bits(mode)) {
        Ok(()) | Err(Errno::EXIST) => fs::openat(&parent, name, DIRECTORY, Mode::empty()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, kind: EntryKind) -> TreeEntry {
        TreeEntry { name: TreeName::parse(name.as_bytes()).expect("a name"), kind, mode: 0o640, mtime: 1_000_000 }
    }

    #[test]
    fn links_on_the_way_are_never_followed() {
        let dir = tempfile::tempdir().expect("a folder");
        let outside = dir.path().join("outside");
        std::fs::create_dir(&outside).expect("made");
        std::fs::write(outside.join("file"), "mine").expect("written");
        let dest = dir.path().join("dest");
        let mut local = LocalDir::open(&dest, "h", "n", true).expect("a directory").expect("made");
        std::os::unix::fs::symlink(&outside, dest.join("h/link")).expect("a link");
        std::os::unix::fs::symlink(outside.join("file"), dest.join("h/file")).expect("a link");
        let mut part = local.new_part().expect("a part");
        part.write(b"new").expect("written");
        let through = entry("link/file", EntryKind::File { size: 3 });
        assert!(local.put_part(part, &through).is_err_and(|e| e.contains("a link or a file is in the way")));
        assert!(local.make_dir(&entry("link", EntryKind::Directory)).is_err());
        assert!(local.set_mode(&entry("file", EntryKind::File { size: 1 })).is_err());
        // A link that has the name is replaced.
        let mut part = local.new_part().expect("a part");
        part.write(b"new").expect("written");
        local.put_part(part, &entry("file", EntryKind::File { size: 3 })).expect("renamed");
        assert_eq!(std::fs::read(outside.join("file")).expect("read"), b"mine");
        assert_eq!(std::fs::read(dest.join("h/file")).expect("read"), b"new");
        let found = local.find(&entry("file", EntryKind::Directory).name).expect("found");
        assert_eq!(found, entry("file", EntryKind::File { size: 3 }));
        assert_eq!(local.find(&through.name), None);
        // The destination of a host may itself be no link.
        std::os::unix::fs::symlink(&outside, dest.join("other")).expect("a link");
        assert!(LocalDir::open(&dest, "other", "n", true).is_err());
    }

    #[test]
    fn parts_are_regular_files_of_our_own() {
        let dir = tempfile::tempdir().expect("a folder");
        assert!(LocalDir::open(dir.path(), "h", "n", false).expect("nothing is in the way").is_none());
        let mut local = LocalDir::open(dir.path(), "h", "n", true).expect("a directory").expect("made");
        let parts = dir.path().join("h").join(PART_DIR);
        std::fs::create_dir(&parts).expect("made");
        std::os::unix::fs::symlink("/etc/passwd", parts.join("link")).expect("a link");
        std::fs::write(dir.path().join("target"), "x").expect("written");
        std::fs::hard_link(dir.path().join("target"), parts.join("hard")).expect("a link");
        assert!(local.open_resumable_part("link").is_err());
        assert!(local.open_resumable_part("hard").is_err());
        let mut part = local.open_resumable_part("good").expect("a part");
        part.write(b"abc").expect("written");
        part.write_sparse(&[0; 1000]).expect("skipped");
        part.resize(1003).expect("resized");
        assert_eq!(local.open_resumable_part("good").expect("a part").len(), 1003);
    }
}
