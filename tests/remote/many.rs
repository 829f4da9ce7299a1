//! Many hosts behind one bastion whose sshd, and theirs, have their usual limits.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use orchestrate::inventory::Host;
use orchestrate::remote::{Connect, SshFleet};

use crate::odd::nothing_left;
use crate::sshd::{Sshd, full_door, run, until};
use crate::way::jumps;
use crate::{NOBODY, sh, within};

const HOSTS: u8 = 64;
/// These tests want the machine, one at a time: each host is processes of a real sshd and its shells. They write; who has a short time in
/// which something must come about reads.
pub(crate) static MACHINE: tokio::sync::RwLock<()> = tokio::sync::RwLock::const_new(());
/// Longer than these tests take.
const FOREVER: Duration = Duration::from_secs(600);

/// One sshd at as many addresses as there are hosts, and a bastion before it; both with OpenSSH's limits.
struct Many {
    bastion: Sshd,
    inner: Sshd,
}

impl Many {
    fn start() -> Self {
        let bastion = Sshd::with("MaxSessions 10", &["ed25519"]);
        let inner = Sshd::with("MaxSessions 10\nListenAddress 0.0.0.0", &["ed25519"]);
        bastion.host("known");
        inner.write("ssh_config", &jumps(&bastion));
        let any = inner.known("ed25519").replace("127.0.0.1", "127.0.*");
        inner.write("both", &(any + &bastion.known("ed25519")));
        Many { bastion, inner }
    }

    fn hosts(&self) -> Vec<Host> {
        let host = |n| {
            let mut host = self.inner.host(&format!("gpu{n:02}"));
            host.address = Some(format!("127.0.1.{n}"));
            host.ssh.known_hosts = Some(self.inner.shown("both"));
            host.ssh.jump = Some(vec!["outer".to_owned()]);
            host
        };
        (1..=HOSTS).map(host).collect()
    }

    fn fleet(&self, hosts: Vec<Host>) -> SshFleet {
        self.inner.fleet(hosts)
    }
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn sixty_four_hosts_behind_one_bastion_see_no_refusal() {
    let _alone = MACHINE.write().await;
    let many = Many::start();
    let fleet = many.fleet(many.hosts());
    let began = Instant::now();
    let hosts = join_all((0..usize::from(HOSTS)).map(|n| fleet.connect(n))).await;
    let hosts: Vec<_> = hosts.into_iter().map(|h| h.expect("connected")).collect();
    let took = began.elapsed();
    let command = sh("echo here");
    for out in join_all(hosts.iter().map(|h| h.exec(&command))).await {
        assert_eq!(out.expect("an answer").text(), "here\n");
    }
    let dropped = |sshd: &Sshd| sshd.log().matches("drop connection").count();
    println!(
        "64 hosts in {took:?}; dropped and tried again: {} by the inner sshd, {} by the bastion",
        dropped(&many.inner),
        dropped(&many.bastion)
    );
    many.bastion.logs("Accepted publickey", 1).await;
    assert_eq!(dropped(&many.bastion), 0);
    join_all(hosts.iter().map(|h| h.close())).await;
    drop(hosts);
    drop(fleet);
    nothing_left("64 hosts", &[many.bastion.port, many.inner.port]).await;
    until("nobody is served", || many.bastion.children().is_empty() && many.inner.children().is_empty()).await;
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_dead_or_stopped_or_unread_host_behind_a_bastion_stalls_no_other() {
    let _alone = MACHINE.write().await;
    let (many, stopped, frozen) = (Many::start(), Sshd::start(), Sshd::start());
    let mut hosts = many.hosts();
    let known = std::fs::read_to_string(many.inner.path("both")).expect("written");
    many.inner.write("both", &(known + &stopped.known("ed25519") + &frozen.known("ed25519")));
    std::fs::copy(many.inner.path("authorized"), stopped.path("authorized")).expect("copied");
    let (_full, full) = full_door();
    for (host, port) in hosts.iter_mut().zip([full, frozen.port, NOBODY, stopped.port]) {
        host.address = Some("127.0.0.1".to_owned());
        host.ssh.port = Some(port);
        host.ssh.connect_timeout = Some(FOREVER);
        host.ssh.keepalive = Some(FOREVER);
    }
    frozen.signal("STOP");
    let fleet = many.fleet(hosts);
    // One does not answer and one takes the connection and says nothing: both are still waited for when all others work.
    let good = async {
        let refused = fleet.connect(2).await.err().expect("nobody listens").to_string();
        assert!(refused.contains("refused") && refused.contains("outer"), "{refused}");
        let hosts = join_all((3..usize::from(HOSTS)).map(|n| fleet.connect(n))).await;
        hosts.into_iter().map(|h| h.expect("connected")).collect::<Vec<_>>()
    };
    let bad = futures_util::future::select(fleet.connect(0), fleet.connect(1));
    let hosts = tokio::select! {
        hosts = good => hosts,
        _ = bad => panic!("the others are not connected yet"),
    };

    // One is stopped in the middle: something flows to it, something from it that nobody reads.
    let (one, others) = hosts.split_first().expect("hosts");
    let flood = one.stream(&sh("yes")).await.expect("a stream");
    for pid in stopped.children() {
        run("kill", &["-STOP", &pid]);
    }
    let (long, command) = (within(&format!(": {}", "y".repeat(20 << 20)), FOREVER), sh("head -c 300000 /dev/zero"));
    let working = async {
        for out in join_all(others.iter().map(|h| h.exec(&command))).await {
            assert_eq!(out.expect("an answer").stdout.len(), 300_000);
        }
    };
    tokio::select! {
        () = working => {}
        answer = one.exec(&long) => panic!("the others are not done yet: {answer:?}"),
    }
    drop((flood, hosts, fleet));
    nothing_left("all of them", &[many.bastion.port]).await;
    frozen.signal("CONT");
}
