//! The program prompts in a real terminal: passwords, codes and passphrases, none of which is echoed.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use orchestrate::inventory::InventoryHost;

use crate::interactive_auth::{AuthFactor, CODE, CODES, PASSWORD, SECRET, attempted_answers, start_auth_server};
use crate::sshd::{Sshd, child_pids, generate_key, run_command, wait_until_blocking};

/// The program in a terminal that util-linux's `script` creates.
struct ProgramTerminal {
    child: Child,
    input: ChildStdin,
    screen: Arc<Mutex<Vec<u8>>>,
    /// Ends with the terminal's output.
    reader: std::thread::JoinHandle<()>,
}

impl ProgramTerminal {
    /// Starts `exec … -- echo hello` for a host.
    fn start_exec(files: &Sshd, host: &InventoryHost) -> ProgramTerminal {
        let ssh = &host.ssh;
        let or = |text: &Option<String>| text.clone().unwrap_or_default();
        let inventory = files.write(
            "inventory.yaml",
            &format!(
                "name: asks\nhosts: [{{name: gpu01, address: 127.0.0.1}}]\nssh:\n  user: {}\n  port: {}\n  identity: {}\n  known_hosts: {}\n  config: {}\n  connect_timeout: 60s\n",
                or(&ssh.user),
                ssh.port.unwrap_or(22),
                ssh.identity_files.first().cloned().unwrap_or_default(),
                or(&ssh.known_hosts_file),
                files.path_string("ssh_config"),
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
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count) = shown.read(&mut bytes) {
                if count == 0 {
                    break;
                }
                all.lock().expect("not poisoned").extend_from_slice(&bytes[..count]);
            }
        });
        ProgramTerminal { child, input: keys, screen, reader }
    }

    fn screen_text(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().expect("not poisoned")).into_owned()
    }

    /// Waits until the screen contains the text this many times.
    #[track_caller]
    fn wait_for_text(&self, text: &str, times: usize) {
        let end = Instant::now() + Duration::from_secs(30);
        while self.screen_text().matches(text).count() < times {
            assert!(Instant::now() < end, "never {times} × {text:?}:\n{}", self.screen_text());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for a prompt, and until the terminal no longer shows what is typed: the program prints the prompt first.
    #[track_caller]
    fn wait_for_hidden_prompt(&self, text: &str, times: usize) {
        self.wait_for_text(text, times);
        let program = child_pids(&self.child.id().to_string()).first().cloned().expect("the program");
        let tty = std::fs::File::open(format!("/proc/{program}/fd/0")).expect("its terminal");
        let echoes = || rustix::termios::tcgetattr(&tty).expect("a terminal").local_modes.contains(rustix::termios::LocalModes::ECHO);
        wait_until_blocking("echo is off", || !echoes());
    }

    fn type_line(&mut self, text: &str) {
        self.input.write_all(format!("{text}\n").as_bytes()).expect("typed");
    }

    /// The final screen text and the exit status.
    fn wait_for_exit(self) -> (String, Option<i32>) {
        let ProgramTerminal { mut child, input: _input, screen, reader } = self;
        let status = child.wait().expect("it ends");
        reader.join().expect("it reads to the end");
        let text = String::from_utf8_lossy(&screen.lock().expect("not poisoned")).into_owned();
        (text, status.code())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn password_and_code_are_not_echoed() {
    let files = Sshd::start();
    let (host, seen) = start_auth_server(&files, &[AuthFactor::Password, AuthFactor::Prompts(&[CODE])], false).await;
    let mut terminal = ProgramTerminal::start_exec(&files, &host);
    terminal.wait_for_hidden_prompt("and every host with the same prompt: ", 1);
    terminal.type_line("falsch");
    terminal.wait_for_text("not accepted", 1);
    terminal.wait_for_hidden_prompt("and every host with the same prompt: ", 2);
    terminal.type_line(SECRET);
    terminal.wait_for_hidden_prompt("Verification code (", 1);
    terminal.type_line(CODES[0]);
    // The login succeeds, but the server offers no shell.
    let (shown, _) = terminal.wait_for_exit();
    assert_eq!(attempted_answers(&seen), [CODES[0], "falsch", SECRET]);
    for secret in ["falsch", SECRET, CODES[0], "\u{202e}"] {
        assert!(!shown.contains(secret), "{secret:?} is shown:\n{shown}");
    }
}

/// A prompt with echo shows the answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn echo_prompt_shows_the_answer() {
    let files = Sshd::start();
    let (host, seen) = start_auth_server(&files, &[AuthFactor::Prompts(&[PASSWORD, ("Which door? ", true)])], false).await;
    let mut terminal = ProgramTerminal::start_exec(&files, &host);
    terminal.wait_for_hidden_prompt("and every host with the same prompt: ", 1);
    terminal.type_line(SECRET);
    terminal.wait_for_text("Which door?", 1);
    terminal.type_line(CODES[1]);
    let (shown, _) = terminal.wait_for_exit();
    assert_eq!(attempted_answers(&seen), [CODES[1], SECRET]);
    assert!(shown.contains(CODES[1]) && !shown.contains(SECRET), "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn passphrase_unlocks_key() {
    let files = Sshd::start();
    generate_key(&files.path("locked"), "ed25519", "open sesame");
    run_command("cp", &[&files.path_string("locked.pub"), &files.path_string("authorized")]);
    let mut host = files.host("gpu01");
    host.ssh.identity_files = vec![files.path_string("locked")];
    let mut terminal = ProgramTerminal::start_exec(&files, &host);
    terminal.wait_for_hidden_prompt("passphrase for ", 1);
    terminal.type_line("open sesam");
    // The notice also names the key; it may appear before echo is off again.
    terminal.wait_for_text("wrong passphrase for ", 1);
    terminal.wait_for_hidden_prompt("passphrase for ", 3);
    terminal.type_line("open sesame");
    let (shown, code) = terminal.wait_for_exit();
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("hello") && !shown.contains("sesam"), "{shown}");
}
