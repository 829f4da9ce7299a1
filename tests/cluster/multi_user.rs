//! Two users on one host, a run directory that is world-writable, and secrets in the host's shared memory.

use crate::laptop::{Laptop, path_str};
use crate::support::{Cluster, JobSpec};

/// A run in /tmp keeps the directory's mode and makes its own directory private; the second user learns who owns it.
#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn users_with_one_run_name_stay_isolated() {
    let cluster = Cluster::acquire();
    let (one, two) = (Laptop::new(), Laptop::new().with_env("USER", "second"));
    let job = |run_dir: &str| {
        let mut job = JobSpec::busybox("owners").with_hosts(&["gpu01"]);
        job.top_level = format!("teardown: never\n{run_dir}");
        job
    };
    let mode = || cluster.exec_on("gpu01", "stat -c '%a %U' /tmp /tmp/owners").replace('\n', " ");
    let runs = || cluster.exec_on("gpu01", "docker ps --format '{{.Names}}'").trim().to_owned();
    let mine = cluster.write_inventory(&one, &job("run_dir: /tmp\n"));
    let mut up = one.start(&["up", "-d", path_str(&mine)]);
    up.wait_for_output("all ranks are running");
    up.wait_for_exit().assert_exit_code(0);
    assert_eq!(mode().trim(), "1777 root 1700 dev");
    // The same run directory: refused, with the owner and a remedy.
    let theirs = cluster.write_inventory(&two, &job("run_dir: /tmp\n").with_user("noisy"));
    let up = two.run(&["up", path_str(&theirs)]);
    up.assert_exit_code(3)
        .assert_contains("/tmp/owners is not a directory of yours (it belongs to dev)")
        .assert_contains("set run_dir to a directory that belongs to you");
    two.run(&["down", "--yes", path_str(&theirs)]).assert_exit_code(0).assert_contains("/tmp/owners belongs to dev: it is left alone");
    // A run directory of the second user's own, but the same container name.
    let apart = cluster.write_inventory(&two, &job("").with_user("noisy"));
    two.run(&["up", path_str(&apart)])
        .assert_exit_code(3)
        .assert_contains("is taken on gpu01 by a container that orchestrate did not create");
    two.run(&["down", "--yes", path_str(&apart)]).assert_exit_code(0).assert_contains("with its files in /tmp: it is left alone");
    assert_eq!(runs(), "orch-owners-gpu01", "the first user's run continues");
    one.run(&["down", "--yes", path_str(&mine)]).assert_exit_code(0).assert_contains("nothing is left");
    assert_eq!(cluster.exec_on("gpu01", "stat -c '%a %U' /tmp; ls -d /tmp/owners 2>/dev/null || true").trim(), "1777 root");
}

/// With `--ipc=host` the file that passes the secrets is in the host's shared memory.
#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn leftover_secrets_in_shm_are_removed_or_reported() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new().with_env("TOKEN", "s3cr3t");
    let mut job = JobSpec::busybox("ipc").with_hosts(&["gpu01"]).with_command(&["/bin/sh", "-c", "echo ${#TOKEN}"]);
    job.container = "args: [--ipc=host]\n".to_owned();
    job.top_level = "secrets: [TOKEN]\n".to_owned();
    let file = cluster.write_inventory(&laptop, &job);
    laptop.run(&["up", path_str(&file)]).assert_exit_code(0);
    let left = "/dev/shm/.orch-env.orch-ipc-gpu01.20261122-054703-04da";
    assert_eq!(cluster.exec_on("gpu01", "ls -A /dev/shm | grep orch- || true").trim(), "");
    cluster.exec_on("gpu01", &format!("echo s3cr3t >{left}; chmod 600 {left}"));
    laptop.run(&["down", "--yes", path_str(&file)]).assert_exit_code(5).assert_contains(&format!("still there: secrets {left}"));
    cluster.exec_on("gpu01", &format!("chown dev {left}"));
    laptop.run(&["down", "--yes", path_str(&file)]).assert_exit_code(0).assert_contains("nothing is left");
    assert_eq!(cluster.exec_on("gpu01", &format!("ls {left} 2>/dev/null || true")).trim(), "");
}
