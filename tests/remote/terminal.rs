//! The program asks the person at a real terminal: passwords, codes and passphrases, none of which is shown.
#![expect(clippy::expect_used, reason = "a test says what it believes")]

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use orchestrate::inventory::Host;

use crate::asks::{CODE, CODES, Factor, PASSWORD, SECRET, serve, tried};
use crate::sshd::{Sshd, keygen, run};

/// The program on a terminal of its own, which util-linux's `script` makes.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    screen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// `exec … -- echo hello` for a host.
    fn exec(files: &Sshd, host: &Host) -> Terminal {
        let ssh = &host.ssh;
        let or = |text: &Option<String>| text.clone().unwrap_or_default();
        let inventory = files.write(
            "inventory.yaml",
            &format!(
                "name: asks\nhosts: [{{name: gpu01, address: 127.0.0.1}}]\nssh:\n  user: {}\n  port: {}\n  identity: {}\n  known_hosts: {}\n  config: {}\n",
                or(&ssh.user),
                ssh.port.unwrap_or(22),
                ssh.identity.first().cloned().unwrap_or_default(),
                or(&ssh.known_hosts),
                files.shown("ssh_config"),
            ),
        );
        let line = format!("{} exec {inventory} -- echo hello", env!("CARGO_BIN_EXE_orchestrate"));
        let started = Command::new("script")
            .args(["-qefc", &line, "/dev/null"])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", files.dir.path())
            .env("XDG_STATE_HOME", files.path("state"))
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child = started.expect("util-linux's `script` is there");
        let (keys, mut shown) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let screen = Arc::<Mutex<Vec<u8>>>::default();
        let all = screen.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count) = shown.read(&mut bytes) {
                if count == 0 {
                    break;
                }
                all.lock().expect("not poisoned").extend_from_slice(&bytes[..count]);
            }
        });
        Terminal { child, keys, screen }
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().expect("not poisoned")).into_owned()
    }

    /// Waits until a text stands there so many times.
    #[track_caller]
    fn reads(&self, text: &str, times: usize) {
        let end = Instant::now() + Duration::from_secs(30);
        while self.shown().matches(text).count() < times {
            assert!(Instant::now() < end, "never {times} × {text:?}:\n{}", self.shown());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn types(&mut self, text: &str) {
        self.keys.write_all(format!("{text}\n").as_bytes()).expect("typed");
    }

    /// What stood there in the end, and its exit status.
    fn end(mut self) -> (String, Option<i32>) {
        let status = self.child.wait().expect("it ends");
        (self.shown(), status.code())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_password_and_a_code_are_typed_unseen() {
    let files = Sshd::start();
    let (host, seen) = serve(&files, &[Factor::Password, Factor::Ask(&[CODE])], false).await;
    let mut terminal = Terminal::exec(&files, &host);
    terminal.reads("and every host that asks the same: ", 1);
    terminal.types("falsch");
    terminal.reads("that was not accepted", 1);
    terminal.reads("and every host that asks the same: ", 2);
    terminal.types(SECRET);
    terminal.reads("Verification code (", 1);
    terminal.types(CODES[0]);
    // The door opens, and behind it is no shell.
    let (shown, _) = terminal.end();
    assert_eq!(tried(&seen), [CODES[0], "falsch", SECRET]);
    for secret in ["falsch", SECRET, CODES[0], "\u{202e}"] {
        assert!(!shown.contains(secret), "{secret:?} is shown:\n{shown}");
    }
}

/// Where the server wants the answer seen, it is; an end of input is nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn what_the_server_wants_seen_is_seen() {
    let files = Sshd::start();
    let (host, seen) = serve(&files, &[Factor::Ask(&[PASSWORD, ("Which door? ", true)])], false).await;
    let mut terminal = Terminal::exec(&files, &host);
    terminal.reads("and every host that asks the same: ", 1);
    terminal.types(SECRET);
    terminal.reads("Which door?", 1);
    terminal.types(CODES[1]);
    let (shown, _) = terminal.end();
    assert_eq!(tried(&seen), [CODES[1], SECRET]);
    assert!(shown.contains(CODES[1]) && !shown.contains(SECRET), "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_passphrase_opens_a_key() {
    let files = Sshd::start();
    keygen(&files.path("locked"), "ed25519", "open sesame");
    run("cp", &[&files.shown("locked.pub"), &files.shown("authorized")]);
    let mut host = files.host("gpu01");
    host.ssh.identity = vec![files.shown("locked")];
    let mut terminal = Terminal::exec(&files, &host);
    terminal.reads("passphrase of ", 1);
    terminal.types("open sesam");
    terminal.reads("wrong passphrase", 1);
    terminal.reads("passphrase of ", 2);
    terminal.types("open sesame");
    let (shown, code) = terminal.end();
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("hello") && !shown.contains("sesam"), "{shown}");
}
