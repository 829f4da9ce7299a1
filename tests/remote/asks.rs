//! Servers that want a password, a code, or one thing after another: things that a test cannot ask of the machine's own sshd.
#![expect(clippy::expect_used, reason = "a test says what it believes")]

use std::sync::{Arc, Mutex};

use orchestrate::inventory::Host;
use orchestrate::remote::{Connect, RemoteError, SshFleet};
use russh::keys::PrivateKey;
use russh::server::{Auth, Config, Handler, Response, VerifiedPublicKey};
use russh::{MethodKind, MethodSet};

use crate::sshd::{Person, Sshd, refused};

pub(crate) const SECRET: &str = "geheim";
pub(crate) const CODES: [&str; 4] = ["111111", "222222", "333333", "444444"];
pub(crate) const PASSWORD: (&str, bool) = ("Password: ", false);
pub(crate) const CODE: (&str, bool) = ("\u{1b}[2JVerification code: ", false);

/// What the server wants, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Factor {
    Key,
    Password,
    /// Any key or password, and none is right.
    Either,
    Ask(&'static [(&'static str, bool)]),
}

#[derive(Debug, Clone, Copy)]
struct Rules {
    factors: &'static [Factor],
    /// A code opens one door only, as with a server that all hosts ask.
    once: bool,
}

/// What the doors of one test have seen.
#[derive(Default)]
pub(crate) struct Seen {
    tried: Vec<String>,
    keys: usize,
    used: Vec<String>,
}

struct Door {
    rules: Rules,
    at: usize,
    seen: Arc<Mutex<Seen>>,
}

impl Door {
    fn wants(&self) -> Factor {
        self.rules.factors[self.at]
    }

    fn still(&self, partial_success: bool) -> Auth {
        let methods: &[MethodKind] = match self.wants() {
            Factor::Key => &[MethodKind::PublicKey],
            Factor::Password => &[MethodKind::Password],
            Factor::Either => &[MethodKind::PublicKey, MethodKind::Password],
            Factor::Ask(_) => &[MethodKind::KeyboardInteractive],
        };
        Auth::Reject { proceed_with_methods: Some(MethodSet::from(methods)), partial_success }
    }

    fn judge(&mut self, good: bool) -> Auth {
        if !good {
            return self.still(false);
        }
        self.at += 1;
        if self.at == self.rules.factors.len() { Auth::Accept } else { self.still(true) }
    }

    fn takes(&self, prompt: &str, answer: &str) -> bool {
        let mut seen = self.seen.lock().expect("not poisoned");
        seen.tried.push(answer.to_owned());
        if prompt == PASSWORD.0 {
            return answer == SECRET;
        }
        let fresh = !self.rules.once || !seen.used.iter().any(|u| u == answer);
        seen.used.push(answer.to_owned());
        CODES.contains(&answer) && fresh
    }
}

impl Handler for Door {
    type Error = russh::Error;

    async fn auth_none(&mut self, _: &str) -> Result<Auth, russh::Error> {
        Ok(self.still(false))
    }

    async fn auth_publickey(&mut self, _: &str, _: VerifiedPublicKey<'_>) -> Result<Auth, russh::Error> {
        self.seen.lock().expect("not poisoned").keys += 1;
        let good = self.wants() == Factor::Key;
        Ok(self.judge(good))
    }

    async fn auth_password(&mut self, _: &str, password: &str) -> Result<Auth, russh::Error> {
        let good = self.takes(PASSWORD.0, password) && self.wants() == Factor::Password;
        Ok(self.judge(good))
    }

    async fn auth_keyboard_interactive<'a>(&'a mut self, _: &str, _: &str, response: Option<Response<'a>>) -> Result<Auth, russh::Error> {
        let Factor::Ask(prompts) = self.wants() else { return Ok(self.still(false)) };
        let Some(answers) = response else {
            let prompts: Vec<_> = prompts.iter().map(|(text, echo)| ((*text).into(), *echo)).collect();
            let (name, instructions) = ("".into(), "Your token\r\nis \u{202e}wanted\u{7}".into());
            return Ok(Auth::Partial { name, instructions, prompts: prompts.into() });
        };
        let answers: Vec<String> = answers.map(|a| String::from_utf8_lossy(&a).into_owned()).collect();
        let good: Vec<bool> = prompts.iter().zip(&answers).map(|((prompt, _), answer)| self.takes(prompt, answer)).collect();
        let good = answers.len() == prompts.len() && good.iter().all(|g| *g);
        Ok(self.judge(good))
    }
}

/// Serves on loopback until the test ends; gives the host that leads there and what its doors see.
pub(crate) async fn serve(files: &Sshd, factors: &'static [Factor], once: bool) -> (Host, Arc<Mutex<Seen>>) {
    let text = std::fs::read_to_string(files.path("host_ed25519")).expect("a key");
    let key: PrivateKey = russh::keys::decode_secret_key(&text, None).expect("a key");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let methods = MethodSet::from(&[MethodKind::PublicKey, MethodKind::Password, MethodKind::KeyboardInteractive][..]);
    let quick = std::time::Duration::from_millis(10);
    let config = Arc::new(Config { keys: vec![key], methods, auth_rejection_time: quick, ..Config::default() });
    let seen = Arc::<Mutex<Seen>>::default();
    let doors = seen.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let door = Door { rules: Rules { factors, once }, at: 0, seen: doors.clone() };
            if let Ok(session) = russh::server::run_stream(config.clone(), stream, door).await {
                tokio::spawn(session);
            }
        }
    });
    let known = files.known("ed25519").replace(&format!("[127.0.0.1]:{}", files.port), &format!("[127.0.0.1]:{port}"));
    let mut host = files.host("gpu01");
    host.ssh.known_hosts = Some(files.write("door", &known));
    host.ssh.port = Some(port);
    (host, seen)
}

pub(crate) fn tried(seen: &Mutex<Seen>) -> Vec<String> {
    let mut tried = seen.lock().expect("not poisoned").tried.clone();
    tried.sort();
    tried
}

/// Connects `count` hosts at once; those that failed.
async fn failures(fleet: &SshFleet, count: usize) -> Vec<String> {
    let hosts = futures_util::future::join_all((0..count).map(|n| fleet.connect(n))).await;
    hosts.into_iter().filter_map(|h| h.err().map(|e| e.to_string())).collect()
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn one_password_opens_all_hosts() {
    let files = Sshd::start();
    let ways: [&[Factor]; 4] =
        [&[Factor::Password], &[Factor::Ask(&[PASSWORD])], &[Factor::Key, Factor::Password], &[Factor::Key, Factor::Ask(&[PASSWORD])]];
    for factors in ways {
        let (mut host, seen) = serve(&files, factors, false).await;
        let person = Arc::new(Person::saying(&[SECRET]));
        let fleet = SshFleet::new(vec![host.clone(); 3], files.settings(&person));
        assert_eq!(failures(&fleet, 3).await, Vec::<String>::new(), "{factors:?}");
        assert_eq!((person.was_asked().len(), tried(&seen).len()), (1, 3), "{factors:?}");

        host.ssh.password = Some("RIGHT".to_owned());
        let mut settings = files.settings(&Arc::new(Person::silent()));
        settings.variables = Arc::new(|name| (name == "RIGHT").then(|| SECRET.to_owned()));
        SshFleet::new(vec![host], settings).connect(0).await.unwrap_or_else(|e| panic!("{factors:?}: {e}"));
    }
}

/// Keys and answers together: the last try is for an answer where somebody gives one, else for a key.
#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_host_is_tried_five_times_at_most() {
    let files = Sshd::start();
    let methods: [&[Factor]; 2] = [&[Factor::Either], &[Factor::Password]];
    for (factors, silent, keys, answers) in [(methods[0], false, 4, 1), (methods[0], true, 5, 0), (methods[1], false, 1, 3)] {
        let (mut host, seen) = serve(&files, factors, false).await;
        host.ssh.identity.clear();
        for n in 0..7 {
            let key = files.path(&format!("key{n}"));
            if !key.exists() {
                crate::sshd::keygen(&key, "ed25519", "");
            }
            host.ssh.identity.push(files.shown(&format!("key{n}")));
        }
        let person = Arc::new(if silent { Person::silent() } else { Person::saying(&["a", "b", "c", "d", "e", "f"]) });
        let (what, hint) = refused(SshFleet::new(vec![host], files.settings(&person)).connect(0).await);
        let seen = seen.lock().expect("not poisoned");
        assert_eq!((seen.keys, seen.tried.len()), (keys, answers), "{factors:?}: {what}");
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
async fn a_wrong_password_is_asked_for_again_once_for_all_hosts() {
    let files = Sshd::start();
    for factors in [&[Factor::Password][..], &[Factor::Ask(&[PASSWORD])][..]] {
        let (host, seen) = serve(&files, factors, false).await;
        let person = Arc::new(Person::saying(&["falsch", SECRET]));
        let fleet = SshFleet::new(vec![host.clone(); 3], files.settings(&person));
        assert_eq!(failures(&fleet, 3).await, Vec::<String>::new());
        assert_eq!(tried(&seen), ["falsch", "falsch", "falsch", SECRET, SECRET, SECRET]);
        assert_eq!((person.was_asked().len(), person.was_told().len()), (2, 1 + usize::from(factors[0] != Factor::Password) * 2));

        let (host, seen) = serve(&files, factors, false).await;
        let person = Arc::new(Person::saying(&["a", "b", "c", SECRET]));
        let (what, _) = refused(SshFleet::new(vec![host.clone()], files.settings(&person)).connect(0).await);
        assert!(what.starts_with("login refused (tried ~/id, a password)"), "{what}");
        assert_eq!(tried(&seen), ["a", "b", "c"], "three prompts, as with ssh");

        let (host, seen) = serve(&files, factors, false).await;
        files.write("ssh_config", "Host *\n NumberOfPasswordPrompts 1\n");
        let person = Arc::new(Person::saying(&["falsch", SECRET]));
        refused(SshFleet::new(vec![host.clone()], files.settings(&person)).connect(0).await);
        assert_eq!(tried(&seen), ["falsch"]);
        files.write("ssh_config", "Host *\n BatchMode yes\n");
        refused(SshFleet::new(vec![host], files.settings(&person)).connect(0).await);
        assert_eq!((tried(&seen).len(), person.was_asked().len()), (1, 1), "BatchMode asks nobody");
        files.write("ssh_config", "");
    }
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_password_in_a_variable_is_sent_once() {
    let files = Sshd::start();
    let (mut host, seen) = serve(&files, &[Factor::Ask(&[PASSWORD])], false).await;
    host.ssh.password = Some("SSH_PASSWORD".to_owned());
    let person = Arc::new(Person::saying(&[SECRET]));
    refused(SshFleet::new(vec![host], files.settings(&person)).connect(0).await);
    assert_eq!((tried(&seen), person.was_asked()), (vec!["wrong".to_owned()], Vec::new()));
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_code_serves_all_hosts_that_take_it() {
    let files = Sshd::start();
    let ways: [&[Factor]; 4] = [
        &[Factor::Ask(&[PASSWORD, CODE])],
        &[Factor::Ask(&[PASSWORD]), Factor::Ask(&[CODE])],
        &[Factor::Password, Factor::Ask(&[CODE])],
        &[Factor::Key, Factor::Password, Factor::Ask(&[CODE])],
    ];
    for factors in ways {
        let (host, seen) = serve(&files, factors, false).await;
        let person = Arc::new(Person::saying(&[SECRET, CODES[0]]));
        let fleet = SshFleet::new(vec![host.clone(); 3], files.settings(&person));
        assert_eq!(failures(&fleet, 3).await, Vec::<String>::new(), "{factors:?}");
        assert_eq!(tried(&seen), [CODES[0], CODES[0], CODES[0], SECRET, SECRET, SECRET], "{factors:?}");
        let asked = person.was_asked();
        assert!(asked.len() == 2 && asked[1].starts_with("[2JVerification code (") && !asked[1].contains('\u{1b}'), "{asked:?}");
        assert!(person.was_told().iter().any(|t| t == "gpu01: Your token is wanted"), "{:?}", person.was_told());
    }
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_code_that_is_good_for_one_host_is_asked_for_each() {
    let files = Sshd::start();
    let (host, seen) = serve(&files, &[Factor::Ask(&[PASSWORD, CODE])], true).await;
    let person = Arc::new(Person::saying(&[SECRET, CODES[0], CODES[1], CODES[2], CODES[3]]));
    let fleet = SshFleet::new(vec![host.clone(); 4], files.settings(&person));
    fleet.connect(0).await.expect("the first code is fresh");
    fleet.connect(1).await.expect("the second is asked for when the first was refused");
    fleet.connect(2).await.expect("the third is asked for at once");
    fleet.connect(3).await.expect("the fourth, too");
    let asked = person.was_asked();
    assert_eq!(asked.len(), 5, "one password, four codes: {asked:?}");
    let codes: Vec<String> = tried(&seen).into_iter().filter(|t| t != SECRET).collect();
    assert_eq!(codes, [CODES[0], CODES[0], CODES[1], CODES[2], CODES[3]], "one is refused, and no more");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn what_may_be_seen_is_asked_for_in_the_open() {
    let files = Sshd::start();
    let (mut host, _) = serve(&files, &[Factor::Ask(&[PASSWORD, ("Token: ", true)])], false).await;
    host.ssh.password = Some("RIGHT".to_owned());
    let person = Arc::new(Person::saying(&[CODES[2]]));
    let mut settings = files.settings(&person);
    settings.variables = Arc::new(|name| (name == "RIGHT").then(|| SECRET.to_owned()));
    SshFleet::new(vec![host], settings).connect(0).await.expect("variable and person together");
    let asked = person.was_asked();
    assert!(asked.len() == 1 && asked[0].starts_with("in the open: Token (") && asked[0].contains("@gpu01"), "{asked:?}");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_question_that_nobody_answers_is_refused_in_words() {
    let files = Sshd::start();
    let (host, seen) = serve(&files, &[Factor::Key, Factor::Ask(&[CODE])], false).await;
    let (what, _) = refused(SshFleet::new(vec![host], files.settings(&Arc::new(Person::silent()))).connect(0).await);
    assert_eq!(
        what,
        "publickey was accepted and is not enough (tried ~/id); the server takes keyboard-interactive, and nobody was there to answer"
    );
    assert_eq!(tried(&seen), Vec::<String>::new());
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn the_preferred_way_comes_first() {
    let files = Sshd::start();
    let (host, seen) = serve(&files, &[Factor::Password, Factor::Key], false).await;
    files.write("ssh_config", "Host *\n PreferredAuthentications password,publickey\n");
    let person = Arc::new(Person::saying(&[SECRET]));
    SshFleet::new(vec![host.clone()], files.settings(&person)).connect(0).await.expect("the password, then the key");
    assert_eq!(tried(&seen), [SECRET]);
    files.write("ssh_config", "Host *\n PreferredAuthentications publickey\n");
    let error = SshFleet::new(vec![host], files.settings(&person)).connect(0).await.err().expect("no password may be sent");
    assert!(matches!(&error, RemoteError::Refused { .. }) && error.to_string().contains("the server takes password"), "{error}");
}
