//! The key or certificate that a host presents.

use super::host_certificate::HostCertificate;
use crate::ssh_config::known_hosts;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PresentedKey {
    /// Type of the plain key.
    pub(super) key_type: String,
    /// Blob of the plain key.
    pub(super) key: Vec<u8>,
    pub(super) certificate: Option<HostCertificate>,
}

impl PresentedKey {
    pub(super) fn describe(&self) -> String {
        format!("{} {}", self.key_type, known_hosts::fingerprint(&self.key))
    }
}
