//! Runs of torchrun over gloo that fail for real: the first cause is named with its rank, host and kind, in the recap and in
//! `report.json`, and what the other ranks complain of is folded beneath it.
//!
//! A rank that hangs before init is in `hang.rs`, one that takes more memory than its container may in `trouble.rs`.

use serde_json::Value;

use crate::laptop::{Ended, Laptop, word};
use crate::support::{Cluster, Job};

/// A run that failed, as it was told.
struct Told {
    up: Ended,
    report: Value,
}

/// The ranks do not end because they are asked to: each has time to complain.
const PATIENT: &str = "PATIENT: \"1\"\n";

/// Runs `fail.py KIND` on four ranks, two a host. Rank 2 is the one that fails where not all do.
#[track_caller]
fn fails(cluster: &Cluster, kind: &str, env: &str) -> Told {
    let laptop = Laptop::new();
    let mut job = Job::torch("fails").command(&["/mnt/fail.py", kind]);
    job.env = env.to_owned();
    let file = cluster.inventory(&laptop, &job);
    let up = laptop.run(&["up", word(&file), "--set", "launch.master_port=auto"]);
    up.code(1).recap("FAILED");
    println!("{kind} after {:.1} s\n{}", up.took.as_secs_f64(), up.err);
    let report = std::fs::read_to_string(laptop.run_dir().join("report.json")).expect("a report");
    Told { up, report: serde_json::from_str(&report).expect("JSON") }
}

impl Told {
    /// The first finding is this one; the recap says so as `CAUSE`, and who felt it.
    #[track_caller]
    fn blames(&self, rule: &str, ranks: &[u32], hosts: &[&str], cause: &str) -> &Told {
        let first = &self.report["findings"][0];
        let found = (first["rule"].as_str(), &first["ranks"], &first["hosts"]);
        assert_eq!(found, (Some(rule), &Value::from(ranks), &Value::from(hosts)), "{}", self.report["findings"]);
        self.up.says(&format!("  CAUSE     {cause}"));
        assert!(self.report["findings"].as_array().is_some_and(|all| all.len() == 1), "{}", self.report["findings"]);
        self
    }

    /// These only felt it.
    #[track_caller]
    fn felt(&self, ranks: &[u32], words: &str) -> &Told {
        assert_eq!(self.report["findings"][0]["felt"], Value::from(ranks));
        self.up.says(&format!("  felt by   {words}"));
        self
    }

    /// It was the first to fail, by the hosts' clocks.
    #[track_caller]
    fn first(&self, words: &str) -> &Told {
        self.up.says(&format!("  FIRST     {words}"));
        self
    }
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn a_traceback_is_the_cause_and_lost_peers_are_not() {
    let cluster = Cluster::take();
    let told = fails(&cluster, "value-error", PATIENT);
    told.blames("python-exception", &[2], &["gpu02"], "rank 2 on gpu02: ValueError: expected 4 channels, got 3");
    told.felt(&[0, 1, 3], "ranks 0-1,3");
    cluster.as_before();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn a_rank_that_was_killed() {
    let cluster = Cluster::take();
    let told = fails(&cluster, "killed", PATIENT);
    told.blames("killed", &[2], &["gpu02"], "rank 2 on gpu02: it was killed (signal 9)").felt(&[0, 1, 3], "ranks 0-1,3");
    let exit = &told.report["ranks"][2]["exit"];
    assert_eq!(exit["signal"], 9, "{exit}");
    cluster.as_before();
}

/// Tier 2.
mod whole {
    use super::*;

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn a_module_that_is_missing() {
        let cluster = Cluster::take();
        let told = fails(&cluster, "missing-module", "");
        told.blames("py-module", &[2], &["gpu02"], "rank 2 on gpu02: Python cannot import flash_attn_that_is_not_there")
            .first("rank 2 on gpu02: exit 1");
        cluster.as_before();
    }

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn a_port_that_is_taken() {
        let cluster = Cluster::take();
        let told = fails(&cluster, "port-taken", "");
        told.blames("addr-in-use", &[2], &["gpu02"], "rank 2 on gpu02: a port is taken already: 29655").first("rank 2 on gpu02: exit 1");
        cluster.as_before();
    }

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn an_address_of_the_master_that_belongs_to_no_machine() {
        let cluster = Cluster::take();
        let nowhere = cluster.other_address(250);
        // The job's own: every rank fails alike.
        let told = fails(&cluster, "wrong-address", &format!("{PATIENT}NOWHERE: {nowhere}\n"));
        let all = "ranks 0-3 on gpu[01-02]: another host cannot be reached from this";
        told.blames("no-route", &[0, 1, 2, 3], &["gpu01", "gpu02"], all).up.says(&format!("one: {nowhere}"));
        // The inventory's: nothing begins.
        let laptop = Laptop::new();
        let job = Job::torch("wrong").hosts(&[format!("{{ name: gpu01, fabric_address: {nowhere} }}").as_str(), "gpu02"]);
        let up = laptop.run(&["up", word(&cluster.inventory(&laptop, &job))]);
        up.code(3).says(&format!("FAILED gpu02 preflight: reach the master: {nowhere}:")).says("cannot be reached: no route to host");
        cluster.as_before();
    }
}
