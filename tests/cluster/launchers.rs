//! Every launcher for real on two hosts: each rank reports the world size and the location of all ranks.

use std::process::{Child, Command, Stdio};

use crate::laptop::{Laptop, path_str};
use crate::support::{Cluster, JobSpec};

/// The locations of four ranks on two hosts with two processes each.
const EXPECTED_RANK_MAP: &str = "gpu01/0 gpu01/1 gpu02/0 gpu02/1";

fn launcher_job(name: &'static str, with: &'static str, command: &[&str], launch: &str) -> JobSpec {
    let mut job = JobSpec::torch(name).with_command(command);
    job.image = Some("orchestrate-ml:test".to_owned());
    job.launcher = with;
    job.launch = format!("setup: source /opt/ml/bin/activate\n{launch}");
    job
}

/// A rank's report: world size, sum over all ranks, and hosts and local ranks in rank order.
#[track_caller]
fn parse_world_line(text: &str, rank: usize) -> (usize, usize, String) {
    let line = text.lines().find_map(|line| line.split_once(&format!("rank {rank}: world ")).map(|(_, rest)| rest));
    let line = line.unwrap_or_else(|| panic!("rank {rank} did not report the world:\n{text}"));
    let (world, rest) = line.split_once(" sum ").expect("a sum");
    let (sum, map) = rest.split_once(" map ").expect("a map");
    (world.parse().expect("a number"), sum.parse().expect("a number"), map.to_owned())
}

#[track_caller]
fn assert_four_rank_world(laptop: &Laptop) {
    assert_eq!(laptop.rank_log_names(), ["rank-0.log", "rank-1.log", "rank-2.log", "rank-3.log"], "a log for each rank");
    for rank in 0..4 {
        assert_eq!(parse_world_line(&laptop.read_log_text(&format!("rank-{rank}.log")), rank), (4, 4, EXPECTED_RANK_MAP.to_owned()));
    }
}

#[track_caller]
fn assert_job_succeeds(job: &JobSpec) {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let file = cluster.write_inventory(&laptop, job);
    laptop
        .run(&["up", path_str(&file), "--set", "launch.master_port=auto"])
        .assert_exit_code(0)
        .assert_recap("OK")
        .assert_contains("4 ok  0 failed of 4");
    assert_four_rank_world(&laptop);
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn torchrun_static_ranks_follow_host_order() {
    assert_job_succeeds(&launcher_job("static-map", "torchrun", &["/mnt/world.py", "torch"], ""));
}

/// Under c10d the rendezvous assigns the ranks: each host still has two, and all ranks agree on the assignment.
#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn torchrun_c10d_assigns_all_ranks() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let file = cluster.write_inventory(&laptop, &launcher_job("c10d-map", "torchrun", &["/mnt/world.py", "torch"], "rendezvous: c10d\n"));
    laptop.run(&["up", path_str(&file)]).assert_exit_code(0).assert_recap("OK");
    let maps: Vec<_> = (0..4).map(|rank| parse_world_line(&laptop.read_log_text(&format!("rank-{rank}.log")), rank)).collect();
    assert!(maps.iter().all(|map| *map == maps[0]), "{maps:?}");
    let mut places: Vec<&str> = maps[0].2.split(' ').collect();
    places.sort_unstable();
    assert_eq!((maps[0].0, maps[0].1, places.join(" ")), (4, 4, EXPECTED_RANK_MAP.to_owned()));
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn accelerate_launches_on_two_hosts() {
    assert_job_succeeds(&launcher_job("accelerate", "accelerate", &["/mnt/world.py", "accelerate"], ""));
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn jax_sums_over_four_processes() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let file = cluster.write_inventory(&laptop, &launcher_job("jax", "processes", &["/mnt/psum.py"], "gpu_visibility: own\n"));
    laptop.run(&["up", path_str(&file)]).assert_exit_code(0).assert_recap("OK");
    for (rank, location) in EXPECTED_RANK_MAP.split(' ').enumerate() {
        assert_eq!(parse_world_line(&laptop.read_log_text(&format!("rank-{rank}.log")), rank), (4, 4, location.to_owned()));
    }
}

/// The ranks run through the image's ENTRYPOINT, which leaves a line in the launcher log.
#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn image_entrypoint_wraps_the_launcher() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let mut job = JobSpec::torch("through").with_command(&["/mnt/train.py"]).with_hosts(&["gpu01"]);
    job.image = Some("orchestrate-through:test".to_owned());
    job.container = "entrypoint: image\n".to_owned();
    let file = cluster.write_inventory(&laptop, &job);
    laptop.run(&["up", path_str(&file)]).assert_exit_code(0).assert_recap("OK");
    let node = laptop.read_log_text("node-0.log");
    assert!(node.contains("it's through the entrypoint"), "{node}");
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn missing_script_or_bad_flag_fails_before_launch() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    for (name, command, launch, words) in [
        ("no-script", "/mnt/no-such.py", "", "no file /mnt/no-such.py in the container"),
        ("old-flag", "/mnt/world.py", "args: [--not-a-flag=1]\n", "does not support --not_a_flag"),
    ] {
        let file = cluster.write_inventory(&laptop, &launcher_job(name, "torchrun", &[command, "torch"], launch));
        laptop.run(&["up", path_str(&file)]).assert_exit_code(3).assert_contains(words);
    }
    cluster.exec_on("gpu01", "printf 'distributed_type: MULTI_GPU\\nnum_machines: 1\\nnum_processes: 16\\n' >/srv/suite/one.yaml");
    let file = cluster.write_inventory(
        &laptop,
        &launcher_job("one-machine", "accelerate", &["/mnt/world.py", "torch"], "args: [--config_file, /mnt/one.yaml]\n"),
    );
    laptop.run(&["up", path_str(&file)]).assert_exit_code(3).assert_contains("num_machines: 1 (here: 2), num_processes: 16 (here: 4)");
    cluster.exec_on("gpu01", "rm /srv/suite/one.yaml");
}

fn start_script_over_ssh(cluster: &Cluster, host: &str, script: &std::path::Path) -> Child {
    Command::new("ssh")
        .arg("-F")
        .arg(cluster.client_file("ssh_config"))
        .args([host, "sh"])
        .stdin(std::fs::File::open(script).expect("the script"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ssh")
}

/// The rendered scripts do the same job with ssh and sh alone.
#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn rendered_scripts_run_standalone() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let file = cluster.write_inventory(&laptop, &launcher_job("by-hand", "torchrun", &["/mnt/world.py", "torch"], ""));
    let dir = file.with_extension("scripts");
    laptop.run(&["render", path_str(&file), "--facts", "-o", path_str(&dir)]).assert_exit_code(0);
    let children = ["gpu01", "gpu02"].map(|host| start_script_over_ssh(&cluster, host, &dir.join(format!("{host}.sh"))));
    let mut all = String::new();
    for child in children {
        let out = child.wait_with_output().expect("it ended");
        all.push_str(&String::from_utf8_lossy(&out.stdout));
        assert!(out.status.success(), "{}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
    }
    for rank in 0..4 {
        assert_eq!(parse_world_line(&all, rank), (4, 4, EXPECTED_RANK_MAP.to_owned()));
    }
}

/// An engine on another socket, and a socket that does not exist.
#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn container_host_selects_the_docker_engine() {
    let cluster = Cluster::acquire();
    for host in ["gpu01", "gpu02"] {
        cluster.exec_on(host, "ln -sf /var/run/docker.sock /run/second.sock");
    }
    let laptop = Laptop::new();
    let mut job = JobSpec::busybox("engine").with_command(&["/bin/sh", "-c", "echo here"]);
    job.container = "host: unix:///run/second.sock\n".to_owned();
    let file = cluster.write_inventory(&laptop, &job);
    laptop.run(&["up", "-d", "--keep", path_str(&file)]).assert_exit_code(0);
    laptop.run(&["ps", path_str(&file)]).assert_exit_code(0).assert_contains("gpu02");
    laptop.run(&["down", "--yes", path_str(&file)]).assert_exit_code(0);
    for host in ["gpu01", "gpu02"] {
        cluster.exec_on(host, "rm /run/second.sock");
    }
    laptop.run(&["up", path_str(&file)]).assert_exit_code(3).assert_contains("unix:///run/second.sock");
}

/// Tier 2.
mod whole {
    use super::*;

    /// ZeRO stage 1 on gloo, without the operators that DeepSpeed would compile.
    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn accelerate_runs_deepspeed_on_two_hosts() {
        let mut job = launcher_job("acc-ds", "accelerate", &["/mnt/zero.py"], "args: [--use_deepspeed, --zero_stage=1]\n");
        job.env = "DS_ACCELERATOR: cpu\nDS_SKIP_CUDA_CHECK: 1\n".to_owned();
        assert_job_succeeds(&job);
    }

    /// An elastic gang can do without one host: its launcher is killed, and the others meet again and succeed.
    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn elastic_gang_continues_with_remaining_hosts() {
        let cluster = Cluster::acquire();
        let laptop = Laptop::new();
        let mut job = launcher_job("elastic", "torchrun", &["/mnt/elastic.py"], "");
        job.launch = "rendezvous: c10d\nmin_nodes: 1\nmax_restarts: 6\n".to_owned();
        job.image = Some("orchestrate-torch:test".to_owned());
        let file = cluster.write_inventory(&laptop, &job);
        let mut up = laptop.start(&["up", path_str(&file)]);
        up.wait_until("all four ranks have joined", || {
            (0..4).all(|rank| laptop.read_log_text(&format!("rank-{rank}.log")).contains("a gang of 4")).then_some(())
        });
        cluster.exec_on("gpu02", "pkill -9 -f '[b]in/torchrun --nnodes=1:2'; pkill -9 -f '[/]mnt/elastic.py'");
        up.wait_for_output("the other hosts are enough and go on");
        // torch forgets a silent host after its keep-alive and waits for late ones; meanwhile it may include the dead host once more.
        let logs = |laptop: &Laptop| laptop.rank_log_names().iter().map(|name| laptop.read_log_text(name)).collect::<String>();
        up.wait_until("two ranks have joined", || (logs(&laptop).matches("two are left").count() == 2).then_some(()));
        up.wait_for_exit().assert_exit_code(0).assert_recap("OK");
        let logs = logs(&laptop);
        assert_eq!(logs.matches("two are left").count(), 2, "{logs}");
        cluster.assert_hosts_unchanged();
    }

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn deepspeed_launcher_runs_once_per_host() {
        assert_job_succeeds(&launcher_job("ds-own", "deepspeed", &["/mnt/world.py", "deepspeed"], "rendezvous: hostfile\n"));
    }

    /// A script has one rank per host; the processes that it starts write to that rank's log.
    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn script_around_torchrun_runs_once_per_host() {
        let cluster = Cluster::acquire();
        let laptop = Laptop::new();
        let file =
            cluster.write_inventory(&laptop, &launcher_job("script", "script", &["bash", "/mnt/train.sh", "/mnt/world.py", "torch"], ""));
        laptop.run(&["up", path_str(&file)]).assert_exit_code(0).assert_recap("OK").assert_contains("2 ok  0 failed of 2");
        for rank in 0..4 {
            let text = laptop.read_log_text(&format!("rank-{}.log", rank / 2));
            assert!(text.contains(&format!("host {} of 2 starts 2 processes", rank / 2)), "{text}");
            assert_eq!(parse_world_line(&text, rank), (4, 4, EXPECTED_RANK_MAP.to_owned()));
        }
        cluster.assert_hosts_unchanged();
    }

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn processes_launcher_meets_over_gloo() {
        assert_job_succeeds(&launcher_job("processes", "processes", &["/mnt/world.py", "torch"], ""));
    }

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn deepspeed_launches_through_torchrun() {
        assert_job_succeeds(&launcher_job("deepspeed", "deepspeed", &["/mnt/world.py", "deepspeed"], ""));
    }

    /// The interpreter of a virtual environment that is not activated.
    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn launch_python_sets_the_interpreter() {
        let mut job = launcher_job("python", "torchrun", &["/mnt/which.py"], "");
        job.launch = "python: /opt/ml/bin/python\n".to_owned();
        let cluster = Cluster::acquire();
        for host in ["gpu01", "gpu02"] {
            cluster.exec_on(host, "echo 'import sys, accelerate; print(sys.executable)' >/srv/suite/which.py");
        }
        let laptop = Laptop::new();
        let file = cluster.write_inventory(&laptop, &job);
        laptop.run(&["up", path_str(&file)]).assert_exit_code(0).assert_recap("OK");
        for rank in 0..4 {
            assert_eq!(laptop.read_log_text(&format!("rank-{rank}.log")).lines().last(), Some("/opt/ml/bin/python"), "rank {rank}");
        }
        for host in ["gpu01", "gpu02"] {
            cluster.exec_on(host, "rm /srv/suite/which.py");
        }
        cluster.assert_hosts_unchanged();
    }

    /// A real script in the inventory, after `launch.setup`: once per host, or once per process.
    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn launch_shell_runs_after_launch_setup() {
        let cluster = Cluster::acquire();
        for (name, with, ranks) in [("sh-script", "script", 2), ("sh-each", "processes", 4)] {
            let mut job = launcher_job(name, with, &[], "");
            job.launch = "setup: export PREPARED=\"it's $((40 + 2))\"\ngate: started\nshell: |\n  set -euo pipefail\n  words=(a \"b c\")\n  echo \"$PREPARED ${#words[@]} $RANK\"\n".to_owned();
            let laptop = Laptop::new();
            let file = cluster.write_inventory(&laptop, &job);
            let text = std::fs::read_to_string(&file).expect("an inventory").replace("  command: []\n", "");
            std::fs::write(&file, text).expect("written");
            laptop.run(&["up", path_str(&file)]).assert_exit_code(0).assert_recap("OK");
            for rank in 0..ranks {
                assert_eq!(laptop.read_log_text(&format!("rank-{rank}.log")), format!("it's 42 2 {rank}\n"), "{with}");
            }
        }
        cluster.assert_hosts_unchanged();
    }
}
