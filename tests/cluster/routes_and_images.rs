//! Routes to a host and kinds of image: jump hosts, sudo, noisy rc files, changed host keys, images with an ENTRYPOINT or a USER.

use crate::laptop::{Laptop, path_str};
use crate::support::{Cluster, JobSpec};

/// Runs a short job until it ends.
#[track_caller]
fn assert_run_succeeds(cluster: &Cluster, job: &JobSpec, at: &[&str]) -> Laptop {
    let laptop = Laptop::new();
    let file = cluster.write_inventory(&laptop, job);
    cluster.write_control_file(at, job.name, "go", "0");
    laptop.run(&["up", path_str(&file)]).assert_exit_code(0).assert_recap("OK").assert_contains("0 failed");
    for (rank, host) in job.hosts.iter().enumerate() {
        let text = laptop.read_log_text(&format!("rank-{rank}.log"));
        assert!(text.contains(&format!("rank {rank} is up on {host}")), "{text}");
    }
    laptop
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn run_works_behind_a_bastion() {
    let cluster = Cluster::acquire();
    let job = JobSpec::busybox("jump").with_hosts(&["gpu01-via-bastion", "gpu02-behind"]);
    let laptop = assert_run_succeeds(&cluster, &job, &["gpu01", "gpu02"]);
    let file = laptop.home().join("jump.yaml");
    let from = laptop.run(&["exec", path_str(&file), "--", "echo from ${SSH_CONNECTION%% *}"]);
    let bastion = format!("from {}", cluster.host_address("bastion"));
    from.assert_exit_code(0).assert_contains(&bastion);
    // The same jump host from the inventory instead of ssh_config.
    let mut job = JobSpec::busybox("jump-key");
    job.ssh = "jump: [bastion]".to_owned();
    let file = cluster.write_inventory(&laptop, &job);
    laptop.run(&["exec", path_str(&file), "--", "echo from ${SSH_CONNECTION%% *}"]).assert_exit_code(0).assert_contains(&bastion);
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn run_works_with_docker_through_sudo() {
    let cluster = Cluster::acquire();
    let mut job = JobSpec::busybox("sudo").with_user("ops");
    job.ssh = "become: sudo".to_owned();
    assert_run_succeeds(&cluster, &job, &["gpu01", "gpu02"]);
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn printing_rc_files_do_not_disturb_a_run() {
    let cluster = Cluster::acquire();
    assert_run_succeeds(&cluster, &JobSpec::busybox("noise").with_user("noisy").without_container(), &["gpu01", "gpu02"]);
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn changed_host_key_is_refused_with_its_line() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let known = std::fs::read_to_string(cluster.client_file("known_hosts")).expect("known hosts");
    let known = laptop.write_file("known_hosts", &format!("# of the tests\n{known}"));
    let mut job = JobSpec::busybox("changed");
    job.ssh = "known_hosts: ./known_hosts".to_owned();
    let file = cluster.write_inventory(&laptop, &job);
    laptop.run(&["exec", path_str(&file), "--", "true"]).assert_exit_code(0);
    cluster.inject_fault("gpu02", &["rekey"]);
    let up = laptop.run(&["up", path_str(&file)]);
    let lines = std::fs::read_to_string(&known).expect("known hosts");
    let places: Vec<String> = (lines.lines().enumerate())
        .filter(|(_, l)| l.starts_with("gpu02,"))
        .map(|(i, _)| format!("{}:{}", known.display(), i + 1))
        .collect();
    up.assert_exit_code(4).assert_recap("UNREACHABLE");
    assert!(places.iter().any(|location| up.stderr.contains(location)), "none of {places:?} is named\n{}", up.transcript());
    assert_eq!(std::fs::read_to_string(&known).expect("known hosts"), lines, "the file is unchanged");
    // With accept-new it is refused as well.
    job.ssh.push_str("\nhost_keys: accept-new");
    let file = cluster.write_inventory(&laptop, &job);
    laptop.run(&["up", path_str(&file)]).assert_exit_code(4);
    assert!(laptop.run_dirs().is_empty(), "nothing started");
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn image_with_another_user_runs() {
    let cluster = Cluster::acquire();
    let mut job = JobSpec::busybox("user").with_command(&["/bin/sh", "-c", "id -u; pwd; exec /bin/sh /mnt/rank.sh"]);
    job.image = Some("orchestrate-user:test".to_owned());
    let laptop = assert_run_succeeds(&cluster, &job, &["gpu01", "gpu02"]);
    assert!(laptop.read_log_text("rank-1.log").starts_with("1234\n/tmp\n"), "{}", laptop.read_log_text("rank-1.log"));
}

/// Tier 2.
mod whole {
    use super::*;

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn unauthorized_key_is_named() {
        let cluster = Cluster::acquire();
        let laptop = Laptop::new();
        let mut job = JobSpec::busybox("stranger");
        job.ssh = format!("identity: {}", cluster.client_file("id_stranger").display());
        let config =
            format!("Host gpu01\n HostName {}\nHost gpu02\n HostName {}\n", cluster.host_address("gpu01"), cluster.host_address("gpu02"));
        laptop.write_file("bare_config", &config);
        let file = cluster.write_inventory(&laptop, &job);
        let text = std::fs::read_to_string(&file).expect("the inventory");
        let known = format!("  config: ./bare_config\n  known_hosts: {}", cluster.client_file("known_hosts").display());
        let text = text.replace(&format!("  config: {}", cluster.client_file("ssh_config").display()), &known);
        let file = laptop.write_file("stranger.yaml", &text);
        laptop.run(&["up", path_str(&file)]).assert_exit_code(4).assert_contains("id_stranger");
        cluster.assert_hosts_unchanged();
    }

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn missing_nvidia_runtime_is_refused() {
        let cluster = Cluster::acquire();
        let laptop = Laptop::new();
        let file = cluster.write_inventory(&laptop, &JobSpec::busybox("runtime"));
        cluster.mark_for_healing("gpu02");
        cluster.run_hosts_script(&["gpu-runtime", "gpu02", "off"]);
        let up = laptop.run(&["up", path_str(&file)]);
        up.assert_contains("gpu02").assert_contains("nvidia");
        assert_eq!(up.exit_code, Some(3), "{}", up.transcript());
        cluster.assert_hosts_unchanged();
    }

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn image_with_entrypoint_runs() {
        let cluster = Cluster::acquire();
        let mut job = JobSpec::busybox("entrypoint");
        job.image = Some("orchestrate-entrypoint:test".to_owned());
        assert_run_succeeds(&cluster, &job, &["gpu01", "gpu02"]);
    }
}
