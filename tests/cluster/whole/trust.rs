//! Host keys, certificates and ways against OpenSSH itself, old and new: what was used stands in sshd's own log.

use std::path::PathBuf;
use std::process::Command;

use crate::laptop::{Ended, Laptop, until, word};
use crate::support::Cluster;

const HOSTS: [&str; 4] = ["bastion", "gpu01", "gpu02", "gpu03"];
const PORT: u16 = 2201;
const DIR: &str = "/srv/suite/extra";

/// A second sshd on a host, with a log that tells all; it is ended with the value.
struct Extra<'a> {
    cluster: &'a Cluster,
    host: &'static str,
}

impl<'a> Extra<'a> {
    /// Starts it with further lines of configuration, which stand over those of the host's own.
    fn start(cluster: &'a Cluster, host: &'static str, more: &str) -> Self {
        let config = format!("{more}\nPort {PORT}\nPidFile {DIR}/pid\nLogLevel DEBUG1\n");
        let extra = Extra { cluster, host };
        extra.end();
        extra.on(&format!(
            "mkdir -p {DIR}; : >{DIR}/log; {{ printf '%s' '{config}'; grep -vE '^(Port|PidFile|LogLevel)' /etc/ssh/sshd_config; }} >{DIR}/config
             /usr/sbin/sshd -f {DIR}/config -E {DIR}/log"
        ));
        until("the second sshd listens", || extra.log().contains("Server listening").then_some(()));
        extra
    }

    fn on(&self, script: &str) -> String {
        self.cluster.on(self.host, script)
    }

    fn log(&self) -> String {
        self.on(&format!("cat {DIR}/log"))
    }

    /// Starts its log anew.
    fn forget(&self) {
        self.on(&format!(": >{DIR}/log"));
    }

    /// The log has a line with all of these.
    #[track_caller]
    fn logged(&self, words: &[&str]) {
        let log = self.log();
        assert!(log.lines().any(|l| words.iter().all(|w| l.contains(w))), "{}: no line with {words:?}\n{log}", self.host);
    }

    fn end(&self) {
        self.on(&format!(
            "[ ! -e {DIR}/pid ] || {{ p=$(cat {DIR}/pid); kill $p; while [ -e /proc/$p ]; do sleep 0.05; done; }}
             rm -rf {DIR}"
        ));
    }
}

impl Drop for Extra<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
        }
    }
}

/// A laptop whose ssh_config has these lines before those of all hosts.
struct Way<'a> {
    cluster: &'a Cluster,
    laptop: Laptop,
    known: String,
}

impl<'a> Way<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        // The hosts' keys under the names of the second servers.
        let known = std::fs::read_to_string(cluster.file("known_hosts")).expect("known hosts");
        let extra = |line: &str| {
            let (names, key) = line.split_once(' ').unwrap_or_default();
            let address = names.split(',').nth(1).unwrap_or_default();
            format!("{line}\n[{address}]:{PORT} {key}\n")
        };
        Way { cluster, laptop: Laptop::new(), known: known.lines().map(extra).collect() }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        self.laptop.write(name, text)
    }

    /// Runs a command on one host.
    fn exec(&self, host: &str, config: &str) -> Ended {
        let known = self.write("known_hosts", &self.known);
        let mut text =
            format!("{config}\nHost *\n User dev\n IdentityFile {}\n IdentitiesOnly yes\n", self.cluster.file("id_ed25519").display());
        for name in HOSTS {
            text.push_str(&format!("Host {name}\n HostName {}\n", self.cluster.address(name)));
        }
        text.push_str(&format!("Host *\n UserKnownHostsFile {}\n GlobalKnownHostsFile none\n", known.display()));
        self.write("ssh_config", &text);
        let inventory = format!(
            "name: way\nhosts: [{host}]\nssh: {{ config: ./ssh_config, host_keys: strict }}\nlaunch: {{ with: script, command: [\"true\"] }}\n"
        );
        let inventory = self.write("inventory.yaml", &inventory);
        self.laptop.run(&["exec", word(&inventory), "--", "echo it is $(hostname)"])
    }

    /// It gets there.
    #[track_caller]
    fn opens(&self, host: &str, config: &str) {
        self.exec(host, config).code(0).says(&format!("it is {host}"));
    }

    /// It is refused with these words.
    #[track_caller]
    fn refused(&self, host: &str, config: &str, says: &[&str]) {
        let ended = self.exec(host, config);
        assert_ne!(ended.code, Some(0), "{}", ended.said());
        let flat = ended.said().split_whitespace().collect::<Vec<_>>().join(" ");
        for text in says {
            assert!(flat.contains(text), "not said: {text:?}\n{}", ended.said());
        }
    }
}

/// To the second server of every host.
fn port() -> String {
    format!("Host gpu*\n Port {PORT}\n")
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn the_key_exchange_is_the_best_that_both_know_and_lists_are_followed() {
    let cluster = Cluster::take();
    let way = Way::new(&cluster);
    for (host, kex) in [("gpu01", "curve25519-sha256"), ("gpu02", "mlkem768x25519-sha256")] {
        let extra = Extra::start(&cluster, host, "");
        way.opens(host, &port());
        extra.logged(&["kex: algorithm: ", kex]);
        extra.logged(&["kex: host key algorithm: ssh-ed25519"]);
        extra.forget();
        let lists = "Host *\n KexAlgorithms ^ecdh-sha2-nistp256\n Ciphers aes192-ctr\n MACs -*-etm@openssh.com,hmac-sha2-512\n \
                     HostKeyAlgorithms rsa-sha2-256\n";
        way.opens(host, &format!("{}{lists}", port()));
        extra.logged(&["kex: algorithm: ecdh-sha2-nistp256"]);
        extra.logged(&["kex: host key algorithm: rsa-sha2-256"]);
        extra.logged(&["kex: client->server cipher: aes192-ctr MAC: hmac-sha2-256"]);
        extra.forget();
        way.opens(
            host,
            &format!("{}Host *\n Ciphers +aes128-cbc\n KexAlgorithms sntrup761x25519-sha512@openssh.com,curve25519-sha256\n", port()),
        );
        extra.logged(&["kex: algorithm: curve25519-sha256"]);
        way.refused(
            host,
            &format!("{}Host *\n Ciphers aes128-cbc\n", port()),
            &["no common cipher", "ssh_config:4", "aes256-gcm@openssh.com"],
        );
        way.refused(host, &format!("{}Host *\n MACs hmac-sha3\n", port()), &["ssh_config:4", "hmac-sha3"]);
    }
    let _only = Extra::start(&cluster, "gpu02", "KexAlgorithms sntrup761x25519-sha512@openssh.com");
    way.refused(
        "gpu02",
        &port(),
        &["no common key exchange: the server offers sntrup761x25519-sha512@openssh.com; we offer mlkem768x25519-sha256"],
    );
    drop(_only);
    cluster.as_before();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn host_certificates_and_revocations() {
    let cluster = Cluster::take();
    let keygen = |args: &[&str]| {
        let out = Command::new("ssh-keygen").args(args).output().expect("ssh-keygen is there");
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    };
    for host in ["gpu01", "gpu02"] {
        let mut way = Way::new(&cluster);
        let home = way.laptop.home().to_owned();
        let at = |name: &str| home.join(name).to_str().expect("text").to_owned();
        keygen(&["-q", "-t", "ed25519", "-N", "", "-C", "ca", "-f", &at("ca")]);
        let plain = way.known.clone();
        let public = cluster.on(host, "cat /etc/ssh/ssh_host_ed25519_key.pub");
        let ca = std::fs::read_to_string(at("ca.pub")).expect("a key");
        let started = |names: &str, serial: &str| {
            std::fs::write(at("key.pub"), &public).expect("written");
            keygen(&["-q", "-s", &at("ca"), "-I", &format!("box-{host}"), "-h", "-n", names, "-z", serial, &at("key.pub")]);
            let certificate = std::fs::read_to_string(at("key-cert.pub")).expect("a certificate");
            cluster.on(host, &format!("mkdir -p /srv/suite/cert; echo '{}' >/srv/suite/cert/key-cert.pub", certificate.trim()));
            Extra::start(&cluster, host, "HostKey /etc/ssh/ssh_host_ed25519_key\nHostCertificate /srv/suite/cert/key-cert.pub")
        };
        let extra = started(&cluster.address(host), "7");
        way.known =
            format!("@cert-authority [{}]:{PORT} {ca}", cluster.address(host).rsplit_once('.').expect("an address").0.to_owned() + ".*");
        way.opens(host, &port());
        extra.logged(&["kex: host key algorithm: ssh-ed25519-cert-v01@openssh.com"]);
        // Revoked by each means, although the authority vouches and the plain key is known.
        let trusted = format!("{}{plain}", way.known);
        way.known = format!("{trusted}@revoked * {public}");
        way.refused(host, &port(), &["revokes this key"]);
        way.known = format!("{trusted}@revoked * {ca}");
        way.refused(host, &port(), &["revokes its authority"]);
        way.known = trusted;
        way.write("spec", "serial: 7\n");
        keygen(&["-q", "-k", "-f", &at("krl"), "-s", &at("ca.pub"), &at("spec")]);
        way.refused(host, &format!("{}Host *\n RevokedHostKeys {}\n", port(), at("krl")), &["it revokes the certificate number 7"]);
        keygen(&["-q", "-k", "-f", &at("krl"), &at("key.pub")]);
        way.refused(host, &format!("{}Host *\n RevokedHostKeys {}\n", port(), at("krl")), &["it revokes this key"]);
        way.write("list", &format!("# gone\n{public}"));
        way.refused(host, &format!("{}Host *\n RevokedHostKeys {}\n", port(), at("list")), &["list: it revokes this key"]);
        way.write("list", "# none\n");
        way.opens(host, &format!("{}Host *\n RevokedHostKeys {}\n", port(), at("list")));
        drop(extra);
        let extra = started("elsewhere", "8");
        way.known = format!("@cert-authority * {ca}");
        way.refused(host, &port(), &["is not known", "it names elsewhere"]);
        // Its plain key is enough where that is known.
        way.known.push_str(&plain);
        way.opens(host, &port());
        extra.logged(&["kex: host key algorithm: ssh-ed25519-cert-v01@openssh.com"]);
        drop(extra);
        cluster.on(host, "rm -rf /srv/suite/cert");
    }
    cluster.as_before();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn two_jump_hosts_and_a_proxy_command() {
    let cluster = Cluster::take();
    let way = Way::new(&cluster);
    let (one, two) = (Extra::start(&cluster, "gpu01", ""), Extra::start(&cluster, "gpu02", ""));
    let jumps = format!("{}Host gpu02\n ProxyJump bastion,dev@gpu01:{PORT}\n", port());
    way.opens("gpu02", &jumps);
    one.logged(&[&format!("Accepted publickey for dev from {}", cluster.address("bastion"))]);
    two.logged(&[&format!("Accepted publickey for dev from {}", cluster.address("gpu01"))]);
    // The same, each hop knowing only the one before it, and with a user of its own in the middle.
    two.forget();
    one.forget();
    way.opens("gpu02", &format!("Host gpu01\n User root\n ProxyJump bastion\nHost gpu02\n ProxyJump gpu01\n{}", port()));
    one.logged(&[&format!("Accepted publickey for root from {}", cluster.address("bastion"))]);
    two.logged(&[&format!("Accepted publickey for dev from {}", cluster.address("gpu01"))]);

    two.forget();
    let ssh = format!("Host gpu02\n ProxyCommand ssh -F {} -W %h:%p bastion\n{}", cluster.file("ssh_config").display(), port());
    way.opens("gpu02", &ssh);
    two.logged(&[&format!("Accepted publickey for dev from {}", cluster.address("bastion"))]);
    let closed = format!("Host gpu02\n ProxyCommand ssh -F {} -W %h:1 bastion\n", cluster.file("ssh_config").display());
    way.refused("gpu02", &closed, &["ProxyCommand", "ssh_config:2", "open failed"]);
    // A jump host that is down is said once, by its name.
    let down = format!("Host gpu*\n ProxyJump nowhere\nHost nowhere\n HostName {}\n Port 1\n", cluster.address("gpu01"));
    way.refused("gpu02", &down, &["nowhere", "connection refused"]);
    drop((one, two));
    cluster.as_before();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn a_changed_key_is_refused_by_both_releases() {
    let cluster = Cluster::take();
    for host in ["gpu01", "gpu03"] {
        let mut way = Way::new(&cluster);
        way.opens(host, "");
        let other = way.known.lines().find(|l| l.starts_with("bastion,") && l.contains("ssh-ed25519")).expect("a line");
        let key = other.split_once(' ').expect("a key").1;
        way.known = format!("# changed\n{},{host} {key}\n", cluster.address(host));
        way.refused(
            host,
            "",
            &["the host key has changed", "known_hosts:2 has ssh-ed25519", &format!("ssh-keygen -R {} -f", cluster.address(host))],
        );
    }
    cluster.as_before();
}
