//! SHA-256 as both sides of a transfer write it.

use sha2::{Digest as _, Sha256};

use super::entry::TreeEntry;

pub(super) const PART_ID_DIGITS: usize = 32;

/// Names what is kept of an unfinished file: another size or time is another file.
pub(crate) fn part_id(entry: &TreeEntry) -> String {
    let mut digest = Sha256::new();
    digest.update(entry.name.as_bytes());
    digest.update(format!("\0{} {}", entry.size(), entry.mtime));
    hex(digest).chars().take(PART_ID_DIGITS).collect()
}

pub(crate) fn hex(digest: Sha256) -> String {
    let mut text = String::with_capacity(64);
    for byte in digest.finalize() {
        text.extend([byte >> 4, byte & 15].map(|half| char::from_digit(u32::from(half), 16).unwrap_or('0')));
    }
    text
}
