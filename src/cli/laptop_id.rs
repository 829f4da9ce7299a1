#![expect(clippy::disallowed_methods, reason = "the id is a file on this laptop")]
//! The id that identifies this laptop in locks on hosts: random, created once, stored in the state directory. A hostname is not unique, and a
//! Mac has no machine-id.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::lifecycle::random::{ID_HEX_DIGITS, random_128_bit_hex};

/// In the state directory.
const ID_FILE_NAME: &str = "laptop-id";

/// The laptop's id, created on first use. If it cannot be stored, each process gets its own id: then its locks become stale only by age.
pub(super) fn laptop_id(state: &Path) -> String {
    match read_or_create_id(state) {
        Ok(id) => id,
        Err(error) => {
            tracing::warn!(%error, "could not store the laptop id in {}: locks of this laptop become stale only by age", state.display());
            random_128_bit_hex()
        }
    }
}

fn read_or_create_id(state: &Path) -> io::Result<String> {
    let file = state.join(ID_FILE_NAME);
    if let Some(id) = read_id(&file)? {
        return Ok(id);
    }
    DirBuilder::new().recursive(true).mode(0o700).create(state)?;
    // The hard link is atomic: the file is complete, and the first of several processes wins.
    let id = random_128_bit_hex();
    let temporary = state.join(format!("{ID_FILE_NAME}.{}", &id[..8]));
    let mut new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    let linked =
        new.write_all(format!("{id}\n").as_bytes()).and_then(|()| new.sync_all()).and_then(|()| std::fs::hard_link(&temporary, &file));
    std::fs::remove_file(&temporary)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => read_id(&file)?.ok_or_else(|| io::Error::other("the new id could not be read back")),
    }
}

/// Reads the id; removes a damaged file.
fn read_id(path: &Path) -> io::Result<Option<String>> {
    let file = match OpenOptions::new().read(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    let is_text = file.take(100).read_to_string(&mut text).is_ok();
    let id = text.trim_end();
    if is_text && id.len() == ID_HEX_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(Some(id.to_owned()));
    }
    std::fs::remove_file(path)?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn laptop_id_is_created_once_per_folder() {
        let dir = tempfile::tempdir().expect("a directory");
        let state = dir.path().join("state/orchestrate");
        let ids: Vec<String> = std::thread::scope(|all| {
            let threads: Vec<_> = (0..8).map(|_| all.spawn(|| laptop_id(&state))).collect();
            threads.into_iter().map(|thread| thread.join().expect("an id")).collect()
        });
        assert!(ids.iter().all(|id| id == &ids[0] && id.len() == ID_HEX_DIGITS), "{ids:?}");
        assert_eq!(laptop_id(&state), ids[0]);
        let files: Vec<_> = std::fs::read_dir(&state).expect("a directory").map(|e| e.expect("an entry").file_name()).collect();
        assert_eq!(files, [ID_FILE_NAME]);
        assert_eq!(std::fs::metadata(state.join(ID_FILE_NAME)).expect("there").permissions().mode() & 0o777, 0o600);
        assert_ne!(laptop_id(&dir.path().join("another")), ids[0]);
        // A damaged id is replaced once.
        std::fs::write(state.join(ID_FILE_NAME), "x\n").expect("written");
        let new = laptop_id(&state);
        assert!(new != ids[0] && new == laptop_id(&state));
        // Without a usable state directory, each call returns its own id.
        std::fs::write(dir.path().join("file"), "").expect("written");
        let unusable = dir.path().join("file/orchestrate");
        assert_ne!(laptop_id(&unusable), laptop_id(&unusable));
    }
}
