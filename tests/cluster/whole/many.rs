//! Many hosts behind the bastion: nobody is refused, nobody waits for a host that was stopped.

use crate::laptop::{Laptop, until, word};
use crate::support::Cluster;

/// Addresses of gpu02, so that its sshd is 63 hosts; the last host is gpu01.
fn addresses(cluster: &Cluster) -> String {
    (101..=163).map(|last| format!("{} ", cluster.other_address(last))).collect()
}

const HOSTS: u8 = 64;

/// The second sshd and all that it has started.
const SSHD: &str = "$(for p in $(cat /run/many.pid); do echo $p; for q in $(pgrep -P $p); do echo $q; pgrep -P $q; done; done)";

/// A second sshd on gpu01 and gpu02, with the limits and penalties that OpenSSH has where nobody sets them; gone with this.
struct Behind<'a>(&'a Cluster);

impl Behind<'_> {
    fn start(cluster: &Cluster) -> Behind<'_> {
        let behind = Behind(cluster);
        behind.end();
        cluster.on("gpu02", &format!("for a in {}; do ip addr add $a/32 dev eth0; done", addresses(cluster)));
        for (host, more) in [("gpu01", ""), ("gpu02", "-o PerSourcePenalties=yes")] {
            let limits = "-o MaxStartups=10:30:100 -o MaxSessions=10 -o LogLevel=VERBOSE";
            cluster.on(
                host,
                &format!("/usr/sbin/sshd -f /etc/ssh/sshd_config -p 2222 -o PidFile=/run/many.pid {limits} {more} -E /run/many.log"),
            );
        }
        behind
    }

    fn end(&self) {
        let stop = format!("if [ -e /run/many.pid ]; then kill -KILL {SSHD}; fi; rm -f /run/many.* /tmp/many-*; ");
        self.0.on("gpu01", &format!("{stop} pkill -KILL -f 'sleep 6[0]0' || true"));
        self.0.on("gpu02", &format!("{stop}for a in {}; do ip addr del $a/32 dev eth0 2>/dev/null || true; done", addresses(self.0)));
    }

    /// How often the log of gpu02's sshd says this.
    fn log(&self, what: &str) -> usize {
        self.0.on("gpu02", &format!("grep -c '{what}' /run/many.log || true")).trim().parse().expect("a number")
    }
}

impl Drop for Behind<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn sixty_four_hosts_behind_the_bastion() {
    let cluster = Cluster::take();
    let behind = Behind::start(&cluster);
    let laptop = Laptop::new();
    let names = "Host in*\n HostKeyAlias gpu02\nHost last\n HostKeyAlias gpu01\n";
    laptop.write("config", &format!("Include {}\n{names}", cluster.file("ssh_config").display()));
    let hosts: String = (1..HOSTS).map(|n| format!("  - {{ name: in{n:02}, address: {} }}\n", cluster.other_address(100 + n))).collect();
    let last = format!("  - {{ name: last, address: {} }}\n", cluster.address("gpu01"));
    let ssh = "ssh: { config: ./config, user: dev, port: 2222, jump: [bastion] }\n";
    let file = laptop.write("many.yaml", &format!("name: many\nhosts:\n{hosts}{last}{ssh}"));
    let file = word(&file);
    let bastion =
        || cluster.on("bastion", "grep -c 'Accepted publickey' /var/log/sshd.log || true").trim().parse::<usize>().expect("a number");

    let before = bastion();
    let all = laptop.run(&["exec", file, "--", "hostname"]);
    assert_eq!(all.code(0).out, "---- in[01-63]\ngpu02\n---- last\ngpu01\n", "{}", all.said());
    assert_eq!(bastion(), before + 1, "one connection to the bastion");
    assert_eq!(behind.log("Accepted publickey"), usize::from(HOSTS) - 1);
    println!("{} of 63 were dropped by MaxStartups and tried again", behind.log("drop connection"));

    // Its sshd takes connections and says nothing.
    let of_last = |signal: &str| cluster.on("gpu01", &format!("kill -{signal} {SSHD}"));
    of_last("STOP");
    let silent = laptop.run(&["exec", file, "--", "hostname"]);
    assert_eq!(silent.code(4).out, "---- in[01-63]\ngpu02\n", "{}", silent.said());
    silent.says("last: could not connect to port 2222 through bastion: it took the connection and said nothing within 10s");
    of_last("CONT");

    // It is stopped in the middle of a command: the others end theirs while it is waited for.
    let waits = "if [ $(hostname) = gpu01 ]; then touch /tmp/many-begun; exec sleep 600; fi
        touch /tmp/many-begun; until [ -e /tmp/many-go ]; do sleep 1; done; echo x >>/tmp/many-done; echo done";
    let running = laptop.start(&["exec", file, "--timeout", "40s", "--", waits]);
    until("the last one has begun", || cluster.on("gpu01", "ls /tmp/many-begun 2>/dev/null || true").contains("begun").then_some(()));
    of_last("STOP");
    cluster.on("gpu02", "touch /tmp/many-go");
    let lines = "cat /tmp/many-done 2>/dev/null | wc -l";
    until("the others are done", || (cluster.on("gpu02", lines).trim() == (HOSTS - 1).to_string()).then_some(()));
    let ended = running.end();
    assert_eq!(ended.code(4).out, "---- in[01-63]\ndone\n", "{}", ended.said());
    assert!(ended.err.contains("last: "), "{}", ended.said());
    of_last("CONT");

    assert_eq!(behind.log("penalty"), 0, "sshd has nothing against us");
    let more = behind.log("drop connection");
    println!("{more} of {} connections in all were dropped by MaxStartups and tried again", 3 * (usize::from(HOSTS) - 1));
    drop(behind);
    cluster.as_before();
}
