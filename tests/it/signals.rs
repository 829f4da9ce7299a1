//! Signals: Ctrl-C up to three times in the `up` that launched, detaching everywhere else, and a laptop that dies.

use std::time::Duration;

use orchestrate::event::{EventKind, Phase, RunGoal};
use orchestrate::sandbox::Faults;

use crate::support::{JobSpec, SandboxFixture, path_str, wait_until};

/// Whether a process runs; a zombie does not.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z') && !rest.starts_with('X'))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_ctrl_c_stops_gracefully() {
    for (signal, code, contained) in [("INT", 130, true), ("TERM", 143, false)] {
        let bench = SandboxFixture::with_hosts(2).await;
        let job = JobSpec { nproc_per_node: 2, in_container: contained, ..JobSpec::default() };
        let (laptop, file) = (bench.new_laptop("laptop"), bench.write_inventory("once", &job));
        let up = laptop.start(&["up", path_str(&file)]);
        bench.wait_for_ranks(4).await;
        up.send_signal(signal);
        let ended = up.wait_for_exit().await;
        ended
            .assert_exit_code(code)
            .assert_recap("STOPPED")
            .assert_contains("stopping the ranks; press Ctrl-C again to kill")
            .assert_contains("4 stopped of 4")
            .assert_not_contains("FIRST");
        bench.assert_no_leftovers().await;
        for rank in 0..4 {
            assert!(bench.term_received_at(rank).is_some(), "rank {rank} saw TERM");
            let log = String::from_utf8(laptop.read_log(&format!("rank-{rank}.log"))).expect("text");
            assert!(log.contains("saw TERM and saved"), "what was written after TERM is here too: {log}");
        }
        assert!(!laptop.journal_kinds().iter().any(|k| matches!(k, EventKind::RanksSignaled { signal, .. } if signal == "KILL")));
        bench.assert_clean_and_stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_ctrl_c_kills() {
    let bench = SandboxFixture::with_hosts(2).await;
    let job = JobSpec { stop_grace: "300s", env: "DEAF: \"0 1\"".to_owned(), ..JobSpec::default() };
    let (laptop, file) = (bench.new_laptop("laptop"), bench.write_inventory("twice", &job));
    let up = laptop.start(&["up", path_str(&file)]);
    let pids = bench.wait_for_ranks(2).await;
    up.send_signal("INT");
    wait_until("both saw TERM", async || (bench.term_received_at(0).is_some() && bench.term_received_at(1).is_some()).then_some(())).await;
    assert!(pids.iter().all(|pid| is_alive(*pid)), "deaf");
    up.send_signal("INT");
    let ended = up.wait_for_exit().await;
    ended
        .assert_exit_code(130)
        .assert_recap("STOPPED")
        .assert_contains("killing the ranks; press Ctrl-C again to leave now")
        .assert_not_contains("could not be stopped");
    let events = laptop.read_journal();
    let at = |f: &dyn Fn(&EventKind) -> bool| events.iter().find(|e| f(&e.kind)).map(|e| e.at).expect("it is in the journal");
    let order = at(&|k| matches!(k, EventKind::GoalChanged { goal: RunGoal::Kill, .. }));
    let over = at(&|k| matches!(k, EventKind::PhaseStarted { phase: Phase::Stop }));
    assert!(over - order < 10_000, "the order to kill does not wait for the grace: {} ms", over - order);
    assert!(laptop.journal_kinds().iter().any(|k| matches!(k, EventKind::RanksSignaled { signal, .. } if signal == "KILL")));
    bench.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn third_ctrl_c_leaves_and_names_the_cleanup() {
    let bench = SandboxFixture::with_hosts(2).await;
    let job = JobSpec { stop_grace: "300s", env: "DEAF: \"0 1\"".to_owned(), ..JobSpec::default() };
    let (laptop, file) = (bench.new_laptop("laptop"), bench.write_inventory("thrice", &job));
    let mut up = laptop.start(&["up", path_str(&file)]);
    let pids = bench.wait_for_ranks(2).await;
    up.send_signal("INT");
    wait_until("both saw TERM", async || (bench.term_received_at(0).is_some() && bench.term_received_at(1).is_some()).then_some(())).await;
    // The hosts no longer answer, so the second Ctrl-C cannot succeed.
    for host in ["gpu01", "gpu02"] {
        bench.set_faults(host, &Faults { refuse_key: true, ..Faults::default() });
        bench.sandbox.drop_connections(host).expect("a host");
    }
    up.send_signal("INT");
    up.wait_for_output("killing the ranks; press Ctrl-C again to leave now").await;
    up.send_signal("INT");
    let ended = up.wait_for_exit().await;
    ended
        .assert_exit_code(130)
        .assert_contains("left without cleaning up; the hosts may hold leftovers")
        .assert_contains(&format!("orchestrate down {}", file.display()));
    for host in ["gpu01", "gpu02"] {
        bench.set_faults(host, &Faults::default());
    }
    // The kill may have arrived before the connection was lost; `down` removes the rest.
    laptop.run(&["down", path_str(&file), "--yes", "--kill"]).await.assert_exit_code(0);
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
    bench.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hangup_detaches_and_any_laptop_finds_the_run() {
    for contained in [true, false] {
        let bench = SandboxFixture::with_hosts(2).await;
        let job = JobSpec { nproc_per_node: 2, in_container: contained, ..JobSpec::default() };
        let (laptop, file) = (bench.new_laptop("laptop"), bench.write_inventory("hangup", &job));
        let up = laptop.start(&["up", path_str(&file)]);
        let pids = bench.wait_for_ranks(4).await;
        up.send_signal("HUP");
        up.wait_for_exit().await.assert_exit_code(129).assert_contains("detached: the run keeps running");
        assert!(pids.iter().all(|pid| is_alive(*pid)), "the ranks keep running");
        // `down` from a laptop that has the inventory and nothing else.
        let other = bench.new_laptop("other");
        let ended = other.run(&["down", path_str(&file)]).await;
        ended.assert_exit_code(0).assert_recap("OK").assert_contains("nothing is left");
        bench.assert_no_leftovers().await;
        for rank in 0..4 {
            let log = String::from_utf8(other.read_log(&format!("rank-{rank}.log"))).expect("text");
            assert!(log.starts_with(&format!("rank {rank} of 4")) && log.contains("saw TERM and saved\n"), "{log}");
        }
        bench.assert_clean_and_stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranks_survive_a_killed_client() {
    let bench = SandboxFixture::with_hosts(2).await;
    let (laptop, file) =
        (bench.new_laptop("laptop"), bench.write_inventory("killed", &JobSpec { nproc_per_node: 2, ..JobSpec::default() }));
    let up = laptop.start(&["up", path_str(&file)]);
    let pids = bench.wait_for_ranks(4).await;
    up.send_signal("KILL");
    assert_eq!(up.wait_for_exit().await.exit_code, None, "killed");
    let other = bench.new_laptop("other");
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
    bench.end_ranks(None, 0);
    attached
        .wait_for_exit()
        .await
        .assert_exit_code(0)
        .assert_recap("OK")
        .assert_contains("4 ok  0 failed")
        .assert_contains(&format!("`orchestrate down {}` removes it", file.display()));
    let third = bench.new_laptop("third");
    third.run(&["down", path_str(&file)]).await.assert_exit_code(0);
    bench.assert_no_leftovers().await;
    for rank in 0..4 {
        let name = format!("rank-{rank}.log");
        assert_eq!(third.read_log(&name), other.read_log(&name));
        assert_eq!(
            String::from_utf8_lossy(&third.read_log(&name)),
            format!("rank {rank} of 4 on gpu0{}\nrank {rank} ends with 0\n", rank / 2 + 1)
        );
    }
    bench.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_launch_is_rolled_back() {
    let bench = SandboxFixture::start("{hosts: 2, gpus: 2, registry: ['slow/image:1']}").await;
    bench.set_faults("gpu02", &Faults { pull_delay: 1.5, ..Faults::default() });
    let (laptop, file) = (bench.new_laptop("pull"), bench.write_inventory("pull", &JobSpec::default()));
    let mut up = laptop.start(&["up", path_str(&file), "--set", "container.image=slow/image:1"]);
    wait_until("the pull is on its way", async || {
        up.output_so_far().contains("4 ranks").then_some(()).or_else(|| up.output_so_far().contains("preflight").then_some(()))
    })
    .await;
    up.send_signal("INT");
    up.wait_for_output("stopping the ranks").await;
    up.wait_for_exit().await.assert_exit_code(130).assert_recap("STOPPED");
    bench.assert_no_leftovers().await;
    bench.set_faults("gpu02", &Faults::default());

    let script = "with: script\nshell: |\n  trap 'exit 0' TERM\n  : >\"$BENCH/up.$RANK.new\"; echo $$ >\"$BENCH/up.$RANK.new\"; mv \"$BENCH/up.$RANK.new\" \"$BENCH/up.$RANK\"\n  \
                  while :; do sleep 0.05; done\ngate: port\nmaster_timeout: 300s\n";
    let job = JobSpec { launch: script.to_owned(), ..JobSpec::default() };
    let (laptop, file) = (bench.new_laptop("gate"), bench.write_inventory("gate", &job));
    let up = laptop.start(&["up", path_str(&file)]);
    bench.wait_for_ranks(1).await;
    up.send_signal("INT");
    let begun = std::time::Instant::now();
    up.wait_for_exit().await.assert_exit_code(130).assert_recap("STOPPED").assert_contains("stopped during the launch");
    assert!(begun.elapsed() < Duration::from_secs(30), "it does not wait for a gate that nobody wants any more: {:?}", begun.elapsed());
    bench.assert_clean_and_stop().await;
}
