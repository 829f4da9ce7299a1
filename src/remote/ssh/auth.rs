//! Authenticates: keys of the agent and of files with their certificates, then prompts and passwords, as the server and
//! ssh_config allow. At most five attempts, no answer twice, and no new connection after a refusal.

mod answers;
mod tried_methods;

use self::tried_methods::TriedMethods;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use russh::client::{AuthResult, Handle};
use russh::keys::HashAlg;
use russh::{MethodKind, MethodSet};

use super::agent::AgentConnection;
use super::auth_prompts::{RefusedAnswers, sanitize_line};
use super::client_handler::{ClientHandler, DisconnectCause, DisconnectInfo};
use super::deadline::PausableDeadline;
use super::identities::{AGENT_HINT, KeyOffer, KeySigner, KeySource, SignError, order_offers};
use super::keys::{Keyring, UnusableIdentity};
use crate::remote::RemoteError;
use crate::remote::auth_options::{AuthMethod, certificate_algorithm};
use crate::remote::hop::Hop;

/// Maximum refusals of one host, keys and answers together: sshd disconnects at the sixth by default (MaxAuthTries).
const MAX_REFUSALS: usize = 5;
const MANY_KEYS_HINT: &str = "choose the key with ssh.identity, and set IdentitiesOnly if the agent holds many";
/// How long to wait for the cause of a disconnect.
const DISCONNECT_CAUSE_WAIT: Duration = Duration::from_millis(200);

/// Why authentication failed.
#[derive(Debug)]
pub(super) enum AuthError {
    /// Refused, or the settings are wrong.
    Final(RemoteError),
    /// The connection ended or timed out.
    Lost { why: String, retry: bool },
}

/// Result of an attempt so far.
enum AuthProgress {
    Authenticated,
    /// Methods that the server still accepts.
    Remaining(MethodSet),
    NothingSent,
}

/// One login.
pub(super) struct AuthAttempt<'a> {
    handle: &'a mut Handle<ClientHandler>,
    hop: &'a Hop,
    keyring: &'a Keyring,
    disconnect_info: &'a Arc<DisconnectInfo>,
    deadline: &'a PausableDeadline,
    agent: Option<AgentConnection>,
    offers: VecDeque<KeyOffer>,
    tried_methods: TriedMethods,
    unusable: Vec<UnusableIdentity>,
    /// Why keys that the server would accept could not be used.
    key_error: Option<RemoteError>,
    /// Factors accepted so far.
    accepted_factors: Vec<&'static str>,
    /// Refused keys and answers.
    refusals: usize,
    /// Answered prompts since the last accepted factor.
    prompt_rounds: usize,
    refused_answers: RefusedAnswers,
    /// No further answer is available.
    out_of_answers: bool,
}

impl<'a> AuthAttempt<'a> {
    pub(super) fn new(
        handle: &'a mut Handle<ClientHandler>,
        hop: &'a Hop,
        keyring: &'a Keyring,
        disconnect_info: &'a Arc<DisconnectInfo>,
        deadline: &'a PausableDeadline,
    ) -> Self {
        AuthAttempt {
            handle,
            hop,
            keyring,
            disconnect_info,
            deadline,
            agent: None,
            offers: VecDeque::new(),
            tried_methods: TriedMethods::default(),
            unusable: Vec::new(),
            key_error: None,
            accepted_factors: Vec::new(),
            refusals: 0,
            prompt_rounds: 0,
            refused_answers: RefusedAnswers::new(),
            out_of_answers: false,
        }
    }

    /// Tries every option in order.
    pub(super) async fn run(mut self) -> Result<(), AuthError> {
        self.collect_offers().await?;
        // The methods of the server: the refusal of the first key returns them as well as an empty attempt does, and saves a round trip.
        let mut takes = None;
        loop {
            let method = self.next_method(takes.as_ref());
            let after = match method {
                Some(AuthMethod::PublicKey) => self.try_next_key().await?,
                Some(AuthMethod::KeyboardInteractive) => self.try_keyboard_interactive().await?,
                Some(AuthMethod::Password) => self.try_password().await?,
                None if takes.is_none() => self.try_none().await?,
                None => return Err(self.refusal_error(takes.as_ref())),
            };
            match after {
                AuthProgress::Authenticated => return Ok(()),
                AuthProgress::Remaining(methods) => takes = Some(methods),
                AuthProgress::NothingSent => {}
            }
        }
    }

    /// The next option. Before the methods are known, that is a key, or nothing.
    fn next_method(&self, server_methods: Option<&MethodSet>) -> Option<AuthMethod> {
        let open = |kind| server_methods.is_some_and(|methods| methods.contains(&kind));
        let answerable = open(MethodKind::KeyboardInteractive) && self.hop.auth.methods.contains(&AuthMethod::KeyboardInteractive)
            || open(MethodKind::Password) && self.hop.auth.methods.contains(&AuthMethod::Password);
        let may_answer = !self.out_of_answers && self.prompt_rounds < self.hop.auth.max_prompts && self.refusals < MAX_REFUSALS;
        // The last key waits if a prompt can be answered: the attempt is better spent on that.
        let reserved = usize::from(may_answer && answerable && !self.hop.auth.batch_mode);
        let may_offer = !self.offers.is_empty() && self.refusals + reserved < MAX_REFUSALS;
        let usable = |method: &AuthMethod| match method {
            AuthMethod::PublicKey => may_offer && (server_methods.is_none() || open(MethodKind::PublicKey)),
            AuthMethod::KeyboardInteractive => may_answer && open(MethodKind::KeyboardInteractive),
            AuthMethod::Password => may_answer && open(MethodKind::Password),
        };
        let mut methods = self.hop.auth.methods.iter().copied();
        if server_methods.is_none() { methods.next().filter(usable) } else { methods.find(usable) }
    }

    /// Reads key files and lists the agent's keys.
    async fn collect_offers(&mut self) -> Result<(), AuthError> {
        if !self.hop.auth.methods.contains(&AuthMethod::PublicKey) {
            return Ok(());
        }
        let files = self.keyring.load_identities(self.hop).map_err(AuthError::Final)?;
        let mut identities = Vec::new();
        if let Some(path) = &self.hop.agent_socket {
            let _pause = self.deadline.pause();
            match self.keyring.agents.connect(path, self.handle.agent_session_binding()).await {
                Ok((agent, found)) => (self.agent, identities) = (Some(agent), found),
                Err(why) => {
                    let hint = AGENT_HINT.to_owned();
                    self.unusable.push(UnusableIdentity { what: format!("the agent at {} {why}", self.keyring.display_path(path)), hint });
                }
            }
        }
        let (offers, passed) = order_offers(self.hop, self.keyring, &files, identities);
        self.offers = offers;
        self.unusable.extend(files.unusable);
        self.unusable.extend(passed);
        Ok(())
    }

    /// An empty attempt, to learn the methods of the server.
    async fn try_none(&mut self) -> Result<AuthProgress, AuthError> {
        let call = self.handle.authenticate_none(self.hop.user.clone());
        match self.deadline.wait_for(call).await.ok_or_else(|| self.timeout_error())? {
            Ok(AuthResult::Success) => Ok(AuthProgress::Authenticated),
            Ok(AuthResult::Failure { remaining_methods, .. }) if !remaining_methods.is_empty() => {
                Ok(AuthProgress::Remaining(remaining_methods))
            }
            Ok(AuthResult::Failure { .. }) | Err(_) => Err(self.disconnect_error().await),
        }
    }

    /// Offers the next key.
    async fn try_next_key(&mut self) -> Result<AuthProgress, AuthError> {
        let Some(mut offer) = self.offers.pop_front() else { return Ok(AuthProgress::NothingSent) };
        if offer.key.is_none()
            && let KeySource::EncryptedFile(path) = &offer.source
        {
            // A legacy file without a readable public key must be decrypted before it can be offered.
            let _pause = self.deadline.pause_for_user();
            match self.keyring.decrypt_key(path, self.hop.auth.batch_mode).await {
                Ok(key) => (offer.key, offer.source) = (Some(key.public_key().clone()), KeySource::File(key)),
                Err(error) => {
                    self.key_error = Some(error);
                    return Ok(AuthProgress::NothingSent);
                }
            }
        }
        let Some(key) = offer.key else { return Ok(AuthProgress::NothingSent) };
        let shown = |offered: &str| offer.name.clone().unwrap_or_else(|| format!("the agent's {offered}"));
        let kind = key.algorithm();
        let certified = offer.certificate.is_some();
        let wire_name = |name: &str| if certified { certificate_algorithm(name) } else { name.to_owned() };
        let usable = match kind.clone().is_rsa() {
            true => self.choose_rsa_hash(certified).await?,
            false => self.hop.auth.accepted_algorithms.allows(&wire_name(kind.as_str())).then_some(None),
        };
        let Some(hash) = usable else {
            let what = format!(
                "{} was not offered: PubkeyAcceptedAlgorithms of the client or the server allows no {kind} signature",
                shown(kind.as_str())
            );
            self.unusable.push(UnusableIdentity { what, hint: String::new() });
            return Ok(AuthProgress::NothingSent);
        };
        let mut signer =
            KeySigner { source: offer.source, agent: self.agent.as_mut(), keyring: self.keyring, hop: self.hop, deadline: self.deadline };
        let user = self.hop.user.clone();
        let signed = match offer.certificate {
            Some(certificate) => {
                self.deadline.wait_for(self.handle.authenticate_certificate_with(user, certificate, hash, &mut signer)).await
            }
            None => self.deadline.wait_for(self.handle.authenticate_publickey_with(user, key, hash, &mut signer)).await,
        };
        match offer.name {
            Some(name) => self.tried_methods.keys.push(name),
            None => self.tried_methods.agent_keys += 1,
        }
        match signed.ok_or_else(|| self.timeout_error())? {
            Ok(result) => self.handle_result(result, "publickey").await,
            Err(SignError::ConnectionClosed) => Err(self.disconnect_error().await),
            Err(SignError::KeyUnavailable(error)) => {
                self.key_error = Some(error);
                Ok(AuthProgress::NothingSent)
            }
        }
    }

    /// The best RSA signature algorithm that both sides accept (`Some(None)` is SHA-1); `None` if there is none.
    async fn choose_rsa_hash(&mut self, certified: bool) -> Result<Option<Option<HashAlg>>, AuthError> {
        const RSA_SIGNATURES: [(Option<HashAlg>, &str); 3] =
            [(Some(HashAlg::Sha512), "rsa-sha2-512"), (Some(HashAlg::Sha256), "rsa-sha2-256"), (None, "ssh-rsa")];
        let answer = self.deadline.wait_for(self.handle.best_supported_rsa_hash()).await.ok_or_else(|| self.timeout_error())?;
        let Ok(supported) = answer else { return Err(self.disconnect_error().await) };
        // russh reports the server's best one; a server that accepts it accepts the weaker one too.
        let from = supported.and_then(|best| RSA_SIGNATURES.iter().position(|(hash, _)| *hash == best)).unwrap_or(0);
        let accepted = &self.hop.auth.accepted_algorithms;
        let ours = |name: &str| if certified { accepted.allows(&certificate_algorithm(name)) } else { accepted.allows(name) };
        Ok(RSA_SIGNATURES.iter().skip(from).find(|(_, name)| ours(name)).map(|(hash, _)| *hash))
    }

    /// Evaluates the answer to a key or a password. A lost connection looks like a refusal without methods.
    async fn handle_result(&mut self, result: AuthResult, method: &'static str) -> Result<AuthProgress, AuthError> {
        match result {
            AuthResult::Success => Ok(AuthProgress::Authenticated),
            AuthResult::Failure { remaining_methods, .. } if remaining_methods.is_empty() => Err(self.disconnect_error().await),
            AuthResult::Failure { remaining_methods, partial_success } => {
                self.count_result(partial_success, method);
                Ok(AuthProgress::Remaining(remaining_methods))
            }
        }
    }

    fn count_result(&mut self, accepted: bool, method: &'static str) {
        if accepted {
            self.accepted_factors.push(method);
            self.prompt_rounds = 0;
        } else {
            self.refusals += 1;
        }
    }

    fn timeout_error(&self) -> AuthError {
        AuthError::Lost { why: format!("no answer during authentication within {:?}", self.hop.connect_timeout), retry: true }
    }

    /// The connection ended. The reason arrives separately, so wait a moment for it.
    async fn disconnect_error(&self) -> AuthError {
        match tokio::time::timeout(DISCONNECT_CAUSE_WAIT, self.disconnect_info.cause.wait()).await.ok() {
            Some(DisconnectCause::NoMethodLeft) => self.refusal_error(None),
            Some(DisconnectCause::HostSaid(message)) => {
                let tried =
                    if self.tried_methods.is_empty() { String::new() } else { format!(" (tried {})", self.tried_methods.summary()) };
                AuthError::Final(RemoteError::refused(
                    self.hop.prefix_message(&format!("the server ended the login: {}{tried}", sanitize_line(message))),
                    MANY_KEYS_HINT,
                ))
            }
            // After a refusal, a retry would exceed the limit.
            Some(DisconnectCause::Other(_)) | None => {
                AuthError::Lost { why: "closed by the server during authentication".to_owned(), retry: self.refusals == 0 }
            }
        }
    }

    /// The error when nothing is left to try.
    fn refusal_error(&self, server_methods: Option<&MethodSet>) -> AuthError {
        if let Some(error) = &self.key_error {
            return AuthError::Final(error.clone());
        }
        let takes: Vec<&str> = server_methods.into_iter().flat_map(|methods| methods.iter()).map(<&str>::from).collect();
        let mut what = match (self.tried_methods.is_empty(), self.accepted_factors.is_empty()) {
            (true, _) => "login refused: no key and no other method to offer".to_owned(),
            (false, true) => format!("{} (tried {})", self.tried_methods.refusal_subject(), self.tried_methods.summary()),
            (false, false) => {
                format!(
                    "{} was accepted but is not sufficient (tried {})",
                    self.accepted_factors.join(" and "),
                    self.tried_methods.summary()
                )
            }
        };
        let more: Vec<&str> = takes.into_iter().filter(|m| !self.tried_methods.tried_keys() || *m != "publickey").collect();
        if !self.offers.is_empty() && self.refusals >= MAX_REFUSALS {
            what.push_str(&format!("; {} more keys were not offered: sshd disconnects after too many refusals", self.offers.len()));
        }
        if !more.is_empty() && !self.tried_methods.tried_answers() {
            what.push_str(&format!("; the server accepts {}", more.join(", ")));
            if self.out_of_answers {
                what.push_str(", and no answer was given");
            }
        }
        for passed in &self.unusable {
            what.push_str(&format!("; {}", passed.what));
        }
        let usual = || {
            if !self.offers.is_empty() {
                MANY_KEYS_HINT.to_owned()
            } else {
                format!(
                    "check that {} is the right user; install a key with ssh-copy-id, or choose another one with ssh.identity",
                    self.hop.user
                )
            }
        };
        let hint = self.unusable.iter().map(|p| p.hint.clone()).find(|hint| !hint.is_empty()).unwrap_or_else(usual);
        AuthError::Final(RemoteError::refused(self.hop.prefix_message(&what), hint))
    }
}
