//! Servers that end, or stop, in the midst of a login.
#![expect(clippy::expect_used, reason = "a test says what it believes")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use orchestrate::inventory::Host;
use orchestrate::remote::{Connect, RemoteError};
use russh::keys::PrivateKey;
use russh::server::{Auth, Config, Handler};
use russh::{Disconnect, MethodKind, MethodSet};

use crate::many::MACHINE;
use crate::sshd::{Sshd, refused};

/// What the server does when the second key is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Odd {
    /// It closes at the first key.
    Closes,
    /// It refuses one key and closes at the next.
    RefusesAndCloses,
    /// It says why and closes.
    SaysWhy,
    /// It never answers.
    Silent,
    /// It refuses, and names no way to go on.
    NamesNoWay,
}

struct Door {
    odd: Odd,
    keys: u32,
}

impl Handler for Door {
    type Error = russh::Error;

    async fn auth_publickey_offered(&mut self, _: &str, _: russh::server::PublicKeyOffer<'_>) -> Result<Auth, russh::Error> {
        self.keys += 1;
        let refuse = |methods| Ok(Auth::Reject { proceed_with_methods: Some(methods), partial_success: false });
        match self.odd {
            Odd::RefusesAndCloses if self.keys == 1 => refuse(MethodSet::from(&[MethodKind::PublicKey][..])),
            Odd::Closes | Odd::RefusesAndCloses => Err(russh::Error::HUP),
            Odd::SaysWhy | Odd::Silent => std::future::pending().await,
            Odd::NamesNoWay => refuse(MethodSet::empty()),
        }
    }
}

async fn serve(files: &Sshd, odd: Odd) -> (Host, Arc<AtomicU32>) {
    let text = std::fs::read_to_string(files.path("host_ed25519")).expect("a key");
    let key: PrivateKey = russh::keys::decode_secret_key(&text, None).expect("a key");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let quick = Duration::from_millis(10);
    let config = Arc::new(Config { keys: vec![key], auth_rejection_time: quick, ..Config::default() });
    let came = Arc::new(AtomicU32::new(0));
    let count = came.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            let door = Door { odd, keys: 0 };
            let config = config.clone();
            tokio::spawn(async move {
                if let Ok(session) = russh::server::run_stream(config, stream, door).await {
                    if odd == Odd::SaysWhy {
                        let handle = session.handle();
                        handle.disconnect(Disconnect::ByApplication, "this host is being\u{1b}[2J mended".into(), String::new()).await.ok();
                    }
                    session.await.ok();
                }
            });
        }
    });
    let known = files.known("ed25519").replace(&format!("[127.0.0.1]:{}", files.port), &format!("[127.0.0.1]:{port}"));
    let mut host = files.host("gpu01");
    host.ssh.identity.push(files.shown("second"));
    host.ssh.known_hosts = Some(files.write("door", &known));
    host.ssh.port = Some(port);
    host.ssh.connect_timeout = Some(Duration::from_secs(10));
    (host, came)
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_server_that_closes_or_stops_during_authentication_is_no_refusal() {
    let _quiet = MACHINE.read().await;
    let files = Sshd::start();
    crate::sshd::keygen(&files.path("second"), "ed25519", "");
    for (odd, says, again) in [
        (Odd::Closes, "closed by the server during authentication", true),
        (Odd::RefusesAndCloses, "closed by the server during authentication", false),
        (Odd::Silent, "no answer during authentication within 10s", true),
    ] {
        let (host, came) = serve(&files, odd).await;
        let started = Instant::now();
        let error = files.fleet(vec![host]).connect(0).await.err().expect("not in");
        assert!(matches!(error, RemoteError::Lost { .. }) && error.to_string() == says, "{odd:?}: {error}");
        assert_eq!(error.may_retry(), again, "{odd:?}: after a refusal nothing is tried again");
        assert!(started.elapsed() < Duration::from_secs(30), "{odd:?}");
        assert_eq!(came.load(Ordering::SeqCst), 1, "{odd:?}");
    }
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn what_the_server_says_at_the_end_is_told() {
    let _quiet = MACHINE.read().await;
    let files = Sshd::start();
    crate::sshd::keygen(&files.path("second"), "ed25519", "");
    let (host, _) = serve(&files, Odd::SaysWhy).await;
    let (what, _) = refused(files.fleet(vec![host]).connect(0).await);
    assert!(what.starts_with("the server ended the login: this host is being [2J mended"), "{what}");
    let (host, _) = serve(&files, Odd::NamesNoWay).await;
    let (what, _) = refused(files.fleet(vec![host]).connect(0).await);
    assert_eq!(what, "key refused (tried ~/id)");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn the_sixth_refusal_never_comes() {
    let files = Sshd::with("MaxAuthTries 2", &["ed25519"]);
    files.write("authorized", "");
    let mut host = files.host("gpu01");
    for n in 0..4 {
        crate::sshd::keygen(&files.path(&format!("key{n}")), "ed25519", "");
        host.ssh.identity.push(files.shown(&format!("key{n}")));
    }
    let (what, hint) = refused(files.fleet(vec![host]).connect(0).await);
    assert!(what.starts_with("the server ended the login: Too many authentication failures (tried ~/id"), "{what}");
    assert!(hint.contains("IdentitiesOnly"), "{hint}");
    files.logs("Connection from", 1).await;
}
