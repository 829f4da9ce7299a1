//! `remote` against a real OpenSSH server on loopback.
// What is left of a process and of a socket is read from /proc.
#![cfg(target_os = "linux")]
#![expect(clippy::disallowed_methods, reason = "the proof is a real server, with files, processes and time")]

#[path = "remote/sshd.rs"]
mod sshd;

#[path = "remote/agent.rs"]
mod agent;
#[path = "remote/asks.rs"]
mod asks;
#[path = "remote/bad.rs"]
mod bad;
#[path = "remote/certs.rs"]
mod certs;
#[path = "remote/keys.rs"]
mod keys;
#[path = "remote/login.rs"]
mod login;
#[path = "remote/loss.rs"]
mod loss;
#[path = "remote/many.rs"]
mod many;
#[path = "remote/midway.rs"]
mod midway;
#[path = "remote/odd.rs"]
mod odd;
#[path = "remote/person.rs"]
mod person;
#[path = "remote/proxy.rs"]
mod proxy;
#[path = "remote/sessions.rs"]
mod sessions;
#[path = "remote/shells.rs"]
mod shells;
#[path = "remote/six.rs"]
mod six;
#[path = "remote/soft_agent.rs"]
mod soft_agent;
#[path = "remote/terminal.rs"]
mod terminal;
#[path = "remote/way.rs"]
mod way;

use std::time::{Duration, Instant};

use orchestrate::remote::{Connect, Piece, Reached, RemoteError};
use orchestrate::shell::Command;
use sshd::Sshd;

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_script_that_never_stops_talking_is_late_as_well() {
    let sshd = Sshd::start();
    let host = sshd.connect().await;
    let started = Instant::now();
    let error = host.exec(&within("exec yes", Duration::from_secs(1))).await.expect_err("endless");
    assert!(matches!(error, RemoteError::Timeout { .. }) && started.elapsed() < Duration::from_secs(30), "{error}");
    assert!(host.exec(&sh("true")).await.expect("an answer").ok());
}

/// A port where nobody listens. A free one from the range of outgoing connections would be anybody's by chance.
const NOBODY: u16 = 1;

fn sh(script: &str) -> Command {
    Command::sh("a test", script, Duration::from_secs(60))
}

fn within(script: &str, timeout: Duration) -> Command {
    Command::sh("a test", script, timeout)
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_script_answers_with_its_output_and_status() {
    let sshd = Sshd::start();
    let host = sshd.connect().await;
    let out = host.exec(&sh("echo out; echo err >&2; exit 7")).await.expect("an answer");
    assert_eq!((out.code, out.text().as_str(), String::from_utf8_lossy(&out.stderr).trim()), (7, "out\n", "err"));
    let out = host.exec(&sh("kill -9 $$; :")).await;
    assert!(matches!(&out, Err(RemoteError::CutOff { what, .. }) if what.contains("KILL")), "{out:?}");
    let started = Instant::now();
    for _ in 0..20 {
        assert!(host.exec(&sh("true")).await.expect("an answer").ok());
    }
    println!("20 commands in {:?}", started.elapsed());
    host.close().await;
    assert!(host.is_closed());
    assert!(matches!(host.exec(&sh("true")).await, Err(RemoteError::Lost { .. })));
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_stream_speaks_both_ways_and_ends_with_its_input() {
    let sshd = Sshd::start();
    let host = sshd.connect().await;
    let script = "while read -r line; do printf '<%s>\\n' \"$line\"; done; echo over";
    let mut stream = host.stream(&sh(script)).await.expect("a stream");
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
async fn noise_around_the_shell_does_no_harm() {
    let noisy = "ForceCommand printf 'Welcome \\036begin- all\\n'; echo motd >&2; $SSH_ORIGINAL_COMMAND; echo bye";
    let sshd = Sshd::with(&noisy.replace("$SSH_ORIGINAL_COMMAND", "/bin/sh -s"), &["ed25519"]);
    let host = sshd.connect().await;
    let out = host.exec(&sh("printf body; exit 3")).await.expect("an answer");
    assert_eq!((out.code, out.text().as_str()), (3, "body"));
    let mut stream = host.stream(&sh("read -r x; echo \"got $x\"")).await.expect("a stream");
    stream.input.send("it\n".into()).await.expect("it reads");
    let bytes = stream.output.recv().await.expect("more").expect("bytes");
    assert!(bytes.starts_with(b"got it\n"), "{bytes:?}");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_forced_command_that_is_no_shell_is_said_to_be_cut_off() {
    let sshd = Sshd::with("ForceCommand echo this account is not available; exit 1", &["ed25519"]);
    let host = sshd.connect().await;
    let error = host.exec(&sh("true")).await.expect_err("no shell");
    assert!(matches!(&error, RemoteError::CutOff { what, .. } if what.contains("not available") && what.contains("status 1")), "{error}");
    let error = host.stream(&sh("true")).await.err().expect("no shell");
    assert!(error.to_string().contains("not available"), "{error}");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn big_answers_are_whole_up_to_the_limit_and_counted_beyond() {
    let sshd = Sshd::start();
    let host = sshd.connect().await;
    let out = host.exec(&sh("head -c 8388608 /dev/zero | tr '\\0' x")).await.expect("an answer");
    assert_eq!((out.code, out.stdout.len(), out.dropped), (0, 8 << 20, 0));
    let out = host.exec(&sh("head -c 20000000 /dev/zero; head -c 9000000 /dev/zero >&2; exit 4")).await.expect("an answer");
    let all = out.stdout.len() as u64 + out.stderr.len() as u64 + out.dropped;
    assert_eq!((out.code, out.stdout.len(), out.stderr.len(), all), (4, 8 << 20, 8 << 20, 29_000_000));
    let long = format!("printf %s {} | wc -c", "y".repeat(3 << 20));
    assert_eq!(host.exec(&sh(&long)).await.expect("an answer").text().trim(), (3 << 20).to_string());
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn output_is_relayed_whole_and_a_reader_that_takes_its_time_makes_the_host_wait() {
    let sshd = Sshd::start();
    let mut inventory = sshd.host("gpu01");
    inventory.ssh.keepalive = Some(Duration::from_secs(1));
    let host = sshd.fleet(vec![inventory]).connect(0).await.expect("connected");
    let (pieces, mut queue) = tokio::sync::mpsc::channel(4);
    let (wrote, size) = (sshd.shown("wrote"), 100_000_000_u64);
    // What was written lies in pipes, windows and queues: they are small, and the rest waits, longer than a dead host would be given.
    let command = within(&format!("yes | head -c {size} | tee {wrote}; echo bye >&2; exit 7"), Duration::from_secs(60));
    let reading = async {
        sshd::until("it began", || std::fs::metadata(&wrote).is_ok_and(|file| file.len() > 0)).await;
        tokio::time::sleep(Duration::from_secs(7)).await;
        let before = std::fs::metadata(&wrote).expect("it began").len();
        let (mut out, mut err) = (0, Vec::new());
        while let Some(piece) = queue.recv().await {
            match piece {
                Piece::Out(bytes) => out += bytes.len() as u64,
                Piece::Err(bytes) => err.extend(bytes),
            }
        }
        (before, out, String::from_utf8_lossy(&err).into_owned())
    };
    let (code, (before, out, err)) = tokio::join!(host.relay(&command, pieces), reading);
    assert_eq!((code.expect("an answer"), out, err.trim()), (7, size, "bye"));
    assert!(before < 40_000_000, "{before} bytes were taken from the host while nobody read");
    assert!(host.exec(&sh("true")).await.expect("an answer").ok());
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_script_whose_reader_is_gone_is_ended() {
    let sshd = Sshd::start();
    let host = sshd.connect().await;
    let (pieces, mut queue) = tokio::sync::mpsc::channel(4);
    let pid = sshd.shown("pid");
    let command = within(&format!("echo $$ >{pid}; yes"), Duration::from_secs(60));
    let reading = async {
        queue.recv().await.expect("a piece");
        drop(queue);
    };
    let (answer, ()) = tokio::join!(host.relay(&command, pieces), reading);
    assert!(answer.is_err());
    let pid = std::fs::read_to_string(pid).expect("a pid");
    sshd::until("it is gone", || !std::path::Path::new(&format!("/proc/{}", pid.trim())).exists()).await;
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_late_command_is_killed_and_the_connection_goes_on() {
    let sshd = Sshd::start();
    let host = sshd.connect().await;
    let pid = sshd.shown("pid");
    let started = Instant::now();
    let error = host.exec(&within(&format!("echo $$ >{pid}; sleep 600"), Duration::from_secs(1))).await.expect_err("late");
    assert!(matches!(error, RemoteError::Timeout { .. }), "{error}");
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    assert!(host.exec(&sh("true")).await.expect("an answer").ok());
    let gone =
        sh(&format!("n=0; while [ $n -lt 100 ]; do kill -0 $(cat {pid}) 2>/dev/null || exit 0; sleep 0.2; n=$((n + 1)); done; exit 1"));
    assert!(host.exec(&gone).await.expect("an answer").ok(), "it still runs");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_dropped_call_and_a_dropped_stream_leave_nothing_running() {
    let sshd = Sshd::start();
    let host = sshd.connect().await;
    let (one, two) = (sshd.shown("one"), sshd.shown("two"));
    let command = sh(&format!("echo $$ >{one}; exec sleep 600"));
    tokio::select! {
        _ = host.exec(&command) => panic!("it ended"),
        () = sshd::until("it runs", || std::fs::read(&one).is_ok_and(|t| !t.is_empty())) => {}
    }
    let stream = host.stream(&sh(&format!("echo $$ >{two}; exec sleep 600"))).await.expect("a stream");
    sshd::until("it runs", || std::fs::read(&two).is_ok_and(|t| !t.is_empty())).await;
    drop(stream);
    for file in [one, two] {
        let pid = std::fs::read_to_string(file).expect("a pid");
        sshd::until("it is gone", || !std::path::Path::new(&format!("/proc/{}", pid.trim())).exists()).await;
    }
    for _ in 0..8 {
        assert!(host.exec(&sh("true")).await.expect("an answer").ok());
    }
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_background_child_that_holds_the_output_does_not_hold_the_answer() {
    let sshd = Sshd::start();
    let host = sshd.connect().await;
    let started = Instant::now();
    let out = host.exec(&sh("sleep 60 & echo done")).await.expect("an answer");
    assert_eq!(out.text(), "done\n");
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn an_unread_stream_does_not_stop_its_neighbours() {
    let sshd = Sshd::start();
    let host = sshd.connect().await;
    let unread = host.stream(&sh("head -c 30000000 /dev/zero; read -r x")).await.expect("a stream");
    let started = Instant::now();
    for _ in 0..5 {
        assert!(host.exec(&sh("true")).await.expect("an answer").ok());
    }
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    drop(unread);
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn six_sessions_are_open_at_most_and_stopping_does_not_wait() {
    let sshd = Sshd::with("MaxSessions 6", &["ed25519"]);
    let host = sshd.connect().await;
    let slow = sh("sleep 8");
    let calls = futures_util::future::join_all((0..6).map(|_| host.exec(&slow)));
    let mut streams = Vec::new();
    for _ in 0..2 {
        streams.push(host.stream(&sh("read -r x")).await.expect("a stream"));
    }
    // An order to end that takes its time does not keep the order to kill waiting.
    let ending = host.urgent(&slow);
    let urgent = async {
        let started = Instant::now();
        let out = host.urgent(&sh("echo now")).await.expect("an answer");
        (out.text(), started.elapsed())
    };
    let (outs, ended, (text, took)) = tokio::join!(calls, ending, urgent);
    assert!(ended.is_ok());
    assert!(outs.iter().all(|o| o.as_ref().is_ok_and(orchestrate::shell::Output::ok)), "{outs:?}");
    assert!(text == "now\n" && took < Duration::from_secs(6), "{took:?}");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn reach_tells_open_from_refused_from_unknown() {
    let sshd = Sshd::start();
    let host = sshd.connect().await;
    let second = Duration::from_secs(5);
    assert_eq!(host.reach("127.0.0.1", sshd.port, second).await.expect("an answer"), Reached::Open);
    assert_eq!(host.reach("127.0.0.1", NOBODY, second).await.expect("an answer"), Reached::Refused);
    assert!(matches!(host.reach(&"x".repeat(300), 1, second).await, Ok(Reached::Blocked(_) | Reached::Untold(_))));
    let (_full, port) = sshd::full_door();
    let late = host.reach("127.0.0.1", port, Duration::from_millis(300)).await;
    assert!(matches!(late, Ok(Reached::Blocked(_))), "{late:?}");
    assert_eq!(host.reach("127.0.0.1", sshd.port, second).await.expect("an answer"), Reached::Open);
    let closed = Sshd::with("AllowTcpForwarding no", &["ed25519"]);
    let host = closed.connect().await;
    assert!(matches!(host.reach("127.0.0.1", sshd.port, second).await, Ok(Reached::Untold(_))));
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn an_address_that_does_not_answer_holds_up_no_other() {
    let sshd = Sshd::start();
    let host = sshd.connect().await;
    let (_full, silent) = sshd::full_door();
    let within = Duration::from_secs(5);
    let many =
        |port: u16, n: usize| futures_util::future::join_all((0..n).map(|_| host.reach("127.0.0.1", port, within)).collect::<Vec<_>>());
    // The silent ones are asked first.
    let (late, open, refused) = tokio::join!(many(silent, 30), many(sshd.port, 4), many(NOBODY, 4));
    assert!(late.iter().all(|found| matches!(found, Ok(Reached::Blocked(_)))), "{late:?}");
    assert!(open.iter().all(|found| matches!(found, Ok(Reached::Open))), "{open:?}");
    assert!(refused.iter().all(|found| matches!(found, Ok(Reached::Refused))), "{refused:?}");
}
