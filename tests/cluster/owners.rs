//! Two people on one host, a run directory that all can write, and what a launch leaves in the host's own memory.

use crate::laptop::{Laptop, word};
use crate::support::{Cluster, Job};

/// /tmp belongs to nobody: it keeps its mode, what is below it is ours alone, and who comes second is told whose it is.
#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn of_two_people_with_one_name_neither_touches_what_is_the_others() {
    let cluster = Cluster::take();
    let (one, two) = (Laptop::new(), Laptop::new().with("USER", "second"));
    let job = |run_dir: &str| {
        let mut job = Job::quick("owners").hosts(&["gpu01"]);
        job.top = format!("teardown: never\n{run_dir}");
        job
    };
    let mode = || cluster.on("gpu01", "stat -c '%a %U' /tmp /tmp/owners").replace('\n', " ");
    let runs = || cluster.on("gpu01", "docker ps --format '{{.Names}}'").trim().to_owned();
    let mine = cluster.inventory(&one, &job("run_dir: /tmp\n"));
    let mut up = one.start(&["up", "-d", word(&mine)]);
    up.says("every rank runs");
    up.end().code(0);
    assert_eq!(mode().trim(), "1777 root 1700 dev");
    // The same place: refused, with the owner and the remedy.
    let theirs = cluster.inventory(&two, &job("run_dir: /tmp\n").user("noisy"));
    let up = two.run(&["up", word(&theirs)]);
    up.code(3).says("/tmp/owners is not a directory of yours (it belongs to dev)").says("set run_dir to a directory that belongs to you");
    two.run(&["down", "--yes", word(&theirs)]).code(0).says("/tmp/owners belongs to dev: it is left alone");
    // A place of one's own, and the same name of a container.
    let apart = cluster.inventory(&two, &job("").user("noisy"));
    two.run(&["up", word(&apart)]).code(3).says("is taken on gpu01 by a container that is not ours");
    two.run(&["down", "--yes", word(&apart)]).code(0).says("with its files in /tmp: it is left alone");
    assert_eq!(runs(), "orch-owners-gpu01", "the first one's run goes on");
    one.run(&["down", "--yes", word(&mine)]).code(0).says("nothing is left");
    assert_eq!(cluster.on("gpu01", "stat -c '%a %U' /tmp; ls -d /tmp/owners 2>/dev/null || true").trim(), "1777 root");
    cluster.as_before();
}

/// With `--ipc=host` the file that hands over the secrets is in the host's memory.
#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn secrets_that_a_launch_left_in_the_memory_of_the_host_are_removed_or_named() {
    let cluster = Cluster::take();
    let laptop = Laptop::new().with("TOKEN", "s3cr3t");
    let mut job = Job::quick("ipc").hosts(&["gpu01"]).command(&["/bin/sh", "-c", "echo ${#TOKEN}"]);
    job.container = "args: [--ipc=host]\n".to_owned();
    job.top = "secrets: [TOKEN]\n".to_owned();
    let file = cluster.inventory(&laptop, &job);
    laptop.run(&["up", word(&file)]).code(0);
    let left = "/dev/shm/.orch-env.orch-ipc-gpu01.20261122-054703-04da";
    assert_eq!(cluster.on("gpu01", "ls -A /dev/shm | grep orch- || true").trim(), "");
    cluster.on("gpu01", &format!("echo s3cr3t >{left}; chmod 600 {left}"));
    laptop.run(&["down", "--yes", word(&file)]).code(5).says(&format!("still there: secrets {left}"));
    cluster.on("gpu01", &format!("chown dev {left}"));
    laptop.run(&["down", "--yes", word(&file)]).code(0).says("nothing is left");
    assert_eq!(cluster.on("gpu01", &format!("ls {left} 2>/dev/null || true")).trim(), "");
    cluster.as_before();
}
