//! What goes to standard output and what to standard error, and how much of a log a follower shows first.

use std::time::Duration;

use tokio::io::AsyncReadExt as _;

use crate::support::{JobSpec, SandboxFixture, path_str, wait_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rank_lines_go_to_stdout_messages_to_stderr() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("streams", &JobSpec::default()));
    // The logs stay on the hosts: an `up` that removes the run waits only seconds for other followers.
    let up = laptop.start(&["up", path_str(&file), "--keep"]);
    fixture.wait_for_ranks(2).await;
    let other = fixture.new_laptop("other");
    let mut attached = other.start(&["attach", path_str(&file)]);
    attached.wait_for_output("[rank 0 gpu01] rank 0 of 2").await;
    fixture.end_ranks(None, 0);
    for ended in [up.wait_for_exit().await, attached.wait_for_exit().await] {
        assert!(ended.stdout.contains("[rank 0 gpu01] rank 0 of 2 on gpu01\n[rank 0 gpu01] rank 0 ends with 0\n"), "{}", ended.stdout);
        assert!(ended.stdout.lines().all(|line| line.starts_with("[rank ")), "only lines of ranks: {}", ended.stdout);
        assert!(ended.stderr.contains("RECAP") && !ended.stderr.contains("[rank 0"), "{}", ended.stderr);
    }
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_begin_with_the_last_lines() {
    let fixture = SandboxFixture::with_hosts(1).await;
    // More than one frame of the stream, so that the log's end comes later.
    fixture.set_payload_setup("awk 'BEGIN { for (i = 1; i <= 170000; i++) printf \"step %06d of a long run\\n\", i }'\n");
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("history", &JobSpec::default()));
    let file = path_str(&file);
    laptop.run(&["up", "-d", file]).await.assert_exit_code(0);
    let log = fixture.run_file("history", 0, "rank-0.0.log");
    let last = "step 170000 of a long run\n";
    wait_until("the log is whole", async || std::fs::read_to_string(&log).is_ok_and(|text| text.contains(last)).then_some(())).await;
    let steps = |text: &str| text.lines().filter(|line| line.contains("] step ")).count();
    for (name, args, most) in [
        ("attach", &["attach", file][..], 10),
        ("tail", &["attach", file, "--tail", "3"], 3),
        ("up", &["up", file], 10),
        ("logs", &["logs", "-f", file], 10),
        ("logs-tail", &["logs", "-f", file, "--tail", "2"], 2),
    ] {
        let other = fixture.new_laptop(name);
        let mut follower = other.start(args);
        follower.wait_for_output("step 170000 of a long run").await;
        follower.send_signal("INT");
        let ended = follower.wait_for_exit().await;
        let shown = steps(&ended.stdout);
        assert!(shown > 0 && shown <= most, "{args:?}: {shown} lines");
        // With an explicit number, `logs` does not report that earlier lines are missing.
        assert_eq!(ended.stderr.contains("earlier log lines are not shown"), name != "logs-tail", "{args:?}: {}", ended.stderr);
    }
    let all = fixture.new_laptop("all").run(&["logs", file]).await;
    assert_eq!(steps(&all.assert_exit_code(0).stdout), 170_000);
    fixture.end_ranks(None, 0);
    laptop.run(&["down", file, "--yes"]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}

/// The local copy of a log may end in the middle of a line: the rest comes from the host.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn following_logs_prints_an_unfinished_line_once_and_whole() {
    let fixture = SandboxFixture::with_hosts(1).await;
    fixture.set_payload_setup("printf 'begun\\nfirst half'; while [ ! -e \"$BENCH/more\" ]; do sleep 0.05; done; echo ', second half'\n");
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("halves", &JobSpec::default()));
    let file = path_str(&file);
    laptop.run(&["up", "-d", file]).await.assert_exit_code(0);
    wait_until("the first half", async || laptop.run(&["logs", file]).await.stdout.contains("first half").then_some(())).await;
    let (all, last) = (fixture.new_laptop("all"), fixture.new_laptop("last"));
    let mut followers = [all.start(&["logs", "-f", file, "--tail", "all"]), last.start(&["logs", "-f", file])];
    for follower in &mut followers {
        follower.wait_for_output("] begun").await;
    }
    std::fs::write(fixture.control_dir().join("more"), "").expect("written");
    for mut follower in followers {
        follower.wait_for_output("second half").await;
        follower.send_signal("INT");
        let ended = follower.wait_for_exit().await;
        let halves: Vec<&str> = ended.stdout.lines().filter(|line| line.contains("half")).collect();
        assert_eq!(halves, ["[rank 0 gpu01] first half, second half"]);
    }
    fixture.end_ranks(None, 0);
    laptop.run(&["down", file, "--yes"]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}

/// `logs -f | head`: the command ends by itself, and the ranks continue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn following_logs_ends_with_its_reader() {
    let fixture = SandboxFixture::with_hosts(1).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("reader", &JobSpec::default()));
    laptop.run(&["up", "-d", path_str(&file)]).await.assert_exit_code(0);
    fixture.wait_for_ranks(1).await;
    let (mut follower, mut stdout) = laptop.start_with_pipe(&["logs", "-f", path_str(&file)]);
    let mut byte = [0];
    stdout.read_exact(&mut byte).await.expect("a line begins");
    drop(stdout);
    let ended = tokio::time::timeout(Duration::from_secs(120), follower.wait()).await.expect("it ends").expect("its status");
    assert_eq!(ended.code(), Some(0));
    assert!(fixture.term_received_at(0).is_none());
    fixture.end_ranks(None, 0);
    laptop.run(&["down", path_str(&file), "--yes"]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}
