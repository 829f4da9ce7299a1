//! Faulty hosts: each fault has its own message and the right exit code, and nothing is left.

use crate::laptop::{CliOutput, Laptop, path_str, wait_until};
use crate::support::{Cluster, JobSpec};

/// Runs `up` of a job that cannot start; returns its output.
#[track_caller]
fn run_refused_up(cluster: &Cluster, job: &JobSpec, code: i32) -> CliOutput {
    let laptop = Laptop::new();
    let file = cluster.write_inventory(&laptop, job);
    let up = laptop.run(&["up", path_str(&file)]);
    up.assert_exit_code(code);
    up
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn dockerd_killed_during_run_fails_down() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let file = cluster.write_inventory(&laptop, &JobSpec::busybox("daemon"));
    laptop.run(&["up", "-d", path_str(&file)]).assert_exit_code(0);
    cluster.inject_fault("gpu02", &["kill-dockerd"]);
    let down = laptop.run(&["down", "--yes", path_str(&file)]);
    down.assert_exit_code(5).assert_contains("gpu02").assert_contains("docker");
    cluster.inject_fault("gpu02", &["start-dockerd"]);
    laptop.run(&["down", "--yes", path_str(&file)]).assert_exit_code(0);
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn user_without_docker_access_is_refused() {
    let cluster = Cluster::acquire();
    run_refused_up(&cluster, &JobSpec::busybox("plain").with_user("plain"), 3)
        .assert_contains("permission denied")
        .assert_contains("usermod -aG docker plain");
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn missing_local_image_is_refused() {
    let cluster = Cluster::acquire();
    let mut job = JobSpec::busybox("noimage");
    job.image = Some("orchestrate-nowhere:test".to_owned());
    run_refused_up(&cluster, &job, 3).assert_contains("orchestrate-nowhere:test is missing").assert_contains("set container.pull");
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn full_disk_is_refused() {
    let cluster = Cluster::acquire();
    cluster.inject_fault("gpu02", &["small-disk", "/home/dev", "1m"]);
    run_refused_up(&cluster, &JobSpec::busybox("full"), 3).assert_contains("gpu02").assert_contains("free");
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn foreign_container_with_our_name_is_untouched() {
    let cluster = Cluster::acquire();
    cluster.exec_on(
        "gpu02",
        "docker run -d --network host --name orch-taken-gpu02 --entrypoint sleep orchestrate-busybox:test 1000 >/dev/null",
    );
    run_refused_up(&cluster, &JobSpec::busybox("taken"), 3)
        .assert_contains("orch-taken-gpu02")
        .assert_contains("orchestrate did not create");
    let laptop = Laptop::new();
    let file = cluster.write_inventory(&laptop, &JobSpec::busybox("taken"));
    laptop.run(&["down", "--yes", path_str(&file)]).assert_exit_code(0);
    assert_eq!(
        cluster.exec_on("gpu02", "docker inspect -f '{{.State.Running}}' orch-taken-gpu02").trim(),
        "true",
        "it is not ours to touch"
    );
    cluster.exec_on("gpu02", "docker rm -f orch-taken-gpu02 >/dev/null");
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn busy_master_port_is_refused() {
    let cluster = Cluster::acquire();
    cluster.inject_fault("gpu01", &["busy-port", "29500"]);
    run_refused_up(&cluster, &JobSpec::busybox("busy"), 3).assert_contains("29500").assert_contains("gpu01");
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn firewalled_master_port_is_refused() {
    let cluster = Cluster::acquire();
    cluster.inject_fault("gpu01", &["drop-port", "29500"]);
    run_refused_up(&cluster, &JobSpec::busybox("wall"), 3).assert_contains("29500").assert_contains("gpu02");
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn silent_host_is_unreachable() {
    let cluster = Cluster::acquire();
    cluster.inject_fault("gpu02", &["drop"]);
    let mut job = JobSpec::busybox("silent");
    job.ssh = "connect_timeout: 3s".to_owned();
    run_refused_up(&cluster, &job, 4).assert_contains("gpu02");
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn silent_host_with_a_run_is_a_leftover() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let file = cluster.write_inventory(&laptop, &JobSpec::busybox("lost"));
    laptop.run(&["up", "-d", path_str(&file)]).assert_exit_code(0);
    cluster.inject_fault("gpu02", &["drop"]);
    let down = ["down", "--yes", path_str(&file), "--set", "ssh.connect_timeout=3s"];
    laptop.run(&down).assert_exit_code(5).assert_contains("gpu02");
    cluster.inject_fault("gpu02", &["undrop"]);
    laptop.run(&["down", "--yes", path_str(&file)]).assert_exit_code(0);
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn out_of_memory_rank_is_the_cause() {
    let cluster = Cluster::acquire();
    let mut job = JobSpec::busybox("memory").with_command(&["/bin/sh", "-c", "[ $RANK = 0 ] && exec sleep 600; exec tail /dev/zero"]);
    job.container = "args: [--memory=64m, --memory-swap=64m]".to_owned();
    let laptop = Laptop::new();
    let file = cluster.write_inventory(&laptop, &job);
    laptop
        .run(&["up", path_str(&file)])
        .assert_exit_code(1)
        .assert_contains("CAUSE     rank 1 on gpu02: the kernel killed")
        .assert_contains("FIRST     rank 1 on gpu02");
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn externally_removed_container_fails_the_run() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let file = cluster.write_inventory(&laptop, &JobSpec::busybox("gone").with_command(&["/bin/sh", "-c", "echo here; exec sleep 600"]));
    let mut up = laptop.start(&["up", path_str(&file)]);
    up.wait_until("both ranks run", || (0..2).all(|rank| laptop.read_log_text(&format!("rank-{rank}.log")).contains("here")).then_some(()));
    cluster.exec_on("gpu02", "docker rm -f orch-gone-gpu02");
    up.wait_for_exit().assert_exit_code(1).assert_contains("gpu02: the container was removed during the run");
}

/// The ssh user does not see the container's first process, which belongs to root: the run has not ended.
#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn hidepid_does_not_end_the_run() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let file = cluster.write_inventory(&laptop, &JobSpec::busybox("hidden"));
    cluster.inject_fault("gpu01", &["hidepid"]);
    let seen = cluster.exec_on("gpu01", "su dev -c 'ls -d /proc/1 2>/dev/null' || echo hidden");
    assert_eq!(seen.trim(), "hidden", "`hidepid` hides the process");
    let mut up = laptop.start(&["up", path_str(&file)]);
    up.wait_until("both ranks run", || {
        (0..2).all(|rank| laptop.read_log_text(&format!("rank-{rank}.log")).contains(&format!("rank {rank} is up"))).then_some(())
    });
    // On the other host the fault begins in the middle of the run.
    cluster.inject_fault("gpu02", &["hidepid"]);
    for host in ["gpu01", "gpu02"] {
        let sign = || cluster.exec_on(host, "cat /home/dev/.orchestrate/hidden/*.in/*/attached");
        for _ in 0..2 {
            let before = sign();
            up.wait_until("the follower renews its sign of life", || (sign() != before).then_some(()));
        }
    }
    cluster.write_control_file(&["gpu01", "gpu02"], "hidden", "go", "0");
    up.wait_for_exit().assert_exit_code(0).assert_recap("OK");
}

/// Waits until both ranks of a detached run report that they are up.
#[track_caller]
fn wait_for_both_ranks(laptop: &Laptop, file: &str) {
    wait_until("both ranks are up", || {
        let logs = laptop.run(&["logs", file]).stdout;
        (0..2).all(|rank| logs.contains(&format!("rank {rank} is up"))).then_some(())
    });
}

/// A hung daemon hides the container, but neither the host nor the logs.
#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn hung_docker_does_not_disturb_the_run() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let file = cluster.write_inventory(&laptop, &JobSpec::busybox("hangs"));
    laptop.run(&["up", "-d", path_str(&file)]).assert_exit_code(0);
    wait_for_both_ranks(&laptop, path_str(&file));
    cluster.inject_fault("gpu02", &["hang-dockerd"]);
    laptop.run(&["ps", path_str(&file)]).assert_exit_code(0).assert_contains("unknown: docker does not answer");
    laptop.run(&["logs", path_str(&file)]).assert_exit_code(0).assert_contains("rank 1 is up on gpu02");
    cluster.write_control_file(&["gpu01", "gpu02"], "hangs", "go", "0");
    let attach = laptop.run(&["attach", path_str(&file)]);
    attach.assert_exit_code(0).assert_recap("OK");
    cluster.inject_fault("gpu02", &["unhang-dockerd"]);
    laptop.run(&["down", "--yes", path_str(&file)]).assert_exit_code(0);
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn paused_container_is_torn_down_gracefully() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let file = cluster.write_inventory(&laptop, &JobSpec::busybox("paused"));
    laptop.run(&["up", "-d", path_str(&file)]).assert_exit_code(0);
    wait_for_both_ranks(&laptop, path_str(&file));
    cluster.exec_on("gpu02", "docker pause orch-paused-gpu02");
    laptop.run(&["ps", path_str(&file)]).assert_exit_code(0).assert_contains("paused");
    laptop.run(&["down", "--yes", path_str(&file)]).assert_exit_code(0);
    assert!(laptop.read_log_text("rank-1.log").contains("saw TERM"), "it was terminated, not killed");
}

/// Tier 2.
mod whole {
    use super::*;

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn stopped_dockerd_is_refused() {
        let cluster = Cluster::acquire();
        cluster.inject_fault("gpu02", &["stop-dockerd"]);
        run_refused_up(&cluster, &JobSpec::busybox("stopped"), 3).assert_contains("gpu02").assert_contains("docker");
        cluster.assert_hosts_unchanged();
    }

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn image_missing_from_registry_is_refused() {
        let cluster = Cluster::acquire();
        let mut job = JobSpec::busybox("nopull");
        job.image = Some(format!("{}:5000/orchestrate/nowhere:test", cluster.host_address("bastion")));
        job.container = "pull: missing".to_owned();
        run_refused_up(&cluster, &job, 3).assert_contains("orchestrate/nowhere:test");
        cluster.assert_hosts_unchanged();
    }
}
