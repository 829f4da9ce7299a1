//! Ends of every kind: a rank that fails, Ctrl-C once and twice, a laptop that goes away, and teardown from another one.

use std::time::Duration;

use crate::laptop::{Laptop, Running, sha256, until, word};
use crate::load::two_seconds;
use crate::support::{Cluster, Job};

const BOTH: [&str; 2] = ["gpu01", "gpu02"];

/// Waits until every rank of a quick job said that it is up.
#[track_caller]
fn all_up(up: &mut Running, laptop: &Laptop, ranks: u32) {
    up.until("every rank is up", || {
        (0..ranks).all(|rank| laptop.text(&format!("rank-{rank}.log")).contains(&format!("rank {rank} is up"))).then_some(())
    });
}

/// The time after `words` in a rank's log.
#[track_caller]
fn time(laptop: &Laptop, rank: u32, words: &str) -> f64 {
    let text = laptop.text(&format!("rank-{rank}.log"));
    let time = text.lines().find_map(|l| l.strip_prefix(&format!("rank {rank} {words} "))).and_then(|t| t.trim().parse().ok());
    time.unwrap_or_else(|| panic!("rank {rank} did not say {words:?}:\n{text}"))
}

/// What `runs` lists as the end of a laptop's only run.
#[track_caller]
fn lists(laptop: &Laptop, word: &str) {
    let runs = laptop.run(&["runs"]);
    let line = runs.code(0).out.lines().last().unwrap_or_default().trim_end();
    assert!(line.ends_with(&format!(" {word}")), "{}", runs.said());
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn a_failed_rank_is_named_and_the_gang_is_stopped_within_two_seconds() {
    let cluster = Cluster::take();
    let laptop = Laptop::new();
    let job = Job::torch("fails").command(&["--no_python", "/bin/sh", "/mnt/rank.sh"]);
    let file = cluster.inventory(&laptop, &job);
    let mut up = laptop.start(&["up", word(&file)]);
    all_up(&mut up, &laptop, 4);
    cluster.order(&BOTH, "fails", "go.3", "7");
    let ended = up.end();
    ended.code(1).recap("FAILED").says("rank 3 on gpu02: exit 7").says("| rank 3 ends with 7");
    lists(&laptop, "FAILED");
    let died = time(&laptop, 3, "ends with 7 at");
    #[expect(clippy::cast_precision_loss, reason = "some seconds")]
    let soon = two_seconds() as f64 / 1000.0;
    for rank in 0..3 {
        let after = time(&laptop, rank, "saw TERM at") - died;
        assert!((0.0..=soon).contains(&after), "rank {rank} saw TERM {after:.3} s after the death, {soon:.1} s allowed");
    }
    cluster.as_before();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn one_interrupt_stops_with_grace() {
    let cluster = Cluster::take();
    let laptop = Laptop::new();
    let file = cluster.inventory(&laptop, &Job::quick("once"));
    let mut up = laptop.start(&["up", word(&file)]);
    all_up(&mut up, &laptop, 2);
    up.signal("INT");
    let ended = up.end();
    ended.code(130).recap("STOPPED");
    lists(&laptop, "STOPPED");
    for rank in 0..2 {
        assert!(laptop.text(&format!("rank-{rank}.log")).contains("saw TERM"), "rank {rank} was asked to end");
    }
    cluster.as_before();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn a_detached_run_is_fetched_and_cleared_from_a_laptop_that_never_saw_it() {
    let cluster = Cluster::take();
    let (first, second) = (Laptop::new(), Laptop::new());
    let job = Job::quick("away");
    let file = cluster.inventory(&first, &job);
    first.run(&["up", "-d", word(&file)]).code(0).recap("DETACHED");
    lists(&first, "DETACHED");
    cluster.order(&BOTH, "away", "go", "0");
    let mut sums = Vec::new();
    for (rank, host) in BOTH.iter().enumerate() {
        let dir = cluster.run_dir(host, "dev", "away");
        let log = format!("{dir}rank-{rank}.0");
        until("the rank has ended", || cluster.on(host, &format!("[ -e {log}.rc ] && echo yes || true")).starts_with("yes").then_some(()));
        sums.push((format!("rank-{rank}.log"), cluster.sha256(host, &format!("{log}.log"))));
        sums.push((format!("node-{rank}.log"), cluster.sha256(host, &format!("{dir}node.log"))));
    }
    let file = cluster.inventory(&second, &job);
    second.run(&["down", "--yes", word(&file)]).code(0);
    for (log, sum) in sums {
        assert!(sha256(&second.log(&log)) == sum, "{log} differs: {:?}", String::from_utf8_lossy(&second.log(&log)));
    }
    assert!(second.text("rank-1.log").contains("rank 1 ends with 0"));
    cluster.as_before();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn a_killed_laptop_changes_nothing_for_the_ranks_and_another_one_takes_over() {
    let cluster = Cluster::take();
    let (first, second) = (Laptop::new(), Laptop::new());
    let job = Job::quick("killed");
    let file = cluster.inventory(&first, &job);
    let mut up = first.start(&["up", word(&file)]);
    all_up(&mut up, &first, 2);
    up.kill();
    lists(&first, "end not seen from this laptop");
    let file = cluster.inventory(&second, &job);
    let ps = second.run(&["ps", "--progress", "json", word(&file)]);
    ps.code(0);
    assert_eq!(ps.out.matches("\"ranks\":\"1 running\"").count(), 2, "{}", ps.said());
    second.run(&["logs", word(&file)]).code(0).says("rank 0 is up on gpu01").says("rank 1 is up on gpu02");
    // Whoever attaches sees all from the beginning, and leaves it running.
    let third = Laptop::new();
    let file = cluster.inventory(&third, &job);
    let mut attach = third.start(&["attach", word(&file)]);
    all_up(&mut attach, &third, 2);
    attach.signal("INT");
    attach.end().code(130);
    let mut attach = second.start(&["attach", word(&file)]);
    attach.says("2 ranks on 2 hosts");
    cluster.order(&BOTH, "killed", "go", "0");
    attach.end().code(0).recap("OK");
    lists(&second, "OK");
    assert!(second.text("rank-0.log").contains("rank 0 ends with 0"));
    second.run(&["down", word(&file)]).code(0);
    cluster.as_before();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn a_closed_terminal_detaches_and_down_stops_what_runs() {
    let cluster = Cluster::take();
    let laptop = Laptop::new();
    let file = cluster.inventory(&laptop, &Job::quick("hangup"));
    let mut up = laptop.start(&["up", word(&file)]);
    all_up(&mut up, &laptop, 2);
    up.signal("HUP");
    up.end().code(129).recap("DETACHED");
    lists(&laptop, "DETACHED");
    let ps = laptop.run(&["ps", "--progress", "json", word(&file)]);
    assert_eq!(ps.out.matches("\"ranks\":\"1 running\"").count(), 2, "{}", ps.said());
    laptop.run(&["down", word(&file)]).code(0);
    lists(&laptop, "STOPPED");
    for rank in 0..2 {
        assert!(laptop.text(&format!("rank-{rank}.log")).contains("saw TERM"), "what a rank says at its end is fetched");
    }
    cluster.as_before();
}

/// Tier 2.
mod whole {
    use super::*;

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn two_interrupts_kill() {
        let cluster = Cluster::take();
        let laptop = Laptop::new();
        let mut job = Job::quick("twice");
        job.env = "DEAF: '0 1'".to_owned();
        job.grace = "100s";
        let file = cluster.inventory(&laptop, &job);
        let mut up = laptop.start(&["up", word(&file)]);
        all_up(&mut up, &laptop, 2);
        up.signal("INT");
        up.until("both ranks were asked to end", || {
            (0..2).all(|rank| laptop.text(&format!("rank-{rank}.log")).contains("is deaf")).then_some(())
        });
        up.signal("INT");
        let ended = up.end();
        ended.code(130).recap("STOPPED");
        assert!(ended.took < Duration::from_secs(90), "nobody waited for the grace: {:?}", ended.took);
        cluster.as_before();
    }
}
