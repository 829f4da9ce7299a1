//! A registry that wants a login, a real one: docker's own words for a wrong password, and no trace of the right one on any host.

use std::fs;

use crate::laptop::{Laptop, word};
use crate::support::{Cluster, Job};

const PASSWORD: &str = "open $esame 'now'";
/// How docker's client would keep it.
const KEPT: &str = "bGk6b3BlbiAkZXNhbWUgJ25vdyc=";

fn job(cluster: &Cluster, name: &'static str) -> Job {
    Job::quick(name).command(&["/bin/sh", "-c", "echo ran"]).pulled(cluster)
}

/// Removes the image, so that it has to be pulled.
fn without_image(cluster: &Cluster) {
    for host in ["gpu01", "gpu02"] {
        cluster.on(host, &format!("docker rmi -f {} >/dev/null 2>&1; true", cluster.registry_image()));
    }
}

/// Files on a host that hold the password, in either form: homes, temporary folders, memory, docker's own settings.
fn traces(cluster: &Cluster, host: &str) -> String {
    cluster.on(host, &format!("grep -rlsF -e 'esame' -e '{KEPT}' /home /root /tmp /var/tmp /dev/shm /etc /run/user 2>/dev/null; true"))
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn a_login_opens_the_registry_and_stays_nowhere() {
    let cluster = Cluster::take();
    cluster.registry_login(true);
    without_image(&cluster);
    let laptop = Laptop::new().with("REG_PASSWORD", PASSWORD);
    let file = cluster.inventory(&laptop, &job(&cluster, "login"));
    // Every command line of a host, for as long as the run goes; the search keeps a core busy.
    cluster.on(
        "gpu02",
        "mkdir -p /srv/suite/extra; setsid sh -c 'while :; do cat /proc/[0-9]*/cmdline 2>/dev/null | tr \"\\000\" \" \"; done' \
         >/srv/suite/extra/lines 2>/dev/null </dev/null & echo $! >/srv/suite/extra/pid",
    );
    laptop.run(&["up", "-vv", "--progress", "plain", word(&file)]).code(0).recap("OK");
    cluster.on("gpu02", "kill $(cat /srv/suite/extra/pid)");
    let seen = cluster.on(
        "gpu02",
        "grep -c 'docker --config /dev/shm/.orch-login' /srv/suite/extra/lines; grep -cF 'esame' /srv/suite/extra/lines; true",
    );
    assert!(seen.lines().next() != Some("0") && seen.lines().nth(1) == Some("0"), "{seen}");
    cluster.on("gpu02", "rm -rf /srv/suite/extra");
    for host in ["gpu01", "gpu02"] {
        assert_eq!(traces(&cluster, host), "", "{host}");
    }
    let mut open = vec![laptop.home().to_owned()];
    while let Some(dir) = open.pop() {
        for path in fs::read_dir(dir).expect("a folder").flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                open.push(path);
            } else {
                let text = fs::read(&path).expect("readable");
                assert!(!String::from_utf8_lossy(&text).contains("esame"), "{}", path.display());
            }
        }
    }
    without_image(&cluster);
    cluster.registry_login(false);
    cluster.as_before();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn a_wrong_password_is_said_to_be_wrong() {
    let cluster = Cluster::take();
    cluster.registry_login(true);
    without_image(&cluster);
    let laptop = Laptop::new().with("REG_PASSWORD", "sesame");
    let file = cluster.inventory(&laptop, &job(&cluster, "wrong"));
    laptop
        .run(&["up", word(&file)])
        .code(3)
        .says(&format!("{}:5000 refused the password of li", cluster.address("bastion")))
        .says("check the value of $REG_PASSWORD");
    cluster.registry_login(false);
    cluster.as_before();
}

/// Tier 2.
mod whole {
    use super::*;

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn without_a_folder_in_memory_no_password_is_sent() {
        let cluster = Cluster::take();
        cluster.registry_login(true);
        without_image(&cluster);
        let laptop = Laptop::new().with("REG_PASSWORD", PASSWORD);
        let file = cluster.inventory(&laptop, &job(&cluster, "nomemory"));
        cluster.on("gpu02", "umount /dev/shm");
        let up = laptop.run(&["up", word(&file)]);
        cluster.on("gpu02", "mount -t tmpfs -o nosuid,nodev,noexec,size=64m shm /dev/shm");
        up.code(3).says("no folder in memory on gpu02").says("mount -t tmpfs tmpfs /dev/shm");
        assert_eq!(traces(&cluster, "gpu02"), "");
        without_image(&cluster);
        cluster.registry_login(false);
        cluster.as_before();
    }

    /// The hosts know the registry by its address alone; by its name they want TLS of it.
    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn a_registry_that_a_host_does_not_trust() {
        let cluster = Cluster::take();
        let laptop = Laptop::new();
        let mut job = job(&cluster, "untrusted");
        job.image = Some("bastion:5000/orchestrate/pulled:test".to_owned());
        job.container = "pull: missing\n".to_owned();
        let file = cluster.inventory(&laptop, &job);
        laptop.run(&["up", word(&file)]).code(3).says("add the registry to insecure-registries in /etc/docker/daemon.json on gpu01");
        cluster.as_before();
    }
}
