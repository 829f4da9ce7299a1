//! User authentication: key types, encrypted keys, the agent, passwords, and the number of attempts.

use std::sync::Arc;

use orchestrate::remote::{HostConnector, RemoteError, SshFleet};

use crate::sshd::{ScriptedPrompt, Sshd, expect_refusal, generate_key, run_command};

pub(crate) fn authorize_key(sshd: &Sshd, key: &str) {
    let public = std::fs::read_to_string(sshd.path(&format!("{key}.pub"))).expect("a key");
    sshd.write("authorized", &public);
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn every_key_type_and_format_authenticates() {
    let sshd = Sshd::start();
    generate_key(&sshd.path("rsa"), "rsa", "");
    generate_key(&sshd.path("ecdsa"), "ecdsa", "");
    run_command("ssh-keygen", &["-q", "-t", "rsa", "-m", "PEM", "-N", "", "-f", &sshd.path_string("pem")]);
    run_command("ssh-keygen", &["-q", "-t", "rsa", "-m", "PKCS8", "-N", "", "-f", &sshd.path_string("pkcs8")]);
    run_command("ssh-keygen", &["-q", "-t", "ecdsa", "-m", "PKCS8", "-N", "", "-f", &sshd.path_string("ec8")]);
    for key in ["rsa", "ecdsa", "pem", "pkcs8", "ec8"] {
        authorize_key(&sshd, key);
        let mut host = sshd.host("gpu01");
        host.ssh.identity_files = vec![key.to_owned()];
        sshd.fleet(vec![host]).connect(0).await.unwrap_or_else(|e| panic!("{key}: {e}")).close().await;
    }
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn passphrase_is_asked_once_for_all_hosts() {
    let sshd = Sshd::start();
    generate_key(&sshd.path("locked"), "ed25519", "geheim");
    authorize_key(&sshd, "locked");
    let mut host = sshd.host("gpu01");
    host.ssh.identity_files = vec![sshd.path_string("locked")];
    let person = Arc::new(ScriptedPrompt::with_answers(&["falsch", "geheim"]));
    let fleet = SshFleet::new(vec![host.clone(); 4], sshd.settings(&person));
    let hosts = futures_util::future::join_all((0..4).map(|n| fleet.connect(n))).await;
    assert!(hosts.iter().all(Result::is_ok), "{:?}", hosts.into_iter().filter_map(Result::err).collect::<Vec<_>>());
    assert_eq!(person.questions().len(), 2, "{:?}", person.questions());
    assert!(person.notices().iter().any(|t| t.contains("wrong passphrase")), "{:?}", person.notices());

    let person = Arc::new(ScriptedPrompt::with_answers(&["a", "b", "c", "geheim"]));
    let fleet = SshFleet::new(vec![host.clone(); 2], sshd.settings(&person));
    let (one, two) = tokio::join!(fleet.connect(0), fleet.connect(1));
    for result in [one, two] {
        let error = result.err().expect("wrong");
        assert!(matches!(error, RemoteError::InvalidConfig { .. }) && error.to_string().contains("3 wrong passphrases"), "{error}");
    }
    assert_eq!(person.questions().len(), 3);

    let error = sshd.fleet(vec![host]).connect(0).await.err().expect("no answer");
    assert!(error.to_string().contains("no passphrase was given") && error.hint().starts_with("ssh-add "), "{error}");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn unaccepted_key_prompts_no_passphrase() {
    let sshd = Sshd::start();
    generate_key(&sshd.path("locked"), "ed25519", "geheim");
    let mut host = sshd.host("gpu01");
    host.ssh.identity_files = vec![sshd.path_string("locked"), sshd.path_string("id")];
    let person = Arc::new(ScriptedPrompt::without_answers());
    SshFleet::new(vec![host], sshd.settings(&person)).connect(0).await.expect("the other key opens");
    assert_eq!(person.questions(), Vec::<String>::new());
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn unusable_key_file_is_reported_with_fix() {
    let sshd = Sshd::start();
    let mut host = sshd.host("gpu01");
    let mut output = |identity: String| {
        host.ssh.identity_files = vec![identity];
        let fleet = sshd.fleet(vec![host.clone()]);
        async move {
            let error = fleet.connect(0).await.err().expect("unusable");
            assert!(matches!(error, RemoteError::InvalidConfig { .. }), "{error:?}");
            format!("{error}\n{}", error.hint())
        }
    };
    let text = output("~/nowhere".to_owned()).await;
    assert!(text.contains(&sshd.path_string("nowhere")) && text.contains("no such file"), "{text}");
    run_command("cp", &[&sshd.path_string("id"), &sshd.path_string("open")]);
    run_command("chmod", &["644", &sshd.path_string("open")]);
    let text = output("open".to_owned()).await;
    assert!(text.contains("0644") && text.contains("chmod 600"), "{text}");
    sshd.write("junk", "hello");
    run_command("chmod", &["600", &sshd.path_string("junk")]);
    let text = output("junk".to_owned()).await;
    assert!(text.contains("not a usable private key"), "{text}");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn world_readable_key_is_reported_with_line_and_fix() {
    let sshd = Sshd::start();
    let mut host = sshd.host("gpu01");
    host.ssh.identity_files.clear();
    run_command("cp", &[&sshd.path_string("id"), &sshd.path_string("wide")]);
    run_command("chmod", &["640", &sshd.path_string("wide")]);
    sshd.write("ssh_config", "# mine\nHost *\n  IdentityFile ~/wide\n  IdentityFile ~/gone\n");
    let (what, hint) = expect_refusal(sshd.fleet(vec![host.clone()]).connect(0).await);
    let expected =
        "the server accepts publickey; ~/ssh_config:3: ~/wide can be read by others (mode 0640); ~/ssh_config:4: could not read ~/gone:";
    assert!(what.contains(expected), "{what}");
    assert_eq!(hint, format!("chmod 600 {}", sshd.path_string("wide")));
    run_command("sh", &["-c", &hint]);
    sshd.fleet(vec![host]).connect(0).await.expect("the command fixes it");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn user_certificates_of_every_type_work() {
    let sshd = Sshd::start();
    generate_key(&sshd.path("ca"), "ed25519", "");
    let ca = std::fs::read_to_string(sshd.path("ca.pub")).expect("a key");
    sshd.write("authorized", &format!("cert-authority {ca}"));
    let person = Arc::new(ScriptedPrompt::with_answers(&["geheim"]));
    for (kind, passphrase) in [("ed25519", ""), ("ecdsa", ""), ("rsa", ""), ("ed25519", "geheim")] {
        let key = format!("signed_{kind}{passphrase}");
        generate_key(&sshd.path(&key), kind, passphrase);
        run_command(
            "ssh-keygen",
            &["-q", "-s", &sshd.path_string("ca"), "-I", "t", "-n", &crate::sshd::current_user(), &sshd.path_string(&format!("{key}.pub"))],
        );
        let mut host = sshd.host("gpu01");
        host.ssh.identity_files = vec![sshd.path_string(&key)];
        let fleet = SshFleet::new(vec![host.clone()], sshd.settings(&person));
        fleet.connect(0).await.unwrap_or_else(|e| panic!("{kind}: {e}\n{}", sshd.log()));
        run_command("mv", &[&sshd.path_string(&format!("{key}-cert.pub")), &sshd.path_string(&format!("{key}-apart.pub"))]);
        expect_refusal(SshFleet::new(vec![host.clone()], sshd.settings(&person)).connect(0).await);
        if passphrase.is_empty() {
            sshd.write("ssh_config", &format!("Host *\n CertificateFile ~/{key}-apart.pub\n"));
            sshd.fleet(vec![host]).connect(0).await.unwrap_or_else(|e| panic!("{kind}: {e}\n{}", sshd.log()));
            sshd.write("ssh_config", "");
        }
    }
    for (kind, count) in [("ED25519-CERT", 3), ("ECDSA-CERT", 2), ("RSA-CERT", 2)] {
        sshd.wait_for_log(&format!("ssh2: {kind}"), count).await;
    }
    assert_eq!(person.questions(), ["passphrase for ~/signed_ed25519geheim"]);
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn unusable_user_certificate_is_reported() {
    let sshd = Sshd::start();
    sshd.write("authorized", "");
    generate_key(&sshd.path("ca"), "ed25519", "");
    run_command("cp", &[&sshd.path_string("id.pub"), &sshd.path_string("stranger.pub")]);
    generate_key(&sshd.path("other"), "ed25519", "");
    let sign = |more: &[&str], key: &str| {
        run_command(
            "ssh-keygen",
            &[&["-q", "-s", &sshd.path_string("ca"), "-I", "t", "-n", "x"], more, &[&sshd.path_string(key)]].concat(),
        );
    };
    sign(&["-V", "20200101:20210101"], "id.pub");
    sign(&[], "other.pub");
    sign(&["-h"], "stranger.pub");
    let files = ["other-cert.pub", "stranger-cert.pub", "junk", "missing"].map(|f| format!(" CertificateFile ~/{f}\n")).concat();
    sshd.write("junk", "hello");
    sshd.write("ssh_config", &format!("Host *\n{files}"));
    let (what, _) = expect_refusal(sshd.fleet(vec![sshd.host("gpu01")]).connect(0).await);
    assert!(what.starts_with("key refused (tried ~/id-cert.pub (not valid now), ~/id)"), "{what}");
    for expected in [
        "~/other-cert.pub: its key is neither in a file nor in the agent",
        "~/stranger-cert.pub is a host certificate, not a user certificate",
        "~/junk is not a certificate",
        "could not read ~/missing: no such file",
    ] {
        assert!(what.contains(expected), "{expected}: {what}");
    }
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn encrypted_pem_keys_open_or_suggest_conversion() {
    let sshd = Sshd::start();
    run_command("ssh-keygen", &["-q", "-t", "rsa", "-m", "PEM", "-N", "geheim", "-f", &sshd.path_string("pem")]);
    run_command("ssh-keygen", &["-q", "-t", "rsa", "-m", "PKCS8", "-N", "geheim", "-f", &sshd.path_string("pkcs8")]);
    run_command("ssh-keygen", &["-q", "-t", "ecdsa", "-m", "PKCS8", "-N", "geheim", "-f", &sshd.path_string("ec8")]);
    for (key, public) in [("pem", true), ("pem", false), ("pkcs8", true), ("pkcs8", false), ("ec8", true), ("ec8", false)] {
        authorize_key(&sshd, key);
        let mut host = sshd.host("gpu01");
        if !public {
            run_command("mv", &[&sshd.path_string(&format!("{key}.pub")), &sshd.path_string("elsewhere")]);
        }
        host.ssh.identity_files = vec![key.to_owned()];
        let person = Arc::new(ScriptedPrompt::with_answers(&["geheim"]));
        SshFleet::new(vec![host.clone()], sshd.settings(&person)).connect(0).await.unwrap_or_else(|e| panic!("{key}: {e}"));
        assert_eq!(person.questions().len(), 1);
    }
    run_command("ssh-keygen", &["-q", "-t", "ecdsa", "-m", "PEM", "-N", "geheim", "-f", &sshd.path_string("old")]);
    let mut host = sshd.host("gpu01");
    host.ssh.identity_files = vec!["old".to_owned()];
    let error = sshd.fleet(vec![host]).connect(0).await.err().expect("too old");
    assert!(error.to_string().contains("~/old is encrypted in an unsupported legacy format"), "{error}");
    assert!(error.hint().starts_with(&format!("ssh-keygen -p -f {}", sshd.path_string("old"))), "{}", error.hint());
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn only_mutually_accepted_algorithms_are_offered() {
    let sshd = Sshd::start_with("PubkeyAcceptedAlgorithms rsa-sha2-256,ssh-ed25519", &["ed25519"]);
    generate_key(&sshd.path("rsa"), "rsa", "");
    authorize_key(&sshd, "rsa");
    let mut host = sshd.host("gpu01");
    host.ssh.identity_files = vec![sshd.path_string("id"), sshd.path_string("rsa")];
    for list in ["rsa-sha2-256", "-ssh-ed25519*,rsa-sha2-512*", "-rsa-sha2-512"] {
        sshd.write("ssh_config", &format!("Host *\n PubkeyAcceptedAlgorithms {list}\n"));
        sshd.fleet(vec![host.clone()]).connect(0).await.unwrap_or_else(|e| panic!("{list}: {e}"));
    }
    for (list, kind) in [("ecdsa-*", "ssh-rsa"), ("ecdsa-*", "ssh-ed25519")] {
        sshd.write("ssh_config", &format!("Host *\n PubkeyAcceptedAlgorithms {list}\n"));
        let (what, _) = expect_refusal(sshd.fleet(vec![host.clone()]).connect(0).await);
        assert!(
            what.contains(&format!(" was not offered: PubkeyAcceptedAlgorithms of the client or the server allows no {kind} signature")),
            "{what}"
        );
    }
    assert!(!sshd.log().contains("not in PubkeyAcceptedAlgorithms"), "{}", sshd.log());
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn two_keys_satisfy_two_publickey_factors() {
    let sshd = Sshd::start_with("AuthenticationMethods publickey,publickey", &["ed25519"]);
    generate_key(&sshd.path("second"), "ed25519", "");
    let both = ["id.pub", "second.pub"].map(|f| std::fs::read_to_string(sshd.path(f)).expect("a key")).concat();
    sshd.write("authorized", &both);
    let mut host = sshd.host("gpu01");
    host.ssh.identity_files = vec![sshd.path_string("id"), sshd.path_string("second")];
    sshd.fleet(vec![host.clone()]).connect(0).await.unwrap_or_else(|e| panic!("{e}\n{}", sshd.log()));
    host.ssh.identity_files = vec![sshd.path_string("id")];
    let (what, _) = expect_refusal(sshd.fleet(vec![host]).connect(0).await);
    assert_eq!(what, "publickey was accepted but is not sufficient (tried ~/id)");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn wrong_password_is_never_resent() {
    let sshd = Sshd::start_with("Match all\nPasswordAuthentication yes\nPermitRootLogin yes", &["ed25519"]);
    sshd.write("authorized", "");
    let mut host = sshd.host("gpu01");
    let person = Arc::new(ScriptedPrompt::with_answers(&["not it"]));
    let fleet = SshFleet::new(vec![host.clone()], sshd.settings(&person));
    let (what, _) = expect_refusal(fleet.connect(0).await);
    assert_eq!(what, "login refused (tried ~/id, a password)");
    assert_eq!(person.questions().len(), 2, "after the refusal, the next question is not answered");
    sshd.wait_for_log("Failed password", 1).await;

    let (what, _) = expect_refusal(sshd.fleet(vec![host.clone()]).connect(0).await);
    assert_eq!(what, "key refused (tried ~/id); the server accepts password, and no answer was given");
    host.ssh.password_variable = Some("SSH_PASSWORD".to_owned());
    expect_refusal(sshd.fleet(vec![host.clone()]).connect(0).await);
    sshd.wait_for_log("Failed password", 2).await;
    host.ssh.password_variable = Some("UNSET".to_owned());
    let error = sshd.fleet(vec![host]).connect(0).await.err().expect("unset");
    assert!(matches!(error, RemoteError::InvalidConfig { .. }) && error.to_string().contains("UNSET"), "{error}");
}
