//! `check --smoke` on real hosts: real torch in a real container, gloo over real links. NCCL needs GPUs, which these hosts lack.

use std::path::PathBuf;

use serde_json::Value;

use crate::laptop::{CliOutput, CliProcess, Laptop, path_str};
use crate::support::{Cluster, JobSpec};

/// Drops packets of a container's root to the smoke test's port; packets of sshd as user `dev` pass.
const BLOCK_SMOKE_PORT: &str = "iptables -w -I OUTPUT -p tcp --dport 29501 -m owner --uid-owner 0 -j DROP";

fn write_cpu_inventory(cluster: &Cluster, laptop: &Laptop, job: &JobSpec) -> PathBuf {
    let file = cluster.write_inventory(laptop, job);
    let text = std::fs::read_to_string(&file).expect("an inventory").replace("gpus: all", "gpus: none");
    std::fs::write(&file, text).expect("written");
    file
}

/// The smoke test's row in `--json`: its level and all its texts.
#[track_caller]
fn smoke_row(ended: &CliOutput) -> (String, String) {
    let value: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {}", ended.transcript()));
    let row = value["checks"].as_array().and_then(|all| all.iter().find(|c| c["name"] == "smoke")).expect("a smoke");
    eprintln!("{}", row["results"]);
    (row["level"].as_str().unwrap_or_default().to_owned(), row["results"].to_string())
}

/// Waits until the smoke test's master waits for others.
#[track_caller]
fn wait_for_smoke_store(check: &mut CliProcess, laptop: &Laptop) {
    check.wait_until("the store is open", || laptop.read_log_text("rank-0.log").contains("\"smoke\": \"store\"").then_some(()));
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn smoke_measures_healthy_hosts() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let file = write_cpu_inventory(&cluster, &laptop, &JobSpec::torch("smoke"));
    let ended = laptop.run(&["check", path_str(&file), "--smoke", "--only", "docker,leftovers", "--json"]);
    ended.assert_exit_code(0).assert_contains(&format!("rendezvous at {}:29501", cluster.host_address("gpu01")));
    let (level, text) = smoke_row(&ended);
    assert_eq!(level, "pass", "{}", ended.transcript());
    for words in ["gloo, 2 ranks, all-reduce ", "pair gpu01-gpu02 ", "B/s", "gpu01\",\"gpu02"] {
        assert!(text.contains(words), "missing in the output: {words}: {text}");
    }
}

/// Tier 2.
mod whole {
    use super::*;

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn missing_smoke_rank_is_named() {
        let cluster = Cluster::acquire();
        let laptop = Laptop::new();
        let file = write_cpu_inventory(&cluster, &laptop, &JobSpec::torch("smoke"));
        cluster.mark_for_healing("gpu02");
        cluster.exec_on("gpu02", BLOCK_SMOKE_PORT);
        let ended = laptop.run(&["check", path_str(&file), "--only", "smoke", "--json"]);
        ended.assert_exit_code(3);
        let (level, text) = smoke_row(&ended);
        assert_eq!(level, "fail", "{}", ended.transcript());
        // The master and the other rank start at different times, so either may time out first.
        for words in ["did not arrive: ", "waiting for: gpu02", "\"hosts\":[\"gpu02\"]", "arrived; waiting for: gpu02"] {
            assert!(text.contains(words), "missing in the output: {words}: {text}");
        }
        cluster.assert_hosts_unchanged();
    }

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn interrupted_smoke_leaves_nothing() {
        let cluster = Cluster::acquire();
        cluster.mark_for_healing("gpu02");
        cluster.exec_on("gpu02", BLOCK_SMOKE_PORT);
        let laptop = Laptop::new();
        let file = write_cpu_inventory(&cluster, &laptop, &JobSpec::torch("smoke"));
        let mut check = laptop.start(&["check", path_str(&file), "--only", "smoke"]);
        wait_for_smoke_store(&mut check, &laptop);
        check.send_signal("INT");
        check.wait_for_exit().assert_exit_code(130);
        for host in ["gpu01", "gpu02"] {
            assert_eq!(cluster.exec_on(host, "docker ps -aq; ls -A /home/dev/.orchestrate 2>/dev/null || true").trim(), "", "on {host}");
        }
        // The laptop dies during the test: `down` of the same inventory removes the smoke test.
        let other = Laptop::new();
        let file = write_cpu_inventory(&cluster, &other, &JobSpec::torch("smoke"));
        let mut check = other.start(&["check", path_str(&file), "--only", "smoke"]);
        wait_for_smoke_store(&mut check, &other);
        check.kill();
        other.run(&["down", "--yes", path_str(&file)]).assert_exit_code(0).assert_contains("smoke.smoke");
        cluster.assert_hosts_unchanged();
    }

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn blocked_port_fails_the_smoke_test() {
        let cluster = Cluster::acquire();
        let laptop = Laptop::new();
        let file = write_cpu_inventory(&cluster, &laptop, &JobSpec::torch("smoke"));
        cluster.inject_fault("gpu01", &["drop-port", "29501"]);
        let ended = laptop.run(&["check", path_str(&file), "--only", "smoke"]);
        ended.assert_exit_code(3).assert_contains("FAIL  smoke: gpu02: could not start").assert_contains("29501");
        cluster.assert_hosts_unchanged();
    }
}
