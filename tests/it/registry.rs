//! A registry that wants a login: the password opens it, a wrong one is said to be wrong, and no trace of it stays anywhere.

use std::path::{Path, PathBuf};

use crate::support::{Bench, Job, Laptop, until, word};

const PASSWORD: &str = "s3cr3t'\"$HOME";
/// How docker's client keeps `li:s3cr3t'"$HOME`.
const KEPT: &str = "bGk6czNjcjN0JyIkSE9NRQ==";
const SCENARIO: &str = "{hosts: 2, gpus: 2, registry: ['reg.lan:5000/team/train:1'], \
                        logins: [{server: 'reg.lan:5000', username: li, password: \"s3cr3t'\\\"$HOME\"}]}";
const IMAGE: &str = "container.image=reg.lan:5000/team/train:1";

fn job() -> Job {
    Job { container: "registry: { server: \"reg.lan:5000\", username: li, password: REG_PASSWORD }\n".to_owned(), ..Job::default() }
}

fn laptop(bench: &Bench, name: &str, password: &str) -> Laptop {
    let mut laptop = bench.laptop(name);
    laptop.variables.insert("REG_PASSWORD".to_owned(), password.to_owned());
    laptop
}

/// Folders of logins of a name that are in memory now.
fn logins(name: &str) -> Vec<PathBuf> {
    let begins = format!(".orch-login.orch-{name}-");
    let entries = std::fs::read_dir("/dev/shm").expect("a folder in memory").flatten().map(|entry| entry.path());
    entries.filter(|path| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&begins))).collect()
}

/// Waits until both hosts pull with a login.
async fn pulling(name: &str) {
    let whole = |dir: &PathBuf| std::fs::read_to_string(dir.join("config.json")).is_ok_and(|text| text.contains(KEPT));
    until("both hosts are logged in", async || (logins(name).iter().filter(|dir| whole(dir)).count() == 2).then_some(())).await;
}

/// Whether a file beneath a folder holds one of the texts.
fn holds(dir: &Path, texts: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for path in std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).filter(|path| !path.is_symlink()) {
        if path.is_dir() {
            found.extend(holds(&path, texts));
        } else if std::fs::read(&path).is_ok_and(|bytes| texts.iter().any(|text| String::from_utf8_lossy(&bytes).contains(text))) {
            found.push(path.display().to_string());
        }
    }
    found
}

fn slow(bench: &Bench, seconds: f64) {
    for host in ["gpu01", "gpu02"] {
        bench.faults(host, &orchestrate::sandbox::Faults { pull_delay: seconds, ..Default::default() });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_opens_the_registry_and_stays_nowhere() {
    let bench = Bench::new(SCENARIO).await;
    // The registry's list of who may log in is the sandbox's own file.
    let texts = ["s3cr3t", KEPT];
    let ours = |bench: &Bench| {
        let mut found = holds(bench.sandbox.dir(), &texts);
        found.retain(|file| !file.ends_with("/host.json"));
        found
    };
    slow(&bench, 6.0);
    let (person, file) = (laptop(&bench, "laptop", PASSWORD), bench.inventory("registry", &job()));
    person.run(&["plan", word(&file), "--set", IMAGE, "-v"]).await.code(0).silent_about("s3cr3t").says("***");
    bench.end(None, 0);
    let up = person.start(&["up", word(&file), "--set", IMAGE, "--progress", "plain", "-vv"]);
    pulling("registry").await;
    for pid in bench.sandbox.processes() {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        assert!(!texts.iter().any(|text| line.contains(text)), "in an argument vector: {line}");
    }
    assert_eq!(ours(&bench), Vec::<String>::new(), "on a host's disk");
    up.end().await.code(0).recap("OK").silent_about("s3cr3t").silent_about(KEPT);
    assert_eq!(logins("registry"), Vec::<PathBuf>::new(), "in memory");
    assert_eq!(ours(&bench), Vec::<String>::new(), "on a host's disk");
    assert_eq!(holds(&person.home, &texts), Vec::<String>::new(), "on the laptop");
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_said_to_be_wrong() {
    let bench = Bench::new(SCENARIO).await;
    let (person, file) = (laptop(&bench, "laptop", "wr0ng"), bench.inventory("refuses", &job()));
    let up = person.run(&["up", word(&file), "--set", IMAGE]).await;
    up.code(3).says("reg.lan:5000 refused the password of li").says("check the value of $REG_PASSWORD").silent_about("wr0ng");
    assert_eq!(logins("refuses"), Vec::<PathBuf>::new());
    assert_eq!(holds(&person.home, &["wr0ng"]), Vec::<String>::new(), "on the laptop");
    bench.done().await;
}

/// KILL gives a script no chance to remove its folder: whoever comes next does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_login_left_is_removed() {
    let bench = Bench::new(SCENARIO).await;
    let (person, file) = (laptop(&bench, "laptop", PASSWORD), bench.inventory("killed", &job()));
    let words = ["up", word(&file), "--set", IMAGE];
    let kill = async || {
        slow(&bench, 3600.0);
        let up = person.start(&words);
        pulling("killed").await;
        up.signal("KILL");
        drop(up.end().await);
        // A shell may start another process between the look and the KILL.
        until("all of it is killed", async || {
            let there = bench.sandbox.processes();
            for pid in &there {
                let pid = rustix::process::Pid::from_raw(*pid).expect("a pid");
                // It may have ended by itself with its parent.
                let killed = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                assert!(matches!(killed, Ok(()) | Err(rustix::io::Errno::SRCH)), "{killed:?}");
            }
            there.is_empty().then_some(())
        })
        .await;
        assert_eq!(logins("killed").len(), 2, "a KILL leaves it");
        slow(&bench, 0.0);
    };
    kill().await;
    person.run(&["down", "--yes", word(&file)]).await.code(0).says("nothing is left");
    assert_eq!(logins("killed"), Vec::<PathBuf>::new(), "down");
    bench.nothing_left().await;
    kill().await;
    bench.end(None, 0);
    person.run(&words).await.code(0);
    assert_eq!(logins("killed"), Vec::<PathBuf>::new(), "the next up");
    bench.done().await;
}

/// What is in memory of a name, whoever would read it.
fn in_memory(name: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/dev/shm").expect("a folder in memory").flatten().map(|entry| entry.path());
    entries.filter(|path| path.to_string_lossy().contains(&format!("orch-{name}-"))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_during_the_first_pull_leaves_no_password() {
    let bench = Bench::new(SCENARIO).await;
    let (person, file) = (laptop(&bench, "laptop", PASSWORD), bench.inventory("stopped", &job()));
    slow(&bench, 3600.0);
    let up = person.start(&["up", word(&file), "--set", IMAGE]);
    pulling("stopped").await;
    up.signal("INT");
    up.end().await.code(130);
    assert_eq!(in_memory("stopped"), Vec::<PathBuf>::new());
    slow(&bench, 0.0);
    bench.done().await;
}

/// Ctrl-C while command `call` of gpu01 is held; `false`: the launch has fewer.
async fn struck(call: u32, answer: bool) -> bool {
    use orchestrate::sandbox::{Faults, Hold};
    let bench = Bench::new(SCENARIO).await;
    let name = format!("at-{}-{call}", if answer { "after" } else { "before" });
    let secret = Job { top: "secrets: [REG_PASSWORD]\n".to_owned(), ..job() };
    let (person, file) = (laptop(&bench, "laptop", PASSWORD), bench.inventory(&name, &secret));
    bench.end(None, 0);
    bench.faults("gpu01", &Faults { hold: Some(Hold { call, answer }), ..Faults::default() });
    let mut up = person.start(&["up", word(&file), "--set", IMAGE]);
    let held = bench.sandbox.host_root(0).expect("a host").join("held");
    let struck =
        until("the command is held, or there is none", async || if held.exists() { Some(true) } else { (!up.runs()).then_some(false) })
            .await;
    if struck {
        up.signal("INT");
        up.says("stopping the ranks").await;
    }
    bench.faults("gpu01", &Faults::default());
    let ended = up.end().await;
    assert!(matches!(ended.code, Some(0 | 130)), "at call {call}: {:?}\n{}", ended.code, ended.err);
    // A script that was told to end may take a moment.
    until(&format!("nothing is in memory after call {call}"), async || in_memory(&name).is_empty().then_some(())).await;
    assert_eq!(holds(&person.home, &["s3cr3t", KEPT]), Vec::<String>::new(), "on the laptop, at call {call}");
    bench.done().await;
    struck
}

async fn at_every_command(answer: bool) {
    let mut calls = 0;
    while calls < 60 && struck(calls + 1, answer).await {
        calls += 1;
    }
    assert!((10..60).contains(&calls), "{calls} commands were seen");
}

/// Tier 2: minutes.
mod whole {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn ctrl_c_before_every_command_of_a_first_up_leaves_nothing() {
        at_every_command(false).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn ctrl_c_after_every_command_of_a_first_up_leaves_nothing() {
        at_every_command(true).await;
    }
}
