//! What interrupted transfers left in the laptop's directory of parts.
#![expect(clippy::disallowed_methods, reason = "files of the laptop are removed, by their age")]

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, SystemTime};

use rustix::fs::{self, AtFlags, FlockOperation};

use super::digest::PART_ID_DIGITS;

/// Hex digits of a session's nonce.
pub(crate) const NONCE_DIGITS: usize = 16;
/// How long the received part of a big file is kept for a transfer that continues it.
const KEPT_PARTS: Duration = Duration::from_secs(7 * 24 * 3600);

/// Removes what interrupted transfers left: unfinished small files, and big ones after a week. A lock shows whether another transfer is running.
pub(super) fn purge_old_parts(parts: &OwnedFd) {
    if fs::flock(parts, FlockOperation::NonBlockingLockExclusive).is_ok() {
        match fs::Dir::read_from(parts) {
            Ok(entries) => entries.flatten().for_each(|entry| purge_part(parts, entry.file_name().to_bytes())),
            Err(error) => tracing::debug!(%error, "parts cannot be listed"),
        }
    }
    if let Err(error) = fs::flock(parts, FlockOperation::LockShared) {
        tracing::debug!(%error, "parts cannot be locked");
    }
}

/// Only names that a transfer gives, and never a directory.
fn purge_part(parts: &OwnedFd, name: &[u8]) {
    let is_hex = |text: &[u8], length: usize| text.len() == length && text.iter().all(u8::is_ascii_hexdigit);
    let small = name.iter().position(|byte| *byte == b'.').is_some_and(|at| {
        let (nonce, number) = (name.get(..at).unwrap_or_default(), name.get(at + 1..).unwrap_or_default());
        is_hex(nonce, NONCE_DIGITS) && !number.is_empty() && number.iter().all(u8::is_ascii_digit)
    });
    let name_text = OsStr::from_bytes(name);
    let is_old = || {
        let modified = fs::statat(parts, name_text, AtFlags::SYMLINK_NOFOLLOW).ok().and_then(|stat| u64::try_from(stat.st_mtime).ok());
        let age = modified.and_then(|secs| SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + Duration::from_secs(secs)).ok());
        age.is_some_and(|age| age > KEPT_PARTS)
    };
    if (small || is_hex(name, PART_ID_DIGITS) && is_old())
        && let Err(error) = fs::unlinkat(parts, name_text, AtFlags::empty())
    {
        tracing::debug!(%error, "an old part could not be removed");
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::fs::{Mode, OFlags};

    use super::*;

    #[test]
    fn old_parts_are_purged_and_nothing_else() {
        let dir = tempfile::tempdir().expect("a folder");
        let parts = dir.path().to_owned();
        let open = || fs::openat(fs::CWD, &parts, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).expect("a directory");
        let names = || {
            let mut names: Vec<_> = std::fs::read_dir(&parts).expect("a folder").map(|e| e.expect("an entry").file_name()).collect();
            names.sort();
            names
        };
        std::fs::create_dir_all(parts.join("aaaaaaaaaaaaaaaa.7")).expect("made");
        let (small, big, old_big) = ("00000000000000aa.12", "0".repeat(32), "1".repeat(32));
        for name in [small, &big, &old_big, "notes.txt", "00000000000000aa.x", "0a.1"] {
            std::fs::write(parts.join(name), "x").expect("written");
        }
        std::os::unix::fs::symlink("/etc/passwd", parts.join("00000000000000bb.1")).expect("a link");
        let file = File::open(parts.join(&old_big)).expect("opened");
        file.set_modified(SystemTime::now() - KEPT_PARTS - Duration::from_secs(60)).expect("a time");
        let purge = || {
            let handle = open();
            purge_old_parts(&handle);
            handle
        };
        let running = purge();
        let kept = [big.as_str(), "00000000000000aa.x", "0a.1", "aaaaaaaaaaaaaaaa.7", "notes.txt"];
        assert_eq!(names(), kept.map(std::ffi::OsString::from));
        // A transfer that is running keeps its parts.
        std::fs::write(parts.join("0123456789abcdef.1"), "x").expect("written");
        drop(purge());
        assert!(parts.join("0123456789abcdef.1").exists());
        drop(running);
        // A child that another test's thread has just forked shares the lock until it is its own program.
        let begun = std::time::Instant::now();
        while parts.join("0123456789abcdef.1").exists() {
            assert!(begun.elapsed() < Duration::from_secs(30), "the lock of a transfer that has ended");
            drop(purge());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
