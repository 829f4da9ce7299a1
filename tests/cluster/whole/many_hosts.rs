//! Many hosts behind the bastion: no connection is refused, and no host waits for a stopped one.

use crate::laptop::{Laptop, path_str, wait_until};
use crate::support::Cluster;

/// Addresses of gpu02, so that its sshd serves 63 hosts; the last host is gpu01.
fn extra_addresses(cluster: &Cluster) -> String {
    (101..=163).map(|last| format!("{} ", cluster.network_address(last))).collect()
}

const HOST_COUNT: u8 = 64;

/// The second sshd and all its descendants.
const SSHD_PIDS: &str = "$(for p in $(cat /run/many.pid); do echo $p; for q in $(pgrep -P $p); do echo $q; pgrep -P $q; done; done)";

/// A second sshd on gpu01 and gpu02 with OpenSSH's default limits and penalties; `drop` stops it.
struct LimitedSshd<'a>(&'a Cluster);

impl LimitedSshd<'_> {
    fn start(cluster: &Cluster) -> LimitedSshd<'_> {
        let behind = LimitedSshd(cluster);
        behind.stop();
        cluster.exec_on("gpu02", &format!("for a in {}; do ip addr add $a/32 dev eth0; done", extra_addresses(cluster)));
        for (host, more) in [("gpu01", ""), ("gpu02", "-o PerSourcePenalties=yes")] {
            let limits = "-o MaxStartups=10:30:100 -o MaxSessions=10 -o LogLevel=VERBOSE";
            cluster.exec_on(
                host,
                &format!("/usr/sbin/sshd -f /etc/ssh/sshd_config -p 2222 -o PidFile=/run/many.pid {limits} {more} -E /run/many.log"),
            );
        }
        behind
    }

    fn stop(&self) {
        let stop = format!("if [ -e /run/many.pid ]; then kill -KILL {SSHD_PIDS}; fi; rm -f /run/many.* /tmp/many-*; ");
        self.0.exec_on("gpu01", &format!("{stop} pkill -KILL -f 'sleep 6[0]0' || true"));
        self.0.exec_on(
            "gpu02",
            &format!("{stop}for a in {}; do ip addr del $a/32 dev eth0 2>/dev/null || true; done", extra_addresses(self.0)),
        );
    }

    /// Counts occurrences in the log of gpu02's sshd.
    fn count_log_lines(&self, what: &str) -> usize {
        self.0.exec_on("gpu02", &format!("grep -c '{what}' /run/many.log || true")).trim().parse().expect("a number")
    }
}

impl Drop for LimitedSshd<'_> {
    fn drop(&mut self) {
        self.stop();
    }
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn sixty_four_hosts_connect_through_the_bastion() {
    let cluster = Cluster::acquire();
    let behind = LimitedSshd::start(&cluster);
    let laptop = Laptop::new();
    let names = "Host in*\n HostKeyAlias gpu02\nHost last\n HostKeyAlias gpu01\n";
    laptop.write_file("config", &format!("Include {}\n{names}", cluster.client_file("ssh_config").display()));
    let hosts: String =
        (1..HOST_COUNT).map(|n| format!("  - {{ name: in{n:02}, address: {} }}\n", cluster.network_address(100 + n))).collect();
    let last = format!("  - {{ name: last, address: {} }}\n", cluster.host_address("gpu01"));
    let ssh = "ssh: { config: ./config, user: dev, port: 2222, jump: [bastion] }\n";
    let file = laptop.write_file("many.yaml", &format!("name: many\nhosts:\n{hosts}{last}{ssh}"));
    let file = path_str(&file);
    let bastion =
        || cluster.exec_on("bastion", "grep -c 'Accepted publickey' /var/log/sshd.log || true").trim().parse::<usize>().expect("a number");

    let before = bastion();
    let all = laptop.run(&["exec", file, "--", "hostname"]);
    assert_eq!(all.assert_exit_code(0).stdout, "---- in[01-63]\ngpu02\n---- last\ngpu01\n", "{}", all.transcript());
    assert_eq!(bastion(), before + 1, "one connection to the bastion");
    assert_eq!(behind.count_log_lines("Accepted publickey"), usize::from(HOST_COUNT) - 1);
    println!("{} of 63 were dropped by MaxStartups and tried again", behind.count_log_lines("drop connection"));

    // The stopped sshd accepts connections and sends nothing.
    let of_last = |signal: &str| cluster.exec_on("gpu01", &format!("kill -{signal} {SSHD_PIDS}"));
    of_last("STOP");
    let silent = laptop.run(&["exec", file, "--", "hostname"]);
    assert_eq!(silent.assert_exit_code(4).stdout, "---- in[01-63]\ngpu02\n", "{}", silent.transcript());
    silent.assert_contains("last: no SSH connection to port 2222 through bastion: no SSH greeting came within 10s");
    of_last("CONT");

    // The sshd is stopped during a command: the other hosts finish theirs meanwhile.
    let waits = "if [ $(hostname) = gpu01 ]; then touch /tmp/many-begun; exec sleep 600; fi
        touch /tmp/many-begun; until [ -e /tmp/many-go ]; do sleep 1; done; echo x >>/tmp/many-done; echo done";
    let running = laptop.start(&["exec", file, "--timeout", "40s", "--", waits]);
    wait_until("the last command has started", || {
        cluster.exec_on("gpu01", "ls /tmp/many-begun 2>/dev/null || true").contains("begun").then_some(())
    });
    of_last("STOP");
    cluster.exec_on("gpu02", "touch /tmp/many-go");
    let lines = "cat /tmp/many-done 2>/dev/null | wc -l";
    wait_until("the other commands have ended", || (cluster.exec_on("gpu02", lines).trim() == (HOST_COUNT - 1).to_string()).then_some(()));
    let ended = running.wait_for_exit();
    assert_eq!(ended.assert_exit_code(4).stdout, "---- in[01-63]\ndone\n", "{}", ended.transcript());
    assert!(ended.stderr.contains("last: "), "{}", ended.transcript());
    of_last("CONT");

    assert_eq!(behind.count_log_lines("penalty"), 0, "sshd has nothing against us");
    let more = behind.count_log_lines("drop connection");
    println!("{more} of {} connections in all were dropped by MaxStartups and tried again", 3 * (usize::from(HOST_COUNT) - 1));
    drop(behind);
}
