//! Random ids in hex.

/// Hex digits of a 128-bit id.
pub(crate) const ID_HEX_DIGITS: usize = 32;

/// A random 128-bit id in hex.
#[expect(clippy::expect_used, reason = "without random numbers no id is unique; the hash maps of the standard library panic as well")]
pub(crate) fn random_128_bit_hex() -> String {
    let mut bytes = [0_u8; ID_HEX_DIGITS / 2];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The first `digits` hex digits of a random id, at most 32.
pub(crate) fn random_hex(digits: usize) -> String {
    random_128_bit_hex().chars().take(digits).collect()
}
