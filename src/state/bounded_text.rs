//! Texts of a length that can be kept.

use crate::text::width::first_bytes;

/// The most bytes of one text that is kept.
pub(super) const MAX_TEXT_BYTES: usize = 4 << 10;

/// The beginning of a text from a host, whose length is unbounded.
pub(super) fn keep_beginning(text: &str) -> String {
    keep_first_bytes(text, MAX_TEXT_BYTES)
}

/// The beginning of a text, at most `max` bytes and a mark.
pub(super) fn keep_first_bytes(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    format!("{}…", first_bytes(text, max))
}
