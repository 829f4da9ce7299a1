//! The agent: certificates and tokens that it holds, one that hangs, one that talks nonsense.
#![expect(clippy::expect_used, reason = "a test says what it believes")]

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use orchestrate::inventory::Host;
use orchestrate::remote::{Connect, RemoteError, Settings, SshFleet};

use crate::login::allow;
use crate::many::MACHINE;
use crate::soft_agent::{Token, listen};
use crate::sshd::{Person, Sshd, keygen, refused, run};

/// OpenSSH's agent, for one test.
pub(crate) struct Agent {
    pid: String,
    pub(crate) socket: String,
}

impl Agent {
    pub(crate) fn start(sshd: &Sshd) -> Self {
        // An agent that is told to end removes its socket in its own time: the next one has another.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let socket = sshd.shown(&format!("agent-{}", NEXT.fetch_add(1, Ordering::SeqCst)));
        let text = run("ssh-agent", &["-s", "-a", &socket]);
        let pid = text.split("SSH_AGENT_PID=").nth(1).and_then(|t| t.split(';').next()).expect("a pid").to_owned();
        Agent { pid, socket }
    }

    pub(crate) fn add(&self, key: &str) {
        let done = Command::new("ssh-add").args(["-q", key]).env("SSH_AUTH_SOCK", &self.socket).stderr(Stdio::null()).status();
        assert!(done.expect("ssh-add runs").success(), "{key}");
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        Command::new("kill").arg(&self.pid).status().ok();
    }
}

fn with_agent(sshd: &Sshd, socket: impl Into<std::path::PathBuf>) -> Settings {
    let mut settings = sshd.settings(&Arc::new(Person::silent()));
    settings.agent = Some(socket.into());
    settings
}

/// A host whose keys are in no file.
fn keyless(sshd: &Sshd) -> Host {
    let mut host = sshd.host("gpu01");
    host.ssh.identity = Vec::new();
    host
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn the_agent_signs_and_a_named_key_comes_before_its_others() {
    let sshd = Sshd::start();
    let agent = Agent::start(&sshd);
    for n in 0..7 {
        keygen(&sshd.path(&format!("other{n}")), "ed25519", "");
        agent.add(&sshd.shown(&format!("other{n}")));
    }
    keygen(&sshd.path("rsa"), "rsa", "");
    let settings = with_agent(&sshd, &agent.socket);
    SshFleet::new(vec![sshd.host("gpu01")], settings.clone()).connect(0).await.expect("the named key comes first");

    let host = keyless(&sshd);
    let (what, _) = refused(SshFleet::new(vec![host.clone()], settings.clone()).connect(0).await);
    assert!(what.starts_with("key refused (tried agent 5 keys); 2 more keys were not offered"), "{what}");
    let tries = sshd.log().matches("Failed publickey").count();
    assert!(tries <= 5, "{tries} tries");

    allow(&sshd, "rsa");
    agent.add(&sshd.shown("rsa"));
    run("mv", &[&sshd.shown("rsa"), &sshd.shown("moved")]);
    sshd.write("ssh_config", &format!("Host *\n IdentityFile {}\n IdentitiesOnly yes\n", sshd.shown("rsa.pub")));
    SshFleet::new(vec![host.clone()], settings.clone()).connect(0).await.expect("a public key chooses the agent's");

    sshd.write("ssh_config", "Host *\n IdentityAgent none\n");
    let (what, _) = refused(SshFleet::new(vec![host.clone()], settings.clone()).connect(0).await);
    assert_eq!(what, "login refused: there was nothing to offer; the server takes publickey");

    sshd.write("ssh_config", &format!("Host *\n IdentityFile {}\n IdentityAgent $SOCK\n", sshd.shown("rsa.pub")));
    let mut elsewhere = settings.clone();
    let socket = agent.socket.clone();
    elsewhere.agent = None;
    elsewhere.variables = Arc::new(move |name| (name == "SOCK").then(|| socket.clone()));
    SshFleet::new(vec![host], elsewhere).connect(0).await.expect("a variable names the agent");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn an_agent_that_is_gone_is_passed_over_and_named() {
    let sshd = Sshd::start();
    let settings = with_agent(&sshd, sshd.path("no-agent"));
    SshFleet::new(vec![sshd.host("gpu01")], settings.clone()).connect(0).await.expect("the key file opens");
    let (what, hint) = refused(SshFleet::new(vec![keyless(&sshd)], settings).connect(0).await);
    assert!(what.contains("the agent at ~/no-agent no such file"), "{what}");
    assert!(hint.contains("ssh-add -l"), "{hint}");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn an_agent_that_hangs_is_waited_for_once_and_other_ways_are_tried() {
    let _quiet = MACHINE.read().await;
    let sshd = Sshd::start();
    listen(&sshd.path("hung"), |_| None);
    let settings = with_agent(&sshd, sshd.path("hung"));
    let started = Instant::now();
    let fleet = SshFleet::new(vec![sshd.host("gpu01"); 24], settings.clone());
    let hosts = futures_util::future::join_all((0..24).map(|n| fleet.connect(n))).await;
    let failed: Vec<String> = hosts.into_iter().filter_map(|h| h.err().map(|e| e.to_string())).collect();
    assert_eq!(failed, Vec::<String>::new(), "the key file opens all of them");
    assert!(started.elapsed() < Duration::from_secs(20), "two seconds for the agent, and not for each host: {:?}", started.elapsed());

    let mut host = keyless(&sshd);
    // Shorter than the wait for the agent, which does not count.
    host.ssh.connect_timeout = Some(Duration::from_millis(1900));
    let (what, _) = refused(SshFleet::new(vec![host], settings).connect(0).await);
    assert_eq!(what, "login refused: there was nothing to offer; the server takes publickey; the agent at ~/hung gave no answer within 2s");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn an_agent_that_talks_nonsense_is_named() {
    let sshd = Sshd::start();
    let answers: [(&[u8], &str); 5] = [
        (b"HTTP/1.1 400 Bad Request\r\n", "answered something that is no list of keys"),
        (&[0, 0, 0, 2, 99, 99], "answered something that is no list of keys"),
        (&[0, 0, 0, 5, 12, 0, 0, 0, 9], "answered something that is no list of keys"),
        (&[0, 0, 0, 1, 5], "refuses to list its keys"),
        (&[0, 0], "gave no answer within 2s"),
    ];
    for (bytes, says) in answers {
        let name = format!("says{}", bytes.len());
        listen(&sshd.path(&name), move |_| Some(bytes.to_vec()));
        let settings = with_agent(&sshd, sshd.path(&name));
        SshFleet::new(vec![sshd.host("gpu01")], settings.clone()).connect(0).await.expect("the key file opens");
        let (what, _) = refused(SshFleet::new(vec![keyless(&sshd)], settings).connect(0).await);
        assert!(what.ends_with(&format!("the agent at ~/{name} {says}")), "{what}");
    }
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_key_on_a_token_signs_through_the_agent() {
    let sshd = Sshd::start();
    let agent = Token::start(sshd.dir.path(), true);
    sshd.write("authorized", &agent.public);
    let fleet = SshFleet::new(vec![keyless(&sshd); 3], with_agent(&sshd, &agent.socket));
    for n in 0..3 {
        fleet.connect(n).await.unwrap_or_else(|e| panic!("{e}\n{}", sshd.log()));
    }
    sshd.logs("Accepted publickey", 3).await;
    assert!(sshd.log().contains("ED25519-SK"), "{}", sshd.log());
    assert_eq!(agent.asked.load(Ordering::SeqCst), 3);
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_certificate_in_the_agent_and_one_for_its_key_both_open() {
    let sshd = Sshd::start();
    keygen(&sshd.path("ca"), "ed25519", "");
    let ca = std::fs::read_to_string(sshd.path("ca.pub")).expect("a key");
    sshd.write("authorized", &format!("cert-authority {ca}"));
    for kind in ["ed25519", "ecdsa", "rsa"] {
        let key = format!("held_{kind}");
        keygen(&sshd.path(&key), kind, "");
        run("ssh-keygen", &["-q", "-s", &sshd.shown("ca"), "-I", "t", "-n", &crate::sshd::me(), &sshd.shown(&format!("{key}.pub"))]);
    }
    for kind in ["ed25519", "ecdsa", "rsa"] {
        let key = format!("held_{kind}");
        // ssh-add takes the certificate that lies beside a key along.
        let agent = Agent::start(&sshd);
        agent.add(&sshd.shown(&key));
        let settings = with_agent(&sshd, &agent.socket);
        SshFleet::new(vec![keyless(&sshd)], settings).connect(0).await.unwrap_or_else(|e| panic!("{kind}: {e}\n{}", sshd.log()));
        drop(agent);

        let certificate = format!("{key}-cert.pub");
        run("mv", &[&sshd.shown(&certificate), &sshd.shown("apart.pub")]);
        let agent = Agent::start(&sshd);
        agent.add(&sshd.shown(&key));
        run("mv", &[&sshd.shown(&key), &sshd.shown("gone")]);
        sshd.write("ssh_config", &format!("Host *\n CertificateFile {}\n", sshd.shown("apart.pub")));
        let settings = with_agent(&sshd, &agent.socket);
        SshFleet::new(vec![keyless(&sshd)], settings).connect(0).await.unwrap_or_else(|e| panic!("{kind}: {e}\n{}", sshd.log()));
        sshd.write("ssh_config", "");
    }
    for kind in ["ED25519-CERT", "ECDSA-CERT", "RSA-CERT"] {
        sshd.logs(&format!("ssh2: {kind}"), 2).await;
    }
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_key_file_that_belongs_to_a_token_names_the_agent() {
    let sshd = Sshd::start();
    let agent = Token::start(sshd.dir.path(), true);
    sshd.write("id_ed25519_sk.pub", &agent.public);
    let mut host = keyless(&sshd);
    host.ssh.identity = vec![sshd.shown("id_ed25519_sk.pub")];
    let (what, _) = refused(sshd.fleet(vec![host.clone()]).connect(0).await);
    assert!(what.starts_with("login refused: there was nothing to offer"), "{what}");
    sshd.write("authorized", &agent.public);
    SshFleet::new(vec![host], with_agent(&sshd, &agent.socket)).connect(0).await.expect("the agent has it");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_token_that_nobody_touches_is_named() {
    let sshd = Sshd::start();
    let agent = Token::start(sshd.dir.path(), false);
    sshd.write("authorized", &agent.public);
    let person = Arc::new(Person::silent());
    let mut settings = with_agent(&sshd, &agent.socket);
    settings.prompt = person.clone();
    let mut host = keyless(&sshd);
    host.ssh.connect_timeout = Some(Duration::from_secs(2));
    let fleet = SshFleet::new(vec![host], settings);
    let told = async {
        crate::sshd::until("the person is told", || !person.was_told().is_empty()).await;
        person.was_told()
    };
    tokio::select! {
        result = fleet.connect(0) => panic!("it did not wait for the touch: {:?}", result.err()),
        told = told => assert!(told[0].contains("waiting for the ssh-agent"), "{told:?}"),
    }
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn an_agent_that_declines_is_named_and_other_ways_are_tried() {
    let sshd = Sshd::start();
    let list =
        [&[0, 0, 0, 0, 12, 0, 0, 0, 1][..], &[0, 0, 0, 51, 0, 0, 0, 11], b"ssh-ed25519", &[0, 0, 0, 32], &[7; 32], &[0, 0, 0, 0]].concat();
    let mut list = list;
    list[3] = u8::try_from(list.len() - 4).expect("short");
    listen(&sshd.path("shy"), move |request| if request == [11] { Some(list.clone()) } else { Some(vec![0, 0, 0, 1, 5]) });
    let mut blob = vec![0, 0, 0, 11];
    blob.extend(b"ssh-ed25519\0\0\0\x20");
    blob.extend([7; 32]);
    let line = format!("ssh-ed25519 {} shy\n", base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &blob));
    sshd.write("shy.pub", &line);
    let own = std::fs::read_to_string(sshd.path("id.pub")).expect("a key");
    sshd.write("authorized", &(line + &own));
    let mut host = sshd.host("gpu01");
    host.ssh.identity = vec![sshd.shown("shy.pub"), sshd.shown("id")];
    SshFleet::new(vec![host.clone()], with_agent(&sshd, sshd.path("shy"))).connect(0).await.expect("the file opens");
    host.ssh.identity.pop();
    let (what, _) = refused(SshFleet::new(vec![host], with_agent(&sshd, sshd.path("shy"))).connect(0).await);
    assert_eq!(what, "the agent at ~/shy declined to sign");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn settings_errors_are_no_refusals() {
    let sshd = Sshd::start();
    let mut host = sshd.host("gpu01");
    host.ssh.identity = vec![sshd.shown("missing")];
    let error = sshd.fleet(vec![host]).connect(0).await.err().expect("no such file");
    assert!(
        matches!(error, RemoteError::Settings { .. })
            && error.to_string() == "ssh.identity: could not read ~/missing: no such file or directory",
        "{error}"
    );
}
