//! Host keys, certificates and routes against OpenSSH itself, old and new: sshd's log shows which were used.

use std::path::PathBuf;
use std::process::Command;

use crate::laptop::{CliOutput, Laptop, path_str, wait_until};
use crate::support::Cluster;

const CLUSTER_HOSTS: [&str; 4] = ["bastion", "gpu01", "gpu02", "gpu03"];
const EXTRA_SSHD_PORT: u16 = 2201;
const EXTRA_SSHD_DIR: &str = "/srv/suite/extra";

/// A second sshd on a host with a debug log; `drop` stops it.
struct ExtraSshd<'a> {
    cluster: &'a Cluster,
    host: &'static str,
}

impl<'a> ExtraSshd<'a> {
    /// Starts it with more configuration lines, which precede those of the host's sshd.
    fn start(cluster: &'a Cluster, host: &'static str, more: &str) -> Self {
        let config = format!("{more}\nPort {EXTRA_SSHD_PORT}\nPidFile {EXTRA_SSHD_DIR}/pid\nLogLevel DEBUG1\n");
        let extra = ExtraSshd { cluster, host };
        extra.stop();
        extra.exec(&format!(
            "mkdir -p {EXTRA_SSHD_DIR}; : >{EXTRA_SSHD_DIR}/log; {{ printf '%s' '{config}'; grep -vE '^(Port|PidFile|LogLevel)' /etc/ssh/sshd_config; }} >{EXTRA_SSHD_DIR}/config
             /usr/sbin/sshd -f {EXTRA_SSHD_DIR}/config -E {EXTRA_SSHD_DIR}/log"
        ));
        wait_until("the second sshd listens", || extra.read_log().contains("Server listening").then_some(()));
        extra
    }

    fn exec(&self, script: &str) -> String {
        self.cluster.exec_on(self.host, script)
    }

    fn read_log(&self) -> String {
        self.exec(&format!("cat {EXTRA_SSHD_DIR}/log"))
    }

    fn clear_log(&self) {
        self.exec(&format!(": >{EXTRA_SSHD_DIR}/log"));
    }

    /// The log has a line that contains all of these words.
    #[track_caller]
    fn assert_logged(&self, words: &[&str]) {
        let log = self.read_log();
        assert!(log.lines().any(|l| words.iter().all(|w| l.contains(w))), "{}: no line with {words:?}\n{log}", self.host);
    }

    fn stop(&self) {
        self.exec(&format!(
            "[ ! -e {EXTRA_SSHD_DIR}/pid ] || {{ p=$(cat {EXTRA_SSHD_DIR}/pid); kill $p; while [ -e /proc/$p ]; do sleep 0.05; done; }}
             rm -rf {EXTRA_SSHD_DIR}"
        ));
    }
}

impl Drop for ExtraSshd<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
    }
}

/// A laptop with these lines at the top of its ssh_config.
struct ClientConfig<'a> {
    cluster: &'a Cluster,
    laptop: Laptop,
    known_hosts: String,
}

impl<'a> ClientConfig<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        // The hosts' keys under the names of the second servers.
        let known = std::fs::read_to_string(cluster.client_file("known_hosts")).expect("known hosts");
        let extra = |line: &str| {
            let (names, key) = line.split_once(' ').unwrap_or_default();
            let address = names.split(',').nth(1).unwrap_or_default();
            format!("{line}\n[{address}]:{EXTRA_SSHD_PORT} {key}\n")
        };
        ClientConfig { cluster, laptop: Laptop::new(), known_hosts: known.lines().map(extra).collect() }
    }

    fn write_file(&self, name: &str, text: &str) -> PathBuf {
        self.laptop.write_file(name, text)
    }

    fn exec(&self, host: &str, config: &str) -> CliOutput {
        let known = self.write_file("known_hosts", &self.known_hosts);
        let mut text = format!(
            "{config}\nHost *\n User dev\n IdentityFile {}\n IdentitiesOnly yes\n",
            self.cluster.client_file("id_ed25519").display()
        );
        for name in CLUSTER_HOSTS {
            text.push_str(&format!("Host {name}\n HostName {}\n", self.cluster.host_address(name)));
        }
        text.push_str(&format!("Host *\n UserKnownHostsFile {}\n GlobalKnownHostsFile none\n", known.display()));
        self.write_file("ssh_config", &text);
        let inventory = format!(
            "name: way\nhosts: [{host}]\nssh: {{ config: ./ssh_config, host_keys: strict }}\nlaunch: {{ with: script, command: [\"true\"] }}\n"
        );
        let inventory = self.write_file("inventory.yaml", &inventory);
        self.laptop.run(&["exec", path_str(&inventory), "--", "echo it is $(hostname)"])
    }

    /// The connection succeeds.
    #[track_caller]
    fn assert_connects(&self, host: &str, config: &str) {
        self.exec(host, config).assert_exit_code(0).assert_contains(&format!("it is {host}"));
    }

    /// The connection is refused with these words.
    #[track_caller]
    fn assert_refused(&self, host: &str, config: &str, expected: &[&str]) {
        let ended = self.exec(host, config);
        assert_ne!(ended.exit_code, Some(0), "{}", ended.transcript());
        let flat = ended.transcript().split_whitespace().collect::<Vec<_>>().join(" ");
        for text in expected {
            assert!(flat.contains(text), "missing in the output: {text:?}\n{}", ended.transcript());
        }
    }
}

/// Applies to the second server of every host.
fn port_config() -> String {
    format!("Host gpu*\n Port {EXTRA_SSHD_PORT}\n")
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn key_exchange_honors_algorithm_lists() {
    let cluster = Cluster::acquire();
    let client = ClientConfig::new(&cluster);
    for (host, kex) in [("gpu01", "curve25519-sha256"), ("gpu02", "mlkem768x25519-sha256")] {
        let extra = ExtraSshd::start(&cluster, host, "");
        client.assert_connects(host, &port_config());
        extra.assert_logged(&["kex: algorithm: ", kex]);
        extra.assert_logged(&["kex: host key algorithm: ssh-ed25519"]);
        extra.clear_log();
        let lists = "Host *\n KexAlgorithms ^ecdh-sha2-nistp256\n Ciphers aes192-ctr\n MACs -*-etm@openssh.com,hmac-sha2-512\n \
                     HostKeyAlgorithms rsa-sha2-256\n";
        client.assert_connects(host, &format!("{}{lists}", port_config()));
        extra.assert_logged(&["kex: algorithm: ecdh-sha2-nistp256"]);
        extra.assert_logged(&["kex: host key algorithm: rsa-sha2-256"]);
        extra.assert_logged(&["kex: client->server cipher: aes192-ctr MAC: hmac-sha2-256"]);
        extra.clear_log();
        client.assert_connects(
            host,
            &format!(
                "{}Host *\n Ciphers +aes128-cbc\n KexAlgorithms sntrup761x25519-sha512@openssh.com,curve25519-sha256\n",
                port_config()
            ),
        );
        extra.assert_logged(&["kex: algorithm: curve25519-sha256"]);
        client.assert_refused(
            host,
            &format!("{}Host *\n Ciphers aes128-cbc\n", port_config()),
            &["no common cipher", "ssh_config:4", "aes256-gcm@openssh.com"],
        );
        client.assert_refused(host, &format!("{}Host *\n MACs hmac-sha3\n", port_config()), &["ssh_config:4", "hmac-sha3"]);
    }
    let _only = ExtraSshd::start(&cluster, "gpu02", "KexAlgorithms sntrup761x25519-sha512@openssh.com");
    client.assert_refused(
        "gpu02",
        &port_config(),
        &["no common key exchange: the server offers sntrup761x25519-sha512@openssh.com; we offer mlkem768x25519-sha256"],
    );
    drop(_only);
}

fn keygen(args: &[&str]) {
    let out = Command::new("ssh-keygen").args(args).output().expect("ssh-keygen is there");
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// The key is revoked in each possible form, although the CA vouches for it and the plain key is known.
fn assert_revocations(client: &mut ClientConfig<'_>, host: &str, (plain, public, ca): (&str, &str, &str)) {
    let home = client.laptop.home().to_owned();
    let at = |name: &str| home.join(name).to_str().expect("text").to_owned();
    let trusted = format!("{}{plain}", client.known_hosts);
    client.known_hosts = format!("{trusted}@revoked * {public}");
    client.assert_refused(host, &port_config(), &["revokes this key"]);
    client.known_hosts = format!("{trusted}@revoked * {ca}");
    client.assert_refused(host, &port_config(), &["revokes its authority"]);
    client.known_hosts = trusted;
    client.write_file("spec", "serial: 7\n");
    keygen(&["-q", "-k", "-f", &at("krl"), "-s", &at("ca.pub"), &at("spec")]);
    client.assert_refused(
        host,
        &format!("{}Host *\n RevokedHostKeys {}\n", port_config(), at("krl")),
        &["it revokes the certificate number 7"],
    );
    keygen(&["-q", "-k", "-f", &at("krl"), &at("key.pub")]);
    client.assert_refused(host, &format!("{}Host *\n RevokedHostKeys {}\n", port_config(), at("krl")), &["it revokes this key"]);
    client.write_file("list", &format!("# gone\n{public}"));
    client.assert_refused(host, &format!("{}Host *\n RevokedHostKeys {}\n", port_config(), at("list")), &["list: it revokes this key"]);
    client.write_file("list", "# none\n");
    client.assert_connects(host, &format!("{}Host *\n RevokedHostKeys {}\n", port_config(), at("list")));
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn host_certificates_and_revocations_are_honored() {
    let cluster = Cluster::acquire();
    for host in ["gpu01", "gpu02"] {
        let mut client = ClientConfig::new(&cluster);
        let home = client.laptop.home().to_owned();
        let at = |name: &str| home.join(name).to_str().expect("text").to_owned();
        keygen(&["-q", "-t", "ed25519", "-N", "", "-C", "ca", "-f", &at("ca")]);
        let plain = client.known_hosts.clone();
        let public = cluster.exec_on(host, "cat /etc/ssh/ssh_host_ed25519_key.pub");
        let ca = std::fs::read_to_string(at("ca.pub")).expect("a key");
        let started = |names: &str, serial: &str| {
            std::fs::write(at("key.pub"), &public).expect("written");
            keygen(&["-q", "-s", &at("ca"), "-I", &format!("box-{host}"), "-h", "-n", names, "-z", serial, &at("key.pub")]);
            let certificate = std::fs::read_to_string(at("key-cert.pub")).expect("a certificate");
            cluster.exec_on(host, &format!("mkdir -p /srv/suite/cert; echo '{}' >/srv/suite/cert/key-cert.pub", certificate.trim()));
            ExtraSshd::start(&cluster, host, "HostKey /etc/ssh/ssh_host_ed25519_key\nHostCertificate /srv/suite/cert/key-cert.pub")
        };
        let extra = started(&cluster.host_address(host), "7");
        client.known_hosts = format!(
            "@cert-authority [{}]:{EXTRA_SSHD_PORT} {ca}",
            cluster.host_address(host).rsplit_once('.').expect("an address").0.to_owned() + ".*"
        );
        client.assert_connects(host, &port_config());
        extra.assert_logged(&["kex: host key algorithm: ssh-ed25519-cert-v01@openssh.com"]);
        assert_revocations(&mut client, host, (&plain, &public, &ca));
        drop(extra);
        let extra = started("elsewhere", "8");
        client.known_hosts = format!("@cert-authority * {ca}");
        client.assert_refused(host, &port_config(), &["is not known", "it names elsewhere"]);
        // The known plain key is enough.
        client.known_hosts.push_str(&plain);
        client.assert_connects(host, &port_config());
        extra.assert_logged(&["kex: host key algorithm: ssh-ed25519-cert-v01@openssh.com"]);
        drop(extra);
        cluster.exec_on(host, "rm -rf /srv/suite/cert");
    }
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn jump_hosts_and_proxy_command_connect() {
    let cluster = Cluster::acquire();
    let client = ClientConfig::new(&cluster);
    let (one, two) = (ExtraSshd::start(&cluster, "gpu01", ""), ExtraSshd::start(&cluster, "gpu02", ""));
    let jumps = format!("{}Host gpu02\n ProxyJump bastion,dev@gpu01:{EXTRA_SSHD_PORT}\n", port_config());
    client.assert_connects("gpu02", &jumps);
    one.assert_logged(&[&format!("Accepted publickey for dev from {}", cluster.host_address("bastion"))]);
    two.assert_logged(&[&format!("Accepted publickey for dev from {}", cluster.host_address("gpu01"))]);
    // The same, but each jump host knows only the previous one, and the one in the middle has a user of its own.
    two.clear_log();
    one.clear_log();
    client
        .assert_connects("gpu02", &format!("Host gpu01\n User root\n ProxyJump bastion\nHost gpu02\n ProxyJump gpu01\n{}", port_config()));
    one.assert_logged(&[&format!("Accepted publickey for root from {}", cluster.host_address("bastion"))]);
    two.assert_logged(&[&format!("Accepted publickey for dev from {}", cluster.host_address("gpu01"))]);

    two.clear_log();
    let ssh =
        format!("Host gpu02\n ProxyCommand ssh -F {} -W %h:%p bastion\n{}", cluster.client_file("ssh_config").display(), port_config());
    client.assert_connects("gpu02", &ssh);
    two.assert_logged(&[&format!("Accepted publickey for dev from {}", cluster.host_address("bastion"))]);
    let closed = format!("Host gpu02\n ProxyCommand ssh -F {} -W %h:1 bastion\n", cluster.client_file("ssh_config").display());
    client.assert_refused("gpu02", &closed, &["ProxyCommand", "ssh_config:2", "open failed"]);
    // A jump host that is down is reported once, by its name.
    let down = format!("Host gpu*\n ProxyJump nowhere\nHost nowhere\n HostName {}\n Port 1\n", cluster.host_address("gpu01"));
    client.assert_refused("gpu02", &down, &["nowhere", "connection refused"]);
    drop((one, two));
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn changed_host_key_is_refused_by_old_and_new_sshd() {
    let cluster = Cluster::acquire();
    for host in ["gpu01", "gpu03"] {
        let mut client = ClientConfig::new(&cluster);
        client.assert_connects(host, "");
        let other = client.known_hosts.lines().find(|l| l.starts_with("bastion,") && l.contains("ssh-ed25519")).expect("a line");
        let key = other.split_once(' ').expect("a key").1;
        client.known_hosts = format!("# changed\n{},{host} {key}\n", cluster.host_address(host));
        client.assert_refused(
            host,
            "",
            &["the host key has changed", "known_hosts:2 has ssh-ed25519", &format!("ssh-keygen -R {} -f", cluster.host_address(host))],
        );
    }
}
