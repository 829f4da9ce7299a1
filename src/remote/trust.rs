//! Judges the key or certificate that a host shows, and says in words what is wrong with it and which command mends it.
//!
//! Uses `known_hosts`, `krl`, `certificate`, `learn`, `presented_key`. Owns the files; knows no sockets. Files are read before a connection begins, so that the
//! handshake decides from memory. The order of the questions is that of `verify_host_key` and `check_host_key` in OpenSSH.
#![expect(clippy::disallowed_methods, reason = "known_hosts are files of the laptop")]

use std::collections::HashMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use super::RemoteError;
use super::certificate::Certificate;
use super::known_hosts::{self, File, Line, Mark, Verdict};
use super::krl::{Issued, Revoked, Suspect};
use super::learn;
use super::lookup::KnownHostsCommand;
use super::presented_key::Offered;
use crate::shell::quote;

/// No file is read beyond this.
const LARGEST: u64 = 64 << 20;
/// What may not stand in a name that is written into known_hosts.
const UNSAFE: [char; 10] = ['@', '?', '*', '#', '|', '\'', '"', '\\', ',', ' '];

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
    /// `KnownHostsCommand`.
    pub(super) command: Option<KnownHostsCommand>,
    /// `RevokedHostKeys`, each with the place that names it.
    pub(super) revoked: Vec<(PathBuf, String)>,
    /// Where a new key is noted; `None`: nowhere.
    pub(super) learn: Option<PathBuf>,
    /// Whether a new key is noted and accepted.
    pub(super) accept_new: bool,
    /// Whether names are hashed when a key is noted.
    pub(super) hashed: bool,
    /// `HostKeyAlgorithms`.
    pub(super) algorithms: Vec<String>,
    /// `CASignatureAlgorithms`.
    pub(super) authority_algorithms: Vec<String>,
}

/// What is known of one host before it is asked.
#[derive(Debug, Clone)]
pub(super) struct Trust {
    /// The name people know it by.
    pub(super) host: String,
    /// What stands before its messages: a jump host is named, the host at the end of the way is named by whoever shows them.
    head: String,
    pub(super) policy: Policy,
    lines: Vec<Line>,
    bare: Vec<Line>,
    revoked: Vec<(PathBuf, Arc<Revoked>)>,
    remembered: Remembered,
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

type Remembered = Arc<Mutex<Vec<(String, Line)>>>;
type Stamp = (Option<SystemTime>, u64);

/// What was read of a file, and how it looked then.
struct Reading<T>(Mutex<HashMap<PathBuf, (Stamp, Arc<T>)>>);

impl<T> Default for Reading<T> {
    fn default() -> Self {
        Reading(Mutex::default())
    }
}

/// The files that were read, so that many hosts share one reading.
#[derive(Default)]
pub(super) struct Files {
    known: Reading<Vec<known_hosts::Entry>>,
    /// New keys that were accepted and could be noted nowhere, by the names they go by: a host that is connected again must show the same.
    remembered: Remembered,
    revoked: Reading<Revoked>,
}

impl<T> Reading<T> {
    /// A file's content, read again where it has changed; an error is a fragment, and a missing file is `None`.
    fn get(&self, path: &Path, read: impl FnOnce(&[u8]) -> Result<T, String>) -> Result<Option<Arc<T>>, String> {
        let stamp = match std::fs::metadata(path) {
            Ok(meta) => (meta.modified().ok(), meta.len()),
            Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => return Ok(None),
            Err(e) => return Err(e.to_string()),
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, content)) = all.get(path).filter(|(known, _)| *known == stamp) {
            return Ok(Some(content.clone()));
        }
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(|e| e.to_string())?;
        file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
        if u64::try_from(bytes.len()).is_ok_and(|n| n > LARGEST) {
            return Err(format!("it is larger than {} MiB", LARGEST >> 20));
        }
        let content = Arc::new(read(&bytes)?);
        all.insert(path.to_owned(), (stamp, content.clone()));
        Ok(Some(content))
    }
}

impl Files {
    /// Reads what is known of a host. A missing known_hosts file knows nothing; one that cannot be read is an error, because it may hold a
    /// revocation. A file of revoked keys must be there.
    pub(super) fn trust(&self, host: &str, head: &str, policy: &Policy) -> Result<Trust, RemoteError> {
        let files = policy.files.iter().map(|path| self.file(path)).collect::<Result<Vec<_>, _>>()?;
        let revoked =
            policy.revoked.iter().map(|(path, place)| Ok((path.clone(), self.list(path, place)?))).collect::<Result<_, RemoteError>>()?;
        let mut lines = known_hosts::lookup(&files, &policy.name);
        let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        lines.extend(remembered.iter().filter(|(name, _)| *name == policy.name).map(|(_, line)| line.clone()));
        drop(remembered);
        let bare = policy.bare.as_deref().map(|name| known_hosts::lookup(&files, name)).unwrap_or_default();
        let remembered = self.remembered.clone();
        Ok(Trust { host: host.to_owned(), head: head.to_owned(), policy: policy.clone(), lines, bare, revoked, remembered })
    }

    fn file(&self, path: &Path) -> Result<File, RemoteError> {
        let read = self.known.get(path, |bytes| Ok(known_hosts::parse(&String::from_utf8_lossy(bytes))));
        let entries = read.map_err(|what| RemoteError::Settings {
            what: format!("could not read {}: {what}", path.display()),
            hint: "make it readable, or name another file with ssh.known_hosts".to_owned(),
        })?;
        Ok(File { path: path.to_owned(), entries: entries.unwrap_or_default(), printed: false })
    }

    fn list(&self, path: &Path, place: &str) -> Result<Arc<Revoked>, RemoteError> {
        let read = self.revoked.get(path, Revoked::read).and_then(|list| list.ok_or_else(|| "there is no such file".to_owned()));
        read.map_err(|what| RemoteError::Settings {
            what: format!("{place}: RevokedHostKeys {}: {what}", path.display()),
            hint: "mend the file (`ssh-keygen -Q -l -f` shows what it holds), or take RevokedHostKeys out of ssh_config".to_owned(),
        })
    }
}

impl Trust {
    /// Takes what `KnownHostsCommand` has printed, in place of what it had printed before.
    pub(super) fn hear(&mut self, printed: &File) {
        self.lines.retain(|line| !line.printed);
        self.lines.extend(known_hosts::lookup(std::slice::from_ref(printed), &self.policy.name));
    }

    /// The key types that are known for this host, the first line's first.
    pub(super) fn kinds(&self) -> Vec<String> {
        let plain = |lines: &[Line]| lines.iter().filter(|l| l.mark == Mark::Plain).map(|l| l.kind.clone()).collect::<Vec<_>>();
        let kinds = plain(&self.lines);
        if kinds.is_empty() { plain(&self.bare) } else { kinds }
    }

    /// Whether an authority is known that may sign this host's certificate.
    pub(super) fn has_authority(&self) -> bool {
        self.marked(Mark::Authority).next().is_some()
    }

    fn marked(&self, mark: Mark) -> impl Iterator<Item = &Line> {
        self.lines.iter().chain(&self.bare).filter(move |l| l.mark == mark)
    }

    /// Decides about what a host shows, at `now` (seconds since 1970). A certificate that does not vouch for the host is no reason to refuse:
    /// its plain key may still be known.
    pub(super) fn answer(&self, offered: &Offered, now: u64) -> Answer {
        if let Some(error) = self.is_revoked(offered) {
            return Answer::Refuse(error);
        }
        let doubt = match &offered.certificate {
            None => String::new(),
            Some(certificate) => match self.doubt(certificate, now) {
                None => return Answer::Known,
                Some(doubt) => format!("; its {} does not vouch for it: {doubt}", certificate.words()),
            },
        };
        if !self.policy.algorithms.iter().any(|a| super::algorithms::key_type(a) == offered.kind && !super::algorithms::is_certificate(a)) {
            return Answer::Refuse(self.refuse(
                format!("the server shows {}, which HostKeyAlgorithms does not allow{doubt}", offered.words()),
                "allow its type in HostKeyAlgorithms, or mend its certificate".to_owned(),
            ));
        }
        let key = &offered.key;
        let verdict = match (known_hosts::judge(&self.lines, key), known_hosts::judge(&self.bare, key)) {
            (Verdict::Unknown, bare @ Verdict::Known) => bare,
            (verdict, _) => verdict,
        };
        match verdict {
            Verdict::Known => Answer::Known,
            Verdict::Unknown if self.policy.accept_new => Answer::Learn,
            Verdict::Unknown => Answer::Refuse(self.unknown(offered, &doubt)),
            Verdict::Changed(line) => Answer::Refuse(self.changed(offered, &line, &doubt)),
            Verdict::Revoked(line) => Answer::Refuse(self.revoked_by(offered, &format!("{} revokes this key", line.place()))),
        }
    }

    /// Why a certificate does not vouch for this host.
    fn doubt(&self, certificate: &Certificate, now: u64) -> Option<String> {
        let Some(line) = self.marked(Mark::Authority).find(|l| l.key == certificate.authority) else {
            return Some(match self.marked(Mark::Authority).next() {
                Some(line) => format!("{} names another authority, {}", line.place(), known_hosts::fingerprint(&line.key)),
                None => format!("no @cert-authority line names its authority for {}", self.policy.name),
            });
        };
        let fault = certificate.fault(&self.policy.principal, now, &self.policy.authority_algorithms)?;
        Some(format!("{fault} (its authority is trusted by {})", line.place()))
    }

    /// Whether the key or the authority of its certificate is revoked.
    fn is_revoked(&self, offered: &Offered) -> Option<RemoteError> {
        let certificate = offered.certificate.as_ref();
        let issued = certificate.map(|c| Issued { authority: &c.authority, serial: c.serial, id: &c.id });
        let suspect = Suspect { key: &offered.key, certificate: issued };
        let lists = self.revoked.iter().find_map(|(path, list)| Some(format!("{}: {}", path.display(), list.by(&suspect)?)));
        let lines = || {
            let of = |key: &[u8]| self.marked(Mark::Revoked).find(|l| l.key == key);
            let authority = || of(&certificate?.authority).map(|l| format!("{} revokes its authority", l.place()));
            of(&offered.key).map(|l| format!("{} revokes this key", l.place())).or_else(authority)
        };
        lists.or_else(lines).map(|how| self.revoked_by(offered, &how))
    }

    fn refuse(&self, what: String, hint: String) -> RemoteError {
        RemoteError::Refused { what: format!("{}{what}", self.head), hint }
    }

    fn revoked_by(&self, offered: &Offered, how: &str) -> RemoteError {
        let key = format!("/etc/ssh/ssh_host_{}_key", short(&offered.kind));
        self.refuse(
            format!("the host key is revoked: {how} ({})", offered.words()),
            format!("the host needs a new key; on it: rm {key} {key}.pub && ssh-keygen -A, then restart sshd"),
        )
    }

    fn unknown(&self, offered: &Offered, doubt: &str) -> RemoteError {
        let Policy { name, learn, files, .. } = &self.policy;
        let shown = |f: &PathBuf| f.display().to_string();
        let file = learn.as_ref().or(files.first()).map_or_else(|| "~/.ssh/known_hosts".to_owned(), shown);
        let all = files.iter().map(shown).collect::<Vec<_>>().join(", ");
        self.refuse(
            format!("the host key is not known: the server shows {} as {name}, which is in none of {all}{doubt}", offered.words()),
            format!(
                "compare with `ssh-keygen -lf /etc/ssh/ssh_host_{}_key.pub` on the host; if it is the same: echo {} >> {}   (or set \
                 ssh.host_keys: accept-new)",
                short(&offered.kind),
                quote(&known_hosts::line(name, &offered.kind, &offered.key, None)),
                quote(&file)
            ),
        )
    }

    fn changed(&self, offered: &Offered, line: &Line, doubt: &str) -> RemoteError {
        // A key that is in no file has no line.
        let place = if line.line == 0 { "what it showed before".to_owned() } else { line.place() };
        let has = format!("{place} has {} {}", line.kind, known_hosts::fingerprint(&line.key));
        let mend = if line.line == 0 {
            "start again".to_owned()
        } else if line.printed {
            "KnownHostsCommand must print the new key".to_owned()
        } else {
            format!("ssh-keygen -R {} -f {}", quote(&self.policy.name), quote(&line.file.display().to_string()))
        };
        let what = if line.kind == offered.kind {
            format!("the host key has changed: {has}, the server shows {}{doubt}", offered.words())
        } else {
            format!("the host key is of another type than the known one: {has}, the server shows {}{doubt}", offered.words())
        };
        self.refuse(what, format!("someone may be in between; if the host was set up anew: {mend}"))
    }

    /// Notes a key that was accepted; gives the words to tell the person, or nothing when it was noted meanwhile.
    pub(super) fn learn(&self, offered: &Offered, salt: [u8; 20]) -> Option<String> {
        let (name, what) = (&self.policy.name, format!("{}: new host key {}", self.host, offered.words()));
        let path = self.policy.learn.as_deref().filter(|p| *p != Path::new("/dev/null") && !name.contains(UNSAFE));
        let Some(path) = path else {
            return Some(format!("{what} accepted; it is noted nowhere"));
        };
        let line = known_hosts::line(name, &offered.kind, &offered.key, self.policy.hashed.then_some(salt));
        match learn::append(path, name, &offered.key, &line) {
            Ok(true) => Some(format!("{what} noted in {}", path.display())),
            Ok(false) => None,
            Err(e) => {
                self.remember(offered);
                Some(format!("{what} accepted, and is remembered while this runs, but {} could not be written: {e}", path.display()))
            }
        }
    }

    /// Keeps a key in memory.
    fn remember(&self, offered: &Offered) {
        let line =
            Line { file: PathBuf::new(), printed: false, line: 0, mark: Mark::Plain, kind: offered.kind.clone(), key: offered.key.clone() };
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner).push((self.policy.name.clone(), line));
    }
}

/// How sshd's key files call a key type.
fn short(kind: &str) -> &str {
    match kind {
        "ssh-ed25519" => "ed25519",
        "ssh-rsa" => "rsa",
        _ => "ecdsa",
    }
}
