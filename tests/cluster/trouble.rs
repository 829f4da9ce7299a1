//! Hosts that are not as they should be: each trouble has words of its own and the right exit code, and nothing is left.

use crate::laptop::{Ended, Laptop, word};
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
