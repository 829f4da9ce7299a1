//! Connections break while a log of 50 MB arrives: no byte is lost or duplicated.

use crate::laptop::{Laptop, path_str, sha256_hex, wait_until};
use crate::support::{Cluster, JobSpec};

const LOG_PIECES: u64 = 10;

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn log_survives_five_cuts_and_sshd_restart() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let job = JobSpec::busybox("flood").with_command(&["/bin/sh", "/mnt/flood.sh"]);
    let file = cluster.write_inventory(&laptop, &job);
    let mut up = laptop.start(&["up", path_str(&file)]);
    let dirs = ["gpu01", "gpu02"].map(|host| cluster.run_file_prefix(host, "dev", "flood"));
    let size = |rank: usize| {
        let run = laptop.run_dirs().pop()?;
        std::fs::metadata(run.join(format!("logs/rank-{rank}.log"))).ok().map(|m| m.len())
    };
    // Only the first host writes much; the second host loses its connections as well.
    cluster.write_control_file(&["gpu02"], "flood", "piece.0", "x");
    for piece in 0..LOG_PIECES {
        let before = size(0).unwrap_or(0);
        cluster.write_control_file(&["gpu01"], "flood", &format!("piece.{piece}"), "x");
        up.wait_until("bytes of the piece arrive", || (size(0).unwrap_or(0) > before).then_some(()));
        match piece {
            1 | 2 | 4 | 6 | 8 => cluster.inject_fault("gpu01", &["cut-ssh"]),
            3 => cluster.inject_fault("gpu02", &["cut-ssh"]),
            5 => cluster.inject_fault("gpu01", &["restart-sshd", "--sessions"]),
            _ => {}
        }
    }
    for piece in 1..LOG_PIECES {
        cluster.write_control_file(&["gpu02"], "flood", &format!("piece.{piece}"), "x");
    }
    let sums: Vec<String> = (["gpu01", "gpu02"].iter().zip(&dirs).enumerate())
        .map(|(rank, (host, dir))| {
            let log = format!("{dir}rank-{rank}.0.log");
            wait_until("everything is written", || cluster.exec_on(host, &format!("tail -n 1 {log}")).contains("wrote all").then_some(()));
            cluster.remote_sha256(host, &log)
        })
        .collect();
    cluster.write_control_file(&["gpu01", "gpu02"], "flood", "end", "x");
    let ended = up.wait_for_exit();
    ended.assert_exit_code(0).assert_recap("OK");
    for (rank, sum) in sums.iter().enumerate() {
        let log = laptop.read_log(&format!("rank-{rank}.log"));
        assert!(log.len() > 50_000_000, "{} bytes", log.len());
        assert!(sha256_hex(&log) == *sum, "the copy of rank {rank}'s log differs");
    }
    assert!(
        ended.stderr.contains("no connection: ") && ended.stderr.contains("reconnected"),
        "a lost connection is reported\n{}",
        ended.transcript()
    );
}
