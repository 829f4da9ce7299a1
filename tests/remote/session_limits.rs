//! Servers with a low MaxSessions, and streams that exceed the requested output.

use std::time::Duration;

use orchestrate::remote::{ChannelInput, HostConnector, Remote, RemoteError};

use crate::sshd::{Sshd, child_pids, wait_until};
use crate::{shell_command, shell_command_within};

/// Everything that a run has open at once, plus an interactive channel: two commands, two priority commands, two streams.
async fn use_seven_sessions(host: &dyn Remote, sshd: &Sshd) {
    let mut streams = Vec::new();
    for _ in 0..2 {
        streams
            .push(host.open_stream(&shell_command("read -r x; echo \"got $x\"")).await.unwrap_or_else(|e| panic!("{e}\n{}", sshd.log())));
    }
    let mut channel = host.open_interactive(&shell_command("cat"), None).await.expect("a channel");
    // Each command waits for all the others, so all of them must run at the same time.
    let meet = |n: u32| {
        let dir = sshd.path_string("meet");
        shell_command(&format!(
            "mkdir -p {dir}; : >{dir}/{n}; until [ -e {dir}/1 ] && [ -e {dir}/2 ] && [ -e {dir}/3 ] && [ -e {dir}/4 ]; do sleep 0.05; done; echo {n}"
        ))
    };
    let (one, two, three, four) = (meet(1), meet(2), meet(3), meet(4));
    let (one, two, three, four) = tokio::join!(host.exec(&one), host.exec(&two), host.exec_priority(&three), host.exec_priority(&four));
    for (n, out) in [(1, one), (2, two), (3, three), (4, four)] {
        assert_eq!(out.unwrap_or_else(|e| panic!("{n}: {e}\n{}", sshd.log())).stdout_text(), format!("{n}\n"));
    }
    channel.input.send(ChannelInput::Eof).await.expect("it reads");
    while channel.output.recv().await.is_some() {}
    for stream in &mut streams {
        stream.input.send("it\n".into()).await.expect("it reads");
        assert!(stream.output.recv().await.expect("more").expect("bytes").starts_with(b"got it\n"));
    }
    drop(streams);
    // Killing a timed-out script may need a session on another connection.
    let late = host.exec(&shell_command_within("sleep 300", Duration::from_secs(5))).await;
    assert!(matches!(late, Err(RemoteError::Timeout { .. })), "{late:?}");
    for _ in 0..10 {
        assert!(host.exec(&shell_command("true")).await.unwrap_or_else(|e| panic!("{e}\n{}", sshd.log())).is_success());
    }
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn session_limit_opens_additional_connections() {
    for (most, connections) in [(1, 7..=8), (2, 4..=8), (10, 1..=1)] {
        let sshd = Sshd::start_with(&format!("MaxSessions {most}"), &["ed25519"]);
        let host = sshd.connect().await;
        use_seven_sessions(&*host, &sshd).await;
        let made = sshd.log().matches("Accepted publickey").count();
        assert!(connections.contains(&made), "MaxSessions {most}: {made} connections\n{}", sshd.log());
        host.close().await;
        assert!(host.is_closed());
        wait_until("all connections are closed", || sshd.session_pids().is_empty()).await;
    }
}

/// The nodes of a cluster job share the connections of the login node.
#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn hosts_behind_one_login_node_share_its_connections() {
    for (most, connections) in [(10, 2..=2), (1, 12..=13)] {
        let sshd = Sshd::start_with(&format!("MaxSessions {most}"), &["ed25519"]);
        let shared = sshd.shared_by(12);
        let (mut nodes, mut streams) = (Vec::new(), Vec::new());
        for number in 0..12 {
            let node = shared.connect(number).await.unwrap_or_else(|e| panic!("{number}: {e}\n{}", sshd.log()));
            let stream = node.open_stream(&shell_command("read -r x; echo \"got $x\"")).await;
            streams.push(stream.unwrap_or_else(|e| panic!("{number}: {e}\n{}", sshd.log())));
            nodes.push(node);
        }
        // Closing one node does not affect the others.
        nodes.remove(0).close().await;
        for stream in &mut streams {
            stream.input.send("it\n".into()).await.expect("it reads");
            assert!(stream.output.recv().await.expect("more").expect("bytes").starts_with(b"got it\n"));
        }
        let made = sshd.log().matches("Accepted publickey").count();
        assert!(connections.contains(&made), "MaxSessions {most}: {made} connections\n{}", sshd.log());
        for node in nodes {
            node.close().await;
        }
        wait_until("closing the last node closes all connections", || sshd.session_pids().is_empty()).await;
        let again = shared.connect(3).await.unwrap_or_else(|e| panic!("{e}\n{}", sshd.log()));
        assert!(again.exec(&shell_command("true")).await.expect("an answer").is_success());
    }
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn additional_connections_work_behind_jump_host() {
    let (bastion, sshd) = (Sshd::start_with("MaxSessions 0", &["ed25519"]), Sshd::start_with("MaxSessions 1", &["ed25519"]));
    let host = crate::routes::host_behind(&bastion, &sshd);
    let host = sshd.fleet(vec![host]).connect(0).await.unwrap_or_else(|e| panic!("{e}\n{}", bastion.log()));
    use_seven_sessions(&*host, &sshd).await;
    assert_eq!(bastion.log().matches("Accepted publickey").count(), 1, "{}", bastion.log());
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn flooding_stream_is_cut_others_continue() {
    let sshd = Sshd::start();
    let host = sshd.connect().await;
    let mut flood = host.open_stream(&shell_command("yes").with_output_limit(1 << 20)).await.expect("a stream");
    // The stream is unread: at most its output limit is buffered, and other commands on the connection still run.
    let first = flood.output.recv().await.expect("more").expect("bytes");
    wait_until("the command is killed", || !has_descendant("yes", &sshd)).await;
    assert!(host.exec(&shell_command("true")).await.expect("an answer").is_success());
    let mut waited = first.len();
    let error = loop {
        match flood.output.recv().await.expect("an end of the stream") {
            Ok(bytes) => waited += bytes.len(),
            Err(error) => break error,
        }
    };
    assert!(waited <= (1 << 20) + first.len(), "{waited}");
    assert!(matches!(&error, RemoteError::Protocol { what } if what.contains("1024 KiB more than requested")), "{error:?}");
}

/// Whether a program of this name runs below the server.
fn has_descendant(name: &str, sshd: &Sshd) -> bool {
    let mut open = sshd.session_pids();
    while let Some(pid) = open.pop() {
        if std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name) {
            return true;
        }
        open.extend(child_pids(&pid));
    }
    false
}
