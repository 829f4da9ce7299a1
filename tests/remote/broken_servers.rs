//! Servers that misbehave at every stage: the error names the host and the hop within the deadline, and nothing is left.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use orchestrate::inventory::InventoryHost;
use orchestrate::remote::{HostConnector, RemoteError};

use crate::faulty_server::{FaultyServer, ProxyFault, ServerFault, assert_nothing_left};
use crate::many_hosts::MACHINE_LOCK;
use crate::shell_command_within;
use crate::sshd::{Sshd, wait_until};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(6);

fn host_at_port(sshd: &Sshd, port: u16) -> InventoryHost {
    let mut host = sshd.host("gpu07");
    host.ssh.port = Some(port);
    host.ssh.connect_timeout = Some(CONNECT_TIMEOUT);
    // The key is known under the real port, so the alias has that port.
    sshd.write("ssh_config", &format!("Host gpu07\n HostKeyAlias [127.0.0.1]:{}\n{}", sshd.port, crate::routes::jump_host_config(sshd)));
    host
}

/// Connects and expects an error that names the host and its port, in time.
async fn connect_error_text(sshd: &Sshd, host: InventoryHost) -> String {
    let port = host.ssh.port.expect("a port");
    let began = Instant::now();
    let error = sshd.fleet(vec![host]).connect(0).await.err().expect("the connection fails");
    let (text, took) = (error.to_string(), began.elapsed());
    assert!(text.contains(&format!("port {port}: ")), "{text}");
    // One attempt, the waits between the attempts, and a last attempt.
    assert!(took < 2 * CONNECT_TIMEOUT + Duration::from_secs(4), "{text}: {took:?}");
    assert!(!matches!(error, RemoteError::Timeout { .. }), "{text}");
    text
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn non_ssh_server_is_quoted_and_leaves_nothing() {
    let _quiet = MACHINE_LOCK.read().await;
    let sshd = Sshd::start();
    sshd.connect().await.close().await;
    for (odd, expected) in [
        (ServerFault::Silent, "no SSH greeting came within 6s"),
        (ServerFault::Banner(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()), "it did not finish the key exchange within 6s"),
        (ServerFault::Banner(b"220 mail ESMTP\r\n".to_vec()), "it sent “220 mail ESMTP” but no SSH greeting within 6s"),
        (ServerFault::Banner(b"SSH-1.5-Cisco-1.25\r\n".to_vec()), "it supports only SSH 1 (“SSH-1.5-Cisco-1.25”)"),
        (ServerFault::BannerThenClose(b"SSH-1.5-Cisco-1.25\n".to_vec()), "it supports only SSH 1"),
        (ServerFault::BannerThenClose(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()), "during the key exchange"),
        (ServerFault::BannerThenClose(Vec::new()), "closed by the remote side before sending anything"),
        (ServerFault::BannerThenClose(b"Exceeded MaxStartups\r\n".to_vec()), "it sent “Exceeded MaxStartups” and closed"),
        (ServerFault::BannerThenClose(disconnect_packet("too many of you\x1b[2J")), "the host said: too many of you [2J"),
        (
            ServerFault::EndlessBanner(b"come in, come in\r\n".to_vec()),
            "the server on this port is not an SSH server; it sent “come in, come in”",
        ),
        (ServerFault::EndlessBanner(vec![0x80, 0xfe, 7, 0, 0x1b]), "the server on this port is not an SSH server"),
        (ServerFault::EndlessBanner([b"SSH-2.0-x\r\n".as_slice(), &[0xff; 64]].concat()), "during the key exchange"),
    ] {
        let text = odd.description();
        let server = odd.start_server();
        let output = connect_error_text(&sshd, host_at_port(&sshd, server.port)).await;
        assert!(output.contains(expected), "{text}: {output}");
        assert_nothing_left(&text, &[server.port]).await;
    }
}

/// An unencrypted SSH_MSG_DISCONNECT after a greeting.
fn disconnect_packet(message: &str) -> Vec<u8> {
    let string = |text: &str| [&u32::try_from(text.len()).expect("short").to_be_bytes()[..], text.as_bytes()].concat();
    let payload = [&[1_u8][..], &2_u32.to_be_bytes(), &string(message), &string("")].concat();
    let padding = 8 + (8 - (5 + payload.len()) % 8) % 8;
    let length = u32::try_from(1 + payload.len() + padding).expect("short");
    let head = [&length.to_be_bytes()[..], &[u8::try_from(padding).expect("small")]].concat();
    [b"SSH-2.0-OpenSSH_9.2\r\n".as_slice(), &head, &payload, &vec![0; padding]].concat()
}

/// The connection to a real server stops at many points of the greeting, the key exchange and the authentication.
async fn test_fault_at_every_offset(cut: impl Fn(usize) -> ProxyFault, expected: &[&str]) {
    let sshd = Sshd::start();
    sshd.connect().await.close().await;
    let places: Vec<usize> = (0..).step_by(157).take(12).collect();
    let (mut stopped, mut texts) = (0, Vec::new());
    for some in places.chunks(4) {
        let listeners: Vec<FaultyServer> = some.iter().map(|location| cut(*location).start_proxy(sshd.port)).collect();
        let fleet = sshd.fleet(listeners.iter().map(|listener| host_at_port(&sshd, listener.port)).collect());
        let began = Instant::now();
        for (listener, answer) in listeners.iter().zip(join_all((0..some.len()).map(|n| fleet.connect(n))).await) {
            let Err(error) = answer else { continue };
            let text = error.to_string();
            assert!(text.contains("authentication") || text.contains(&format!("port {}: ", listener.port)), "{text}");
            assert!(expected.iter().any(|s| text.contains(s)), "{text}");
            stopped += 1;
            texts.push(text);
        }
        assert!(began.elapsed() < 2 * CONNECT_TIMEOUT + Duration::from_secs(6), "{:?}", began.elapsed());
        let ports: Vec<u16> = listeners.iter().map(|listener| listener.port).collect();
        assert_nothing_left("a server that stops", &ports).await;
    }
    assert!(stopped >= 9, "{stopped} of {places:?}: {texts:?}");
    assert!(texts.iter().any(|t| t.contains("authentication")) && texts.iter().any(|t| t.contains("key exchange")), "{texts:?}");
    wait_until("the server has no connections", || sshd.session_pids().is_empty()).await;
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn server_closing_reports_the_stage() {
    let _quiet = MACHINE_LOCK.read().await;
    let expected = ["closed", "reset", "broken pipe"];
    test_fault_at_every_offset(ProxyFault::Close, &expected).await;
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn silent_server_reports_the_stage() {
    let _quiet = MACHINE_LOCK.read().await;
    let expected =
        ["no SSH greeting came within 6s", "did not finish the key exchange within 6s", "no answer during authentication within 6s"];
    test_fault_at_every_offset(ProxyFault::Stall, &expected).await;
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn server_that_stops_reading_is_lost() {
    let _quiet = MACHINE_LOCK.read().await;
    let sshd = Sshd::start();
    sshd.connect().await.close().await;
    let listener = ProxyFault::StopReading(100_000).start_proxy(sshd.port);
    let mut host = host_at_port(&sshd, listener.port);
    host.ssh.keepalive_interval = Some(Duration::from_secs(1));
    let host = sshd.fleet(vec![host]).connect(0).await.expect("it listens at first");
    let began = Instant::now();
    let long = format!(": {}", "y".repeat(30 << 20));
    let error = host.exec(&shell_command_within(&long, Duration::from_secs(60))).await.expect_err("deaf");
    assert!(matches!(&error, RemoteError::Lost { retry: true, .. }), "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    drop(host);
    assert_nothing_left("a deaf server", &[listener.port]).await;
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn dying_jump_host_is_named_in_error() {
    let _quiet = MACHINE_LOCK.read().await;
    let (bastion, sshd) = (Sshd::start(), Sshd::start());
    sshd.connect().await.close().await;
    let mut texts = Vec::new();
    for location in [0, 1200, 2600, 3400, 4200, 5000] {
        let listener = ProxyFault::Close(location).start_proxy(bastion.port);
        sshd.write(
            "ssh_config",
            &crate::routes::jump_host_config(&bastion).replace(&format!("Port {}", bastion.port), &format!("Port {}", listener.port)),
        );
        let known = format!("[127.0.0.1]:{} {}", listener.port, bastion.known_hosts_line("ed25519").split_once(' ').expect("a key").1);
        bastion.write("known", &known);
        let mut host = sshd.host("gpu07");
        host.ssh.known_hosts_file = Some(sshd.write("both", &(sshd.known_hosts_line("ed25519") + &known)));
        host.ssh.jump_hosts = Some(vec!["outer".to_owned()]);
        host.ssh.connect_timeout = Some(CONNECT_TIMEOUT);
        match sshd.fleet(vec![host]).connect(0).await {
            Err(error) => {
                assert!(error.to_string().contains("outer") && error.is_retryable(), "{location}: {error}");
                texts.push(error.to_string());
            }
            // The connection succeeded before the jump host died, so the call fails.
            Ok(host) => {
                let error = host.exec(&shell_command_within("head -c 100000 /dev/zero", CONNECT_TIMEOUT)).await.expect_err("cut");
                assert!(matches!(error, RemoteError::Lost { .. }), "{location}: {error:?}");
            }
        }
        assert_nothing_left("a jump host that died", &[listener.port]).await;
    }
    assert!(texts.len() >= 4 && texts.iter().any(|t| t.contains("through outer")), "{texts:?}");
    wait_until("both servers have no connections", || sshd.session_pids().is_empty() && bastion.session_pids().is_empty()).await;
}
