//! The ssh-agent: certificates and tokens, an agent that hangs, one that sends malformed replies.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use orchestrate::inventory::InventoryHost;
use orchestrate::remote::{HostConnector, RemoteError, SshFleet, SshSettings};

use crate::fake_agent::{SecurityKeyAgent, serve_agent};
use crate::many_hosts::MACHINE_LOCK;
use crate::sshd::{ScriptedPrompt, Sshd, expect_refusal, generate_key, run_command};
use crate::user_keys::authorize_key;

pub(crate) struct SshAgent {
    pid: String,
    pub(crate) socket: String,
}

impl SshAgent {
    pub(crate) fn start(sshd: &Sshd) -> Self {
        // An agent removes its socket some time after it is killed, so the next agent gets another name.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let socket = sshd.path_string(&format!("agent-{}", NEXT.fetch_add(1, Ordering::SeqCst)));
        let text = run_command("ssh-agent", &["-s", "-a", &socket]);
        let pid = text.split("SSH_AGENT_PID=").nth(1).and_then(|t| t.split(';').next()).expect("a pid").to_owned();
        SshAgent { pid, socket }
    }

    pub(crate) fn add_key(&self, key: &str) {
        let done = Command::new("ssh-add").args(["-q", key]).env("SSH_AUTH_SOCK", &self.socket).stderr(Stdio::null()).status();
        assert!(done.expect("ssh-add runs").success(), "{key}");
    }
}

impl Drop for SshAgent {
    fn drop(&mut self) {
        Command::new("kill").arg(&self.pid).status().ok();
    }
}

fn settings_with_agent(sshd: &Sshd, socket: impl Into<std::path::PathBuf>) -> SshSettings {
    let mut settings = sshd.settings(&Arc::new(ScriptedPrompt::without_answers()));
    settings.agent_socket = Some(socket.into());
    settings
}

/// A host without identity files.
fn host_without_keys(sshd: &Sshd) -> InventoryHost {
    let mut host = sshd.host("gpu01");
    host.ssh.identity_files = Vec::new();
    host
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn named_key_precedes_other_agent_keys() {
    let sshd = Sshd::start();
    let agent = SshAgent::start(&sshd);
    for n in 0..7 {
        generate_key(&sshd.path(&format!("other{n}")), "ed25519", "");
        agent.add_key(&sshd.path_string(&format!("other{n}")));
    }
    generate_key(&sshd.path("rsa"), "rsa", "");
    let settings = settings_with_agent(&sshd, &agent.socket);
    SshFleet::new(vec![sshd.host("gpu01")], settings.clone()).connect(0).await.expect("the named key comes first");

    let host = host_without_keys(&sshd);
    let (what, _) = expect_refusal(SshFleet::new(vec![host.clone()], settings.clone()).connect(0).await);
    assert!(what.starts_with("key refused (tried agent 5 keys); 2 more keys were not offered"), "{what}");
    let tries = sshd.log().matches("Failed publickey").count();
    assert!(tries <= 5, "{tries} tries");

    authorize_key(&sshd, "rsa");
    agent.add_key(&sshd.path_string("rsa"));
    run_command("mv", &[&sshd.path_string("rsa"), &sshd.path_string("moved")]);
    sshd.write("ssh_config", &format!("Host *\n IdentityFile {}\n IdentitiesOnly yes\n", sshd.path_string("rsa.pub")));
    SshFleet::new(vec![host.clone()], settings.clone()).connect(0).await.expect("a public key chooses the agent's");

    sshd.write("ssh_config", "Host *\n IdentityAgent none\n");
    let (what, _) = expect_refusal(SshFleet::new(vec![host.clone()], settings.clone()).connect(0).await);
    assert_eq!(what, "login refused: no key and no other method to offer; the server accepts publickey");

    sshd.write("ssh_config", &format!("Host *\n IdentityFile {}\n IdentityAgent $SOCK\n", sshd.path_string("rsa.pub")));
    let mut elsewhere = settings.clone();
    let socket = agent.socket.clone();
    elsewhere.agent_socket = None;
    elsewhere.env = Arc::new(move |name| (name == "SOCK").then(|| socket.clone()));
    SshFleet::new(vec![host], elsewhere).connect(0).await.expect("a variable names the agent");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn missing_agent_is_skipped_and_reported() {
    let sshd = Sshd::start();
    let settings = settings_with_agent(&sshd, sshd.path("no-agent"));
    SshFleet::new(vec![sshd.host("gpu01")], settings.clone()).connect(0).await.expect("the key file opens");
    let (what, hint) = expect_refusal(SshFleet::new(vec![host_without_keys(&sshd)], settings).connect(0).await);
    assert!(what.contains("the agent at ~/no-agent no such file"), "{what}");
    assert!(hint.contains("ssh-add -l"), "{hint}");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn hung_agent_times_out_once_then_fallbacks_run() {
    let _quiet = MACHINE_LOCK.read().await;
    let sshd = Sshd::start();
    serve_agent(&sshd.path("hung"), |_| None);
    let settings = settings_with_agent(&sshd, sshd.path("hung"));
    let started = Instant::now();
    let fleet = SshFleet::new(vec![sshd.host("gpu01"); 24], settings.clone());
    let hosts = futures_util::future::join_all((0..24).map(|n| fleet.connect(n))).await;
    let failed: Vec<String> = hosts.into_iter().filter_map(|h| h.err().map(|e| e.to_string())).collect();
    assert_eq!(failed, Vec::<String>::new(), "the key file opens all of them");
    assert!(started.elapsed() < Duration::from_secs(20), "two seconds for the agent in total, not per host: {:?}", started.elapsed());

    let mut host = host_without_keys(&sshd);
    // Shorter than the wait for the agent, which does not count as connect time. On a busy machine the rest alone may take longer.
    host.ssh.connect_timeout = Some(Duration::from_millis(1900));
    let mut tries = 0;
    let what = loop {
        tries += 1;
        match SshFleet::new(vec![host.clone()], settings.clone()).connect(0).await.err().expect("no key") {
            RemoteError::Refused { what, .. } => break what,
            error => assert!(tries < 5, "{error}"),
        }
    };
    assert_eq!(
        what,
        "login refused: no key and no other method to offer; the server accepts publickey; the agent at ~/hung did not answer within 2s"
    );
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn malformed_agent_reply_is_reported() {
    let sshd = Sshd::start();
    let answers: [(&[u8], &str); 5] = [
        (b"HTTP/1.1 400 Bad Request\r\n", "returned an invalid list of keys"),
        (&[0, 0, 0, 2, 99, 99], "returned an invalid list of keys"),
        (&[0, 0, 0, 5, 12, 0, 0, 0, 9], "returned an invalid list of keys"),
        (&[0, 0, 0, 1, 5], "refuses to list its keys"),
        (&[0, 0], "did not answer within 2s"),
    ];
    for (bytes, expected) in answers {
        let name = format!("says{}", bytes.len());
        serve_agent(&sshd.path(&name), move |_| Some(bytes.to_vec()));
        let settings = settings_with_agent(&sshd, sshd.path(&name));
        SshFleet::new(vec![sshd.host("gpu01")], settings.clone()).connect(0).await.expect("the key file opens");
        let (what, _) = expect_refusal(SshFleet::new(vec![host_without_keys(&sshd)], settings).connect(0).await);
        assert!(what.ends_with(&format!("the agent at ~/{name} {expected}")), "{what}");
    }
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn security_key_signs_through_agent() {
    let sshd = Sshd::start();
    let agent = SecurityKeyAgent::start(sshd.dir.path(), true);
    sshd.write("authorized", &agent.public_key_line);
    let fleet = SshFleet::new(vec![host_without_keys(&sshd); 3], settings_with_agent(&sshd, &agent.socket));
    for n in 0..3 {
        fleet.connect(n).await.unwrap_or_else(|e| panic!("{e}\n{}", sshd.log()));
    }
    sshd.wait_for_log("Accepted publickey", 3).await;
    assert!(sshd.log().contains("ED25519-SK"), "{}", sshd.log());
    assert_eq!(agent.sign_requests.load(Ordering::SeqCst), 3);
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn agent_certificates_and_file_certificates_both_work() {
    let sshd = Sshd::start();
    generate_key(&sshd.path("ca"), "ed25519", "");
    let ca = std::fs::read_to_string(sshd.path("ca.pub")).expect("a key");
    sshd.write("authorized", &format!("cert-authority {ca}"));
    for kind in ["ed25519", "ecdsa", "rsa"] {
        let key = format!("held_{kind}");
        generate_key(&sshd.path(&key), kind, "");
        run_command(
            "ssh-keygen",
            &["-q", "-s", &sshd.path_string("ca"), "-I", "t", "-n", &crate::sshd::current_user(), &sshd.path_string(&format!("{key}.pub"))],
        );
    }
    for kind in ["ed25519", "ecdsa", "rsa"] {
        let key = format!("held_{kind}");
        // ssh-add also loads the certificate beside a key.
        let agent = SshAgent::start(&sshd);
        agent.add_key(&sshd.path_string(&key));
        let settings = settings_with_agent(&sshd, &agent.socket);
        SshFleet::new(vec![host_without_keys(&sshd)], settings).connect(0).await.unwrap_or_else(|e| panic!("{kind}: {e}\n{}", sshd.log()));
        drop(agent);

        let certificate = format!("{key}-cert.pub");
        run_command("mv", &[&sshd.path_string(&certificate), &sshd.path_string("apart.pub")]);
        let agent = SshAgent::start(&sshd);
        agent.add_key(&sshd.path_string(&key));
        run_command("mv", &[&sshd.path_string(&key), &sshd.path_string("gone")]);
        sshd.write("ssh_config", &format!("Host *\n CertificateFile {}\n", sshd.path_string("apart.pub")));
        let settings = settings_with_agent(&sshd, &agent.socket);
        SshFleet::new(vec![host_without_keys(&sshd)], settings).connect(0).await.unwrap_or_else(|e| panic!("{kind}: {e}\n{}", sshd.log()));
        sshd.write("ssh_config", "");
    }
    for kind in ["ED25519-CERT", "ECDSA-CERT", "RSA-CERT"] {
        sshd.wait_for_log(&format!("ssh2: {kind}"), 2).await;
    }
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn security_key_file_error_suggests_agent() {
    let sshd = Sshd::start();
    let agent = SecurityKeyAgent::start(sshd.dir.path(), true);
    sshd.write("id_ed25519_sk.pub", &agent.public_key_line);
    let mut host = host_without_keys(&sshd);
    host.ssh.identity_files = vec![sshd.path_string("id_ed25519_sk.pub")];
    let (what, _) = expect_refusal(sshd.fleet(vec![host.clone()]).connect(0).await);
    assert!(what.starts_with("login refused: no key and no other method to offer"), "{what}");
    sshd.write("authorized", &agent.public_key_line);
    SshFleet::new(vec![host], settings_with_agent(&sshd, &agent.socket)).connect(0).await.expect("the agent has it");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn untouched_security_key_is_reported() {
    let sshd = Sshd::start();
    let agent = SecurityKeyAgent::start(sshd.dir.path(), false);
    sshd.write("authorized", &agent.public_key_line);
    let person = Arc::new(ScriptedPrompt::without_answers());
    let mut settings = settings_with_agent(&sshd, &agent.socket);
    settings.prompt = person.clone();
    let mut host = host_without_keys(&sshd);
    host.ssh.connect_timeout = Some(Duration::from_secs(8));
    let fleet = SshFleet::new(vec![host], settings);
    let output = async {
        crate::sshd::wait_until("a notice is shown", || !person.notices().is_empty()).await;
        // The wait for the touch does not count as connect time.
        tokio::time::sleep(Duration::from_secs(8)).await;
        person.notices()
    };
    tokio::select! {
        result = fleet.connect(0) => panic!("it did not wait for the touch: {:?}", result.err()),
        output = output => assert!(output[0].contains("waiting for the ssh-agent"), "{output:?}"),
    }
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn declining_agent_is_reported_then_fallbacks_run() {
    let sshd = Sshd::start();
    let list =
        [&[0, 0, 0, 0, 12, 0, 0, 0, 1][..], &[0, 0, 0, 51, 0, 0, 0, 11], b"ssh-ed25519", &[0, 0, 0, 32], &[7; 32], &[0, 0, 0, 0]].concat();
    let mut list = list;
    list[3] = u8::try_from(list.len() - 4).expect("short");
    serve_agent(&sshd.path("shy"), move |request| if request == [11] { Some(list.clone()) } else { Some(vec![0, 0, 0, 1, 5]) });
    let mut blob = vec![0, 0, 0, 11];
    blob.extend(b"ssh-ed25519\0\0\0\x20");
    blob.extend([7; 32]);
    let line = format!("ssh-ed25519 {} shy\n", base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &blob));
    sshd.write("shy.pub", &line);
    let own = std::fs::read_to_string(sshd.path("id.pub")).expect("a key");
    sshd.write("authorized", &(line + &own));
    let mut host = sshd.host("gpu01");
    host.ssh.identity_files = vec![sshd.path_string("shy.pub"), sshd.path_string("id")];
    SshFleet::new(vec![host.clone()], settings_with_agent(&sshd, sshd.path("shy"))).connect(0).await.expect("the file opens");
    host.ssh.identity_files.pop();
    let (what, _) = expect_refusal(SshFleet::new(vec![host], settings_with_agent(&sshd, sshd.path("shy"))).connect(0).await);
    assert_eq!(what, "the agent at ~/shy declined to sign");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn settings_errors_are_not_refusals() {
    let sshd = Sshd::start();
    let mut host = sshd.host("gpu01");
    host.ssh.identity_files = vec![sshd.path_string("missing")];
    let error = sshd.fleet(vec![host]).connect(0).await.err().expect("no such file");
    assert!(
        matches!(error, RemoteError::InvalidConfig { .. })
            && error.to_string() == "ssh.identity: could not read ~/missing: no such file or directory",
        "{error}"
    );
}
