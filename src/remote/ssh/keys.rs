//! Private keys and passwords: read once, asked for once, kept in memory for the whole fleet.
//!
//! Uses `settings` and `hop`. Owns key files and the questions about them; knows no connections.
#![expect(clippy::disallowed_methods, reason = "key files are files of the laptop")]

use std::collections::HashMap;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use russh::keys::{Algorithm, Certificate, PrivateKey, PublicKey};
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

use crate::remote::RemoteError;
use crate::remote::hop::{Hop, KeyFile, Named};
use crate::remote::settings::Settings;
use crate::shell::quote;

/// No key file is larger.
const LARGEST: u64 = 1 << 20;
/// Requests to agents at once.
const AGENTS: usize = 8;
/// How often a passphrase may be wrong.
const TRIES: usize = 3;

/// What a key file holds.
#[derive(Debug, Clone)]
pub(super) enum Key {
    /// Ready to sign.
    Open(Arc<PrivateKey>),
    /// Encrypted; its public half is known.
    Sealed(PublicKey),
    /// A public key only: the agent may hold its other half.
    Public(PublicKey),
}

impl Key {
    /// The public half.
    pub(super) fn public(&self) -> &PublicKey {
        match self {
            Key::Open(key) => key.public_key(),
            Key::Sealed(key) | Key::Public(key) => key,
        }
    }
}

/// The keys that can be offered, and why others were passed over.
pub(super) type Read = (Vec<(PathBuf, Key)>, Vec<String>);

type Opened = Arc<OnceCell<Result<Arc<PrivateKey>, RemoteError>>>;
type Secret = Arc<OnceCell<Option<String>>>;

/// The keys and passwords of a fleet.
pub(super) struct Keyring {
    settings: Settings,
    opened: Mutex<HashMap<PathBuf, Opened>>,
    passwords: Mutex<HashMap<String, Secret>>,
    /// An agent answers one request at a time.
    agents: Semaphore,
}

impl Keyring {
    pub(super) fn new(settings: Settings) -> Self {
        Keyring { settings, opened: Mutex::default(), passwords: Mutex::default(), agents: Semaphore::new(AGENTS) }
    }

    /// Tells the person something.
    pub(super) fn notice(&self, text: &str) {
        self.settings.prompt.notice(text);
    }

    /// Waits for a turn with the agent.
    pub(super) async fn agent_turn(&self) -> Option<SemaphorePermit<'_>> {
        self.agents.acquire().await.ok()
    }

    /// Reads a hop's key files. A file that the inventory names must be readable; others are passed over, with the reason.
    pub(super) fn read(&self, hop: &Hop) -> Result<Read, RemoteError> {
        let (mut keys, mut passed) = (Vec::new(), Vec::new());
        for file in &hop.keys {
            match self.key(file) {
                Ok(Some(key)) => keys.push((file.path.clone(), key)),
                Ok(None) => {}
                Err(what) if file.named == Named::Inventory => {
                    let hint = hint(&file.path, &what);
                    return Err(RemoteError::Settings { what: format!("identity of {}: {what}", hop.name), hint });
                }
                Err(what) => passed.push(what),
            }
        }
        Ok((keys, passed))
    }

    fn key(&self, file: &KeyFile) -> Result<Option<Key>, String> {
        let path = &file.path;
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned();
        if let Some(Ok(key)) = opened.as_ref().and_then(|cell| cell.get()) {
            return Ok(Some(Key::Open(key.clone())));
        }
        let text = match text(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && file.named != Named::Inventory => return Ok(public(path)),
            Err(e) => match public(path) {
                Some(key) => return Ok(Some(key)),
                None => return Err(format!("could not read {}: {}", path.display(), super::transport::words(&e))),
            },
        };
        if let Ok(key) = PublicKey::from_openssh(text.trim()) {
            return Ok(Some(Key::Public(key)));
        }
        check_mode(path)?;
        if text.contains("DEK-Info:") && !text.contains("DEK-Info: AES-128-CBC") {
            return Err(format!("{} is encrypted in an old way that is not supported: ssh-keygen -p -f it to convert it", path.display()));
        }
        let wrong = |e: &dyn std::fmt::Display| format!("{} is not a private key that can be used: {e}", path.display());
        match russh::keys::decode_secret_key(&text, None) {
            Ok(key) if !signs(&key) => Ok(Some(Key::Public(key.public_key().clone()))),
            Ok(key) => Ok(Some(Key::Open(self.keep(path, Arc::new(key))))),
            Err(e) => match sealed(path, &text) {
                Some(key) => Ok(Some(Key::Sealed(key))),
                None if text.contains("ENCRYPTED") => {
                    Err(format!("{} is encrypted in an old format and {}.pub is missing", path.display(), path.display()))
                }
                None => Err(wrong(&e)),
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
    pub(super) async fn open(&self, path: &Path) -> Result<(), RemoteError> {
        let cell = self.opened.lock().unwrap_or_else(PoisonError::into_inner).entry(path.to_owned()).or_default().clone();
        cell.get_or_init(|| self.ask(path.to_owned())).await.clone().map(|_| ())
    }

    async fn ask(&self, path: PathBuf) -> Result<Arc<PrivateKey>, RemoteError> {
        let prompt = self.settings.prompt.clone();
        let asking = tokio::task::spawn_blocking(move || {
            let shown = path.display();
            let wrong = |what: String| RemoteError::Settings { what, hint: format!("ssh-add {}", quote(&path.display().to_string())) };
            let text = text(&path).map_err(|e| wrong(format!("could not read {shown}: {}", super::transport::words(&e))))?;
            for attempt in 1..=TRIES {
                let Some(passphrase) = prompt.secret(&format!("passphrase of {shown}")) else {
                    return Err(wrong(format!("{shown} is encrypted, and nobody was there to give its passphrase")));
                };
                match russh::keys::decode_secret_key(&text, Some(&passphrase)) {
                    Ok(key) => return Ok(Arc::new(key)),
                    Err(_) if attempt < TRIES => prompt.notice(&format!("wrong passphrase for {shown}, try again")),
                    Err(_) => {}
                }
            }
            Err(wrong(format!("wrong passphrase for {shown} ({TRIES} tries)")))
        });
        asking
            .await
            .unwrap_or_else(|e| Err(RemoteError::Settings { what: format!("asking for a passphrase failed: {e}"), hint: String::new() }))
    }

    /// The password for a hop: the variable that the inventory names; else what was asked before.
    pub(super) fn password(&self, hop: &Hop) -> Result<Answered, RemoteError> {
        if let Some(name) = &hop.password {
            return (self.settings.variables)(name).map(|p| Answered::Is(Some(p))).ok_or_else(|| RemoteError::Settings {
                what: format!("{} wants a password, and the variable {name} (ssh.password) is not set", hop.name),
                hint: format!("export {name}=…"),
            });
        }
        let known = self.passwords.lock().unwrap_or_else(PoisonError::into_inner).get(&owner(hop)).and_then(|cell| cell.get().cloned());
        Ok(known.map_or(Answered::NotYet, Answered::Is))
    }

    /// Asks for the password of a hop; all hosts of the inventory share one for each user, a jump host has its own.
    pub(super) async fn ask_password(&self, hop: &Hop) {
        let cell = self.passwords.lock().unwrap_or_else(PoisonError::into_inner).entry(owner(hop)).or_default().clone();
        let prompt = self.settings.prompt.clone();
        let what = format!("password of {}@{}", hop.user, hop.name);
        let ask = || async move { tokio::task::spawn_blocking(move || prompt.secret(&what)).await.unwrap_or_default() };
        cell.get_or_init(ask).await;
    }
}

/// Whether a password was asked for, and what was said; `Is(None)`: nobody was there.
pub(super) enum Answered {
    NotYet,
    Is(Option<String>),
}

fn owner(hop: &Hop) -> String {
    if hop.jump { format!("{}@{}", hop.user, hop.name) } else { hop.user.clone() }
}

fn text(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(LARGEST).read_to_string(&mut text)?;
    Ok(text)
}

/// The public key that lies beside a private one.
fn public(path: &Path) -> Option<Key> {
    beside(path, ".pub").and_then(|text| PublicKey::from_openssh(text.trim()).ok()).map(Key::Public)
}

/// The certificate that lies beside a private key, or is named by ssh_config.
pub(super) fn certificates(hop: &Hop) -> Vec<Certificate> {
    let beside = hop.keys.iter().filter_map(|k| beside(&k.path, "-cert.pub"));
    let named = hop.certificates.iter().filter_map(|path| text(path).ok());
    named.chain(beside).filter_map(|text| Certificate::from_openssh(text.trim()).ok()).collect()
}

fn beside(path: &Path, suffix: &str) -> Option<String> {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    text(Path::new(&name)).ok()
}

/// The public half of an encrypted key: OpenSSH's format shows it, for others the file beside it does.
fn sealed(path: &Path, content: &str) -> Option<PublicKey> {
    if let Ok(key) = PrivateKey::from_openssh(content) {
        return key.is_encrypted().then(|| key.public_key().clone());
    }
    let encrypted = content.contains("ENCRYPTED");
    public(path).filter(|_| encrypted).map(|key| key.public().clone())
}

/// Whether the file alone can sign: a key on a token cannot (the agent does), and a DSA key opens no door any more.
fn signs(key: &PrivateKey) -> bool {
    !matches!(key.algorithm(), Algorithm::SkEd25519 | Algorithm::SkEcdsaSha2NistP256 | Algorithm::Dsa)
}

fn check_mode(path: &Path) -> Result<(), String> {
    let Ok(meta) = std::fs::metadata(path) else { return Ok(()) };
    let mode = meta.mode() & 0o777;
    if meta.uid() == rustix::process::getuid().as_raw() && mode & 0o077 != 0 {
        return Err(format!("{} can be read by others (mode {mode:04o})", path.display()));
    }
    Ok(())
}

fn hint(path: &Path, what: &str) -> String {
    let path = quote(&path.display().to_string());
    if what.contains("read by others") {
        format!("chmod 600 {path}")
    } else {
        format!("check ssh.identity in the inventory; `ssh-keygen -y -f {path}` shows whether the key can be used")
    }
}
