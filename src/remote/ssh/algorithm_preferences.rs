//! Converts algorithm lists to russh's preferences for a handshake.

use std::borrow::Cow;

use russh::keys::Algorithm;
use russh::{Preferred, cipher, kex, mac};

use crate::remote::algorithms::{self, AlgorithmList};
use crate::remote::connection_options::AlgorithmLists;
use crate::remote::host_key::HostKeyVerifier;

/// Markers among the key exchanges: we read the server's extensions, and strict key exchange.
const KEX_MARKERS: [kex::Name; 4] = [
    kex::EXTENSION_SUPPORT_AS_CLIENT,
    kex::EXTENSION_SUPPORT_AS_SERVER,
    kex::EXTENSION_OPENSSH_STRICT_KEX_AS_CLIENT,
    kex::EXTENSION_OPENSSH_STRICT_KEX_AS_SERVER,
];

/// Whether a name among the key exchanges is only a marker.
pub(super) fn is_kex_marker(name: &str) -> bool {
    KEX_MARKERS.iter().any(|marker| marker.as_ref() == name)
}

/// The preferences for one handshake; known host keys come first. Certificates are requested if an authority is known, or if no
/// plain key is allowed.
pub(super) fn build_preferred(lists: &AlgorithmLists, verifier: &HostKeyVerifier) -> Preferred {
    let (certificates, plain): (Vec<String>, Vec<String>) =
        lists.host_keys.names.iter().cloned().partition(|n| algorithms::is_certificate(n));
    let known = verifier.known_key_types();
    let wanted = if verifier.has_cert_authority() || plain.is_empty() { certificates } else { Vec::new() };
    let mut kex: Vec<kex::Name> = lists.kex.names.iter().filter_map(|n| kex::Name::try_from(n.as_str()).ok()).collect();
    kex.extend(KEX_MARKERS);
    Preferred {
        kex: Cow::Owned(kex),
        key: Cow::Owned(algorithms::sort_known_first(&plain, &known).iter().filter_map(|n| Algorithm::new(n).ok()).collect()),
        host_key_certificates: Cow::Owned(
            wanted.iter().filter_map(|n| Algorithm::new(algorithms::without_certificate_suffix(n)).ok()).collect(),
        ),
        cipher: Cow::Owned(lists.ciphers.names.iter().filter_map(|n| cipher::Name::try_from(n.as_str()).ok()).collect()),
        mac: Cow::Owned(lists.macs.names.iter().filter_map(|n| mac::Name::try_from(n.as_str()).ok()).collect()),
        ..Preferred::DEFAULT
    }
}

/// The list of ssh_config behind a failed negotiation.
pub(super) fn list_of_failed_negotiation<'a>(lists: &'a AlgorithmLists, kind: &russh::AlgorithmKind) -> Option<&'a AlgorithmList> {
    match kind {
        russh::AlgorithmKind::Kex => Some(&lists.kex),
        russh::AlgorithmKind::Key => Some(&lists.host_keys),
        russh::AlgorithmKind::Cipher => Some(&lists.ciphers),
        russh::AlgorithmKind::Mac => Some(&lists.macs),
        russh::AlgorithmKind::Compression => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::algorithms::AlgorithmTable;

    #[test]
    fn russh_supports_every_offered_algorithm() {
        let count = |table: &AlgorithmTable, known: &dyn Fn(&str) -> bool| {
            let unknown: Vec<&str> = table.supported().into_iter().filter(|n| !known(n)).collect();
            assert!(unknown.is_empty(), "{}: {unknown:?}", table.keyword);
        };
        count(&algorithms::KEX, &|n| kex::ALL_KEX_ALGORITHMS.iter().any(|k| k.as_ref() == n));
        count(&algorithms::CIPHERS, &|n| cipher::ALL_CIPHERS.iter().any(|k| k.as_ref() == n));
        count(&algorithms::MACS, &|n| mac::ALL_MAC_ALGORITHMS.iter().any(|k| k.as_ref() == n));
        count(&algorithms::HOST_KEYS, &|n| match algorithms::is_certificate(n) {
            true => Algorithm::new(algorithms::without_certificate_suffix(n)).is_ok_and(|a| a.to_certificate_type() == n),
            false => Algorithm::new(n).is_ok_and(|a| a.to_string() == n),
        });
    }

    #[test]
    fn default_key_exchanges_match_russh() {
        let own: Vec<&str> = Preferred::DEFAULT.kex.iter().map(AsRef::as_ref).collect();
        let ours: Vec<String> =
            AlgorithmList::default_for(&algorithms::KEX).names.into_iter().chain(KEX_MARKERS.map(|m| m.as_ref().to_owned())).collect();
        assert_eq!(own, ours);
    }
}
