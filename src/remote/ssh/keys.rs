//! Private keys and certificates: read and decrypted once, kept in memory for the whole fleet.
//!
//! Owns key files and passphrase prompts.
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

use super::agent::AgentPool;
use super::auth_prompts::{AuthAnswerCache, SerialPrompt};
use crate::remote::RemoteError;
use crate::remote::hop::{Hop, KeyFile, KeyFileSource};
use crate::remote::ssh_settings::{SshSettings, UserPrompt};
use crate::ssh_config::SettingOrigin;
use crate::text::error_chain::plain_io_error;
use crate::text::shell_quote::quote;

/// Maximum size of a key file.
const MAX_KEY_FILE_BYTES: u64 = 1 << 20;
/// Maximum number of wrong passphrases.
const MAX_PASSPHRASE_TRIES: usize = 3;

/// What a key file holds.
#[derive(Debug, Clone)]
pub(super) enum LoadedKey {
    Decrypted(Arc<PrivateKey>),
    /// Encrypted; its public key may be known.
    Encrypted(Option<PublicKey>),
    /// A public key only: the agent may hold the private key.
    PublicOnly(PublicKey),
    /// The handle of a key on a FIDO token: only an agent can sign with it.
    SecurityKey(PublicKey),
}

impl LoadedKey {
    pub(super) fn public_key(&self) -> Option<&PublicKey> {
        match self {
            LoadedKey::Decrypted(key) => Some(key.public_key()),
            LoadedKey::Encrypted(key) => key.as_ref(),
            LoadedKey::PublicOnly(key) | LoadedKey::SecurityKey(key) => Some(key),
        }
    }
}

/// A user certificate with its display name.
#[derive(Debug, Clone)]
pub(super) struct UserCertificate {
    pub(super) certificate: Certificate,
    pub(super) name: String,
}

/// An unusable identity and the command that fixes it; may be empty.
#[derive(Debug, Clone)]
pub(super) struct UnusableIdentity {
    pub(super) what: String,
    pub(super) hint: String,
}

/// Identities from files, and the files that were skipped.
#[derive(Debug, Default)]
pub(super) struct LoadedIdentities {
    pub(super) keys: Vec<(PathBuf, LoadedKey)>,
    pub(super) certificates: Vec<UserCertificate>,
    pub(super) unusable: Vec<UnusableIdentity>,
}

type DecryptedKeyCell = Arc<OnceCell<Result<Arc<PrivateKey>, RemoteError>>>;

/// All identities of a fleet.
pub(super) struct Keyring {
    home: PathBuf,
    decrypted: Mutex<HashMap<PathBuf, DecryptedKeyCell>>,
    pub(super) agents: AgentPool,
    pub(super) answers: AuthAnswerCache,
    pub(super) prompt: SerialPrompt,
}

impl Keyring {
    pub(super) fn new(settings: SshSettings) -> Self {
        Keyring {
            home: settings.home,
            decrypted: Mutex::default(),
            agents: AgentPool::default(),
            answers: AuthAnswerCache::new(settings.env),
            prompt: SerialPrompt::new(settings.prompt),
        }
    }

    /// Shows a notice to the user.
    pub(super) fn show_notice(&self, text: &str) {
        self.prompt.show_notice(text);
    }

    /// A path with `~` for the home directory.
    pub(super) fn display_path(&self, path: &Path) -> String {
        match path.strip_prefix(&self.home) {
            Ok(rest) if !rest.as_os_str().is_empty() => format!("~/{}", rest.display()),
            Ok(_) | Err(_) => path.display().to_string(),
        }
    }

    /// Reads a hop's key files and certificates. A file named in the inventory must be usable; others are skipped with a reason.
    pub(super) fn load_identities(&self, hop: &Hop) -> Result<LoadedIdentities, RemoteError> {
        let mut files = LoadedIdentities::default();
        for file in &hop.key_files {
            match self.load_key(file) {
                Ok(Some(key)) => files.keys.push((file.path.clone(), key)),
                Ok(None) => {}
                Err(UnusableIdentity { what, hint }) if file.source == KeyFileSource::Inventory => {
                    return Err(RemoteError::invalid_config(hop.prefix_message(&format!("ssh.identity: {what}")), hint));
                }
                Err(UnusableIdentity { what, hint }) => {
                    let place = matches!(file.origin, SettingOrigin::Line(..)).then(|| format!("{}: ", file.origin)).unwrap_or_default();
                    files.unusable.push(UnusableIdentity { what: format!("{place}{what}"), hint });
                }
            }
        }
        let named = hop.certificate_files.iter().map(|path| (path.clone(), true));
        let beside = hop.key_files.iter().map(|k| (with_suffix(&k.path, "-cert.pub"), false));
        for (path, named) in named.chain(beside) {
            match self.load_certificate(&path) {
                Ok(found) => files.certificates.push(found),
                Err(what) if named => files.unusable.push(UnusableIdentity { what, hint: String::new() }),
                Err(why) => tracing::debug!(%why, "no certificate beside the key"),
            }
        }
        Ok(files)
    }

    fn load_certificate(&self, path: &Path) -> Result<UserCertificate, String> {
        let shown = self.display_path(path);
        let text = read_text(path).map_err(|e| format!("could not read {shown}: {}", plain_io_error(&e)))?;
        let certificate = Certificate::from_openssh(text.trim()).map_err(|e| format!("{shown} is not a certificate: {e}"))?;
        if certificate.cert_type() != CertType::User {
            return Err(format!("{shown} is a host certificate, not a user certificate"));
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let span = certificate.valid_after()..certificate.valid_before();
        let name = if span.contains(&now) { shown } else { format!("{shown} (not valid now)") };
        Ok(UserCertificate { certificate, name })
    }

    fn load_key(&self, file: &KeyFile) -> Result<Option<LoadedKey>, UnusableIdentity> {
        let path = &file.path;
        let opened = self.decrypted.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned();
        if let Some(Ok(key)) = opened.as_ref().and_then(|cell| cell.get()) {
            return Ok(Some(LoadedKey::Decrypted(key.clone())));
        }
        let (shown, quoted) = (self.display_path(path), quote(&path.display().to_string()));
        let unusable = |what: String| UnusableIdentity {
            what,
            hint: format!("check ssh.identity in the inventory; `ssh-keygen -y -f {quoted}` shows whether the key can be used"),
        };
        let with_mode = |what: String| UnusableIdentity { what, hint: format!("chmod 600 {quoted}") };
        let text = match read_text(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && file.source == KeyFileSource::Default => {
                return Ok(load_public_key(path));
            }
            Err(e) => {
                let what = format!("could not read {shown}: {}", plain_io_error(&e));
                let denied = e.kind() == std::io::ErrorKind::PermissionDenied;
                return load_public_key(path).map(Some).ok_or_else(|| if denied { with_mode(what) } else { unusable(what) });
            }
        };
        if let Ok(key) = PublicKey::from_openssh(text.trim()) {
            return Ok(Some(LoadedKey::PublicOnly(key)));
        }
        if let Some(mode) = mode_for_others(path) {
            return Err(with_mode(format!("{shown} can be read by others (mode {mode:04o})")));
        }
        if has_unsupported_encryption(&text) {
            return Err(UnusableIdentity {
                what: format!("{shown} is encrypted in an unsupported legacy format"),
                hint: format!("ssh-keygen -p -f {quoted}   (converts it to OpenSSH's format)"),
            });
        }
        match russh::keys::decode_secret_key(&text, None) {
            Ok(key) => Ok(Some(match key_kind(key.public_key()) {
                KeyKind::Software => LoadedKey::Decrypted(self.cache_key(path, Arc::new(key))),
                KeyKind::SecurityKey => LoadedKey::SecurityKey(key.public_key().clone()),
                KeyKind::Unsupported => LoadedKey::PublicOnly(key.public_key().clone()),
            })),
            Err(e) => match encrypted_public_key(path, &text) {
                Some(Some(key)) if key_kind(&key) == KeyKind::SecurityKey => Ok(Some(LoadedKey::SecurityKey(key))),
                Some(key) => Ok(Some(LoadedKey::Encrypted(key))),
                None => Err(unusable(format!("{shown} is not a usable private key: {e}"))),
            },
        }
    }

    /// Shares a decrypted key with the other hosts.
    fn cache_key(&self, path: &Path, key: Arc<PrivateKey>) -> Arc<PrivateKey> {
        let cell = Arc::new(OnceCell::new_with(Some(Ok(key.clone()))));
        self.decrypted.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), cell);
        key
    }

    /// Decrypts a key, prompting for its passphrase; hosts with the same key share one prompt.
    pub(super) async fn decrypt_key(&self, path: &Path, batch: bool) -> Result<Arc<PrivateKey>, RemoteError> {
        let shown = self.display_path(path);
        let add = format!("ssh-add {}", quote(&path.display().to_string()));
        if batch {
            let what = format!("{shown} is encrypted, and BatchMode forbids asking for its passphrase");
            return Err(RemoteError::invalid_config(what, add));
        }
        let cell = self.decrypted.lock().unwrap_or_else(PoisonError::into_inner).entry(path.to_owned()).or_default().clone();
        let path = path.to_owned();
        let ask = || async {
            let wrong = |what: String| RemoteError::invalid_config(what, add.clone());
            let text = read_text(&path).map_err(|e| wrong(format!("could not read {shown}: {}", plain_io_error(&e))))?;
            let name = shown.clone();
            let answer = self.prompt.run_exclusive(move |prompt| ask_passphrase(prompt, &name, &text)).await;
            match answer {
                Some(Ok(key)) => Ok(Arc::new(key)),
                Some(Err(what)) => Err(wrong(format!("{shown} {what}"))),
                None => Err(wrong(format!("{shown} is encrypted, and asking for its passphrase failed"))),
            }
        };
        cell.get_or_init(ask).await.clone()
    }
}

/// Prompts until a passphrase decrypts the key; the error is a fragment that follows the key's name.
fn ask_passphrase(prompt: &dyn UserPrompt, shown: &str, text: &str) -> Result<PrivateKey, String> {
    for attempt in 1..=MAX_PASSPHRASE_TRIES {
        let Some(passphrase) = prompt.ask_secret(&format!("passphrase for {shown}")) else {
            return Err("is encrypted, and no passphrase was given".to_owned());
        };
        match russh::keys::decode_secret_key(text, Some(&passphrase)) {
            Ok(key) => return Ok(key),
            Err(_) if attempt < MAX_PASSPHRASE_TRIES => prompt.show_notice(&format!("wrong passphrase for {shown}, try again")),
            Err(_) => {}
        }
    }
    Err(format!("is encrypted, and {MAX_PASSPHRASE_TRIES} wrong passphrases were given"))
}

fn read_text(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_KEY_FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The public key file next to a private key.
fn load_public_key(path: &Path) -> Option<LoadedKey> {
    let text = read_text(&with_suffix(path, ".pub")).ok()?;
    PublicKey::from_openssh(text.trim()).ok().map(LoadedKey::PublicOnly)
}

/// Whether a PEM key uses an encryption that russh does not support: it supports AES-128-CBC around RSA keys.
fn has_unsupported_encryption(text: &str) -> bool {
    text.contains("DEK-Info:") && !(text.contains("DEK-Info: AES-128-CBC") && text.contains("BEGIN RSA PRIVATE KEY"))
}

/// The public key of an encrypted key, if it can be read: OpenSSH's format contains it, for others the `.pub` file does. `None`: the key
/// is not an encrypted one.
fn encrypted_public_key(path: &Path, content: &str) -> Option<Option<PublicKey>> {
    if let Ok(key) = PrivateKey::from_openssh(content) {
        return key.is_encrypted().then(|| Some(key.public_key().clone()));
    }
    let encrypted = content.contains("ENCRYPTED") || (content.starts_with("PuTTY-User-Key-File-") && !content.contains("Encryption: none"));
    encrypted.then(|| load_public_key(path).and_then(|key| key.public_key().cloned()))
}

#[derive(PartialEq, Eq)]
enum KeyKind {
    Software,
    /// On a token: the file alone cannot sign.
    SecurityKey,
    /// OpenSSH no longer accepts DSA.
    Unsupported,
}

fn key_kind(key: &PublicKey) -> KeyKind {
    match key.algorithm() {
        Algorithm::SkEd25519 | Algorithm::SkEcdsaSha2NistP256 => KeyKind::SecurityKey,
        Algorithm::Dsa => KeyKind::Unsupported,
        _ => KeyKind::Software,
    }
}

/// The file's mode, if it is the user's own and others have access.
fn mode_for_others(path: &Path) -> Option<u32> {
    let meta = std::fs::metadata(path).ok()?;
    let mode = meta.mode() & 0o777;
    (meta.uid() == rustix::process::getuid().as_raw() && mode & 0o077 != 0).then_some(mode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn hint_depends_on_the_fault_and_not_on_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("read by others");
        let hint = |text: &str, mode: u32| {
            std::fs::write(&path, text).expect("written");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("set");
            let file = KeyFile { path: path.clone(), source: KeyFileSource::Config, origin: SettingOrigin::Inventory };
            Keyring::new(SshSettings::for_test()).load_key(&file).expect_err("no key").hint
        };
        assert!(hint("no key", 0o600).starts_with("check ssh.identity"));
        assert!(hint("no key", 0o640).starts_with("chmod 600 '"));
        assert!(hint("DEK-Info: DES-EDE3-CBC", 0o600).starts_with("ssh-keygen -p -f '"));
    }
}
