//! Many hosts behind one bastion; all their sshds have default limits.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use orchestrate::inventory::InventoryHost;
use orchestrate::remote::{HostConnector, SshFleet};

use crate::faulty_server::assert_nothing_left;
use crate::routes::jump_host_config;
use crate::sshd::{Sshd, full_backlog_port, run_command, wait_until};
use crate::{CLOSED_PORT, shell_command, shell_command_within};

const HOST_COUNT: u8 = 64;
/// Held for writing by tests that need the whole machine: each host is a set of processes of a real sshd and its shells. Tests with short
/// deadlines hold it for reading.
pub(crate) static MACHINE_LOCK: tokio::sync::RwLock<()> = tokio::sync::RwLock::const_new(());
/// Longer than any of these tests takes.
const LONG_TIMEOUT: Duration = Duration::from_secs(600);

/// One sshd at one address per host, and a bastion in front of it; both with OpenSSH's limits.
struct HostsBehindBastion {
    bastion: Sshd,
    target: Sshd,
}

impl HostsBehindBastion {
    fn start() -> Self {
        let bastion = Sshd::start_with("MaxSessions 10", &["ed25519"]);
        let inner = Sshd::start_with("MaxSessions 10\nListenAddress 0.0.0.0", &["ed25519"]);
        bastion.host("known");
        inner.write("ssh_config", &jump_host_config(&bastion));
        let any = inner.known_hosts_line("ed25519").replace("127.0.0.1", "127.0.*");
        inner.write("both", &(any + &bastion.known_hosts_line("ed25519")));
        HostsBehindBastion { bastion, target: inner }
    }

    fn hosts(&self) -> Vec<InventoryHost> {
        let host = |n| {
            let mut host = self.target.host(&format!("gpu{n:02}"));
            host.address = Some(format!("127.0.1.{n}"));
            host.ssh.known_hosts_file = Some(self.target.path_string("both"));
            host.ssh.jump_hosts = Some(vec!["outer".to_owned()]);
            host
        };
        (1..=HOST_COUNT).map(host).collect()
    }

    fn fleet(&self, hosts: Vec<InventoryHost>) -> SshFleet {
        self.target.fleet(hosts)
    }
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn sixty_four_hosts_connect_through_one_bastion() {
    let _alone = MACHINE_LOCK.write().await;
    let many = HostsBehindBastion::start();
    let fleet = many.fleet(many.hosts());
    let began = Instant::now();
    let hosts = join_all((0..usize::from(HOST_COUNT)).map(|n| fleet.connect(n))).await;
    let hosts: Vec<_> = hosts.into_iter().map(|h| h.expect("connected")).collect();
    let took = began.elapsed();
    let command = shell_command("echo here");
    for out in join_all(hosts.iter().map(|h| h.exec(&command))).await {
        assert_eq!(out.expect("an answer").stdout_text(), "here\n");
    }
    let dropped = |sshd: &Sshd| sshd.log().matches("drop connection").count();
    println!(
        "64 hosts in {took:?}; dropped and tried again: {} by the inner sshd, {} by the bastion",
        dropped(&many.target),
        dropped(&many.bastion)
    );
    many.bastion.wait_for_log("Accepted publickey", 1).await;
    assert_eq!(dropped(&many.bastion), 0);
    join_all(hosts.iter().map(|h| h.close())).await;
    drop(hosts);
    drop(fleet);
    assert_nothing_left("64 hosts", &[many.bastion.port, many.target.port]).await;
    wait_until("both servers have no connections", || many.bastion.session_pids().is_empty() && many.target.session_pids().is_empty())
        .await;
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn stuck_host_behind_bastion_stalls_no_other() {
    let _alone = MACHINE_LOCK.write().await;
    let (many, stopped, frozen) = (HostsBehindBastion::start(), Sshd::start(), Sshd::start());
    let mut hosts = many.hosts();
    let known = std::fs::read_to_string(many.target.path("both")).expect("written");
    many.target.write("both", &(known + &stopped.known_hosts_line("ed25519") + &frozen.known_hosts_line("ed25519")));
    std::fs::copy(many.target.path("authorized"), stopped.path("authorized")).expect("copied");
    let (_full, full) = full_backlog_port();
    for (host, port) in hosts.iter_mut().zip([full, frozen.port, CLOSED_PORT, stopped.port]) {
        host.address = Some("127.0.0.1".to_owned());
        host.ssh.port = Some(port);
        host.ssh.connect_timeout = Some(LONG_TIMEOUT);
        host.ssh.keepalive_interval = Some(LONG_TIMEOUT);
    }
    frozen.signal("STOP");
    let fleet = many.fleet(hosts);
    // One host does not answer, another accepts the connection and sends nothing: both are still pending when all others are connected.
    let good = async {
        let refused = fleet.connect(2).await.err().expect("a closed port").to_string();
        assert!(refused.contains("refused") && refused.contains("outer"), "{refused}");
        let hosts = join_all((3..usize::from(HOST_COUNT)).map(|n| fleet.connect(n))).await;
        hosts.into_iter().map(|h| h.expect("connected")).collect::<Vec<_>>()
    };
    let bad = futures_util::future::select(fleet.connect(0), fleet.connect(1));
    let hosts = tokio::select! {
        hosts = good => hosts,
        _ = bad => panic!("the other hosts are not connected yet"),
    };

    // One host is stopped during a transfer to it, while its unread output is pending.
    let (one, others) = hosts.split_first().expect("hosts");
    let flood = one.open_stream(&shell_command("yes")).await.expect("a stream");
    for pid in stopped.session_pids() {
        run_command("kill", &["-STOP", &pid]);
    }
    let (long, command) =
        (shell_command_within(&format!(": {}", "y".repeat(20 << 20)), LONG_TIMEOUT), shell_command("head -c 300000 /dev/zero"));
    let working = async {
        for out in join_all(others.iter().map(|h| h.exec(&command))).await {
            assert_eq!(out.expect("an answer").stdout.len(), 300_000);
        }
    };
    tokio::select! {
        () = working => {}
        answer = one.exec(&long) => panic!("the other hosts have not finished yet: {answer:?}"),
    }
    drop((flood, hosts, fleet));
    assert_nothing_left("all of them", &[many.bastion.port]).await;
    frozen.signal("CONT");
}
