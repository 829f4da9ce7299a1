#![expect(clippy::disallowed_methods, reason = "random bytes come from the system")]
//! Random ids in hex.

use std::fs::File;
use std::io::Read as _;

/// Hex digits of a 128-bit id.
pub(crate) const ID_HEX_DIGITS: usize = 32;

/// A random 128-bit id in hex.
pub(crate) fn random_128_bit_hex() -> String {
    let mut bytes = [0_u8; ID_HEX_DIGITS / 2];
    let drawn = File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes));
    if let Err(error) = drawn {
        // The standard library seeds its maps from the system as well.
        tracing::debug!(%error, "/dev/urandom");
        for half in bytes.chunks_mut(8) {
            use std::hash::{BuildHasher as _, Hasher as _};
            let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
            hasher.write_u32(std::process::id());
            half.copy_from_slice(&hasher.finish().to_ne_bytes());
        }
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The first `digits` hex digits of a random id, at most 32.
pub(crate) fn random_hex(digits: usize) -> String {
    random_128_bit_hex().chars().take(digits).collect()
}
