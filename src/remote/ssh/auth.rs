//! Proves who we are: keys of the agent and of files, with their certificates; then questions and a password, as the server wants and
//! ssh_config allows. At most five tries, no answer twice, and no new connection after a refusal.
//!
//! Uses `identities`, `agent`, `answers`, `keys`. Knows nothing of sockets.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use russh::client::{AuthResult, Handle, KeyboardInteractiveAuthResponse, Prompt};
use russh::keys::HashAlg;
use russh::{MethodKind, MethodSet};

use super::agent::Agent;
use super::answers::{Answers, Given, Question, Refused, plain};
use super::client::{Client, Left};
use super::identities::{Offer, Pen, Source, Unsigned, order};
use super::keys::{Keyring, Passed};
use super::pause::Clock;
use crate::remote::RemoteError;
use crate::remote::hop::Hop;
use crate::remote::login::{Method, certificate};

/// Refusals that one host gives, of keys and answers together: sshd ends a connection at the sixth by default (MaxAuthTries).
const TRIES: usize = 5;
/// Rounds of questions within one try.
const ROUNDS: usize = 8;
/// Questions in one round.
const QUESTIONS: usize = 16;
/// How long the reason of an end may take to come after it.
const REASON: Duration = Duration::from_millis(200);

/// Why we are not in.
#[derive(Debug)]
pub(super) enum Denied {
    /// It said no, or the settings are wrong.
    Final(RemoteError),
    /// The connection ended or took too long.
    Lost { why: String, retry: bool },
}

/// What an attempt came to so far.
enum After {
    In,
    /// What the server will still take.
    Still(MethodSet),
    /// Nothing was sent.
    Nothing,
}

/// One attempt to get in.
pub(super) struct Attempt<'a> {
    handle: &'a mut Handle<Client>,
    hop: &'a Hop,
    keyring: &'a Keyring,
    left: &'a Arc<Left>,
    clock: &'a Clock,
    agent: Option<Agent>,
    offers: VecDeque<Offer>,
    tried: Tried,
    passed: Vec<Passed>,
    /// What stood in the way of a key that the server would have taken.
    withheld: Option<RemoteError>,
    /// What the server has accepted so far, of several factors.
    accepted: Vec<&'static str>,
    /// Keys and answers that it has refused.
    refusals: usize,
    /// Times that questions were answered since the last factor was accepted.
    rounds: usize,
    refused: Refused,
    /// There is nobody, or nothing, left to answer.
    silent: bool,
}

/// What was tried, for the message.
#[derive(Default)]
struct Tried {
    keys: Vec<String>,
    agent: usize,
    password: bool,
    answers: bool,
}

impl Tried {
    fn nothing(&self) -> bool {
        self.keys.is_empty() && self.agent == 0 && !self.password && !self.answers
    }

    fn list(&self) -> String {
        let mut list = self.keys.clone();
        list.extend((self.agent > 0).then(|| format!("agent {} key{}", self.agent, if self.agent == 1 { "" } else { "s" })));
        list.extend(self.password.then(|| "a password".to_owned()));
        list.extend(self.answers.then(|| "an answer".to_owned()));
        list.join(", ")
    }

    fn subject(&self) -> &'static str {
        match (self.keys.is_empty() && self.agent == 0, self.password, self.answers) {
            (false, false, false) => "key refused",
            (true, true, false) => "password refused",
            _ => "login refused",
        }
    }
}

impl<'a> Attempt<'a> {
    pub(super) fn new(handle: &'a mut Handle<Client>, hop: &'a Hop, keyring: &'a Keyring, left: &'a Arc<Left>, clock: &'a Clock) -> Self {
        Attempt {
            handle,
            hop,
            keyring,
            left,
            clock,
            agent: None,
            offers: VecDeque::new(),
            tried: Tried::default(),
            passed: Vec::new(),
            withheld: None,
            accepted: Vec::new(),
            refusals: 0,
            rounds: 0,
            refused: Refused::new(),
            silent: false,
        }
    }

    /// Tries what there is, in order.
    pub(super) async fn run(mut self) -> Result<(), Denied> {
        self.gather().await?;
        // What the server takes; the first key's refusal tells it as well as an empty try does, and saves a round trip.
        let mut takes = None;
        loop {
            let method = self.next(takes.as_ref());
            let after = match method {
                Some(Method::PublicKey) => self.key().await?,
                Some(Method::Questions) => self.questions().await?,
                Some(Method::Password) => self.password().await?,
                None if takes.is_none() => self.none().await?,
                None => return Err(self.denied(takes.as_ref())),
            };
            match after {
                After::In => return Ok(()),
                After::Still(methods) => takes = Some(methods),
                After::Nothing => {}
            }
        }
    }

    /// What is tried next. Before it is known what the server takes, that is a key, or nothing.
    fn next(&self, takes: Option<&MethodSet>) -> Option<Method> {
        let open = |kind| takes.is_some_and(|methods| methods.contains(&kind));
        let answerable = open(MethodKind::KeyboardInteractive) && self.hop.login.methods.contains(&Method::Questions)
            || open(MethodKind::Password) && self.hop.login.methods.contains(&Method::Password);
        let may_answer = !self.silent && self.rounds < self.hop.login.prompts && self.refusals < TRIES;
        // Of the keys the last waits: where somebody can answer, the try is better spent on that.
        let spare = usize::from(may_answer && answerable && !self.hop.login.batch);
        let may_offer = !self.offers.is_empty() && self.refusals + spare < TRIES;
        let usable = |method: &Method| match method {
            Method::PublicKey => may_offer && (takes.is_none() || open(MethodKind::PublicKey)),
            Method::Questions => may_answer && open(MethodKind::KeyboardInteractive),
            Method::Password => may_answer && open(MethodKind::Password),
        };
        let mut methods = self.hop.login.methods.iter().copied();
        if takes.is_none() { methods.next().filter(usable) } else { methods.find(usable) }
    }

    /// Reads the files and asks the agent for its keys.
    async fn gather(&mut self) -> Result<(), Denied> {
        if !self.hop.login.methods.contains(&Method::PublicKey) {
            return Ok(());
        }
        let files = self.keyring.read(self.hop).map_err(Denied::Final)?;
        let mut identities = Vec::new();
        if let Some(path) = &self.hop.agent {
            let _pause = self.clock.pause();
            match self.keyring.agents.open(path, self.handle.agent_session_binding()).await {
                Ok((agent, found)) => (self.agent, identities) = (Some(agent), found),
                Err(why) => {
                    let hint = "SSH_AUTH_SOCK or IdentityAgent names the agent; `ssh-add -l` shows whether it answers".to_owned();
                    self.passed.push(Passed { what: format!("the agent at {} {why}", self.keyring.shown(path)), hint });
                }
            }
        }
        let (offers, passed) = order(self.hop, self.keyring, &files, identities);
        self.offers = offers;
        self.passed.extend(files.passed);
        self.passed.extend(passed);
        Ok(())
    }

    /// The empty try: it tells what the server takes.
    async fn none(&mut self) -> Result<After, Denied> {
        let call = self.handle.authenticate_none(self.hop.user.clone());
        match self.clock.within(call).await.ok_or_else(|| self.late())? {
            Ok(AuthResult::Success) => Ok(After::In),
            Ok(AuthResult::Failure { remaining_methods, .. }) if !remaining_methods.is_empty() => Ok(After::Still(remaining_methods)),
            Ok(AuthResult::Failure { .. }) | Err(_) => Err(self.ended().await),
        }
    }

    /// Offers the next key.
    async fn key(&mut self) -> Result<After, Denied> {
        let Some(mut offer) = self.offers.pop_front() else { return Ok(After::Nothing) };
        if offer.key.is_none()
            && let Source::Sealed(path) = &offer.source
        {
            // An old file that does not show its public half: there is nothing to offer before it is open.
            let _pause = self.clock.pause_for_a_person();
            match self.keyring.open(path, self.hop.login.batch).await {
                Ok(key) => (offer.key, offer.source) = (Some(key.public_key().clone()), Source::File(key)),
                Err(error) => {
                    self.withheld = Some(error);
                    return Ok(After::Nothing);
                }
            }
        }
        let Some(key) = offer.key else { return Ok(After::Nothing) };
        let shown = |offered: &str| offer.name.clone().unwrap_or_else(|| format!("the agent's {offered}"));
        let kind = key.algorithm();
        let vouched = offer.certificate.is_some();
        let wire = |name: &str| if vouched { certificate(name) } else { name.to_owned() };
        let usable = match kind.clone().is_rsa() {
            true => self.rsa_hash(vouched).await?,
            false => self.hop.login.accepted.allows(&wire(kind.as_str())).then_some(None),
        };
        let Some(hash) = usable else {
            let what = format!("{} was not offered: PubkeyAcceptedAlgorithms here or there has no {kind} signature", shown(kind.as_str()));
            self.passed.push(Passed { what, hint: String::new() });
            return Ok(After::Nothing);
        };
        let mut pen = Pen { source: offer.source, agent: self.agent.as_mut(), keyring: self.keyring, hop: self.hop, clock: self.clock };
        let user = self.hop.user.clone();
        let signed = match offer.certificate {
            Some(certificate) => self.clock.within(self.handle.authenticate_certificate_with(user, certificate, hash, &mut pen)).await,
            None => self.clock.within(self.handle.authenticate_publickey_with(user, key, hash, &mut pen)).await,
        };
        match offer.name {
            Some(name) => self.tried.keys.push(name),
            None => self.tried.agent += 1,
        }
        match signed.ok_or_else(|| self.late())? {
            Ok(result) => self.judge(result, "publickey").await,
            Err(Unsigned::Closed) => Err(self.ended().await),
            Err(Unsigned::Withheld(error)) => {
                self.withheld = Some(error);
                Ok(After::Nothing)
            }
        }
    }

    /// The best RSA signature that both sides take (`Some(None)` is SHA-1); `None`: there is none.
    async fn rsa_hash(&mut self, vouched: bool) -> Result<Option<Option<HashAlg>>, Denied> {
        const BEST: [(Option<HashAlg>, &str); 3] =
            [(Some(HashAlg::Sha512), "rsa-sha2-512"), (Some(HashAlg::Sha256), "rsa-sha2-256"), (None, "ssh-rsa")];
        let asked = self.clock.within(self.handle.best_supported_rsa_hash()).await.ok_or_else(|| self.late())?;
        let Ok(theirs) = asked else { return Err(self.ended().await) };
        // russh tells the server's best; one that takes the better takes the lesser, too.
        let from = theirs.and_then(|best| BEST.iter().position(|(hash, _)| *hash == best)).unwrap_or(0);
        let accepted = &self.hop.login.accepted;
        let ours = |name: &str| if vouched { accepted.allows(&certificate(name)) } else { accepted.allows(name) };
        Ok(BEST.iter().skip(from).find(|(_, name)| ours(name)).map(|(hash, _)| *hash))
    }

    /// Reads the server's answer to a key or a password. A connection that ended looks like a refusal without methods.
    async fn judge(&mut self, result: AuthResult, method: &'static str) -> Result<After, Denied> {
        match result {
            AuthResult::Success => Ok(After::In),
            AuthResult::Failure { remaining_methods, .. } if remaining_methods.is_empty() => Err(self.ended().await),
            AuthResult::Failure { remaining_methods, partial_success } => {
                self.count(partial_success, method);
                Ok(After::Still(remaining_methods))
            }
        }
    }

    fn count(&mut self, accepted: bool, method: &'static str) {
        if accepted {
            self.accepted.push(method);
            self.rounds = 0;
        } else {
            self.refusals += 1;
        }
    }

    async fn password(&mut self) -> Result<After, Denied> {
        let Some(given) = self.ask(&Question::Password, "").await? else {
            self.silent = true;
            return Ok(After::Nothing);
        };
        self.tried.password = true;
        self.rounds += 1;
        let call = self.handle.authenticate_password(self.hop.user.clone(), given.text.clone());
        let result = self.clock.within(call).await.ok_or_else(|| self.late())?;
        let Ok(result) = result else { return Err(self.ended().await) };
        let good = matches!(result, AuthResult::Success | AuthResult::Failure { partial_success: true, .. });
        let after = self.judge(result, "password").await?;
        self.settle(&[given], good).await;
        Ok(after)
    }

    /// Notes whether answers were taken.
    async fn settle(&mut self, given: &[Given], good: bool) {
        if good {
            self.keyring.answers.good(given).await;
        } else {
            self.keyring.answers.bad(given, &mut self.refused).await;
            // The variable holds one value: it is not sent again.
            self.silent |= given.iter().any(|g| Answers::from_variable(self.hop, g));
        }
    }

    async fn ask(&mut self, question: &Question, preface: &str) -> Result<Option<Given>, Denied> {
        let _pause = self.clock.pause_for_a_person();
        let answers = &self.keyring.answers;
        answers.get(self.hop, question, preface, &self.refused, &self.keyring.person).await.map_err(Denied::Final)
    }

    /// keyboard-interactive (RFC 4256): rounds of questions until the server has made up its mind.
    async fn questions(&mut self) -> Result<After, Denied> {
        self.rounds += 1;
        let start = self.handle.authenticate_keyboard_interactive_start(self.hop.user.clone(), None);
        let mut reply = self.clock.within(start).await.ok_or_else(|| self.late())?;
        let mut given = Vec::new();
        for _ in 0..ROUNDS {
            let answers = match reply {
                Ok(KeyboardInteractiveAuthResponse::Success) => {
                    self.settle(&given, true).await;
                    return Ok(After::In);
                }
                Ok(KeyboardInteractiveAuthResponse::Failure { remaining_methods, partial_success }) => {
                    self.count(partial_success, "keyboard-interactive");
                    self.settle(&given, partial_success).await;
                    // A server that asks nothing and says no would do so for ever.
                    self.silent |= given.is_empty() && !partial_success;
                    return Ok(After::Still(remaining_methods));
                }
                Ok(KeyboardInteractiveAuthResponse::InfoRequest { name, instructions, prompts }) => {
                    self.answer(&plain(&format!("{name} {instructions}")), &prompts, &mut given).await?
                }
                Err(_) => return Err(self.ended().await),
            };
            let respond = self.handle.authenticate_keyboard_interactive_respond(answers);
            reply = self.clock.within(respond).await.ok_or_else(|| self.late())?;
        }
        let what = self.hop.says(&format!("the server asks more than {ROUNDS} times in one login"));
        Err(Denied::Final(RemoteError::Refused { what, hint: "use a key for this host".to_owned() }))
    }

    /// The answers to one round. Where nobody answers, empty ones go out, as with ssh: russh takes nothing else at this point.
    async fn answer(&mut self, preface: &str, prompts: &[Prompt], given: &mut Vec<Given>) -> Result<Vec<String>, Denied> {
        if prompts.len() > QUESTIONS {
            let what = self.hop.says(&format!("the server asks {} questions at once", prompts.len()));
            return Err(Denied::Final(RemoteError::Refused { what, hint: "use a key for this host".to_owned() }));
        }
        let mut answers = Vec::new();
        for (at, prompt) in prompts.iter().enumerate() {
            let question = Question::of(&prompt.prompt, prompt.echo);
            let preface = if at == 0 { preface } else { "" };
            let answer = if self.silent { None } else { self.ask(&question, preface).await? };
            match answer {
                Some(one) => {
                    self.tried.password |= question == Question::Password;
                    self.tried.answers |= question != Question::Password;
                    answers.push(one.text.clone());
                    given.push(one);
                }
                None => {
                    self.silent = true;
                    if self.offers.is_empty() {
                        return Err(self.denied(Some(&MethodSet::from(&[MethodKind::KeyboardInteractive][..]))));
                    }
                    answers.push(String::new());
                }
            }
        }
        Ok(answers)
    }

    fn late(&self) -> Denied {
        Denied::Lost { why: format!("no answer during authentication within {:?}", self.hop.connect_timeout), retry: true }
    }

    /// The connection ended. The reason comes beside the answer, so it gets a moment.
    async fn ended(&self) -> Denied {
        let why = tokio::time::timeout(REASON, self.left.reason()).await.ok();
        if why.as_deref() == Some(super::client::NO_METHOD) {
            return self.denied(None);
        }
        match why.as_deref().and_then(|why| why.strip_prefix(super::client::SAID)) {
            Some(said) => {
                let tried = if self.tried.nothing() { String::new() } else { format!(" (tried {})", self.tried.list()) };
                Denied::Final(RemoteError::Refused {
                    what: self.hop.says(&format!("the server ended the login: {}{tried}", plain(said))),
                    hint: "name the right key with ssh.identity, and set IdentitiesOnly if the agent holds many".to_owned(),
                })
            }
            // After a refusal another try would be a try too many.
            None => Denied::Lost { why: "closed by the server during authentication".to_owned(), retry: self.refusals == 0 },
        }
    }

    /// Nothing is left to try.
    fn denied(&self, takes: Option<&MethodSet>) -> Denied {
        if let Some(error) = &self.withheld {
            return Denied::Final(error.clone());
        }
        let takes: Vec<&str> = takes.into_iter().flat_map(|methods| methods.iter()).map(<&str>::from).collect();
        let mut what = match (self.tried.nothing(), self.accepted.is_empty()) {
            (true, _) => "login refused: there was nothing to offer".to_owned(),
            (false, true) => format!("{} (tried {})", self.tried.subject(), self.tried.list()),
            (false, false) => format!("{} was accepted and is not enough (tried {})", self.accepted.join(" and "), self.tried.list()),
        };
        let key = self.tried.keys.is_empty() && self.tried.agent == 0;
        let more: Vec<&str> = takes.into_iter().filter(|m| key || *m != "publickey").collect();
        let answered = self.tried.password || self.tried.answers;
        if !self.offers.is_empty() && self.refusals >= TRIES {
            what.push_str(&format!("; {} more keys were not offered, since sshd cuts off who is refused too often", self.offers.len()));
        }
        if !more.is_empty() && !answered {
            what.push_str(&format!("; the server takes {}", more.join(", ")));
            if self.silent {
                what.push_str(", and nobody was there to answer");
            }
        }
        for passed in &self.passed {
            what.push_str(&format!("; {}", passed.what));
        }
        let many = "name the right key with ssh.identity, and set IdentitiesOnly if the agent holds many".to_owned();
        let usual = || {
            if !self.offers.is_empty() {
                many.clone()
            } else {
                format!("is {} the right user? ssh-copy-id installs a key there; ssh.identity names another one here", self.hop.user)
            }
        };
        let hint = self.passed.iter().map(|p| p.hint.clone()).find(|hint| !hint.is_empty()).unwrap_or_else(usual);
        Denied::Final(RemoteError::Refused { what: self.hop.says(&what), hint })
    }
}
