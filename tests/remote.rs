//! `remote` against a real OpenSSH server on loopback.
#![expect(clippy::disallowed_methods, reason = "the proof is a real server, with files, processes and time")]

#[path = "remote/sshd.rs"]
mod sshd;

use std::time::{Duration, Instant};

use orchestrate::remote::{Connect, RemoteError};
use orchestrate::shell::Command;
use sshd::Sshd;

fn sh(script: &str) -> Command {
    Command::sh("a test", script, Duration::from_secs(10))
}

#[tokio::test]
async fn a_script_answers_with_its_output_and_status() {
    need_sshd!();
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
async fn a_stream_speaks_both_ways_and_ends_with_its_input() {
    need_sshd!();
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
async fn a_key_that_is_not_known_is_refused_with_the_line_that_mends_it() {
    need_sshd!();
    let sshd = Sshd::start();
    let mut host = sshd.host("gpu01");
    let empty = sshd.write("empty", "");
    host.ssh.known_hosts = Some(empty);
    let (what, hint) = sshd::refused(sshd.fleet(vec![host.clone()]).connect(0).await);
    assert!(what.contains("SHA256:") && what.contains("gpu01"), "{what}");
    let command = hint.split(": ").nth(1).and_then(|h| h.split("   (or").next()).expect("a command");
    sshd::run("sh", &["-c", command]);
    let fleet = sshd.fleet(vec![host]);
    fleet.connect(0).await.expect("the command mends it").close().await;
}
