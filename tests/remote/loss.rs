//! Death and what it leaves: nothing.
#![expect(clippy::expect_used, clippy::panic, reason = "a test says what it believes")]

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orchestrate::remote::{Connect, RemoteError};

use crate::many::MACHINE;
use crate::odd::nothing_left;
use crate::sshd::{Sshd, run, until};
use crate::{sh, within};

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn every_call_under_way_ends_when_the_connection_does() {
    let sshd = Sshd::start();
    let host = sshd.connect().await;
    let mut stream = host.stream(&sh("sleep 600")).await.expect("a stream");
    let command = sh("echo begun >&2; sleep 600");
    let kill = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        sshd.kill_connections();
    };
    let (result, ()) = tokio::join!(host.exec(&command), kill);
    let error = result.expect_err("lost");
    assert!(matches!(&error, RemoteError::Lost { retry: true, .. }), "{error:?}");
    assert!(matches!(stream.output.recv().await, Some(Err(RemoteError::Lost { .. }))));
    assert!(stream.output.recv().await.is_none());
    until("input is closed", || stream.input.is_closed()).await;
    assert!(host.is_closed());
    let started = Instant::now();
    assert!(matches!(host.exec(&sh("true")).await, Err(RemoteError::Lost { .. })));
    assert!(matches!(host.reach("127.0.0.1", 1, Duration::from_secs(9)).await, Err(RemoteError::Lost { .. })));
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_frozen_host_is_noticed_while_a_writer_is_stuck() {
    let sshd = Sshd::start();
    let mut inventory = sshd.host("gpu01");
    inventory.ssh.keepalive = Some(Duration::from_secs(1));
    let fleet = sshd.fleet(vec![inventory]);
    let host = fleet.connect(0).await.expect("connected");
    let mut stream = host.stream(&sh("sleep 600")).await.expect("a stream");
    for pid in sshd.children() {
        run("kill", &["-STOP", &pid]);
    }
    let started = Instant::now();
    let input = stream.input.clone();
    let chunk = bytes::Bytes::from(vec![0; 1 << 20]);
    let writing = async move { while input.send(chunk.clone()).await.is_ok() {} };
    let command = within("true", Duration::from_secs(60));
    let (result, end, ()) = tokio::join!(host.exec(&command), stream.output.recv(), writing);
    assert!(matches!(result, Err(RemoteError::Lost { .. })), "{result:?}");
    assert!(matches!(end, Some(Err(RemoteError::Lost { .. }))), "{end:?}");
    assert!(started.elapsed() < Duration::from_secs(40), "{:?}", started.elapsed());
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_session_that_does_not_open_ends_the_connection() {
    let sshd = Sshd::start();
    let host = sshd.connect().await;
    for pid in sshd.children() {
        run("kill", &["-STOP", &pid]);
    }
    let error = host.exec(&within("true", Duration::from_millis(500))).await.expect_err("frozen");
    assert!(matches!(error, RemoteError::Timeout { .. }), "{error}");
    until("it is closed", || host.is_closed()).await;
    let started = Instant::now();
    host.close().await;
    assert!(started.elapsed() < Duration::from_secs(3));
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn nothing_is_left_of_connections_that_were_closed_dropped_lost_or_never_made() {
    let _quiet = MACHINE.read().await;
    let sshd = Sshd::start();
    let mut kept = Vec::new();
    for n in 0..12 {
        let host = sshd.connect().await;
        let stream = host.stream(&sh("read -r x")).await.expect("a stream");
        match n % 3 {
            0 => host.close().await,
            1 => drop(stream),
            _ => kept.push((host, stream)),
        }
    }
    sshd.kill_connections();
    until("the lost ones are known", || kept.iter().all(|(host, _)| host.is_closed())).await;
    drop(kept);

    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("bound").port();
    let talker = std::thread::spawn(move || {
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
        assert!(error.to_string().contains("did not finish the key exchange") && error.may_retry(), "{error}");
    }
    nothing_left("all of them", &[sshd.port, port]).await;
    drop(talker.join().expect("ended"));
    until("the server serves nobody", || sshd.children().is_empty()).await;
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_server_that_closes_at_once_is_tried_four_times_and_quoted() {
    let sshd = Sshd::start();
    let door = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = door.local_addr().expect("bound").port();
    let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let seen = count.clone();
    std::thread::spawn(move || {
        for mut stream in door.incoming().flatten() {
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

/// How one of many connections ends.
#[derive(Clone, Copy)]
enum Ending {
    Goodbye,
    Dropped,
    DroppedAtWork,
    ServerKilled,
    ServerStopped,
    Refused,
}

const ENDINGS: [Ending; 10] = {
    use Ending::*;
    [Goodbye, ServerKilled, Dropped, Refused, Goodbye, DroppedAtWork, ServerKilled, Goodbye, ServerStopped, Refused]
};

/// Connects and ends it so.
async fn one(fleet: &orchestrate::remote::SshFleet, at: usize, ending: Ending) {
    let host = match (fleet.connect(at).await, ending) {
        (Err(RemoteError::Refused { .. }), Ending::Refused) => return,
        (host, _) => host.expect("connected"),
    };
    let parent = host.exec(&sh("echo $PPID")).await.expect("an answer").text().trim().to_owned();
    let signal = |name: &str| run("kill", &[name, &parent]);
    let late = within("sleep 600", Duration::from_secs(600));
    match ending {
        Ending::Goodbye => host.close().await,
        Ending::Dropped => {}
        Ending::DroppedAtWork => {
            let stream = host.stream(&sh("read -r x")).await.expect("a stream");
            drop((host, stream));
        }
        Ending::ServerKilled => {
            signal("-KILL");
            assert!(matches!(host.exec(&late).await, Err(RemoteError::Lost { .. })));
        }
        Ending::ServerStopped => {
            signal("-STOP");
            assert!(matches!(host.exec(&late).await, Err(RemoteError::Lost { .. })));
            signal("-CONT");
        }
        Ending::Refused => panic!("a stranger was let in"),
    }
}

/// `ORCH_CONNECTS=1000` for as many; alone in its process it says what else is open.
#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn nothing_is_left_of_many_connects_and_losses() {
    let count: usize = std::env::var("ORCH_CONNECTS").ok().map_or(60, |n| n.parse().expect("a number"));
    let sshd = Sshd::start();
    crate::sshd::keygen(&sshd.path("stranger"), "ed25519", "");
    let host = |ending| {
        let mut host = sshd.host("gpu01");
        match ending {
            Ending::Refused => host.ssh.identity = vec![sshd.shown("stranger")],
            Ending::ServerStopped => host.ssh.keepalive = Some(Duration::from_secs(3)),
            _ => {}
        }
        host
    };
    let fleet = sshd.fleet(ENDINGS.map(host).to_vec());
    // The first of each opens what stays open: the runtime's own, the agent's absence, libraries.
    futures_util::future::join_all((0..ENDINGS.len()).map(|at| one(&fleet, at, ENDINGS[at]))).await;
    nothing_left("the first", &[sshd.port]).await;
    let open = || std::fs::read_dir("/proc/self/fd").expect("proc").count();
    let (before, began) = (open(), Instant::now());
    let mut all = (0..count).map(|n| one(&fleet, n % ENDINGS.len(), ENDINGS[n % ENDINGS.len()])).peekable();
    while all.peek().is_some() {
        futures_util::future::join_all(all.by_ref().take(60)).await;
    }
    let took = began.elapsed();
    nothing_left("all of them", &[sshd.port]).await;
    until("the server serves nobody", || sshd.children().is_empty()).await;
    println!("{count} connects and losses in {took:?}: 0 tasks, {before} open files before and {} after, no process of sshd", open());
}
