//! Which keys are offered to a server, in which order, and what signs with them.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use russh::Signer;
use russh::keys::agent::AgentIdentity;
use russh::keys::signature::Signer as _;
use russh::keys::ssh_encoding::Encode as _;
use russh::keys::ssh_key::private::KeypairData;
use russh::keys::{Certificate, HashAlg, PrivateKey, PublicKey};

use super::agent::{AgentConnection, SignRequest};
use super::deadline::PausableDeadline;
use super::keys::{Keyring, LoadedIdentities, LoadedKey, UnusableIdentity};
use crate::remote::RemoteError;
use crate::remote::hop::{Hop, KeyFileSource};
use crate::text::shell_quote::quote;

/// What to do about an agent that does not answer.
pub(super) const AGENT_HINT: &str = "SSH_AUTH_SOCK or IdentityAgent names the agent; `ssh-add -l` shows whether it answers";

#[derive(Debug, Clone)]
pub(super) enum KeySource {
    Agent(Box<AgentIdentity>),
    File(Arc<PrivateKey>),
    /// An encrypted key file.
    EncryptedFile(PathBuf),
}

#[derive(Debug, Clone)]
pub(super) struct KeyOffer {
    /// `None` until the file is decrypted.
    pub(super) key: Option<PublicKey>,
    /// Offered instead of the bare key.
    pub(super) certificate: Option<Certificate>,
    pub(super) source: KeySource,
    /// Display name; `None` for one of the agent's many.
    pub(super) name: Option<String>,
}

/// The order of offered keys is OpenSSH's with one exception: certificates; keys named in the settings, first those held by
/// the agent; the agent's other keys, unless only named ones are allowed; OpenSSH's default files. (OpenSSH puts the agent's others before
/// named files; with at most five attempts that could keep the named key from being tried at all.)
pub(super) fn order_offers(
    hop: &Hop,
    keyring: &Keyring,
    files: &LoadedIdentities,
    identities: Vec<AgentIdentity>,
) -> (VecDeque<KeyOffer>, Vec<UnusableIdentity>) {
    let mut agent: Vec<Option<AgentIdentity>> = identities.into_iter().map(Some).collect();
    let mut unusable = Vec::new();
    let mut offers = certificate_offers(files, &mut agent, &mut unusable);
    let named = |path: &PathBuf| hop.key_files.iter().any(|k| &k.path == path && k.source != KeyFileSource::Default);
    let (first, last): (Vec<_>, Vec<_>) = files.keys.iter().partition(|(path, _)| named(path));
    let (held, alone) = key_offers(first, keyring, &mut agent, &mut unusable);
    offers.extend(held);
    offers.extend(alone);
    let (held, alone) = key_offers(last, keyring, &mut agent, &mut unusable);
    offers.extend(held);
    if !hop.identities_only {
        offers.extend(agent.into_iter().flatten().map(|identity| agent_offer(identity, None)));
    }
    offers.extend(alone);
    (offers.into(), unusable)
}

/// Certificates from files, each with the key that can sign for it.
fn certificate_offers(
    files: &LoadedIdentities,
    agent: &mut [Option<AgentIdentity>],
    unusable: &mut Vec<UnusableIdentity>,
) -> Vec<KeyOffer> {
    let mut offers = Vec::new();
    for certified in &files.certificates {
        let same = |key: Option<&PublicKey>| key.is_some_and(|k| k.key_data() == certified.certificate.public_key());
        let held =
            take_matching(agent, |i| matches!(i, AgentIdentity::Certificate { certificate, .. } if *certificate == certified.certificate));
        let held = held.into_iter().next().or_else(|| {
            let plain = |i: &&AgentIdentity| matches!(i, AgentIdentity::PublicKey { key, .. } if same(Some(key)));
            agent.iter().flatten().find(plain).cloned()
        });
        let file = files.keys.iter().find(|(_, key)| same(key.public_key())).and_then(|(path, key)| file_source(path, key));
        match held.map(|i| KeySource::Agent(Box::new(i))).or(file) {
            Some(source) => {
                let key = PublicKey::from(certified.certificate.public_key().clone());
                let (certificate, name) = (Some(certified.certificate.clone()), Some(certified.name.clone()));
                offers.push(KeyOffer { key: Some(key), certificate, source, name });
            }
            None => unusable.push(UnusableIdentity {
                what: format!("{}: its key is neither in a file nor in the agent", certified.name),
                hint: String::new(),
            }),
        }
    }
    offers
}

/// Keys from files: those that the agent holds, and those that only the file has.
fn key_offers(
    list: Vec<&(PathBuf, LoadedKey)>,
    keyring: &Keyring,
    agent: &mut [Option<AgentIdentity>],
    unusable: &mut Vec<UnusableIdentity>,
) -> (Vec<KeyOffer>, Vec<KeyOffer>) {
    let (mut held, mut alone) = (Vec::new(), Vec::new());
    for (path, key) in list {
        let shown = keyring.display_path(path);
        let found = take_matching(agent, |i| key.public_key().is_some_and(|k| k.key_data() == i.public_key().key_data()));
        if !found.is_empty() {
            held.extend(found.into_iter().map(|identity| agent_offer(identity, Some(shown.clone()))));
            continue;
        }
        if let LoadedKey::SecurityKey(_) = key {
            unusable.push(UnusableIdentity {
                what: format!("{shown} is on a FIDO token: only an agent can sign with it, and the agent does not hold it"),
                hint: format!("ssh-add {}", quote(&path.display().to_string())),
            });
        }
        let key_of_file = |source| KeyOffer { key: key.public_key().cloned(), certificate: None, source, name: Some(shown) };
        alone.extend(file_source(path, key).map(key_of_file));
    }
    (held, alone)
}

fn take_matching(agent: &mut [Option<AgentIdentity>], wanted: impl Fn(&AgentIdentity) -> bool) -> Vec<AgentIdentity> {
    agent.iter_mut().filter(|i| i.as_ref().is_some_and(&wanted)).filter_map(Option::take).collect()
}

fn file_source(path: &Path, key: &LoadedKey) -> Option<KeySource> {
    match key {
        LoadedKey::Decrypted(key) => Some(KeySource::File(key.clone())),
        LoadedKey::Encrypted(_) => Some(KeySource::EncryptedFile(path.to_owned())),
        LoadedKey::PublicOnly(_) | LoadedKey::SecurityKey(_) => None,
    }
}

fn agent_offer(identity: AgentIdentity, name: Option<String>) -> KeyOffer {
    let certificate = match &identity {
        AgentIdentity::Certificate { certificate, .. } => Some(certificate.clone()),
        AgentIdentity::PublicKey { .. } => None,
    };
    KeyOffer { key: Some(identity.public_key().into_owned()), certificate, source: KeySource::Agent(Box::new(identity)), name }
}

/// Why an accepted offer was not signed.
#[derive(Debug)]
pub(super) enum SignError {
    /// The connection is gone.
    ConnectionClosed,
    /// Other keys may be tried; this is reported if none works.
    KeyUnavailable(RemoteError),
}

impl From<russh::SendError> for SignError {
    fn from(_: russh::SendError) -> Self {
        SignError::ConnectionClosed
    }
}

/// Signs for an offer. russh could sign with file keys itself, but then it offers an RSA certificate under its SHA-1 name, and it cannot
/// decrypt a key only after the server accepted it.
pub(super) struct KeySigner<'a> {
    pub(super) source: KeySource,
    pub(super) agent: Option<&'a mut AgentConnection>,
    pub(super) keyring: &'a Keyring,
    pub(super) hop: &'a Hop,
    pub(super) deadline: &'a PausableDeadline,
}

impl Signer for KeySigner<'_> {
    type Error = SignError;

    async fn auth_sign(&mut self, _: &AgentIdentity, hash: Option<HashAlg>, data: Vec<u8>) -> Result<Vec<u8>, SignError> {
        let _pause = match &self.source {
            KeySource::EncryptedFile(_) => self.deadline.pause_for_user(),
            KeySource::File(_) | KeySource::Agent(_) => self.deadline.pause(),
        };
        match &self.source {
            KeySource::File(key) => sign_with_key(key, hash, data),
            KeySource::EncryptedFile(path) => {
                let key = self.keyring.decrypt_key(path, self.hop.auth.batch_mode).await.map_err(SignError::KeyUnavailable)?;
                sign_with_key(&key, hash, data)
            }
            KeySource::Agent(identity) => {
                let place = self.hop.agent_socket.as_deref().map(|p| self.keyring.display_path(p)).unwrap_or_default();
                let failed = |why: String| {
                    let what = self.hop.prefix_message(&format!("the agent at {place} {why}"));
                    SignError::KeyUnavailable(RemoteError::refused(what, AGENT_HINT))
                };
                let Some(agent) = self.agent.as_deref_mut() else { return Err(failed("is gone".to_owned())) };
                let slow =
                    || self.keyring.show_notice(&format!("{}: waiting for the ssh-agent; confirm there, or touch the key", self.hop.name));
                self.keyring.agents.sign(agent, SignRequest { identity, hash, data }, slow).await.map_err(failed)
            }
        }
    }
}

/// The data followed by its signature, as in RFC 4252 (7).
fn sign_with_key(key: &PrivateKey, hash: Option<HashAlg>, mut data: Vec<u8>) -> Result<Vec<u8>, SignError> {
    let failed = |why: &dyn std::fmt::Display| {
        SignError::KeyUnavailable(RemoteError::refused(format!("signing with a {} key failed: {why}", key.algorithm()), ""))
    };
    let signature = match key.key_data() {
        KeypairData::Rsa(pair) => (pair, hash).try_sign(&data),
        pair => pair.try_sign(&data),
    };
    let signature = signature.map_err(|e| failed(&e))?;
    signature.encode_prefixed(&mut data).map_err(|e| failed(&e))?;
    Ok(data)
}
