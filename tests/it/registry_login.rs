//! A registry that requires a login: the password works, a wrong one is reported, and no trace of it stays anywhere.

use std::path::{Path, PathBuf};

use crate::support::{JobSpec, Laptop, SandboxFixture, path_str, wait_until};

const PASSWORD: &str = "s3cr3t'\"$HOME";
/// How docker's client stores `li:s3cr3t'"$HOME`.
const DOCKER_AUTH_BASE64: &str = "bGk6czNjcjN0JyIkSE9NRQ==";
const SCENARIO: &str = "{hosts: 2, gpus: 2, registry: ['reg.lan:5000/team/train:1'], \
                        logins: [{server: 'reg.lan:5000', username: li, password: \"s3cr3t'\\\"$HOME\"}]}";
const IMAGE_SETTING: &str = "container.image=reg.lan:5000/team/train:1";

fn registry_job() -> JobSpec {
    JobSpec { container: "registry: { server: \"reg.lan:5000\", username: li, password: REG_PASSWORD }\n".to_owned(), ..JobSpec::default() }
}

fn laptop_with_password(fixture: &SandboxFixture, name: &str, password: &str) -> Laptop {
    let mut laptop = fixture.new_laptop(name);
    laptop.env_vars.insert("REG_PASSWORD".to_owned(), password.to_owned());
    laptop
}

/// The login directories of this run name in memory.
fn login_dirs(name: &str) -> Vec<PathBuf> {
    let begins = format!(".orch-login.orch-{name}-");
    let entries = std::fs::read_dir("/dev/shm").expect("a folder in memory").flatten().map(|entry| entry.path());
    entries.filter(|path| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&begins))).collect()
}

/// Waits until both hosts pull with a login.
async fn wait_for_logged_in_pulls(name: &str) {
    let whole = |dir: &PathBuf| std::fs::read_to_string(dir.join("config.json")).is_ok_and(|text| text.contains(DOCKER_AUTH_BASE64));
    wait_until("both hosts are logged in", async || (login_dirs(name).iter().filter(|dir| whole(dir)).count() == 2).then_some(())).await;
}

/// The files below a directory that contain one of the texts.
fn files_containing(dir: &Path, texts: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for path in std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).filter(|path| !path.is_symlink()) {
        if path.is_dir() {
            found.extend(files_containing(&path, texts));
        } else if std::fs::read(&path).is_ok_and(|bytes| texts.iter().any(|text| String::from_utf8_lossy(&bytes).contains(text))) {
            found.push(path.display().to_string());
        }
    }
    found
}

fn set_pull_delay(fixture: &SandboxFixture, seconds: f64) {
    for host in ["gpu01", "gpu02"] {
        fixture.set_faults(host, &orchestrate::sandbox::Faults { pull_delay: seconds, ..Default::default() });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registry_password_leaves_no_trace() {
    let fixture = SandboxFixture::start(SCENARIO).await;
    // The registry's list of logins is a file of the sandbox.
    let texts = ["s3cr3t", DOCKER_AUTH_BASE64];
    let ours = |fixture: &SandboxFixture| {
        let mut found = files_containing(fixture.sandbox.dir(), &texts);
        found.retain(|file| !file.ends_with("/host.json"));
        found
    };
    fixture.hold_pulls(&["gpu01", "gpu02"]);
    let (person, file) = (laptop_with_password(&fixture, "laptop", PASSWORD), fixture.write_inventory("registry", &registry_job()));
    person
        .run(&["plan", path_str(&file), "--set", IMAGE_SETTING, "-v"])
        .await
        .assert_exit_code(0)
        .assert_not_contains("s3cr3t")
        .assert_contains("***");
    fixture.end_ranks(None, 0);
    let up = person.start(&["up", path_str(&file), "--set", IMAGE_SETTING, "--progress", "plain", "-vv"]);
    wait_for_logged_in_pulls("registry").await;
    for pid in fixture.sandbox.processes() {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        assert!(!texts.iter().any(|text| line.contains(text)), "in an argument vector: {line}");
    }
    assert_eq!(ours(&fixture), Vec::<String>::new(), "on a host's disk");
    fixture.release_pulls();
    up.wait_for_exit().await.assert_exit_code(0).assert_recap("OK").assert_not_contains("s3cr3t").assert_not_contains(DOCKER_AUTH_BASE64);
    assert_eq!(login_dirs("registry"), Vec::<PathBuf>::new(), "in memory");
    assert_eq!(ours(&fixture), Vec::<String>::new(), "on a host's disk");
    assert_eq!(files_containing(&person.home, &texts), Vec::<String>::new(), "on the laptop");
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_registry_password_is_reported() {
    let fixture = SandboxFixture::start(SCENARIO).await;
    let (person, file) = (laptop_with_password(&fixture, "laptop", "wr0ng"), fixture.write_inventory("refuses", &registry_job()));
    let up = person.run(&["up", path_str(&file), "--set", IMAGE_SETTING]).await;
    up.assert_exit_code(3)
        .assert_contains("reg.lan:5000 refused the password of li")
        .assert_contains("check the value of $REG_PASSWORD")
        .assert_not_contains("wr0ng");
    assert_eq!(login_dirs("refuses"), Vec::<PathBuf>::new());
    assert_eq!(files_containing(&person.home, &["wr0ng"]), Vec::<String>::new(), "on the laptop");
    fixture.assert_clean_and_stop().await;
}

/// KILL leaves a script no chance to remove its directory: the next command does it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leftovers_of_killed_login_are_removed() {
    let fixture = SandboxFixture::start(SCENARIO).await;
    let (person, file) = (laptop_with_password(&fixture, "laptop", PASSWORD), fixture.write_inventory("killed", &registry_job()));
    let words = ["up", path_str(&file), "--set", IMAGE_SETTING];
    let kill = async || {
        set_pull_delay(&fixture, 3600.0);
        let up = person.start(&words);
        wait_for_logged_in_pulls("killed").await;
        up.send_signal("KILL");
        drop(up.wait_for_exit().await);
        // A shell may start another process between the listing and the KILL.
        wait_until("all of it is killed", async || {
            let there = fixture.sandbox.processes();
            for pid in &there {
                let pid = rustix::process::Pid::from_raw(*pid).expect("a pid");
                // It may have ended with its parent.
                let killed = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                assert!(matches!(killed, Ok(()) | Err(rustix::io::Errno::SRCH)), "{killed:?}");
            }
            there.is_empty().then_some(())
        })
        .await;
        assert_eq!(login_dirs("killed").len(), 2, "a KILL leaves it");
        set_pull_delay(&fixture, 0.0);
    };
    kill().await;
    person.run(&["down", "--yes", path_str(&file)]).await.assert_exit_code(0).assert_contains("nothing is left");
    assert_eq!(login_dirs("killed"), Vec::<PathBuf>::new(), "down");
    fixture.assert_no_leftovers().await;
    kill().await;
    fixture.end_ranks(None, 0);
    person.run(&words).await.assert_exit_code(0);
    assert_eq!(login_dirs("killed"), Vec::<PathBuf>::new(), "the next up");
    fixture.assert_clean_and_stop().await;
}

/// The files of this run name in memory, regardless of their permissions.
fn shm_files(name: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/dev/shm").expect("a folder in memory").flatten().map(|entry| entry.path());
    entries.filter(|path| path.to_string_lossy().contains(&format!("orch-{name}-"))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_during_first_pull_leaves_no_password() {
    let fixture = SandboxFixture::start(SCENARIO).await;
    let (person, file) = (laptop_with_password(&fixture, "laptop", PASSWORD), fixture.write_inventory("stopped", &registry_job()));
    set_pull_delay(&fixture, 3600.0);
    let up = person.start(&["up", path_str(&file), "--set", IMAGE_SETTING]);
    wait_for_logged_in_pulls("stopped").await;
    up.send_signal("INT");
    up.wait_for_exit().await.assert_exit_code(130);
    assert_eq!(shm_files("stopped"), Vec::<PathBuf>::new());
    set_pull_delay(&fixture, 0.0);
    fixture.assert_clean_and_stop().await;
}

/// Ctrl-C while command `call` of gpu01 is held; `false` if the launch has fewer commands.
async fn interrupt_at_call(call: u32, answer: bool) -> bool {
    use orchestrate::sandbox::{Faults, HeldCommand};
    let fixture = SandboxFixture::start(SCENARIO).await;
    let name = format!("at-{}-{call}", if answer { "after" } else { "before" });
    let secret = JobSpec { top_level: "secrets: [REG_PASSWORD]\n".to_owned(), ..registry_job() };
    let (person, file) = (laptop_with_password(&fixture, "laptop", PASSWORD), fixture.write_inventory(&name, &secret));
    fixture.end_ranks(None, 0);
    fixture.set_faults("gpu01", &Faults { hold: Some(HeldCommand { call, answer }), ..Faults::default() });
    let mut up = person.start(&["up", path_str(&file), "--set", IMAGE_SETTING]);
    let held = fixture.sandbox.host_root(0).expect("a host").join("held");
    let struck =
        wait_until(
            "the command is held, or there is none",
            async || if held.exists() { Some(true) } else { (!up.is_running()).then_some(false) },
        )
        .await;
    if struck {
        up.send_signal("INT");
        up.wait_for_output(": stopping ").await;
    }
    fixture.set_faults("gpu01", &Faults::default());
    let ended = up.wait_for_exit().await;
    assert!(matches!(ended.exit_code, Some(0 | 130)), "at call {call}: {:?}\n{}", ended.exit_code, ended.stderr);
    // A script that received TERM may take a moment to exit.
    wait_until(&format!("nothing is in memory after call {call}"), async || shm_files(&name).is_empty().then_some(())).await;
    assert_eq!(files_containing(&person.home, &["s3cr3t", DOCKER_AUTH_BASE64]), Vec::<String>::new(), "on the laptop, at call {call}");
    fixture.assert_clean_and_stop().await;
    struck
}

async fn interrupt_at_every_call(answer: bool) {
    let mut calls = 0;
    while calls < 60 && interrupt_at_call(calls + 1, answer).await {
        calls += 1;
    }
    assert!((10..60).contains(&calls), "{calls} commands were seen");
}

/// Tier 2: takes minutes.
mod whole {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn ctrl_c_before_every_up_command_leaves_nothing() {
        interrupt_at_every_call(false).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn ctrl_c_after_every_up_command_leaves_nothing() {
        interrupt_at_every_call(true).await;
    }
}
