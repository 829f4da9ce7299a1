//! The log appender under real ranks, in a container and on a bare host: every byte arrives in order, or its loss is counted.

use std::collections::BTreeMap;

use crate::laptop::{Laptop, path_str, sha256_hex, wait_until};
use crate::support::{Cluster, JobSpec};

/// One host, and one rank for each way to lose output elsewhere. The last rank ends by a signal, after the others.
const RANK_SCRIPT: &str = r#"
files=${ORCH_RUN_DIR%.in/*}.out/$ORCH_RUN_ID. ctl=$SUITE/ctl/$ORCH_NAME
await() { until [ -e "$1" ]; do sleep 0.05; done; }
case $RANK in
0) # Reopens its output in each way that programs know.
  seq 1 50000; echo 50001 >/dev/stderr; echo 50002 >/dev/stdout; echo 50003 | tee /dev/stderr >/dev/null; seq 50004 60000 >&2
  echo 60001 >/proc/self/fd/2; seq 60002 69999; echo 70000 | tee /dev/stdout ;;
1) # Moves its output to a file.
  echo before; exec >"/tmp/$ORCH_NAME.moved" 2>&1; echo away; rm -f "/tmp/$ORCH_NAME.moved" ;;
2) # Leaves the pipe to a process that lives longer and still writes.
  (sleep 0.3; echo late; exec sleep 600) & echo early ;;
3) # Its appender is killed in the midst of a flood.
  seq 100000 1299999 & flood=$!
  until [ -s "${files}rank-3.0.log" ]; do :; done
  for p in /proc/[0-9]*; do
    [ "$(readlink "$p/fd/1")" = "${files}rank-3.0.log" ] && [ "$(cat "$p/comm")" = dd ] && kill -9 "${p#/proc/}" && killed=1 && break
  done
  wait "$flood"
  [ -n "$killed" ] || exit 9 ;;
4) # The disk is full for a while.
  for r in 0 1 2 3; do await "${files}rank-$r.0.rc"; done
  seq 100000 199999; await "$ctl/full"; seq 200000 799999; : >"${files}flooded"; await "$ctl/room"; seq 800000 899999 ;;
5) # Ends by a signal, in the middle of a line.
  await "${files}rank-4.0.rc"; printf 'last words'; ulimit -c 0; kill -SEGV $$ ;;
esac
"#;

/// What `seq` prints.
fn seq_output(from: u32, to: u32) -> String {
    (from..=to).map(|n| format!("{n}\n")).collect()
}

/// The smallest and the largest reported loss of a rank's log, summed over all places: the last report of a place counts.
#[track_caller]
fn reported_loss_range(laptop: &Laptop, rank: u32, why: &str) -> (usize, usize) {
    let journal = std::fs::read_to_string(laptop.only_run_dir().join("journal.jsonl")).expect("a journal");
    let head = format!("rank {rank}'s log lacks ");
    let mut places: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for line in journal.lines().filter(|line| line.contains(why)) {
        let Some((numbers, rest)) = line.split_once(&head).and_then(|(_, rest)| rest.split_once(" bytes from byte ")) else { continue };
        let (least, most) = numbers.split_once(" to ").unwrap_or((numbers, numbers));
        let offset = rest.split(' ').next().unwrap_or_default().to_owned();
        places.insert(offset, (least.parse().expect("a number"), most.parse().expect("a number")));
    }
    assert!(!places.is_empty(), "the loss of rank {rank} is not reported: {why}");
    places.values().fold((0, 0), |sum, (least, most)| (sum.0 + least, sum.1 + most))
}

/// The copy equals the written bytes except for one gap of at most `most` bytes.
#[track_caller]
fn assert_single_gap(copy: &[u8], written: &[u8], most: usize) {
    let missing = written.len() - copy.len();
    assert!(missing <= most, "{missing} bytes are missing, {most} at most were announced");
    let head = copy.iter().zip(written).take_while(|(a, b)| a == b).count();
    let tail = copy.iter().rev().zip(written.iter().rev()).take_while(|(a, b)| a == b).count();
    assert!(head + tail >= copy.len(), "more than one gap: {head} bytes, and {tail} at the end, of {}", copy.len());
}

/// Launches once on one host and checks every rank's log.
#[track_caller]
fn assert_bytes_or_reported_loss(cluster: &Cluster, job: &JobSpec, host: &str) {
    let laptop = Laptop::new();
    cluster.inject_fault(host, &["small-disk", "/home/dev", "1200m"]);
    cluster.inject_fault(host, &["gpus", "6"]);
    let file = cluster.write_inventory(&laptop, job);
    let mut up = laptop.start(&["up", "--progress", "quiet", path_str(&file)]);
    let first = seq_output(100_000, 199_999);
    up.wait_until("rank 4 has written its first lines", || (laptop.read_log_text("rank-4.log") == first).then_some(()));
    let files = cluster.run_file_prefix(host, "dev", job.name);
    cluster.exec_on(host, "used=$(df -k /home/dev | tail -n 1 | awk '{ print $3 }'); mount -o remount,size=$((used + 512))k /home/dev");
    cluster.write_control_file(&[host], job.name, "full", "now");
    let flooded = || cluster.exec_on(host, &format!("ls {files}flooded 2>/dev/null || true"));
    wait_until("the rank has written its flood", || (!flooded().is_empty()).then_some(()));
    cluster.exec_on(host, "mount -o remount,size=1200m /home/dev");
    cluster.write_control_file(&[host], job.name, "room", "now");
    let up = up.wait_for_exit();
    up.assert_exit_code(1).assert_contains("rank 5 on").assert_contains("signal 11");

    let expected = format!("{}70000\n70000\n", seq_output(1, 69_999));
    assert_eq!(sha256_hex(&laptop.read_log("rank-0.log")), sha256_hex(expected.as_bytes()), "rank 0");
    assert_eq!(laptop.read_log_text("rank-1.log"), "before\n");
    assert_eq!(laptop.read_log_text("rank-2.log"), "early\nlate\n");
    let (_, most) = reported_loss_range(&laptop, 3, "the appender was killed");
    assert!(most <= 65_536, "{most}");
    assert_single_gap(&laptop.read_log("rank-3.log"), seq_output(100_000, 1_299_999).as_bytes(), most);
    let (least, most) = reported_loss_range(&laptop, 4, "the disk took no more");
    assert!(least > 0 && most - least <= 65_536, "{least} to {most}");
    let whole = seq_output(100_000, 899_999);
    let copy = laptop.read_log("rank-4.log");
    assert_single_gap(&copy, whole.as_bytes(), most);
    assert!(whole.len() - copy.len() >= least, "{least} bytes are counted as lost");
    assert!(copy.ends_with(seq_output(800_000, 899_999).as_bytes()), "the lines after the full disk arrived");
    // The wrapper's shell adds the name of the signal.
    assert!(laptop.read_log_text("rank-5.log").starts_with("last words"), "{:?}", laptop.read_log_text("rank-5.log"));
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn container_log_bytes_arrive_or_loss_counted() {
    let cluster = Cluster::acquire();
    let mut job = JobSpec::busybox("appender").with_hosts(&["gpu02"]).with_command(&["/bin/sh", "-c", RANK_SCRIPT]);
    (job.launcher, job.nproc_per_node) = ("processes", 6);
    assert_bytes_or_reported_loss(&cluster, &job, "gpu02");
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn bare_host_log_bytes_arrive_or_loss_counted() {
    let cluster = Cluster::acquire();
    let mut job =
        JobSpec::busybox("appender-bare").with_hosts(&["gpu03"]).without_container().with_command(&["/bin/sh", "-c", RANK_SCRIPT]);
    (job.launcher, job.nproc_per_node) = ("processes", 6);
    assert_bytes_or_reported_loss(&cluster, &job, "gpu03");
}
