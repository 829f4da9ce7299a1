//! Host certificates, revoked keys, and KnownHostsCommand.

use std::path::Path;

use orchestrate::inventory::{HostKeyChecking, InventoryHost};
use orchestrate::remote::{HostConnector, RemoteError};

use crate::sshd::{Sshd, expect_refusal, generate_key, run_command};
use crate::test_program::write_program;

/// A server whose ed25519 key has a certificate, and keys of other types.
struct CertifiedServer {
    sshd: Sshd,
    ca_public_key: String,
}

impl CertifiedServer {
    fn start() -> Self {
        let mut sshd = Sshd::start_with("", &["ed25519", "rsa"]);
        for (name, kind) in [("ca", "ed25519"), ("other_ca", "ed25519"), ("rsa_ca", "rsa")] {
            generate_key(&sshd.path(name), kind, "");
        }
        let ca = std::fs::read_to_string(sshd.path("ca.pub")).expect("a key");
        sign_host_key(&sshd, "ca", "127.0.0.1", &[]);
        let mut config = std::fs::read_to_string(sshd.path("sshd_config")).expect("a config");
        config.push_str(&format!("HostCertificate {}\n", sshd.path_string("host_ed25519-cert.pub")));
        sshd.write("sshd_config", &config);
        sshd.restart();
        CertifiedServer { sshd, ca_public_key: ca }
    }

    /// The host, with this text as its known_hosts.
    fn host(&self, known: &str) -> InventoryHost {
        let mut host = self.sshd.host("gpu01");
        host.ssh.known_hosts_file = Some(self.sshd.write("kh", known));
        host
    }

    async fn refusal(&self, known: &str) -> (String, String) {
        expect_refusal(self.sshd.fleet(vec![self.host(known)]).connect(0).await)
    }

    async fn assert_connects(&self, known: &str) {
        let host = self.sshd.fleet(vec![self.host(known)]).connect(0).await;
        host.unwrap_or_else(|e| panic!("{known}: {e}\n{}", self.sshd.log())).close().await;
    }

    fn cert_authority_line(&self) -> String {
        format!("@cert-authority [127.0.0.*]:* {}", self.ca_public_key)
    }
}

/// Signs the host's ed25519 key for these names.
fn sign_host_key(sshd: &Sshd, ca: &str, names: &str, more: &[&str]) {
    let (ca, key) = (sshd.path_string(ca), sshd.path_string("host_ed25519.pub"));
    let names = if names.is_empty() { vec![] } else { vec!["-n", names] };
    run_command("ssh-keygen", &[&["-q", "-s", &ca, "-I", "box", "-h", "-z", "42"], &names[..], more, &[key.as_str()]].concat());
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn cert_authority_covers_only_its_hosts() {
    let mut signed = CertifiedServer::start();
    let known = signed.cert_authority_line();
    signed.assert_connects(&known).await;
    for (ca, names, more, expected) in [
        ("ca", "elsewhere,*.example", &[][..], "it is not for 127.0.0.1: it names elsewhere, *.example"),
        ("ca", "127.0.0.1", &["-V", "20200101000000Z:20210101000000Z"][..], "it expired on 2021-01-01 00:00 UTC"),
        ("ca", "127.0.0.1", &["-V", "20990101000000Z:20991231000000Z"][..], "it is not valid before 2099-01-01 00:00 UTC"),
        ("ca", "127.0.0.1", &["-O", "critical:odd@example=1"][..], "unknown critical options: odd@example"),
        ("ca", "", &[][..], "it names no host"),
        ("other_ca", "127.0.0.1", &[][..], "kh:1 names another authority, SHA256:"),
    ] {
        sign_host_key(&signed.sshd, ca, names, more);
        signed.sshd.restart();
        let (what, _) = signed.refusal(&known).await;
        assert!(what.contains("is not known") && what.contains("certificate “box” (number 42, signed by SHA256:"), "{what}");
        assert!(what.contains(expected), "{what}");
        // As with OpenSSH, a known plain key is enough.
        signed.assert_connects(&format!("{known}{}", signed.sshd.known_hosts_line("ed25519"))).await;
    }
    sign_host_key(&signed.sshd, "rsa_ca", "127.0.0.1", &["-t", "rsa-sha2-256"]);
    signed.sshd.restart();
    let ca = std::fs::read_to_string(signed.sshd.path("rsa_ca.pub")).expect("a key");
    let known = format!("@cert-authority * {ca}");
    signed.assert_connects(&known).await;
    signed.sshd.write("ssh_config", "Host *\n CASignatureAlgorithms ssh-ed25519\n");
    let (what, _) = signed.refusal(&known).await;
    assert!(what.contains("signed with rsa-sha2-256, which CASignatureAlgorithms does not allow"), "{what}");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn revoked_key_is_refused_despite_certificate() {
    let signed = CertifiedServer::start();
    let sshd = &signed.sshd;
    let key = std::fs::read_to_string(sshd.path("host_ed25519.pub")).expect("a key");
    let both = format!("{}{}", signed.cert_authority_line(), sshd.known_hosts_line("ed25519"));
    let (what, _) = signed.refusal(&format!("{both}@revoked * {}", signed.ca_public_key)).await;
    assert!(what.contains("kh:3 revokes its authority"), "{what}");
    let (what, hint) = signed.refusal(&format!("{both}@revoked * {key}")).await;
    assert!(what.contains("kh:3 revokes this key") && hint.contains("ssh-keygen -A"), "{what} {hint}");

    let keygen = |spec: &str| {
        let (spec, list, ca) = (sshd.write("spec", spec), sshd.path_string("list"), sshd.path_string("ca.pub"));
        run_command("ssh-keygen", &["-q", "-k", "-f", &list, "-s", &ca, &spec]);
    };
    sshd.write("ssh_config", &format!("Host *\n RevokedHostKeys {}\n", sshd.path_string("list")));
    sshd.write("list", "# nothing\n");
    signed.assert_connects(&both).await;
    for (text, expected) in [(&key, "it revokes this key ("), (&signed.ca_public_key, "it revokes the authority SHA256:")] {
        sshd.write("list", &format!("# gone\n{text}"));
        let (what, _) = signed.refusal(&both).await;
        assert!(what.contains(&format!("{}: {expected}", sshd.path_string("list"))), "{what}");
    }
    for (spec, expected) in [
        (key.clone(), Some("it revokes this key (")),
        (format!("sha256: {key}"), Some("it revokes this key by its fingerprint")),
        ("serial: 40-50\n".to_owned(), Some("it revokes the certificate number 42 of the authority SHA256:")),
        ("id: box\n".to_owned(), Some("it revokes the certificate “box”")),
        ("serial: 43\nid: other\n".to_owned(), None),
    ] {
        keygen(&spec);
        match expected {
            Some(expected) => {
                let (what, _) = signed.refusal(&both).await;
                assert!(what.contains(expected), "{spec}: {what}");
            }
            None => signed.assert_connects(&both).await,
        }
    }
    for (bytes, expected) in [("garbage\n", "line 1 is not a public key"), ("SSHKRL\n\0\0", "damaged")] {
        sshd.write("list", bytes);
        let error = sshd.fleet(vec![signed.host(&both)]).connect(0).await.err().expect("unreadable");
        assert!(matches!(&error, RemoteError::InvalidConfig { what, .. } if what.contains(expected)), "{error}");
    }
    std::fs::remove_file(sshd.path("list")).expect("removed");
    let error = sshd.fleet(vec![signed.host(&both)]).connect(0).await.err().expect("missing");
    assert!(error.to_string().contains("no such file"), "{error}");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn certificate_is_requested_only_with_known_authority() {
    let signed = CertifiedServer::start();
    let sshd = &signed.sshd;
    // The rsa key has no certificate: the server shows it if it is the known one.
    signed.assert_connects(&sshd.known_hosts_line("rsa")).await;
    signed.assert_connects(&format!("{}{}", sshd.known_hosts_line("rsa"), signed.cert_authority_line())).await;
    sshd.write("ssh_config", "Host *\n HostKeyAlgorithms rsa-sha2-512\n");
    signed.assert_connects(&sshd.known_hosts_line("rsa")).await;
    let (what, hint) = signed.refusal(&sshd.known_hosts_line("ed25519")).await;
    assert!(what.contains("of a different type") && hint.contains("ssh-keygen -R '[127.0.0.1]:"), "{what} {hint}");
    sshd.write("ssh_config", "Host *\n HostKeyAlgorithms *-cert-v01@openssh.com\n");
    signed.assert_connects(&signed.cert_authority_line()).await;
    let (what, _) = signed.refusal(&sshd.known_hosts_line("ed25519")).await;
    assert!(what.contains("which HostKeyAlgorithms does not allow") && what.contains("no @cert-authority line"), "{what}");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn known_hosts_command_supplies_key() {
    let sshd = Sshd::start();
    let query = sshd.path_string("asked");
    let program = sshd.path_string("keys");
    write_program(Path::new(&program), &format!("#!/bin/sh\necho \"$@\" >>{query}\ncat {}\n", sshd.path_string("printed")));
    sshd.write("printed", &sshd.known_hosts_line("ed25519"));
    let mut host = sshd.host("gpu01");
    host.ssh.known_hosts_file = Some(sshd.write("empty", ""));
    let lines = || std::fs::read_to_string(&query).expect("asked").lines().map(str::to_owned).collect::<Vec<_>>();

    sshd.write("ssh_config", &format!("Host *\n KnownHostsCommand {program} %H %p %n\n"));
    sshd.fleet(vec![host.clone()]).connect(0).await.expect("the command knows it").close().await;
    let port = sshd.port;
    assert_eq!(lines(), [format!("[127.0.0.1]:{port} {port} gpu01")], "asked once, as nothing depends on the key");

    std::fs::remove_file(&query).expect("removed");
    sshd.write("ssh_config", &format!("Host *\n KnownHostsCommand {program} %I %t %f %K %%\n"));
    sshd.fleet(vec![host.clone()]).connect(0).await.expect("the command knows it").close().await;
    let key = std::fs::read_to_string(sshd.path("host_ed25519.pub")).expect("a key");
    let fingerprint = run_command("ssh-keygen", &["-l", "-f", &sshd.path_string("host_ed25519.pub")]);
    let (key, fingerprint) = (key.split(' ').nth(1).expect("a key"), fingerprint.split(' ').nth(1).expect("a print"));
    assert_eq!(lines(), ["ORDER NONE NONE NONE %".to_owned(), format!("HOSTNAME ssh-ed25519 {fingerprint} {key} %")]);

    generate_key(&sshd.path("other"), "ed25519", "");
    let other = std::fs::read_to_string(sshd.path("other.pub")).expect("a key");
    sshd.write("printed", &format!("[127.0.0.1]:{port} {other}"));
    let (what, hint) = expect_refusal(sshd.fleet(vec![host.clone()]).connect(0).await);
    assert!(what.contains("KnownHostsCommand:1 has ssh-ed25519") && hint.contains("must print the new key"), "{what} {hint}");

    let location = "~/ssh_config:2";
    for (program, expected) in [
        ("/bin/sh -c \"echo sorry >&2; exit 3\"", "status 3; it printed “sorry”"),
        ("/no/such/program", "could not be started"),
        ("keys", "absolute path"),
    ] {
        sshd.write("ssh_config", &format!("Host *\n KnownHostsCommand {program}\n"));
        let error = sshd.fleet(vec![host.clone()]).connect(0).await.err().expect("it fails");
        let what = error.to_string();
        assert!(matches!(error, RemoteError::InvalidConfig { .. }) && what.contains(expected) && what.contains(location), "{what}");
    }
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn concurrent_new_keys_are_recorded_or_write_error_shown() {
    let mut sshd = Sshd::start();
    let mut host = sshd.host("gpu01");
    host.ssh.host_key_checking = Some(HostKeyChecking::AcceptNew);
    host.ssh.known_hosts_file = Some(sshd.path_string("new"));
    let fleets: Vec<_> = (0..4).map(|_| sshd.fleet(vec![host.clone()])).collect();
    let all = futures_util::future::join_all(fleets.iter().map(|f| f.connect(0))).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(std::fs::read_to_string(sshd.path("new")).expect("written"), sshd.known_hosts_line("ed25519"));

    let person = std::sync::Arc::new(crate::sshd::ScriptedPrompt::without_answers());
    sshd.write("file", "");
    host.ssh.known_hosts_file = Some(sshd.path_string("file/known_hosts"));
    let fleet = orchestrate::remote::SshFleet::new(vec![host], sshd.settings(&person));
    fleet.connect(0).await.expect("accepted").close().await;
    let output = person.notices();
    assert!(output.len() == 1 && output[0].contains("cannot write") && output[0].contains("file/known_hosts"), "{output:?}");
    // In one run of the program, the host must show the same key again.
    fleet.connect(0).await.expect("the same key").close().await;
    std::fs::remove_file(sshd.path("host_ed25519")).expect("removed");
    crate::sshd::run_command("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &sshd.path_string("host_ed25519")]);
    sshd.restart();
    let (what, hint) = crate::sshd::expect_refusal(fleet.connect(0).await);
    assert!(what.contains("has changed: an earlier connection presented ssh-ed25519") && hint.contains("start again"), "{what}; {hint}");
    assert_eq!(person.notices().len(), 1);
}
