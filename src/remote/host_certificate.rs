//! Checks a host certificate; the rules are those of `sshkey_cert_check_host` in OpenSSH.
//!
//! Time and name are parameters. Whether the authority is trusted is decided in `host_key`.

use crate::ssh_config::known_hosts;
use crate::text::glob::glob_match;

/// A certificate presented by a host; its signature was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostCertificate {
    /// Blob of the key that signed it.
    pub(super) ca_key: Vec<u8>,
    /// Signature algorithm, such as `rsa-sha2-512`.
    pub(super) signature_algorithm: String,
    pub(super) serial: u64,
    pub(super) key_id: String,
    /// Names it is valid for; patterns are allowed.
    pub(super) principals: Vec<String>,
    /// Valid from this second since 1970.
    pub(super) valid_after: u64,
    /// Valid before this second since 1970.
    pub(super) valid_before: u64,
    /// A host certificate, not a user certificate.
    pub(super) is_host: bool,
    /// Names of its critical options.
    pub(super) critical_options: Vec<String>,
}

impl HostCertificate {
    /// Why it is not valid for `name` at `now` (seconds since 1970), although its authority is trusted; `None` if it is valid.
    pub(super) fn validity_problem(&self, name: &str, now: u64, algorithms: &[String]) -> Option<String> {
        if !self.is_host {
            return Some("it is a user certificate".to_owned());
        }
        if now < self.valid_after {
            return Some(format!("it is not valid before {}", format_date(self.valid_after)));
        }
        if now >= self.valid_before {
            return Some(format!("it expired on {}", format_date(self.valid_before)));
        }
        // As in current OpenSSH; up to 9.x an empty list matched every name.
        if self.principals.is_empty() {
            return Some("it names no host".to_owned());
        }
        if !self.principals.iter().any(|n| glob_match(n, name)) {
            return Some(format!("it is not for {name}: it names {}", self.principals.join(", ")));
        }
        if !self.critical_options.is_empty() {
            return Some(format!("it has unknown critical options: {}", self.critical_options.join(", ")));
        }
        if !algorithms.contains(&self.signature_algorithm) {
            return Some(format!("it is signed with {}, which CASignatureAlgorithms does not allow", self.signature_algorithm));
        }
        None
    }

    /// Description for messages.
    pub(super) fn describe(&self) -> String {
        format!("certificate “{}” (number {}, signed by {})", self.key_id, self.serial, known_hosts::fingerprint(&self.ca_key))
    }
}

fn format_date(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|s| jiff::Timestamp::from_second(s).ok());
    time.map_or_else(|| "the end of time".to_owned(), |t| t.strftime("%Y-%m-%d %H:%M UTC").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn valid_certificate() -> HostCertificate {
        HostCertificate {
            ca_key: b"ca".to_vec(),
            signature_algorithm: "ssh-ed25519".to_owned(),
            serial: 7,
            key_id: "gpu01".to_owned(),
            principals: vec!["gpu01".to_owned(), "*.example".to_owned()],
            valid_after: 1_000,
            valid_before: 1_600_000_000,
            is_host: true,
            critical_options: Vec::new(),
        }
    }

    #[test]
    fn every_certificate_problem_is_reported() {
        let algorithms = ["ssh-ed25519".to_owned()];
        let fault =
            |certificate: &HostCertificate, name: &str, now: u64| certificate.validity_problem(name, now, &algorithms).unwrap_or_default();
        assert_eq!(fault(&valid_certificate(), "gpu01", 1_000), "");
        assert_eq!(fault(&valid_certificate(), "a.example", 1_000), "");
        assert_eq!(fault(&valid_certificate(), "gpu01", 999), "it is not valid before 1970-01-01 00:16 UTC");
        assert_eq!(fault(&valid_certificate(), "gpu01", 1_600_000_000), "it expired on 2020-09-13 12:26 UTC");
        assert_eq!(fault(&valid_certificate(), "gpu02", 1_000), "it is not for gpu02: it names gpu01, *.example");
        assert_eq!(fault(&HostCertificate { principals: Vec::new(), ..valid_certificate() }, "gpu01", 1_000), "it names no host");
        assert_eq!(fault(&HostCertificate { is_host: false, ..valid_certificate() }, "gpu01", 1_000), "it is a user certificate");
        let critical = HostCertificate { critical_options: vec!["force-command".to_owned()], ..valid_certificate() };
        assert!(fault(&critical, "gpu01", 1_000).contains("force-command"));
        let signed = HostCertificate { signature_algorithm: "ssh-rsa".to_owned(), ..valid_certificate() };
        assert!(fault(&signed, "gpu01", 1_000).contains("signed with ssh-rsa"));
        assert_eq!(fault(&HostCertificate { valid_before: u64::MAX, ..valid_certificate() }, "gpu01", 1_000), "");
    }
}
