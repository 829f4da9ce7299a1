//! A real registry that requires a login: docker's own message for a wrong password, and no trace of the right one on any host.

use std::fs;

use crate::laptop::{Laptop, path_str};
use crate::support::{Cluster, JobSpec};

const PASSWORD: &str = "open $esame 'now'";
/// The form in which docker's client would store it.
const DOCKER_AUTH_BASE64: &str = "bGk6b3BlbiAkZXNhbWUgJ25vdyc=";

fn registry_job(cluster: &Cluster, name: &'static str) -> JobSpec {
    JobSpec::busybox(name).with_command(&["/bin/sh", "-c", "echo ran"]).with_registry_image(cluster)
}

/// Removes the image, so that the next run pulls it.
fn remove_image(cluster: &Cluster) {
    for host in ["gpu01", "gpu02"] {
        cluster.exec_on(host, &format!("docker rmi -f {} >/dev/null 2>&1; true", cluster.registry_image()));
    }
}

/// Files on a host that contain the password in either form: homes, temporary directories, memory, docker's settings.
fn password_traces(cluster: &Cluster, host: &str) -> String {
    cluster.exec_on(
        host,
        &format!("grep -rlsF -e 'esame' -e '{DOCKER_AUTH_BASE64}' /home /root /tmp /var/tmp /dev/shm /etc /run/user 2>/dev/null; true"),
    )
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn registry_login_leaves_no_password_on_hosts() {
    let cluster = Cluster::acquire();
    cluster.set_registry_login(true);
    remove_image(&cluster);
    let laptop = Laptop::new().with_env("REG_PASSWORD", PASSWORD);
    let file = cluster.write_inventory(&laptop, &registry_job(&cluster, "login"));
    // Collects every command line of a host during the run; the search keeps one core busy.
    cluster.exec_on(
        "gpu02",
        "mkdir -p /srv/suite/extra; setsid sh -c 'while :; do cat /proc/[0-9]*/cmdline 2>/dev/null | tr \"\\000\" \" \"; done' \
         >/srv/suite/extra/lines 2>/dev/null </dev/null & echo $! >/srv/suite/extra/pid",
    );
    laptop.run(&["up", "-vv", "--progress", "plain", path_str(&file)]).assert_exit_code(0).assert_recap("OK");
    cluster.exec_on("gpu02", "kill $(cat /srv/suite/extra/pid)");
    let seen = cluster.exec_on(
        "gpu02",
        "grep -c 'docker --config /dev/shm/.orch-login' /srv/suite/extra/lines; grep -cF 'esame' /srv/suite/extra/lines; true",
    );
    assert!(seen.lines().next() != Some("0") && seen.lines().nth(1) == Some("0"), "{seen}");
    cluster.exec_on("gpu02", "rm -rf /srv/suite/extra");
    for host in ["gpu01", "gpu02"] {
        assert_eq!(password_traces(&cluster, host), "", "{host}");
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
    remove_image(&cluster);
    cluster.set_registry_login(false);
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn real_registry_reports_wrong_password() {
    let cluster = Cluster::acquire();
    cluster.set_registry_login(true);
    remove_image(&cluster);
    let laptop = Laptop::new().with_env("REG_PASSWORD", "sesame");
    let file = cluster.write_inventory(&laptop, &registry_job(&cluster, "wrong"));
    laptop
        .run(&["up", path_str(&file)])
        .assert_exit_code(3)
        .assert_contains(&format!("{}:5000 refused the password of li", cluster.host_address("bastion")))
        .assert_contains("check the value of $REG_PASSWORD");
    cluster.set_registry_login(false);
}

/// Tier 2.
mod whole {
    use super::*;

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn no_password_is_sent_without_dev_shm() {
        let cluster = Cluster::acquire();
        cluster.set_registry_login(true);
        remove_image(&cluster);
        let laptop = Laptop::new().with_env("REG_PASSWORD", PASSWORD);
        let file = cluster.write_inventory(&laptop, &registry_job(&cluster, "nomemory"));
        cluster.exec_on("gpu02", "umount /dev/shm");
        let up = laptop.run(&["up", path_str(&file)]);
        cluster.exec_on("gpu02", "mount -t tmpfs -o nosuid,nodev,noexec,size=64m shm /dev/shm");
        up.assert_exit_code(3).assert_contains("no tmpfs on gpu02").assert_contains("mount -t tmpfs tmpfs /dev/shm");
        assert_eq!(password_traces(&cluster, "gpu02"), "");
        remove_image(&cluster);
        cluster.set_registry_login(false);
        cluster.assert_hosts_unchanged();
    }

    /// The hosts know the registry by its address only; under its name they require TLS.
    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn untrusted_registry_names_the_fix() {
        let cluster = Cluster::acquire();
        let laptop = Laptop::new();
        let mut job = registry_job(&cluster, "untrusted");
        job.image = Some("bastion:5000/orchestrate/pulled:test".to_owned());
        job.container = "pull: missing\n".to_owned();
        let file = cluster.write_inventory(&laptop, &job);
        laptop
            .run(&["up", path_str(&file)])
            .assert_exit_code(3)
            .assert_contains("add the registry to insecure-registries in /etc/docker/daemon.json on gpu01");
        cluster.assert_hosts_unchanged();
    }
}
