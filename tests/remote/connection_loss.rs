//! Lost connections end every call and leave nothing.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orchestrate::remote::{HostConnector, RemoteError};

use crate::faulty_server::assert_nothing_left;
use crate::many_hosts::MACHINE_LOCK;
use crate::sshd::{Sshd, run_command, wait_until};
use crate::{shell_command, shell_command_within};

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn connection_loss_ends_every_pending_call() {
    let sshd = Sshd::start();
    let host = sshd.connect().await;
    let mut stream = host.open_stream(&shell_command("sleep 600")).await.expect("a stream");
    let command = shell_command("echo begun >&2; sleep 600");
    let kill = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        sshd.kill_connections();
    };
    let (result, ()) = tokio::join!(host.exec(&command), kill);
    let error = result.expect_err("lost");
    assert!(matches!(&error, RemoteError::Lost { retry: true, .. }), "{error:?}");
    assert!(matches!(stream.output.recv().await, Some(Err(RemoteError::Lost { .. }))));
    assert!(stream.output.recv().await.is_none());
    wait_until("input is closed", || stream.input.is_closed()).await;
    assert!(host.is_closed());
    let started = Instant::now();
    assert!(matches!(host.exec(&shell_command("true")).await, Err(RemoteError::Lost { .. })));
    assert!(matches!(host.probe_tcp("127.0.0.1", 1, Duration::from_secs(9)).await, Err(RemoteError::Lost { .. })));
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn frozen_host_is_detected_despite_blocked_writer() {
    let sshd = Sshd::start();
    let mut inventory = sshd.host("gpu01");
    inventory.ssh.keepalive_interval = Some(Duration::from_secs(1));
    let fleet = sshd.fleet(vec![inventory]);
    let host = fleet.connect(0).await.expect("connected");
    let mut stream = host.open_stream(&shell_command("sleep 600")).await.expect("a stream");
    for pid in sshd.session_pids() {
        run_command("kill", &["-STOP", &pid]);
    }
    let started = Instant::now();
    let input = stream.input.clone();
    let chunk = bytes::Bytes::from(vec![0; 1 << 20]);
    let writing = async move { while input.send(chunk.clone()).await.is_ok() {} };
    let command = shell_command_within("true", Duration::from_secs(60));
    let (result, end, ()) = tokio::join!(host.exec(&command), stream.output.recv(), writing);
    assert!(matches!(result, Err(RemoteError::Lost { .. })), "{result:?}");
    assert!(matches!(end, Some(Err(RemoteError::Lost { .. }))), "{end:?}");
    assert!(started.elapsed() < Duration::from_secs(40), "{:?}", started.elapsed());
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn unopened_session_closes_the_connection() {
    let sshd = Sshd::start();
    let host = sshd.connect().await;
    for pid in sshd.session_pids() {
        run_command("kill", &["-STOP", &pid]);
    }
    let error = host.exec(&shell_command_within("true", Duration::from_millis(500))).await.expect_err("frozen");
    assert!(matches!(error, RemoteError::Timeout { .. }), "{error}");
    wait_until("the connection is closed", || host.is_closed()).await;
    let started = Instant::now();
    host.close().await;
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn ended_connections_leave_no_resources() {
    let _quiet = MACHINE_LOCK.read().await;
    let sshd = Sshd::start();
    let mut kept = Vec::new();
    for n in 0..12 {
        let host = sshd.connect().await;
        let stream = host.open_stream(&shell_command("read -r x")).await.expect("a stream");
        match n % 3 {
            0 => host.close().await,
            1 => drop(stream),
            _ => kept.push((host, stream)),
        }
    }
    sshd.kill_connections();
    wait_until("the losses are noticed", || kept.iter().all(|(host, _)| host.is_closed())).await;
    drop(kept);

    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("bound").port();
    let server = std::thread::spawn(move || {
        let mut held = Vec::new();
        for stream in silent.incoming().take(5).flatten() {
            let mut stream = stream;
            stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").expect("written");
            held.push(stream);
        }
        held
    });
    let mut host = sshd.host("gpu01");
    host.ssh.port = Some(port);
    host.ssh.connect_timeout = Some(Duration::from_secs(3));
    let fleet = sshd.fleet(vec![host; 5]);
    let results = futures_util::future::join_all((0..5).map(|n| fleet.connect(n))).await;
    for result in results {
        let error = result.err().expect("silent");
        assert!(error.to_string().contains(" within 3s") && error.is_retryable(), "{error}");
    }
    assert_nothing_left("all of them", &[sshd.port, port]).await;
    drop(server.join().expect("ended"));
    wait_until("the server has no connections", || sshd.session_pids().is_empty()).await;
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn immediately_closing_server_gets_four_attempts() {
    let sshd = Sshd::start();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let seen = count.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            seen.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            stream.write_all(b"Not allowed at this time\r\n").ok();
        }
    });
    let mut host = sshd.host("gpu01");
    host.ssh.port = Some(port);
    let error = sshd.fleet(vec![host]).connect(0).await.err().expect("closed");
    assert!(matches!(error, RemoteError::Lost { retry: true, .. }), "{error:?}");
    assert!(error.to_string().contains("Not allowed at this time") || error.to_string().contains("reset"), "{error}");
    assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), 4);
}

/// How a connection ends.
#[derive(Clone, Copy)]
enum ConnectionEnding {
    Closed,
    Dropped,
    DroppedWhileBusy,
    ServerKilled,
    ServerStopped,
    Refused,
}

const ENDINGS: [ConnectionEnding; 10] = {
    use ConnectionEnding::*;
    [Closed, ServerKilled, Dropped, Refused, Closed, DroppedWhileBusy, ServerKilled, Closed, ServerStopped, Refused]
};

/// Connects and ends the connection in this way.
async fn connect_and_end(fleet: &orchestrate::remote::SshFleet, at: usize, ending: ConnectionEnding) {
    let host = match (fleet.connect(at).await, ending) {
        (Err(RemoteError::Refused { .. }), ConnectionEnding::Refused) => return,
        (host, _) => host.expect("connected"),
    };
    let parent = host.exec(&shell_command("echo $PPID")).await.expect("an answer").stdout_text().trim().to_owned();
    let signal = |name: &str| run_command("kill", &[name, &parent]);
    let late = shell_command_within("sleep 600", Duration::from_secs(600));
    match ending {
        ConnectionEnding::Closed => host.close().await,
        ConnectionEnding::Dropped => {}
        ConnectionEnding::DroppedWhileBusy => {
            let stream = host.open_stream(&shell_command("read -r x")).await.expect("a stream");
            drop((host, stream));
        }
        ConnectionEnding::ServerKilled => {
            signal("-KILL");
            assert!(matches!(host.exec(&late).await, Err(RemoteError::Lost { .. })));
        }
        ConnectionEnding::ServerStopped => {
            signal("-STOP");
            assert!(matches!(host.exec(&late).await, Err(RemoteError::Lost { .. })));
            signal("-CONT");
        }
        ConnectionEnding::Refused => panic!("an unknown key was accepted"),
    }
}

/// `ORCH_CONNECTS=1000` sets the number of connections. If it is the only test of its process, the printed file counts are its own.
#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn repeated_connections_leak_nothing() {
    let count: usize = std::env::var("ORCH_CONNECTS").ok().map_or(60, |n| n.parse().expect("a number"));
    let sshd = Sshd::start();
    crate::sshd::generate_key(&sshd.path("stranger"), "ed25519", "");
    let host = |ending| {
        let mut host = sshd.host("gpu01");
        match ending {
            ConnectionEnding::Refused => host.ssh.identity_files = vec![sshd.path_string("stranger")],
            ConnectionEnding::ServerStopped => host.ssh.keepalive_interval = Some(Duration::from_secs(3)),
            _ => {}
        }
        host
    };
    let fleet = sshd.fleet(ENDINGS.map(host).to_vec());
    // The first connection of each kind opens files that stay open: those of the runtime and of libraries.
    futures_util::future::join_all((0..ENDINGS.len()).map(|at| connect_and_end(&fleet, at, ENDINGS[at]))).await;
    assert_nothing_left("the first", &[sshd.port]).await;
    let open = || std::fs::read_dir("/proc/self/fd").expect("proc").count();
    let (before, began) = (open(), Instant::now());
    let mut all = (0..count).map(|n| connect_and_end(&fleet, n % ENDINGS.len(), ENDINGS[n % ENDINGS.len()])).peekable();
    while all.peek().is_some() {
        futures_util::future::join_all(all.by_ref().take(60)).await;
    }
    let took = began.elapsed();
    assert_nothing_left("all of them", &[sshd.port]).await;
    wait_until("the server has no connections", || sshd.session_pids().is_empty()).await;
    println!("{count} connects and losses in {took:?}: 0 tasks, {before} open files before and {} after, no process of sshd", open());
}
