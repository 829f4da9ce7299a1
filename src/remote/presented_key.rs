//! The key or certificate that a host shows.
//!
//! Uses `certificate` and `known_hosts`.

use super::host_certificate::HostCertificate;
use crate::ssh_config::known_hosts;

/// What a host shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PresentedKey {
    /// The type of the plain key.
    pub(super) key_type: String,
    /// The blob of the plain key.
    pub(super) key: Vec<u8>,
    pub(super) certificate: Option<HostCertificate>,
}

impl PresentedKey {
    pub(super) fn describe(&self) -> String {
        format!("{} {}", self.key_type, known_hosts::fingerprint(&self.key))
    }
}
