//! Detached runs, lost connections, and two operators at the same time.

use orchestrate::sandbox::Faults;

use crate::support::{JobSpec, SandboxFixture, path_str, sha256_hex, wait_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn detached_run_finishes_and_waits_for_down() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, file) =
        (fixture.new_laptop("laptop"), fixture.write_inventory("alone", &JobSpec { nproc_per_node: 2, ..JobSpec::default() }));
    laptop.run(&["up", "-d", path_str(&file)]).await.assert_exit_code(0).assert_recap("DETACHED");
    fixture.wait_for_ranks(4).await;
    fixture.end_ranks(None, 0);
    let stopped = |host: usize| fixture.containers(host).first().is_some_and(|c| c.2 == "exited");
    wait_until("both containers have stopped by themselves", async || (stopped(0) && stopped(1)).then_some(())).await;
    let other = fixture.new_laptop("other");
    other.run(&["ps", path_str(&file)]).await.assert_exit_code(0).assert_contains("exited").assert_contains("2 ok");
    other.run(&["attach", path_str(&file)]).await.assert_exit_code(0).assert_recap("OK").assert_contains("4 ok");
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0).assert_contains("nothing is left");
    assert_eq!(String::from_utf8_lossy(&laptop.read_log("rank-2.log")), "rank 2 of 4 on gpu02\nrank 2 ends with 0\n");
    laptop
        .run(&["down", path_str(&file)])
        .await
        .assert_exit_code(0)
        .assert_contains("no run, container or process of `alone` is on any host");
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_rank_stops_its_host_while_detached() {
    let fixture = SandboxFixture::with_hosts(1).await;
    let (laptop, file) =
        (fixture.new_laptop("laptop"), fixture.write_inventory("unseen", &JobSpec { nproc_per_node: 2, ..JobSpec::default() }));
    laptop.run(&["up", "-d", path_str(&file)]).await.assert_exit_code(0);
    fixture.wait_for_ranks(2).await;
    fixture.end_ranks(Some(1), 3);
    wait_until("its container has stopped", async || fixture.containers(0).first().is_some_and(|c| c.2 == "exited").then_some(())).await;
    assert!(fixture.term_received_at(0).is_some(), "the other rank was asked to end");
    let attached = laptop.run(&["attach", path_str(&file)]).await;
    attached
        .assert_exit_code(1)
        .assert_recap("FAILED")
        .assert_contains("FIRST     rank 1 on gpu01: exit 3")
        .assert_contains("| rank 1 ends with 3");
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_survive_lost_connections() {
    let fixture = SandboxFixture::with_hosts(2).await;
    // 5 MB in pieces that the test releases one by one, so that every loss hits the middle.
    fixture.set_payload_setup(
        "n=0; while [ $n -lt 5 ]; do head -c 1000000 /dev/urandom >\"$BENCH/part.$RANK\"; cat \"$BENCH/part.$RANK\"; cat \"$BENCH/part.$RANK\" >>\"$BENCH/said.$RANK\"\n\
         : >\"$BENCH/piece.$RANK.$n\"; while ! [ -e \"$BENCH/next.$n\" ]; do sleep 0.02; done; n=$((n + 1)); done; echo",
    );
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("lost", &JobSpec::default()));
    let up = laptop.start(&["up", path_str(&file)]);
    for piece in 0..5 {
        let written = |rank: u32| fixture.control_dir().join(format!("piece.{rank}.{piece}")).exists();
        wait_until("the piece is written", async || (written(0) && written(1)).then_some(())).await;
        // At some byte of this piece, or before it.
        let copied =
            || laptop.run_dirs().first().and_then(|run| std::fs::metadata(run.join("logs/rank-1.log")).ok()).map_or(0, |m| m.len());
        wait_until("the last piece has begun to arrive", async || (copied() > piece * 1_000_000).then_some(())).await;
        fixture.sandbox.drop_connections("gpu02").expect("a host");
        fixture.sandbox.drop_connections("gpu01").expect("a host");
        std::fs::write(fixture.control_dir().join(format!("next.{piece}")), "").expect("written");
    }
    fixture.wait_for_ranks(2).await;
    fixture.end_ranks(None, 0);
    up.wait_for_exit().await.assert_exit_code(0).assert_recap("OK").assert_contains("2 ok");
    for rank in 0..2 {
        let output = std::fs::read(fixture.control_dir().join(format!("said.{rank}"))).expect("the output of the rank");
        let (first, last) = (format!("rank {rank} of 2 on gpu0{}\n", rank + 1), format!("\nrank {rank} ends with 0\n"));
        let there = [first.as_bytes(), &output, last.as_bytes()].concat();
        let here = laptop.read_log(&format!("rank-{rank}.log"));
        assert_eq!((here.len(), sha256_hex(&here)), (there.len(), sha256_hex(&there)), "rank {rank}");
    }
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn temporarily_unreachable_host_is_no_failure() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("while", &JobSpec::default()));
    let mut up = laptop.start(&["up", path_str(&file), "--progress", "plain"]);
    fixture.wait_for_ranks(2).await;
    up.wait_for_output("ready").await;
    fixture.set_faults("gpu02", &Faults { drop_on: Some("F <file>".to_owned()), ..Faults::default() });
    fixture.sandbox.drop_connections("gpu02").expect("a host");
    up.wait_for_output("gpu02: no connection: ").await;
    fixture.set_faults("gpu02", &Faults::default());
    up.wait_for_output("gpu02: reconnected").await;
    fixture.end_ranks(None, 0);
    up.wait_for_exit().await.assert_exit_code(0).assert_recap("OK").assert_contains("2 ok");
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_removed_while_followed_fails() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("swept", &JobSpec::default()));
    let mut up = laptop.start(&["up", path_str(&file), "--progress", "plain"]);
    fixture.wait_for_ranks(2).await;
    up.wait_for_output("ready").await;
    let (dir, record) =
        (fixture.run_dir("swept", 1), fixture.private_dir("swept", 1).join(format!("{}.json", fixture.current_run_id("swept", 1))));
    std::fs::remove_file(record).expect("removed");
    // A follower may write into it meanwhile.
    wait_until("it is removed", async || std::fs::remove_dir_all(&dir).ok()).await;
    up.wait_for_exit().await.assert_exit_code(1).assert_recap("FAILED").assert_contains("the launcher on gpu02 failed");
    assert!(fixture.term_received_at(0).is_some(), "the other rank was asked to end");
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_operator_waits_for_the_lock() {
    let fixture = SandboxFixture::start("{hosts: 2, gpus: 2, registry: ['slow/image:1']}").await;
    fixture.hold_pulls(&["gpu02"]);
    let (first, second, file) =
        (fixture.new_laptop("first"), fixture.new_laptop("second"), fixture.write_inventory("lock", &JobSpec::default()));
    let image = ["--set", "container.image=slow/image:1"];
    let mut up = first.start(&[&["up", path_str(&file)], &image[..]].concat());
    up.wait_for_output("preflight").await;
    // The first operator holds the lock while it pulls.
    let refused = second.run(&[&["up", path_str(&file), "--lock-wait", "1s"], &image[..]].concat()).await;
    refused
        .assert_exit_code(6)
        .assert_contains("holds the lock on gpu01")
        .assert_contains("tester@")
        .assert_contains("orchestrate down ")
        .assert_contains("--yes`");
    assert!(second.run_dirs().is_empty());
    let mut waiting = second.start(&[&["up", path_str(&file), "--lock-wait", "1h"], &image[..]].concat());
    waiting.wait_for_output("holds the lock: waiting for up to 60 min").await;
    waiting.send_signal("INT");
    waiting.wait_for_exit().await.assert_exit_code(130).assert_contains("nothing was changed").assert_not_contains("stopping the ranks");
    // A patient operator waits, observes again, and finds the same run live.
    let mut patient = second.start(&[&["up", path_str(&file)], &image[..]].concat());
    patient.wait_for_output("holds the lock: waiting for up to").await;
    fixture.release_pulls();
    fixture.wait_for_ranks(2).await;
    patient.wait_for_output("attaching").await;
    fixture.end_ranks(None, 0);
    up.wait_for_exit().await.assert_exit_code(0).assert_recap("OK").assert_contains("2 ok  0 failed");
    // Whichever tears down first, both see the same end; nothing is removed twice or left over.
    patient.wait_for_exit().await.assert_exit_code(0).assert_recap("OK").assert_contains("2 ok  0 failed");
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_lock_is_taken_over() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("stale", &JobSpec::default()));
    let lock = |owner: &str, beat: u64| {
        for host in 0..2 {
            let dir = fixture.private_dir("stale", host);
            std::fs::create_dir_all(&dir).expect("made");
            if dir.join("lock").symlink_metadata().is_ok() {
                std::fs::remove_file(dir.join("lock")).expect("removed");
            }
            std::os::unix::fs::symlink(format!("abc:{beat}:1:elsewhere:{owner}"), dir.join("lock")).expect("linked");
            std::fs::write(dir.join("lock.beat"), format!("{beat}\n")).expect("written");
        }
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    // A fresh lock: another operator holds it.
    lock("li@desk", now);
    let up = laptop.run(&["up", path_str(&file), "--lock-wait", "0s"]).await;
    up.assert_exit_code(6).assert_recap("LOCKED").assert_contains("li@desk holds the lock on gpu01");
    // A stale lock: its holder is gone.
    lock("li@desk", now - 100);
    let up = laptop.start(&["up", path_str(&file), "--lock-wait", "0s"]);
    fixture.wait_for_ranks(2).await;
    fixture.end_ranks(None, 0);
    up.wait_for_exit().await.assert_exit_code(0).assert_contains("the lock of li@desk is taken over");
    fixture.assert_no_leftovers().await;
    // A fresh lock that the user chooses to take over.
    lock("li@desk", now + 60);
    laptop.run(&["down", path_str(&file), "--lock-wait", "0s"]).await.assert_exit_code(6);
    laptop.run(&["down", path_str(&file), "--yes"]).await.assert_exit_code(0).assert_contains("the lock of li@desk is taken over");
    fixture.assert_clean_and_stop().await;
}
