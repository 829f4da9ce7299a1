//! Who we are: key types, encrypted keys, the agent, passwords, and how often a server is asked.
#![expect(clippy::expect_used, reason = "a test says what it believes")]

use std::process::{Command, Stdio};
use std::sync::Arc;

use orchestrate::remote::{Connect, RemoteError, SshFleet};

use crate::need_sshd;
use crate::sshd::{Person, Sshd, keygen, refused, run};

fn allow(sshd: &Sshd, key: &str) {
    let public = std::fs::read_to_string(sshd.path(&format!("{key}.pub"))).expect("a key");
    sshd.write("authorized", &public);
}

#[tokio::test]
async fn every_key_type_and_format_opens_the_door() {
    need_sshd!();
    let sshd = Sshd::start();
    keygen(&sshd.path("rsa"), "rsa", "");
    keygen(&sshd.path("ecdsa"), "ecdsa", "");
    run("ssh-keygen", &["-q", "-t", "rsa", "-m", "PEM", "-N", "", "-f", &sshd.shown("pem")]);
    run("ssh-keygen", &["-q", "-t", "rsa", "-m", "PKCS8", "-N", "", "-f", &sshd.shown("pkcs8")]);
    run("ssh-keygen", &["-q", "-t", "ecdsa", "-m", "PKCS8", "-N", "", "-f", &sshd.shown("ec8")]);
    for key in ["rsa", "ecdsa", "pem", "pkcs8", "ec8"] {
        allow(&sshd, key);
        let mut host = sshd.host("gpu01");
        host.ssh.identity = vec![key.to_owned()];
        sshd.fleet(vec![host]).connect(0).await.unwrap_or_else(|e| panic!("{key}: {e}")).close().await;
    }
}

#[tokio::test]
async fn an_encrypted_key_is_asked_for_once_for_all_hosts() {
    need_sshd!();
    let sshd = Sshd::start();
    keygen(&sshd.path("locked"), "ed25519", "geheim");
    allow(&sshd, "locked");
    let mut host = sshd.host("gpu01");
    host.ssh.identity = vec![sshd.shown("locked")];
    let person = Arc::new(Person::saying(&["falsch", "geheim"]));
    let fleet = SshFleet::new(vec![host.clone(); 4], sshd.settings(&person));
    let hosts = futures_util::future::join_all((0..4).map(|n| fleet.connect(n))).await;
    assert!(hosts.iter().all(Result::is_ok), "{:?}", hosts.into_iter().filter_map(Result::err).collect::<Vec<_>>());
    assert_eq!(person.was_asked().len(), 2, "{:?}", person.was_asked());
    assert!(person.was_told().iter().any(|t| t.contains("wrong passphrase")), "{:?}", person.was_told());

    let person = Arc::new(Person::saying(&["a", "b", "c", "geheim"]));
    let fleet = SshFleet::new(vec![host.clone(); 2], sshd.settings(&person));
    let (one, two) = tokio::join!(fleet.connect(0), fleet.connect(1));
    for result in [one, two] {
        let error = result.err().expect("wrong");
        assert!(matches!(error, RemoteError::Settings { .. }) && error.to_string().contains("wrong passphrase"), "{error}");
    }
    assert_eq!(person.was_asked().len(), 3);

    let error = sshd.fleet(vec![host]).connect(0).await.err().expect("nobody there");
    assert!(error.to_string().contains("nobody was there") && error.hint().starts_with("ssh-add "), "{error}");
}

#[tokio::test]
async fn a_key_that_the_server_does_not_want_is_not_asked_for() {
    need_sshd!();
    let sshd = Sshd::start();
    keygen(&sshd.path("locked"), "ed25519", "geheim");
    let mut host = sshd.host("gpu01");
    host.ssh.identity = vec![sshd.shown("locked"), sshd.shown("id")];
    let person = Arc::new(Person::silent());
    SshFleet::new(vec![host], sshd.settings(&person)).connect(0).await.expect("the other key opens");
    assert_eq!(person.was_asked(), Vec::<String>::new());
}

#[tokio::test]
async fn a_key_file_that_cannot_be_used_is_named_with_its_remedy() {
    need_sshd!();
    let sshd = Sshd::start();
    let mut host = sshd.host("gpu01");
    let mut said = |identity: String| {
        host.ssh.identity = vec![identity];
        let fleet = sshd.fleet(vec![host.clone()]);
        async move {
            let error = fleet.connect(0).await.err().expect("unusable");
            assert!(matches!(error, RemoteError::Settings { .. }), "{error:?}");
            format!("{error}\n{}", error.hint())
        }
    };
    let text = said("~/nowhere".to_owned()).await;
    assert!(text.contains(&sshd.shown("nowhere")) && text.contains("no such file"), "{text}");
    run("cp", &[&sshd.shown("id"), &sshd.shown("open")]);
    run("chmod", &["644", &sshd.shown("open")]);
    let text = said("open".to_owned()).await;
    assert!(text.contains("0644") && text.contains("chmod 600"), "{text}");
    sshd.write("junk", "hello");
    run("chmod", &["600", &sshd.shown("junk")]);
    let text = said("junk".to_owned()).await;
    assert!(text.contains("not a private key"), "{text}");
}

/// An ssh-agent of one test.
struct Agent {
    pid: String,
    socket: String,
}

impl Agent {
    fn start(sshd: &Sshd) -> Self {
        let socket = sshd.shown("agent");
        let text = run("ssh-agent", &["-s", "-a", &socket]);
        let pid = text.split("SSH_AGENT_PID=").nth(1).and_then(|t| t.split(';').next()).expect("a pid").to_owned();
        Agent { pid, socket }
    }

    fn add(&self, key: &str) {
        let done = Command::new("ssh-add").args(["-q", key]).env("SSH_AUTH_SOCK", &self.socket).stderr(Stdio::null()).status();
        assert!(done.expect("ssh-add runs").success(), "{key}");
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        Command::new("kill").arg(&self.pid).status().ok();
    }
}

#[tokio::test]
async fn the_agent_signs_and_a_named_key_comes_before_its_others() {
    need_sshd!();
    let sshd = Sshd::start();
    let agent = Agent::start(&sshd);
    for n in 0..7 {
        keygen(&sshd.path(&format!("other{n}")), "ed25519", "");
        agent.add(&sshd.shown(&format!("other{n}")));
    }
    keygen(&sshd.path("rsa"), "rsa", "");
    let mut settings = sshd.settings(&Arc::new(Person::silent()));
    settings.agent = Some(agent.socket.clone().into());
    let mut host = sshd.host("gpu01");
    SshFleet::new(vec![host.clone()], settings.clone()).connect(0).await.expect("the named key comes first");

    host.ssh.identity = Vec::new();
    let (what, _) = refused(SshFleet::new(vec![host.clone()], settings.clone()).connect(0).await);
    assert!(what.contains("(agent)") && what.contains("publickey"), "{what}");
    let tries = sshd.log().matches("Failed publickey").count();
    assert!(tries <= 5, "{tries} tries");

    allow(&sshd, "rsa");
    agent.add(&sshd.shown("rsa"));
    run("mv", &[&sshd.shown("rsa"), &sshd.shown("moved")]);
    sshd.write("ssh_config", &format!("Host *\n IdentityFile {}\n IdentitiesOnly yes\n", sshd.shown("rsa.pub")));
    SshFleet::new(vec![host.clone()], settings.clone()).connect(0).await.expect("a public key chooses the agent's");

    sshd.write("ssh_config", "Host *\n IdentityAgent none\n");
    let (what, _) = refused(SshFleet::new(vec![host], settings).connect(0).await);
    assert!(what.contains("there is no key"), "{what}");
}

#[tokio::test]
async fn an_agent_that_is_gone_is_passed_over_and_named() {
    need_sshd!();
    let sshd = Sshd::start();
    let mut settings = sshd.settings(&Arc::new(Person::silent()));
    settings.agent = Some(sshd.path("no-agent"));
    let mut host = sshd.host("gpu01");
    SshFleet::new(vec![host.clone()], settings.clone()).connect(0).await.expect("the key file opens");
    host.ssh.identity = Vec::new();
    let (what, _) = refused(SshFleet::new(vec![host], settings).connect(0).await);
    assert!(what.contains("no-agent"), "{what}");
}

#[tokio::test]
async fn a_user_certificate_beside_the_key_is_used() {
    need_sshd!();
    let sshd = Sshd::start();
    keygen(&sshd.path("ca"), "ed25519", "");
    keygen(&sshd.path("signed"), "ed25519", "");
    run("ssh-keygen", &["-q", "-s", &sshd.shown("ca"), "-I", "t", "-n", &crate::sshd::me(), &sshd.shown("signed.pub")]);
    let ca = std::fs::read_to_string(sshd.path("ca.pub")).expect("a key");
    sshd.write("authorized", &format!("cert-authority {ca}"));
    let mut host = sshd.host("gpu01");
    host.ssh.identity = vec![sshd.shown("signed")];
    sshd.fleet(vec![host]).connect(0).await.expect("the certificate opens");
}

#[tokio::test]
async fn a_wrong_password_is_asked_once_and_never_tried_again() {
    need_sshd!();
    let sshd = Sshd::with("Match all\nPasswordAuthentication yes\nPermitRootLogin yes", &["ed25519"]);
    sshd.write("authorized", "");
    let mut host = sshd.host("gpu01");
    let person = Arc::new(Person::saying(&["not it"]));
    let fleet = SshFleet::new(vec![host.clone()], sshd.settings(&person));
    let (what, _) = refused(fleet.connect(0).await);
    assert!(what.contains("a password"), "{what}");
    assert_eq!(person.was_asked().len(), 1);
    assert_eq!(sshd.log().matches("Failed password").count(), 1, "{}", sshd.log());

    let (what, _) = refused(sshd.fleet(vec![host.clone()]).connect(0).await);
    assert!(!what.contains("a password") && what.contains("it takes publickey, password"), "{what}");
    host.ssh.password = Some("SSH_PASSWORD".to_owned());
    refused(sshd.fleet(vec![host.clone()]).connect(0).await);
    assert_eq!(sshd.log().matches("Failed password").count(), 2);
    host.ssh.password = Some("UNSET".to_owned());
    let error = sshd.fleet(vec![host]).connect(0).await.err().expect("unset");
    assert!(matches!(error, RemoteError::Settings { .. }) && error.to_string().contains("UNSET"), "{error}");
}
