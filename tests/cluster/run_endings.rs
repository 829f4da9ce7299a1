//! All ways for a run to end: a rank that fails, one and two Ctrl-C, a laptop that goes away, and teardown from another laptop.

use std::time::Duration;

use crate::laptop::{CliProcess, Laptop, path_str, sha256_hex, wait_until};
use crate::load_scaling::two_seconds_under_load;
use crate::support::{Cluster, JobSpec};

const BOTH_HOSTS: [&str; 2] = ["gpu01", "gpu02"];

/// Waits until every rank of a short job reports that it is up.
#[track_caller]
fn wait_for_all_ranks(up: &mut CliProcess, laptop: &Laptop, ranks: u32) {
    up.wait_until("every rank is up", || {
        (0..ranks).all(|rank| laptop.read_log_text(&format!("rank-{rank}.log")).contains(&format!("rank {rank} is up"))).then_some(())
    });
}

/// The time after `words` in a rank's log.
#[track_caller]
fn rank_log_time(laptop: &Laptop, rank: u32, words: &str) -> f64 {
    let text = laptop.read_log_text(&format!("rank-{rank}.log"));
    let time = text.lines().find_map(|l| l.strip_prefix(&format!("rank {rank} {words} "))).and_then(|t| t.trim().parse().ok());
    time.unwrap_or_else(|| panic!("rank {rank} did not print {words:?}:\n{text}"))
}

/// The outcome that `runs` lists for a laptop's only run.
#[track_caller]
fn assert_last_listed_outcome(laptop: &Laptop, word: &str) {
    let runs = laptop.run(&["runs"]);
    let line = runs.assert_exit_code(0).stdout.lines().last().unwrap_or_default().trim_end();
    let outcome = format!(" {word}");
    assert!(if word.ends_with(' ') { line.contains(&outcome) } else { line.ends_with(&outcome) }, "{}", runs.transcript());
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn failed_rank_stops_gang_within_two_seconds() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let job = JobSpec::torch("fails").with_command(&["--no_python", "/bin/sh", "/mnt/rank.sh"]);
    let file = cluster.write_inventory(&laptop, &job);
    let mut up = laptop.start(&["up", path_str(&file)]);
    wait_for_all_ranks(&mut up, &laptop, 4);
    cluster.write_control_file(&BOTH_HOSTS, "fails", "go.3", "7");
    let ended = up.wait_for_exit();
    ended.assert_exit_code(1).assert_recap("FAILED").assert_contains("rank 3 on gpu02: exit 7").assert_contains("| rank 3 ends with 7");
    assert_last_listed_outcome(&laptop, "FAILED");
    let died = rank_log_time(&laptop, 3, "ends with 7 at");
    let soon = two_seconds_under_load() as f64 / 1000.0;
    for rank in 0..3 {
        let after = rank_log_time(&laptop, rank, "saw TERM at") - died;
        assert!((0.0..=soon).contains(&after), "rank {rank} saw TERM {after:.3} s after the death, {soon:.1} s allowed");
    }
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn single_interrupt_stops_gracefully() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let file = cluster.write_inventory(&laptop, &JobSpec::busybox("once"));
    let mut up = laptop.start(&["up", path_str(&file)]);
    wait_for_all_ranks(&mut up, &laptop, 2);
    up.send_signal("INT");
    let ended = up.wait_for_exit();
    ended.assert_exit_code(130).assert_recap("STOPPED");
    assert_last_listed_outcome(&laptop, "STOPPED");
    for rank in 0..2 {
        assert!(laptop.read_log_text(&format!("rank-{rank}.log")).contains("saw TERM"), "rank {rank} was asked to end");
    }
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn second_laptop_fetches_and_tears_down_detached_run() {
    let cluster = Cluster::acquire();
    let (first, second) = (Laptop::new(), Laptop::new());
    let job = JobSpec::busybox("away");
    let file = cluster.write_inventory(&first, &job);
    first.run(&["up", "-d", path_str(&file)]).assert_exit_code(0).assert_recap("DETACHED");
    assert_last_listed_outcome(&first, "DETACHED");
    cluster.write_control_file(&BOTH_HOSTS, "away", "go", "0");
    let mut sums = Vec::new();
    for (rank, host) in BOTH_HOSTS.iter().enumerate() {
        let dir = cluster.run_file_prefix(host, "dev", "away");
        let log = format!("{dir}rank-{rank}.0");
        wait_until("the rank has ended", || {
            cluster.exec_on(host, &format!("[ -e {log}.rc ] && echo yes || true")).starts_with("yes").then_some(())
        });
        sums.push((format!("rank-{rank}.log"), cluster.remote_sha256(host, &format!("{log}.log"))));
        sums.push((format!("node-{rank}.log"), cluster.remote_sha256(host, &format!("{dir}node.log"))));
    }
    let file = cluster.write_inventory(&second, &job);
    second.run(&["down", "--yes", path_str(&file)]).assert_exit_code(0);
    for (log, sum) in sums {
        assert!(sha256_hex(&second.read_log(&log)) == sum, "{log} differs: {:?}", String::from_utf8_lossy(&second.read_log(&log)));
    }
    assert!(second.read_log_text("rank-1.log").contains("rank 1 ends with 0"));
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn ranks_survive_killed_laptop_and_another_attaches() {
    let cluster = Cluster::acquire();
    let (first, second) = (Laptop::new(), Laptop::new());
    let job = JobSpec::busybox("killed");
    let file = cluster.write_inventory(&first, &job);
    let mut up = first.start(&["up", path_str(&file)]);
    wait_for_all_ranks(&mut up, &first, 2);
    up.kill();
    assert_last_listed_outcome(&first, "not ended when last seen, ");
    let file = cluster.write_inventory(&second, &job);
    let ps = second.run(&["ps", "--progress", "json", path_str(&file)]);
    ps.assert_exit_code(0);
    assert_eq!(ps.stdout.matches("\"ranks\":\"1 running\"").count(), 2, "{}", ps.transcript());
    second
        .run(&["logs", path_str(&file)])
        .assert_exit_code(0)
        .assert_contains("rank 0 is up on gpu01")
        .assert_contains("rank 1 is up on gpu02");
    // An attached laptop sees the whole log, and leaves the run alone.
    let third = Laptop::new();
    let file = cluster.write_inventory(&third, &job);
    let mut attach = third.start(&["attach", path_str(&file)]);
    wait_for_all_ranks(&mut attach, &third, 2);
    attach.send_signal("INT");
    attach.wait_for_exit().assert_exit_code(130);
    let mut attach = second.start(&["attach", path_str(&file)]);
    attach.wait_for_output("2 ranks on 2 hosts");
    cluster.write_control_file(&BOTH_HOSTS, "killed", "go", "0");
    attach.wait_for_exit().assert_exit_code(0).assert_recap("OK");
    assert_last_listed_outcome(&second, "OK");
    assert!(second.read_log_text("rank-0.log").contains("rank 0 ends with 0"));
    second.run(&["down", path_str(&file)]).assert_exit_code(0);
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn hangup_detaches_and_down_stops_the_run() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let file = cluster.write_inventory(&laptop, &JobSpec::busybox("hangup"));
    let mut up = laptop.start(&["up", path_str(&file)]);
    wait_for_all_ranks(&mut up, &laptop, 2);
    up.send_signal("HUP");
    up.wait_for_exit().assert_exit_code(129).assert_recap("DETACHED");
    assert_last_listed_outcome(&laptop, "DETACHED");
    let ps = laptop.run(&["ps", "--progress", "json", path_str(&file)]);
    assert_eq!(ps.stdout.matches("\"ranks\":\"1 running\"").count(), 2, "{}", ps.transcript());
    laptop.run(&["down", path_str(&file)]).assert_exit_code(0);
    assert_last_listed_outcome(&laptop, "STOPPED");
    for rank in 0..2 {
        assert!(laptop.read_log_text(&format!("rank-{rank}.log")).contains("saw TERM"), "the last lines of a rank are fetched");
    }
}

/// Tier 2.
mod whole {
    use super::*;

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn second_interrupt_kills_ranks() {
        let cluster = Cluster::acquire();
        let laptop = Laptop::new();
        let mut job = JobSpec::busybox("twice");
        job.env = "DEAF: '0 1'".to_owned();
        job.stop_grace = "100s";
        let file = cluster.write_inventory(&laptop, &job);
        let mut up = laptop.start(&["up", path_str(&file)]);
        wait_for_all_ranks(&mut up, &laptop, 2);
        up.send_signal("INT");
        up.wait_until("both ranks received TERM", || {
            (0..2).all(|rank| laptop.read_log_text(&format!("rank-{rank}.log")).contains("is deaf")).then_some(())
        });
        up.send_signal("INT");
        let ended = up.wait_for_exit();
        ended.assert_exit_code(130).assert_recap("STOPPED");
        assert!(ended.elapsed < Duration::from_secs(90), "the second Ctrl-C does not wait for the grace period: {:?}", ended.elapsed);
        cluster.assert_hosts_unchanged();
    }
}
