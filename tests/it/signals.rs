//! Signals: Ctrl-C up to three times in the `up` that launched, detaching everywhere else, and a laptop that dies.

use std::time::Duration;

use orchestrate::event::{EventKind, Phase, RunGoal};
use orchestrate::sandbox::Faults;

use crate::support::{JobSpec, SandboxFixture, path_str, wait_until};
use crate::tui::open_terminal;

/// Whether a process runs; a zombie does not.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z') && !rest.starts_with('X'))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_ctrl_c_stops_gracefully() {
    for (signal, code, contained) in [("INT", 130, true), ("TERM", 143, false)] {
        let fixture = SandboxFixture::with_hosts(2).await;
        let job = JobSpec { nproc_per_node: 2, in_container: contained, ..JobSpec::default() };
        let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("once", &job));
        let up = laptop.start(&["up", path_str(&file)]);
        fixture.wait_for_ranks(4).await;
        up.send_signal(signal);
        let ended = up.wait_for_exit().await;
        ended
            .assert_exit_code(code)
            .assert_recap("STOPPED")
            .assert_contains("stopping the ranks; ")
            .assert_contains("4 stopped of 4")
            .assert_not_contains("FIRST");
        fixture.assert_no_leftovers().await;
        for rank in 0..4 {
            assert!(fixture.term_received_at(rank).is_some(), "rank {rank} saw TERM");
            let log = String::from_utf8(laptop.read_log(&format!("rank-{rank}.log"))).expect("text");
            assert!(log.contains("saw TERM and saved"), "what was written after TERM is here too: {log}");
        }
        assert!(!laptop.journal_kinds().iter().any(|k| matches!(k, EventKind::RanksSignaled { signal, .. } if signal == "KILL")));
        fixture.assert_clean_and_stop().await;
    }
}

/// The same signal again within 100 ms after the first one was accepted counts as one request; this is called after its effect was seen.
pub(crate) async fn outlast_repeated_signals() {
    tokio::time::sleep(std::time::Duration::from_millis(150)).await;
}

/// On a terminal, where the messages stay above the bars and no bar is left behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_ctrl_c_kills() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let job = JobSpec { stop_grace: "300s", env: "DEAF: \"0 1\"".to_owned(), ..JobSpec::default() };
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("twice", &job));
    let mut terminal = open_terminal(&laptop, &["up", path_str(&file), "--progress", "bars"]);
    let pids = fixture.wait_for_ranks(2).await;
    terminal.wait_for_text("2 ranks of 2 running");
    terminal.press("\x03");
    terminal.wait_for_text("Ctrl-C: stopping the ranks; press Ctrl-C again to kill");
    wait_until("both saw TERM", async || (fixture.term_received_at(0).is_some() && fixture.term_received_at(1).is_some()).then_some(()))
        .await;
    assert!(pids.iter().all(|pid| is_alive(*pid)), "deaf");
    outlast_repeated_signals().await;
    terminal.press("\x03");
    terminal.wait_for_text("Ctrl-C: killing the ranks; press Ctrl-C again to leave without cleaning up");
    assert_eq!(terminal.wait_for_exit(), 130);
    let screen = terminal.screen_text();
    assert!(screen.contains("RECAP  up twice  STOPPED") && !screen.contains("could not be stopped"), "{screen}");
    assert!(!screen.contains(" of 2 running") && !screen.contains("[####"), "a bar is left:\n{screen}");
    terminal.assert_restored();
    let events = laptop.read_journal();
    let at = |f: &dyn Fn(&EventKind) -> bool| events.iter().find(|e| f(&e.kind)).map(|e| e.at).expect("it is in the journal");
    let order = at(&|k| matches!(k, EventKind::GoalChanged { goal: RunGoal::Kill, .. }));
    let over = at(&|k| matches!(k, EventKind::PhaseStarted { phase: Phase::Stop }));
    assert!(over - order < 120_000, "the order to kill does not wait for the grace: {} ms", over - order);
    assert!(laptop.journal_kinds().iter().any(|k| matches!(k, EventKind::RanksSignaled { signal, .. } if signal == "KILL")));
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn third_ctrl_c_leaves_and_names_the_cleanup() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let job = JobSpec { stop_grace: "300s", env: "DEAF: \"0 1\"".to_owned(), ..JobSpec::default() };
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("thrice", &job));
    let mut up = laptop.start(&["up", path_str(&file)]);
    let pids = fixture.wait_for_ranks(2).await;
    up.send_signal("INT");
    wait_until("both saw TERM", async || (fixture.term_received_at(0).is_some() && fixture.term_received_at(1).is_some()).then_some(()))
        .await;
    // The hosts no longer answer, so the second Ctrl-C cannot succeed.
    for host in ["gpu01", "gpu02"] {
        fixture.set_faults(host, &Faults { refuse_key: true, ..Faults::default() });
        fixture.sandbox.drop_connections(host).expect("a host");
    }
    outlast_repeated_signals().await;
    up.send_signal("INT");
    up.wait_for_output("killing the ranks; ").await;
    up.send_signal("INT");
    let ended = up.wait_for_exit().await;
    ended
        .assert_exit_code(130)
        .assert_contains("left without cleaning up; the hosts may hold leftovers")
        .assert_contains(&format!("orchestrate down {}", file.display()));
    for host in ["gpu01", "gpu02"] {
        fixture.set_faults(host, &Faults::default());
    }
    // The kill may have arrived before the connection was lost; `down` removes the rest.
    laptop.run(&["down", path_str(&file), "--yes", "--kill"]).await.assert_exit_code(0);
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hangup_detaches_and_any_laptop_finds_the_run() {
    for contained in [true, false] {
        let fixture = SandboxFixture::with_hosts(2).await;
        let job = JobSpec { nproc_per_node: 2, in_container: contained, ..JobSpec::default() };
        let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("hangup", &job));
        let up = laptop.start(&["up", path_str(&file)]);
        let pids = fixture.wait_for_ranks(4).await;
        up.send_signal("HUP");
        up.wait_for_exit().await.assert_exit_code(129).assert_contains("detached: the run keeps running");
        assert!(pids.iter().all(|pid| is_alive(*pid)), "the ranks keep running");
        // `down` from a laptop that has the inventory and nothing else.
        let other = fixture.new_laptop("other");
        let ended = other.run(&["down", path_str(&file)]).await;
        ended.assert_exit_code(0).assert_recap("OK").assert_contains("nothing is left");
        fixture.assert_no_leftovers().await;
        for rank in 0..4 {
            let log = String::from_utf8(other.read_log(&format!("rank-{rank}.log"))).expect("text");
            assert!(log.starts_with(&format!("rank {rank} of 4")) && log.contains("saw TERM and saved\n"), "{log}");
        }
        fixture.assert_clean_and_stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranks_survive_a_killed_client() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, file) =
        (fixture.new_laptop("laptop"), fixture.write_inventory("killed", &JobSpec { nproc_per_node: 2, ..JobSpec::default() }));
    let up = laptop.start(&["up", path_str(&file)]);
    let pids = fixture.wait_for_ranks(4).await;
    up.send_signal("KILL");
    assert_eq!(up.wait_for_exit().await.exit_code, None, "killed");
    let other = fixture.new_laptop("other");
    let ps = other.run(&["ps", path_str(&file)]).await;
    ps.assert_exit_code(0).assert_contains("gpu01").assert_contains("running").assert_contains("2 running").assert_contains("tester@");
    let mut attached = other.start(&["attach", path_str(&file)]);
    attached.wait_for_output("rank 0 of 4 on gpu01").await;
    attached.send_signal("INT");
    attached.wait_for_exit().await.assert_exit_code(130).assert_contains("detached: the run keeps running");
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    let logs = other.run(&["logs", path_str(&file), "--rank", "3"]).await;
    assert_eq!(logs.assert_exit_code(0).stdout, "[rank 3 gpu02] rank 3 of 4 on gpu02\n");
    // Attached until the end: known log lines are shown again, and an observer does not tear the run down.
    let mut attached = other.start(&["attach", path_str(&file)]);
    attached.wait_for_output("ready").await;
    attached.wait_for_output("[rank 0 gpu01] rank 0 of 4 on gpu01").await;
    fixture.end_ranks(None, 0);
    attached
        .wait_for_exit()
        .await
        .assert_exit_code(0)
        .assert_recap("OK")
        .assert_contains("4 ok  0 failed")
        .assert_contains(&format!("`orchestrate down {}` removes it", file.display()));
    let third = fixture.new_laptop("third");
    third.run(&["down", path_str(&file)]).await.assert_exit_code(0);
    fixture.assert_no_leftovers().await;
    for rank in 0..4 {
        let name = format!("rank-{rank}.log");
        assert_eq!(third.read_log(&name), other.read_log(&name));
        assert_eq!(
            String::from_utf8_lossy(&third.read_log(&name)),
            format!("rank {rank} of 4 on gpu0{}\nrank {rank} ends with 0\n", rank / 2 + 1)
        );
    }
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_launch_is_rolled_back() {
    let fixture = SandboxFixture::start("{hosts: 2, gpus: 2, registry: ['slow/image:1']}").await;
    fixture.set_faults("gpu02", &Faults { pull_delay: 300.0, ..Faults::default() });
    let (laptop, file) = (fixture.new_laptop("pull"), fixture.write_inventory("pull", &JobSpec::default()));
    let mut up = laptop.start(&["up", path_str(&file), "--set", "container.image=slow/image:1"]);
    wait_until("the pull is on its way", async || {
        up.output_so_far().contains("4 ranks").then_some(()).or_else(|| up.output_so_far().contains("preflight").then_some(()))
    })
    .await;
    up.send_signal("INT");
    up.wait_for_output("stopping the ranks").await;
    up.wait_for_exit().await.assert_exit_code(130).assert_recap("STOPPED");
    fixture.assert_no_leftovers().await;
    fixture.set_faults("gpu02", &Faults::default());
    fixture.clear_control_files();

    let script = "with: script\nshell: |\n  trap 'exit 0' TERM\n  : >\"$BENCH/up.$RANK.new\"; echo $$ >\"$BENCH/up.$RANK.new\"; mv \"$BENCH/up.$RANK.new\" \"$BENCH/up.$RANK\"\n  \
                  while :; do sleep 0.05; done\ngate: port\nmaster_timeout: 300s\n";
    let job = JobSpec { launch: script.to_owned(), ..JobSpec::default() };
    let (laptop, file) = (fixture.new_laptop("gate"), fixture.write_inventory("gate", &job));
    let up = laptop.start(&["up", path_str(&file)]);
    fixture.wait_for_ranks(1).await;
    up.send_signal("INT");
    let begun = std::time::Instant::now();
    up.wait_for_exit().await.assert_exit_code(130).assert_recap("STOPPED").assert_contains("stopped during the launch");
    assert!(begun.elapsed() < Duration::from_secs(120), "it does not wait for an obsolete gate: {:?}", begun.elapsed());
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ignored_hangup_stays_ignored() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("nohup", &JobSpec::default()));
    let go = fixture.control_dir().join("go");
    let script = format!(
        "echo begun; : >{}/begun.$(hostname); until [ -e {} ]; do sleep 0.05; done; echo ended",
        fixture.control_dir().display(),
        go.display()
    );
    let begun = |fixture: &SandboxFixture| {
        ["gpu01", "gpu02"].iter().all(|host| fixture.control_dir().join(format!("begun.{host}")).exists()).then_some(())
    };
    for ignored in [true, false] {
        let args = ["exec", path_str(&file), "--", &script];
        let exec = if ignored { laptop.start_ignoring_hangup(&args) } else { laptop.start(&args) };
        wait_until("both hosts run the command", async || begun(&fixture)).await;
        exec.send_signal("HUP");
        if ignored {
            std::fs::write(&go, "").expect("written");
            exec.wait_for_exit().await.assert_exit_code(0).assert_contains("ended");
            std::fs::remove_file(&go).expect("removed");
            ["gpu01", "gpu02"]
                .iter()
                .for_each(|host| std::fs::remove_file(fixture.control_dir().join(format!("begun.{host}"))).expect("removed"));
        } else {
            exec.wait_for_exit().await.assert_exit_code(129).assert_not_contains("ended");
        }
    }
    std::fs::write(&go, "").expect("written");
    fixture.assert_clean_and_stop().await;
}

/// A pipe without a reader blocks the output; the handler that gathering the facts installed must not swallow Ctrl-C.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plan_with_facts_can_be_interrupted_while_it_prints() {
    let fixture = SandboxFixture::with_hosts(2).await;
    // More than a pipe holds.
    let job = JobSpec { env: format!("LONG: {}", "x".repeat(200_000)), ..JobSpec::default() };
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("piped", &job));
    for command in [&["plan", path_str(&file), "--facts", "-vv"][..], &["render", path_str(&file), "--facts"]] {
        let (mut child, mut pipe) = laptop.start_with_pipe(command);
        let pid = rustix::process::Pid::from_raw(i32::try_from(child.id().expect("it runs")).expect("a pid")).expect("a pid");
        let mut first = [0; 1];
        tokio::io::AsyncReadExt::read_exact(&mut pipe, &mut first).await.expect("output has begun");
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("signalled");
        let status = tokio::time::timeout(Duration::from_secs(60), child.wait()).await.expect("it ends").expect("it ran");
        assert_eq!(status.code(), Some(130), "{command:?}");
    }
    fixture.assert_clean_and_stop().await;
}

/// A slow host delays them before anything is printed, opened or changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_are_cancelled_while_they_ask_the_hosts() {
    let fixture = SandboxFixture::with_hosts(1).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("late", &JobSpec::default()));
    fixture.set_faults("gpu01", &Faults { auth_delay: 100.0, ..Faults::default() });
    let up = &["up", path_str(&file), "--set", "ssh.connect_timeout=100s"];
    for args in [up, &["logs", path_str(&file)][..], &["shell", "-i", path_str(&file), "gpu01", "--", "true"]] {
        let command = laptop.start(args);
        wait_until("it listens for Ctrl-C", async || command.handles_interrupt().then_some(())).await;
        command.send_signal("INT");
        command.wait_for_exit().await.assert_exit_code(130).assert_not_contains("stopping the ranks");
    }
    fixture.assert_clean_and_stop().await;
}
