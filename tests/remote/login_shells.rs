//! Login shells that are not POSIX shells: sshd passes them every command as `$SHELL -c '<command>'`.

use std::process::{Command, Output, Stdio};

use orchestrate::remote::{ChannelInput, OutputChunk, PtySpec, RemoteError};

use crate::shell_command;
use crate::sshd::{Sshd, current_user};

/// A server whose user has this login shell. A test cannot change its user's shell, so ForceCommand passes the requested command to the shell
/// in the same form as sshd.
fn sshd_with_shell(shell: &str) -> Sshd {
    Sshd::start_with(&format!("ForceCommand exec {shell} -c \"$SSH_ORIGINAL_COMMAND\""), &["ed25519"])
}

const SHELLS: [&str; 3] = ["fish", "tcsh", "busybox ash"];

/// A long script of text that some shell would interpret.
fn awkward_script() -> String {
    let line = "printf '%s|' 'it'\\''s 100% \\ \"$5\" !x !! ~ {a,b} (c) `d` &|' 'é\nnext'; set -- $((1 + 1)); printf '%s\\n' \"$1\" >&2\n";
    line.repeat(2000)
}

#[tokio::test]
#[ignore = "needs sshd, fish, tcsh, busybox: apt-get install openssh-server fish tcsh busybox-static"]
async fn exec_stream_pty_work_with_any_login_shell() {
    let text = "it's 100% \\ \"$5\" !x !! ~ {a,b} (c) `d` &||é\nnext|";
    for shell in SHELLS {
        let sshd = sshd_with_shell(shell);
        let host = sshd.connect().await;
        let out = host.exec(&shell_command(&format!("{}exit 7", awkward_script()))).await.expect("an answer");
        assert_eq!((out.exit_code, out.stdout_text() == text.repeat(2000)), (7, true), "{shell}");
        assert_eq!(String::from_utf8_lossy(&out.stderr).lines().filter(|l| *l == "2").count(), 2000, "{shell}");

        let mut stream =
            host.open_stream(&shell_command("while read -r line; do printf '<%s>\\n' \"$line\"; done; echo over")).await.expect("a stream");
        stream.input.send("it's !x\n".into()).await.expect("it reads");
        drop(stream.input);
        let mut output = String::new();
        while let Some(bytes) = stream.output.recv().await {
            output.push_str(&String::from_utf8_lossy(&bytes.expect("no error")));
        }
        assert_eq!(output, "<it's !x>\nover\n", "{shell}");

        // An interactive command, with and without a terminal.
        for terminal in [None, Some(PtySpec { term: "xterm".to_owned(), columns: 80, rows: 24 })] {
            let script = "printf '%s|' 'it'\\''s !x' '{a,b}'; read -r word; echo \"<$word>\"; exit 5";
            let mut channel = host.open_interactive(&shell_command(script), terminal.clone()).await.expect("a channel");
            channel.input.send(ChannelInput::Bytes("typed\n".into())).await.expect("it reads");
            let mut output = String::new();
            while let Some(piece) = channel.output.recv().await {
                if let OutputChunk::Stdout(bytes) = piece {
                    output.push_str(&String::from_utf8_lossy(&bytes));
                }
            }
            assert!(output.contains("it's !x|{a,b}|") && output.contains("<typed>"), "{shell} {terminal:?}: {output:?}");
            assert_eq!(channel.exit.await.expect("its end").expect("a status"), 5, "{shell} {terminal:?}");
        }
        host.close().await;
    }
}

pub(crate) fn run_orchestrate(sshd: &Sshd, words: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_orchestrate"));
    program.args(words).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    program.env("HOME", sshd.dir.path()).env("XDG_STATE_HOME", sshd.path("state")).stdin(Stdio::null());
    program.output().expect("it runs")
}

/// An inventory of one bare host whose rank prints a line.
fn write_inventory(sshd: &Sshd) -> String {
    sshd.host("gpu01");
    let text = format!(
        "name: shells\nrun_dir: {0}/run\nhosts: [{{name: gpu01, address: 127.0.0.1}}]\n\
         ssh: {{user: {1}, port: {2}, identity: {0}/id, known_hosts: {0}/known, config: {0}/ssh_config, connect_timeout: 60s}}\n\
         teardown: never\nlaunch:\n  with: script\n  master_port: auto\n  gate: none\n  shell: |\n    echo \"it's me\"\n",
        sshd.dir.path().display(),
        current_user(),
        sshd.port
    );
    sshd.write("inventory.yaml", &text)
}

#[tokio::test]
#[ignore = "needs sshd, fish, tcsh, busybox: apt-get install openssh-server fish tcsh busybox-static"]
async fn run_works_with_any_login_shell() {
    for shell in SHELLS {
        let sshd = sshd_with_shell(shell);
        let file = write_inventory(&sshd);
        for (command, expected) in [("up", "it's me"), ("ps", "ended: exit 0"), ("exec", "it's !x {a,b}"), ("down", "gpu01")] {
            let words: &[&str] = if command == "exec" { &["exec", &file, "--", "echo", "it's !x {a,b}"] } else { &[command, &file] };
            let out = run_orchestrate(&sshd, words);
            let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
            assert!(out.status.success() && text.contains(expected), "{shell}: {command}: {:?}\n{text}", out.status);
        }
        assert!(!sshd.path("run/shells").exists(), "{shell}: nothing is left");
    }
}

/// Rc files can take seconds on a busy host. Killing a stream also starts a login shell, and the connection must survive that.
#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn slow_login_shell_does_not_cost_the_connection() {
    let sshd = Sshd::start_with("ForceCommand sleep 6; exec /bin/sh -c \"$SSH_ORIGINAL_COMMAND\"", &["ed25519"]);
    let host = sshd.connect().await;
    let stream = host.open_stream(&shell_command("while sleep 1; do :; done")).await.expect("a stream");
    drop(stream);
    for _ in 0..2 {
        let out = host.exec(&shell_command("echo here")).await.expect("an answer");
        assert_eq!(out.stdout_text(), "here\n");
    }
    host.close().await;
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn restricted_shell_is_refused_with_fix() {
    let sshd = sshd_with_shell("/bin/bash --restricted");
    let host = sshd.connect().await;
    for error in [
        host.exec(&shell_command("true")).await.expect_err("restricted"),
        host.open_stream(&shell_command("true")).await.err().expect("restricted"),
    ] {
        assert!(matches!(error, RemoteError::Refused { .. }) && error.to_string().contains("exec: restricted"), "{error:?}");
        assert!(error.hint().contains("chsh -s /bin/bash"), "{}", error.hint());
    }
    let out = run_orchestrate(&sshd, &["up", &write_inventory(&sshd)]);
    let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(4) && text.contains("the login shell does not run /bin/sh"), "{:?}\n{text}", out.status);
}
