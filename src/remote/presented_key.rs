//! The key or certificate that a host shows.
//!
//! Uses `certificate` and `known_hosts`.

use super::certificate::Certificate;
use super::known_hosts;

/// What a host shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Offered {
    /// The type of the plain key.
    pub(super) kind: String,
    /// The blob of the plain key.
    pub(super) key: Vec<u8>,
    pub(super) certificate: Option<Certificate>,
}

impl Offered {
    /// Type and fingerprint.
    pub(super) fn words(&self) -> String {
        format!("{} {}", self.kind, known_hosts::fingerprint(&self.key))
    }
}
