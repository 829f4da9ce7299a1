//! Reads `RevokedHostKeys` files: a list of public keys, or a key revocation list of `ssh-keygen -k` (PROTOCOL.krl of OpenSSH).
//!
//! Anything that cannot be read completely is an error: it may have
//! named the key in question.

use std::collections::HashSet;

use sha2::Digest as _;

use crate::ssh_config::known_hosts;

const MAGIC: &[u8] = b"SSHKRL\n\0";
const FORMAT_VERSION: u32 = 1;

/// A key or certificate to check.
#[derive(Debug, Clone, Copy)]
pub(super) struct RevocationQuery<'a> {
    /// Blob of the plain key.
    pub(super) key: &'a [u8],
    pub(super) certificate: Option<CertificateId<'a>>,
}

/// Authority, serial and key id of a certificate.
#[derive(Debug, Clone, Copy)]
pub(super) struct CertificateId<'a> {
    pub(super) ca_key: &'a [u8],
    pub(super) serial: u64,
    pub(super) key_id: &'a str,
}

/// All revocations of one file.
#[derive(Debug, Default)]
pub(super) struct RevocationList {
    keys: HashSet<Vec<u8>>,
    sha1_fingerprints: HashSet<Vec<u8>>,
    sha256_fingerprints: HashSet<Vec<u8>>,
    certificates: Vec<RevokedCertificates>,
}

/// Revoked certificates of one authority, or of all.
#[derive(Debug, Default)]
struct RevokedCertificates {
    ca_key: Option<Vec<u8>>,
    key_ids: HashSet<Vec<u8>>,
    serial_ranges: Vec<(u64, u64)>,
    serial_bitmaps: Vec<(u64, Vec<u8>)>,
}

impl RevocationList {
    /// Parses either format; the error is a fragment, with the line if there is one.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        match bytes.strip_prefix(MAGIC) {
            Some(rest) => parse_binary(rest).map_err(|what| format!("damaged key revocation list: {what}")),
            None => parse_key_list(&String::from_utf8_lossy(bytes)),
        }
    }

    /// The reason why a key is revoked, as a fragment; `None` if it is not.
    pub(super) fn find_revocation(&self, query: &RevocationQuery<'_>) -> Option<String> {
        if let Some(how) = self.revocation_of_key(query.key) {
            return Some(format!("it revokes this key{how}"));
        }
        let CertificateId { ca_key: authority, serial, key_id: id } = query.certificate?;
        let name = known_hosts::fingerprint(authority);
        if let Some(how) = self.revocation_of_key(authority) {
            return Some(format!("it revokes the authority {name}{how}"));
        }
        let of = self.certificates.iter().filter(|c| c.ca_key.as_deref().is_none_or(|a| a == authority));
        of.filter_map(|c| c.revocation_of_certificate(serial, id)).map(|how| format!("it revokes {how} of the authority {name}")).next()
    }

    fn revocation_of_key(&self, blob: &[u8]) -> Option<&'static str> {
        if self.keys.contains(blob) {
            return Some("");
        }
        let by_digest = self.sha256_fingerprints.contains(sha2::Sha256::digest(blob).as_slice())
            || self.sha1_fingerprints.contains(sha1::Sha1::digest(blob).as_slice());
        by_digest.then_some(" by its fingerprint")
    }
}

impl RevokedCertificates {
    fn revocation_of_certificate(&self, serial: u64, id: &str) -> Option<String> {
        if self.key_ids.contains(id.as_bytes()) {
            return Some(format!("the certificate “{id}”"));
        }
        let bit = |(offset, bits): &(u64, Vec<u8>)| {
            let at = usize::try_from(serial.checked_sub(*offset)?).ok()?;
            let byte = bits.len().checked_sub(at / 8 + 1).and_then(|i| bits.get(i))?;
            Some(byte >> (at % 8) & 1 == 1)
        };
        // Serial 0 means no serial: it cannot be revoked by number.
        let numbered = serial != 0
            && (self.serial_ranges.iter().any(|(low, high)| (*low..=*high).contains(&serial))
                || self.serial_bitmaps.iter().any(|b| bit(b) == Some(true)));
        numbered.then(|| format!("the certificate number {serial}"))
    }
}

fn parse_key_list(text: &str) -> Result<RevocationList, String> {
    let mut revoked = RevocationList::default();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start_matches([' ', '\t']);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut words = line.split([' ', '\t']).filter(|w| !w.is_empty());
        let key = words.next().and_then(|kind| known_hosts::decode_key(kind, words.next()?));
        revoked.keys.insert(key.ok_or_else(|| format!("line {} is not a public key", at + 1))?);
    }
    Ok(revoked)
}

fn parse_binary(bytes: &[u8]) -> Result<RevocationList, String> {
    let mut rest = KrlReader(bytes);
    let format = rest.read_u32()?;
    if format != FORMAT_VERSION {
        return Err(format!("unsupported format version {format}, only {FORMAT_VERSION} can be read"));
    }
    // Version, date and flags; a reserved field and a comment.
    rest.take_bytes(24)?;
    rest.read_string()?;
    rest.read_string()?;
    let mut revoked = RevocationList::default();
    while !rest.0.is_empty() {
        let kind = rest.read_u8()?;
        let mut section = KrlReader(rest.read_string()?);
        match kind {
            1 => revoked.certificates.push(parse_certificates(&mut section)?),
            2 => section.read_strings_into(&mut revoked.keys, None)?,
            3 => section.read_strings_into(&mut revoked.sha1_fingerprints, Some(20))?,
            // A signature: like OpenSSH, we trust the file itself.
            4 => drop(rest.read_string()?),
            5 => section.read_strings_into(&mut revoked.sha256_fingerprints, Some(32))?,
            255 => parse_extension(&mut section)?,
            other => return Err(format!("unknown section type {other}")),
        }
    }
    Ok(revoked)
}

fn parse_certificates(section: &mut KrlReader<'_>) -> Result<RevokedCertificates, String> {
    let authority = section.read_string()?;
    section.read_string()?;
    let mut all = RevokedCertificates { ca_key: (!authority.is_empty()).then(|| authority.to_vec()), ..RevokedCertificates::default() };
    while !section.0.is_empty() {
        let kind = section.read_u8()?;
        let mut part = KrlReader(section.read_string()?);
        match kind {
            0x20 => {
                while !part.0.is_empty() {
                    let serial = part.read_u64()?;
                    all.serial_ranges.push((serial, serial));
                }
            }
            0x21 => all.serial_ranges.push((part.read_u64()?, part.read_u64()?)),
            0x22 => all.serial_bitmaps.push((part.read_u64()?, part.read_string()?.to_vec())),
            0x23 => part.read_strings_into(&mut all.key_ids, None)?,
            0x39 => parse_extension(&mut part)?,
            other => return Err(format!("unknown certificate section type {other:#x}")),
        }
        if !part.0.is_empty() {
            return Err("a section has trailing bytes".to_owned());
        }
    }
    Ok(all)
}

/// A critical extension is an error: none is supported.
fn parse_extension(part: &mut KrlReader<'_>) -> Result<(), String> {
    let name = String::from_utf8_lossy(part.read_string()?).into_owned();
    let critical = part.read_u8()? != 0;
    part.read_string()?;
    if critical { Err(format!("it needs the extension `{name}`")) } else { Ok(()) }
}

/// The unread rest.
struct KrlReader<'a>(&'a [u8]);

impl<'a> KrlReader<'a> {
    fn take_bytes(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (head, rest) = self.0.split_at_checked(count).ok_or("it ends too early")?;
        self.0 = rest;
        Ok(head)
    }

    fn read_u8(&mut self) -> Result<u8, String> {
        self.take_bytes(1).map(|b| b.first().copied().unwrap_or_default())
    }

    fn read_u32(&mut self) -> Result<u32, String> {
        self.take_bytes(4).map(|b| b.iter().fold(0, |n, b| n << 8 | u32::from(*b)))
    }

    fn read_u64(&mut self) -> Result<u64, String> {
        self.take_bytes(8).map(|b| b.iter().fold(0, |n, b| n << 8 | u64::from(*b)))
    }

    fn read_string(&mut self) -> Result<&'a [u8], String> {
        let length = usize::try_from(self.read_u32()?).map_err(|e| e.to_string())?;
        self.take_bytes(length)
    }

    fn read_strings_into(&mut self, all: &mut HashSet<Vec<u8>>, length: Option<usize>) -> Result<(), String> {
        while !self.0.is_empty() {
            let string = self.read_string()?;
            if length.is_some_and(|l| l != string.len()) {
                return Err("a fingerprint has the wrong length".to_owned());
            }
            all.insert(string.to_vec());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::Command;

    fn keygen(dir: &Path, args: &[&str]) -> bool {
        let out = Command::new("ssh-keygen").current_dir(dir).args(args).output().expect("ssh-keygen is there");
        out.status.success()
    }

    fn read_public_key(dir: &Path, name: &str) -> Vec<u8> {
        let text = std::fs::read_to_string(dir.join(format!("{name}.pub"))).expect("a key");
        let words: Vec<&str> = text.split_whitespace().collect();
        known_hosts::decode_key(words[0], words[1]).expect("a key")
    }

    /// A folder with an authority and two keys with certificates of these serials.
    fn create_test_keys(serials: [(&str, u64); 2]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a folder");
        for name in ["ca", "other_ca", "a", "b"] {
            assert!(keygen(dir.path(), &["-q", "-t", "ed25519", "-N", "", "-C", "", "-f", name]));
        }
        for (name, serial) in serials {
            let (id, serial, public) = (format!("id-{name}"), serial.to_string(), format!("{name}.pub"));
            assert!(keygen(dir.path(), &["-q", "-s", "ca", "-h", "-n", "x", "-I", &id, "-z", &serial, &public]));
        }
        dir
    }

    /// Writes a list from these lines and asks both `ssh-keygen -Q` and us about both certificates and both plain keys.
    fn compare_with_ssh_keygen(dir: &Path, spec: &str, serials: [u64; 2]) -> [bool; 4] {
        std::fs::write(dir.join("spec"), spec).expect("written");
        assert!(keygen(dir, &["-k", "-q", "-f", "krl", "-s", "ca.pub", "spec"]), "{spec}");
        let revoked = RevocationList::parse(&std::fs::read(dir.join("krl")).expect("a list")).unwrap_or_else(|e| panic!("{spec}: {e}"));
        let ca = read_public_key(dir, "ca");
        let mut answers = [false; 4];
        for (at, name) in ["a", "b"].into_iter().enumerate() {
            let (own, id) = (read_public_key(dir, name), format!("id-{name}"));
            let issued = CertificateId { ca_key: &ca, serial: serials[at], key_id: &id };
            let with = revoked.find_revocation(&RevocationQuery { key: &own, certificate: Some(issued) });
            let plain = revoked.find_revocation(&RevocationQuery { key: &own, certificate: None });
            assert_eq!(with.is_some(), !keygen(dir, &["-Q", "-f", "krl", &format!("{name}-cert.pub")]), "{spec}: {with:?}");
            assert_eq!(plain.is_some(), !keygen(dir, &["-Q", "-f", "krl", &format!("{name}.pub")]), "{spec}: {plain:?}");
            (answers[at * 2], answers[at * 2 + 1]) = (with.is_some(), plain.is_some());
        }
        answers
    }

    #[test]
    fn every_entry_kind_matches_ssh_keygen() {
        let dir = create_test_keys([("a", 1000), ("b", 7)]);
        let dir = dir.path();
        let serials = [1000, 7];
        let text = |name: &str| std::fs::read_to_string(dir.join(format!("{name}.pub"))).expect("a key");
        let hash = |name: &str| {
            let out = Command::new("ssh-keygen").current_dir(dir).args(["-l", "-f", &format!("{name}.pub")]).output().expect("a print");
            String::from_utf8_lossy(&out.stdout).split_whitespace().nth(1).expect("a print").to_owned()
        };
        let a_only = [true, false, false, false];
        let a_plain_too = [true, true, false, false];
        assert_eq!(compare_with_ssh_keygen(dir, "serial: 1000\n", serials), a_only);
        assert_eq!(compare_with_ssh_keygen(dir, "serial: 900-1100\n", serials), a_only);
        // Dense and scattered numbers are written as a bitmap.
        let bitmap: String = (0..200).filter(|n| n % 3 == 1).map(|n| format!("serial: {}\n", 900 + n)).collect();
        assert_eq!(compare_with_ssh_keygen(dir, &bitmap, serials), a_only);
        let shifted: String = (0..200).filter(|n| n % 3 == 2).map(|n| format!("serial: {}\n", 900 + n)).collect();
        assert_eq!(compare_with_ssh_keygen(dir, &shifted, serials), [false; 4]);
        assert_eq!(compare_with_ssh_keygen(dir, "id: id-a\n", serials), a_only);
        assert_eq!(compare_with_ssh_keygen(dir, &format!("key: {}", text("a")), serials), a_plain_too);
        assert_eq!(compare_with_ssh_keygen(dir, &text("a"), serials), a_plain_too);
        assert_eq!(compare_with_ssh_keygen(dir, &format!("sha1: {}", text("a")), serials), a_plain_too);
        assert_eq!(compare_with_ssh_keygen(dir, &format!("sha256: {}", text("a")), serials), a_plain_too);
        assert_eq!(compare_with_ssh_keygen(dir, &format!("hash: {}\n", hash("a")), serials), a_plain_too);
        assert_eq!(compare_with_ssh_keygen(dir, &text("ca"), serials), [true, false, true, false], "the authority's own key");
        assert_eq!(compare_with_ssh_keygen(dir, "serial: 1-18446744073709551615\n", serials), [true, false, true, false]);
        assert_eq!(compare_with_ssh_keygen(dir, "", serials), [false; 4]);
    }

    #[test]
    fn key_list_parses_and_names_bad_line() {
        let dir = create_test_keys([("a", 1), ("b", 2)]);
        let (own, other) = (read_public_key(dir.path(), "a"), read_public_key(dir.path(), "b"));
        let text = std::fs::read_to_string(dir.path().join("a.pub")).expect("a key");
        let revoked = RevocationList::parse(format!("# gone\n\n \t{text}").as_bytes()).expect("a list");
        assert!(revoked.find_revocation(&RevocationQuery { key: &own, certificate: None }).is_some());
        assert!(revoked.find_revocation(&RevocationQuery { key: &other, certificate: None }).is_none());
        assert_eq!(RevocationList::parse(format!("{text}nonsense\n").as_bytes()).err().as_deref(), Some("line 2 is not a public key"));
    }

    #[test]
    fn truncated_revocation_list_is_an_error() {
        let dir = create_test_keys([("a", 5), ("b", 9)]);
        let text = std::fs::read_to_string(dir.path().join("b.pub")).expect("a key");
        compare_with_ssh_keygen(dir.path(), &format!("serial: 5\nid: x\n{text}"), [5, 9]);
        let bytes = std::fs::read(dir.path().join("krl")).expect("a list");
        let whole = (44..bytes.len()).filter(|end| RevocationList::parse(&bytes[..*end]).is_ok()).count();
        assert!(whole <= 2, "only where a section ends: {whole}");
        let mut odd = bytes;
        odd.extend([77, 0, 0, 0, 0]);
        assert!(RevocationList::parse(&odd).is_err_and(|e| e.contains("unknown section type 77")));
        odd[11] = 9;
        assert!(RevocationList::parse(&odd).is_err_and(|e| e.contains("format version 9")));
    }
}
