//! Servers that close the connection or stop answering during a login.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use orchestrate::inventory::InventoryHost;
use orchestrate::remote::{HostConnector, RemoteError};
use russh::keys::PrivateKey;
use russh::server::{Auth, Config, Handler};
use russh::{Disconnect, MethodKind, MethodSet};

use crate::many_hosts::MACHINE_LOCK;
use crate::sshd::{Sshd, expect_refusal};

/// The server's reaction to the offered keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AuthFault {
    /// Closes at the first key.
    Close,
    /// Refuses one key and closes at the next.
    RefuseThenClose,
    /// Sends a disconnect message and closes.
    CloseWithReason,
    /// Never answers.
    Silent,
    /// Refuses and offers no further method.
    RefuseWithoutMethods,
}

struct FaultyAuthServer {
    fault: AuthFault,
    keys_offered: u32,
}

impl Handler for FaultyAuthServer {
    type Error = russh::Error;

    async fn auth_publickey_offered(&mut self, _: &str, _: russh::server::PublicKeyOffer<'_>) -> Result<Auth, russh::Error> {
        self.keys_offered += 1;
        let refuse = |methods| Ok(Auth::Reject { proceed_with_methods: Some(methods), partial_success: false });
        match self.fault {
            AuthFault::RefuseThenClose if self.keys_offered == 1 => refuse(MethodSet::from(&[MethodKind::PublicKey][..])),
            AuthFault::Close | AuthFault::RefuseThenClose => Err(russh::Error::HUP),
            AuthFault::CloseWithReason | AuthFault::Silent => std::future::pending().await,
            AuthFault::RefuseWithoutMethods => refuse(MethodSet::empty()),
        }
    }
}

async fn start_faulty_auth_server(files: &Sshd, odd: AuthFault) -> (InventoryHost, Arc<AtomicU32>) {
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
            let door = FaultyAuthServer { fault: odd, keys_offered: 0 };
            let config = config.clone();
            tokio::spawn(async move {
                if let Ok(session) = russh::server::run_stream(config, stream, door).await {
                    if odd == AuthFault::CloseWithReason {
                        let handle = session.handle();
                        handle.disconnect(Disconnect::ByApplication, "this host is being\u{1b}[2J mended".into(), String::new()).await.ok();
                    }
                    session.await.ok();
                }
            });
        }
    });
    let known = files.known_hosts_line("ed25519").replace(&format!("[127.0.0.1]:{}", files.port), &format!("[127.0.0.1]:{port}"));
    let mut host = files.host("gpu01");
    host.ssh.identity_files.push(files.path_string("second"));
    host.ssh.known_hosts_file = Some(files.write("door", &known));
    host.ssh.port = Some(port);
    host.ssh.connect_timeout = Some(Duration::from_secs(10));
    (host, came)
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn interrupted_authentication_is_not_a_refusal() {
    let _quiet = MACHINE_LOCK.read().await;
    let files = Sshd::start();
    crate::sshd::generate_key(&files.path("second"), "ed25519", "");
    for (odd, expected, again) in [
        (AuthFault::Close, "closed by the server during authentication", true),
        (AuthFault::RefuseThenClose, "closed by the server during authentication", false),
        (AuthFault::Silent, "no answer during authentication within 10s", true),
    ] {
        let (host, came) = start_faulty_auth_server(&files, odd).await;
        let started = Instant::now();
        let error = files.fleet(vec![host]).connect(0).await.err().expect("not in");
        assert!(matches!(error, RemoteError::Lost { .. }) && error.to_string() == expected, "{odd:?}: {error}");
        assert_eq!(error.is_retryable(), again, "{odd:?}: after a refusal nothing is tried again");
        assert!(started.elapsed() < Duration::from_secs(30), "{odd:?}");
        assert_eq!(came.load(Ordering::SeqCst), 1, "{odd:?}");
    }
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn server_disconnect_message_is_shown() {
    let _quiet = MACHINE_LOCK.read().await;
    let files = Sshd::start();
    crate::sshd::generate_key(&files.path("second"), "ed25519", "");
    let (host, _) = start_faulty_auth_server(&files, AuthFault::CloseWithReason).await;
    let (what, _) = expect_refusal(files.fleet(vec![host]).connect(0).await);
    assert!(what.starts_with("the server ended the login: this host is being [2J mended"), "{what}");
    let (host, _) = start_faulty_auth_server(&files, AuthFault::RefuseWithoutMethods).await;
    let (what, _) = expect_refusal(files.fleet(vec![host]).connect(0).await);
    assert_eq!(what, "key refused (tried ~/id)");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn login_stops_before_sixth_refusal() {
    let files = Sshd::start_with("MaxAuthTries 2", &["ed25519"]);
    files.write("authorized", "");
    let mut host = files.host("gpu01");
    for n in 0..4 {
        crate::sshd::generate_key(&files.path(&format!("key{n}")), "ed25519", "");
        host.ssh.identity_files.push(files.path_string(&format!("key{n}")));
    }
    let (what, hint) = expect_refusal(files.fleet(vec![host]).connect(0).await);
    assert!(what.starts_with("the server ended the login: Too many authentication failures (tried ~/id"), "{what}");
    assert!(hint.contains("IdentitiesOnly"), "{hint}");
    files.wait_for_log("Connection from", 1).await;
}
