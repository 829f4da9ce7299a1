//! Ways to a host and kinds of image: jump hosts, sudo, noise, host keys that changed, images with a mind of their own.

use crate::laptop::{Laptop, word};
use crate::support::{Cluster, Job};

/// Runs a quick job to its end.
#[track_caller]
fn runs(cluster: &Cluster, job: &Job, at: &[&str]) -> Laptop {
    let laptop = Laptop::new();
    let file = cluster.inventory(&laptop, job);
    cluster.order(at, job.name, "go", "0");
    laptop.run(&["up", word(&file)]).code(0).recap("OK").says("0 failed");
    for (rank, host) in job.hosts.iter().enumerate() {
        let text = laptop.text(&format!("rank-{rank}.log"));
        assert!(text.contains(&format!("rank {rank} is up on {host}")), "{text}");
    }
    cluster.as_before();
    laptop
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn hosts_behind_a_bastion() {
    let cluster = Cluster::take();
    let job = Job::quick("jump").hosts(&["gpu01-via-bastion", "gpu02-behind"]);
    let laptop = runs(&cluster, &job, &["gpu01", "gpu02"]);
    let file = laptop.home().join("jump.yaml");
    let from = laptop.run(&["exec", word(&file), "--", "echo from ${SSH_CONNECTION%% *}"]);
    let bastion = format!("from {}", cluster.address("bastion"));
    from.code(0).says(&bastion);
    // The same by the inventory's own words.
    let mut job = Job::quick("jump-key");
    job.ssh = "jump: [bastion]".to_owned();
    let file = cluster.inventory(&laptop, &job);
    laptop.run(&["exec", word(&file), "--", "echo from ${SSH_CONNECTION%% *}"]).code(0).says(&bastion);
    cluster.as_before();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn docker_through_sudo() {
    let cluster = Cluster::take();
    let mut job = Job::quick("sudo").user("ops");
    job.ssh = "become: sudo".to_owned();
    runs(&cluster, &job, &["gpu01", "gpu02"]);
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn rc_files_that_print() {
    let cluster = Cluster::take();
    runs(&cluster, &Job::quick("noise").user("noisy").bare(), &["gpu01", "gpu02"]);
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn a_changed_host_key_is_refused_with_its_line() {
    let cluster = Cluster::take();
    let laptop = Laptop::new();
    let known = std::fs::read_to_string(cluster.file("known_hosts")).expect("known hosts");
    let known = laptop.write("known_hosts", &format!("# of the tests\n{known}"));
    let mut job = Job::quick("changed");
    job.ssh = "known_hosts: ./known_hosts".to_owned();
    let file = cluster.inventory(&laptop, &job);
    laptop.run(&["exec", word(&file), "--", "true"]).code(0);
    cluster.fault("gpu02", &["rekey"]);
    let up = laptop.run(&["up", word(&file)]);
    let lines = std::fs::read_to_string(&known).expect("known hosts");
    let places: Vec<String> = (lines.lines().enumerate())
        .filter(|(_, l)| l.starts_with("gpu02,"))
        .map(|(i, _)| format!("{}:{}", known.display(), i + 1))
        .collect();
    up.code(4).recap("UNREACHABLE");
    assert!(places.iter().any(|place| up.err.contains(place)), "none of {places:?} is named\n{}", up.said());
    assert_eq!(std::fs::read_to_string(&known).expect("known hosts"), lines, "the file is as it was");
    // Neither is it accepted where new keys are.
    job.ssh.push_str("\nhost_keys: accept-new");
    let file = cluster.inventory(&laptop, &job);
    laptop.run(&["up", word(&file)]).code(4);
    assert!(laptop.runs().is_empty(), "nothing began");
    cluster.as_before();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn an_image_with_another_user() {
    let cluster = Cluster::take();
    let mut job = Job::quick("user").command(&["/bin/sh", "-c", "id -u; pwd; exec /bin/sh /mnt/rank.sh"]);
    job.image = Some("orchestrate-user:test".to_owned());
    let laptop = runs(&cluster, &job, &["gpu01", "gpu02"]);
    assert!(laptop.text("rank-1.log").starts_with("1234\n/tmp\n"), "{}", laptop.text("rank-1.log"));
}

/// Tier 2.
mod whole {
    use super::*;

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn a_key_that_the_hosts_do_not_know() {
        let cluster = Cluster::take();
        let laptop = Laptop::new();
        let mut job = Job::quick("stranger");
        job.ssh = format!("identity: {}", cluster.file("id_stranger").display());
        let config = format!("Host gpu01\n HostName {}\nHost gpu02\n HostName {}\n", cluster.address("gpu01"), cluster.address("gpu02"));
        laptop.write("bare_config", &config);
        let file = cluster.inventory(&laptop, &job);
        let text = std::fs::read_to_string(&file).expect("the inventory");
        let known = format!("  config: ./bare_config\n  known_hosts: {}", cluster.file("known_hosts").display());
        let text = text.replace(&format!("  config: {}", cluster.file("ssh_config").display()), &known);
        let file = laptop.write("stranger.yaml", &text);
        laptop.run(&["up", word(&file)]).code(4).says("id_stranger");
        cluster.as_before();
    }

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn a_host_without_the_nvidia_runtime() {
        let cluster = Cluster::take();
        let laptop = Laptop::new();
        let file = cluster.inventory(&laptop, &Job::quick("runtime"));
        cluster.mend("gpu02");
        cluster.hosts(&["gpu-runtime", "gpu02", "off"]);
        let up = laptop.run(&["up", word(&file)]);
        up.says("gpu02").says("nvidia");
        assert_eq!(up.code, Some(3), "{}", up.said());
        cluster.as_before();
    }

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn an_image_with_an_entrypoint() {
        let cluster = Cluster::take();
        let mut job = Job::quick("entrypoint");
        job.image = Some("orchestrate-entrypoint:test".to_owned());
        runs(&cluster, &job, &["gpu01", "gpu02"]);
    }
}
