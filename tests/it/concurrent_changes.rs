//! State on the hosts that changes between observation and action, and hosts whose state is unknown: no live run is overlooked.

use orchestrate::sandbox::Faults;

use crate::support::{JobSpec, SandboxFixture, path_str};

const SLOW_PULL_SCENARIO: &str = "{hosts: 2, gpus: 2, registry: ['slow/image:1']}";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_teardown_stops_the_new_launch() {
    let fixture = SandboxFixture::start(SLOW_PULL_SCENARIO).await;
    fixture.hold_pulls(&["gpu02"]);
    let (first, second, file) =
        (fixture.new_laptop("first"), fixture.new_laptop("second"), fixture.write_inventory("late", &JobSpec::default()));
    let mut up = first.start(&["up", path_str(&file), "--set", "container.image=slow/image:1"]);
    up.wait_for_output("preflight").await;
    // It finds a lock, but neither a run nor a container.
    let mut down = second.start(&["down", path_str(&file), "--lock-wait", "300s"]);
    down.wait_for_output("waiting for up to").await;
    fixture.release_pulls();
    fixture.wait_for_ranks(2).await;
    down.wait_for_exit().await.assert_exit_code(0).assert_contains("nothing is left");
    assert!((0..2).all(|rank| fixture.term_received_at(rank).is_some()), "the ranks received TERM");
    up.wait_for_exit().await.assert_exit_code(1);
    assert!(second.read_log("rank-1.log").starts_with(b"rank 1 of 2"), "its logs were fetched");
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ending_run_leaves_the_next_run_alone() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (first, second, file) =
        (fixture.new_laptop("first"), fixture.new_laptop("second"), fixture.write_inventory("next", &JobSpec::default()));
    let mut up = first.start(&["up", path_str(&file), "--lock-wait", "50s"]);
    fixture.wait_for_ranks(2).await;
    up.wait_for_output("ready").await;
    fixture.clear_control_files();
    let mut next = second.start(&["up", path_str(&file), "--recreate"]);
    fixture.wait_for_ranks(2).await;
    next.wait_for_output("ready").await;
    let run = fixture.run_dir("next", 0);
    let name = run.file_name().and_then(|name| name.to_str()).expect("a run");
    up.wait_for_exit().await.assert_exit_code(1).assert_contains(&format!("{name} was launched in the meantime: it is left alone"));
    assert!(run.exists() && fixture.containers(1).iter().all(|(_, _, status)| status == "running"), "the next run continues");
    fixture.end_ranks(None, 0);
    next.wait_for_exit().await.assert_exit_code(0).assert_recap("OK").assert_contains("2 ok  0 failed");
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unlockable_host_does_not_block_other_teardowns() {
    let fixture = SandboxFixture::with_hosts(3).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("full", &JobSpec::default()));
    laptop.run(&["up", "-d", path_str(&file)]).await.assert_exit_code(0);
    fixture.wait_for_ranks(3).await;
    // As on a full disk. Every operator locks the first host first.
    let full = "case \"$*\" in *lock*) echo 'ln: No space left on device' >&2; exit 1 ;; esac; exec \"$SANDBOX_HOST/bin/ln\" \"$@\"";
    let programs = [("ln".to_owned(), full.to_owned())].into();
    fixture.set_faults("gpu01", &Faults { programs, ..Faults::default() });
    let down = laptop.run(&["down", path_str(&file), "--kill"]).await;
    down.assert_exit_code(5).assert_recap("LEFTOVERS").assert_contains("LEFTOVER on gpu01: could not take the lock: ");
    assert_eq!([1, 2].map(|host| (fixture.containers(host).len(), fixture.private_dir("full", host).exists())), [(0, false); 2]);
    assert_eq!(fixture.containers(0).len(), 1, "nothing is changed without the lock");
    fixture.set_faults("gpu01", &Faults::default());
    laptop.run(&["down", path_str(&file), "--kill"]).await.assert_exit_code(0).assert_contains("nothing is left");
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_behind_silent_docker_is_remembered() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("silent", &JobSpec::default()));
    laptop.run(&["up", "-d", path_str(&file)]).await.assert_exit_code(0);
    fixture.wait_for_ranks(2).await;
    let (run, ids) = (fixture.private_dir("silent", 1).join(format!("{}.json", fixture.current_run_id("silent", 1))), |host| {
        fixture.containers(host).into_iter().map(|c| c.1).collect::<Vec<_>>()
    });
    let before = ids(1);
    fixture.set_faults("gpu02", &Faults { docker_down: true, ..Faults::default() });
    laptop
        .run(&["up", path_str(&file), "--recreate"])
        .await
        .assert_exit_code(3)
        .assert_contains("gpu02")
        .assert_contains("Cannot connect to the Docker daemon");
    assert!((0..2).all(|rank| fixture.term_received_at(rank).is_none()), "nothing was changed");
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(5).assert_recap("LEFTOVERS").assert_contains("LEFTOVER on gpu02");
    assert!(run.exists(), "by which it is found again");
    assert!(fixture.containers(0).is_empty() && !fixture.private_dir("silent", 0).exists(), "the other host is clean");
    fixture.set_faults("gpu02", &Faults::default());
    assert_eq!(ids(1), before);
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0).assert_contains("nothing is left");
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranks_that_exit_at_once_are_not_running() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let job = JobSpec { launch: "with: script\ngate: none\nshell: \"exit 3\"\n".to_owned(), ..JobSpec::default() };
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("typo", &job));
    laptop
        .run(&["up", "-d", path_str(&file)])
        .await
        .assert_exit_code(1)
        .assert_recap("FAILED")
        .assert_contains("exit 3")
        .assert_not_contains("all ranks are running");
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_with_different_runs_keep_separate_logs() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let job = JobSpec { nproc_per_node: 2, top_level: "teardown: never\n".to_owned(), ..JobSpec::default() };
    let (laptop, other, file) = (fixture.new_laptop("laptop"), fixture.new_laptop("other"), fixture.write_inventory("apart", &job));
    fixture.end_ranks(None, 0);
    laptop.run(&["up", path_str(&file)]).await.assert_exit_code(0).assert_contains("4 ok");
    laptop.run(&["up", path_str(&file), "--limit", "gpu02"]).await.assert_exit_code(0).assert_contains("2 ok");
    assert_ne!(fixture.run_dir("apart", 0).file_name(), fixture.run_dir("apart", 1).file_name());
    // A laptop that knows neither run.
    other.run(&["down", path_str(&file)]).await.assert_exit_code(0).assert_contains("nothing is left");
    let runs = other.run_dirs();
    let log = |run: usize, rank: u32| std::fs::read_to_string(runs[run].join(format!("logs/rank-{rank}.log"))).unwrap_or_default();
    assert_eq!(runs.len(), 2);
    assert!(log(0, 0).starts_with("rank 0 of 4 on gpu01") && log(0, 1).starts_with("rank 1 of 4 on gpu01"), "{runs:?}");
    assert!(log(1, 0).starts_with("rank 0 of 2 on gpu02") && log(1, 1).starts_with("rank 1 of 2 on gpu02"), "{runs:?}");
    assert_eq!(log(0, 2), "", "the first laptop has it");
    fixture.assert_clean_and_stop().await;
}
