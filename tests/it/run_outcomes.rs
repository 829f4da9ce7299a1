//! Every end of a run: `runs`, the recap and the exit code agree.

use crate::signals::{is_alive, outlast_repeated_signals};
use crate::support::{CliOutput, JobSpec, Laptop, SandboxFixture, path_str, wait_until};
use crate::tui::open_terminal;

/// How one command reported the run's end.
#[track_caller]
fn assert_exit_and_recap(way: &str, ended: &CliOutput, code: i32, recap: &str) {
    assert_eq!(ended.exit_code, Some(code), "{way}: {}{}", ended.stdout, ended.stderr);
    let head = ended.stderr.lines().find(|line| line.starts_with("RECAP")).unwrap_or_default();
    assert!(head.contains(&format!("  {recap}  ")), "{way}: no recap `{recap}`: {head:?}\n{}", ended.stderr);
}

/// The last column of `runs`, the oldest run first, and each run's duration.
async fn list_runs(laptop: &Laptop) -> Vec<(String, String)> {
    let runs = laptop.run(&["runs"]).await;
    let lines: Vec<&str> = runs.assert_exit_code(0).stdout.lines().collect();
    let column = |name: &str| lines[0].find(name).expect("a column");
    let (took, ended) = (column(" RAN ") + 1, column("OUTCOME"));
    lines[1..].iter().map(|line| (line[ended..].trim().to_owned(), line[took..ended].trim().to_owned())).collect()
}

async fn assert_listed_outcomes(laptop: &Laptop, way: &str, words: &[&str]) {
    let found: Vec<String> = list_runs(laptop).await.into_iter().map(|(word, _)| word).collect();
    assert_eq!(found, words, "{way}");
}

/// Hosts with one rank each. One host is enough: the run's end is the same for all of its hosts.
async fn start_fixture(hosts: usize, name: &str, job: &JobSpec) -> (SandboxFixture, Laptop, std::path::PathBuf) {
    let fixture = SandboxFixture::with_hosts(hosts).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory(name, job));
    (fixture, laptop, file)
}

/// A launched run without a follower.
async fn start_detached_run(name: &str, job: &JobSpec) -> (SandboxFixture, Laptop, std::path::PathBuf) {
    let (fixture, laptop, file) = start_fixture(1, name, job).await;
    assert_exit_and_recap(name, &laptop.run(&["up", "-d", path_str(&file)]).await, 0, "DETACHED");
    fixture.wait_for_ranks(1).await;
    (fixture, laptop, file)
}

/// The launcher has ended while no follower was attached.
async fn wait_for_launcher_exit(fixture: &SandboxFixture, name: &str) {
    wait_until("the launcher has ended", async || fixture.run_file(name, 0, "node.rc").exists().then_some(())).await;
}

/// Name, job, the signals to `up` or the ranks' exit code, the expected exit code, the expected outcome.
type RunEndCase = (&'static str, JobSpec, &'static [&'static str], Option<i32>, i32, &'static str);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followed_run_ends_or_is_stopped() {
    let deaf = || JobSpec { stop_grace: "300s", env: "DEAF: \"0\"".to_owned(), ..JobSpec::default() };
    // The signals to `up`, or the exit code of the ranks.
    let ways: [RunEndCase; 6] = [
        ("well", JobSpec::default(), &[], Some(0), 0, "OK"),
        ("failed", JobSpec::default(), &[], Some(3), 1, "FAILED"),
        ("once", JobSpec::default(), &["INT"], None, 130, "STOPPED"),
        ("twice", deaf(), &["INT", "INT"], None, 130, "STOPPED"),
        ("term", JobSpec::default(), &["TERM"], None, 143, "STOPPED"),
        ("bare", JobSpec { in_container: false, ..JobSpec::default() }, &["INT"], None, 130, "STOPPED"),
    ];
    for (way, job, signals, end, code, recap) in ways {
        let (fixture, laptop, file) = start_fixture(1, way, &job).await;
        let up = laptop.start(&["up", path_str(&file)]);
        fixture.wait_for_ranks(1).await;
        for signal in signals {
            up.send_signal(signal);
            wait_until("rank 0 received TERM", async || fixture.term_received_at(0)).await;
            outlast_repeated_signals().await;
        }
        if let Some(code) = end {
            fixture.end_ranks(None, code);
        }
        assert_exit_and_recap(way, &up.wait_for_exit().await, code, recap);
        assert_listed_outcomes(&laptop, way, &[recap]).await;
        fixture.assert_clean_and_stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn detached_run_outcome_is_listed_later() {
    // The terminal is closed; the program is killed.
    for (signal, recap, list) in [("HUP", "DETACHED", "DETACHED"), ("KILL", "", "not ended when last seen, ")] {
        let (fixture, laptop, file) = start_fixture(1, "gone", &JobSpec::default()).await;
        let mut up = laptop.start(&["up", path_str(&file), "--progress", "plain"]);
        fixture.wait_for_ranks(1).await;
        up.wait_for_output("ready").await;
        up.send_signal(signal);
        let ended = up.wait_for_exit().await;
        if recap.is_empty() {
            assert_eq!(ended.exit_code, None, "killed");
        } else {
            assert_exit_and_recap(signal, &ended, 129, recap);
        }
        let listed = list_runs(&laptop).await;
        assert!(listed.len() == 1 && listed[0].0.starts_with(list), "{signal}: {listed:?}");
        assert_exit_and_recap(signal, &laptop.run(&["down", path_str(&file)]).await, 0, "OK");
        assert_listed_outcomes(&laptop, signal, &["STOPPED"]).await;
        fixture.assert_clean_and_stop().await;
    }
    // The run ends while detached: every command reads its end from the hosts.
    for (command, code, list) in
        [("down", 0, "OK"), ("attach", 0, "OK"), ("attach", 5, "FAILED"), ("logs", 5, "FAILED"), ("up", 5, "FAILED")]
    {
        let way = format!("{command} after {code}");
        let (fixture, laptop, file) = start_detached_run("unseen", &JobSpec::default()).await;
        laptop.run(&["logs", path_str(&file)]).await.assert_exit_code(0);
        assert_listed_outcomes(&laptop, &way, &["DETACHED"]).await;
        fixture.end_ranks(None, code);
        wait_for_launcher_exit(&fixture, "unseen").await;
        match command {
            "up" => {
                fixture.clear_control_files();
                fixture.end_ranks(None, 0);
                assert_exit_and_recap(&way, &laptop.run(&["up", path_str(&file)]).await, 0, "OK");
                assert_listed_outcomes(&laptop, &way, &[list, "OK"]).await;
            }
            "attach" => {
                assert_exit_and_recap(&way, &laptop.run(&["attach", path_str(&file)]).await, i32::from(code != 0), list);
                assert_listed_outcomes(&laptop, &way, &[list]).await;
            }
            _ => {
                laptop.run(&[command, path_str(&file)]).await.assert_exit_code(0);
                assert_listed_outcomes(&laptop, &way, &[list]).await;
            }
        }
        let before = list_runs(&laptop).await;
        laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
        assert_eq!(list_runs(&laptop).await, before, "{way}: what is known stays, and the run took no longer");
        fixture.assert_clean_and_stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupting_attach_detaches() {
    let (fixture, laptop, file) = start_detached_run("looker", &JobSpec::default()).await;
    for words in [["attach", path_str(&file)], ["up", path_str(&file)]] {
        let mut looker = laptop.start(&[words[0], words[1], "--progress", "plain"]);
        looker.wait_for_output("rank 0 of 1").await;
        looker.send_signal("INT");
        assert_exit_and_recap(words[0], &looker.wait_for_exit().await, 130, "DETACHED");
        assert_listed_outcomes(&laptop, words[0], &["DETACHED"]).await;
    }
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
    assert_listed_outcomes(&laptop, "down", &["STOPPED"]).await;
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_stopped_elsewhere_is_listed_as_stopped() {
    // Stopped by the same laptop, by another one, and by another one's next run.
    for (way, words) in [("laptop", &["down", "--yes"][..]), ("other", &["down", "--yes"]), ("other", &["up", "--recreate"])] {
        let (fixture, laptop, file) = start_fixture(1, "elsewhere", &JobSpec::default()).await;
        let other = fixture.new_laptop(way);
        let mut up = laptop.start(&["up", path_str(&file), "--progress", "plain", "--lock-wait", "50s"]);
        fixture.wait_for_ranks(1).await;
        up.wait_for_output("ready").await;
        fixture.clear_control_files();
        let second = other.start(&[words, &[path_str(&file)]].concat());
        if words[0] == "up" {
            fixture.wait_for_ranks(1).await;
        }
        let ended = up.wait_for_exit().await;
        assert_exit_and_recap(way, &ended, 1, "STOPPED");
        ended.assert_contains("stopped from elsewhere").assert_not_contains("FIRST").assert_not_contains("1 failed");
        assert_listed_outcomes(&laptop, way, &["STOPPED"]).await;
        fixture.end_ranks(None, 0);
        assert_exit_and_recap(way, &second.wait_for_exit().await, 0, "OK");
        fixture.assert_clean_and_stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recreated_run_is_listed_as_stopped() {
    let (fixture, laptop, file) = start_detached_run("replaced", &JobSpec::default()).await;
    fixture.clear_control_files();
    let up = laptop.start(&["up", path_str(&file), "--recreate"]);
    fixture.wait_for_ranks(1).await;
    fixture.end_ranks(None, 0);
    assert_exit_and_recap("recreate", &up.wait_for_exit().await, 0, "OK");
    assert_listed_outcomes(&laptop, "recreate", &["STOPPED", "OK"]).await;
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_launch_and_partial_teardown_are_listed() {
    // All ranks exit immediately.
    let job = JobSpec { launch: "with: script\ngate: none\nshell: \"exit 3\"\n".to_owned(), ..JobSpec::default() };
    let (fixture, laptop, file) = start_fixture(1, "typo", &job).await;
    assert_exit_and_recap("typo", &laptop.run(&["up", "-d", path_str(&file)]).await, 1, "FAILED");
    assert_listed_outcomes(&laptop, "typo", &["FAILED"]).await;
    fixture.assert_clean_and_stop().await;
    // A host is lost while the run is being stopped.
    let (fixture, laptop, file) = start_fixture(2, "lost", &JobSpec::default()).await;
    let mut up = laptop.start(&["up", path_str(&file), "--progress", "plain"]);
    fixture.wait_for_ranks(2).await;
    up.wait_for_output("ready").await;
    let away = orchestrate::sandbox::Faults { refuse_key: true, ..orchestrate::sandbox::Faults::default() };
    fixture.set_faults("gpu02", &away);
    fixture.sandbox.drop_connections("gpu02").expect("a host");
    up.wait_for_output("gpu02: ").await;
    up.send_signal("INT");
    let ended = up.wait_for_exit().await;
    assert_exit_and_recap("lost", &ended, 5, "LEFTOVERS");
    assert_listed_outcomes(&laptop, "lost", &["STOPPED"]).await;
    ended.assert_contains("STOPPED");
    fixture.set_faults("gpu02", &orchestrate::sandbox::Faults::default());
    laptop.run(&["down", path_str(&file), "--yes"]).await.assert_exit_code(0);
    assert_listed_outcomes(&laptop, "lost, then down", &["STOPPED"]).await;
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_ended_from_dashboard_is_listed() {
    // By key: stopped, restarted and then torn down, torn down directly.
    for (way, code) in [("stop", 130), ("restart", 1), ("tear", 1)] {
        let (fixture, laptop, file) = start_detached_run(way, &JobSpec::default()).await;
        let mut pids = fixture.wait_for_ranks(1).await;
        let mut terminal = open_terminal(&laptop, &["tui", path_str(&file)]);
        terminal.wait_for_text("RUNNING");
        let press = |terminal: &mut crate::terminal::PtyTerminal, title: &str, key: &str| {
            if terminal.screen_text().contains(title) {
                terminal.press(key);
            }
        };
        if way == "restart" {
            fixture.clear_control_files();
            terminal.press("R");
            terminal.wait_for_text("RESTART THE RUN");
            wait_until("it was stopped", async || {
                press(&mut terminal, "RESTART THE RUN", "y");
                (!pids.iter().any(|pid| is_alive(*pid))).then_some(())
            })
            .await;
            pids = fixture.wait_for_ranks(1).await;
            terminal.wait_for_text("RUNNING");
        }
        if way == "stop" {
            terminal.press("H");
            terminal.wait_for_text("STOP THE RUN");
        } else {
            terminal.press("X");
            terminal.wait_for_text("to confirm:");
            terminal.press(way);
            terminal.wait_for_text(&format!("{way}_"));
        }
        wait_until("it is over", async || {
            press(&mut terminal, "STOP THE RUN", "y");
            press(&mut terminal, "to confirm:", "\r");
            (!pids.iter().any(|pid| is_alive(*pid))).then_some(())
        })
        .await;
        terminal.wait_for_text("U start");
        terminal.wait_for_text("STOPPED");
        fixture.assert_no_leftovers().await;
        // A key that was pressed twice has opened another view.
        terminal.press("1");
        terminal.wait_for_text("1-[Overview]");
        terminal.press("q");
        assert_eq!(terminal.wait_for_exit(), code, "{way}: {}", terminal.screen_text());
        let text = terminal.wait_for_text("RECAP");
        assert!(text.lines().any(|line| line.starts_with("RECAP") && line.contains("  STOPPED  ")), "{way}: {text}");
        let expected: &[&str] = if way == "restart" { &["STOPPED", "STOPPED"] } else { &["STOPPED"] };
        assert_listed_outcomes(&laptop, way, expected).await;
        fixture.assert_clean_and_stop().await;
    }
}
