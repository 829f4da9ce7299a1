//! Servers that misbehave at every stage: each is named with its host and hop within its deadline, and nothing is left of it.
#![expect(clippy::expect_used, reason = "a test says what it believes")]

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use orchestrate::inventory::Host;
use orchestrate::remote::{Connect, RemoteError};

use crate::many::MACHINE;
use crate::odd::{Cut, Door, Odd, nothing_left};
use crate::sshd::{Sshd, until};
use crate::within;

/// The connect timeout of these tests.
const WITHIN: Duration = Duration::from_secs(6);

fn at(sshd: &Sshd, port: u16) -> Host {
    let mut host = sshd.host("gpu07");
    host.ssh.port = Some(port);
    host.ssh.connect_timeout = Some(WITHIN);
    // The key is known under the real port, and that is the name it is asked for.
    sshd.write("ssh_config", &format!("Host gpu07\n HostKeyAlias [127.0.0.1]:{}\n{}", sshd.port, crate::way::jumps(sshd)));
    host
}

/// Connects and expects an error that names the host and its port, in time.
async fn named(sshd: &Sshd, host: Host) -> String {
    let port = host.ssh.port.expect("a port");
    let began = Instant::now();
    let error = sshd.fleet(vec![host]).connect(0).await.err().expect("it does not come about");
    let (text, took) = (error.to_string(), began.elapsed());
    assert!(text.contains(&format!("port {port}: ")), "{text}");
    // At most: a try, the waits before the others, and a last one.
    assert!(took < 2 * WITHIN + Duration::from_secs(4), "{text}: {took:?}");
    assert!(!matches!(error, RemoteError::Timeout { .. }), "{text}");
    text
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn what_is_no_ssh_server_is_quoted_in_time_and_leaves_nothing() {
    let _quiet = MACHINE.read().await;
    let sshd = Sshd::start();
    sshd.connect().await.close().await;
    for (odd, says) in [
        (Odd::Silent, "it took the connection and said nothing within 6s"),
        (Odd::Says(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()), "it did not finish the key exchange within 6s"),
        (Odd::Says(b"220 mail ESMTP\r\n".to_vec()), "it said “220 mail ESMTP” and no SSH greeting within 6s"),
        (Odd::Says(b"SSH-1.5-Cisco-1.25\r\n".to_vec()), "it speaks only SSH 1 (“SSH-1.5-Cisco-1.25”)"),
        (Odd::SaysAndCloses(b"SSH-1.5-Cisco-1.25\n".to_vec()), "it speaks only SSH 1"),
        (Odd::SaysAndCloses(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()), "during the key exchange"),
        (Odd::SaysAndCloses(Vec::new()), "closed by the other end, without a word"),
        (Odd::SaysAndCloses(b"Exceeded MaxStartups\r\n".to_vec()), "it said “Exceeded MaxStartups” and closed"),
        (Odd::SaysAndCloses(disconnect("too many of you\x1b[2J")), "the host said: too many of you [2J"),
        (Odd::Repeats(b"come in, come in\r\n".to_vec()), "what listens there is no SSH server; it said “come in, come in”"),
        (Odd::Repeats(vec![0x80, 0xfe, 7, 0, 0x1b]), "what listens there is no SSH server"),
        (Odd::Repeats([b"SSH-2.0-x\r\n".as_slice(), &[0xff; 64]].concat()), "during the key exchange"),
    ] {
        let text = odd.name();
        let server = odd.serve();
        let said = named(&sshd, at(&sshd, server.port)).await;
        assert!(said.contains(says), "{text}: {said}");
        nothing_left(&text, &[server.port]).await;
    }
}

/// SSH_MSG_DISCONNECT in the clear, behind a greeting.
fn disconnect(message: &str) -> Vec<u8> {
    let string = |text: &str| [&u32::try_from(text.len()).expect("short").to_be_bytes()[..], text.as_bytes()].concat();
    let payload = [&[1_u8][..], &2_u32.to_be_bytes(), &string(message), &string("")].concat();
    let padding = 8 + (8 - (5 + payload.len()) % 8) % 8;
    let length = u32::try_from(1 + payload.len() + padding).expect("short");
    let head = [&length.to_be_bytes()[..], &[u8::try_from(padding).expect("small")]].concat();
    [b"SSH-2.0-OpenSSH_9.2\r\n".as_slice(), &head, &payload, &vec![0; padding]].concat()
}

/// A real server whose bytes stop at every place of the greeting, the key exchange and the authentication.
async fn at_every_place(cut: impl Fn(usize) -> Cut, says: &[&str]) {
    let sshd = Sshd::start();
    sshd.connect().await.close().await;
    let places: Vec<usize> = (0..).step_by(157).take(12).collect();
    let (mut stopped, mut texts) = (0, Vec::new());
    for some in places.chunks(4) {
        let doors: Vec<Door> = some.iter().map(|place| cut(*place).before(sshd.port)).collect();
        let fleet = sshd.fleet(doors.iter().map(|door| at(&sshd, door.port)).collect());
        let began = Instant::now();
        for (door, answer) in doors.iter().zip(join_all((0..some.len()).map(|n| fleet.connect(n))).await) {
            let Err(error) = answer else { continue };
            let text = error.to_string();
            assert!(text.contains("authentication") || text.contains(&format!("port {}: ", door.port)), "{text}");
            assert!(says.iter().any(|s| text.contains(s)), "{text}");
            stopped += 1;
            texts.push(text);
        }
        assert!(began.elapsed() < 2 * WITHIN + Duration::from_secs(6), "{:?}", began.elapsed());
        let ports: Vec<u16> = doors.iter().map(|door| door.port).collect();
        nothing_left("a server that stops", &ports).await;
    }
    assert!(stopped >= 9, "{stopped} of {places:?}: {texts:?}");
    assert!(texts.iter().any(|t| t.contains("authentication")) && texts.iter().any(|t| t.contains("key exchange")), "{texts:?}");
    until("the server serves nobody", || sshd.children().is_empty()).await;
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_server_that_closes_at_any_stage_is_named_with_the_stage() {
    let _quiet = MACHINE.read().await;
    let says = ["closed", "reset", "broken pipe"];
    at_every_place(Cut::Closes, &says).await;
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_server_that_falls_silent_at_any_stage_is_named_with_the_stage() {
    let _quiet = MACHINE.read().await;
    let says = ["said nothing within 6s", "did not finish the key exchange within 6s", "no answer during authentication within 6s"];
    at_every_place(Cut::Stops, &says).await;
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_server_that_stops_reading_is_lost_though_a_writer_is_stuck() {
    let _quiet = MACHINE.read().await;
    let sshd = Sshd::start();
    sshd.connect().await.close().await;
    let door = Cut::Deaf(100_000).before(sshd.port);
    let mut host = at(&sshd, door.port);
    host.ssh.keepalive = Some(Duration::from_secs(1));
    let host = sshd.fleet(vec![host]).connect(0).await.expect("it listens at first");
    let began = Instant::now();
    let long = format!(": {}", "y".repeat(30 << 20));
    let error = host.exec(&within(&long, Duration::from_secs(60))).await.expect_err("deaf");
    assert!(matches!(&error, RemoteError::Lost { retry: true, .. }), "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    drop(host);
    nothing_left("a deaf server", &[door.port]).await;
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_jump_host_that_dies_on_the_way_is_named_as_the_hop() {
    let _quiet = MACHINE.read().await;
    let (bastion, sshd) = (Sshd::start(), Sshd::start());
    sshd.connect().await.close().await;
    let mut texts = Vec::new();
    for place in [0, 1200, 2600, 3400, 4200, 5000] {
        let door = Cut::Closes(place).before(bastion.port);
        sshd.write("ssh_config", &crate::way::jumps(&bastion).replace(&format!("Port {}", bastion.port), &format!("Port {}", door.port)));
        let known = format!("[127.0.0.1]:{} {}", door.port, bastion.known("ed25519").split_once(' ').expect("a key").1);
        bastion.write("known", &known);
        let mut host = sshd.host("gpu07");
        host.ssh.known_hosts = Some(sshd.write("both", &(sshd.known("ed25519") + &known)));
        host.ssh.jump = Some(vec!["outer".to_owned()]);
        host.ssh.connect_timeout = Some(WITHIN);
        match sshd.fleet(vec![host]).connect(0).await {
            Err(error) => {
                assert!(error.to_string().contains("outer") && error.may_retry(), "{place}: {error}");
                texts.push(error.to_string());
            }
            // It got through before the jump host died: then the call dies with it.
            Ok(host) => {
                let error = host.exec(&within("head -c 100000 /dev/zero", WITHIN)).await.expect_err("cut");
                assert!(matches!(error, RemoteError::Lost { .. }), "{place}: {error:?}");
            }
        }
        nothing_left("a jump host that died", &[door.port]).await;
    }
    assert!(texts.len() >= 4 && texts.iter().any(|t| t.contains("through outer")), "{texts:?}");
    until("nobody is served", || sshd.children().is_empty() && bastion.children().is_empty()).await;
}
