//! Servers that require a password, a code, or several factors; the machine's own sshd cannot be configured this way.

use std::sync::{Arc, Mutex};

use orchestrate::inventory::InventoryHost;
use orchestrate::remote::{HostConnector, RemoteError, SshFleet};
use russh::keys::PrivateKey;
use russh::server::{Auth, Config, Handler, Response, VerifiedPublicKey};
use russh::{MethodKind, MethodSet};

use crate::sshd::{ScriptedPrompt, Sshd, expect_refusal};

pub(crate) const SECRET: &str = "geheim";
pub(crate) const CODES: [&str; 4] = ["111111", "222222", "333333", "444444"];
pub(crate) const PASSWORD: (&str, bool) = ("Password: ", false);
pub(crate) const CODE: (&str, bool) = ("\u{1b}[2JVerification code: ", false);

/// A required factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthFactor {
    Key,
    Password,
    /// Accepts keys and passwords as methods, but no value is right.
    Either,
    Prompts(&'static [(&'static str, bool)]),
}

#[derive(Debug, Clone, Copy)]
struct AuthRules {
    factors: &'static [AuthFactor],
    /// A code is accepted only once, as if all hosts used one authentication server.
    single_use_codes: bool,
}

/// What the server of one test has received.
#[derive(Default)]
pub(crate) struct ServerLog {
    attempts: Vec<String>,
    keys_offered: usize,
    codes_used: Vec<String>,
}

struct AuthServer {
    auth_rules: AuthRules,
    factor_index: usize,
    server_log: Arc<Mutex<ServerLog>>,
}

impl AuthServer {
    fn expected_factor(&self) -> AuthFactor {
        self.auth_rules.factors[self.factor_index]
    }

    fn reject(&self, partial_success: bool) -> Auth {
        let methods: &[MethodKind] = match self.expected_factor() {
            AuthFactor::Key => &[MethodKind::PublicKey],
            AuthFactor::Password => &[MethodKind::Password],
            AuthFactor::Either => &[MethodKind::PublicKey, MethodKind::Password],
            AuthFactor::Prompts(_) => &[MethodKind::KeyboardInteractive],
        };
        Auth::Reject { proceed_with_methods: Some(MethodSet::from(methods)), partial_success }
    }

    fn advance(&mut self, good: bool) -> Auth {
        if !good {
            return self.reject(false);
        }
        self.factor_index += 1;
        if self.factor_index == self.auth_rules.factors.len() { Auth::Accept } else { self.reject(true) }
    }

    fn accepts_answer(&self, prompt: &str, answer: &str) -> bool {
        let mut seen = self.server_log.lock().expect("not poisoned");
        seen.attempts.push(answer.to_owned());
        if prompt == PASSWORD.0 {
            return answer == SECRET;
        }
        let fresh = !self.auth_rules.single_use_codes || !seen.codes_used.iter().any(|u| u == answer);
        seen.codes_used.push(answer.to_owned());
        CODES.contains(&answer) && fresh
    }
}

impl Handler for AuthServer {
    type Error = russh::Error;

    async fn auth_none(&mut self, _: &str) -> Result<Auth, russh::Error> {
        Ok(self.reject(false))
    }

    async fn auth_publickey(&mut self, _: &str, _: VerifiedPublicKey<'_>) -> Result<Auth, russh::Error> {
        self.server_log.lock().expect("not poisoned").keys_offered += 1;
        let good = self.expected_factor() == AuthFactor::Key;
        Ok(self.advance(good))
    }

    async fn auth_password(&mut self, _: &str, password: &str) -> Result<Auth, russh::Error> {
        let good = self.accepts_answer(PASSWORD.0, password) && self.expected_factor() == AuthFactor::Password;
        Ok(self.advance(good))
    }

    async fn auth_keyboard_interactive<'a>(&'a mut self, _: &str, _: &str, response: Option<Response<'a>>) -> Result<Auth, russh::Error> {
        let AuthFactor::Prompts(prompts) = self.expected_factor() else { return Ok(self.reject(false)) };
        let Some(answers) = response else {
            let prompts: Vec<_> = prompts.iter().map(|(text, echo)| ((*text).into(), *echo)).collect();
            let (name, instructions) = ("".into(), "Your token\r\nis \u{202e}wanted\u{7}".into());
            return Ok(Auth::Partial { name, instructions, prompts: prompts.into() });
        };
        let answers: Vec<String> = answers.map(|a| String::from_utf8_lossy(&a).into_owned()).collect();
        let good: Vec<bool> = prompts.iter().zip(&answers).map(|((prompt, _), answer)| self.accepts_answer(prompt, answer)).collect();
        let good = answers.len() == prompts.len() && good.iter().all(|g| *g);
        Ok(self.advance(good))
    }
}

/// Serves on loopback until the test ends; returns the host and the server's log.
pub(crate) async fn start_auth_server(files: &Sshd, factors: &'static [AuthFactor], once: bool) -> (InventoryHost, Arc<Mutex<ServerLog>>) {
    let text = std::fs::read_to_string(files.path("host_ed25519")).expect("a key");
    let key: PrivateKey = russh::keys::decode_secret_key(&text, None).expect("a key");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let methods = MethodSet::from(&[MethodKind::PublicKey, MethodKind::Password, MethodKind::KeyboardInteractive][..]);
    let quick = std::time::Duration::from_millis(10);
    let config = Arc::new(Config { keys: vec![key], methods, auth_rejection_time: quick, ..Config::default() });
    let seen = Arc::<Mutex<ServerLog>>::default();
    let listeners = seen.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let door =
                AuthServer { auth_rules: AuthRules { factors, single_use_codes: once }, factor_index: 0, server_log: listeners.clone() };
            if let Ok(session) = russh::server::run_stream(config.clone(), stream, door).await {
                tokio::spawn(session);
            }
        }
    });
    let known = files.known_hosts_line("ed25519").replace(&format!("[127.0.0.1]:{}", files.port), &format!("[127.0.0.1]:{port}"));
    let mut host = files.host("gpu01");
    host.ssh.known_hosts_file = Some(files.write("door", &known));
    host.ssh.port = Some(port);
    (host, seen)
}

pub(crate) fn attempted_answers(seen: &Mutex<ServerLog>) -> Vec<String> {
    let mut tried = seen.lock().expect("not poisoned").attempts.clone();
    tried.sort();
    tried
}

/// Connects `count` hosts at once; returns the errors.
async fn connect_all_failures(fleet: &SshFleet, count: usize) -> Vec<String> {
    let hosts = futures_util::future::join_all((0..count).map(|n| fleet.connect(n))).await;
    hosts.into_iter().filter_map(|h| h.err().map(|e| e.to_string())).collect()
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn one_password_serves_all_hosts() {
    let files = Sshd::start();
    let ways: [&[AuthFactor]; 4] = [
        &[AuthFactor::Password],
        &[AuthFactor::Prompts(&[PASSWORD])],
        &[AuthFactor::Key, AuthFactor::Password],
        &[AuthFactor::Key, AuthFactor::Prompts(&[PASSWORD])],
    ];
    for factors in ways {
        let (mut host, seen) = start_auth_server(&files, factors, false).await;
        let person = Arc::new(ScriptedPrompt::with_answers(&[SECRET]));
        let fleet = SshFleet::new(vec![host.clone(); 3], files.settings(&person));
        assert_eq!(connect_all_failures(&fleet, 3).await, Vec::<String>::new(), "{factors:?}");
        assert_eq!((person.questions().len(), attempted_answers(&seen).len()), (1, 3), "{factors:?}");

        host.ssh.password_variable = Some("RIGHT".to_owned());
        let mut settings = files.settings(&Arc::new(ScriptedPrompt::without_answers()));
        settings.env = Arc::new(|name| (name == "RIGHT").then(|| SECRET.to_owned()));
        SshFleet::new(vec![host], settings).connect(0).await.unwrap_or_else(|e| panic!("{factors:?}: {e}"));
    }
}

/// Keys and answers count together: the last attempt is reserved for an answer if the prompt gives one, else a key uses it.
#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn login_makes_at_most_five_attempts() {
    let files = Sshd::start();
    let methods: [&[AuthFactor]; 2] = [&[AuthFactor::Either], &[AuthFactor::Password]];
    for (factors, silent, keys, answers) in [(methods[0], false, 4, 1), (methods[0], true, 5, 0), (methods[1], false, 1, 3)] {
        let (mut host, seen) = start_auth_server(&files, factors, false).await;
        host.ssh.identity_files.clear();
        for n in 0..7 {
            let key = files.path(&format!("key{n}"));
            if !key.exists() {
                crate::sshd::generate_key(&key, "ed25519", "");
            }
            host.ssh.identity_files.push(files.path_string(&format!("key{n}")));
        }
        let person = Arc::new(if silent {
            ScriptedPrompt::without_answers()
        } else {
            ScriptedPrompt::with_answers(&["a", "b", "c", "d", "e", "f"])
        });
        let (what, hint) = expect_refusal(SshFleet::new(vec![host], files.settings(&person)).connect(0).await);
        let seen = seen.lock().expect("not poisoned");
        assert_eq!((seen.keys_offered, seen.attempts.len()), (keys, answers), "{factors:?}: {what}");
        if keys > 1 {
            assert!(
                what.contains(&format!("{} more keys were not offered", 7 - keys)) && hint.contains("IdentitiesOnly"),
                "{what}\n{hint}"
            );
        }
    }
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn wrong_password_is_reprompted_once_for_all_hosts() {
    let files = Sshd::start();
    for factors in [&[AuthFactor::Password][..], &[AuthFactor::Prompts(&[PASSWORD])][..]] {
        let (host, seen) = start_auth_server(&files, factors, false).await;
        let person = Arc::new(ScriptedPrompt::with_answers(&["falsch", SECRET]));
        let fleet = SshFleet::new(vec![host.clone(); 3], files.settings(&person));
        assert_eq!(connect_all_failures(&fleet, 3).await, Vec::<String>::new());
        // A host that asks later is spared the wrong answer.
        let answers = attempted_answers(&seen);
        let (wrong, right): (Vec<&str>, Vec<&str>) = answers.iter().map(String::as_str).partition(|answer| *answer == "falsch");
        assert!((1..=3).contains(&wrong.len()) && right == [SECRET; 3], "{answers:?}");
        assert_eq!(person.questions().len(), 2);
        assert!(!person.notices().is_empty());

        let (host, seen) = start_auth_server(&files, factors, false).await;
        let person = Arc::new(ScriptedPrompt::with_answers(&["a", "b", "c", SECRET]));
        let (what, _) = expect_refusal(SshFleet::new(vec![host.clone()], files.settings(&person)).connect(0).await);
        assert!(what.starts_with("login refused (tried ~/id, a password)"), "{what}");
        assert_eq!(attempted_answers(&seen), ["a", "b", "c"], "three prompts, as with ssh");

        let (host, seen) = start_auth_server(&files, factors, false).await;
        files.write("ssh_config", "Host *\n NumberOfPasswordPrompts 1\n");
        let person = Arc::new(ScriptedPrompt::with_answers(&["falsch", SECRET]));
        expect_refusal(SshFleet::new(vec![host.clone()], files.settings(&person)).connect(0).await);
        assert_eq!(attempted_answers(&seen), ["falsch"]);
        files.write("ssh_config", "Host *\n BatchMode yes\n");
        expect_refusal(SshFleet::new(vec![host], files.settings(&person)).connect(0).await);
        assert_eq!((attempted_answers(&seen).len(), person.questions().len()), (1, 1), "BatchMode suppresses prompts");
        files.write("ssh_config", "");
    }
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn password_from_variable_is_sent_once() {
    let files = Sshd::start();
    let (mut host, seen) = start_auth_server(&files, &[AuthFactor::Prompts(&[PASSWORD])], false).await;
    host.ssh.password_variable = Some("SSH_PASSWORD".to_owned());
    let person = Arc::new(ScriptedPrompt::with_answers(&[SECRET]));
    expect_refusal(SshFleet::new(vec![host], files.settings(&person)).connect(0).await);
    assert_eq!((attempted_answers(&seen), person.questions()), (vec!["wrong".to_owned()], Vec::new()));
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn one_code_serves_all_hosts() {
    let files = Sshd::start();
    let ways: [&[AuthFactor]; 4] = [
        &[AuthFactor::Prompts(&[PASSWORD, CODE])],
        &[AuthFactor::Prompts(&[PASSWORD]), AuthFactor::Prompts(&[CODE])],
        &[AuthFactor::Password, AuthFactor::Prompts(&[CODE])],
        &[AuthFactor::Key, AuthFactor::Password, AuthFactor::Prompts(&[CODE])],
    ];
    for factors in ways {
        let (host, seen) = start_auth_server(&files, factors, false).await;
        let person = Arc::new(ScriptedPrompt::with_answers(&[SECRET, CODES[0]]));
        let fleet = SshFleet::new(vec![host.clone(); 3], files.settings(&person));
        assert_eq!(connect_all_failures(&fleet, 3).await, Vec::<String>::new(), "{factors:?}");
        assert_eq!(attempted_answers(&seen), [CODES[0], CODES[0], CODES[0], SECRET, SECRET, SECRET], "{factors:?}");
        let query = person.questions();
        assert!(query.len() == 2 && query[1].starts_with("[2JVerification code (") && !query[1].contains('\u{1b}'), "{query:?}");
        assert!(person.notices().iter().any(|t| t == "gpu01: Your token is wanted"), "{:?}", person.notices());
    }
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn single_use_code_is_prompted_per_host() {
    let files = Sshd::start();
    let (host, seen) = start_auth_server(&files, &[AuthFactor::Prompts(&[PASSWORD, CODE])], true).await;
    let person = Arc::new(ScriptedPrompt::with_answers(&[SECRET, CODES[0], CODES[1], CODES[2], CODES[3]]));
    let fleet = SshFleet::new(vec![host.clone(); 4], files.settings(&person));
    fleet.connect(0).await.expect("the first code is fresh");
    fleet.connect(1).await.expect("the second is asked for when the first was refused");
    fleet.connect(2).await.expect("the third is asked for at once");
    fleet.connect(3).await.expect("the fourth, too");
    let query = person.questions();
    assert_eq!(query.len(), 5, "one password, four codes: {query:?}");
    let codes: Vec<String> = attempted_answers(&seen).into_iter().filter(|t| t != SECRET).collect();
    assert_eq!(codes, [CODES[0], CODES[0], CODES[1], CODES[2], CODES[3]], "only one code is refused");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn echo_prompts_are_asked_visibly() {
    let files = Sshd::start();
    let (mut host, _) = start_auth_server(&files, &[AuthFactor::Prompts(&[PASSWORD, ("Token: ", true)])], false).await;
    host.ssh.password_variable = Some("RIGHT".to_owned());
    let person = Arc::new(ScriptedPrompt::with_answers(&[CODES[2]]));
    let mut settings = files.settings(&person);
    settings.env = Arc::new(|name| (name == "RIGHT").then(|| SECRET.to_owned()));
    SshFleet::new(vec![host], settings).connect(0).await.expect("variable and person together");
    let query = person.questions();
    assert!(query.len() == 1 && query[0].starts_with("in the open: Token (") && query[0].contains("@gpu01"), "{query:?}");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn unanswered_prompt_is_reported_as_refusal() {
    let files = Sshd::start();
    let (host, seen) = start_auth_server(&files, &[AuthFactor::Key, AuthFactor::Prompts(&[CODE])], false).await;
    let (what, _) =
        expect_refusal(SshFleet::new(vec![host], files.settings(&Arc::new(ScriptedPrompt::without_answers()))).connect(0).await);
    assert_eq!(
        what,
        "publickey was accepted but is not sufficient (tried ~/id); the server accepts keyboard-interactive, and no answer was given"
    );
    assert_eq!(attempted_answers(&seen), Vec::<String>::new());
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn preferred_authentications_order_is_used() {
    let files = Sshd::start();
    let (host, seen) = start_auth_server(&files, &[AuthFactor::Password, AuthFactor::Key], false).await;
    files.write("ssh_config", "Host *\n PreferredAuthentications password,publickey\n");
    let person = Arc::new(ScriptedPrompt::with_answers(&[SECRET]));
    SshFleet::new(vec![host.clone()], files.settings(&person)).connect(0).await.expect("the password, then the key");
    assert_eq!(attempted_answers(&seen), [SECRET]);
    files.write("ssh_config", "Host *\n PreferredAuthentications publickey\n");
    let error = SshFleet::new(vec![host], files.settings(&person)).connect(0).await.err().expect("no password may be sent");
    assert!(matches!(&error, RemoteError::Refused { .. }) && error.to_string().contains("the server accepts password"), "{error}");
}
