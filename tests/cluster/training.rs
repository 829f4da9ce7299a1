//! The job of the first guide: real torchrun, real DDP over gloo, two hosts with two processes each, in containers and on bare hosts.

use crate::laptop::{CliOutput, Laptop, path_str, wait_until};
use crate::support::{Cluster, JobSpec};

/// Asserts that four ranks trained together and that each has a log.
#[track_caller]
fn assert_trained(laptop: &Laptop, up: &CliOutput) {
    up.assert_exit_code(0).assert_recap("OK").assert_contains("0 failed");
    assert_eq!(laptop.rank_log_names(), ["rank-0.log", "rank-1.log", "rank-2.log", "rank-3.log"]);
    for rank in 0..4 {
        let text = laptop.read_log_text(&format!("rank-{rank}.log"));
        assert!(text.contains(&format!("rank {rank} of 4: sum 4, weights equal")), "log of rank {rank}:\n{text}");
    }
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn shipped_cpu_config_trains() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let text = include_str!("../../configs/cpu.yaml").replace("/srv/train:", "/srv/suite:");
    let ssh = format!("ssh: {{ config: {}, user: dev }}\n", cluster.client_file("ssh_config").display());
    let file = laptop.write_file("cpu.yaml", &format!("{text}\n{ssh}"));
    let ready = "launch.ready_when=Initialized process group with {{ world_size }} processes";
    assert_trained(&laptop, &laptop.run(&["up", path_str(&file), "--set", ready]));
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn bare_hosts_train() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let file = cluster.write_inventory(&laptop, &JobSpec::torch("bare").without_container().with_hosts(&["gpu02", "gpu03"]));
    assert_trained(&laptop, &laptop.run(&["up", path_str(&file)]));
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn down_removes_orphaned_torchrun_workers() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let job = JobSpec::torch("orphans").without_container().with_hosts(&["gpu02", "gpu03"]).with_command(&[
        "--no_python",
        "/bin/sh",
        "/srv/suite/rank.sh",
    ]);
    let file = cluster.write_inventory(&laptop, &job);
    laptop.run(&["up", "-d", path_str(&file)]).assert_exit_code(0);
    // The keeper would see the dead launcher and end the workers: stop it, so that `down` finds orphans.
    cluster.exec_on("gpu02", "kill -STOP $(cat /home/dev/.orchestrate/orphans/gpu02.private/keeper.pid | cut -d' ' -f1)");
    let workers = |host: &str| cluster.exec_on(host, "pgrep -fc '^/bin/sh /srv/suite/[r]ank.sh' || true").trim().to_owned();
    wait_until("both workers run", || (workers("gpu02") == "2").then_some(()));
    cluster.exec_on("gpu02", "kill -9 $(pgrep -f '[t]orchrun --nnodes')");
    wait_until("torchrun's agent is gone", || cluster.exec_on("gpu02", "pgrep -f '[t]orchrun --nnodes' || true").is_empty().then_some(()));
    // A worker that starts a program is two for a moment.
    wait_until("the workers outlive their agent", || (workers("gpu02") == "2").then_some(()));
    cluster.exec_on("gpu02", "kill -CONT $(cat /home/dev/.orchestrate/orphans/gpu02.private/keeper.pid | cut -d' ' -f1)");
    laptop.run(&["down", "--yes", path_str(&file)]).assert_exit_code(0);
    assert_eq!(workers("gpu02"), "0");
    assert_eq!(workers("gpu03"), "0");
}

/// Tier 2.
mod whole {
    use super::*;

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn torchrun_trains_on_two_hosts_with_c10d() {
        let cluster = Cluster::acquire();
        let laptop = Laptop::new();
        let mut job = JobSpec::torch("c10d");
        job.launch = "rendezvous: c10d\n".to_owned();
        let file = cluster.write_inventory(&laptop, &job);
        assert_trained(&laptop, &laptop.run(&["up", path_str(&file)]));
        cluster.assert_hosts_unchanged();
    }
}
