//! Appends a new host key to a known_hosts file under the file's lock, since other programs and connections do the same.

use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::ssh_config::known_hosts;
use crate::ssh_config::known_hosts::{KnownHostsFile, KnownHostsVerdict};

/// Maximum size of a file of host keys.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// Number of attempts to lock, and their interval.
const LOCK_ATTEMPTS: usize = 100;
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Adds a line under the file's lock, unless the key is already there; returns whether it was added.
pub(super) fn append_known_host(path: &Path, name: &str, key: &[u8], line: &str) -> std::io::Result<bool> {
    if let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut file = std::fs::OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    lock_file(&file)?;
    file.seek(SeekFrom::Start(0))?;
    let bytes = read_bounded(&file)?;
    let entries = Arc::new(known_hosts::parse_known_hosts(&String::from_utf8_lossy(&bytes)));
    let lines = known_hosts::find_host_lines(&[KnownHostsFile { path: path.to_owned(), entries, from_command: false }], name);
    if known_hosts::check_known_key(&lines, key) == KnownHostsVerdict::Known {
        return Ok(false);
    }
    let gap = if bytes.last().is_none_or(|b| *b == b'\n') { "" } else { "\n" };
    file.write_all(format!("{gap}{line}\n").as_bytes())?;
    Ok(true)
}

/// Reads the rest of a file of host keys.
pub(super) fn read_bounded(file: &std::fs::File) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|n| n > MAX_FILE_BYTES) {
        return Err(std::io::Error::other(format!("it is larger than {} MiB", MAX_FILE_BYTES >> 20)));
    }
    Ok(bytes)
}

/// Locks a file; gives up soon if another program keeps the lock.
fn lock_file(file: &std::fs::File) -> std::io::Result<()> {
    for _ in 0..LOCK_ATTEMPTS {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(std::fs::TryLockError::WouldBlock) => std::thread::sleep(LOCK_RETRY_DELAY),
            Err(std::fs::TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "another program keeps it locked"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key blob unique to this number.
    fn test_key(number: u32) -> Vec<u8> {
        let kind: &[u8] = b"ssh-ed25519";
        [&11_u32.to_be_bytes()[..], kind, &32_u32.to_be_bytes(), &number.to_be_bytes(), &[0; 28]].concat()
    }

    #[test]
    fn concurrent_appends_neither_lose_nor_duplicate_lines() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("new/known_hosts");
        let line = |n: u32| {
            known_hosts::format_known_hosts_line(&format!("gpu{n}"), "ssh-ed25519", &test_key(n), n.is_multiple_of(2).then_some([7; 20]))
        };
        std::thread::scope(|all| {
            for _ in 0..4 {
                all.spawn(|| {
                    for n in 0..25 {
                        append_known_host(&path, &format!("gpu{n}"), &test_key(n), &line(n)).expect("written");
                    }
                });
            }
        });
        let text = std::fs::read_to_string(&path).expect("written");
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        let mut wanted: Vec<String> = (0..25).map(line).collect();
        wanted.sort_unstable();
        assert_eq!(lines, wanted);
    }

    #[test]
    fn append_starts_new_line_after_missing_newline() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("known_hosts");
        std::fs::write(&path, "# mine").expect("written");
        assert!(append_known_host(&path, "gpu1", &test_key(1), "x").expect("written"));
        assert_eq!(std::fs::read_to_string(&path).expect("written"), "# mine\nx\n");
    }

    #[test]
    fn file_that_is_too_large_is_not_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("known_hosts");
        std::fs::File::create(&path).and_then(|file| file.set_len(MAX_FILE_BYTES + 1)).expect("a sparse file");
        let error = append_known_host(&path, "gpu1", &test_key(1), "x").expect_err("too large");
        assert_eq!(error.to_string(), "it is larger than 64 MiB");
    }
}
