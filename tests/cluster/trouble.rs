//! Hosts that are not as they should be: each trouble has words of its own and the right exit code, and nothing is left.

use crate::laptop::{Ended, Laptop, until, word};
use crate::support::{Cluster, Job};

/// Runs `up` of a job that cannot begin; what it said.
#[track_caller]
fn refused(cluster: &Cluster, job: &Job, code: i32) -> Ended {
    let laptop = Laptop::new();
    let file = cluster.inventory(&laptop, job);
    let up = laptop.run(&["up", word(&file)]);
    up.code(code);
    up
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn docker_is_killed_while_ranks_run() {
    let cluster = Cluster::take();
    let laptop = Laptop::new();
    let file = cluster.inventory(&laptop, &Job::quick("daemon"));
    laptop.run(&["up", "-d", word(&file)]).code(0);
    cluster.fault("gpu02", &["kill-dockerd"]);
    let down = laptop.run(&["down", "--yes", word(&file)]);
    down.code(5).says("gpu02").says("docker");
    cluster.fault("gpu02", &["start-dockerd"]);
    laptop.run(&["down", "--yes", word(&file)]).code(0);
    cluster.as_before();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn a_user_who_may_not_use_docker() {
    let cluster = Cluster::take();
    refused(&cluster, &Job::quick("plain").user("plain"), 3).says("permission denied").says("usermod -aG docker plain");
    cluster.as_before();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn an_image_that_is_not_there() {
    let cluster = Cluster::take();
    let mut job = Job::quick("noimage");
    job.image = Some("orchestrate-nowhere:test".to_owned());
    refused(&cluster, &job, 3).says("orchestrate-nowhere:test is not on").says("set container.pull");
    cluster.as_before();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn a_full_disk() {
    let cluster = Cluster::take();
    cluster.fault("gpu02", &["small-disk", "/home/dev", "1m"]);
    refused(&cluster, &Job::quick("full"), 3).says("gpu02").says("free");
    cluster.as_before();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn a_name_that_a_foreign_container_has() {
    let cluster = Cluster::take();
    cluster.on("gpu02", "docker run -d --network host --name orch-taken-gpu02 --entrypoint sleep orchestrate-busybox:test 1000 >/dev/null");
    refused(&cluster, &Job::quick("taken"), 3).says("orch-taken-gpu02").says("not ours");
    let laptop = Laptop::new();
    let file = cluster.inventory(&laptop, &Job::quick("taken"));
    laptop.run(&["down", "--yes", word(&file)]).code(0);
    assert_eq!(cluster.on("gpu02", "docker inspect -f '{{.State.Running}}' orch-taken-gpu02").trim(), "true", "it is not ours to touch");
    cluster.on("gpu02", "docker rm -f orch-taken-gpu02 >/dev/null");
    cluster.as_before();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn a_port_that_is_busy() {
    let cluster = Cluster::take();
    cluster.fault("gpu01", &["busy-port", "29500"]);
    refused(&cluster, &Job::quick("busy"), 3).says("29500").says("gpu01");
    cluster.as_before();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn a_port_behind_a_firewall() {
    let cluster = Cluster::take();
    cluster.fault("gpu01", &["drop-port", "29500"]);
    refused(&cluster, &Job::quick("wall"), 3).says("29500").says("gpu02");
    cluster.as_before();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn a_host_that_does_not_answer() {
    let cluster = Cluster::take();
    cluster.fault("gpu02", &["drop"]);
    let mut job = Job::quick("silent");
    job.ssh = "connect_timeout: 3s".to_owned();
    refused(&cluster, &job, 4).says("gpu02");
    cluster.as_before();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn a_host_that_holds_something_and_does_not_answer_is_a_leftover() {
    let cluster = Cluster::take();
    let laptop = Laptop::new();
    let mut job = Job::quick("lost");
    job.ssh = "connect_timeout: 3s".to_owned();
    let file = cluster.inventory(&laptop, &job);
    laptop.run(&["up", "-d", word(&file)]).code(0);
    cluster.fault("gpu02", &["drop"]);
    laptop.run(&["down", "--yes", word(&file)]).code(5).says("gpu02");
    cluster.fault("gpu02", &["undrop"]);
    laptop.run(&["down", "--yes", word(&file)]).code(0);
    cluster.as_before();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn a_rank_that_takes_more_memory_than_its_container_may() {
    let cluster = Cluster::take();
    let mut job = Job::quick("memory").command(&["/bin/sh", "-c", "[ $RANK = 0 ] && exec sleep 600; exec tail /dev/zero"]);
    job.container = "args: [--memory=64m, --memory-swap=64m]".to_owned();
    let laptop = Laptop::new();
    let file = cluster.inventory(&laptop, &job);
    laptop.run(&["up", word(&file)]).code(1).says("CAUSE     rank 1 on gpu02: the kernel killed").says("FIRST     rank 1 on gpu02");
    cluster.as_before();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn a_container_that_somebody_removes_while_its_ranks_run() {
    let cluster = Cluster::take();
    let laptop = Laptop::new();
    let file = cluster.inventory(&laptop, &Job::quick("gone").command(&["/bin/sh", "-c", "echo here; exec sleep 600"]));
    let mut up = laptop.start(&["up", word(&file)]);
    up.until("both ranks run", || (0..2).all(|rank| laptop.text(&format!("rank-{rank}.log")).contains("here")).then_some(()));
    cluster.on("gpu02", "docker rm -f orch-gone-gpu02");
    up.end().code(1).says("gpu02: the container was removed while the run was in it");
    cluster.as_before();
}

/// The ssh user does not see the container's first process, which is root's: that is no end.
#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn a_host_that_hides_the_processes_of_others() {
    let cluster = Cluster::take();
    let laptop = Laptop::new();
    let file = cluster.inventory(&laptop, &Job::quick("hidden"));
    cluster.fault("gpu01", &["hidepid"]);
    let seen = cluster.on("gpu01", "su dev -c 'ls -d /proc/1 2>/dev/null' || echo hidden");
    assert_eq!(seen.trim(), "hidden", "the fault is one");
    let mut up = laptop.start(&["up", word(&file)]);
    up.until("both ranks run", || {
        (0..2).all(|rank| laptop.text(&format!("rank-{rank}.log")).contains(&format!("rank {rank} is up"))).then_some(())
    });
    // On the other host it begins in the midst of the run.
    cluster.fault("gpu02", &["hidepid"]);
    for host in ["gpu01", "gpu02"] {
        let sign = || cluster.on(host, "cat /home/dev/.orchestrate/hidden/*.in/*/attached");
        for _ in 0..2 {
            let before = sign();
            up.until("the follower looks", || (sign() != before).then_some(()));
        }
    }
    cluster.order(&["gpu01", "gpu02"], "hidden", "go", "0");
    up.end().code(0).recap("OK");
    cluster.as_before();
}

/// Waits until both ranks of a detached run have said that they are up.
#[track_caller]
fn both_up(laptop: &Laptop, file: &str) {
    until("both ranks are up", || {
        let logs = laptop.run(&["logs", file]).out;
        (0..2).all(|rank| logs.contains(&format!("rank {rank} is up"))).then_some(())
    });
}

/// A daemon that hangs hides the container, and neither the host nor the logs.
#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn docker_hangs_while_ranks_run() {
    let cluster = Cluster::take();
    let laptop = Laptop::new();
    let file = cluster.inventory(&laptop, &Job::quick("hangs"));
    laptop.run(&["up", "-d", word(&file)]).code(0);
    both_up(&laptop, word(&file));
    cluster.fault("gpu02", &["hang-dockerd"]);
    laptop.run(&["ps", word(&file)]).code(0).says("unknown: docker does not answer");
    laptop.run(&["logs", word(&file)]).code(0).says("rank 1 is up on gpu02");
    cluster.order(&["gpu01", "gpu02"], "hangs", "go", "0");
    let attach = laptop.run(&["attach", word(&file)]);
    attach.code(0).recap("OK");
    cluster.fault("gpu02", &["unhang-dockerd"]);
    laptop.run(&["down", "--yes", word(&file)]).code(0);
    cluster.as_before();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn a_container_that_somebody_paused_is_torn_down_with_grace() {
    let cluster = Cluster::take();
    let laptop = Laptop::new();
    let file = cluster.inventory(&laptop, &Job::quick("paused"));
    laptop.run(&["up", "-d", word(&file)]).code(0);
    both_up(&laptop, word(&file));
    cluster.on("gpu02", "docker pause orch-paused-gpu02");
    laptop.run(&["ps", word(&file)]).code(0).says("paused");
    laptop.run(&["down", "--yes", word(&file)]).code(0);
    assert!(laptop.text("rank-1.log").contains("saw TERM"), "it was asked to end, not killed");
    cluster.as_before();
}

/// Tier 2.
mod whole {
    use super::*;

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn docker_is_stopped() {
        let cluster = Cluster::take();
        cluster.fault("gpu02", &["stop-dockerd"]);
        refused(&cluster, &Job::quick("stopped"), 3).says("gpu02").says("docker");
        cluster.as_before();
    }

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn an_image_that_no_registry_has() {
        let cluster = Cluster::take();
        let mut job = Job::quick("nopull");
        job.image = Some(format!("{}:5000/orchestrate/nowhere:test", cluster.address("bastion")));
        job.container = "pull: missing".to_owned();
        refused(&cluster, &job, 3).says("orchestrate/nowhere:test");
        cluster.as_before();
    }
}
