//! Evaluates algorithm lists of ssh_config (`a,b`, `+a`, `-a*`, `^a`) against the defaults and the algorithms this program supports.
//!
//! `ssh/algorithm_preferences` turns the names into russh's types. The names are
//! those of OpenSSH 10 (kex-names.c, cipher.c, mac.c, sshkey.c), and older ones that still occur in configuration files.

use crate::text::glob::glob_match;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AlgorithmList {
    pub(super) table: &'static AlgorithmTable,
    /// The algorithms offered, most preferred first.
    pub(super) names: Vec<String>,
    /// Names in the user's list that this program does not support.
    pub(super) unsupported: Vec<String>,
    /// Where the list is set; `None` for the default.
    pub(super) origin: Option<String>,
}

/// The algorithms of one keyword; names are separated by spaces.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AlgorithmTable {
    /// The keyword of ssh_config.
    pub(super) keyword: &'static str,
    /// Noun for one algorithm, used in messages.
    pub(super) noun: &'static str,
    /// Offered by default.
    defaults: &'static str,
    on_request: &'static str,
    /// Known to OpenSSH but not to russh.
    unsupported: &'static str,
    /// Whether patterns are allowed in lists other than `-`: OpenSSH allows them for key types only.
    allows_patterns: bool,
}

pub(super) static KEX: AlgorithmTable = AlgorithmTable {
    keyword: "KexAlgorithms",
    noun: "key exchange",
    defaults: "mlkem768x25519-sha256 curve25519-sha256 curve25519-sha256@libssh.org diffie-hellman-group-exchange-sha256 \
               diffie-hellman-group18-sha512 diffie-hellman-group17-sha512 diffie-hellman-group16-sha512 diffie-hellman-group15-sha512 \
               diffie-hellman-group14-sha256",
    on_request: "ecdh-sha2-nistp256 ecdh-sha2-nistp384 ecdh-sha2-nistp521 diffie-hellman-group-exchange-sha1 diffie-hellman-group14-sha1 \
                 diffie-hellman-group1-sha1",
    unsupported: "mlkem768nistp256-sha256 sntrup761x25519-sha512 sntrup761x25519-sha512@openssh.com",
    allows_patterns: false,
};

/// `chacha20-poly1305` comes first on processors without AES instructions.
pub(super) static CIPHERS: AlgorithmTable = AlgorithmTable {
    keyword: "Ciphers",
    noun: "cipher",
    defaults: "aes256-gcm@openssh.com aes128-gcm@openssh.com chacha20-poly1305@openssh.com aes256-ctr aes128-ctr",
    on_request: "aes192-ctr aes256-cbc aes192-cbc aes128-cbc",
    unsupported: "3des-cbc rijndael-cbc@lysator.liu.se",
    allows_patterns: false,
};

pub(super) static MACS: AlgorithmTable = AlgorithmTable {
    keyword: "MACs",
    noun: "MAC",
    defaults: "hmac-sha2-512-etm@openssh.com hmac-sha2-256-etm@openssh.com hmac-sha2-512 hmac-sha2-256",
    on_request: "hmac-sha1-etm@openssh.com hmac-sha1",
    unsupported: "hmac-sha1-96 hmac-sha1-96-etm@openssh.com hmac-md5 hmac-md5-96 hmac-md5-etm@openssh.com hmac-md5-96-etm@openssh.com \
                  umac-64@openssh.com umac-128@openssh.com umac-64-etm@openssh.com umac-128-etm@openssh.com",
    allows_patterns: false,
};

/// Suffix of certificate algorithms.
const CERTIFICATE_SUFFIX: &str = "-cert-v01@openssh.com";
pub(super) static HOST_KEYS: AlgorithmTable = AlgorithmTable {
    keyword: "HostKeyAlgorithms",
    noun: "host key type",
    defaults: "ssh-ed25519-cert-v01@openssh.com ecdsa-sha2-nistp256-cert-v01@openssh.com ecdsa-sha2-nistp384-cert-v01@openssh.com \
               ecdsa-sha2-nistp521-cert-v01@openssh.com rsa-sha2-512-cert-v01@openssh.com rsa-sha2-256-cert-v01@openssh.com \
               ssh-ed25519 ecdsa-sha2-nistp256 ecdsa-sha2-nistp384 ecdsa-sha2-nistp521 rsa-sha2-512 rsa-sha2-256",
    on_request: "ssh-rsa",
    unsupported: "ssh-rsa-cert-v01@openssh.com sk-ssh-ed25519@openssh.com sk-ssh-ed25519-cert-v01@openssh.com \
                  sk-ecdsa-sha2-nistp256@openssh.com sk-ecdsa-sha2-nistp256-cert-v01@openssh.com \
                  webauthn-sk-ecdsa-sha2-nistp256@openssh.com webauthn-sk-ecdsa-sha2-nistp256-cert-v01@openssh.com \
                  ssh-mldsa44-ed25519@openssh.com ssh-mldsa44-ed25519-cert-v01@openssh.com ssh-dss ssh-dss-cert-v01@openssh.com",
    allows_patterns: true,
};

/// OpenSSH's default for the signatures of authorities and of users' keys.
pub(super) const SIGNATURE_ALGORITHMS: &str = "ssh-ed25519 ecdsa-sha2-nistp256 ecdsa-sha2-nistp384 ecdsa-sha2-nistp521 \
                                               sk-ssh-ed25519@openssh.com sk-ecdsa-sha2-nistp256@openssh.com rsa-sha2-512 rsa-sha2-256";

/// CA signatures: OpenSSH's default, and ssh-rsa on request.
pub(super) static CA_SIGNATURES: AlgorithmTable = AlgorithmTable {
    keyword: "CASignatureAlgorithms",
    noun: "CA signature",
    defaults: SIGNATURE_ALGORITHMS,
    on_request: "ssh-rsa",
    unsupported: "webauthn-sk-ecdsa-sha2-nistp256@openssh.com ssh-mldsa44-ed25519@openssh.com ssh-dss",
    allows_patterns: true,
};

impl AlgorithmTable {
    /// Offered by default.
    fn defaults(&self) -> Vec<&'static str> {
        let mut names: Vec<&str> = self.defaults.split_whitespace().collect();
        if !fast_aes() {
            names.sort_by_key(|name| !name.starts_with("chacha20"));
        }
        names
    }

    /// Every supported algorithm.
    pub(super) fn supported(&self) -> Vec<&'static str> {
        let mut names = self.defaults();
        names.extend(self.on_request.split_whitespace());
        names
    }
}

impl AlgorithmList {
    fn of(table: &'static AlgorithmTable, names: impl IntoIterator<Item = &'static str>) -> Self {
        AlgorithmList { table, names: names.into_iter().map(str::to_owned).collect(), unsupported: Vec::new(), origin: None }
    }

    pub(super) fn default_for(table: &'static AlgorithmTable) -> Self {
        AlgorithmList::of(table, table.defaults())
    }

    /// Reads the list that `ssh -G` prints. Algorithms missing there stay out; the order is ours.
    pub(super) fn from_ssh_g(table: &'static AlgorithmTable, text: &str) -> Result<Self, String> {
        let list = AlgorithmList::of(table, table.supported().into_iter().filter(|name| text.split(',').any(|n| n == *name)));
        if list.names.is_empty() { Err("this program supports none of them".to_owned()) } else { Ok(list) }
    }

    /// The names of the user's list that are not offered, as a sentence.
    pub(super) fn unsupported_notice(&self) -> Option<String> {
        let place = self.origin.as_ref().filter(|_| !self.unsupported.is_empty())?;
        Some(format!("{place}: {} names {}, which this program does not support", self.table.keyword, self.unsupported.join(", ")))
    }

    /// Evaluates a value of ssh_config. The error is a fragment.
    pub(super) fn parse(table: &'static AlgorithmTable, text: &str) -> Result<Self, String> {
        let (sign, names) = match text.chars().next() {
            Some(sign @ ('+' | '-' | '^')) => (Some(sign), text.get(1..).unwrap_or_default()),
            _ => (None, text),
        };
        let words: Vec<&str> = names.split(',').map(str::trim).filter(|w| !w.is_empty()).collect();
        if words.is_empty() {
            return Err("the list is empty".to_owned());
        }
        let own = table.defaults();
        if sign == Some('-') {
            let taken = |name: &&str| words.iter().any(|w| glob_match(w, name));
            let list = AlgorithmList::of(table, own.into_iter().filter(|name| !taken(name)));
            return if list.names.is_empty() { Err("it removes every algorithm".to_owned()) } else { Ok(list) };
        }
        let able = table.supported();
        let (mut named, mut lacking) = (Vec::new(), Vec::new());
        for word in words {
            let fits = |name: &&str| if table.allows_patterns { glob_match(word, name) } else { *name == word };
            let can: Vec<&str> = able.iter().copied().filter(fits).collect();
            let cannot: Vec<&str> = table.unsupported.split_whitespace().filter(fits).collect();
            if can.is_empty() && cannot.is_empty() {
                return Err(format!("`{word}` is not known{}", suggest_similar(table, word)));
            }
            named.extend(can);
            lacking.extend(cannot.into_iter().map(str::to_owned));
        }
        let all: Vec<&str> = match sign {
            Some('+') => own.iter().copied().chain(named).collect(),
            Some(_) => named.into_iter().chain(own.iter().copied()).collect(),
            None => named,
        };
        let mut names: Vec<String> = Vec::new();
        for name in all {
            if !names.iter().any(|n| n == name) {
                names.push(name.to_owned());
            }
        }
        if names.is_empty() {
            return Err(format!("this program supports none of {}; it supports {}", lacking.join(", "), able.join(", ")));
        }
        Ok(AlgorithmList { table, names, unsupported: lacking, origin: None })
    }
}

/// A suggestion for an unknown name.
fn suggest_similar(table: &AlgorithmTable, word: &str) -> String {
    let start = word.get(..word.len().min(6)).unwrap_or(word);
    let near: Vec<&str> = table.supported().into_iter().filter(|n| n.starts_with(start)).take(3).collect();
    if near.is_empty() { String::new() } else { format!(" (did you mean {}?)", near.join(", ")) }
}

/// Whether a name is a certificate algorithm.
pub(super) fn is_certificate(name: &str) -> bool {
    name.ends_with(CERTIFICATE_SUFFIX)
}

/// The key algorithm of a certificate algorithm; other names are unchanged.
pub(super) fn without_certificate_suffix(name: &str) -> &str {
    name.strip_suffix(CERTIFICATE_SUFFIX).unwrap_or(name)
}

/// The key type in known_hosts for a host key algorithm.
pub(super) fn key_type(name: &str) -> &str {
    let plain = without_certificate_suffix(name);
    if plain.starts_with("rsa-sha2-") { "ssh-rsa" } else { plain }
}

/// Puts algorithms whose keys are known for the host first: a host with several keys would otherwise present an unknown one.
pub(super) fn sort_known_first(names: &[String], known: &[String]) -> Vec<String> {
    let mut order = names.to_vec();
    order.sort_by_key(|name| !known.iter().any(|k| k == key_type(name)));
    order
}

#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
fn fast_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes")
}

#[cfg(target_arch = "aarch64")]
fn fast_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
}

#[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
fn fast_aes() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_names(table: &'static AlgorithmTable, text: &str) -> Vec<String> {
        AlgorithmList::parse(table, text).unwrap_or_else(|e| panic!("{text}: {e}")).names
    }

    #[test]
    fn list_prefixes_work_like_openssh() {
        assert_eq!(parse_names(&MACS, "hmac-sha2-256,hmac-sha1,hmac-sha2-256"), ["hmac-sha2-256", "hmac-sha1"]);
        let plus = parse_names(&MACS, "+hmac-sha1,hmac-sha2-512");
        assert_eq!((plus.len(), plus.last().map(String::as_str)), (5, Some("hmac-sha1")));
        assert_eq!(parse_names(&MACS, "-*-etm@openssh.com,nosuch*"), ["hmac-sha2-512", "hmac-sha2-256"]);
        let first = parse_names(&KEX, "^ecdh-sha2-nistp256,curve25519-sha256");
        assert_eq!(first.get(..3).unwrap_or_default(), ["ecdh-sha2-nistp256", "curve25519-sha256", "mlkem768x25519-sha256"]);
        assert_eq!(first.iter().filter(|n| *n == "curve25519-sha256").count(), 1);
    }

    #[test]
    fn patterns_work_only_for_key_types() {
        assert_eq!(parse_names(&HOST_KEYS, "ecdsa-sha2-nistp256*"), ["ecdsa-sha2-nistp256-cert-v01@openssh.com", "ecdsa-sha2-nistp256"]);
        assert!(AlgorithmList::parse(&CIPHERS, "aes*").is_err(), "as with OpenSSH");
        assert!(!parse_names(&CIPHERS, "-aes*").iter().any(|n| n.starts_with("aes")));
    }

    #[test]
    fn unsupported_names_are_reported_and_skipped() {
        let list = AlgorithmList::parse(&KEX, "sntrup761x25519-sha512,curve25519-sha256").expect("something is left");
        assert_eq!((list.names, list.unsupported), (vec!["curve25519-sha256".to_owned()], vec!["sntrup761x25519-sha512".to_owned()]));
        let error = AlgorithmList::parse(&MACS, "umac-64@openssh.com").expect_err("nothing is left");
        assert!(error.contains("none of umac-64@openssh.com") && error.contains("hmac-sha2-512"), "{error}");
        assert_eq!(
            AlgorithmList::parse(&CIPHERS, "aes256-gcm"),
            Err("`aes256-gcm` is not known (did you mean aes256-gcm@openssh.com, aes256-ctr, aes256-cbc?)".to_owned())
        );
        assert!(
            AlgorithmList::parse(&CIPHERS, "none").is_err()
                && AlgorithmList::parse(&KEX, "+").is_err()
                && AlgorithmList::parse(&MACS, "-*").is_err()
        );
    }

    #[test]
    fn algorithm_tables_do_not_overlap() {
        for table in [&KEX, &CIPHERS, &MACS, &HOST_KEYS, &CA_SIGNATURES] {
            let mut all = table.supported();
            all.extend(table.unsupported.split_whitespace());
            let count = all.len();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), count, "{}", table.keyword);
            assert!(AlgorithmList::default_for(table).names.iter().all(|n| table.supported().contains(&n.as_str())), "{}", table.keyword);
        }
    }

    #[test]
    fn known_key_types_come_first_without_sha1() {
        let own = AlgorithmList::default_for(&HOST_KEYS).names;
        let plain: Vec<String> = own.iter().filter(|n| !is_certificate(n)).cloned().collect();
        let order = sort_known_first(&plain, &["ssh-rsa".to_owned()]);
        assert_eq!(order.get(..3).unwrap_or_default(), ["rsa-sha2-512", "rsa-sha2-256", "ssh-ed25519"]);
        assert_eq!(sort_known_first(&plain, &[]).first().map(String::as_str), Some("ssh-ed25519"));
        assert!(!own.contains(&"ssh-rsa".to_owned()));
    }
}
