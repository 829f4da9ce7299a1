//! Routes to a host: ssh_config, jump hosts, many connections at once.

use std::sync::Arc;
use std::time::Instant;

use orchestrate::inventory::InventoryHost;
use orchestrate::remote::{HostConnector, RemoteError, SshFleet};

use crate::many_hosts::MACHINE_LOCK;
use crate::sshd::{ScriptedPrompt, Sshd};
use crate::test_program::write_program;
use crate::{CLOSED_PORT, shell_command};

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn ssh_config_can_supply_every_setting() {
    let sshd = Sshd::start();
    let mut host = sshd.host("gpu01");
    host.address = None;
    host.ssh = orchestrate::inventory::HostSshSettings::default();
    sshd.write(
        "ssh_config",
        &format!(
            "Match originalhost gpu01\n HostName 127.0.0.1\n Port {}\n User {}\nHost *\n IdentityFile %d/i%%d_no\n IdentityFile ~/id\n \
             UserKnownHostsFile {}\n ConnectTimeout 60\n",
            sshd.port,
            crate::sshd::current_user(),
            sshd.path_string("known")
        )
        .replace("~/id", &sshd.path_string("id")),
    );
    let host = sshd.fleet(vec![host]).connect(0).await.expect("all settings apply");
    assert!(host.exec(&shell_command("true")).await.expect("an answer").is_success());
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn invalid_ssh_config_is_reported_with_line() {
    let sshd = Sshd::start();
    let host = sshd.host("gpu01");
    for (config, expected) in [
        ("Host *\n NoSuchWord yes\n", "ssh_config:2: unknown keyword `nosuchword`"),
        (
            "Host *\n Port 0\n Compression perhaps\n",
            "ssh_config:2: Port needs a port from 1 to 65535, or a service of /etc/services, not `0`; ",
        ),
        ("Host *\n Port 0\n Compression perhaps\n", "ssh_config:3: Compression needs yes or no, not `perhaps`"),
        ("Host *\n ProxyCommand nc %h %z\n", "ssh_config:2: ProxyCommand: `nc %h %z`: unknown token %z"),
        ("Host *\n RevokedHostKeys /x\n", "ssh_config:2: RevokedHostKeys /x: no such file"),
        (
            "Host *\n Ciphers aes256-ctr,aes256-gcm\n",
            "ssh_config:2: Ciphers: `aes256-ctr,aes256-gcm`: `aes256-gcm` is not known (did you mean aes256-gcm@openssh.com",
        ),
        (
            "Host *\n MACs umac-64@openssh.com\n",
            "ssh_config:2: MACs: `umac-64@openssh.com`: this program supports none of umac-64@openssh.com",
        ),
        ("Host *\n KexAlgorithms -*\n", "ssh_config:2: KexAlgorithms: `-*`: it removes every algorithm"),
        ("Host *\n BindInterface nosuch0\n", "BindInterface nosuch0"),
        ("Host *\n ProxyJump bastion\n", "ssh_config:2: the jump hosts of gpu01 form a loop: bastion → bastion"),
        ("Host gpu01\n ProxyJump a\nHost a\n ProxyJump b\nHost b\n ProxyJump a\n", "form a loop: a → b → a"),
        ("Host *\n IdentityFile /x/%X\n", "ssh_config:2: IdentityFile: `/x/%X`: unknown token %X"),
        ("Match exec true\n NoSuchWord yes\n", "Bad configuration option"),
    ] {
        sshd.write("ssh_config", config);
        let error = sshd.fleet(vec![host.clone()]).connect(0).await.err().expect("not followed");
        assert!(matches!(error, RemoteError::InvalidConfig { .. }) && error.to_string().contains(expected), "{config}: {error}");
        assert!(!error.hint().is_empty());
    }
    let mut settings = sshd.settings(&Arc::new(ScriptedPrompt::without_answers()));
    settings.search_path = Some("/nowhere".into());
    sshd.write("ssh_config", "Host *\nMatch exec true user x\n Port 1\n");
    SshFleet::new(vec![host.clone()], settings.clone()).connect(0).await.expect("the user does not match, so the command need not run");
    sshd.write("ssh_config", "Host *\nMatch exec true\n Port 1\n");
    let error = SshFleet::new(vec![host.clone()], settings.clone()).connect(0).await.err().expect("no ssh");
    let expected = "ssh_config:2: `Match exec` needs `ssh` to evaluate it, and there is no `ssh` on PATH";
    assert!(error.to_string().contains(expected) && error.hint().contains("openssh-client"), "{error}");
    let mut without = host.clone();
    without.ssh.config_file = Some("none".to_owned());
    settings.config_file = None;
    SshFleet::new(vec![without], settings.clone()).connect(0).await.expect("nothing to ask ssh for");
    settings.config_file = Some("none".into());
    SshFleet::new(vec![host], settings).connect(0).await.expect("nothing to ask ssh for");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn ssh_g_runs_only_when_needed() {
    let sshd = Sshd::start();
    let path = std::env::var_os("PATH").expect("a PATH");
    let real = std::env::split_paths(&path).map(|p| p.join("ssh")).find(|p| p.is_file()).expect("an ssh");
    std::fs::create_dir(sshd.path("bin")).expect("a folder");
    let text = format!("#!/bin/sh\necho \"$*\" >>{}\nexec {} \"$@\"\n", sshd.path_string("asked"), real.display());
    write_program(&sshd.path("bin/ssh"), &text);
    let host = |name: &str| {
        let mut host = sshd.host(name);
        host.ssh.identity_files.clear();
        host
    };
    let hosts = ["gpu01", "gpu02", "gpu03", "odd"].map(host).to_vec();
    let tries = |config: String| {
        sshd.write("ssh_config", &config);
        sshd.write("asked", "");
        let mut settings = sshd.settings(&Arc::new(ScriptedPrompt::without_answers()));
        settings.search_path = Some(sshd.path("bin").into());
        let fleet = SshFleet::new(hosts.clone(), settings);
        let query = sshd.path("asked");
        async move {
            let all = futures_util::future::join_all((0..4).map(|i| fleet.connect(i))).await;
            let in_: Vec<bool> = all.iter().map(Result::is_ok).collect();
            (in_, std::fs::read_to_string(query).expect("written").lines().count())
        }
    };
    let key = format!("IdentityFile {}\n", sshd.path_string("id"));
    let only = [true, true, true, false];
    let none = tries(format!("Host gpu*\n {key}Match final\n IdentitiesOnly yes\n")).await;
    assert_eq!(none, (only.to_vec(), 0), "nothing in it needs `ssh -G`");
    let some = tries(format!("Match originalhost gpu* exec \"test %n != gpu02\"\n {key}")).await;
    assert_eq!(some, (vec![true, false, true, false], 3), "`ssh -G` runs for gpu* only, and its result is used");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn hanging_match_exec_is_killed() {
    let sshd = Sshd::start();
    let pid = sshd.path_string("pid");
    sshd.write("ssh_config", &format!("Match exec \"echo $$ >{pid}; sleep 600\"\n User nobody\n"));
    let error = sshd.fleet(vec![sshd.host("gpu01")]).connect(0).await.err().expect("given up");
    assert!(matches!(error, RemoteError::InvalidConfig { .. }) && error.to_string().contains("did not exit within 5s"), "{error}");
    let pid = std::fs::read_to_string(pid).expect("a pid");
    crate::sshd::wait_until("the command is killed", || !std::path::Path::new(&format!("/proc/{}/fd", pid.trim())).exists()).await;
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn unreachable_host_error_names_the_cause() {
    let sshd = Sshd::start();
    let mut host = sshd.host("gpu01");
    host.ssh.port = Some(CLOSED_PORT);
    let error = sshd.fleet(vec![host.clone()]).connect(0).await.err().expect("closed");
    assert!(error.to_string().contains("connection refused") && error.is_retryable(), "{error}");
    host.address = Some("x".repeat(250));
    let error = sshd.fleet(vec![host]).connect(0).await.err().expect("unknown");
    assert!(error.to_string().contains("address was not found"), "{error}");
}

pub(crate) fn jump_host_config(sshd: &Sshd) -> String {
    let hop = |name: &str, more: &str| {
        format!(
            "Host {name}\n HostName 127.0.0.1\n Port {}\n User {}\n IdentityFile {}\n UserKnownHostsFile {}\n{more}",
            sshd.port,
            crate::sshd::current_user(),
            sshd.path_string("id"),
            sshd.path_string("known")
        )
    };
    hop("outer", "") + &hop("inner", " ProxyJump outer\n")
}

/// Host `gpu01` on `sshd`, reached through `bastion` as jump host `outer`.
pub(crate) fn host_behind(bastion: &Sshd, sshd: &Sshd) -> InventoryHost {
    sshd.write("ssh_config", &jump_host_config(bastion));
    bastion.host("known");
    let mut host = sshd.host("gpu01");
    host.ssh.known_hosts_file = Some(sshd.write("both", &(sshd.known_hosts_line("ed25519") + &bastion.known_hosts_line("ed25519"))));
    host.ssh.jump_hosts = Some(vec!["outer".to_owned()]);
    host
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn connects_through_two_jump_hosts() {
    let sshd = Sshd::start();
    sshd.write("ssh_config", &jump_host_config(&sshd));
    let mut host = sshd.host("gpu01");
    host.ssh.jump_hosts = Some(vec!["inner".to_owned()]);
    let fleet = sshd.fleet(vec![host]);
    let host = fleet.connect(0).await.unwrap_or_else(|e| panic!("{e}\n{}", sshd.log()));
    let out = host.exec(&shell_command("head -c 3000000 /dev/zero; exit 5")).await.expect("an answer");
    assert_eq!((out.exit_code, out.stdout.len()), (5, 3_000_000));
    assert_eq!(sshd.log().matches("Accepted publickey").count(), 3, "{}", sshd.log());
    host.close().await;
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn sixty_four_hosts_share_one_jump_connection() {
    let _alone = MACHINE_LOCK.write().await;
    let (bastion, sshd) = (Sshd::start_with("MaxSessions 2", &["ed25519"]), Sshd::start());
    let host = host_behind(&bastion, &sshd);
    let fleet = sshd.fleet(vec![host; 64]);
    let started = Instant::now();
    let hosts = futures_util::future::join_all((0..64).map(|n| fleet.connect(n))).await;
    let failed: Vec<_> = hosts.iter().filter_map(|h| h.as_ref().err()).collect();
    assert!(failed.is_empty(), "{failed:?}");
    println!("64 hosts behind a bastion in {:?}", started.elapsed());
    let started = Instant::now();
    let command = crate::shell_command_within("head -c 200000 /dev/zero", std::time::Duration::from_secs(60));
    let outs = futures_util::future::join_all(hosts.iter().flatten().map(|h| h.exec(&command))).await;
    let wrong: Vec<_> = outs.iter().filter(|o| !o.as_ref().is_ok_and(|o| o.stdout.len() == 200_000)).map(|o| o.as_ref().err()).collect();
    assert!(wrong.is_empty(), "{} {wrong:?}", wrong.len());
    println!("200 kB from each of them in {:?}", started.elapsed());
    assert_eq!(bastion.log().matches("Accepted publickey").count(), 1);
    drop(hosts);
    crate::sshd::wait_until("the bastion has no connections", || bastion.session_pids().is_empty()).await;
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn lost_bastion_is_reconnected() {
    let (bastion, sshd) = (Sshd::start(), Sshd::start());
    let host = host_behind(&bastion, &sshd);
    let fleet = sshd.fleet(vec![host; 4]);
    let hosts = futures_util::future::join_all((0..4).map(|n| fleet.connect(n))).await;
    let hosts: Vec<_> = hosts.into_iter().map(|h| h.expect("connected")).collect();
    let command = shell_command("sleep 600");
    let calls = futures_util::future::join_all(hosts.iter().map(|h| h.exec(&command)));
    let kill = async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        bastion.kill_connections();
    };
    let (results, ()) = tokio::join!(calls, kill);
    assert!(results.iter().all(|r| matches!(r, Err(RemoteError::Lost { retry: true, .. }))), "{results:?}");
    let again = futures_util::future::join_all((0..4).map(|n| fleet.connect(n))).await;
    for host in again {
        assert!(host.expect("connected again").exec(&shell_command("true")).await.expect("an answer").is_success());
    }
    bastion.wait_for_log("Accepted publickey", 2).await;
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn refusing_jump_host_is_tried_once() {
    let (bastion, sshd) = (Sshd::start(), Sshd::start());
    bastion.write("authorized", "");
    let host = host_behind(&bastion, &sshd);
    let fleet = sshd.fleet(vec![host; 8]);
    let hosts = futures_util::future::join_all((0..8).map(|n| fleet.connect(n))).await;
    for result in hosts {
        let (what, _) = crate::sshd::expect_refusal(result);
        assert!(what.contains("outer"), "{what}");
    }
    bastion.wait_for_log("Connection from", 1).await;
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn sixty_four_concurrent_connections_succeed() {
    let _alone = MACHINE_LOCK.write().await;
    let sshd = Sshd::start();
    let fleet = sshd.fleet(vec![sshd.host("gpu01"); 64]);
    let started = Instant::now();
    let hosts = futures_util::future::join_all((0..64).map(|n| fleet.connect(n))).await;
    let failed: Vec<_> = hosts.iter().filter_map(|h| h.as_ref().err()).collect();
    assert!(failed.is_empty(), "{failed:?}");
    println!("64 connections in {:?}", started.elapsed());
    println!("{} of them were dropped by sshd and tried again", sshd.log().matches("drop connection").count());
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn slow_host_behind_bastion_delays_no_other() {
    let _quiet = MACHINE_LOCK.read().await;
    let (bastion, sshd) = (Sshd::start(), Sshd::start());
    let mut host = host_behind(&bastion, &sshd);
    host.ssh.connect_timeout = Some(std::time::Duration::from_secs(60));
    let mut hosts = vec![host.clone(); 9];
    let (_full, port) = crate::sshd::full_backlog_port();
    hosts[0].ssh.connect_timeout = Some(std::time::Duration::from_secs(20));
    hosts[0].ssh.port = Some(port);
    hosts[1].ssh.port = Some(CLOSED_PORT);
    let fleet = sshd.fleet(hosts);
    let slow = async {
        let error = fleet.connect(0).await.err().expect("no answer");
        assert_eq!(error.to_string(), format!("could not connect through outer: port {port} did not answer"));
    };
    let refused = async {
        let error = fleet.connect(1).await.err().expect("a closed port");
        assert!(error.to_string().contains("connection refused"), "{error}");
    };
    let quick = async {
        for host in futures_util::future::join_all((2..9).map(|n| fleet.connect(n))).await {
            host.expect("connected");
        }
    };
    let others = async { tokio::join!(refused, quick) };
    tokio::pin!(slow);
    // All other hosts are done while this one is still pending.
    tokio::select! {
        ((), ()) = others => {}
        () = &mut slow => panic!("the other hosts are not connected yet"),
    }
    slow.await;
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn bind_address_family_and_attempts_are_honored() {
    let mut sshd = Sshd::start();
    let host = sshd.host("gpu01");
    for bind in ["BindAddress 127.0.0.7", "BindInterface lo\n AddressFamily inet"] {
        sshd.write("ssh_config", &format!("Host *\n {bind}\n TCPKeepAlive no\n ServerAliveInterval 0\n"));
        let host = sshd.fleet(vec![host.clone()]).connect(0).await.unwrap_or_else(|e| panic!("{bind}: {e}"));
        let out = host.exec(&shell_command("echo ${SSH_CONNECTION%% *}")).await.expect("an answer");
        assert!(
            ["127.0.0.7", "127.0.0.1"].contains(&out.stdout_text().trim())
                && (out.stdout_text().trim() == "127.0.0.7") == bind.ends_with('7'),
            "{bind}"
        );
    }
    sshd.write("ssh_config", "Host *\n AddressFamily inet6\n");
    let error = sshd.fleet(vec![host.clone()]).connect(0).await.err().expect("no such address");
    assert!(error.to_string().contains("no address of the requested family (AddressFamily)"), "{error}");

    sshd.write("ssh_config", "Host *\n ConnectionAttempts 9\n");
    sshd.stop();
    let fleet = sshd.fleet(vec![host]);
    let connecting = fleet.connect(0);
    tokio::pin!(connecting);
    tokio::select! {
        result = &mut connecting => panic!("it did not try again: {:?}", result.err()),
        () = tokio::time::sleep(std::time::Duration::from_millis(300)) => {}
    }
    sshd.start_stopped();
    connecting.await.expect("another attempt");
}
