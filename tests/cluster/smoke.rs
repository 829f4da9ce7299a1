//! `check --smoke` on real hosts: real torch in a real container, gloo over real links. NCCL needs GPUs, and none is here.

use std::path::PathBuf;

use serde_json::Value;

use crate::laptop::{Ended, Laptop, Running, word};
use crate::support::{Cluster, Job};

/// Keeps what a container's root sends to the smoke's port from leaving the host; what sshd sends as `dev` passes.
const HOLD: &str = "iptables -w -I OUTPUT -p tcp --dport 29501 -m owner --uid-owner 0 -j DROP";

fn inventory(cluster: &Cluster, laptop: &Laptop, job: &Job) -> PathBuf {
    let file = cluster.inventory(laptop, job);
    let text = std::fs::read_to_string(&file).expect("an inventory").replace("gpus: all", "gpus: none");
    std::fs::write(&file, text).expect("written");
    file
}

/// The row of the smoke in `--json`: its level and all its words.
#[track_caller]
fn row(ended: &Ended) -> (String, String) {
    let value: Value = serde_json::from_str(&ended.out).unwrap_or_else(|e| panic!("{e}: {}", ended.said()));
    let row = value["checks"].as_array().and_then(|all| all.iter().find(|c| c["name"] == "smoke")).expect("a smoke");
    eprintln!("{}", row["results"]);
    (row["level"].as_str().unwrap_or_default().to_owned(), row["results"].to_string())
}

/// Waits until the smoke's master waits for others.
#[track_caller]
fn meets(check: &mut Running, laptop: &Laptop) {
    check.until("the store is open", || laptop.text("rank-0.log").contains("\"smoke\": \"store\"").then_some(()));
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn a_smoke_over_sound_hosts_measures_them() {
    let cluster = Cluster::take();
    let laptop = Laptop::new();
    let file = inventory(&cluster, &laptop, &Job::torch("smoke"));
    let ended = laptop.run(&["check", word(&file), "--smoke", "--only", "docker,leftovers", "--json"]);
    ended.code(0).says(&format!("meeting at {}:29501", cluster.address("gpu01")));
    let (level, text) = row(&ended);
    assert_eq!(level, "pass", "{}", ended.said());
    for words in ["gloo, 2 ranks, all-reduce ", "pair gpu01-gpu02 ", "B/s", "gpu01\",\"gpu02"] {
        assert!(text.contains(words), "not said: {words}: {text}");
    }
    cluster.as_before();
}

/// Tier 2.
mod whole {
    use super::*;

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn who_does_not_arrive_at_the_smoke_is_named() {
        let cluster = Cluster::take();
        let laptop = Laptop::new();
        let file = inventory(&cluster, &laptop, &Job::torch("smoke"));
        cluster.mend("gpu02");
        cluster.on("gpu02", HOLD);
        let ended = laptop.run(&["check", word(&file), "--only", "smoke", "--json"]);
        ended.code(3);
        let (level, text) = row(&ended);
        assert_eq!(level, "fail", "{}", ended.said());
        // Whose patience ends first, the master's or its own, is a matter of who began first.
        for words in ["did not arrive: ", "waiting for: gpu02", "\"hosts\":[\"gpu02\"]", "arrived; waiting for: gpu02"] {
            assert!(text.contains(words), "not said: {words}: {text}");
        }
        cluster.as_before();
    }

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn a_smoke_that_is_broken_off_leaves_nothing() {
        let cluster = Cluster::take();
        cluster.mend("gpu02");
        cluster.on("gpu02", HOLD);
        let laptop = Laptop::new();
        let file = inventory(&cluster, &laptop, &Job::torch("smoke"));
        let mut check = laptop.start(&["check", word(&file), "--only", "smoke"]);
        meets(&mut check, &laptop);
        check.signal("INT");
        check.end().code(130);
        for host in ["gpu01", "gpu02"] {
            assert_eq!(cluster.on(host, "docker ps -aq; ls -A /home/dev/.orchestrate 2>/dev/null || true").trim(), "", "on {host}");
        }
        // A laptop that dies in the middle: `down` of the same inventory takes the smoke with it.
        let other = Laptop::new();
        let file = inventory(&cluster, &other, &Job::torch("smoke"));
        let mut check = other.start(&["check", word(&file), "--only", "smoke"]);
        meets(&mut check, &other);
        check.kill();
        other.run(&["down", "--yes", word(&file)]).code(0).says("smoke.smoke");
        cluster.as_before();
    }

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn a_port_that_is_shut_to_a_host_refuses_the_smoke() {
        let cluster = Cluster::take();
        let laptop = Laptop::new();
        let file = inventory(&cluster, &laptop, &Job::torch("smoke"));
        cluster.fault("gpu01", &["drop-port", "29501"]);
        let ended = laptop.run(&["check", word(&file), "--only", "smoke"]);
        ended.code(3).says("FAIL  smoke: gpu02: it could not begin").says("29501");
        cluster.as_before();
    }
}
