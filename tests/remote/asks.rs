//! Servers that want a password, a question answered, or a key and a password: things that a test cannot ask of the machine's own sshd.
#![expect(clippy::expect_used, reason = "a test says what it believes")]

use std::sync::{Arc, Mutex};

use orchestrate::inventory::Host;
use orchestrate::remote::{Connect, RemoteError, SshFleet};
use russh::keys::PrivateKey;
use russh::server::{Auth, Config, Handler, Response, VerifiedPublicKey};
use russh::{MethodKind, MethodSet};

use crate::need_sshd;
use crate::sshd::{Person, Sshd, refused};

const SECRET: &str = "geheim";

/// What the server wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wants {
    Password,
    Answer,
    KeyThenPassword,
    TwoAnswers,
}

struct Door {
    wants: Wants,
    key_seen: bool,
    tried: Arc<Mutex<Vec<String>>>,
}

impl Door {
    fn still(&self) -> Auth {
        let method = match self.wants {
            Wants::KeyThenPassword if !self.key_seen => MethodKind::PublicKey,
            Wants::Password | Wants::KeyThenPassword => MethodKind::Password,
            Wants::Answer | Wants::TwoAnswers => MethodKind::KeyboardInteractive,
        };
        Auth::Reject { proceed_with_methods: Some(MethodSet::from(&[method][..])), partial_success: self.key_seen }
    }
}

impl Handler for Door {
    type Error = russh::Error;

    async fn auth_none(&mut self, _: &str) -> Result<Auth, russh::Error> {
        Ok(self.still())
    }

    async fn auth_publickey(&mut self, _: &str, _: VerifiedPublicKey<'_>) -> Result<Auth, russh::Error> {
        self.key_seen = self.wants == Wants::KeyThenPassword;
        Ok(self.still())
    }

    async fn auth_password(&mut self, _: &str, password: &str) -> Result<Auth, russh::Error> {
        self.tried.lock().expect("not poisoned").push(password.to_owned());
        let open = password == SECRET && (self.wants == Wants::Password || self.key_seen);
        Ok(if open { Auth::Accept } else { self.still() })
    }

    async fn auth_keyboard_interactive<'a>(&'a mut self, _: &str, _: &str, response: Option<Response<'a>>) -> Result<Auth, russh::Error> {
        let Some(answers) = response else {
            let mut prompts = vec![("Password: ".into(), false)];
            prompts.extend((self.wants == Wants::TwoAnswers).then(|| ("Code: ".into(), true)));
            return Ok(Auth::Partial { name: "".into(), instructions: "".into(), prompts: prompts.into() });
        };
        let answers: Vec<String> = answers.map(|a| String::from_utf8_lossy(&a).into_owned()).collect();
        let open = answers == [SECRET] && self.wants == Wants::Answer;
        self.tried.lock().expect("not poisoned").extend(answers);
        Ok(if open { Auth::Accept } else { self.still() })
    }
}

/// Serves on loopback until the test ends; gives the host that leads there and the secrets that were tried.
async fn serve(files: &Sshd, wants: Wants) -> (Host, Arc<Mutex<Vec<String>>>) {
    let text = std::fs::read_to_string(files.path("host_ed25519")).expect("a key");
    let key: PrivateKey = russh::keys::decode_secret_key(&text, None).expect("a key");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let methods = MethodSet::from(&[MethodKind::PublicKey, MethodKind::Password, MethodKind::KeyboardInteractive][..]);
    let quick = std::time::Duration::from_millis(10);
    let config = Arc::new(Config { keys: vec![key], methods, auth_rejection_time: quick, ..Config::default() });
    let tried = Arc::<Mutex<Vec<String>>>::default();
    let secrets = tried.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let door = Door { wants, key_seen: false, tried: secrets.clone() };
            if let Ok(session) = russh::server::run_stream(config.clone(), stream, door).await {
                tokio::spawn(session);
            }
        }
    });
    let known = files.known("ed25519").replace(&format!("[127.0.0.1]:{}", files.port), &format!("[127.0.0.1]:{port}"));
    let mut host = files.host("gpu01");
    host.ssh.known_hosts = Some(files.write("door", &known));
    host.ssh.port = Some(port);
    (host, tried)
}

#[tokio::test]
async fn one_password_opens_all_hosts() {
    need_sshd!();
    let files = Sshd::start();
    for wants in [Wants::Password, Wants::Answer, Wants::KeyThenPassword] {
        let (mut host, tried) = serve(&files, wants).await;
        let person = Arc::new(Person::saying(&[SECRET]));
        let fleet = SshFleet::new(vec![host.clone(); 3], files.settings(&person));
        let hosts = futures_util::future::join_all((0..3).map(|n| fleet.connect(n))).await;
        let failed: Vec<_> = hosts.iter().filter_map(|h| h.as_ref().err()).collect();
        assert!(failed.is_empty(), "{wants:?} {failed:?}");
        assert_eq!(person.was_asked().len(), 1, "{wants:?}");
        assert_eq!(tried.lock().expect("not poisoned").len(), 3);

        host.ssh.password = Some("RIGHT".to_owned());
        let mut settings = files.settings(&Arc::new(Person::silent()));
        settings.variables = Arc::new(|name| (name == "RIGHT").then(|| SECRET.to_owned()));
        SshFleet::new(vec![host], settings).connect(0).await.unwrap_or_else(|e| panic!("{wants:?}: {e}"));
    }
}

#[tokio::test]
async fn a_wrong_password_is_sent_once_to_each_host() {
    need_sshd!();
    let files = Sshd::start();
    let (host, tried) = serve(&files, Wants::Password).await;
    let person = Arc::new(Person::saying(&["falsch", SECRET]));
    let (what, _) = refused(SshFleet::new(vec![host], files.settings(&person)).connect(0).await);
    assert!(what.contains("a password"), "{what}");
    assert_eq!(*tried.lock().expect("not poisoned"), ["falsch"]);
}

#[tokio::test]
async fn a_code_that_nobody_can_give_is_refused_in_words() {
    need_sshd!();
    let files = Sshd::start();
    let (host, tried) = serve(&files, Wants::TwoAnswers).await;
    let person = Arc::new(Person::saying(&[SECRET]));
    let error = SshFleet::new(vec![host], files.settings(&person)).connect(0).await.err().expect("refused");
    assert!(matches!(&error, RemoteError::Refused { what, .. } if what.contains("two-factor")), "{error}");
    assert!(tried.lock().expect("not poisoned").is_empty());
}
