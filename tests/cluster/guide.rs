//! The first guide's job: real torchrun, real DDP over gloo, two hosts with two processes each, in containers and without.

use crate::laptop::{Ended, Laptop, until, word};
use crate::support::{Cluster, Job};

/// Four ranks trained together, and each has its log.
#[track_caller]
fn trained(laptop: &Laptop, up: &Ended) {
    up.code(0).recap("OK").says("0 failed");
    assert_eq!(laptop.rank_logs(), ["rank-0.log", "rank-1.log", "rank-2.log", "rank-3.log"]);
    for rank in 0..4 {
        let text = laptop.text(&format!("rank-{rank}.log"));
        assert!(text.contains(&format!("rank {rank} of 4: sum 4, weights equal")), "rank {rank} said:\n{text}");
    }
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn the_cpu_config_runs_as_it_is_shipped() {
    let cluster = Cluster::take();
    let laptop = Laptop::new();
    let text = include_str!("../../configs/cpu.yaml").replace("/srv/train:", "/srv/suite:");
    let ssh = format!("ssh: {{ config: {}, user: dev }}\n", cluster.file("ssh_config").display());
    let file = laptop.write("cpu.yaml", &format!("{text}\n{ssh}"));
    let ready = "launch.ready_when=Initialized process group with {{ world_size }} processes";
    trained(&laptop, &laptop.run(&["up", word(&file), "--set", ready]));
    cluster.as_before();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn bare_hosts_train_as_well() {
    let cluster = Cluster::take();
    let laptop = Laptop::new();
    let file = cluster.inventory(&laptop, &Job::torch("bare").bare().hosts(&["gpu02", "gpu03"]));
    trained(&laptop, &laptop.run(&["up", word(&file)]));
    cluster.as_before();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn a_killed_torchrun_agent_on_a_bare_host_leaves_no_worker() {
    let cluster = Cluster::take();
    let laptop = Laptop::new();
    let job = Job::torch("orphans").bare().hosts(&["gpu02", "gpu03"]).command(&["--no_python", "/bin/sh", "/srv/suite/rank.sh"]);
    let file = cluster.inventory(&laptop, &job);
    laptop.run(&["up", "-d", word(&file)]).code(0);
    // The keeper would see a dead launcher and end the rest by itself: it is asked to wait, so that `down` has orphans to find.
    cluster.on("gpu02", "kill -STOP $(cat /home/dev/.orchestrate/orphans/gpu02.private/keeper.pid | cut -d' ' -f1)");
    let workers = |host: &str| cluster.on(host, "pgrep -fc '^/bin/sh /srv/suite/[r]ank.sh' || true").trim().to_owned();
    until("both workers run", || (workers("gpu02") == "2").then_some(()));
    cluster.on("gpu02", "kill -9 $(pgrep -f '[t]orchrun --nnodes')");
    until("the agent is gone", || cluster.on("gpu02", "pgrep -f '[t]orchrun --nnodes' || true").is_empty().then_some(()));
    assert_eq!(workers("gpu02"), "2", "the workers outlive their agent");
    cluster.on("gpu02", "kill -CONT $(cat /home/dev/.orchestrate/orphans/gpu02.private/keeper.pid | cut -d' ' -f1)");
    laptop.run(&["down", "--yes", word(&file)]).code(0);
    assert_eq!(workers("gpu02"), "0");
    assert_eq!(workers("gpu03"), "0");
    cluster.as_before();
}

/// Tier 2.
mod whole {
    use super::*;

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn torchrun_trains_over_two_hosts_with_c10d() {
        let cluster = Cluster::take();
        let laptop = Laptop::new();
        let mut job = Job::torch("c10d");
        job.launch = "rendezvous: c10d\n".to_owned();
        let file = cluster.inventory(&laptop, &job);
        trained(&laptop, &laptop.run(&["up", word(&file)]));
        cluster.as_before();
    }
}
