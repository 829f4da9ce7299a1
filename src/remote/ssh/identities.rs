//! What is offered to a server, in which order, and who signs it.
//!
//! Uses `keys` and `agent`. Only computes, but for [`Pen`], which signs.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use russh::Signer;
use russh::keys::agent::AgentIdentity;
use russh::keys::signature::Signer as _;
use russh::keys::ssh_encoding::Encode as _;
use russh::keys::ssh_key::private::KeypairData;
use russh::keys::{Certificate, HashAlg, PrivateKey, PublicKey};

use super::agent::Agent;
use super::keys::{Files, Key, Keyring, Passed};
use super::pause::Clock;
use crate::remote::RemoteError;
use crate::remote::hop::{Hop, Named};
use crate::shell::quote;

/// Who can sign.
#[derive(Debug, Clone)]
pub(super) enum Source {
    Agent(Box<AgentIdentity>),
    File(Arc<PrivateKey>),
    /// A file that is still encrypted.
    Sealed(PathBuf),
}

/// Something to offer.
#[derive(Debug, Clone)]
pub(super) struct Offer {
    /// `None`: it is known once the file is open.
    pub(super) key: Option<PublicKey>,
    /// Offered instead of the bare key.
    pub(super) certificate: Option<Certificate>,
    pub(super) source: Source,
    /// Its name for people; `None`: one of the agent's many.
    pub(super) name: Option<String>,
}

/// The order in which keys are offered, which is OpenSSH's but for one thing: certificates; keys that a person named, first those that the
/// agent holds; the agent's other keys, unless only named ones may be used; OpenSSH's usual files. (OpenSSH puts the agent's others before
/// named files; with at most five tries that could keep the named key from being tried at all.)
pub(super) fn order(hop: &Hop, keyring: &Keyring, files: &Files, identities: Vec<AgentIdentity>) -> (VecDeque<Offer>, Vec<Passed>) {
    let mut agent: Vec<Option<AgentIdentity>> = identities.into_iter().map(Some).collect();
    let mut passed = Vec::new();
    let mut offers: Vec<Offer> = Vec::new();
    for vouched in &files.certificates {
        let same = |key: Option<&PublicKey>| key.is_some_and(|k| k.key_data() == vouched.certificate.public_key());
        let held = take(&mut agent, |i| matches!(i, AgentIdentity::Certificate { certificate, .. } if *certificate == vouched.certificate));
        let held = held.into_iter().next().or_else(|| {
            let plain = |i: &&AgentIdentity| matches!(i, AgentIdentity::PublicKey { key, .. } if same(Some(key)));
            agent.iter().flatten().find(plain).cloned()
        });
        let file = files.keys.iter().find(|(_, key)| same(key.public())).and_then(|(path, key)| source(path, key));
        match held.map(|i| Source::Agent(Box::new(i))).or(file) {
            Some(source) => {
                let key = PublicKey::from(vouched.certificate.public_key().clone());
                let (certificate, name) = (Some(vouched.certificate.clone()), Some(vouched.name.clone()));
                offers.push(Offer { key: Some(key), certificate, source, name });
            }
            None => passed
                .push(Passed { what: format!("{}: its key is neither in a file nor in the agent", vouched.name), hint: String::new() }),
        }
    }
    let named = |path: &PathBuf| hop.keys.iter().any(|k| &k.path == path && k.named != Named::Standard);
    let (first, last): (Vec<_>, Vec<_>) = files.keys.iter().partition(|(path, _)| named(path));
    let mut of = |list: Vec<&(PathBuf, Key)>| {
        let (mut held, mut alone) = (Vec::new(), Vec::new());
        for (path, key) in list {
            let name = Some(keyring.shown(path));
            let found = take(&mut agent, |i| key.public().is_some_and(|k| k.key_data() == i.public_key().key_data()));
            if found.is_empty() {
                if let (Key::Token(_), shown) = (key, keyring.shown(path)) {
                    let hint = format!("ssh-add {}", quote(&path.display().to_string()));
                    passed.push(Passed {
                        what: format!("{shown} is on a FIDO token, with which only an agent can sign, and the agent does not hold it"),
                        hint,
                    });
                }
                alone.extend(source(path, key).map(|source| Offer { key: key.public().cloned(), certificate: None, source, name }));
            } else {
                held.extend(found.into_iter().map(|identity| from_agent(identity, name.clone())));
            }
        }
        (held, alone)
    };
    let (held, alone) = of(first);
    offers.extend(held);
    offers.extend(alone);
    let (held, alone) = of(last);
    offers.extend(held);
    if !hop.only_keys {
        offers.extend(agent.into_iter().flatten().map(|identity| from_agent(identity, None)));
    }
    offers.extend(alone);
    (offers.into(), passed)
}

fn take(agent: &mut [Option<AgentIdentity>], wanted: impl Fn(&AgentIdentity) -> bool) -> Vec<AgentIdentity> {
    agent.iter_mut().filter(|i| i.as_ref().is_some_and(&wanted)).filter_map(Option::take).collect()
}

fn source(path: &Path, key: &Key) -> Option<Source> {
    match key {
        Key::Open(key) => Some(Source::File(key.clone())),
        Key::Sealed(_) => Some(Source::Sealed(path.to_owned())),
        Key::Public(_) | Key::Token(_) => None,
    }
}

fn from_agent(identity: AgentIdentity, name: Option<String>) -> Offer {
    let certificate = match &identity {
        AgentIdentity::Certificate { certificate, .. } => Some(certificate.clone()),
        AgentIdentity::PublicKey { .. } => None,
    };
    Offer { key: Some(identity.public_key().into_owned()), certificate, source: Source::Agent(Box::new(identity)), name }
}

/// Why an offer that the server would take was not signed.
#[derive(Debug)]
pub(super) enum Unsigned {
    /// The connection is gone.
    Closed,
    /// Others may be tried; this is what stood in the way if none opens.
    Withheld(RemoteError),
}

impl From<russh::SendError> for Unsigned {
    fn from(_: russh::SendError) -> Self {
        Unsigned::Closed
    }
}

/// Signs with what an offer names. russh signs with file keys by itself, but offers an RSA certificate under its SHA-1 name then, and cannot
/// open a key when the server has said that it would take it.
pub(super) struct Pen<'a> {
    pub(super) source: Source,
    pub(super) agent: Option<&'a mut Agent>,
    pub(super) keyring: &'a Keyring,
    pub(super) hop: &'a Hop,
    pub(super) clock: &'a Clock,
}

impl Signer for Pen<'_> {
    type Error = Unsigned;

    async fn auth_sign(&mut self, _: &AgentIdentity, hash: Option<HashAlg>, data: Vec<u8>) -> Result<Vec<u8>, Unsigned> {
        let _pause = match &self.source {
            Source::Sealed(_) => self.clock.pause_for_a_person(),
            Source::File(_) | Source::Agent(_) => self.clock.pause(),
        };
        match &self.source {
            Source::File(key) => sign(key, hash, data),
            Source::Sealed(path) => {
                let key = self.keyring.open(path, self.hop.login.batch).await.map_err(Unsigned::Withheld)?;
                sign(&key, hash, data)
            }
            Source::Agent(identity) => {
                let place = self.hop.agent.as_deref().map(|p| self.keyring.shown(p)).unwrap_or_default();
                let failed = |why: String| {
                    let hint = "SSH_AUTH_SOCK or IdentityAgent names the agent; `ssh-add -l` shows whether it answers".to_owned();
                    Unsigned::Withheld(RemoteError::Refused { what: self.hop.says(&format!("the agent at {place} {why}")), hint })
                };
                let Some(agent) = self.agent.as_deref_mut() else { return Err(failed("is gone".to_owned())) };
                let slow =
                    || self.keyring.notice(&format!("{}: waiting for the ssh-agent; confirm there, or touch the key", self.hop.name));
                self.keyring.agents.sign(agent, identity, hash, data, slow).await.map_err(failed)
            }
        }
    }
}

/// The data with its signature behind it, as RFC 4252 (7) wants it.
fn sign(key: &PrivateKey, hash: Option<HashAlg>, mut data: Vec<u8>) -> Result<Vec<u8>, Unsigned> {
    let failed = |why: &dyn std::fmt::Display| {
        Unsigned::Withheld(RemoteError::Refused {
            what: format!("signing with a {} key failed: {why}", key.algorithm()),
            hint: String::new(),
        })
    };
    let signature = match key.key_data() {
        KeypairData::Rsa(pair) => (pair, hash).try_sign(&data),
        pair => pair.try_sign(&data),
    };
    let signature = signature.map_err(|e| failed(&e))?;
    signature.encode_prefixed(&mut data).map_err(|e| failed(&e))?;
    Ok(data)
}
