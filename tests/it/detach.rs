//! Without anybody attached, with lost connections, and with two operators at once.

use orchestrate::sandbox::Faults;

use crate::support::{Bench, Job, sha256, until, word};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_detached_ends_by_itself_and_waits_for_down() {
    let bench = Bench::hosts(2).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("alone", &Job { nproc: 2, ..Job::default() }));
    laptop.run(&["up", "-d", word(&file)]).await.code(0).recap("DETACHED");
    bench.ranks_up(4).await;
    bench.end(None, 0);
    let stopped = |host: usize| bench.containers(host).first().is_some_and(|c| c.2 == "exited");
    until("both containers have stopped by themselves", async || (stopped(0) && stopped(1)).then_some(())).await;
    let other = bench.laptop("other");
    other.run(&["ps", word(&file)]).await.code(0).says("exited").says("2 ok");
    other.run(&["attach", word(&file)]).await.code(0).recap("OK").says("4 ok");
    laptop.run(&["down", word(&file)]).await.code(0).says("nothing is left");
    assert_eq!(String::from_utf8_lossy(&laptop.log("rank-2.log")), "rank 2 of 4 on gpu02\nrank 2 ends with 0\n");
    laptop.run(&["down", word(&file)]).await.code(0).says("nothing of alone is on any host");
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_nobody_is_attached_a_failed_rank_stops_its_host() {
    let bench = Bench::hosts(1).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("unseen", &Job { nproc: 2, ..Job::default() }));
    laptop.run(&["up", "-d", word(&file)]).await.code(0);
    bench.ranks_up(2).await;
    bench.end(Some(1), 3);
    until("its container has stopped", async || bench.containers(0).first().is_some_and(|c| c.2 == "exited").then_some(())).await;
    assert!(bench.term(0).is_some(), "the other rank was asked to end");
    let attached = laptop.run(&["attach", word(&file)]).await;
    attached.code(1).recap("FAILED").says("FIRST     rank 1 on gpu01: exit 3").says("| rank 1 ends with 3");
    laptop.run(&["down", word(&file)]).await.code(0);
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_survives_connections_that_are_lost() {
    let bench = Bench::hosts(2).await;
    // 5 MB in pieces, each released by the test, so that every loss hits the middle.
    bench.job(
        "n=0; while [ $n -lt 5 ]; do head -c 1000000 /dev/urandom >\"$BENCH/part.$RANK\"; cat \"$BENCH/part.$RANK\"; cat \"$BENCH/part.$RANK\" >>\"$BENCH/said.$RANK\"\n\
         : >\"$BENCH/piece.$RANK.$n\"; while ! [ -e \"$BENCH/next.$n\" ]; do sleep 0.02; done; n=$((n + 1)); done; echo",
    );
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("lost", &Job::default()));
    let up = laptop.start(&["up", word(&file)]);
    for piece in 0..5 {
        let written = |rank: u32| bench.bench().join(format!("piece.{rank}.{piece}")).exists();
        until("the piece is written", async || (written(0) && written(1)).then_some(())).await;
        // At some byte of this piece or before it.
        let copied = || laptop.runs().first().and_then(|run| std::fs::metadata(run.join("logs/rank-1.log")).ok()).map_or(0, |m| m.len());
        until("the last piece has begun to arrive", async || (copied() > piece * 1_000_000).then_some(())).await;
        bench.sandbox.drop_connections("gpu02").expect("a host");
        bench.sandbox.drop_connections("gpu01").expect("a host");
        std::fs::write(bench.bench().join(format!("next.{piece}")), "").expect("written");
    }
    bench.ranks_up(2).await;
    bench.end(None, 0);
    up.end().await.code(0).recap("OK").says("2 ok");
    for rank in 0..2 {
        let said = std::fs::read(bench.bench().join(format!("said.{rank}"))).expect("what the rank said");
        let (first, last) = (format!("rank {rank} of 2 on gpu0{}\n", rank + 1), format!("\nrank {rank} ends with 0\n"));
        let there = [first.as_bytes(), &said, last.as_bytes()].concat();
        let here = laptop.log(&format!("rank-{rank}.log"));
        assert_eq!((here.len(), sha256(&here)), (there.len(), sha256(&there)), "rank {rank}");
    }
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_is_away_for_a_while_is_not_a_failure() {
    let bench = Bench::hosts(2).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("while", &Job::default()));
    let mut up = laptop.start(&["up", word(&file), "--progress", "plain"]);
    bench.ranks_up(2).await;
    up.says("ready").await;
    bench.faults("gpu02", &Faults { drop_on: Some("F <file>".to_owned()), ..Faults::default() });
    bench.sandbox.drop_connections("gpu02").expect("a host");
    up.says("gpu02: no connection: ").await;
    bench.faults("gpu02", &Faults::default());
    up.says("gpu02: connected again").await;
    bench.end(None, 0);
    up.end().await.code(0).recap("OK").says("2 ok");
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_removed_under_its_follower_is_over() {
    let bench = Bench::hosts(2).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("swept", &Job::default()));
    let mut up = laptop.start(&["up", word(&file), "--progress", "plain"]);
    bench.ranks_up(2).await;
    up.says("ready").await;
    let (dir, record) = (bench.run_dir("swept", 1), bench.host_dir("swept", 1).join(format!("{}.json", bench.current("swept", 1))));
    std::fs::remove_file(record).expect("removed");
    std::fs::remove_dir_all(dir).expect("removed");
    up.end().await.code(1).recap("FAILED").says("the launcher on gpu02 failed");
    assert!(bench.term(0).is_some(), "the other rank was asked to end");
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_operators_one_waits() {
    let bench = Bench::new("{hosts: 2, gpus: 2, registry: ['slow/image:1']}").await;
    bench.faults("gpu02", &Faults { pull_delay: 15.0, ..Faults::default() });
    let (first, second, file) = (bench.laptop("first"), bench.laptop("second"), bench.inventory("lock", &Job::default()));
    let image = ["--set", "container.image=slow/image:1"];
    let mut up = first.start(&[&["up", word(&file)], &image[..]].concat());
    up.says("preflight").await;
    // The first holds the lock while it pulls, for longer than the second needs to give up.
    let refused = second.run(&[&["up", word(&file), "--lock-wait", "1s"], &image[..]].concat()).await;
    refused.code(6).says("holds the lock on gpu01").says("tester@").says("orchestrate down ").says("--yes`");
    assert!(second.runs().is_empty());
    // A patient one waits, looks again, and finds an equal run alive.
    let mut patient = second.start(&[&["up", word(&file)], &image[..]].concat());
    bench.ranks_up(2).await;
    patient.says("attaching").await;
    bench.end(None, 0);
    up.end().await.code(0).recap("OK").says("2 ok  0 failed");
    // Whoever tears down first, both see the same end, and nothing is removed twice or left.
    patient.end().await.code(0).recap("OK").says("2 ok  0 failed");
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_without_a_living_holder_is_taken_over() {
    let bench = Bench::hosts(2).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("stale", &Job::default()));
    let lock = |owner: &str, beat: u64| {
        for host in 0..2 {
            let dir = bench.host_dir("stale", host);
            std::fs::create_dir_all(&dir).expect("made");
            if dir.join("lock").symlink_metadata().is_ok() {
                std::fs::remove_file(dir.join("lock")).expect("removed");
            }
            std::os::unix::fs::symlink(format!("abc:{beat}:1:elsewhere:{owner}"), dir.join("lock")).expect("linked");
            std::fs::write(dir.join("lock.beat"), format!("{beat}\n")).expect("written");
        }
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    // Fresh: another operator is at work.
    lock("li@desk", now);
    let up = laptop.run(&["up", word(&file), "--lock-wait", "0s"]).await;
    up.code(6).recap("LOCKED").says("li@desk holds the lock on gpu01");
    // Old: nobody is.
    lock("li@desk", now - 100);
    let up = laptop.start(&["up", word(&file), "--lock-wait", "0s"]);
    bench.ranks_up(2).await;
    bench.end(None, 0);
    up.end().await.code(0).says("the lock of li@desk is taken over");
    bench.nothing_left().await;
    // Fresh again, and a person who says that it is to be taken.
    lock("li@desk", now + 60);
    laptop.run(&["down", word(&file), "--lock-wait", "0s"]).await.code(6);
    laptop.run(&["down", word(&file), "--yes"]).await.code(0).says("the lock of li@desk is taken over");
    bench.done().await;
}
