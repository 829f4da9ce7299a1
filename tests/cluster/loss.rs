//! Connections that break while a log of 50 MB comes in: not a byte is lost or doubled.

use crate::laptop::{Laptop, sha256, until, word};
use crate::support::{Cluster, Job};

const PIECES: u64 = 10;

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn a_log_of_50_mb_is_whole_after_five_cuts_and_a_restarted_sshd() {
    let cluster = Cluster::take();
    let laptop = Laptop::new();
    let job = Job::quick("flood").command(&["/bin/sh", "/mnt/flood.sh"]);
    let file = cluster.inventory(&laptop, &job);
    let mut up = laptop.start(&["up", word(&file)]);
    let dirs = ["gpu01", "gpu02"].map(|host| cluster.run_dir(host, "dev", "flood"));
    let size = |rank: usize| {
        let run = laptop.runs().pop()?;
        std::fs::metadata(run.join(format!("logs/rank-{rank}.log"))).ok().map(|m| m.len())
    };
    // Only the first host writes much; the second one loses its connections as well.
    cluster.order(&["gpu02"], "flood", "piece.0", "x");
    for piece in 0..PIECES {
        let before = size(0).unwrap_or(0);
        cluster.order(&["gpu01"], "flood", &format!("piece.{piece}"), "x");
        up.until("bytes of the piece come in", || (size(0).unwrap_or(0) > before).then_some(()));
        match piece {
            1 | 2 | 4 | 6 | 8 => cluster.fault("gpu01", &["cut-ssh"]),
            3 => cluster.fault("gpu02", &["cut-ssh"]),
            5 => cluster.fault("gpu01", &["restart-sshd", "--sessions"]),
            _ => {}
        }
    }
    for piece in 1..PIECES {
        cluster.order(&["gpu02"], "flood", &format!("piece.{piece}"), "x");
    }
    let sums: Vec<String> = (["gpu01", "gpu02"].iter().zip(&dirs).enumerate())
        .map(|(rank, (host, dir))| {
            let log = format!("{dir}rank-{rank}.0.log");
            until("all is written", || cluster.on(host, &format!("tail -n 1 {log}")).contains("wrote all").then_some(()));
            cluster.sha256(host, &log)
        })
        .collect();
    cluster.order(&["gpu01", "gpu02"], "flood", "end", "x");
    let ended = up.end();
    ended.code(0).recap("OK");
    for (rank, sum) in sums.iter().enumerate() {
        let log = laptop.log(&format!("rank-{rank}.log"));
        assert!(log.len() > 50_000_000, "{} bytes", log.len());
        assert!(sha256(&log) == *sum, "the copy of rank {rank}'s log differs");
    }
    assert!(ended.err.contains("again") || ended.err.contains("lost"), "a lost connection is told\n{}", ended.said());
    cluster.as_before();
}
