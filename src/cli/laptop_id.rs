#![expect(clippy::disallowed_methods, reason = "the laptop's id is a file of the laptop")]
//! The id by which hosts know this laptop: random, made once, kept in the state folder. Neither its name nor its machine-id is one: two
//! laptops of one make have the same name, and a Mac has no machine-id.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::lifecycle::random::{ID_HEX_DIGITS, random_128_bit_hex};

/// The file in the state folder.
const ID_FILE_NAME: &str = "laptop-id";

/// The laptop's id; made now if there is none. Where it cannot be kept, each process has one of its own: then its locks are stale by their age
/// alone.
pub(super) fn laptop_id(state: &Path) -> String {
    match read_or_create_id(state) {
        Ok(id) => id,
        Err(error) => {
            tracing::warn!(%error, "no laptop id is kept in {}: locks of this laptop are known by their age alone", state.display());
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
    // Whole or not at all, and the first of several processes wins.
    let id = random_128_bit_hex();
    let mine = state.join(format!("{ID_FILE_NAME}.{}", &id[..8]));
    let mut new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&mine)?;
    let made = new.write_all(format!("{id}\n").as_bytes()).and_then(|()| new.sync_all()).and_then(|()| std::fs::hard_link(&mine, &file));
    std::fs::remove_file(&mine)?;
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => read_id(&file)?.ok_or_else(|| io::Error::other("it cannot be read back")),
    }
}

/// The id that a file holds; one that is damaged is taken away.
fn read_id(path: &Path) -> io::Result<Option<String>> {
    let file = match OpenOptions::new().read(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    let whole = file.take(100).read_to_string(&mut text).is_ok();
    let id = text.trim_end();
    if whole && id.len() == ID_HEX_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
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
        let dir = tempfile::tempdir().expect("a folder");
        let state = dir.path().join("state/orchestrate");
        let ids: Vec<String> = std::thread::scope(|all| {
            let threads: Vec<_> = (0..8).map(|_| all.spawn(|| laptop_id(&state))).collect();
            threads.into_iter().map(|thread| thread.join().expect("an id")).collect()
        });
        assert!(ids.iter().all(|id| id == &ids[0] && id.len() == ID_HEX_DIGITS), "{ids:?}");
        assert_eq!(laptop_id(&state), ids[0]);
        let left: Vec<_> = std::fs::read_dir(&state).expect("a folder").map(|e| e.expect("an entry").file_name()).collect();
        assert_eq!(left, [ID_FILE_NAME]);
        assert_eq!(std::fs::metadata(state.join(ID_FILE_NAME)).expect("there").permissions().mode() & 0o777, 0o600);
        assert_ne!(laptop_id(&dir.path().join("another")), ids[0]);
        // A damaged id is replaced, and the new one is kept.
        std::fs::write(state.join(ID_FILE_NAME), "x\n").expect("written");
        let new = laptop_id(&state);
        assert!(new != ids[0] && new == laptop_id(&state));
        // Where nothing can be kept, each process has its own.
        std::fs::write(dir.path().join("file"), "").expect("written");
        let nowhere = dir.path().join("file/orchestrate");
        assert_ne!(laptop_id(&nowhere), laptop_id(&nowhere));
    }
}
