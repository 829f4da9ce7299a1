//! Notes a new host key in a known_hosts file, under the file's lock: other programs and other connections of ours do the same.
//!
//! Uses `known_hosts`. Owns the file while it writes.

use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::known_hosts::{self, File, Verdict};

/// How often, and how far apart, a lock is tried.
const LOCK_TRIES: usize = 100;
const LOCK_WAIT: Duration = Duration::from_millis(50);

/// Adds a line under the file's lock, unless the key stands there already. Says whether it was added.
pub(super) fn append(path: &Path, name: &str, key: &[u8], line: &str) -> std::io::Result<bool> {
    if let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut file = std::fs::OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    lock(&file)?;
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    let entries = Arc::new(known_hosts::parse(&String::from_utf8_lossy(&bytes)));
    let lines = known_hosts::lookup(&[File { path: path.to_owned(), entries, printed: false }], name);
    if known_hosts::judge(&lines, key) == Verdict::Known {
        return Ok(false);
    }
    let gap = if bytes.last().is_none_or(|b| *b == b'\n') { "" } else { "\n" };
    file.write_all(format!("{gap}{line}\n").as_bytes())?;
    Ok(true)
}

/// Locks a file; another program that keeps it locked does not hold us for long.
fn lock(file: &std::fs::File) -> std::io::Result<()> {
    for _ in 0..LOCK_TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(std::fs::TryLockError::WouldBlock) => std::thread::sleep(LOCK_WAIT),
            Err(std::fs::TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "another program keeps it locked"))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the files of a test")]
mod tests {
    use super::*;

    /// A key blob that no other number has.
    fn key(number: u32) -> Vec<u8> {
        let kind: &[u8] = b"ssh-ed25519";
        [&11_u32.to_be_bytes()[..], kind, &32_u32.to_be_bytes(), &number.to_be_bytes(), &[0; 28]].concat()
    }

    #[test]
    fn many_writers_lose_no_line_and_write_none_twice() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("new/known_hosts");
        let line = |n: u32| known_hosts::line(&format!("gpu{n}"), "ssh-ed25519", &key(n), n.is_multiple_of(2).then_some([7; 20]));
        std::thread::scope(|all| {
            for _ in 0..4 {
                all.spawn(|| {
                    for n in 0..25 {
                        append(&path, &format!("gpu{n}"), &key(n), &line(n)).expect("written");
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
    fn a_file_without_a_last_line_end_is_continued_on_a_new_line() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("known_hosts");
        std::fs::write(&path, "# mine").expect("written");
        assert!(append(&path, "gpu1", &key(1), "x").expect("written"));
        assert_eq!(std::fs::read_to_string(&path).expect("written"), "# mine\nx\n");
    }
}
