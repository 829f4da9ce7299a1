//! Signals: the ladder of Ctrl-C in the `up` that launched, detaching everywhere else, and a laptop that dies.

use std::time::Duration;

use orchestrate::event::{EventKind, Goal, Phase};
use orchestrate::sandbox::Faults;

use crate::support::{Bench, Job, until, word};

/// Whether a process runs; one that has ended and that nobody has waited for yet does not.
pub(crate) fn lives(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z') && !rest.starts_with('X'))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_ctrl_c_stops_with_grace() {
    for (signal, code, contained) in [("INT", 130, true), ("TERM", 143, false)] {
        let bench = Bench::hosts(2).await;
        let job = Job { nproc: 2, contained, ..Job::default() };
        let (laptop, file) = (bench.laptop("laptop"), bench.inventory("once", &job));
        let up = laptop.start(&["up", word(&file)]);
        bench.ranks_up(4).await;
        up.signal(signal);
        let ended = up.end().await;
        ended.code(code).recap("STOPPED").says("stopping the ranks; once more kills them").says("4 stopped of 4").silent_about("FIRST");
        bench.nothing_left().await;
        for rank in 0..4 {
            assert!(bench.term(rank).is_some(), "rank {rank} saw TERM");
            let log = String::from_utf8(laptop.log(&format!("rank-{rank}.log"))).expect("text");
            assert!(log.contains("saw TERM and saved"), "what was written after TERM is here too: {log}");
        }
        assert!(!laptop.kinds().iter().any(|k| matches!(k, EventKind::Signalled { signal, .. } if signal == "KILL")));
        bench.done().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_ctrl_c_kills() {
    let bench = Bench::hosts(2).await;
    let job = Job { grace: "300s", env: "DEAF: \"0 1\"".to_owned(), ..Job::default() };
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("twice", &job));
    let up = laptop.start(&["up", word(&file)]);
    let pids = bench.ranks_up(2).await;
    up.signal("INT");
    until("both saw TERM", async || (bench.term(0).is_some() && bench.term(1).is_some()).then_some(())).await;
    assert!(pids.iter().all(|pid| lives(*pid)), "deaf");
    up.signal("INT");
    let ended = up.end().await;
    ended.code(130).recap("STOPPED").says("killing the ranks; once more leaves at once").silent_about("could not be stopped");
    let events = laptop.journal();
    let at = |f: &dyn Fn(&EventKind) -> bool| events.iter().find(|e| f(&e.kind)).map(|e| e.at).expect("it is in the journal");
    let order = at(&|k| matches!(k, EventKind::GoalChanged { goal: Goal::Kill, .. }));
    let over = at(&|k| matches!(k, EventKind::PhaseStarted { phase: Phase::Stop }));
    assert!(over - order < 10_000, "the order to kill does not wait for the grace: {} ms", over - order);
    assert!(laptop.kinds().iter().any(|k| matches!(k, EventKind::Signalled { signal, .. } if signal == "KILL")));
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_third_ctrl_c_leaves_at_once_and_says_how_to_clean_up() {
    let bench = Bench::hosts(2).await;
    let job = Job { grace: "300s", env: "DEAF: \"0 1\"".to_owned(), ..Job::default() };
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("thrice", &job));
    let mut up = laptop.start(&["up", word(&file)]);
    let pids = bench.ranks_up(2).await;
    up.signal("INT");
    until("both saw TERM", async || (bench.term(0).is_some() && bench.term(1).is_some()).then_some(())).await;
    // The hosts do not answer any more: the second Ctrl-C cannot succeed.
    for host in ["gpu01", "gpu02"] {
        bench.faults(host, &Faults { refuse_key: true, ..Faults::default() });
        bench.sandbox.drop_connections(host).expect("a host");
    }
    up.signal("INT");
    up.says("killing the ranks; once more leaves at once").await;
    up.signal("INT");
    let ended = up.end().await;
    ended.code(130).says("left at once").says(&format!("orchestrate down {}", file.display()));
    for host in ["gpu01", "gpu02"] {
        bench.faults(host, &Faults::default());
    }
    // The order to kill may have arrived before the connection went; whatever runs is cleared away.
    laptop.run(&["down", word(&file), "--yes", "--kill"]).await.code(0);
    assert!(pids.iter().all(|pid| !lives(*pid)));
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hang_up_detaches_and_any_laptop_finds_the_run() {
    for contained in [true, false] {
        let bench = Bench::hosts(2).await;
        let job = Job { nproc: 2, contained, ..Job::default() };
        let (laptop, file) = (bench.laptop("laptop"), bench.inventory("hangup", &job));
        let up = laptop.start(&["up", word(&file)]);
        let pids = bench.ranks_up(4).await;
        up.signal("HUP");
        up.end().await.code(129).says("detached: the run goes on");
        assert!(pids.iter().all(|pid| lives(*pid)), "the ranks go on");
        // `down` from a laptop that has the inventory and nothing else.
        let other = bench.laptop("other");
        let ended = other.run(&["down", word(&file)]).await;
        ended.code(0).recap("OK").says("nothing is left");
        bench.nothing_left().await;
        for rank in 0..4 {
            let log = String::from_utf8(other.log(&format!("rank-{rank}.log"))).expect("text");
            assert!(log.starts_with(&format!("rank {rank} of 4")) && log.contains("saw TERM and saved\n"), "{log}");
        }
        bench.done().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_client_changes_nothing_for_the_ranks() {
    let bench = Bench::hosts(2).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("killed", &Job { nproc: 2, ..Job::default() }));
    let up = laptop.start(&["up", word(&file)]);
    let pids = bench.ranks_up(4).await;
    up.signal("KILL");
    assert_eq!(up.end().await.code, None, "killed");
    let other = bench.laptop("other");
    let ps = other.run(&["ps", word(&file)]).await;
    ps.code(0).says("gpu01").says("running").says("2 running").says("tester@");
    let mut attached = other.start(&["attach", word(&file)]);
    attached.says("rank 0 of 4 on gpu01").await;
    attached.signal("INT");
    attached.end().await.code(130).says("detached: the run goes on");
    assert!(pids.iter().all(|pid| lives(*pid)));
    let logs = other.run(&["logs", word(&file), "--rank", "3"]).await;
    assert_eq!(logs.code(0).out, "[rank 3 gpu02] rank 3 of 4 on gpu02\n");
    // Attached again to its end: what is here from before is shown again, and it is not torn down by one who merely looks.
    let mut attached = other.start(&["attach", word(&file)]);
    attached.says("ready").await;
    attached.says("[rank 0 gpu01] rank 0 of 4 on gpu01").await;
    bench.end(None, 0);
    attached.end().await.code(0).recap("OK").says("4 ok  0 failed").says(&format!("`orchestrate down {}` removes it", file.display()));
    let third = bench.laptop("third");
    third.run(&["down", word(&file)]).await.code(0);
    bench.nothing_left().await;
    for rank in 0..4 {
        let name = format!("rank-{rank}.log");
        assert_eq!(third.log(&name), other.log(&name));
        assert_eq!(
            String::from_utf8_lossy(&third.log(&name)),
            format!("rank {rank} of 4 on gpu0{}\nrank {rank} ends with 0\n", rank / 2 + 1)
        );
    }
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_during_the_launch_undoes_it() {
    let bench = Bench::new("{hosts: 2, gpus: 2, registry: ['slow/image:1']}").await;
    bench.faults("gpu02", &Faults { pull_delay: 1.5, ..Faults::default() });
    let (laptop, file) = (bench.laptop("pull"), bench.inventory("pull", &Job::default()));
    let mut up = laptop.start(&["up", word(&file), "--set", "container.image=slow/image:1"]);
    until("the pull is on its way", async || {
        up.said().contains("4 ranks").then_some(()).or_else(|| up.said().contains("preflight").then_some(()))
    })
    .await;
    up.signal("INT");
    up.says("stopping the ranks").await;
    up.end().await.code(130).recap("STOPPED");
    bench.nothing_left().await;
    bench.faults("gpu02", &Faults::default());

    let script = "with: script\nshell: |\n  trap 'exit 0' TERM\n  : >\"$BENCH/up.$RANK.new\"; echo $$ >\"$BENCH/up.$RANK.new\"; mv \"$BENCH/up.$RANK.new\" \"$BENCH/up.$RANK\"\n  \
                  while :; do sleep 0.05; done\ngate: port\nmaster_timeout: 300s\n";
    let job = Job { launch: script.to_owned(), ..Job::default() };
    let (laptop, file) = (bench.laptop("gate"), bench.inventory("gate", &job));
    let up = laptop.start(&["up", word(&file)]);
    bench.ranks_up(1).await;
    up.signal("INT");
    let begun = std::time::Instant::now();
    up.end().await.code(130).recap("STOPPED").says("stopped during the launch");
    assert!(begun.elapsed() < Duration::from_secs(30), "it does not wait for a gate that nobody wants any more: {:?}", begun.elapsed());
    bench.done().await;
}
