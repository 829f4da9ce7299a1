//! Reruns of `up`, one test per state that it can find.

use orchestrate::sandbox::Faults;

use crate::support::{JobSpec, SandboxFixture, path_str, wait_until};

fn kept_job(top: &str) -> JobSpec {
    JobSpec { nproc_per_node: 2, top_level: format!("teardown: never\n{top}"), ..JobSpec::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_live_run_is_attached() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, other, file) = (fixture.new_laptop("laptop"), fixture.new_laptop("other"), fixture.write_inventory("live", &kept_job("")));
    laptop
        .run(&["up", "-d", path_str(&file)])
        .await
        .assert_exit_code(0)
        .assert_recap("DETACHED")
        .assert_contains("all ranks are running")
        .assert_contains("orchestrate attach");
    fixture.wait_for_ranks(4).await;
    let before = fixture.run_dir("live", 0);
    // From another laptop, which reads the log from its first byte.
    let mut second = other.start(&["up", path_str(&file), "--progress", "plain"]);
    second.wait_for_output("is already running and matches the inventory: attaching").await;
    second.wait_for_output("rank 0 of 4 on gpu01").await;
    second.send_signal("INT");
    second.wait_for_exit().await.assert_exit_code(130).assert_contains("detached: the run keeps running");
    assert_eq!(fixture.run_dir("live", 0), before);
    assert!((0..4).all(|rank| fixture.term_received_at(rank).is_none()), "no rank received TERM");
    // Attached again until the end: teardown follows the settings of the launch.
    let mut third = other.start(&["up", path_str(&file)]);
    third.wait_for_output("attaching").await;
    fixture.end_ranks(None, 0);
    third.wait_for_exit().await.assert_exit_code(0).assert_recap("OK").assert_contains("4 ok");
    assert_eq!(fixture.containers(0).len(), 1, "teardown: never");
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
    assert_eq!(laptop.read_log("rank-3.log"), other.read_log("rank-3.log"), "the first laptop has it all now");
    fixture.assert_clean_and_stop().await;
}

/// The laptop cannot write its run directory: for a first launch, and where an ended run has to be cleared.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unusable_run_directory_releases_the_lock() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, broken, file) =
        (fixture.new_laptop("laptop"), fixture.new_laptop("broken"), fixture.write_inventory("unkept", &kept_job("")));
    let state = broken.home.join("state/orchestrate");
    std::fs::create_dir_all(&state).and_then(|()| std::fs::write(state.join("runs"), "")).expect("a file instead of the directory");
    for existing_run in [false, true] {
        if existing_run {
            let up = laptop.start(&["up", path_str(&file)]);
            fixture.wait_for_ranks(4).await;
            fixture.end_ranks(None, 0);
            up.wait_for_exit().await.assert_exit_code(0);
        }
        broken.run(&["up", path_str(&file)]).await.assert_exit_code(2).assert_contains(path_str(&state));
        for host in 0..2 {
            let lock = fixture.private_dir("unkept", host).join("lock");
            assert!(lock.symlink_metadata().is_err(), "{} is still there", lock.display());
        }
    }
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn different_live_run_is_refused_or_replaced() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("other", &kept_job("")));
    laptop.run(&["up", "-d", path_str(&file)]).await.assert_exit_code(0);
    let pids = fixture.wait_for_ranks(4).await;
    let boxes = (fixture.containers(0), fixture.containers(1));
    let changed = laptop.run(&["up", path_str(&file), "--set", "launch.nproc_per_node=1", "--set", "env.EXTRA=yes"]).await;
    changed
        .assert_exit_code(3)
        .assert_contains("nproc_per_node")
        .assert_contains("EXTRA")
        .assert_contains("--recreate")
        .assert_recap("REFUSED")
        .assert_contains("a different run is live: nothing was changed")
        .assert_not_contains("prepare");
    assert_eq!((fixture.containers(0), fixture.containers(1)), boxes);
    assert!((0..4).all(|rank| fixture.term_received_at(rank).is_none()), "nothing was changed");
    fixture.clear_control_files();
    let up = laptop.start(&["up", path_str(&file), "--set", "launch.nproc_per_node=1", "--recreate", "--progress", "plain"]);
    fixture.wait_for_ranks(2).await;
    let now = (fixture.containers(0), fixture.containers(1));
    assert!(now.0.len() == 1 && now.0[0].1 != boxes.0[0].1 && now.1[0].1 != boxes.1[0].1, "recreated: {now:?}");
    assert!(pids.iter().all(|pid| !crate::signals::is_alive(*pid)), "the old ranks have ended");
    fixture.end_ranks(None, 0);
    let ended = up.wait_for_exit().await;
    ended.assert_exit_code(0).assert_recap("OK").assert_contains("2 ok").assert_contains("[rank 0 gpu01] rank 0 of 2 on gpu01\n");
    assert_eq!(laptop.run_dirs().len(), 2, "the first run's logs were fetched: {:?}", laptop.run_dirs());
    let first = std::fs::read(laptop.run_dirs()[0].join("logs/rank-3.log")).expect("its log");
    assert!(String::from_utf8_lossy(&first).contains("rank 3 of 4"));
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kept_container_serves_the_next_run() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("ended", &kept_job("")));
    laptop.run(&["up", "-d", path_str(&file)]).await.assert_exit_code(0);
    fixture.wait_for_ranks(4).await;
    fixture.end_ranks(None, 0);
    let ended = || fixture.run_file("ended", 0, "node.rc").exists() && fixture.run_file("ended", 1, "node.rc").exists();
    wait_until("both launchers have ended", async || ended().then_some(())).await;
    let (first, boxes) = (fixture.run_dir("ended", 0), (fixture.containers(0), fixture.containers(1)));
    // The keeper of a kept container writes a file once a second; here it writes without a pause while the run exists.
    let (times, there) = (fixture.run_file("ended", 0, "times"), first.clone());
    let writer = std::thread::spawn(move || {
        let began = std::time::Instant::now();
        let note = || std::fs::OpenOptions::new().append(true).create(true).open(&times);
        while there.exists() && note().is_ok() && began.elapsed().as_secs() < 60 {}
    });
    fixture.clear_control_files();
    let up = laptop.start(&["up", path_str(&file)]);
    fixture.wait_for_ranks(4).await;
    assert_ne!(fixture.run_dir("ended", 0), first);
    assert!(!first.exists(), "fetched and removed");
    writer.join().expect("nothing is left to write into");
    let ids = |list: &[(String, String, String)]| list.iter().map(|c| c.1.clone()).collect::<Vec<_>>();
    assert_eq!((ids(&fixture.containers(0)), ids(&fixture.containers(1))), (ids(&boxes.0), ids(&boxes.1)), "the same containers");
    let log = std::fs::read(laptop.run_dirs()[0].join("logs/rank-2.log")).expect("the first run's log");
    assert_eq!(String::from_utf8_lossy(&log), "rank 2 of 4 on gpu02\nrank 2 ends with 0\n");
    fixture.end_ranks(None, 0);
    up.wait_for_exit().await.assert_exit_code(0).assert_recap("OK").assert_contains("4 ok");
    // A container of another configuration does not fit: it is recreated.
    fixture.clear_control_files();
    let up = laptop.start(&["up", path_str(&file), "--set", "container.shm_size=2g"]);
    fixture.wait_for_ranks(4).await;
    assert_ne!(ids(&fixture.containers(0)), ids(&boxes.0), "another container");
    fixture.end_ranks(None, 0);
    up.wait_for_exit().await.assert_exit_code(0);
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0).assert_contains("nothing is left");
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partial_gang_is_stopped_and_relaunched() {
    for contained in [true, false] {
        let fixture = SandboxFixture::with_hosts(2).await;
        let job = JobSpec { in_container: contained, ..kept_job("") };
        let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("partial", &job));
        laptop.run(&["up", "-d", path_str(&file)]).await.assert_exit_code(0);
        let pids = fixture.wait_for_ranks(4).await;
        // One host's launcher dies while no follower is attached.
        let node = std::fs::read_to_string(fixture.run_file("partial", 1, "node.pid")).expect("a pid");
        send_sigkill(node.split_whitespace().next().expect("a pid").parse().expect("a number"));
        wait_until("the keeper has recorded it", async || fixture.run_file("partial", 1, "node.rc").exists().then_some(())).await;
        let dry = laptop.run(&["up", path_str(&file), "--dry-run"]).await;
        dry.assert_exit_code(0).assert_contains("a partial gang");
        fixture.clear_control_files();
        let up = laptop.start(&["up", path_str(&file)]);
        fixture.wait_for_ranks(4).await;
        assert!(pids.iter().all(|pid| !is_alive(*pid)), "the old ranks have ended");
        fixture.end_ranks(None, 0);
        up.wait_for_exit().await.assert_exit_code(0).assert_recap("OK").assert_contains("4 ok");
        laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
        fixture.assert_clean_and_stop().await;
    }
}

fn send_sigkill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
}

fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z') && !rest.starts_with('X'))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_host_prevents_any_change() {
    let fixture = SandboxFixture::with_hosts(3).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("away", &kept_job("")));
    fixture.set_faults("gpu02", &Faults { refuse_key: true, ..Faults::default() });
    let up = laptop.run(&["up", path_str(&file)]).await;
    up.assert_exit_code(4).assert_recap("UNREACHABLE").assert_contains("gpu02").assert_contains("nothing was changed");
    assert!((0..3).all(|host| fixture.containers(host).is_empty() && !fixture.host_home(host).join(".orchestrate").exists()));
    fixture.set_faults("gpu02", &Faults::default());
    laptop.run(&["up", "-d", path_str(&file)]).await.assert_exit_code(0);
    fixture.wait_for_ranks(6).await;
    let run = fixture.run_dir("away", 0);
    fixture.set_faults("gpu03", &Faults { refuse_key: true, ..Faults::default() });
    laptop.run(&["up", path_str(&file), "--recreate"]).await.assert_exit_code(4).assert_contains("gpu03");
    assert!(run.exists() && (0..6).all(|rank| fixture.term_received_at(rank).is_none()), "the running ranks continue");
    // On an unreachable host, something may be left: `down` does what it can and reports the rest.
    let down = laptop.run(&["down", path_str(&file)]).await;
    down.assert_exit_code(5).assert_recap("LEFTOVERS").assert_contains("gpu03: what is left there is unknown");
    assert!(fixture.containers(0).is_empty() && fixture.containers(1).is_empty() && fixture.containers(2).len() == 1);
    fixture.set_faults("gpu03", &Faults::default());
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dry_run_changes_nothing() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("dry", &kept_job("")));
    let dry = laptop.run(&["up", path_str(&file), "--dry-run"]).await;
    dry.assert_exit_code(0)
        .assert_contains("no run exists: a new one would be launched")
        .assert_contains("docker")
        .assert_contains("torchrun");
    fixture.assert_no_leftovers().await;
    assert!(laptop.run_dirs().is_empty());
    laptop
        .run(&["down", path_str(&file), "--dry-run"])
        .await
        .assert_exit_code(0)
        .assert_contains("no run, container or process of `dry` is on any host");
    laptop.run(&["up", "-d", path_str(&file)]).await.assert_exit_code(0);
    let run = fixture.run_dir("dry", 0);
    laptop.run(&["up", path_str(&file), "--check"]).await.assert_exit_code(0);
    laptop
        .run(&["up", path_str(&file), "--recreate", "--dry-run"])
        .await
        .assert_exit_code(0)
        .assert_contains("is live: it would be stopped")
        .assert_not_contains("IMPOSSIBLE");
    laptop.run(&["down", path_str(&file), "--dry-run"]).await.assert_exit_code(0).assert_contains("remove the container");
    assert!(run.exists() && fixture.run_dir("dry", 0) == run && (0..4).all(|rank| fixture.term_received_at(rank).is_none()));
    assert!(!fixture.private_dir("dry", 0).join("lock").exists(), "not even a lock");
    laptop.run(&["down", path_str(&file), "--yes"]).await.assert_exit_code(0);
    // What `up` would refuse, a dry run refuses.
    let file = fixture.write_inventory("dry", &kept_job("checks: { max_clock_skew: 1s }\nprepare: [{ name: a, run: 'true' }]\n"));
    fixture.set_faults("gpu02", &Faults { clock_skew: 5.0, ..Faults::default() });
    for words in [["up", "--dry-run", "--preflight", "fast"], ["prepare", "--dry-run", "--preflight", "fast"]] {
        let refused = laptop.run(&[&words[..], &[path_str(&file)]].concat()).await;
        refused.assert_exit_code(3).assert_contains("warning: gpu02: clock: ").assert_contains("; help: ");
        refused.assert_contains(&format!("`{}` would refuse; nothing was changed", words[0]));
    }
    laptop.run(&["up", path_str(&file), "--dry-run", "--preflight", "off"]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limit_launches_a_smaller_run() {
    let fixture = SandboxFixture::with_hosts(3).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("fewer", &kept_job("")));
    let up = laptop.start(&["up", path_str(&file), "--limit", "gpu02,gpu03"]);
    fixture.wait_for_ranks(4).await;
    assert!(fixture.containers(0).is_empty() && fixture.containers(1).len() == 1 && fixture.containers(2).len() == 1);
    fixture.end_ranks(None, 0);
    up.wait_for_exit().await.assert_exit_code(0).assert_contains("world size 4").assert_contains("4 ok  0 failed of 4");
    assert_eq!(laptop.read_log("rank-0.log"), b"rank 0 of 4 on gpu02\nrank 0 ends with 0\n");
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
    fixture.assert_no_leftovers().await;
    fixture.clear_control_files();
    // While a run is live, a subset of its hosts is not a run of its own, and `--recreate` may not tear a subset out of it.
    laptop.run(&["up", "-d", path_str(&file)]).await.assert_exit_code(0);
    for words in [vec!["--limit", "gpu02,gpu03"], vec!["--limit", "gpu02", "--recreate"], vec!["--limit", "!gpu01", "-d"]] {
        let refused = laptop.run(&[vec!["up", path_str(&file)], words].concat()).await;
        refused.assert_exit_code(3).assert_contains("--limit").assert_contains("live");
    }
    assert!((0..6).all(|rank| fixture.term_received_at(rank).is_none()));
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}
