//! Host certificates, revoked keys, and commands that know host keys.
#![expect(clippy::expect_used, clippy::panic, reason = "a test says what it believes")]

use std::os::unix::fs::PermissionsExt as _;

use orchestrate::inventory::{Host, HostKeys};
use orchestrate::remote::{Connect, RemoteError};

use crate::sshd::{Sshd, keygen, refused, run};

/// A server whose ed25519 key has a certificate, and further keys.
struct Signed {
    sshd: Sshd,
    ca: String,
}

impl Signed {
    fn start() -> Self {
        let mut sshd = Sshd::with("", &["ed25519", "rsa"]);
        for (name, kind) in [("ca", "ed25519"), ("other_ca", "ed25519"), ("rsa_ca", "rsa")] {
            keygen(&sshd.path(name), kind, "");
        }
        let ca = std::fs::read_to_string(sshd.path("ca.pub")).expect("a key");
        sign(&sshd, "ca", "127.0.0.1", &[]);
        let mut config = std::fs::read_to_string(sshd.path("sshd_config")).expect("a config");
        config.push_str(&format!("HostCertificate {}\n", sshd.shown("host_ed25519-cert.pub")));
        sshd.write("sshd_config", &config);
        sshd.restart();
        Signed { sshd, ca }
    }

    /// The host, with this for its known_hosts.
    fn host(&self, known: &str) -> Host {
        let mut host = self.sshd.host("gpu01");
        host.ssh.known_hosts = Some(self.sshd.write("kh", known));
        host
    }

    async fn refusal(&self, known: &str) -> (String, String) {
        refused(self.sshd.fleet(vec![self.host(known)]).connect(0).await)
    }

    async fn opens(&self, known: &str) {
        let host = self.sshd.fleet(vec![self.host(known)]).connect(0).await;
        host.unwrap_or_else(|e| panic!("{known}: {e}\n{}", self.sshd.log())).close().await;
    }

    fn authority(&self) -> String {
        format!("@cert-authority [127.0.0.*]:* {}", self.ca)
    }
}

/// Signs the host's ed25519 key for these names.
fn sign(sshd: &Sshd, ca: &str, names: &str, more: &[&str]) {
    let (ca, key) = (sshd.shown(ca), sshd.shown("host_ed25519.pub"));
    let names = if names.is_empty() { vec![] } else { vec!["-n", names] };
    run("ssh-keygen", &[&["-q", "-s", &ca, "-I", "box", "-h", "-z", "42"], &names[..], more, &[key.as_str()]].concat());
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn an_authority_vouches_for_its_hosts_and_for_no_others() {
    let mut signed = Signed::start();
    let known = signed.authority();
    signed.opens(&known).await;
    for (ca, names, more, says) in [
        ("ca", "elsewhere,*.example", &[][..], "it is not for 127.0.0.1: it names elsewhere, *.example"),
        ("ca", "127.0.0.1", &["-V", "20200101000000Z:20210101000000Z"][..], "it expired on 2021-01-01 00:00 UTC"),
        ("ca", "127.0.0.1", &["-V", "20990101000000Z:20991231000000Z"][..], "it is not valid before 2099-01-01 00:00 UTC"),
        ("ca", "127.0.0.1", &["-O", "critical:odd@example=1"][..], "critical options that nobody knows: odd@example"),
        ("ca", "", &[][..], "it names no host"),
        ("other_ca", "127.0.0.1", &[][..], "kh:1 names another authority, SHA256:"),
    ] {
        sign(&signed.sshd, ca, names, more);
        signed.sshd.restart();
        let (what, _) = signed.refusal(&known).await;
        assert!(what.contains("is not known") && what.contains("certificate “box” (number 42, signed by SHA256:"), "{what}");
        assert!(what.contains(says), "{what}");
        // As with OpenSSH, its plain key is good enough where it is known.
        signed.opens(&format!("{known}{}", signed.sshd.known("ed25519"))).await;
    }
    sign(&signed.sshd, "rsa_ca", "127.0.0.1", &["-t", "rsa-sha2-256"]);
    signed.sshd.restart();
    let ca = std::fs::read_to_string(signed.sshd.path("rsa_ca.pub")).expect("a key");
    let known = format!("@cert-authority * {ca}");
    signed.opens(&known).await;
    signed.sshd.write("ssh_config", "Host *\n CASignatureAlgorithms ssh-ed25519\n");
    let (what, _) = signed.refusal(&known).await;
    assert!(what.contains("signed with rsa-sha2-256, which CASignatureAlgorithms does not allow"), "{what}");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn what_is_revoked_is_refused_whoever_vouches_for_it() {
    let signed = Signed::start();
    let sshd = &signed.sshd;
    let key = std::fs::read_to_string(sshd.path("host_ed25519.pub")).expect("a key");
    let both = format!("{}{}", signed.authority(), sshd.known("ed25519"));
    let (what, _) = signed.refusal(&format!("{both}@revoked * {}", signed.ca)).await;
    assert!(what.contains("kh:3 revokes its authority"), "{what}");
    let (what, hint) = signed.refusal(&format!("{both}@revoked * {key}")).await;
    assert!(what.contains("kh:3 revokes this key") && hint.contains("ssh-keygen -A"), "{what} {hint}");

    let keygen = |spec: &str| {
        let (spec, list, ca) = (sshd.write("spec", spec), sshd.shown("list"), sshd.shown("ca.pub"));
        run("ssh-keygen", &["-q", "-k", "-f", &list, "-s", &ca, &spec]);
    };
    sshd.write("ssh_config", &format!("Host *\n RevokedHostKeys {}\n", sshd.shown("list")));
    sshd.write("list", "# nothing\n");
    signed.opens(&both).await;
    for (text, says) in [(&key, "it revokes this key ("), (&signed.ca, "it revokes the authority SHA256:")] {
        sshd.write("list", &format!("# gone\n{text}"));
        let (what, _) = signed.refusal(&both).await;
        assert!(what.contains(&format!("{}: {says}", sshd.shown("list"))), "{what}");
    }
    for (spec, says) in [
        (key.clone(), Some("it revokes this key (")),
        (format!("sha256: {key}"), Some("it revokes this key by its fingerprint")),
        ("serial: 40-50\n".to_owned(), Some("it revokes the certificate number 42 of the authority SHA256:")),
        ("id: box\n".to_owned(), Some("it revokes the certificate “box”")),
        ("serial: 43\nid: other\n".to_owned(), None),
    ] {
        keygen(&spec);
        match says {
            Some(says) => {
                let (what, _) = signed.refusal(&both).await;
                assert!(what.contains(says), "{spec}: {what}");
            }
            None => signed.opens(&both).await,
        }
    }
    for (bytes, says) in [("garbage\n", "line 1 is not a public key"), ("SSHKRL\n\0\0", "damaged")] {
        sshd.write("list", bytes);
        let error = sshd.fleet(vec![signed.host(&both)]).connect(0).await.err().expect("unreadable");
        assert!(matches!(&error, RemoteError::Settings { what, .. } if what.contains(says)), "{error}");
    }
    std::fs::remove_file(sshd.path("list")).expect("removed");
    let error = sshd.fleet(vec![signed.host(&both)]).connect(0).await.err().expect("missing");
    assert!(error.to_string().contains("there is no such file"), "{error}");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_certificate_is_asked_for_where_an_authority_is_known_and_a_key_else() {
    let signed = Signed::start();
    let sshd = &signed.sshd;
    // The rsa key has no certificate: it is shown where it is what is known.
    signed.opens(&sshd.known("rsa")).await;
    signed.opens(&format!("{}{}", sshd.known("rsa"), signed.authority())).await;
    sshd.write("ssh_config", "Host *\n HostKeyAlgorithms rsa-sha2-512\n");
    signed.opens(&sshd.known("rsa")).await;
    let (what, hint) = signed.refusal(&sshd.known("ed25519")).await;
    assert!(what.contains("of another type") && hint.contains("ssh-keygen -R '[127.0.0.1]:"), "{what} {hint}");
    sshd.write("ssh_config", "Host *\n HostKeyAlgorithms *-cert-v01@openssh.com\n");
    signed.opens(&signed.authority()).await;
    let (what, _) = signed.refusal(&sshd.known("ed25519")).await;
    assert!(what.contains("which HostKeyAlgorithms does not allow") && what.contains("no @cert-authority line"), "{what}");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_command_may_know_the_key() {
    let sshd = Sshd::start();
    let asked = sshd.shown("asked");
    let program = sshd.write("keys", &format!("#!/bin/sh\necho \"$@\" >>{asked}\ncat {}\n", sshd.shown("printed")));
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("a program");
    sshd.write("printed", &sshd.known("ed25519"));
    let mut host = sshd.host("gpu01");
    host.ssh.known_hosts = Some(sshd.write("empty", ""));
    let lines = || std::fs::read_to_string(&asked).expect("asked").lines().map(str::to_owned).collect::<Vec<_>>();

    sshd.write("ssh_config", &format!("Host *\n KnownHostsCommand {program} %H %p %n\n"));
    sshd.fleet(vec![host.clone()]).connect(0).await.expect("the command knows it").close().await;
    let port = sshd.port;
    assert_eq!(lines(), [format!("[127.0.0.1]:{port} {port} gpu01")], "asked once, as nothing depends on the key");

    std::fs::remove_file(&asked).expect("removed");
    sshd.write("ssh_config", &format!("Host *\n KnownHostsCommand {program} %I %t %f %K %%\n"));
    sshd.fleet(vec![host.clone()]).connect(0).await.expect("the command knows it").close().await;
    let key = std::fs::read_to_string(sshd.path("host_ed25519.pub")).expect("a key");
    let fingerprint = run("ssh-keygen", &["-l", "-f", &sshd.shown("host_ed25519.pub")]);
    let (key, fingerprint) = (key.split(' ').nth(1).expect("a key"), fingerprint.split(' ').nth(1).expect("a print"));
    assert_eq!(lines(), ["ORDER NONE NONE NONE %".to_owned(), format!("HOSTNAME ssh-ed25519 {fingerprint} {key} %")]);

    keygen(&sshd.path("other"), "ed25519", "");
    let other = std::fs::read_to_string(sshd.path("other.pub")).expect("a key");
    sshd.write("printed", &format!("[127.0.0.1]:{port} {other}"));
    let (what, hint) = refused(sshd.fleet(vec![host.clone()]).connect(0).await);
    assert!(what.contains("KnownHostsCommand:1 has ssh-ed25519") && hint.contains("must print the new key"), "{what} {hint}");

    let place = "~/ssh_config:2";
    for (program, says) in [
        ("/bin/sh -c \"echo sorry >&2; exit 3\"", "status 3; it said “sorry”"),
        ("/no/such/program", "could not be started"),
        ("keys", "absolute path"),
    ] {
        sshd.write("ssh_config", &format!("Host *\n KnownHostsCommand {program}\n"));
        let error = sshd.fleet(vec![host.clone()]).connect(0).await.err().expect("it fails");
        let what = error.to_string();
        assert!(matches!(error, RemoteError::Settings { .. }) && what.contains(says) && what.contains(place), "{what}");
    }
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_new_key_is_noted_by_many_at_once_and_a_file_that_cannot_be_written_is_said() {
    let mut sshd = Sshd::start();
    let mut host = sshd.host("gpu01");
    host.ssh.host_keys = Some(HostKeys::AcceptNew);
    host.ssh.known_hosts = Some(sshd.shown("new"));
    let fleets: Vec<_> = (0..4).map(|_| sshd.fleet(vec![host.clone()])).collect();
    let all = futures_util::future::join_all(fleets.iter().map(|f| f.connect(0))).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(std::fs::read_to_string(sshd.path("new")).expect("written"), sshd.known("ed25519"));

    let person = std::sync::Arc::new(crate::sshd::Person::silent());
    sshd.write("file", "");
    host.ssh.known_hosts = Some(sshd.shown("file/known_hosts"));
    let fleet = orchestrate::remote::SshFleet::new(vec![host], sshd.settings(&person));
    fleet.connect(0).await.expect("accepted").close().await;
    let told = person.was_told();
    assert!(told.len() == 1 && told[0].contains("file/known_hosts could not be written"), "{told:?}");
    // While the program runs, the host has to show the same key again.
    fleet.connect(0).await.expect("the same key").close().await;
    std::fs::remove_file(sshd.path("host_ed25519")).expect("removed");
    crate::sshd::run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &sshd.shown("host_ed25519")]);
    sshd.restart();
    let (what, hint) = crate::sshd::refused(fleet.connect(0).await);
    assert!(what.contains("has changed: what it showed before has ssh-ed25519") && hint.contains("start again"), "{what}; {hint}");
    assert_eq!(person.was_told().len(), 1);
}
