//! `down` says that nothing is left only when it looked: what has another name, has lost its directory or its record, or cannot be looked at.

use orchestrate::sandbox::Faults;

use crate::signals::lives;
use crate::support::{Bench, Job, until, word};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_could_not_be_looked_at_is_told() {
    let bench = Bench::hosts(2).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("unseen", &Job::default()));
    bench.faults("gpu02", &Faults { docker_down: true, ..Faults::default() });
    let down = laptop.run(&["down", word(&file)]).await;
    down.code(5).says("containers could not be looked for: the docker daemon on gpu02 does not answer").silent_about("nothing of unseen");
    bench.faults("gpu02", &Faults::default());
    laptop.run(&["down", word(&file)]).await.code(0).says("nothing of unseen is on any host");
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_that_were_all_renamed_are_cleared_and_their_logs_come() {
    for contained in [true, false] {
        let bench = Bench::hosts(2).await;
        let (laptop, file) = (bench.laptop("laptop"), bench.inventory("renamed", &Job { contained, ..Job::default() }));
        laptop.run(&["up", "-d", word(&file)]).await.code(0);
        let pids = bench.ranks_up(2).await;
        let text = std::fs::read_to_string(&file).expect("an inventory").replace("name: gpu0", "name: node");
        std::fs::write(&file, text).expect("written");
        let other = bench.laptop("other");
        other
            .run(&["down", word(&file)])
            .await
            .code(0)
            .says("also under names that are not in the inventory: gpu01")
            .says("nothing is left");
        assert!(pids.iter().all(|pid| !lives(*pid)));
        assert!(String::from_utf8_lossy(&other.log("rank-1.log")).starts_with("rank 1 of 2 on gpu02"));
        bench.done().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bare_run_whose_directory_vanished_is_found_by_its_processes() {
    let bench = Bench::hosts(2).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("vanished", &Job { contained: false, ..Job::default() }));
    laptop.run(&["up", "-d", word(&file)]).await.code(0);
    let pids = bench.ranks_up(2).await;
    for host in 0..2 {
        // The keeper may be writing into it.
        until("it is gone", async || std::fs::remove_dir_all(bench.home(host).join(".orchestrate")).ok()).await;
    }
    laptop.run(&["down", word(&file)]).await.code(0).says("nothing is left");
    assert!(pids.iter().all(|pid| !lives(*pid)));
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_note_of_the_current_run_blocks_nothing_and_loses_no_log() {
    let bench = Bench::hosts(2).await;
    let job = Job { top: "teardown: never\n".to_owned(), ..Job::default() };
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("bad", &job));
    bench.end(None, 0);
    laptop.run(&["up", word(&file)]).await.code(0);
    for host in 0..2 {
        std::fs::write(bench.host_dir("bad", host).join("current"), "../../x\n").expect("written");
    }
    let other = bench.laptop("other");
    other.run(&["down", word(&file)]).await.code(0).says("the note of the current run cannot be read").says("nothing is left");
    for rank in 0..2 {
        let log = String::from_utf8_lossy(&other.log(&format!("rank-{rank}.log"))).into_owned();
        assert!(log.ends_with(&format!("rank {rank} ends with 0\n")), "{log}");
    }
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_container_of_a_killed_check_is_removed() {
    let bench = Bench::hosts(1).await;
    let job = Job { top: "checks: { same: [\"sleep 3000\"] }\n".to_owned(), ..Job::default() };
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("checked", &job));
    let check = laptop.start(&["check", word(&file)]);
    until("it looks into the image", async || bench.containers(0).iter().any(|c| c.0.starts_with("orch-check-")).then_some(())).await;
    check.signal("KILL");
    drop(check.end().await);
    laptop.run(&["down", word(&file)]).await.code(0).says("nothing is left");
    assert_eq!(bench.containers(0), []);
    bench.done().await;
}
