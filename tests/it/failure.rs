//! A failed run: the rank that failed first is named, the others are stopped, and nothing is left.

use orchestrate::event::{EventKind, Exit, Phase};

use orchestrate::sandbox::{Faults, OomKill};

use crate::load_scaling::two_seconds_under_load;
use crate::signals::is_alive;
use crate::support::{JobSpec, SandboxFixture, path_str};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_rank_is_named_and_others_stopped() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, file) =
        (fixture.new_laptop("laptop"), fixture.write_inventory("fails", &JobSpec { nproc_per_node: 2, ..JobSpec::default() }));
    let mut up = laptop.start(&["up", path_str(&file)]);
    fixture.wait_for_ranks(4).await;
    // While no follower is attached, the host's keeper stops its ranks.
    up.wait_for_output("ready").await;
    fixture.end_ranks(Some(3), 7);
    let ended = up.wait_for_exit().await;
    ended
        .assert_exit_code(1)
        .assert_recap("FAILED")
        .assert_contains("rank 3 on gpu02 failed: exit 7")
        .assert_contains("FIRST     rank 3 on gpu02: exit 7")
        .assert_contains("| rank 3 ends with 7");
    fixture.assert_no_leftovers().await;
    let events = laptop.read_journal();
    let output = |k: &EventKind| matches!(k, EventKind::RankExited { rank: 3, exit: Exit::Code(7), .. });
    assert!(events.iter().any(|e| output(&e.kind)), "its end is in the journal");
    // The order comes from the ranks' own records, not from our events.
    let (died, soon) = (fixture.rank_ended_at_ms(3), two_seconds_under_load());
    // The failed rank's own host may have ended before.
    let signalled = events.iter().find_map(|e| match &e.kind {
        EventKind::RanksSignaled { host: 0, signal } if signal == "TERM" => Some(e.at),
        _ => None,
    });
    let after = signalled.expect("signalled") - died;
    assert!(after <= soon, "gpu01 was signalled {after} ms after the death, {soon} allowed");
    for rank in 0..3 {
        let after = i128::try_from(fixture.term_received_at(rank).expect("TERM arrived")).expect("small") / 1_000_000 - i128::from(died);
        assert!(after <= i128::from(soon), "rank {rank} saw TERM {after} ms after the death, {soon} allowed");
        assert!(String::from_utf8_lossy(&laptop.read_log(&format!("rank-{rank}.log"))).contains("saw TERM and saved"));
    }
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rank_ignoring_term_is_killed_after_grace() {
    for contained in [true, false] {
        let fixture = SandboxFixture::with_hosts(2).await;
        let job = JobSpec { stop_grace: "3s", in_container: contained, env: "DEAF: \"0\"".to_owned(), ..JobSpec::default() };
        let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("deaf", &job));
        let mut up = laptop.start(&["up", path_str(&file)]);
        fixture.wait_for_ranks(2).await;
        up.wait_for_output("ready").await;
        fixture.end_ranks(Some(1), 9);
        up.wait_for_exit().await.assert_exit_code(1).assert_recap("FAILED").assert_contains("FIRST     rank 1 on gpu02: exit 9");
        assert!(fixture.term_received_at(0).is_some(), "it received TERM first");
        let log = String::from_utf8(laptop.read_log("rank-0.log")).expect("text");
        assert!(log.contains("rank 0 is deaf"), "{log}");
        fixture.assert_no_leftovers().await;
        let events = laptop.read_journal();
        let at = |f: &dyn Fn(&EventKind) -> bool| events.iter().find(|e| f(&e.kind)).map(|e| e.at);
        let term = at(&|k| matches!(k, EventKind::RanksSignaled { host: 0, signal } if signal == "TERM")).expect("TERM");
        let over = at(&|k| matches!(k, EventKind::LauncherExited { host: 0, .. } | EventKind::PhaseStarted { phase: Phase::Remove }))
            .expect("over");
        assert!((3000..30_000).contains(&(over - term)), "killed after its three seconds, and not much later: {} ms", over - term);
        fixture.assert_clean_and_stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_launch_is_rolled_back() {
    let none = "command: [--no_python, /no/such/program, x]\n";
    let script = |text: &str, more: &str| format!("with: script\nshell: |\n  {text}\ngate: port\n{more}");
    let cases = [
        ("program", none.to_owned(), (3, "REFUSED"), vec!["/no/such/program not found in the container", "use an image that contains it"]),
        ("dies", script("echo the first words; exit 5", ""), (1, "FAILED"), vec!["the master's launcher has ended", "the first words"]),
        (
            "rank",
            "with: processes\nshell: |\n  if [ \"$LOCAL_RANK\" = 1 ]; then echo last words; exit 5; fi; exec sleep 1000\n".to_owned(),
            (1, "FAILED"),
            vec!["a rank has failed before port", "last words", "rank 1: exit 5"],
        ),
        ("silent", script("sleep 1000", "master_timeout: 1s\n"), (1, "FAILED"), vec!["did not listen within 1 s", "launch.master_timeout"]),
    ];
    let fixture = SandboxFixture::with_hosts(2).await;
    for (name, launch, (code, recap), words) in cases {
        let nproc_per_node = if name == "rank" { 2 } else { 1 };
        let job = JobSpec { launch, nproc_per_node, stop_grace: "1s", ..JobSpec::default() };
        let (laptop, file) = (fixture.new_laptop(name), fixture.write_inventory(name, &job));
        let ended = laptop.run(&["up", path_str(&file)]).await;
        ended.assert_exit_code(code).assert_recap(recap);
        for text in words {
            ended.assert_contains(text);
        }
        fixture.assert_no_leftovers().await;
    }
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_program_fails_its_rank() {
    let fixture = SandboxFixture::with_hosts(2).await;
    // No preflight check finds this: only the rank's shell looks the program up.
    let job = JobSpec { launch: "command: [--no_python, /bin/sh, -c, 'exec no-such-trainer']\n".to_owned(), ..JobSpec::default() };
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("missing", &job));
    laptop
        .run(&["up", path_str(&file)])
        .await
        .assert_exit_code(1)
        .assert_recap("FAILED")
        .assert_contains("exit 127")
        .assert_contains("no-such-trainer: not found");
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oom_killed_rank_is_the_cause() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let starve = OomKill { rank: 1, after: 0.3, matching: "bench/payload".to_owned() };
    fixture.set_faults("gpu02", &Faults { oom_kill: Some(starve), ..Faults::default() });
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("memory", &JobSpec::default()));
    let ended = laptop.run(&["up", path_str(&file)]).await;
    ended
        .assert_exit_code(1)
        .assert_recap("FAILED")
        .assert_contains("FIRST     rank 1 on gpu02: signal 9 (KILL)")
        .assert_contains("CAUSE     rank 1 on gpu02: the kernel killed a process of the container for");
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_launcher_stops_the_gang() {
    for contained in [true, false] {
        let fixture = SandboxFixture::with_hosts(2).await;
        let job = JobSpec { in_container: contained, ..JobSpec::default() };
        let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("agent", &job));
        let up = laptop.start(&["up", path_str(&file)]);
        let pids = fixture.wait_for_ranks(2).await;
        // torchrun itself, by its pid: a child of the recorded wrapper.
        let node = std::fs::read_to_string(fixture.run_file("agent", 1, "node.pid")).expect("a pid");
        let node: i32 = node.split(' ').next().expect("a pid").parse().expect("a number");
        let agent = find_child_pid(node, &fixture.sandbox.processes());
        rustix::process::kill_process(rustix::process::Pid::from_raw(agent).expect("a pid"), rustix::process::Signal::KILL)
            .expect("killed");
        up.wait_for_exit().await.assert_exit_code(1).assert_recap("FAILED").assert_contains("launcher on gpu02");
        fixture.assert_no_leftovers().await;
        assert!(pids.iter().all(|pid| !is_alive(*pid)), "its workers have ended too");
        fixture.assert_clean_and_stop().await;
    }
}

fn find_child_pid(parent: i32, among: &[i32]) -> i32 {
    let ppid = |pid: i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<i32>().ok()
    };
    among.iter().copied().find(|pid| ppid(*pid) == Some(parent)).expect("a child")
}

/// The demo of a failure reports the cause and the remedy, and ends like a failed `up`.
#[tokio::test(flavor = "multi_thread")]
async fn failing_demo_reports_cause_and_advice() {
    let fixture = SandboxFixture::with_hosts(1).await;
    let demo = fixture.new_laptop("laptop").run(&["demo", "--fail", "--progress", "plain"]).await;
    demo.assert_exit_code(1).assert_contains("rank 13").assert_contains("CUDA out of memory").assert_contains("two-hosts.yaml");
}
