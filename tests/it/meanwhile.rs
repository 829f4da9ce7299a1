//! What changes on the hosts between a look and a deed, and hosts of which nothing is known: nothing that runs is lost sight of.

use orchestrate::sandbox::Faults;

use crate::support::{Bench, Job, word};

const SLOW: &str = "{hosts: 2, gpus: 2, registry: ['slow/image:1']}";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_teardown_that_waited_for_a_launch_ends_what_was_launched() {
    let bench = Bench::new(SLOW).await;
    bench.faults("gpu02", &Faults { pull_delay: 6.0, ..Faults::default() });
    let (first, second, file) = (bench.laptop("first"), bench.laptop("second"), bench.inventory("late", &Job::default()));
    let mut up = first.start(&["up", word(&file), "--set", "container.image=slow/image:1"]);
    up.says("preflight").await;
    // It sees a lock, and neither a run nor a container.
    let down = second.start(&["down", word(&file), "--lock-wait", "50s"]);
    bench.ranks_up(2).await;
    down.end().await.code(0).says("nothing is left");
    assert!((0..2).all(|rank| bench.term(rank).is_some()), "the ranks were told to end");
    up.end().await.code(1);
    assert!(second.log("rank-1.log").starts_with(b"rank 1 of 2"), "its logs were fetched");
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_sees_a_run_end_leaves_the_next_one_alone() {
    let bench = Bench::hosts(2).await;
    let (first, second, file) = (bench.laptop("first"), bench.laptop("second"), bench.inventory("next", &Job::default()));
    let mut up = first.start(&["up", word(&file), "--lock-wait", "50s"]);
    bench.ranks_up(2).await;
    up.says("ready").await;
    bench.again();
    let mut next = second.start(&["up", word(&file), "--recreate"]);
    bench.ranks_up(2).await;
    next.says("ready").await;
    let run = bench.run_dir("next", 0);
    let name = run.file_name().and_then(|name| name.to_str()).expect("a run");
    up.end().await.code(1).says(&format!("{name} was launched in the meantime: it is left alone"));
    assert!(run.exists() && bench.containers(1).iter().all(|(_, _, status)| status == "running"), "the next run goes on");
    bench.end(None, 0);
    next.end().await.code(0).recap("OK").says("2 ok  0 failed");
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_cannot_be_locked_keeps_no_other_from_being_cleared() {
    let bench = Bench::hosts(3).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("full", &Job::default()));
    laptop.run(&["up", "-d", word(&file)]).await.code(0);
    bench.ranks_up(3).await;
    // As on a full disk; the first host is where every operator begins.
    let full = "case \"$*\" in *lock*) echo 'ln: No space left on device' >&2; exit 1 ;; esac; exec \"$SANDBOX_HOST/bin/ln\" \"$@\"";
    let programs = [("ln".to_owned(), full.to_owned())].into();
    bench.faults("gpu01", &Faults { programs, ..Faults::default() });
    let down = laptop.run(&["down", word(&file), "--kill"]).await;
    down.code(5).recap("LEFTOVERS").says("LEFT on gpu01: could not take the lock: ");
    assert_eq!([1, 2].map(|host| (bench.containers(host).len(), bench.host_dir("full", host).exists())), [(0, false); 2]);
    assert_eq!(bench.containers(0).len(), 1, "nothing is changed without the lock");
    bench.faults("gpu01", &Faults::default());
    laptop.run(&["down", word(&file), "--kill"]).await.code(0).says("nothing is left");
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_behind_a_docker_that_does_not_answer_is_not_forgotten() {
    let bench = Bench::hosts(2).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("silent", &Job::default()));
    laptop.run(&["up", "-d", word(&file)]).await.code(0);
    bench.ranks_up(2).await;
    let (run, ids) = (bench.host_dir("silent", 1).join(format!("{}.json", bench.current("silent", 1))), |host| {
        bench.containers(host).into_iter().map(|c| c.1).collect::<Vec<_>>()
    });
    let before = ids(1);
    bench.faults("gpu02", &Faults { docker_down: true, ..Faults::default() });
    laptop.run(&["up", word(&file), "--recreate"]).await.code(3).says("gpu02").says("Cannot connect to the Docker daemon");
    assert!((0..2).all(|rank| bench.term(rank).is_none()), "nothing was changed");
    laptop.run(&["down", word(&file)]).await.code(5).recap("LEFTOVERS").says("LEFT on gpu02");
    assert!(run.exists(), "by which it is found again");
    assert!(bench.containers(0).is_empty() && !bench.host_dir("silent", 0).exists(), "the other host is clean");
    bench.faults("gpu02", &Faults::default());
    assert_eq!(ids(1), before);
    laptop.run(&["down", word(&file)]).await.code(0).says("nothing is left");
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranks_that_die_at_once_do_not_run() {
    let bench = Bench::hosts(2).await;
    let job = Job { launch: "with: script\ngate: none\nshell: \"exit 3\"\n".to_owned(), ..Job::default() };
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("typo", &job));
    laptop.run(&["up", "-d", word(&file)]).await.code(1).recap("FAILED").says("exit 3").silent_about("every rank runs");
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_with_different_runs_keep_their_logs_apart() {
    let bench = Bench::hosts(2).await;
    let job = Job { nproc: 2, top: "teardown: never\n".to_owned(), ..Job::default() };
    let (laptop, other, file) = (bench.laptop("laptop"), bench.laptop("other"), bench.inventory("apart", &job));
    bench.end(None, 0);
    laptop.run(&["up", word(&file)]).await.code(0).says("4 ok");
    laptop.run(&["up", word(&file), "--limit", "gpu02"]).await.code(0).says("2 ok");
    assert_ne!(bench.run_dir("apart", 0).file_name(), bench.run_dir("apart", 1).file_name());
    // A laptop that knows neither.
    other.run(&["down", word(&file)]).await.code(0).says("nothing is left");
    let runs = other.runs();
    let log = |run: usize, rank: u32| std::fs::read_to_string(runs[run].join(format!("logs/rank-{rank}.log"))).unwrap_or_default();
    assert_eq!(runs.len(), 2);
    assert!(log(0, 0).starts_with("rank 0 of 4 on gpu01") && log(0, 1).starts_with("rank 1 of 4 on gpu01"), "{runs:?}");
    assert!(log(1, 0).starts_with("rank 0 of 2 on gpu02") && log(1, 1).starts_with("rank 1 of 2 on gpu02"), "{runs:?}");
    assert_eq!(log(0, 2), "", "the first laptop has it");
    bench.done().await;
}
