//! `remote` against a real OpenSSH server on loopback.
// The tests read leftover processes and sockets from /proc.
#![cfg(target_os = "linux")]
#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    reason = "the tests use a real server, files, processes and time"
)]

#[path = "remote/sshd.rs"]
mod sshd;
#[path = "../src/plan/test_program.rs"]
mod test_program;

#[path = "remote/agent.rs"]
mod agent;
#[path = "remote/auth_interruptions.rs"]
mod auth_interruptions;
#[path = "remote/broken_servers.rs"]
mod broken_servers;
#[path = "remote/connection_loss.rs"]
mod connection_loss;
#[path = "remote/fake_agent.rs"]
mod fake_agent;
#[path = "remote/faulty_server.rs"]
mod faulty_server;
#[path = "remote/host_certificates.rs"]
mod host_certificates;
#[path = "remote/host_keys.rs"]
mod host_keys;
#[path = "remote/interactive_auth.rs"]
mod interactive_auth;
#[path = "remote/ipv6.rs"]
mod ipv6;
#[path = "remote/login_shells.rs"]
mod login_shells;
#[path = "remote/many_hosts.rs"]
mod many_hosts;
#[path = "remote/proxy_command.rs"]
mod proxy_command;
#[path = "remote/routes.rs"]
mod routes;
#[path = "remote/scripted_prompt.rs"]
mod scripted_prompt;
#[path = "remote/session_limits.rs"]
mod session_limits;
#[path = "remote/tty_prompts.rs"]
mod tty_prompts;
#[path = "remote/user_keys.rs"]
mod user_keys;

use std::time::{Duration, Instant};

use orchestrate::model::remote_command::RemoteCommand;
use orchestrate::model::tcp_reachability::TcpReachability;
use orchestrate::remote::{HostConnector, OutputChunk, RemoteError};
use sshd::Sshd;

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn endless_output_times_out() {
    let sshd = Sshd::start();
    let host = sshd.connect().await;
    let started = Instant::now();
    let error = host.exec(&shell_command_within("exec yes", Duration::from_secs(3))).await.expect_err("endless");
    assert!(matches!(error, RemoteError::Timeout { .. }) && started.elapsed() < Duration::from_secs(30), "{error}");
    assert!(host.exec(&shell_command("true")).await.expect("an answer").is_success());
}

/// A port where nobody listens. A free ephemeral port could be taken by another program at any time.
const CLOSED_PORT: u16 = 1;

fn shell_command(script: &str) -> RemoteCommand {
    RemoteCommand::from_script("a test", script, Duration::from_secs(60))
}

fn shell_command_within(script: &str, timeout: Duration) -> RemoteCommand {
    RemoteCommand::from_script("a test", script, timeout)
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn exec_returns_output_and_status() {
    let sshd = Sshd::start();
    let host = sshd.connect().await;
    let out = host.exec(&shell_command("echo out; echo err >&2; exit 7")).await.expect("an answer");
    assert_eq!((out.exit_code, out.stdout_text().as_str(), String::from_utf8_lossy(&out.stderr).trim()), (7, "out\n", "err"));
    let out = host.exec(&shell_command("kill -9 $$; :")).await;
    assert!(matches!(&out, Err(RemoteError::Truncated { what, .. }) if what.contains("KILL")), "{out:?}");
    let started = Instant::now();
    for _ in 0..20 {
        assert!(host.exec(&shell_command("true")).await.expect("an answer").is_success());
    }
    println!("20 commands in {:?}", started.elapsed());
    host.close().await;
    assert!(host.is_closed());
    assert!(matches!(host.exec(&shell_command("true")).await, Err(RemoteError::Lost { .. })));
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn stream_is_bidirectional_and_ends_with_input() {
    let sshd = Sshd::start();
    let host = sshd.connect().await;
    let script = "while read -r line; do printf '<%s>\\n' \"$line\"; done; echo over";
    let mut stream = host.open_stream(&shell_command(script)).await.expect("a stream");
    let mut text = String::new();
    for n in 0..50 {
        stream.input.send(format!("{n}\n").into()).await.expect("it reads");
        while !text.ends_with(&format!("<{n}>\n")) {
            let bytes = stream.output.recv().await.expect("more").expect("bytes");
            text.push_str(&String::from_utf8_lossy(&bytes));
        }
    }
    drop(stream.input);
    let mut rest = String::new();
    while let Some(bytes) = stream.output.recv().await {
        rest.push_str(&String::from_utf8_lossy(&bytes.expect("no error")));
    }
    assert_eq!(rest, "over\n");
    host.close().await;
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn shell_noise_is_ignored() {
    let noisy = "ForceCommand printf 'Welcome \\036begin- all\\n'; echo motd >&2; $SSH_ORIGINAL_COMMAND; echo bye";
    let sshd = Sshd::start_with(&noisy.replace("$SSH_ORIGINAL_COMMAND", "/bin/sh -s"), &["ed25519"]);
    let host = sshd.connect().await;
    let out = host.exec(&shell_command("printf body; exit 3")).await.expect("an answer");
    assert_eq!((out.exit_code, out.stdout_text().as_str()), (3, "body"));
    let mut stream = host.open_stream(&shell_command("read -r x; echo \"got $x\"")).await.expect("a stream");
    stream.input.send("it\n".into()).await.expect("it reads");
    let bytes = stream.output.recv().await.expect("more").expect("bytes");
    assert!(bytes.starts_with(b"got it\n"), "{bytes:?}");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn forced_command_without_shell_is_truncated_error() {
    let sshd = Sshd::start_with("ForceCommand echo this account is not available; exit 1", &["ed25519"]);
    let host = sshd.connect().await;
    let error = host.exec(&shell_command("true")).await.expect_err("no shell");
    assert!(
        matches!(&error, RemoteError::Truncated { what, .. } if what.contains("not available") && what.contains("status 1")),
        "{error}"
    );
    let error = host.open_stream(&shell_command("true")).await.err().expect("no shell");
    assert!(error.to_string().contains("not available"), "{error}");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn output_is_complete_up_to_limit_then_counted() {
    let sshd = Sshd::start();
    let host = sshd.connect().await;
    let out = host.exec(&shell_command("head -c 8388608 /dev/zero | tr '\\0' x")).await.expect("an answer");
    assert_eq!((out.exit_code, out.stdout.len(), out.dropped_bytes), (0, 8 << 20, 0));
    let out = host.exec(&shell_command("head -c 20000000 /dev/zero; head -c 9000000 /dev/zero >&2; exit 4")).await.expect("an answer");
    let all = out.stdout.len() as u64 + out.stderr.len() as u64 + out.dropped_bytes;
    assert_eq!((out.exit_code, out.stdout.len(), out.stderr.len(), all), (4, 8 << 20, 8 << 20, 29_000_000));
    let long = format!("printf %s {} | wc -c", "y".repeat(3 << 20));
    assert_eq!(host.exec(&shell_command(&long)).await.expect("an answer").stdout_text().trim(), (3 << 20).to_string());
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn slow_reader_applies_backpressure_without_loss() {
    let sshd = Sshd::start();
    let mut inventory = sshd.host("gpu01");
    inventory.ssh.keepalive_interval = Some(Duration::from_secs(2));
    let host = sshd.fleet(vec![inventory]).connect(0).await.expect("connected");
    let (pieces, mut queue) = tokio::sync::mpsc::channel(4);
    let (wrote, size) = (sshd.path_string("wrote"), 100_000_000_u64);
    // Pipes, windows and queues hold little; the remaining output waits longer than a dead host would be allowed to.
    let command = shell_command_within(&format!("yes | head -c {size} | tee {wrote}; echo bye >&2; exit 7"), Duration::from_secs(60));
    let reading = async {
        sshd::wait_until("the command starts", || std::fs::metadata(&wrote).is_ok_and(|file| file.len() > 0)).await;
        tokio::time::sleep(Duration::from_secs(12)).await;
        let before = std::fs::metadata(&wrote).expect("the command has started").len();
        let (mut out, mut err) = (0, Vec::new());
        while let Some(piece) = queue.recv().await {
            match piece {
                OutputChunk::Stdout(bytes) => out += bytes.len() as u64,
                OutputChunk::Stderr(bytes) => err.extend(bytes),
            }
        }
        (before, out, String::from_utf8_lossy(&err).into_owned())
    };
    let (code, (before, out, err)) = tokio::join!(host.exec_streaming(&command, pieces), reading);
    assert_eq!((code.expect("an answer"), out, err.trim()), (7, size, "bye"));
    assert!(before < 40_000_000, "{before} bytes were read from the host without a reader");
    assert!(host.exec(&shell_command("true")).await.expect("an answer").is_success());
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn script_ends_when_its_reader_is_dropped() {
    let sshd = Sshd::start();
    let host = sshd.connect().await;
    let (pieces, mut queue) = tokio::sync::mpsc::channel(4);
    let pid = sshd.path_string("pid");
    let command = shell_command_within(&format!("echo $$ >{pid}; yes"), Duration::from_secs(60));
    let reading = async {
        queue.recv().await.expect("a piece");
        drop(queue);
    };
    let (answer, ()) = tokio::join!(host.exec_streaming(&command, pieces), reading);
    assert!(answer.is_err());
    let pid = std::fs::read_to_string(pid).expect("a pid");
    sshd::wait_until("the script ends", || !std::path::Path::new(&format!("/proc/{}", pid.trim())).exists()).await;
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn timed_out_command_is_killed_connection_survives() {
    let sshd = Sshd::start();
    let host = sshd.connect().await;
    let pid = sshd.path_string("pid");
    let started = Instant::now();
    let error = host.exec(&shell_command_within(&format!("echo $$ >{pid}; sleep 600"), Duration::from_secs(5))).await.expect_err("late");
    assert!(matches!(error, RemoteError::Timeout { .. }), "{error}");
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    assert!(host.exec(&shell_command("true")).await.expect("an answer").is_success());
    let gone = shell_command(&format!(
        "n=0; while [ $n -lt 100 ]; do kill -0 $(cat {pid}) 2>/dev/null || exit 0; sleep 0.2; n=$((n + 1)); done; exit 1"
    ));
    assert!(host.exec(&gone).await.expect("an answer").is_success(), "it still runs");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn dropped_exec_and_stream_leave_no_processes() {
    let sshd = Sshd::start();
    let host = sshd.connect().await;
    let (one, two) = (sshd.path_string("one"), sshd.path_string("two"));
    let command = shell_command(&format!("echo $$ >{one}; exec sleep 600"));
    tokio::select! {
        _ = host.exec(&command) => panic!("it ended"),
        () = sshd::wait_until("the first command runs", || std::fs::read(&one).is_ok_and(|t| !t.is_empty())) => {}
    }
    let stream = host.open_stream(&shell_command(&format!("echo $$ >{two}; exec sleep 600"))).await.expect("a stream");
    sshd::wait_until("the second command runs", || std::fs::read(&two).is_ok_and(|t| !t.is_empty())).await;
    drop(stream);
    for file in [one, two] {
        let pid = std::fs::read_to_string(file).expect("a pid");
        sshd::wait_until("both commands end", || !std::path::Path::new(&format!("/proc/{}", pid.trim())).exists()).await;
    }
    for _ in 0..8 {
        assert!(host.exec(&shell_command("true")).await.expect("an answer").is_success());
    }
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn background_child_does_not_delay_exec() {
    let sshd = Sshd::start();
    let host = sshd.connect().await;
    let started = Instant::now();
    let out = host.exec(&shell_command("sleep 60 & echo done")).await.expect("an answer");
    assert_eq!(out.stdout_text(), "done\n");
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn unread_stream_does_not_block_other_sessions() {
    let sshd = Sshd::start();
    let host = sshd.connect().await;
    let unread = host.open_stream(&shell_command("head -c 30000000 /dev/zero; read -r x")).await.expect("a stream");
    let started = Instant::now();
    for _ in 0..5 {
        assert!(host.exec(&shell_command("true")).await.expect("an answer").is_success());
    }
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    drop(unread);
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn at_most_six_sessions_and_priority_exec_runs() {
    let sshd = Sshd::start_with("MaxSessions 6", &["ed25519"]);
    let host = sshd.connect().await;
    let slow = shell_command("sleep 8");
    let calls = futures_util::future::join_all((0..6).map(|_| async { (host.exec(&slow).await, Instant::now()) }));
    let mut streams = Vec::new();
    for _ in 0..2 {
        streams.push(host.open_stream(&shell_command("read -r x")).await.expect("a stream"));
    }
    // A slow priority command does not delay another one.
    let ending = async { (host.exec_priority(&slow).await, Instant::now()) };
    let urgent = async {
        let out = host.exec_priority(&shell_command("echo now")).await.expect("an answer");
        (out.stdout_text(), Instant::now())
    };
    let (outs, (ended, ended_at), (text, at)) = tokio::join!(calls, ending, urgent);
    assert!(ended.is_ok());
    assert!(outs.iter().all(|(out, _)| out.as_ref().is_ok_and(orchestrate::model::remote_command::CommandOutput::is_success)), "{outs:?}");
    assert!(text == "now\n" && at < ended_at && outs.iter().all(|(_, end)| at < *end));
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn probe_tcp_distinguishes_open_refused_unknown() {
    let sshd = Sshd::start();
    let host = sshd.connect().await;
    let second = Duration::from_secs(5);
    assert_eq!(host.probe_tcp("127.0.0.1", sshd.port, second).await.expect("an answer"), TcpReachability::Open);
    assert_eq!(host.probe_tcp("127.0.0.1", CLOSED_PORT, second).await.expect("an answer"), TcpReachability::Refused);
    assert!(matches!(host.probe_tcp(&"x".repeat(300), 1, second).await, Ok(TcpReachability::Blocked(_) | TcpReachability::Unknown(_))));
    let (_full, port) = sshd::full_backlog_port();
    let late = host.probe_tcp("127.0.0.1", port, Duration::from_millis(300)).await;
    assert!(matches!(late, Ok(TcpReachability::Blocked(_))), "{late:?}");
    assert_eq!(host.probe_tcp("127.0.0.1", sshd.port, second).await.expect("an answer"), TcpReachability::Open);
    let closed = Sshd::start_with("AllowTcpForwarding no", &["ed25519"]);
    let host = closed.connect().await;
    assert!(matches!(host.probe_tcp("127.0.0.1", sshd.port, second).await, Ok(TcpReachability::Unknown(_))));
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn silent_address_does_not_delay_other_probes() {
    let sshd = Sshd::start();
    let host = sshd.connect().await;
    let (_full, silent) = sshd::full_backlog_port();
    let within = Duration::from_secs(5);
    let many =
        |port: u16, n: usize| futures_util::future::join_all((0..n).map(|_| host.probe_tcp("127.0.0.1", port, within)).collect::<Vec<_>>());
    // The probes of the silent address start first.
    let (late, open, refused) = tokio::join!(many(silent, 30), many(sshd.port, 4), many(CLOSED_PORT, 4));
    assert!(late.iter().all(|found| matches!(found, Ok(TcpReachability::Blocked(_)))), "{late:?}");
    assert!(open.iter().all(|found| matches!(found, Ok(TcpReachability::Open))), "{open:?}");
    assert!(refused.iter().all(|found| matches!(found, Ok(TcpReachability::Refused))), "{refused:?}");
}
