//! Torchrun over gloo fails for real: the recap and `report.json` name the first cause with its rank, host and kind, and fold the
//! complaints of the other ranks beneath it.
//!
//! `hang.rs` has the rank that hangs before init, `faulty_hosts.rs` the one that exceeds its container's memory.

use serde_json::Value;

use crate::laptop::{CliOutput, Laptop, path_str};
use crate::support::{Cluster, JobSpec};

/// A failed run and its report.
struct FailedRun {
    up: CliOutput,
    report: Value,
}

/// The ranks do not exit on request, so that each has time to complain.
const PATIENT_ENV: &str = "PATIENT: \"1\"\n";

/// Runs `fail.py KIND` on four ranks, two per host. Rank 2 fails unless all ranks do.
#[track_caller]
fn run_failing_job(cluster: &Cluster, kind: &str, env: &str) -> FailedRun {
    let laptop = Laptop::new();
    let mut job = JobSpec::torch("fails").with_command(&["/mnt/fail.py", kind]);
    job.env = env.to_owned();
    let file = cluster.write_inventory(&laptop, &job);
    let up = laptop.run(&["up", path_str(&file), "--set", "launch.master_port=auto"]);
    up.assert_exit_code(1).assert_recap("FAILED");
    println!("{kind} after {:.1} s\n{}", up.elapsed.as_secs_f64(), up.stderr);
    let report = std::fs::read_to_string(laptop.only_run_dir().join("report.json")).expect("a report");
    FailedRun { up, report: serde_json::from_str(&report).expect("JSON") }
}

impl FailedRun {
    /// This is the first and only finding, and the recap shows it as `CAUSE`.
    #[track_caller]
    fn assert_cause(&self, rule: &str, ranks: &[u32], hosts: &[&str], cause: &str) -> &FailedRun {
        let first = &self.report["findings"][0];
        let found = (first["rule"].as_str(), &first["ranks"], &first["hosts"]);
        assert_eq!(found, (Some(rule), &Value::from(ranks), &Value::from(hosts)), "{}", self.report["findings"]);
        self.up.assert_contains(&format!("  CAUSE     {cause}"));
        assert!(self.report["findings"].as_array().is_some_and(|all| all.len() == 1), "{}", self.report["findings"]);
        self
    }

    /// These ranks are affected, and not the cause.
    #[track_caller]
    fn assert_affected(&self, ranks: &[u32], words: &str) -> &FailedRun {
        assert_eq!(self.report["findings"][0]["affected"], Value::from(ranks));
        self.up.assert_contains(&format!("  affected  {words}"));
        self
    }

    /// This rank failed first by the hosts' clocks.
    #[track_caller]
    fn assert_first_exit(&self, words: &str) -> &FailedRun {
        self.up.assert_contains(&format!("  FIRST     {words}"));
        self
    }
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn traceback_is_the_cause_not_lost_peers() {
    let cluster = Cluster::acquire();
    let output = run_failing_job(&cluster, "value-error", PATIENT_ENV);
    output.assert_cause("python-exception", &[2], &["gpu02"], "rank 2 on gpu02: ValueError: expected 4 channels, got 3");
    output.assert_affected(&[0, 1, 3], "ranks 0-1,3");
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn killed_rank_is_the_cause() {
    let cluster = Cluster::acquire();
    let output = run_failing_job(&cluster, "killed", PATIENT_ENV);
    output.assert_cause("killed", &[2], &["gpu02"], "rank 2 on gpu02: it was killed (signal 9)").assert_affected(&[0, 1, 3], "ranks 0-1,3");
    let exit = &output.report["ranks"][2]["exit"];
    assert_eq!(exit["signal"], 9, "{exit}");
}

/// Tier 2.
mod whole {
    use super::*;

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn missing_module_is_the_cause() {
        let cluster = Cluster::acquire();
        let output = run_failing_job(&cluster, "missing-module", "");
        output
            .assert_cause("py-module", &[2], &["gpu02"], "rank 2 on gpu02: Python cannot import flash_attn_that_is_not_there")
            .assert_first_exit("rank 2 on gpu02: exit 1");
        cluster.assert_hosts_unchanged();
    }

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn taken_port_is_the_cause() {
        let cluster = Cluster::acquire();
        let output = run_failing_job(&cluster, "port-taken", "");
        output
            .assert_cause("addr-in-use", &[2], &["gpu02"], "rank 2 on gpu02: a port is already in use: 29655")
            .assert_first_exit("rank 2 on gpu02: exit 1");
        cluster.assert_hosts_unchanged();
    }

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn unreachable_master_address_is_reported() {
        let cluster = Cluster::acquire();
        let nowhere = cluster.network_address(250);
        // A fault of the job: every rank fails alike.
        let output = run_failing_job(&cluster, "wrong-address", &format!("{PATIENT_ENV}NOWHERE: {nowhere}\n"));
        let all = "ranks 0-3 on gpu[01-02]: another host is unreachable from this";
        output.assert_cause("no-route", &[0, 1, 2, 3], &["gpu01", "gpu02"], all).up.assert_contains(&format!("one: {nowhere}"));
        // A fault of the inventory: nothing starts.
        let laptop = Laptop::new();
        let job = JobSpec::torch("wrong").with_hosts(&[format!("{{ name: gpu01, fabric_address: {nowhere} }}").as_str(), "gpu02"]);
        let up = laptop.run(&["up", path_str(&cluster.write_inventory(&laptop, &job))]);
        up.assert_exit_code(3)
            .assert_contains(&format!("FAILED gpu02 preflight: reach the master: {nowhere}:"))
            .assert_contains("is unreachable: no route to host");
        cluster.assert_hosts_unchanged();
    }
}
