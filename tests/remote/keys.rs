//! Host keys: known, unknown, changed, revoked, hashed, several, signed.

use std::sync::Arc;

use orchestrate::inventory::HostKeys;
use orchestrate::remote::{Connect, SshFleet};

use crate::sshd::{Person, Sshd, keygen, refused, run};

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn an_unknown_key_is_refused_with_the_command_that_mends_it() {
    let sshd = Sshd::start();
    let mut host = sshd.host("gpu01");
    host.ssh.known_hosts = Some(sshd.write("empty", ""));
    let (what, hint) = refused(sshd.fleet(vec![host.clone()]).connect(0).await);
    let fingerprint = run("ssh-keygen", &["-l", "-f", &sshd.shown("host_ed25519.pub")]);
    let fingerprint = fingerprint.split_whitespace().nth(1).expect("a fingerprint");
    assert!(what.contains(fingerprint) && what.contains(&sshd.shown("empty")), "{what}");
    let command = hint.split("the same: ").nth(1).and_then(|h| h.split("   (or").next()).expect("a command");
    run("sh", &["-c", command]);
    sshd.fleet(vec![host]).connect(0).await.expect("the command mends it").close().await;
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn accept_new_notes_the_key_once_and_strict_is_content_then() {
    let sshd = Sshd::start();
    let mut host = sshd.host("gpu01");
    host.ssh.known_hosts = Some("new/known_hosts".to_owned());
    host.ssh.host_keys = Some(HostKeys::AcceptNew);
    let person = Arc::new(Person::silent());
    let fleet = SshFleet::new(vec![host.clone(); 4], sshd.settings(&person));
    let hosts = futures_util::future::join_all((0..4).map(|n| fleet.connect(n))).await;
    assert!(hosts.iter().all(Result::is_ok));
    let text = std::fs::read_to_string(sshd.path("new/known_hosts")).expect("written");
    assert_eq!(text, sshd.known("ed25519"));
    let told = person.was_told();
    assert!(told.len() == 1 && told[0].contains("SHA256:") && told[0].contains("new/known_hosts"), "{told:?}");
    host.ssh.host_keys = Some(HostKeys::Strict);
    sshd.fleet(vec![host]).connect(0).await.expect("known now");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn ssh_configs_own_words_for_unknown_keys_are_followed() {
    let sshd = Sshd::start();
    let mut host = sshd.host("gpu01");
    (host.ssh.known_hosts, host.ssh.host_keys) = (None, None);
    let file = sshd.shown("with blank");
    for (word, accepted) in [("yes", false), ("ask", false), ("accept-new", true), ("no", true)] {
        std::fs::remove_file(&file).ok();
        sshd.write("ssh_config", &format!("Host *\n StrictHostKeyChecking {word}\n UserKnownHostsFile \"{file}\"\n HashKnownHosts yes\n"));
        let result = sshd.fleet(vec![host.clone()]).connect(0).await;
        assert_eq!(result.is_ok(), accepted, "{word}");
        if accepted {
            let found = run("ssh-keygen", &["-F", &format!("[127.0.0.1]:{}", sshd.port), "-f", &file]);
            assert!(found.contains("|1|"), "{found}");
        }
    }
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_changed_key_is_refused_even_where_new_ones_are_accepted() {
    let sshd = Sshd::start();
    keygen(&sshd.path("other"), "ed25519", "");
    let other = std::fs::read_to_string(sshd.path("other.pub")).expect("a key");
    let mut host = sshd.host("gpu01");
    let file = sshd.write("changed", &format!("# one\n[127.0.0.1]:{} {other}", sshd.port));
    host.ssh.known_hosts = Some(file.clone());
    host.ssh.host_keys = Some(HostKeys::AcceptNew);
    let (what, hint) = refused(sshd.fleet(vec![host.clone()]).connect(0).await);
    assert!(what.contains("has changed") && what.contains("changed:2"), "{what}");
    let command = hint.split("anew: ").nth(1).expect("a command");
    run("sh", &["-c", command]);
    sshd.fleet(vec![host]).connect(0).await.expect("the command mends it");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_revoked_key_is_refused_although_it_is_known() {
    let sshd = Sshd::start();
    let mut host = sshd.host("gpu01");
    let key = std::fs::read_to_string(sshd.path("host_ed25519.pub")).expect("a key");
    host.ssh.known_hosts = Some(sshd.write("revoked", &format!("{}@revoked * {key}", sshd.known("ed25519"))));
    let (what, _) = refused(sshd.fleet(vec![host]).connect(0).await);
    assert!(what.contains("revoked:2 revokes this key"), "{what}");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn the_key_type_that_is_known_is_asked_for() {
    let sshd = Sshd::with("", &["ed25519", "ecdsa", "rsa"]);
    for kind in ["rsa", "ecdsa", "ed25519"] {
        let mut host = sshd.host("gpu01");
        host.ssh.known_hosts = Some(sshd.write(kind, &sshd.known(kind)));
        sshd.fleet(vec![host]).connect(0).await.unwrap_or_else(|e| panic!("{kind}: {e}")).close().await;
    }
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_host_key_alias_and_a_line_without_port_are_found() {
    let sshd = Sshd::start();
    let known = sshd.known("ed25519");
    let bare = known.replace(&format!("[127.0.0.1]:{}", sshd.port), "127.0.0.1");
    let mut host = sshd.host("gpu01");
    host.ssh.known_hosts = Some(sshd.write("bare", &bare));
    sshd.fleet(vec![host.clone()]).connect(0).await.expect("found without its port");
    sshd.write("ssh_config", "Host gpu01\n HostKeyAlias the-box\n");
    refused(sshd.fleet(vec![host.clone()]).connect(0).await);
    host.ssh.known_hosts = Some(sshd.write("alias", &bare.replace("127.0.0.1", "the-box")));
    sshd.fleet(vec![host]).connect(0).await.expect("found under its alias");
}
