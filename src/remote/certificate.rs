//! What is wrong with a host's certificate, in words; the rules are those of `sshkey_cert_check_host` in OpenSSH.
//!
//! Uses `known_hosts` for patterns and fingerprints. Pure: the time and the name come in. Who signed it is `trust`'s question.

use super::known_hosts::{self, glob};

/// A certificate that a host showed; its signature was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Certificate {
    /// The blob of the key that signed it.
    pub(super) authority: Vec<u8>,
    /// How it was signed, such as `rsa-sha2-512`.
    pub(super) signed_with: String,
    pub(super) serial: u64,
    pub(super) id: String,
    /// The names it is good for; patterns are allowed.
    pub(super) names: Vec<String>,
    /// Valid from this second since 1970 on.
    pub(super) after: u64,
    /// Valid before this second since 1970.
    pub(super) before: u64,
    /// Whether it is a host's and not a user's.
    pub(super) host: bool,
    /// The names of its critical options.
    pub(super) critical: Vec<String>,
}

impl Certificate {
    /// Why it does not vouch for `name` at `now` (seconds since 1970), although its authority is trusted; nothing where it does.
    pub(super) fn fault(&self, name: &str, now: u64, algorithms: &[String]) -> Option<String> {
        if !self.host {
            return Some("it is a user's certificate".to_owned());
        }
        if now < self.after {
            return Some(format!("it is not valid before {}", date(self.after)));
        }
        if now >= self.before {
            return Some(format!("it expired on {}", date(self.before)));
        }
        // As in today's OpenSSH; up to 9.x an empty list was good for every name.
        if self.names.is_empty() {
            return Some("it names no host".to_owned());
        }
        if !self.names.iter().any(|n| glob(n.as_bytes(), name.as_bytes())) {
            return Some(format!("it is not for {name}: it names {}", self.names.join(", ")));
        }
        if !self.critical.is_empty() {
            return Some(format!("it has critical options that nobody knows: {}", self.critical.join(", ")));
        }
        if !algorithms.contains(&self.signed_with) {
            return Some(format!("it is signed with {}, which CASignatureAlgorithms does not allow", self.signed_with));
        }
        None
    }

    /// What it is, for people.
    pub(super) fn words(&self) -> String {
        format!("certificate “{}” (number {}, signed by {})", self.id, self.serial, known_hosts::fingerprint(&self.authority))
    }
}

fn date(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|s| jiff::Timestamp::from_second(s).ok());
    time.map_or_else(|| "the end of time".to_owned(), |t| t.strftime("%Y-%m-%d %H:%M UTC").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Certificate {
        Certificate {
            authority: b"ca".to_vec(),
            signed_with: "ssh-ed25519".to_owned(),
            serial: 7,
            id: "gpu01".to_owned(),
            names: vec!["gpu01".to_owned(), "*.example".to_owned()],
            after: 1_000,
            before: 1_600_000_000,
            host: true,
            critical: Vec::new(),
        }
    }

    #[test]
    fn every_fault_is_named() {
        let algorithms = ["ssh-ed25519".to_owned()];
        let fault = |certificate: &Certificate, name: &str, now: u64| certificate.fault(name, now, &algorithms).unwrap_or_default();
        assert_eq!(fault(&good(), "gpu01", 1_000), "");
        assert_eq!(fault(&good(), "a.example", 1_000), "");
        assert_eq!(fault(&good(), "gpu01", 999), "it is not valid before 1970-01-01 00:16 UTC");
        assert_eq!(fault(&good(), "gpu01", 1_600_000_000), "it expired on 2020-09-13 12:26 UTC");
        assert_eq!(fault(&good(), "gpu02", 1_000), "it is not for gpu02: it names gpu01, *.example");
        assert_eq!(fault(&Certificate { names: Vec::new(), ..good() }, "gpu01", 1_000), "it names no host");
        assert_eq!(fault(&Certificate { host: false, ..good() }, "gpu01", 1_000), "it is a user's certificate");
        let critical = Certificate { critical: vec!["force-command".to_owned()], ..good() };
        assert!(fault(&critical, "gpu01", 1_000).contains("force-command"));
        let signed = Certificate { signed_with: "ssh-rsa".to_owned(), ..good() };
        assert!(fault(&signed, "gpu01", 1_000).contains("signed with ssh-rsa"));
        assert_eq!(fault(&Certificate { before: u64::MAX, ..good() }, "gpu01", 1_000), "");
    }
}
