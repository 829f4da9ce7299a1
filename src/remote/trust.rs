//! Reads and extends known_hosts files, and says in words what is wrong with a host key.
//!
//! Uses `known_hosts`. Owns the files; knows no sockets. Files are read before a connection begins, so that the handshake decides from memory.
#![expect(clippy::disallowed_methods, reason = "known_hosts are files of the laptop")]

use std::collections::HashMap;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use super::RemoteError;
use super::known_hosts::{self, Entry, File, Line, Mark, Verdict};

/// How often, and how far apart, a lock is tried.
const LOCK_TRIES: usize = 40;
const LOCK_WAIT: Duration = Duration::from_millis(50);

/// How one host's key is judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Policy {
    /// The name its key goes by: `host`, `[host]:port` or HostKeyAlias.
    pub(super) name: String,
    /// The name without the port, where a line may also stand.
    pub(super) bare: Option<String>,
    /// The host's name for certificates.
    pub(super) principal: String,
    /// The user's files, then the system's.
    pub(super) files: Vec<PathBuf>,
    /// Where a new key is noted; `None`: nowhere.
    pub(super) learn: Option<PathBuf>,
    /// Whether a new key is noted and accepted.
    pub(super) accept_new: bool,
    /// Whether names are hashed when a key is noted.
    pub(super) hashed: bool,
}

/// What is known of one host before it is asked.
#[derive(Debug, Clone)]
pub(super) struct Trust {
    pub(super) host: String,
    pub(super) policy: Policy,
    lines: Vec<Line>,
    bare: Vec<Line>,
}

/// What to do with an offered key.
#[derive(Debug)]
pub(super) enum Answer {
    /// Go on.
    Known,
    /// Go on, and note the key.
    Learn,
    /// Stop.
    Refuse(RemoteError),
}

type Stamp = (Option<SystemTime>, u64);
type Reading = (Stamp, Arc<Vec<Entry>>);

/// The files that were read, so that many hosts share one reading.
#[derive(Default)]
pub(super) struct Files {
    read: Mutex<HashMap<PathBuf, Reading>>,
}

impl Files {
    /// Reads what is known of a host. A missing file knows nothing; one that cannot be read is an error, because it may hold a revocation.
    pub(super) fn trust(&self, host: &str, policy: &Policy) -> Result<Trust, RemoteError> {
        let files = policy.files.iter().map(|path| self.file(path)).collect::<Result<Vec<_>, _>>()?;
        let lines = known_hosts::lookup(&files, &policy.name);
        let bare = policy.bare.as_deref().map(|name| known_hosts::lookup(&files, name)).unwrap_or_default();
        Ok(Trust { host: host.to_owned(), policy: policy.clone(), lines, bare })
    }

    fn file(&self, path: &Path) -> Result<File, RemoteError> {
        let stamp = match std::fs::metadata(path) {
            Ok(meta) => (meta.modified().ok(), meta.len()),
            Err(e) if absent(&e) => return Ok(File { path: path.to_owned(), entries: Arc::default() }),
            Err(e) => return Err(unreadable(path, &e)),
        };
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, entries)) = read.get(path).filter(|(known, _)| *known == stamp) {
            return Ok(File { path: path.to_owned(), entries: entries.clone() });
        }
        let bytes = std::fs::read(path).map_err(|e| unreadable(path, &e))?;
        let entries = Arc::new(known_hosts::parse(&String::from_utf8_lossy(&bytes)));
        read.insert(path.to_owned(), (stamp, entries.clone()));
        Ok(File { path: path.to_owned(), entries })
    }
}

fn absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

fn unreadable(path: &Path, error: &std::io::Error) -> RemoteError {
    RemoteError::Settings {
        what: format!("could not read {}: {error}", path.display()),
        hint: "make it readable, or name another file with ssh.known_hosts".to_owned(),
    }
}

impl Trust {
    /// The key types that are known for this host, the first line's first.
    pub(super) fn kinds(&self) -> Vec<String> {
        let plain = |lines: &[Line]| lines.iter().filter(|l| l.mark == Mark::Plain).map(|l| l.kind.clone()).collect::<Vec<_>>();
        let kinds = plain(&self.lines);
        if kinds.is_empty() { plain(&self.bare) } else { kinds }
    }

    /// Keys of authorities that may sign this host's certificate.
    pub(super) fn authorities(&self) -> impl Iterator<Item = &[u8]> {
        self.lines.iter().chain(&self.bare).filter(|l| l.mark == Mark::Authority).map(|l| l.key.as_slice())
    }

    /// Whether a key is revoked for this host, be it its own or an authority's.
    pub(super) fn revoked(&self, key: &[u8]) -> Option<&Line> {
        self.lines.iter().chain(&self.bare).find(|l| l.mark == Mark::Revoked && l.key == key)
    }

    /// Decides about an offered key.
    pub(super) fn answer(&self, kind: &str, key: &[u8]) -> Answer {
        let verdict = match (known_hosts::judge(&self.lines, key), known_hosts::judge(&self.bare, key)) {
            (Verdict::Unknown, bare @ (Verdict::Known | Verdict::Revoked(_))) | (_, bare @ Verdict::Revoked(_)) => bare,
            (verdict, _) => verdict,
        };
        match verdict {
            Verdict::Known => Answer::Known,
            Verdict::Unknown if self.policy.accept_new => Answer::Learn,
            Verdict::Unknown => Answer::Refuse(self.unknown(kind, key)),
            Verdict::Changed(line) => Answer::Refuse(self.changed(kind, key, &line)),
            Verdict::Revoked(line) => Answer::Refuse(self.is_revoked(kind, key, &line)),
        }
    }

    fn unknown(&self, kind: &str, key: &[u8]) -> RemoteError {
        let Policy { name, learn, files, .. } = &self.policy;
        let file = learn.as_ref().or(files.first()).map_or_else(|| "~/.ssh/known_hosts".to_owned(), |f| f.display().to_string());
        RemoteError::Refused {
            what: format!("host key of {} is not known: it offers {kind} {} as {name}", self.host, known_hosts::fingerprint(key)),
            hint: format!(
                "if that fingerprint is right: echo {} >> {}   (or set ssh.host_keys: accept-new)",
                crate::shell::quote(&known_hosts::line(name, kind, key, None)),
                crate::shell::quote(&file)
            ),
        }
    }

    fn changed(&self, kind: &str, key: &[u8], line: &Line) -> RemoteError {
        let place = format!("{}:{}", line.file.display(), line.line);
        RemoteError::Refused {
            what: format!(
                "host key of {} has changed: {place} has {} {}, it offers {kind} {}",
                self.host,
                line.kind,
                known_hosts::fingerprint(&line.key),
                known_hosts::fingerprint(key)
            ),
            hint: format!(
                "someone may be in between; if the host was set up anew: ssh-keygen -R {} -f {}",
                crate::shell::quote(&self.policy.name),
                crate::shell::quote(&line.file.display().to_string())
            ),
        }
    }

    fn is_revoked(&self, kind: &str, key: &[u8], line: &Line) -> RemoteError {
        let place = format!("{}:{}", line.file.display(), line.line);
        RemoteError::Refused {
            what: format!("host key of {} is revoked by {place}: {kind} {}", self.host, known_hosts::fingerprint(key)),
            hint: "the host needs a new key; a revoked one is never accepted".to_owned(),
        }
    }

    /// Notes a key that was accepted; gives the words to tell the person, or nothing when it was noted meanwhile.
    pub(super) fn learn(&self, kind: &str, key: &[u8], salt: [u8; 20]) -> Option<String> {
        let fingerprint = known_hosts::fingerprint(key);
        let Some(path) = self.policy.learn.as_deref().filter(|p| *p != Path::new("/dev/null")) else {
            return Some(format!("{}: accepted the unknown host key {kind} {fingerprint}; it is noted nowhere", self.host));
        };
        let line = known_hosts::line(&self.policy.name, kind, key, self.policy.hashed.then_some(salt));
        match append(path, &self.policy.name, key, &line) {
            Ok(true) => Some(format!("{}: new host key {kind} {fingerprint} noted in {}", self.host, path.display())),
            Ok(false) => None,
            Err(e) => {
                Some(format!("{}: new host key {kind} {fingerprint} accepted, but {} could not be written: {e}", self.host, path.display()))
            }
        }
    }
}

/// Locks a file; another program that keeps it locked does not hold us for long.
fn lock(file: &std::fs::File) -> std::io::Result<()> {
    for _ in 0..LOCK_TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(std::fs::TryLockError::WouldBlock) => std::thread::sleep(LOCK_WAIT),
            Err(std::fs::TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "another program keeps it locked"))
}

/// Adds a line under the file's lock, unless the key stands there already. Says whether it was added.
fn append(path: &Path, name: &str, key: &[u8], line: &str) -> std::io::Result<bool> {
    if let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut file = std::fs::OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    lock(&file)?;
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    let entries = Arc::new(known_hosts::parse(&String::from_utf8_lossy(&bytes)));
    let lines = known_hosts::lookup(&[File { path: path.to_owned(), entries }], name);
    if known_hosts::judge(&lines, key) == Verdict::Known {
        return Ok(false);
    }
    let gap = if bytes.last().is_none_or(|b| *b == b'\n') { "" } else { "\n" };
    file.write_all(format!("{gap}{line}\n").as_bytes())?;
    Ok(true)
}
