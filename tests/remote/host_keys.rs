//! Host keys: known, unknown, changed, revoked, hashed, several, certified.

use std::sync::Arc;

use orchestrate::inventory::HostKeyChecking;
use orchestrate::remote::{HostConnector, SshFleet};

use crate::sshd::{ScriptedPrompt, Sshd, expect_refusal, generate_key, run_command};

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn unknown_host_key_is_refused_with_fix_command() {
    let sshd = Sshd::start();
    let mut host = sshd.host("gpu01");
    host.ssh.known_hosts_file = Some(sshd.write("empty", ""));
    let (what, hint) = expect_refusal(sshd.fleet(vec![host.clone()]).connect(0).await);
    let fingerprint = run_command("ssh-keygen", &["-l", "-f", &sshd.path_string("host_ed25519.pub")]);
    let fingerprint = fingerprint.split_whitespace().nth(1).expect("a fingerprint");
    assert!(what.contains(fingerprint) && what.contains(&sshd.path_string("empty")), "{what}");
    let command = hint.split("the same: ").nth(1).and_then(|h| h.split("   (or").next()).expect("a command");
    run_command("sh", &["-c", command]);
    sshd.fleet(vec![host]).connect(0).await.expect("the command fixes it").close().await;
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn accept_new_records_key_once() {
    let sshd = Sshd::start();
    let mut host = sshd.host("gpu01");
    host.ssh.known_hosts_file = Some("new/known_hosts".to_owned());
    host.ssh.host_key_checking = Some(HostKeyChecking::AcceptNew);
    let person = Arc::new(ScriptedPrompt::without_answers());
    let fleet = SshFleet::new(vec![host.clone(); 4], sshd.settings(&person));
    let hosts = futures_util::future::join_all((0..4).map(|n| fleet.connect(n))).await;
    assert!(hosts.iter().all(Result::is_ok));
    let text = std::fs::read_to_string(sshd.path("new/known_hosts")).expect("written");
    assert_eq!(text, sshd.known_hosts_line("ed25519"));
    let output = person.notices();
    assert!(output.len() == 1 && output[0].contains("SHA256:") && output[0].contains("new/known_hosts"), "{output:?}");
    host.ssh.host_key_checking = Some(HostKeyChecking::Strict);
    sshd.fleet(vec![host]).connect(0).await.expect("known now");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn strict_host_key_checking_values_are_honored() {
    let sshd = Sshd::start();
    let mut host = sshd.host("gpu01");
    (host.ssh.known_hosts_file, host.ssh.host_key_checking) = (None, None);
    let file = sshd.path_string("with blank");
    for (word, accepted) in [("yes", false), ("ask", false), ("accept-new", true), ("no", true)] {
        std::fs::remove_file(&file).ok();
        sshd.write("ssh_config", &format!("Host *\n StrictHostKeyChecking {word}\n UserKnownHostsFile \"{file}\"\n HashKnownHosts yes\n"));
        let result = sshd.fleet(vec![host.clone()]).connect(0).await;
        assert_eq!(result.is_ok(), accepted, "{word}");
        if accepted {
            let found = run_command("ssh-keygen", &["-F", &format!("[127.0.0.1]:{}", sshd.port), "-f", &file]);
            assert!(found.contains("|1|"), "{found}");
        }
    }
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn changed_key_is_refused_even_with_accept_new() {
    let sshd = Sshd::start();
    generate_key(&sshd.path("other"), "ed25519", "");
    let other = std::fs::read_to_string(sshd.path("other.pub")).expect("a key");
    let mut host = sshd.host("gpu01");
    let file = sshd.write("changed", &format!("# one\n[127.0.0.1]:{} {other}", sshd.port));
    host.ssh.known_hosts_file = Some(file.clone());
    host.ssh.host_key_checking = Some(HostKeyChecking::AcceptNew);
    let (what, hint) = expect_refusal(sshd.fleet(vec![host.clone()]).connect(0).await);
    assert!(what.contains("has changed") && what.contains("changed:2"), "{what}");
    let command = hint.split("reinstalled: ").nth(1).expect("a command");
    run_command("sh", &["-c", command]);
    sshd.fleet(vec![host]).connect(0).await.expect("the command fixes it");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn revoked_host_key_is_refused_though_known() {
    let sshd = Sshd::start();
    let mut host = sshd.host("gpu01");
    let key = std::fs::read_to_string(sshd.path("host_ed25519.pub")).expect("a key");
    host.ssh.known_hosts_file = Some(sshd.write("revoked", &format!("{}@revoked * {key}", sshd.known_hosts_line("ed25519"))));
    let (what, _) = expect_refusal(sshd.fleet(vec![host]).connect(0).await);
    assert!(what.contains("revoked:2 revokes this key"), "{what}");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn known_key_type_is_requested() {
    let sshd = Sshd::start_with("", &["ed25519", "ecdsa", "rsa"]);
    for kind in ["rsa", "ecdsa", "ed25519"] {
        let mut host = sshd.host("gpu01");
        host.ssh.known_hosts_file = Some(sshd.write(kind, &sshd.known_hosts_line(kind)));
        sshd.fleet(vec![host]).connect(0).await.unwrap_or_else(|e| panic!("{kind}: {e}")).close().await;
    }
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn host_key_alias_and_portless_line_match() {
    let sshd = Sshd::start();
    let known = sshd.known_hosts_line("ed25519");
    let bare = known.replace(&format!("[127.0.0.1]:{}", sshd.port), "127.0.0.1");
    let mut host = sshd.host("gpu01");
    host.ssh.known_hosts_file = Some(sshd.write("bare", &bare));
    sshd.fleet(vec![host.clone()]).connect(0).await.expect("found without its port");
    sshd.write("ssh_config", "Host gpu01\n HostKeyAlias the-box\n");
    expect_refusal(sshd.fleet(vec![host.clone()]).connect(0).await);
    host.ssh.known_hosts_file = Some(sshd.write("alias", &bare.replace("127.0.0.1", "the-box")));
    sshd.fleet(vec![host]).connect(0).await.expect("found under its alias");
}
