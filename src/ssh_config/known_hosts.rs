//! Judges a host key by known_hosts files, as OpenSSH does: hashed names, patterns, negation, ports, revoked keys, authorities.

use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Digest as _;

use super::match_condition::{SshPattern, parse_pattern_list, patterns_match};

/// What stands before the names of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KnownHostsMarker {
    /// Nothing: the host's own key.
    Plain,
    /// `@revoked`.
    Revoked,
    /// `@cert-authority`.
    CertAuthority,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum KnownHostsNames {
    Hashed { salt: Vec<u8>, hash: Vec<u8> },
    Patterns(Vec<SshPattern>),
}

/// One line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownHostsEntry {
    line_number: usize,
    marker: KnownHostsMarker,
    names: KnownHostsNames,
    key_type: String,
    key: Vec<u8>,
}

/// A file that was read, or what a command has printed.
#[derive(Debug, Clone)]
pub(crate) struct KnownHostsFile {
    pub(crate) path: PathBuf,
    pub(crate) entries: Arc<Vec<KnownHostsEntry>>,
    /// Whether it is a command's output, which cannot be edited.
    pub(crate) from_command: bool,
}

/// A line that applies to the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownHostsMatch {
    pub(crate) file: PathBuf,
    /// Whether a command has printed it.
    pub(crate) from_command: bool,
    pub(crate) line_number: usize,
    pub(crate) marker: KnownHostsMarker,
    pub(crate) key_type: String,
    pub(crate) key: Vec<u8>,
}

/// The verdict of the files about an offered key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KnownHostsVerdict {
    /// It is the host's key.
    Known,
    /// Nothing is known of this host.
    Unknown,
    /// Another key is known for this host.
    Changed(KnownHostsMatch),
    /// The key is marked as revoked.
    Revoked(KnownHostsMatch),
}

/// Reads the text of a known_hosts file; lines that cannot be read are left out, as OpenSSH does.
pub(crate) fn parse_known_hosts(text: &str) -> Vec<KnownHostsEntry> {
    text.lines().enumerate().filter_map(|(at, line)| parse_entry(at + 1, line)).collect()
}

fn parse_entry(line: usize, text: &str) -> Option<KnownHostsEntry> {
    let mut words = text.split([' ', '\t']).filter(|w| !w.is_empty());
    let first = words.next().filter(|w| !w.starts_with('#'))?;
    let (mark, names) = match first {
        "@revoked" => (KnownHostsMarker::Revoked, words.next()?),
        "@cert-authority" => (KnownHostsMarker::CertAuthority, words.next()?),
        other if other.starts_with('@') => return None,
        other => (KnownHostsMarker::Plain, other),
    };
    let kind = words.next()?.to_owned();
    let key = decode_key(&kind, words.next()?)?;
    let names = match names.strip_prefix("|1|") {
        Some(hashed) => {
            let (salt, hash) = hashed.split_once('|')?;
            KnownHostsNames::Hashed { salt: STANDARD.decode(salt).ok()?, hash: STANDARD.decode(hash).ok()? }
        }
        None => KnownHostsNames::Patterns(parse_pattern_list(names, true)),
    };
    Some(KnownHostsEntry { line_number: line, marker: mark, names, key_type: kind, key })
}

/// The bytes of a key that is written as `type base64`; nothing where the type belies them.
pub(crate) fn decode_key(kind: &str, text: &str) -> Option<Vec<u8>> {
    let key = STANDARD.decode(text).ok()?;
    (blob_key_type(&key)? == kind).then_some(key)
}

/// The key type at the head of a key blob.
fn blob_key_type(blob: &[u8]) -> Option<&str> {
    let (length, rest) = blob.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    std::str::from_utf8(rest.get(..length)?).ok()
}

/// The name under which a host's key is looked for: `host`, or `[host]:port` where the port is not 22.
pub(crate) fn known_hosts_name(host: &str, port: u16) -> String {
    let host = host.to_ascii_lowercase();
    if port == 22 { host } else { format!("[{host}]:{port}") }
}

/// The lines of all files that apply to `name`, in order.
pub(crate) fn find_host_lines(files: &[KnownHostsFile], name: &str) -> Vec<KnownHostsMatch> {
    let name = name.to_ascii_lowercase();
    let of = |file: &KnownHostsFile| {
        let matching = |entry: &&KnownHostsEntry| matches_host(&entry.names, &name);
        file.entries.iter().filter(matching).map(|e| to_known_hosts_match(e, file)).collect::<Vec<_>>()
    };
    files.iter().flat_map(of).collect()
}

fn to_known_hosts_match(entry: &KnownHostsEntry, file: &KnownHostsFile) -> KnownHostsMatch {
    let (file, printed) = (file.path.clone(), file.from_command);
    KnownHostsMatch {
        file,
        from_command: printed,
        line_number: entry.line_number,
        marker: entry.marker,
        key_type: entry.key_type.clone(),
        key: entry.key.clone(),
    }
}

impl KnownHostsMatch {
    /// `file:line`.
    pub(crate) fn location(&self) -> String {
        format!("{}:{}", self.file.display(), self.line_number)
    }
}

fn matches_host(names: &KnownHostsNames, name: &str) -> bool {
    match names {
        KnownHostsNames::Hashed { salt, hash } => {
            let Ok(mut mac) = Hmac::<sha1::Sha1>::new_from_slice(salt) else { return false };
            mac.update(name.as_bytes());
            mac.verify_slice(hash).is_ok()
        }
        KnownHostsNames::Patterns(patterns) => patterns_match(patterns, name),
    }
}

/// Judges an offered key by the lines that apply to its host.
pub(crate) fn check_known_key(lines: &[KnownHostsMatch], key: &[u8]) -> KnownHostsVerdict {
    if let Some(line) = lines.iter().find(|l| l.marker == KnownHostsMarker::Revoked && l.key == key) {
        return KnownHostsVerdict::Revoked(line.clone());
    }
    let mut plain = lines.iter().filter(|l| l.marker == KnownHostsMarker::Plain);
    if plain.clone().any(|l| l.key == key) {
        return KnownHostsVerdict::Known;
    }
    let same_kind = plain.clone().find(|l| blob_key_type(key) == Some(l.key_type.as_str()));
    same_kind.or_else(|| plain.next()).map_or(KnownHostsVerdict::Unknown, |line| KnownHostsVerdict::Changed(line.clone()))
}

/// `SHA256:…`, as ssh and ssh-keygen print it.
pub(crate) fn fingerprint(key: &[u8]) -> String {
    format!("SHA256:{}", STANDARD_NO_PAD.encode(sha2::Sha256::digest(key)))
}

/// The line to add for a host, without a line end; hashed when `salt` is given.
pub(crate) fn format_known_hosts_line(name: &str, kind: &str, key: &[u8], salt: Option<[u8; 20]>) -> String {
    let name = salt.and_then(|salt| hash_name(name, salt)).unwrap_or_else(|| name.to_owned());
    format!("{name} {kind} {}", STANDARD.encode(key))
}

fn hash_name(name: &str, salt: [u8; 20]) -> Option<String> {
    let mut mac = Hmac::<sha1::Sha1>::new_from_slice(&salt).ok()?;
    mac.update(name.as_bytes());
    Some(format!("|1|{}|{}", STANDARD.encode(salt), STANDARD.encode(mac.finalize().into_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ED25519_KEY: &str = "AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti";
    const OTHER_KEY: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIE6HtTpxqFp4EXxZ9fkLCNX6PNVbZMVGpRk0qvQyM3Zr";

    fn file(text: &str) -> Vec<KnownHostsFile> {
        vec![KnownHostsFile { path: PathBuf::from("kh"), entries: Arc::new(parse_known_hosts(text)), from_command: false }]
    }

    fn decode_blob(text: &str) -> Vec<u8> {
        STANDARD.decode(text).expect("base64")
    }

    fn verdict(text: &str, name: &str) -> KnownHostsVerdict {
        check_known_key(&find_host_lines(&file(text), name), &decode_blob(ED25519_KEY))
    }

    fn verdict_line(verdict: &KnownHostsVerdict) -> Option<usize> {
        match verdict {
            KnownHostsVerdict::Known | KnownHostsVerdict::Unknown => None,
            KnownHostsVerdict::Changed(line) | KnownHostsVerdict::Revoked(line) => Some(line.line_number),
        }
    }

    #[test]
    fn host_names_match_like_openssh() {
        for names in ["gpu01", "GPU01", "a,gpu01,b", "gpu*", "gpu?1", "*", "gpu01\t", "  gpu01"] {
            assert_eq!(verdict(&format!("{names} ssh-ed25519 {ED25519_KEY} comment"), "Gpu01"), KnownHostsVerdict::Known, "{names}");
        }
        for names in ["gpu1", "gpu01.corp", "*,!gpu01", "!gpu01", "[gpu01]:22", "gpu?", "# gpu01"] {
            assert_eq!(verdict(&format!("{names} ssh-ed25519 {ED25519_KEY}"), "gpu01"), KnownHostsVerdict::Unknown, "{names}");
        }
        assert_eq!(verdict(&format!("[gpu01]:2222 ssh-ed25519 {ED25519_KEY}"), &known_hosts_name("GPU01", 2222)), KnownHostsVerdict::Known);
        assert_eq!(verdict(&format!("[*]:2222 ssh-ed25519 {ED25519_KEY}"), &known_hosts_name("gpu01", 2222)), KnownHostsVerdict::Known);
    }

    #[test]
    fn any_matching_key_is_known_despite_bad_lines() {
        let text = format!(
            "garbage\ngpu01 ssh-ed25519 !!!\n@what gpu01 ssh-ed25519 {OTHER_KEY}\ngpu01 ssh-ed25519 {OTHER_KEY}\ngpu01 ssh-ed25519 {ED25519_KEY}\n"
        );
        assert_eq!(verdict(&text, "gpu01"), KnownHostsVerdict::Known);
        assert_eq!(verdict(&format!("gpu01 ssh-rsa {ED25519_KEY}"), "gpu01"), KnownHostsVerdict::Unknown, "the type belies the key");
    }

    #[test]
    fn changed_key_reports_its_line() {
        let text = format!("# comment\n\ngpu01 ssh-ed25519 {OTHER_KEY}\n");
        assert_eq!(verdict_line(&verdict(&text, "gpu01")), Some(3));
        let rsa = STANDARD.encode([&[0, 0, 0, 7], b"ssh-rsa".as_slice(), &[1, 2, 3]].concat());
        let text = format!("gpu01 ssh-rsa {rsa}\ngpu01 ssh-ed25519 {OTHER_KEY}\n");
        assert_eq!(verdict_line(&verdict(&text, "gpu01")), Some(2), "the line of the same type is shown");
        assert_eq!(verdict_line(&verdict(&format!("gpu01 ssh-rsa {rsa}"), "gpu01")), Some(1), "another type is a change as well");
    }

    #[test]
    fn revoked_marker_overrides_known_key() {
        let text = format!("gpu01 ssh-ed25519 {ED25519_KEY}\n@revoked * ssh-ed25519 {ED25519_KEY}\n");
        assert!(matches!(verdict(&text, "gpu01"), KnownHostsVerdict::Revoked(line) if line.line_number == 2));
        assert_eq!(verdict(&format!("@revoked gpu01 ssh-ed25519 {OTHER_KEY}"), "gpu01"), KnownHostsVerdict::Unknown);
        assert_eq!(
            verdict(&format!("@cert-authority * ssh-ed25519 {ED25519_KEY}"), "gpu01"),
            KnownHostsVerdict::Unknown,
            "an authority's key is no host's key"
        );
    }

    #[test]
    fn hashes_and_fingerprints_match_ssh_keygen() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("kh");
        let names = ["gpu01", "10.0.0.1", "[gpu01]:2222", "[fd00::1]:22022"];
        let text: String = names.iter().map(|n| format!("{n} ssh-ed25519 {ED25519_KEY}\n")).collect();
        std::fs::write(&path, text).expect("written");
        let keygen = |args: &[&str]| {
            let out = std::process::Command::new("ssh-keygen").args(args).arg("-f").arg(&path).output().expect("ssh-keygen is there");
            String::from_utf8_lossy(&out.stdout).into_owned()
        };
        keygen(&["-H"]);
        let hashed_by_them = std::fs::read_to_string(&path).expect("readable");
        assert!(!hashed_by_them.contains("gpu01"), "{hashed_by_them}");
        for name in names {
            assert_eq!(verdict(&hashed_by_them, name), KnownHostsVerdict::Known, "{name}");
        }
        assert_eq!(verdict(&hashed_by_them, "gpu02"), KnownHostsVerdict::Unknown);
        let ours: String =
            names.iter().map(|n| format_known_hosts_line(n, "ssh-ed25519", &decode_blob(ED25519_KEY), Some([7; 20])) + "\n").collect();
        std::fs::write(&path, ours).expect("written");
        for name in names {
            assert!(keygen(&["-F", name]).contains(ED25519_KEY), "ssh-keygen does not find {name}");
        }
        assert!(keygen(&["-l"]).contains(&fingerprint(&decode_blob(ED25519_KEY))));
    }
}
