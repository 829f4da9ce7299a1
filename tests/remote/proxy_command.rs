//! ProxyCommand: a program on the laptop carries the connection and ends with it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use orchestrate::inventory::InventoryHost;
use orchestrate::remote::{HostConnector, RemoteError, SshFleet};

use crate::many_hosts::MACHINE_LOCK;
use crate::shell_command;
use crate::sshd::{ScriptedPrompt, Sshd, wait_until};

/// A host that is reached through a command, which first writes its pid to a file.
fn host_via_command(sshd: &Sshd, command: &str) -> InventoryHost {
    let noted = format!("sh -c 'echo $$ >>{}; {command}' %h %p %r %n %%", sshd.path_string("pids"));
    sshd.write("ssh_config", &format!("# of this test\nHost *\n ProxyCommand {noted}\n"));
    let mut host = sshd.host("gpu01");
    host.ssh.connect_timeout = Some(Duration::from_secs(10));
    host
}

/// Does what nc does, with tools of every machine: two processes, both pids in the file.
fn relay_command(sshd: &Sshd) -> String {
    let script = format!("exec 3<>/dev/tcp/$1/$2 || exit 1\ncat <&3 &\necho $! >>{}\nexec cat >&3\n", sshd.path_string("pids"));
    format!("bash {}", sshd.write("relay", &script))
}

fn proxy_pids(sshd: &Sshd) -> Vec<String> {
    let text = std::fs::read_to_string(sshd.path("pids")).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// Waits until all of the programs are gone, including zombies.
async fn wait_until_proxies_end(sshd: &Sshd) {
    assert!(!proxy_pids(sshd).is_empty(), "none was started");
    let there = |pid: &String| std::path::Path::new(&format!("/proc/{pid}")).exists();
    wait_until("the programs are gone", || !proxy_pids(sshd).iter().any(there)).await;
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn proxy_command_ends_with_its_connection() {
    let sshd = Sshd::start();
    let host = host_via_command(
        &sshd,
        &format!(
            "[ \"$0 $1 $2 $3 $4\" = \"127.0.0.1 {} {} gpu01 %%\" ] && exec {} \"$0\" \"$1\"",
            sshd.port,
            crate::sshd::current_user(),
            relay_command(&sshd)
        ),
    );
    let fleet = sshd.fleet(vec![host; 3]);
    let hosts = futures_util::future::join_all((0..3).map(|n| fleet.connect(n))).await;
    for host in &hosts {
        let host = host.as_ref().unwrap_or_else(|e| panic!("{e}\n{}", sshd.log()));
        let out = host.exec(&shell_command("head -c 3000000 /dev/zero; exit 5")).await.expect("an answer");
        assert_eq!((out.exit_code, out.stdout.len()), (5, 3_000_000));
    }
    assert_eq!(proxy_pids(&sshd).len(), 6);
    // One connection is closed, the others are dropped.
    hosts[0].as_ref().expect("connected").close().await;
    drop(hosts);
    wait_until_proxies_end(&sshd).await;
    wait_until("sshd has no connections", || sshd.session_pids().is_empty()).await;
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn ssh_proxy_command_works_also_for_jump_hosts() {
    let (bastion, sshd) = (Sshd::start(), Sshd::start());
    bastion.host("known");
    let ssh = format!(
        "ssh -F none -o UserKnownHostsFile={} -o IdentitiesOnly=yes -i {} -p {} -W [%h]:%p {}@127.0.0.1",
        bastion.path_string("known"),
        bastion.path_string("id"),
        bastion.port,
        crate::sshd::current_user()
    );
    sshd.write("ssh_config", &format!("Host gpu01\n ProxyCommand {ssh}\n"));
    let host = sshd.fleet(vec![sshd.host("gpu01")]).connect(0).await.unwrap_or_else(|e| panic!("{e}\n{}", bastion.log()));
    assert!(host.exec(&shell_command("true")).await.expect("an answer").is_success());
    bastion.wait_for_log("Accepted publickey", 1).await;
    host.close().await;
    wait_until("the bastion has no connections", || bastion.session_pids().is_empty()).await;

    let outer = format!(
        "Host outer\n HostName 127.0.0.1\n Port {}\n User {}\n IdentityFile {}\n UserKnownHostsFile {}\n ProxyCommand {} %h %p\n",
        bastion.port,
        crate::sshd::current_user(),
        bastion.path_string("id"),
        bastion.path_string("known"),
        relay_command(&sshd)
    );
    sshd.write("ssh_config", &outer);
    let mut host = sshd.host("gpu01");
    host.ssh.jump_hosts = Some(vec!["outer".to_owned()]);
    host.ssh.known_hosts_file = Some(sshd.write("both", &(sshd.known_hosts_line("ed25519") + &bastion.known_hosts_line("ed25519"))));
    let host = sshd.fleet(vec![host]).connect(0).await.unwrap_or_else(|e| panic!("{e}\n{}", bastion.log()));
    assert!(host.exec(&shell_command("true")).await.expect("an answer").is_success());
    bastion.wait_for_log("Accepted publickey", 2).await;
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn proxy_command_failure_reports_origin_status_stderr() {
    let _quiet = MACHINE_LOCK.read().await;
    let sshd = Sshd::start();
    for (command, expected) in [
        ("echo no route to the bastion >&2; exit 7", &["status 7", "no route to the bastion"][..]),
        ("kill -9 $$", &["killed by signal 9"]),
        ("echo what is this; echo; cat >/dev/null; exit 3", &["what is this"]),
        ("nosuchprogram", &["status 127", "nosuchprogram"]),
        ("exec sleep 600", &["within 4s"]),
        ("head -c 100000 /dev/urandom; exec sleep 600", &["could not connect"]),
        ("sleep 600 & sleep 600 & wait", &["within 4s"]),
    ] {
        std::fs::remove_file(sshd.path("pids")).ok();
        let mut host = host_via_command(&sshd, command);
        if command.ends_with("wait") || command.ends_with("sleep 600") {
            host.ssh.connect_timeout = Some(Duration::from_secs(4));
        }
        let started = Instant::now();
        let error = sshd.fleet(vec![host]).connect(0).await.err().expect("the connection fails");
        let what = error.to_string();
        assert!(matches!(error, RemoteError::Lost { .. }), "{command}: {error:?}");
        let location = "~/ssh_config:3";
        assert!(what.contains("ProxyCommand `sh -c") && what.contains(location), "{command}: {what}");
        assert!(expected.iter().all(|s| what.contains(s)), "{command}: {what}");
        assert!(error.hint().contains("by hand"), "{command}: {}", error.hint());
        assert!(started.elapsed() < Duration::from_secs(30), "{command}: {:?}", started.elapsed());
        wait_until_proxies_end(&sshd).await;
    }
    let mut settings = sshd.settings(&Arc::new(ScriptedPrompt::without_answers()));
    settings.env = Arc::new(|name| (name == "SHELL").then(|| "/no/such/shell".to_owned()));
    let error = SshFleet::new(vec![host_via_command(&sshd, "true")], settings).connect(0).await.err().expect("no shell");
    assert!(matches!(&error, RemoteError::InvalidConfig { .. }) && error.to_string().contains("/no/such/shell"), "{error}");
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn dying_proxy_command_loses_connection() {
    let sshd = Sshd::start();
    let host = sshd
        .fleet(vec![host_via_command(&sshd, &format!("exec {} \"$0\" \"$1\"", relay_command(&sshd)))])
        .connect(0)
        .await
        .expect("connected");
    let command = shell_command("sleep 600");
    let kill = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        crate::sshd::kill_pid(&proxy_pids(&sshd)[0]);
    };
    let (result, ()) = tokio::join!(host.exec(&command), kill);
    assert!(matches!(result, Err(RemoteError::Lost { retry: true, .. })), "{result:?}");
    wait_until_proxies_end(&sshd).await;
}

#[tokio::test]
#[ignore = "needs sshd: apt-get install openssh-server"]
async fn first_of_proxy_jump_and_command_wins() {
    let sshd = Sshd::start();
    let proxy = format!("ProxyCommand {} %h %p", relay_command(&sshd));
    for (config, fails) in [
        (format!("Host *\n {proxy}\n ProxyJump nowhere.invalid\n"), false),
        (format!("Host *\n ProxyJump nowhere.invalid\n {proxy}\n"), true),
        (format!("Host *\n ProxyJump none\n {proxy}\n"), false),
        ("Host *\n ProxyCommand none\n ProxyJump nowhere.invalid\n".to_owned(), false),
    ] {
        sshd.write("ssh_config", &config);
        let result = sshd.fleet(vec![sshd.host("gpu01")]).connect(0).await;
        assert_eq!(result.is_err(), fails, "{config}: {:?}", result.err());
    }
    sshd.write("ssh_config", "Host *\n ProxyCommand exit 1\n");
    let mut direct = sshd.host("gpu01");
    direct.ssh.jump_hosts = Some(Vec::new());
    sshd.fleet(vec![direct]).connect(0).await.expect("the inventory overrides ssh_config");
    sshd.write("ssh_config", "Host *\n User x\n ProxyCommand nc %h %p\n ProxyUseFdpass yes\n");
    let error = sshd.fleet(vec![sshd.host("gpu01")]).connect(0).await.err().expect("not supported");
    let what = error.to_string();
    assert!(
        matches!(error, RemoteError::InvalidConfig { .. }) && what.contains("ProxyUseFdpass") && what.contains("ssh_config:4"),
        "{what}"
    );
}
