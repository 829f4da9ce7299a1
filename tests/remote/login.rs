//! Who we are: key types, encrypted keys, the agent, passwords, and how often a server is asked.
#![expect(clippy::expect_used, reason = "a test says what it believes")]

use std::sync::Arc;

use orchestrate::remote::{Connect, RemoteError, SshFleet};

use crate::sshd::{Person, Sshd, keygen, refused, run};

pub(crate) fn allow(sshd: &Sshd, key: &str) {
    let public = std::fs::read_to_string(sshd.path(&format!("{key}.pub"))).expect("a key");
    sshd.write("authorized", &public);
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn every_key_type_and_format_opens_the_door() {
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
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn an_encrypted_key_is_asked_for_once_for_all_hosts() {
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
        assert!(matches!(error, RemoteError::Settings { .. }) && error.to_string().contains("3 wrong passphrases"), "{error}");
    }
    assert_eq!(person.was_asked().len(), 3);

    let error = sshd.fleet(vec![host]).connect(0).await.err().expect("nobody there");
    assert!(error.to_string().contains("nobody was there") && error.hint().starts_with("ssh-add "), "{error}");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_key_that_the_server_does_not_want_is_not_asked_for() {
    let sshd = Sshd::start();
    keygen(&sshd.path("locked"), "ed25519", "geheim");
    let mut host = sshd.host("gpu01");
    host.ssh.identity = vec![sshd.shown("locked"), sshd.shown("id")];
    let person = Arc::new(Person::silent());
    SshFleet::new(vec![host], sshd.settings(&person)).connect(0).await.expect("the other key opens");
    assert_eq!(person.was_asked(), Vec::<String>::new());
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_key_file_that_cannot_be_used_is_named_with_its_remedy() {
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

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_key_that_ssh_config_names_and_others_can_read_is_named_with_its_line_and_the_remedy() {
    let sshd = Sshd::start();
    let mut host = sshd.host("gpu01");
    host.ssh.identity.clear();
    run("cp", &[&sshd.shown("id"), &sshd.shown("wide")]);
    run("chmod", &["640", &sshd.shown("wide")]);
    sshd.write("ssh_config", "# mine\nHost *\n  IdentityFile ~/wide\n  IdentityFile ~/gone\n");
    let (what, hint) = refused(sshd.fleet(vec![host.clone()]).connect(0).await);
    let says =
        "the server takes publickey; ~/ssh_config:3: ~/wide can be read by others (mode 0640); ~/ssh_config:4: could not read ~/gone:";
    assert!(what.contains(says), "{what}");
    assert_eq!(hint, format!("chmod 600 {}", sshd.shown("wide")));
    run("sh", &["-c", &hint]);
    sshd.fleet(vec![host]).connect(0).await.expect("the command mends it");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_user_certificate_of_every_kind_is_used() {
    let sshd = Sshd::start();
    keygen(&sshd.path("ca"), "ed25519", "");
    let ca = std::fs::read_to_string(sshd.path("ca.pub")).expect("a key");
    sshd.write("authorized", &format!("cert-authority {ca}"));
    let person = Arc::new(Person::saying(&["geheim"]));
    for (kind, passphrase) in [("ed25519", ""), ("ecdsa", ""), ("rsa", ""), ("ed25519", "geheim")] {
        let key = format!("signed_{kind}{passphrase}");
        keygen(&sshd.path(&key), kind, passphrase);
        run("ssh-keygen", &["-q", "-s", &sshd.shown("ca"), "-I", "t", "-n", &crate::sshd::me(), &sshd.shown(&format!("{key}.pub"))]);
        let mut host = sshd.host("gpu01");
        host.ssh.identity = vec![sshd.shown(&key)];
        let fleet = SshFleet::new(vec![host.clone()], sshd.settings(&person));
        fleet.connect(0).await.unwrap_or_else(|e| panic!("{kind}: {e}\n{}", sshd.log()));
        run("mv", &[&sshd.shown(&format!("{key}-cert.pub")), &sshd.shown(&format!("{key}-apart.pub"))]);
        refused(SshFleet::new(vec![host.clone()], sshd.settings(&person)).connect(0).await);
        if passphrase.is_empty() {
            sshd.write("ssh_config", &format!("Host *\n CertificateFile ~/{key}-apart.pub\n"));
            sshd.fleet(vec![host]).connect(0).await.unwrap_or_else(|e| panic!("{kind}: {e}\n{}", sshd.log()));
            sshd.write("ssh_config", "");
        }
    }
    for (kind, count) in [("ED25519-CERT", 3), ("ECDSA-CERT", 2), ("RSA-CERT", 2)] {
        sshd.logs(&format!("ssh2: {kind}"), count).await;
    }
    assert_eq!(person.was_asked(), ["passphrase of ~/signed_ed25519geheim"]);
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_certificate_that_is_of_no_use_is_named() {
    let sshd = Sshd::start();
    sshd.write("authorized", "");
    keygen(&sshd.path("ca"), "ed25519", "");
    run("cp", &[&sshd.shown("id.pub"), &sshd.shown("stranger.pub")]);
    keygen(&sshd.path("other"), "ed25519", "");
    let sign = |more: &[&str], key: &str| {
        run("ssh-keygen", &[&["-q", "-s", &sshd.shown("ca"), "-I", "t", "-n", "x"], more, &[&sshd.shown(key)]].concat());
    };
    sign(&["-V", "20200101:20210101"], "id.pub");
    sign(&[], "other.pub");
    sign(&["-h"], "stranger.pub");
    let files = ["other-cert.pub", "stranger-cert.pub", "junk", "missing"].map(|f| format!(" CertificateFile ~/{f}\n")).concat();
    sshd.write("junk", "hello");
    sshd.write("ssh_config", &format!("Host *\n{files}"));
    let (what, _) = refused(sshd.fleet(vec![sshd.host("gpu01")]).connect(0).await);
    assert!(what.starts_with("key refused (tried ~/id-cert.pub, which is not valid now, ~/id)"), "{what}");
    for says in [
        "~/other-cert.pub: its key is neither in a file nor in the agent",
        "~/stranger-cert.pub is a host's certificate, not a user's",
        "~/junk is no certificate",
        "could not read ~/missing: no such file",
    ] {
        assert!(what.contains(says), "{says}: {what}");
    }
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn encrypted_keys_of_other_formats_open_or_are_named_with_the_command_that_converts_them() {
    let sshd = Sshd::start();
    run("ssh-keygen", &["-q", "-t", "rsa", "-m", "PEM", "-N", "geheim", "-f", &sshd.shown("pem")]);
    run("ssh-keygen", &["-q", "-t", "rsa", "-m", "PKCS8", "-N", "geheim", "-f", &sshd.shown("pkcs8")]);
    run("ssh-keygen", &["-q", "-t", "ecdsa", "-m", "PKCS8", "-N", "geheim", "-f", &sshd.shown("ec8")]);
    for (key, public) in [("pem", true), ("pem", false), ("pkcs8", true), ("pkcs8", false), ("ec8", true), ("ec8", false)] {
        allow(&sshd, key);
        let mut host = sshd.host("gpu01");
        if !public {
            run("mv", &[&sshd.shown(&format!("{key}.pub")), &sshd.shown("elsewhere")]);
        }
        host.ssh.identity = vec![key.to_owned()];
        let person = Arc::new(Person::saying(&["geheim"]));
        SshFleet::new(vec![host.clone()], sshd.settings(&person)).connect(0).await.unwrap_or_else(|e| panic!("{key}: {e}"));
        assert_eq!(person.was_asked().len(), 1);
    }
    run("ssh-keygen", &["-q", "-t", "ecdsa", "-m", "PEM", "-N", "geheim", "-f", &sshd.shown("old")]);
    let mut host = sshd.host("gpu01");
    host.ssh.identity = vec!["old".to_owned()];
    let error = sshd.fleet(vec![host]).connect(0).await.err().expect("too old");
    assert!(error.to_string().contains("~/old is encrypted in an old way"), "{error}");
    assert!(error.hint().starts_with(&format!("ssh-keygen -p -f {}", sshd.shown("old"))), "{}", error.hint());
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn only_algorithms_that_both_sides_allow_are_offered() {
    let sshd = Sshd::with("PubkeyAcceptedAlgorithms rsa-sha2-256,ssh-ed25519", &["ed25519"]);
    keygen(&sshd.path("rsa"), "rsa", "");
    allow(&sshd, "rsa");
    let mut host = sshd.host("gpu01");
    host.ssh.identity = vec![sshd.shown("id"), sshd.shown("rsa")];
    for list in ["rsa-sha2-256", "-ssh-ed25519*,rsa-sha2-512*", "-rsa-sha2-512"] {
        sshd.write("ssh_config", &format!("Host *\n PubkeyAcceptedAlgorithms {list}\n"));
        sshd.fleet(vec![host.clone()]).connect(0).await.unwrap_or_else(|e| panic!("{list}: {e}"));
    }
    for (list, kind) in [("ecdsa-*", "ssh-rsa"), ("ecdsa-*", "ssh-ed25519")] {
        sshd.write("ssh_config", &format!("Host *\n PubkeyAcceptedAlgorithms {list}\n"));
        let (what, _) = refused(sshd.fleet(vec![host.clone()]).connect(0).await);
        assert!(what.contains(&format!(" was not offered: PubkeyAcceptedAlgorithms here or there has no {kind} signature")), "{what}");
    }
    assert!(!sshd.log().contains("not in PubkeyAcceptedAlgorithms"), "{}", sshd.log());
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn several_keys_in_one_login_where_the_server_wants_two() {
    let sshd = Sshd::with("AuthenticationMethods publickey,publickey", &["ed25519"]);
    keygen(&sshd.path("second"), "ed25519", "");
    let both = ["id.pub", "second.pub"].map(|f| std::fs::read_to_string(sshd.path(f)).expect("a key")).concat();
    sshd.write("authorized", &both);
    let mut host = sshd.host("gpu01");
    host.ssh.identity = vec![sshd.shown("id"), sshd.shown("second")];
    sshd.fleet(vec![host.clone()]).connect(0).await.unwrap_or_else(|e| panic!("{e}\n{}", sshd.log()));
    host.ssh.identity = vec![sshd.shown("id")];
    let (what, _) = refused(sshd.fleet(vec![host]).connect(0).await);
    assert_eq!(what, "publickey was accepted and is not enough (tried ~/id)");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn a_wrong_password_is_never_sent_twice() {
    let sshd = Sshd::with("Match all\nPasswordAuthentication yes\nPermitRootLogin yes", &["ed25519"]);
    sshd.write("authorized", "");
    let mut host = sshd.host("gpu01");
    let person = Arc::new(Person::saying(&["not it"]));
    let fleet = SshFleet::new(vec![host.clone()], sshd.settings(&person));
    let (what, _) = refused(fleet.connect(0).await);
    assert_eq!(what, "login refused (tried ~/id, a password)");
    assert_eq!(person.was_asked().len(), 2, "after the refusal, the next question is not answered");
    sshd.logs("Failed password", 1).await;

    let (what, _) = refused(sshd.fleet(vec![host.clone()]).connect(0).await);
    assert_eq!(what, "key refused (tried ~/id); the server takes password, and nobody was there to answer");
    host.ssh.password = Some("SSH_PASSWORD".to_owned());
    refused(sshd.fleet(vec![host.clone()]).connect(0).await);
    sshd.logs("Failed password", 2).await;
    host.ssh.password = Some("UNSET".to_owned());
    let error = sshd.fleet(vec![host]).connect(0).await.err().expect("unset");
    assert!(matches!(error, RemoteError::Settings { .. }) && error.to_string().contains("UNSET"), "{error}");
}
