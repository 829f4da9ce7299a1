//! Private keys and certificates: read once, opened once, kept in memory for the whole fleet; beside them what else a login needs.
//!
//! Uses `settings`, `hop`, `agent` and `answers`. Owns key files and the questions about them; knows no connections.
#![expect(clippy::disallowed_methods, reason = "key files are files of the laptop, and a certificate is good for a span of real time")]

use std::collections::HashMap;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use russh::keys::ssh_key::certificate::CertType;
use russh::keys::{Algorithm, Certificate, PrivateKey, PublicKey};
use tokio::sync::OnceCell;

use super::agent::Agents;
use super::answers::{Answers, Person};
use crate::remote::RemoteError;
use crate::remote::hop::{Hop, KeyFile, Named};
use crate::remote::settings::{Prompt, Settings};
use crate::remote::ssh_config::Origin;
use crate::shell::quote;

/// No key file is larger.
const LARGEST: u64 = 1 << 20;
/// How often a passphrase may be wrong.
const TRIES: usize = 3;

/// What a key file holds.
#[derive(Debug, Clone)]
pub(super) enum Key {
    /// Ready to sign.
    Open(Arc<PrivateKey>),
    /// Encrypted; its public half may be known.
    Sealed(Option<PublicKey>),
    /// A public key only: the agent may hold its other half.
    Public(PublicKey),
    /// The handle of a key on a FIDO token: only an agent can sign with it.
    Token(PublicKey),
}

impl Key {
    /// The public half.
    pub(super) fn public(&self) -> Option<&PublicKey> {
        match self {
            Key::Open(key) => Some(key.public_key()),
            Key::Sealed(key) => key.as_ref(),
            Key::Public(key) | Key::Token(key) => Some(key),
        }
    }
}

/// A certificate of a user key, with its name for people.
#[derive(Debug, Clone)]
pub(super) struct Vouched {
    pub(super) certificate: Certificate,
    pub(super) name: String,
}

/// Something that was of no use, and the command that mends it; may be empty.
#[derive(Debug, Clone)]
pub(super) struct Passed {
    pub(super) what: String,
    pub(super) hint: String,
}

/// What can be offered from files, and which other files were passed over.
#[derive(Debug, Default)]
pub(super) struct Files {
    pub(super) keys: Vec<(PathBuf, Key)>,
    pub(super) certificates: Vec<Vouched>,
    pub(super) passed: Vec<Passed>,
}

type Opened = Arc<OnceCell<Result<Arc<PrivateKey>, RemoteError>>>;

/// Everything that proves who we are, for a fleet.
pub(super) struct Keyring {
    home: PathBuf,
    opened: Mutex<HashMap<PathBuf, Opened>>,
    pub(super) agents: Agents,
    pub(super) answers: Answers,
    pub(super) person: Person,
}

impl Keyring {
    pub(super) fn new(settings: Settings) -> Self {
        Keyring {
            home: settings.home,
            opened: Mutex::default(),
            agents: Agents::default(),
            answers: Answers::new(settings.variables),
            person: Person::new(settings.prompt),
        }
    }

    /// Tells the person something.
    pub(super) fn notice(&self, text: &str) {
        self.person.notice(text);
    }

    /// A path as people write it: `~` for the home folder.
    pub(super) fn shown(&self, path: &Path) -> String {
        match path.strip_prefix(&self.home) {
            Ok(rest) if !rest.as_os_str().is_empty() => format!("~/{}", rest.display()),
            Ok(_) | Err(_) => path.display().to_string(),
        }
    }

    /// Reads a hop's key files and certificates. A file that the inventory names must be usable; others are passed over, with the reason.
    pub(super) fn read(&self, hop: &Hop) -> Result<Files, RemoteError> {
        let mut files = Files::default();
        for file in &hop.keys {
            match self.key(file) {
                Ok(Some(key)) => files.keys.push((file.path.clone(), key)),
                Ok(None) => {}
                Err(what) if file.named == Named::Inventory => {
                    let hint = hint(&file.path, &what);
                    return Err(RemoteError::Settings { what: hop.says(&format!("ssh.identity: {what}")), hint });
                }
                Err(what) => {
                    let hint = hint(&file.path, &what);
                    let place = matches!(file.origin, Origin::Line(..)).then(|| format!("{}: ", file.origin)).unwrap_or_default();
                    files.passed.push(Passed { what: format!("{place}{what}"), hint });
                }
            }
        }
        let named = hop.certificates.iter().map(|path| (path.clone(), true));
        let beside = hop.keys.iter().map(|k| (with_suffix(&k.path, "-cert.pub"), false));
        for (path, named) in named.chain(beside) {
            match self.certificate(&path) {
                Ok(found) => files.certificates.extend(found),
                Err(what) if named => files.passed.push(Passed { what, hint: String::new() }),
                Err(why) => tracing::debug!(%why, "no certificate beside the key"),
            }
        }
        Ok(files)
    }

    fn certificate(&self, path: &Path) -> Result<Option<Vouched>, String> {
        let shown = self.shown(path);
        let text = text(path).map_err(|e| format!("could not read {shown}: {}", super::transport::words(&e)))?;
        let certificate = Certificate::from_openssh(text.trim()).map_err(|e| format!("{shown} is no certificate: {e}"))?;
        if certificate.cert_type() != CertType::User {
            return Err(format!("{shown} is a host's certificate, not a user's"));
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let span = certificate.valid_after()..certificate.valid_before();
        let name = if span.contains(&now) { shown } else { format!("{shown}, which is not valid now") };
        Ok(Some(Vouched { certificate, name }))
    }

    fn key(&self, file: &KeyFile) -> Result<Option<Key>, String> {
        let path = &file.path;
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned();
        if let Some(Ok(key)) = opened.as_ref().and_then(|cell| cell.get()) {
            return Ok(Some(Key::Open(key.clone())));
        }
        let shown = self.shown(path);
        let text = match text(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && file.named == Named::Standard => return Ok(public(path)),
            Err(e) => match public(path) {
                Some(key) => return Ok(Some(key)),
                None => return Err(format!("could not read {shown}: {}", super::transport::words(&e))),
            },
        };
        if let Ok(key) = PublicKey::from_openssh(text.trim()) {
            return Ok(Some(Key::Public(key)));
        }
        check_mode(path, &shown)?;
        if is_old(&text) {
            return Err(format!("{shown} is encrypted in an old way that is not read here"));
        }
        match russh::keys::decode_secret_key(&text, None) {
            Ok(key) => Ok(Some(match kind(key.public_key()) {
                Kind::Usual => Key::Open(self.keep(path, Arc::new(key))),
                Kind::Token => Key::Token(key.public_key().clone()),
                Kind::Gone => Key::Public(key.public_key().clone()),
            })),
            Err(e) => match sealed(path, &text) {
                Some(Some(key)) if kind(&key) == Kind::Token => Ok(Some(Key::Token(key))),
                Some(key) => Ok(Some(Key::Sealed(key))),
                None => Err(format!("{shown} is not a private key that can be used: {e}")),
            },
        }
    }

    /// Keeps a key for the other hosts.
    fn keep(&self, path: &Path, key: Arc<PrivateKey>) -> Arc<PrivateKey> {
        let cell = Arc::new(OnceCell::new_with(Some(Ok(key.clone()))));
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), cell);
        key
    }

    /// Opens an encrypted key, asking for its passphrase; hosts that want the same key wait for the one answer.
    pub(super) async fn open(&self, path: &Path, batch: bool) -> Result<Arc<PrivateKey>, RemoteError> {
        let shown = self.shown(path);
        let add = format!("ssh-add {}", quote(&path.display().to_string()));
        if batch {
            let what = format!("{shown} is encrypted, and BatchMode forbids to ask for its passphrase");
            return Err(RemoteError::Settings { what, hint: add });
        }
        let cell = self.opened.lock().unwrap_or_else(PoisonError::into_inner).entry(path.to_owned()).or_default().clone();
        let path = path.to_owned();
        let ask = || async {
            let wrong = |what: String| RemoteError::Settings { what, hint: add.clone() };
            let text = text(&path).map_err(|e| wrong(format!("could not read {shown}: {}", super::transport::words(&e))))?;
            let name = shown.clone();
            let asked = self.person.with(move |prompt| passphrase(prompt, &name, &text)).await;
            match asked {
                Some(Ok(key)) => Ok(Arc::new(key)),
                Some(Err(what)) => Err(wrong(format!("{shown} {what}"))),
                None => Err(wrong(format!("{shown} is encrypted, and asking for its passphrase failed"))),
            }
        };
        cell.get_or_init(ask).await.clone()
    }
}

/// Asks until a passphrase opens the key; an error goes on after its name.
fn passphrase(prompt: &dyn Prompt, shown: &str, text: &str) -> Result<PrivateKey, String> {
    for attempt in 1..=TRIES {
        let Some(passphrase) = prompt.secret(&format!("passphrase of {shown}")) else {
            return Err("is encrypted, and nobody was there to give its passphrase".to_owned());
        };
        match russh::keys::decode_secret_key(text, Some(&passphrase)) {
            Ok(key) => return Ok(key),
            Err(_) if attempt < TRIES => prompt.notice(&format!("wrong passphrase for {shown}, try again")),
            Err(_) => {}
        }
    }
    Err(format!("is encrypted, and {TRIES} wrong passphrases were given"))
}

fn text(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(LARGEST).read_to_string(&mut text)?;
    Ok(text)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The public key that lies beside a private one.
fn public(path: &Path) -> Option<Key> {
    let text = text(&with_suffix(path, ".pub")).ok()?;
    PublicKey::from_openssh(text.trim()).ok().map(Key::Public)
}

/// Whether a PEM key is encrypted in a way that russh cannot undo: it does AES-128-CBC around RSA keys.
fn is_old(text: &str) -> bool {
    text.contains("DEK-Info:") && !(text.contains("DEK-Info: AES-128-CBC") && text.contains("BEGIN RSA PRIVATE KEY"))
}

/// The public half of an encrypted key, if it can be known: OpenSSH's format shows it, for others the file beside it does. `None`: the key
/// is not an encrypted one.
fn sealed(path: &Path, content: &str) -> Option<Option<PublicKey>> {
    if let Ok(key) = PrivateKey::from_openssh(content) {
        return key.is_encrypted().then(|| Some(key.public_key().clone()));
    }
    let encrypted = content.contains("ENCRYPTED") || (content.starts_with("PuTTY-User-Key-File-") && !content.contains("Encryption: none"));
    encrypted.then(|| public(path).and_then(|key| key.public().cloned()))
}

#[derive(PartialEq, Eq)]
enum Kind {
    Usual,
    /// On a token: the file alone cannot sign.
    Token,
    /// DSA opens no door any more.
    Gone,
}

fn kind(key: &PublicKey) -> Kind {
    match key.algorithm() {
        Algorithm::SkEd25519 | Algorithm::SkEcdsaSha2NistP256 => Kind::Token,
        Algorithm::Dsa => Kind::Gone,
        _ => Kind::Usual,
    }
}

fn check_mode(path: &Path, shown: &str) -> Result<(), String> {
    let Ok(meta) = std::fs::metadata(path) else { return Ok(()) };
    let mode = meta.mode() & 0o777;
    if meta.uid() == rustix::process::getuid().as_raw() && mode & 0o077 != 0 {
        return Err(format!("{shown} can be read by others (mode {mode:04o})"));
    }
    Ok(())
}

/// The command that mends a key file.
fn hint(path: &Path, what: &str) -> String {
    let path = quote(&path.display().to_string());
    if what.contains("read by others") || what.contains("permission denied") {
        format!("chmod 600 {path}")
    } else if what.contains("old way") {
        format!("ssh-keygen -p -f {path}   (writes it anew in OpenSSH's format)")
    } else {
        format!("check ssh.identity in the inventory; `ssh-keygen -y -f {path}` shows whether the key can be used")
    }
}
