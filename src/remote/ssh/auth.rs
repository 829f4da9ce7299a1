//! Proves who we are: certificates and keys, the agent's and the files', then a password; at most five keys, and never again after a no.
//!
//! Uses `keys`. Knows nothing of sockets. Where a person must be asked, the attempt ends with [`Denied::Locked`] or
//! [`Denied::WantsPassword`], so that the question is put while no connection waits.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use russh::client::{AuthResult, Handle, KeyboardInteractiveAuthResponse};
use russh::keys::agent::AgentIdentity;
use russh::keys::agent::client::AgentClient;
use russh::keys::{Certificate, HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKey};
use russh::{AgentAuthError, MethodKind, MethodSet, Signer};
use tokio::net::UnixStream;
use tokio::time::Instant;

use super::client::{Client, Left};
use super::keys::{Answered, Key, Keyring, certificates};
use crate::remote::RemoteError;
use crate::remote::hop::{Hop, Named};

/// sshd ends a connection at the sixth by default.
const TRIES: usize = 5;
/// How long the agent may take to list its keys.
const AGENT_LIST: Duration = Duration::from_secs(2);
/// How long the agent may take to sign: a person may have to touch a token.
const AGENT_SIGN: Duration = Duration::from_secs(60);
/// After this the person is told that the agent is waited for.
const AGENT_QUIET: Duration = Duration::from_secs(3);
/// Rounds of questions that a server may ask.
const ROUNDS: usize = 4;

/// Why we are not in.
#[derive(Debug)]
pub(super) enum Denied {
    /// The server wants this key, which is encrypted.
    Locked(PathBuf),
    /// The server wants a password that was not asked for yet.
    WantsPassword,
    /// It said no, or the settings are wrong.
    Final(RemoteError),
    /// The connection ended or took too long.
    Lost(String),
}

impl From<russh::SendError> for Denied {
    fn from(_: russh::SendError) -> Self {
        Denied::Lost("closed by the other end".to_owned())
    }
}

/// Something to offer.
enum Offer {
    Agent(AgentIdentity),
    File(Arc<PrivateKey>),
    Certificate(Arc<PrivateKey>, Certificate),
    Sealed(PublicKey, PathBuf),
}

/// An offer with its name for people.
struct Candidate {
    offer: Offer,
    name: String,
}

/// One attempt to get in.
pub(super) struct Attempt<'a> {
    pub(super) handle: &'a mut Handle<Client>,
    pub(super) hop: &'a Hop,
    pub(super) keyring: &'a Keyring,
    pub(super) left: &'a Left,
    pub(super) deadline: Instant,
    /// What was tried, for the message.
    pub(super) tried: Vec<String>,
}

/// A signer for a key that we cannot use yet: it only tells that the server would take it.
struct Sealed(PathBuf);

impl Signer for Sealed {
    type Error = Denied;

    async fn auth_sign(&mut self, _: &AgentIdentity, _: Option<HashAlg>, _: Vec<u8>) -> Result<Vec<u8>, Denied> {
        Err(Denied::Locked(self.0.clone()))
    }
}

/// The agent, asked by few at a time, with a word to the person where it takes long.
struct Asking<'a> {
    agent: &'a mut AgentClient<UnixStream>,
    keyring: &'a Keyring,
    host: &'a str,
}

impl Signer for Asking<'_> {
    type Error = AgentAuthError;

    async fn auth_sign(&mut self, key: &AgentIdentity, hash: Option<HashAlg>, data: Vec<u8>) -> Result<Vec<u8>, AgentAuthError> {
        let _turn = self.keyring.agent_turn().await;
        let signing = self.agent.sign_request(key, hash, data);
        tokio::pin!(signing);
        if let Ok(signed) = tokio::time::timeout(AGENT_QUIET, &mut signing).await {
            return Ok(signed?);
        }
        self.keyring.notice(&format!("{}: waiting for the ssh-agent; confirm there, or touch the key", self.host));
        Ok(signing.await?)
    }
}

/// What the server will still take; `None`: we are in.
type Still = Option<MethodSet>;

impl Attempt<'_> {
    /// Tries what there is, in order.
    pub(super) async fn run(mut self) -> Result<(), Denied> {
        let (files, passed) = self.keyring.read(self.hop).map_err(Denied::Final)?;
        let (mut agent, identities) = if self.hop.no_keys { (None, Vec::new()) } else { self.agent().await };
        let candidates = if self.hop.no_keys { Vec::new() } else { order(self.hop, &files, identities) };
        let mut methods = None;
        for candidate in candidates.into_iter().take(TRIES) {
            self.tried.push(candidate.name.clone());
            let Some(still) = self.offer(candidate, agent.as_mut()).await? else { return Ok(()) };
            let go_on = still.contains(&MethodKind::PublicKey);
            methods = Some(still);
            if !go_on {
                break;
            }
        }
        let methods = match methods {
            Some(methods) => methods,
            None => match self.none().await? {
                Some(methods) => methods,
                None => return Ok(()),
            },
        };
        self.tried.extend(passed);
        self.password(methods).await
    }

    async fn none(&mut self) -> Result<Still, Denied> {
        let user = self.hop.user.clone();
        let result = tokio::time::timeout_at(self.deadline, self.handle.authenticate_none(user)).await;
        self.result(result.map_err(|_| late())?.map_err(|e| lost(&e))?)
    }

    async fn offer(&mut self, candidate: Candidate, agent: Option<&mut AgentClient<UnixStream>>) -> Result<Still, Denied> {
        let user = self.hop.user.clone();
        let deadline = self.deadline;
        let result = match candidate.offer {
            Offer::File(key) => {
                let hash = self.hash(key.public_key()).await?;
                let call = self.handle.authenticate_publickey(user, PrivateKeyWithHashAlg::new(key, hash));
                tokio::time::timeout_at(deadline, call).await.map_err(|_| late())?.map_err(|e| lost(&e))?
            }
            Offer::Certificate(key, certificate) => {
                let call = self.handle.authenticate_openssh_cert(user, key, certificate);
                tokio::time::timeout_at(deadline, call).await.map_err(|_| late())?.map_err(|e| lost(&e))?
            }
            Offer::Sealed(key, path) => {
                let hash = self.hash(&key).await?;
                let mut signer = Sealed(path);
                let call = self.handle.authenticate_publickey_with(user, key, hash, &mut signer);
                tokio::time::timeout_at(deadline, call).await.map_err(|_| late())??
            }
            Offer::Agent(identity) => {
                let Some(agent) = agent else { return Err(Denied::Lost("the agent is gone".to_owned())) };
                return self.with_agent(identity, agent).await;
            }
        };
        self.result(result)
    }

    async fn with_agent(&mut self, identity: AgentIdentity, agent: &mut AgentClient<UnixStream>) -> Result<Still, Denied> {
        let user = self.hop.user.clone();
        let hash = self.hash(&identity.public_key()).await?;
        let deadline = self.deadline.max(Instant::now() + AGENT_SIGN);
        let mut signer = Asking { agent, keyring: self.keyring, host: &self.hop.name };
        let result = match identity {
            AgentIdentity::PublicKey { key, .. } => {
                tokio::time::timeout_at(deadline, self.handle.authenticate_publickey_with(user, key, hash, &mut signer)).await
            }
            AgentIdentity::Certificate { certificate, .. } => {
                tokio::time::timeout_at(deadline, self.handle.authenticate_certificate_with(user, certificate, hash, &mut signer)).await
            }
        };
        self.deadline = self.deadline.max(Instant::now() + Duration::from_secs(2));
        match result.map_err(|_| late())? {
            Ok(result) => self.result(result),
            // The agent declined: the server has not counted this one, and takes another.
            Err(error) => {
                self.tried.push(format!("the agent did not sign: {error}"));
                Ok(Some(MethodSet::client_supported()))
            }
        }
    }

    async fn hash(&mut self, key: &PublicKey) -> Result<Option<HashAlg>, Denied> {
        if !key.algorithm().is_rsa() {
            return Ok(None);
        }
        let asked = tokio::time::timeout_at(self.deadline, self.handle.best_supported_rsa_hash()).await.map_err(|_| late())?;
        Ok(asked.map_err(|e| lost(&e))?.flatten().or(Some(HashAlg::Sha512)))
    }

    /// Turns an answer into what is still open. A connection that ended looks like a refusal without methods.
    fn result(&self, result: AuthResult) -> Result<Still, Denied> {
        match result {
            AuthResult::Success => Ok(None),
            AuthResult::Failure { remaining_methods, .. } if remaining_methods.is_empty() => Err(self.ended()),
            AuthResult::Failure { remaining_methods, .. } => Ok(Some(remaining_methods)),
        }
    }

    fn ended(&self) -> Denied {
        match self.left.why.get() {
            Some(why) if why.starts_with("the host said") => Denied::Final(RemoteError::Refused {
                what: format!("{} ended the login of {}: {why}; tried {}", self.hop.name, self.hop.user, self.listed()),
                hint: "name the right key with ssh.identity, and set IdentitiesOnly if the agent holds many".to_owned(),
            }),
            Some(why) => Denied::Lost(format!("{why}, during authentication")),
            None => Denied::Lost("closed by the other end during authentication".to_owned()),
        }
    }

    async fn password(&mut self, methods: MethodSet) -> Result<(), Denied> {
        let password = !self.hop.no_password && methods.contains(&MethodKind::Password);
        let asks = !self.hop.no_questions && methods.contains(&MethodKind::KeyboardInteractive);
        if !(password || asks) {
            return Err(self.refused(&methods));
        }
        let secret = match self.keyring.password(self.hop).map_err(Denied::Final)? {
            Answered::NotYet => return Err(Denied::WantsPassword),
            Answered::Is(None) => return Err(self.refused(&methods)),
            Answered::Is(Some(secret)) => secret,
        };
        self.tried.push("a password".to_owned());
        let still = if password {
            let call = self.handle.authenticate_password(self.hop.user.clone(), secret);
            let result = tokio::time::timeout_at(self.deadline, call).await.map_err(|_| late())?.map_err(|e| lost(&e))?;
            self.result(result)?
        } else {
            tokio::time::timeout_at(self.deadline, self.answer(secret)).await.map_err(|_| late())??
        };
        match still {
            None => Ok(()),
            Some(methods) => Err(self.refused(&methods)),
        }
    }

    /// Answers keyboard-interactive questions, if there is exactly one and it is for a secret.
    async fn answer(&mut self, secret: String) -> Result<Still, Denied> {
        let user = self.hop.user.clone();
        let mut reply = self.handle.authenticate_keyboard_interactive_start(user, None).await.map_err(|e| lost(&e))?;
        for _ in 0..ROUNDS {
            let answers = match reply {
                KeyboardInteractiveAuthResponse::Success => return Ok(None),
                KeyboardInteractiveAuthResponse::Failure { remaining_methods, .. } => return Ok(Some(remaining_methods)),
                KeyboardInteractiveAuthResponse::InfoRequest { prompts, .. } => match prompts.as_slice() {
                    [] => Vec::new(),
                    [one] if !one.echo => vec![secret.clone()],
                    _ => break,
                },
            };
            reply = self.handle.authenticate_keyboard_interactive_respond(answers).await.map_err(|e| lost(&e))?;
        }
        Err(Denied::Final(RemoteError::Refused {
            what: format!("{} asks questions that cannot be answered here (two-factor login)", self.hop.name),
            hint: "use a key for this host".to_owned(),
        }))
    }

    fn listed(&self) -> String {
        if self.tried.is_empty() { "nothing: there is no key and no agent".to_owned() } else { self.tried.join(", ") }
    }

    fn refused(&self, methods: &MethodSet) -> Denied {
        let Hop { name, user, host, port, .. } = self.hop;
        let takes: Vec<&str> = methods.iter().map(<&str>::from).collect();
        Denied::Final(RemoteError::Refused {
            what: format!("{name} refused {user}@{host}: tried {}; it takes {}", self.listed(), takes.join(", ")),
            hint: format!("ssh-copy-id -p {port} {user}@{host}, or name another key with ssh.identity"),
        })
    }

    /// Connects to the agent and lists its keys. An agent that does not answer is passed over, with the reason.
    async fn agent(&mut self) -> (Option<AgentClient<UnixStream>>, Vec<AgentIdentity>) {
        let Some(path) = self.hop.agent.clone() else { return (None, Vec::new()) };
        let _turn = self.keyring.agent_turn().await;
        let listing = async {
            let mut agent = AgentClient::connect_uds(&path).await.map_err(|e| e.to_string())?;
            if let Some(binding) = self.handle.agent_session_binding()
                && let Err(error) = agent.bind_session(binding, false).await
            {
                tracing::debug!(%error, "the agent does not bind sessions");
            }
            let identities = agent.request_identities().await.map_err(|e| e.to_string())?;
            Ok::<_, String>((agent, identities))
        };
        match tokio::time::timeout(AGENT_LIST, listing).await {
            Ok(Ok((agent, identities))) => (Some(agent), identities),
            Ok(Err(why)) => {
                self.tried.push(format!("the agent at {} ({why})", path.display()));
                (None, Vec::new())
            }
            Err(_) => {
                self.tried.push(format!("the agent at {} (no answer)", path.display()));
                (None, Vec::new())
            }
        }
    }
}

fn late() -> Denied {
    Denied::Lost("no answer in time during authentication".to_owned())
}

fn lost(error: &russh::Error) -> Denied {
    Denied::Lost(format!("{}, during authentication", super::client::words(error)))
}

/// The order in which keys are offered: certificates; keys that a person named, signed by the agent where it holds them; the agent's other
/// keys, unless only named ones may be used; OpenSSH's usual files. (OpenSSH puts the agent's others before named files; with at most five
/// tries that could keep the named key from being tried at all.)
fn order(hop: &Hop, files: &[(PathBuf, Key)], identities: Vec<AgentIdentity>) -> Vec<Candidate> {
    let certificates = certificates(hop);
    let mut identities: Vec<Option<AgentIdentity>> = identities.into_iter().map(Some).collect();
    let mut offers = Vec::new();
    for certificate in &certificates {
        let held = files.iter().find(|(_, key)| key.public().key_data() == certificate.public_key());
        if let Some((path, Key::Open(key))) = held
            && !key.algorithm().is_rsa()
        {
            let name = format!("{} with its certificate", path.display());
            offers.push(Candidate { offer: Offer::Certificate(key.clone(), certificate.clone()), name });
        }
    }
    let named = |path: &PathBuf| hop.keys.iter().any(|k| &k.path == path && k.named != Named::Standard);
    let (first, last): (Vec<_>, Vec<_>) = files.iter().partition(|(path, _)| named(path));
    offers.extend(first.into_iter().flat_map(|(path, key)| held(path, key, &mut identities)));
    let mut standard: Vec<Candidate> = last.into_iter().flat_map(|(path, key)| held(path, key, &mut identities)).collect();
    standard.sort_by_key(|c| !matches!(c.offer, Offer::Agent(_)));
    let from_agent = standard.iter().take_while(|c| matches!(c.offer, Offer::Agent(_))).count();
    let rest = standard.split_off(from_agent);
    offers.extend(standard);
    if !hop.only_keys {
        offers.extend(identities.into_iter().flatten().map(from_the_agent));
    }
    offers.extend(rest);
    offers
}

fn from_the_agent(identity: AgentIdentity) -> Candidate {
    let name = format!("{} (agent)", identity.comment());
    Candidate { offer: Offer::Agent(identity), name }
}

/// The offers for one file: the agent's identities with that key, else the file itself.
fn held(path: &std::path::Path, key: &Key, identities: &mut [Option<AgentIdentity>]) -> Vec<Candidate> {
    let same = |identity: &Option<AgentIdentity>| identity.as_ref().is_some_and(|i| i.public_key().key_data() == key.public().key_data());
    let found: Vec<AgentIdentity> = identities.iter_mut().filter(|i| same(i)).filter_map(Option::take).collect();
    if !found.is_empty() {
        let candidate = |identity| Candidate { offer: Offer::Agent(identity), name: format!("{} (agent)", path.display()) };
        return found.into_iter().map(candidate).collect();
    }
    let name = path.display().to_string();
    match key {
        Key::Open(private) => vec![Candidate { offer: Offer::File(private.clone()), name }],
        Key::Sealed(public) => vec![Candidate { offer: Offer::Sealed(public.clone(), path.to_owned()), name }],
        Key::Public(_) => Vec::new(),
    }
}
