//! Few sessions a connection, and streams that bring more than was asked for.
#![expect(clippy::expect_used, clippy::panic, reason = "the proof is a real server, driven by helpers of a test")]

use std::time::Duration;

use orchestrate::remote::{Connect, Remote, RemoteError, Told};

use crate::sshd::{Sshd, children, until};
use crate::{sh, within};

/// Everything that a run has open at once, and a talk: two commands, two orders, two streams.
async fn needs_seven_sessions(host: &dyn Remote, sshd: &Sshd) {
    let mut streams = Vec::new();
    for _ in 0..2 {
        streams.push(host.stream(&sh("read -r x; echo \"got $x\"")).await.unwrap_or_else(|e| panic!("{e}\n{}", sshd.log())));
    }
    let mut talk = host.talk(&sh("cat"), None).await.expect("a talk");
    // Each waits for all the others, so that they must be there at once.
    let meet = |n: u32| {
        let dir = sshd.shown("meet");
        sh(&format!(
            "mkdir -p {dir}; : >{dir}/{n}; until [ -e {dir}/1 ] && [ -e {dir}/2 ] && [ -e {dir}/3 ] && [ -e {dir}/4 ]; do sleep 0.05; done; echo {n}"
        ))
    };
    let (one, two, three, four) = (meet(1), meet(2), meet(3), meet(4));
    let (one, two, three, four) = tokio::join!(host.exec(&one), host.exec(&two), host.urgent(&three), host.urgent(&four));
    for (n, out) in [(1, one), (2, two), (3, three), (4, four)] {
        assert_eq!(out.unwrap_or_else(|e| panic!("{n}: {e}\n{}", sshd.log())).text(), format!("{n}\n"));
    }
    talk.input.send(Told::End).await.expect("it reads");
    while talk.output.recv().await.is_some() {}
    for stream in &mut streams {
        stream.input.send("it\n".into()).await.expect("it reads");
        assert!(stream.output.recv().await.expect("more").expect("bytes").starts_with(b"got it\n"));
    }
    drop(streams);
    // A script that is to be killed may have to be killed by a session of another connection.
    let late = host.exec(&within("sleep 300", Duration::from_millis(300))).await;
    assert!(matches!(late, Err(RemoteError::Timeout { .. })), "{late:?}");
    for _ in 0..10 {
        assert!(host.exec(&sh("true")).await.unwrap_or_else(|e| panic!("{e}\n{}", sshd.log())).ok());
    }
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn where_a_server_opens_few_sessions_further_connections_serve() {
    for (most, connections) in [(1, 7..=8), (2, 4..=8), (10, 1..=1)] {
        let sshd = Sshd::with(&format!("MaxSessions {most}"), &["ed25519"]);
        let host = sshd.connect().await;
        needs_seven_sessions(&*host, &sshd).await;
        let made = sshd.log().matches("Accepted publickey").count();
        assert!(connections.contains(&made), "MaxSessions {most}: {made} connections\n{}", sshd.log());
        host.close().await;
        assert!(host.is_closed());
        until("all connections are closed", || sshd.children().is_empty()).await;
    }
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn further_connections_serve_behind_a_jump_host_too() {
    let (bastion, sshd) = (Sshd::with("MaxSessions 0", &["ed25519"]), Sshd::with("MaxSessions 1", &["ed25519"]));
    sshd.write("ssh_config", &crate::way::jumps(&bastion));
    bastion.host("known");
    let mut host = sshd.host("gpu01");
    host.ssh.known_hosts = Some(sshd.write("both", &(sshd.known("ed25519") + &bastion.known("ed25519"))));
    host.ssh.jump = Some(vec!["outer".to_owned()]);
    let host = sshd.fleet(vec![host]).connect(0).await.unwrap_or_else(|e| panic!("{e}\n{}", bastion.log()));
    needs_seven_sessions(&*host, &sshd).await;
    assert_eq!(bastion.log().matches("Accepted publickey").count(), 1, "{}", bastion.log());
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_host_that_sends_more_than_was_asked_for_is_cut_off_and_the_rest_goes_on() {
    let sshd = Sshd::start();
    let host = sshd.connect().await;
    let mut flood = host.stream(&sh("yes").keeping(1 << 20)).await.expect("a stream");
    // Nobody reads it: what waits stays within its bytes, and other commands of the connection go on meanwhile.
    let first = flood.output.recv().await.expect("more").expect("bytes");
    until("it is killed", || !host_runs("yes", &sshd)).await;
    assert!(host.exec(&sh("true")).await.expect("an answer").ok());
    let mut waited = first.len();
    let error = loop {
        match flood.output.recv().await.expect("an end that is told") {
            Ok(bytes) => waited += bytes.len(),
            Err(error) => break error,
        }
    };
    assert!(waited <= (1 << 20) + first.len(), "{waited}");
    assert!(matches!(&error, RemoteError::Protocol { what } if what.contains("1024 KiB more than was asked for")), "{error:?}");
}

/// Whether a program runs below a server.
fn host_runs(name: &str, sshd: &Sshd) -> bool {
    let mut open = sshd.children();
    while let Some(pid) = open.pop() {
        if std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name) {
            return true;
        }
        open.extend(children(&pid));
    }
    false
}
