//! Verifies the key or certificate that a host presents; a refusal names the reason and the command that fixes it.
//!
//! Files are read before a connection starts, so that the
//! handshake decides from memory. The order of checks is that of `verify_host_key` and `check_host_key` in OpenSSH.
#![expect(clippy::disallowed_methods, reason = "known_hosts are files of the laptop")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use super::RemoteError;
use super::host_certificate::HostCertificate;
use super::known_hosts_append;
use super::known_hosts_command::KnownHostsCommand;
use super::krl::{CertificateId, RevocationList, RevocationQuery};
use super::presented_key::PresentedKey;
use crate::ssh_config::known_hosts;
use crate::ssh_config::known_hosts::{KnownHostsFile, KnownHostsMarker, KnownHostsMatch, KnownHostsVerdict};
use crate::text::shell_quote::quote;

/// Characters not allowed in a name written to known_hosts.
const UNSAFE_NAME_CHARS: [char; 10] = ['@', '?', '*', '#', '|', '\'', '"', '\\', ',', ' '];

/// Policy for one host's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostKeyPolicy {
    /// Name in known_hosts: `host`, `[host]:port` or HostKeyAlias.
    pub(super) name: String,
    /// Name without the port, which lines may also use.
    pub(super) name_without_port: Option<String>,
    /// Host name for certificates.
    pub(super) principal: String,
    /// The user's files, then the system's.
    pub(super) known_hosts_files: Vec<PathBuf>,
    /// `KnownHostsCommand`.
    pub(super) known_hosts_command: Option<KnownHostsCommand>,
    /// `RevokedHostKeys` files with the origin of the setting.
    pub(super) revoked_key_files: Vec<(PathBuf, String)>,
    /// File for new keys; `None` stores them nowhere.
    pub(super) append_to: Option<PathBuf>,
    /// Accept and store new keys.
    pub(super) accept_new: bool,
    /// Hash names of stored keys.
    pub(super) hash_names: bool,
    /// `HostKeyAlgorithms`.
    pub(super) host_key_algorithms: Vec<String>,
    /// `CASignatureAlgorithms`.
    pub(super) ca_algorithms: Vec<String>,
}

/// Known keys of one host, before it is contacted.
#[derive(Debug, Clone)]
pub(super) struct HostKeyVerifier {
    /// Name shown to the user.
    pub(super) host: String,
    /// Prefix of its messages: names a jump host; callers name the target host.
    message_prefix: String,
    pub(super) policy: HostKeyPolicy,
    lines: Vec<KnownHostsMatch>,
    lines_without_port: Vec<KnownHostsMatch>,
    revocation_lists: Vec<(PathBuf, Arc<RevocationList>)>,
    session_keys: SessionKeys,
}

/// Decision about a presented key.
#[derive(Debug)]
pub(super) enum HostKeyDecision {
    Accept,
    /// Accept the key and store it.
    AcceptAndRecord,
}

type SessionKeys = Arc<Mutex<Vec<(String, KnownHostsMatch)>>>;
type FileStamp = (Option<SystemTime>, u64);

/// Content of a file, and its metadata when it was read.
struct FileCache<T>(Mutex<HashMap<PathBuf, (FileStamp, Arc<T>)>>);

impl<T> Default for FileCache<T> {
    fn default() -> Self {
        FileCache(Mutex::default())
    }
}

/// The files read so far, shared by all hosts.
#[derive(Default)]
pub(super) struct HostKeyFiles {
    known_hosts: FileCache<Vec<known_hosts::KnownHostsEntry>>,
    /// Accepted keys that could not be stored, by name: a reconnected host must present the same key.
    session_keys: SessionKeys,
    revocation_lists: FileCache<RevocationList>,
}

impl<T> FileCache<T> {
    /// Content of a file, read again if it changed; the error is a fragment, a missing file is `None`.
    fn get_or_read(&self, path: &Path, read: impl FnOnce(&[u8]) -> Result<T, String>) -> Result<Option<Arc<T>>, String> {
        let stamp = match std::fs::metadata(path) {
            Ok(meta) => (meta.modified().ok(), meta.len()),
            Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => return Ok(None),
            Err(e) => return Err(e.to_string()),
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, content)) = all.get(path).filter(|(known, _)| *known == stamp) {
            return Ok(Some(content.clone()));
        }
        let file = std::fs::File::open(path).map_err(|e| e.to_string())?;
        let bytes = known_hosts_append::read_bounded(&file).map_err(|e| e.to_string())?;
        let content = Arc::new(read(&bytes)?);
        all.insert(path.to_owned(), (stamp, content.clone()));
        Ok(Some(content))
    }
}

impl HostKeyFiles {
    /// Reads the known keys of a host. A missing known_hosts file is empty; an unreadable one is an error, because it may contain a
    /// revocation. A file of revoked keys must exist.
    pub(super) fn load_verifier(&self, host: &str, prefix: &str, policy: &HostKeyPolicy) -> Result<HostKeyVerifier, RemoteError> {
        let files = policy.known_hosts_files.iter().map(|path| self.read_known_hosts(path)).collect::<Result<Vec<_>, _>>()?;
        let revoked = policy
            .revoked_key_files
            .iter()
            .map(|(path, place)| Ok((path.clone(), self.read_revocation_list(path, place)?)))
            .collect::<Result<_, RemoteError>>()?;
        let mut lines = known_hosts::find_host_lines(&files, &policy.name);
        let remembered = self.session_keys.lock().unwrap_or_else(PoisonError::into_inner);
        lines.extend(remembered.iter().filter(|(name, _)| *name == policy.name).map(|(_, line)| line.clone()));
        drop(remembered);
        let lines_without_port =
            policy.name_without_port.as_deref().map(|name| known_hosts::find_host_lines(&files, name)).unwrap_or_default();
        let remembered = self.session_keys.clone();
        Ok(HostKeyVerifier {
            host: host.to_owned(),
            message_prefix: prefix.to_owned(),
            policy: policy.clone(),
            lines,
            lines_without_port,
            revocation_lists: revoked,
            session_keys: remembered,
        })
    }

    fn read_known_hosts(&self, path: &Path) -> Result<KnownHostsFile, RemoteError> {
        let read = self.known_hosts.get_or_read(path, |bytes| Ok(known_hosts::parse_known_hosts(&String::from_utf8_lossy(bytes))));
        let entries = read.map_err(|what| {
            RemoteError::invalid_config(
                format!("could not read {}: {what}", path.display()),
                "make it readable, or choose another file with ssh.known_hosts",
            )
        })?;
        Ok(KnownHostsFile { path: path.to_owned(), entries: entries.unwrap_or_default(), from_command: false })
    }

    fn read_revocation_list(&self, path: &Path, place: &str) -> Result<Arc<RevocationList>, RemoteError> {
        let read =
            self.revocation_lists.get_or_read(path, RevocationList::parse).and_then(|list| list.ok_or_else(|| "no such file".to_owned()));
        read.map_err(|what| {
            RemoteError::invalid_config(
                format!("{place}: RevokedHostKeys {}: {what}", path.display()),
                "correct the file (`ssh-keygen -Q -l -f` lists it), or remove RevokedHostKeys from ssh_config",
            )
        })
    }
}

impl HostKeyVerifier {
    /// Replaces the lines from `KnownHostsCommand`.
    pub(super) fn set_command_lines(&mut self, printed: &KnownHostsFile) {
        self.lines.retain(|line| !line.from_command);
        self.lines.extend(known_hosts::find_host_lines(std::slice::from_ref(printed), &self.policy.name));
    }

    /// Known key types of this host, in file order.
    pub(super) fn known_key_types(&self) -> Vec<String> {
        let plain = |lines: &[KnownHostsMatch]| {
            lines.iter().filter(|l| l.marker == KnownHostsMarker::Plain).map(|l| l.key_type.clone()).collect::<Vec<_>>()
        };
        let kinds = plain(&self.lines);
        if kinds.is_empty() { plain(&self.lines_without_port) } else { kinds }
    }

    /// Whether a known authority may sign this host's certificate.
    pub(super) fn has_cert_authority(&self) -> bool {
        self.lines_with_marker(KnownHostsMarker::CertAuthority).next().is_some()
    }

    fn lines_with_marker(&self, marker: KnownHostsMarker) -> impl Iterator<Item = &KnownHostsMatch> {
        self.lines.iter().chain(&self.lines_without_port).filter(move |l| l.marker == marker)
    }

    /// Decides about a presented key at `now` (seconds since 1970); the error is the refusal. An invalid certificate alone is no reason to refuse:
    /// its plain key may still be known.
    pub(super) fn verify(&self, offered: &PresentedKey, now: u64) -> Result<HostKeyDecision, RemoteError> {
        if let Some(error) = self.check_revoked(offered) {
            return Err(error);
        }
        let problem = match &offered.certificate {
            None => String::new(),
            Some(certificate) => match self.certificate_problem(certificate, now) {
                None => return Ok(HostKeyDecision::Accept),
                Some(reason) => format!("; its {} is not accepted: {reason}", certificate.describe()),
            },
        };
        if !self
            .policy
            .host_key_algorithms
            .iter()
            .any(|a| super::algorithms::key_type(a) == offered.key_type && !super::algorithms::is_certificate(a))
        {
            return Err(self.refusal(
                format!("the server presents {}, which HostKeyAlgorithms does not allow{problem}", offered.describe()),
                "allow its type in HostKeyAlgorithms, or renew its certificate".to_owned(),
            ));
        }
        let key = &offered.key;
        let verdict = match (known_hosts::check_known_key(&self.lines, key), known_hosts::check_known_key(&self.lines_without_port, key)) {
            (KnownHostsVerdict::Unknown, KnownHostsVerdict::Known) => KnownHostsVerdict::Known,
            (verdict, _) => verdict,
        };
        match verdict {
            KnownHostsVerdict::Known => Ok(HostKeyDecision::Accept),
            KnownHostsVerdict::Unknown if self.policy.accept_new => Ok(HostKeyDecision::AcceptAndRecord),
            KnownHostsVerdict::Unknown => Err(self.unknown_key_error(offered, &problem)),
            KnownHostsVerdict::Changed(line) => Err(self.changed_key_error(offered, &line, &problem)),
            KnownHostsVerdict::Revoked(line) => Err(self.revoked_key_error(offered, &format!("{} revokes this key", line.location()))),
        }
    }

    /// Why a certificate is not valid for this host.
    fn certificate_problem(&self, certificate: &HostCertificate, now: u64) -> Option<String> {
        let Some(line) = self.lines_with_marker(KnownHostsMarker::CertAuthority).find(|l| l.key == certificate.ca_key) else {
            return Some(match self.lines_with_marker(KnownHostsMarker::CertAuthority).next() {
                Some(line) => format!("{} names another authority, {}", line.location(), known_hosts::fingerprint(&line.key)),
                None => format!("no @cert-authority line names its authority for {}", self.policy.name),
            });
        };
        let reason = certificate.validity_problem(&self.policy.principal, now, &self.policy.ca_algorithms)?;
        Some(format!("{reason} (its authority is trusted by {})", line.location()))
    }

    /// Whether the key or the authority of its certificate is revoked.
    fn check_revoked(&self, offered: &PresentedKey) -> Option<RemoteError> {
        let certificate = offered.certificate.as_ref();
        let issued = certificate.map(|c| CertificateId { ca_key: &c.ca_key, serial: c.serial, key_id: &c.key_id });
        let query = RevocationQuery { key: &offered.key, certificate: issued };
        let lists =
            self.revocation_lists.iter().find_map(|(path, list)| Some(format!("{}: {}", path.display(), list.find_revocation(&query)?)));
        let lines = || {
            let of = |key: &[u8]| self.lines_with_marker(KnownHostsMarker::Revoked).find(|l| l.key == key);
            let authority = || of(&certificate?.ca_key).map(|l| format!("{} revokes its authority", l.location()));
            of(&offered.key).map(|l| format!("{} revokes this key", l.location())).or_else(authority)
        };
        lists.or_else(lines).map(|how| self.revoked_key_error(offered, &how))
    }

    fn refusal(&self, message: String, hint: String) -> RemoteError {
        RemoteError::refused(format!("{}{message}", self.message_prefix), hint)
    }

    fn revoked_key_error(&self, offered: &PresentedKey, how: &str) -> RemoteError {
        let key = format!("/etc/ssh/ssh_host_{}_key", key_file_type(&offered.key_type));
        self.refusal(
            format!("the host key is revoked: {how} ({})", offered.describe()),
            format!("the host needs a new key; on it: rm {key} {key}.pub && ssh-keygen -A, then restart sshd"),
        )
    }

    fn unknown_key_error(&self, offered: &PresentedKey, problem: &str) -> RemoteError {
        let HostKeyPolicy { name, append_to, known_hosts_files: files, .. } = &self.policy;
        let shown = |f: &PathBuf| f.display().to_string();
        let file = append_to.as_ref().or(files.first()).map_or_else(|| "~/.ssh/known_hosts".to_owned(), shown);
        let all = files.iter().map(shown).collect::<Vec<_>>().join(", ");
        self.refusal(
            format!("the host key is not known: the server presents {} as {name}, which is in none of {all}{problem}", offered.describe()),
            format!(
                "compare with `ssh-keygen -lf /etc/ssh/ssh_host_{}_key.pub` on the host; if it is the same: echo {} >> {}   (or set \
                 ssh.host_keys: accept-new)",
                key_file_type(&offered.key_type),
                quote(&known_hosts::format_known_hosts_line(name, &offered.key_type, &offered.key, None)),
                quote(&file)
            ),
        )
    }

    fn changed_key_error(&self, offered: &PresentedKey, line: &KnownHostsMatch, problem: &str) -> RemoteError {
        // A key remembered only in memory has no line.
        let known = if line.line_number == 0 { "an earlier connection presented".to_owned() } else { format!("{} has", line.location()) };
        let has = format!("{known} {} {}", line.key_type, known_hosts::fingerprint(&line.key));
        let fix = if line.line_number == 0 {
            "start again".to_owned()
        } else if line.from_command {
            "KnownHostsCommand must print the new key".to_owned()
        } else {
            format!("ssh-keygen -R {} -f {}", quote(&self.policy.name), quote(&line.file.display().to_string()))
        };
        let what = if line.key_type == offered.key_type {
            format!("the host key has changed: {has}, the server presents {}{problem}", offered.describe())
        } else {
            format!("the host key is of a different type than the known one: {has}, the server presents {}{problem}", offered.describe())
        };
        self.refusal(what, format!("this may be a man-in-the-middle attack; if the host was reinstalled: {fix}"))
    }

    /// Stores an accepted key; returns the notice for the user, or `None` if it was stored in the meantime.
    pub(super) fn record_key(&self, offered: &PresentedKey, salt: [u8; 20]) -> Option<String> {
        let (name, what) = (&self.policy.name, format!("{}: new host key {}", self.host, offered.describe()));
        let path = self.policy.append_to.as_deref().filter(|p| *p != Path::new("/dev/null") && !name.contains(UNSAFE_NAME_CHARS));
        let Some(path) = path else {
            return Some(format!("{what} accepted; not stored"));
        };
        let line = known_hosts::format_known_hosts_line(name, &offered.key_type, &offered.key, self.policy.hash_names.then_some(salt));
        match known_hosts_append::append_known_host(path, name, &offered.key, &line) {
            Ok(true) => Some(format!("{what} added to {}", path.display())),
            Ok(false) => None,
            Err(e) => {
                self.remember_key(offered);
                Some(format!("{what} accepted until this program exits; cannot write {}: {e}", path.display()))
            }
        }
    }

    /// Remembers a key in memory.
    fn remember_key(&self, offered: &PresentedKey) {
        let line = KnownHostsMatch {
            file: PathBuf::new(),
            from_command: false,
            line_number: 0,
            marker: KnownHostsMarker::Plain,
            key_type: offered.key_type.clone(),
            key: offered.key.clone(),
        };
        self.session_keys.lock().unwrap_or_else(PoisonError::into_inner).push((self.policy.name.clone(), line));
    }
}

/// How sshd's key files call a key type.
fn key_file_type(kind: &str) -> &str {
    match kind {
        "ssh-ed25519" => "ed25519",
        "ssh-rsa" => "rsa",
        _ => "ecdsa",
    }
}
