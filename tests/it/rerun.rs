//! What `up` finds on a rerun, and does: case by case as the product says.

use orchestrate::sandbox::Faults;

use crate::support::{Bench, Job, until, word};

fn kept(top: &str) -> Job {
    Job { nproc: 2, top: format!("teardown: never\n{top}"), ..Job::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_equal_live_run_is_attached_to() {
    let bench = Bench::hosts(2).await;
    let (laptop, other, file) = (bench.laptop("laptop"), bench.laptop("other"), bench.inventory("live", &kept("")));
    laptop.run(&["up", "-d", word(&file)]).await.code(0).recap("DETACHED").says("every rank runs").says("orchestrate attach");
    bench.ranks_up(4).await;
    let before = bench.run_dir("live", 0);
    // From another laptop, which sees the log from its first byte.
    let mut second = other.start(&["up", word(&file), "--progress", "plain"]);
    second.says("runs and is what is asked for: attaching").await;
    second.says("rank 0 of 4 on gpu01").await;
    second.signal("INT");
    second.end().await.code(130).says("detached: the run goes on");
    assert_eq!(bench.run_dir("live", 0), before);
    assert!((0..4).all(|rank| bench.term(rank).is_none()), "nobody was told to end");
    // Attached once more until it ends: it is left as it was launched to be.
    let mut third = other.start(&["up", word(&file)]);
    third.says("attaching").await;
    bench.end(None, 0);
    third.end().await.code(0).recap("OK").says("4 ok");
    assert_eq!(bench.containers(0).len(), 1, "teardown: never");
    laptop.run(&["down", word(&file)]).await.code(0);
    assert_eq!(laptop.log("rank-3.log"), other.log("rank-3.log"), "the first laptop has it all now");
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_different_live_run_is_refused_or_replaced() {
    let bench = Bench::hosts(2).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("other", &kept("")));
    laptop.run(&["up", "-d", word(&file)]).await.code(0);
    let pids = bench.ranks_up(4).await;
    let boxes = (bench.containers(0), bench.containers(1));
    let changed = laptop.run(&["up", word(&file), "--set", "launch.nproc_per_node=1", "--set", "env.EXTRA=yes"]).await;
    changed.code(3).says("nproc_per_node").says("EXTRA").says("--recreate");
    assert_eq!((bench.containers(0), bench.containers(1)), boxes);
    assert!((0..4).all(|rank| bench.term(rank).is_none()), "nothing was changed");
    bench.again();
    let up = laptop.start(&["up", word(&file), "--set", "launch.nproc_per_node=1", "--recreate", "--progress", "plain"]);
    bench.ranks_up(2).await;
    let now = (bench.containers(0), bench.containers(1));
    assert!(now.0.len() == 1 && now.0[0].1 != boxes.0[0].1 && now.1[0].1 != boxes.1[0].1, "made anew: {now:?}");
    assert!(pids.iter().all(|pid| !crate::signals::lives(*pid)), "the old ranks have ended");
    bench.end(None, 0);
    let ended = up.end().await;
    ended.code(0).recap("OK").says("2 ok").says("[rank 0 gpu01] rank 0 of 2 on gpu01\n");
    assert_eq!(laptop.runs().len(), 2, "the first run's logs were fetched: {:?}", laptop.runs());
    let first = std::fs::read(laptop.runs()[0].join("logs/rank-3.log")).expect("its log");
    assert!(String::from_utf8_lossy(&first).contains("rank 3 of 4"));
    laptop.run(&["down", word(&file)]).await.code(0);
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_ended_run_the_kept_container_serves_the_next() {
    let bench = Bench::hosts(2).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("ended", &kept("")));
    laptop.run(&["up", "-d", word(&file)]).await.code(0);
    bench.ranks_up(4).await;
    bench.end(None, 0);
    let ended = || bench.written("ended", 0, "node.rc").exists() && bench.written("ended", 1, "node.rc").exists();
    until("both launchers have ended", async || ended().then_some(())).await;
    let (first, boxes) = (bench.run_dir("ended", 0), (bench.containers(0), bench.containers(1)));
    // The kept container's keeper notes something once a second: here without a pause, for as long as the run is there.
    let (times, there) = (bench.written("ended", 0, "times"), first.clone());
    let writer = std::thread::spawn(move || {
        let began = std::time::Instant::now();
        let note = || std::fs::OpenOptions::new().append(true).create(true).open(&times);
        while there.exists() && note().is_ok() && began.elapsed().as_secs() < 60 {}
    });
    bench.again();
    let up = laptop.start(&["up", word(&file)]);
    bench.ranks_up(4).await;
    assert_ne!(bench.run_dir("ended", 0), first);
    assert!(!first.exists(), "fetched and removed");
    writer.join().expect("nothing is left to write into");
    let ids = |list: &[(String, String, String)]| list.iter().map(|c| c.1.clone()).collect::<Vec<_>>();
    assert_eq!((ids(&bench.containers(0)), ids(&bench.containers(1))), (ids(&boxes.0), ids(&boxes.1)), "the same containers");
    let log = std::fs::read(laptop.runs()[0].join("logs/rank-2.log")).expect("the first run's log");
    assert_eq!(String::from_utf8_lossy(&log), "rank 2 of 4 on gpu02\nrank 2 ends with 0\n");
    bench.end(None, 0);
    up.end().await.code(0).recap("OK").says("4 ok");
    // What was made from another text does not fit: it is made anew.
    bench.again();
    let up = laptop.start(&["up", word(&file), "--set", "container.shm_size=2g"]);
    bench.ranks_up(4).await;
    assert_ne!(ids(&bench.containers(0)), ids(&boxes.0), "another container");
    bench.end(None, 0);
    up.end().await.code(0);
    laptop.run(&["down", word(&file)]).await.code(0).says("nothing is left");
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partial_gang_is_stopped_and_launched_anew() {
    for contained in [true, false] {
        let bench = Bench::hosts(2).await;
        let job = Job { contained, ..kept("") };
        let (laptop, file) = (bench.laptop("laptop"), bench.inventory("partial", &job));
        laptop.run(&["up", "-d", word(&file)]).await.code(0);
        let pids = bench.ranks_up(4).await;
        // One host's launcher dies while nobody is attached.
        let node = std::fs::read_to_string(bench.written("partial", 1, "node.pid")).expect("a pid");
        kill9(node.split_whitespace().next().expect("a pid").parse().expect("a number"));
        until("its keeper has noted it", async || bench.written("partial", 1, "node.rc").exists().then_some(())).await;
        let dry = laptop.run(&["up", word(&file), "--dry-run"]).await;
        dry.code(0).says("a partial gang");
        bench.again();
        let up = laptop.start(&["up", word(&file)]);
        bench.ranks_up(4).await;
        assert!(pids.iter().all(|pid| !lives(*pid)), "the old ranks have ended");
        bench.end(None, 0);
        up.end().await.code(0).recap("OK").says("4 ok");
        laptop.run(&["down", word(&file)]).await.code(0);
        bench.done().await;
    }
}

fn kill9(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
}

fn lives(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z') && !rest.starts_with('X'))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_host_unreachable_nothing_is_changed() {
    let bench = Bench::hosts(3).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("away", &kept("")));
    bench.faults("gpu02", &Faults { refuse_key: true, ..Faults::default() });
    let up = laptop.run(&["up", word(&file)]).await;
    up.code(4).recap("UNREACHABLE").says("gpu02").says("nothing was changed");
    assert!((0..3).all(|host| bench.containers(host).is_empty() && !bench.home(host).join(".orchestrate").exists()));
    bench.faults("gpu02", &Faults::default());
    laptop.run(&["up", "-d", word(&file)]).await.code(0);
    bench.ranks_up(6).await;
    let run = bench.run_dir("away", 0);
    bench.faults("gpu03", &Faults { refuse_key: true, ..Faults::default() });
    laptop.run(&["up", word(&file), "--recreate"]).await.code(4).says("gpu03");
    assert!(run.exists() && (0..6).all(|rank| bench.term(rank).is_none()), "what runs goes on");
    // A host that may hold something of ours: `down` does what it can and says what it could not.
    let down = laptop.run(&["down", word(&file)]).await;
    down.code(5).recap("LEFTOVERS").says("gpu03: unreachable: it may still hold something of ours");
    assert!(bench.containers(0).is_empty() && bench.containers(1).is_empty() && bench.containers(2).len() == 1);
    bench.faults("gpu03", &Faults::default());
    laptop.run(&["down", word(&file)]).await.code(0);
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_changes_nothing() {
    let bench = Bench::hosts(2).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("dry", &kept("")));
    let dry = laptop.run(&["up", word(&file), "--dry-run"]).await;
    dry.code(0).says("it would be launched").says("docker").says("torchrun");
    bench.nothing_left().await;
    assert!(laptop.runs().is_empty());
    laptop.run(&["down", word(&file), "--dry-run"]).await.code(0).says("nothing of dry is on any host");
    laptop.run(&["up", "-d", word(&file)]).await.code(0);
    let run = bench.run_dir("dry", 0);
    laptop.run(&["up", word(&file), "--check"]).await.code(0);
    laptop
        .run(&["up", word(&file), "--recreate", "--dry-run"])
        .await
        .code(0)
        .says("it would be stopped, then a new run launched")
        .silent_about("IMPOSSIBLE");
    laptop.run(&["down", word(&file), "--dry-run"]).await.code(0).says("remove the container");
    assert!(run.exists() && bench.run_dir("dry", 0) == run && (0..4).all(|rank| bench.term(rank).is_none()));
    assert!(!bench.host_dir("dry", 0).join("lock").exists(), "not even a lock");
    laptop.run(&["down", word(&file), "--yes"]).await.code(0);
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_makes_a_smaller_run_with_new_ranks() {
    let bench = Bench::hosts(3).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("fewer", &kept("")));
    let up = laptop.start(&["up", word(&file), "--limit", "gpu02,gpu03"]);
    bench.ranks_up(4).await;
    assert!(bench.containers(0).is_empty() && bench.containers(1).len() == 1 && bench.containers(2).len() == 1);
    bench.end(None, 0);
    up.end().await.code(0).says("world size 4").says("4 ok  0 failed of 4");
    assert_eq!(laptop.log("rank-0.log"), b"rank 0 of 4 on gpu02\nrank 0 ends with 0\n");
    laptop.run(&["down", word(&file)]).await.code(0);
    bench.nothing_left().await;
    bench.again();
    // While a run is live, a part of its hosts is no run of its own; nor may `--recreate` tear a part out of it.
    laptop.run(&["up", "-d", word(&file)]).await.code(0);
    for words in [vec!["--limit", "gpu02,gpu03"], vec!["--limit", "gpu02", "--recreate"], vec!["--limit", "!gpu01", "-d"]] {
        let refused = laptop.run(&[vec!["up", word(&file)], words].concat()).await;
        refused.code(3).says("--limit").says("live");
    }
    assert!((0..6).all(|rank| bench.term(rank).is_none()));
    laptop.run(&["down", word(&file)]).await.code(0);
    bench.done().await;
}
