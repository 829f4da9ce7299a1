//! Every launcher for real on two hosts: each rank says how many they are and where everybody is, and that is read here.

use std::process::{Child, Command, Stdio};

use crate::laptop::{Laptop, word};
use crate::support::{Cluster, Job};

/// Where the four ranks of two hosts with two processes each belong.
const MAP: &str = "gpu01/0 gpu01/1 gpu02/0 gpu02/1";

fn job(name: &'static str, with: &'static str, command: &[&str], launch: &str) -> Job {
    let mut job = Job::torch(name).command(command);
    job.image = Some("orchestrate-ml:test".to_owned());
    job.with = with;
    job.launch = format!("setup: source /opt/ml/bin/activate\n{launch}");
    job
}

/// What each rank said: world size, sum over all ranks, and the hosts and local ranks in the order of ranks.
#[track_caller]
fn said(text: &str, rank: usize) -> (usize, usize, String) {
    let line = text.lines().find_map(|line| line.split_once(&format!("rank {rank}: world ")).map(|(_, rest)| rest));
    let line = line.unwrap_or_else(|| panic!("rank {rank} said nothing of the world:\n{text}"));
    let (world, rest) = line.split_once(" sum ").expect("a sum");
    let (sum, map) = rest.split_once(" map ").expect("a map");
    (world.parse().expect("a number"), sum.parse().expect("a number"), map.to_owned())
}

#[track_caller]
fn world(laptop: &Laptop) {
    assert_eq!(laptop.rank_logs(), ["rank-0.log", "rank-1.log", "rank-2.log", "rank-3.log"], "a log for each rank");
    for rank in 0..4 {
        assert_eq!(said(&laptop.text(&format!("rank-{rank}.log")), rank), (4, 4, MAP.to_owned()));
    }
}

#[track_caller]
fn runs(job: &Job) {
    let cluster = Cluster::take();
    let laptop = Laptop::new();
    let file = cluster.inventory(&laptop, job);
    laptop.run(&["up", word(&file), "--set", "launch.master_port=auto"]).code(0).recap("OK").says("4 ok  0 failed of 4");
    world(&laptop);
    cluster.as_before();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn torchrun_gives_static_ranks_in_the_order_of_hosts() {
    runs(&job("static-map", "torchrun", &["/mnt/world.py", "torch"], ""));
}

/// Under c10d the rendezvous says who is which rank: two of each host all the same, and all agree on it.
#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn torchrun_hands_out_ranks_with_c10d() {
    let cluster = Cluster::take();
    let laptop = Laptop::new();
    let file = cluster.inventory(&laptop, &job("c10d-map", "torchrun", &["/mnt/world.py", "torch"], "rendezvous: c10d\n"));
    laptop.run(&["up", word(&file)]).code(0).recap("OK");
    let maps: Vec<_> = (0..4).map(|rank| said(&laptop.text(&format!("rank-{rank}.log")), rank)).collect();
    assert!(maps.iter().all(|map| *map == maps[0]), "{maps:?}");
    let mut places: Vec<&str> = maps[0].2.split(' ').collect();
    places.sort_unstable();
    assert_eq!((maps[0].0, maps[0].1, places.join(" ")), (4, 4, MAP.to_owned()));
    cluster.as_before();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn accelerate_launches_over_two_hosts() {
    runs(&job("accelerate", "accelerate", &["/mnt/world.py", "accelerate"], ""));
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn jax_adds_up_over_four_processes() {
    let cluster = Cluster::take();
    let laptop = Laptop::new();
    let file = cluster.inventory(&laptop, &job("jax", "processes", &["/mnt/psum.py"], "gpu_visibility: own\n"));
    laptop.run(&["up", word(&file)]).code(0).recap("OK");
    for (rank, place) in MAP.split(' ').enumerate() {
        assert_eq!(said(&laptop.text(&format!("rank-{rank}.log")), rank), (4, 4, place.to_owned()));
    }
    cluster.as_before();
}

/// The ranks run through the image's ENTRYPOINT, which says so in the launcher's log.
#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn the_images_entrypoint_is_gone_through() {
    let cluster = Cluster::take();
    let laptop = Laptop::new();
    let mut job = Job::torch("through").command(&["/mnt/train.py"]).hosts(&["gpu01"]);
    job.image = Some("orchestrate-through:test".to_owned());
    job.container = "entrypoint: image\n".to_owned();
    let file = cluster.inventory(&laptop, &job);
    laptop.run(&["up", word(&file)]).code(0).recap("OK");
    let node = laptop.text("node-0.log");
    assert!(node.contains("it's through the entrypoint"), "{node}");
    cluster.as_before();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn what_is_not_there_is_said_before_anything_runs() {
    let cluster = Cluster::take();
    let laptop = Laptop::new();
    for (name, command, launch, words) in [
        ("no-script", "/mnt/no-such.py", "", "there is no /mnt/no-such.py in the container"),
        ("old-flag", "/mnt/world.py", "args: [--not-a-flag=1]\n", "does not know --not_a_flag"),
    ] {
        let file = cluster.inventory(&laptop, &job(name, "torchrun", &[command, "torch"], launch));
        laptop.run(&["up", word(&file)]).code(3).says(words);
    }
    cluster.on("gpu01", "printf 'distributed_type: MULTI_GPU\\nnum_machines: 1\\nnum_processes: 16\\n' >/srv/suite/one.yaml");
    let file = cluster
        .inventory(&laptop, &job("one-machine", "accelerate", &["/mnt/world.py", "torch"], "args: [--config_file, /mnt/one.yaml]\n"));
    laptop.run(&["up", word(&file)]).code(3).says("num_machines: 1 (here: 2), num_processes: 16 (here: 4)");
    cluster.on("gpu01", "rm /srv/suite/one.yaml");
    cluster.as_before();
}

fn by_hand(cluster: &Cluster, host: &str, script: &std::path::Path) -> Child {
    Command::new("ssh")
        .arg("-F")
        .arg(cluster.file("ssh_config"))
        .args([host, "sh"])
        .stdin(std::fs::File::open(script).expect("the script"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ssh")
}

/// The rendered scripts do the same job by ssh and sh alone.
#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn rendered_scripts_run_by_hand() {
    let cluster = Cluster::take();
    let laptop = Laptop::new();
    let file = cluster.inventory(&laptop, &job("by-hand", "torchrun", &["/mnt/world.py", "torch"], ""));
    let dir = file.with_extension("scripts");
    laptop.run(&["render", word(&file), "--facts", "-o", word(&dir)]).code(0);
    let children = ["gpu01", "gpu02"].map(|host| by_hand(&cluster, host, &dir.join(format!("{host}.sh"))));
    let mut all = String::new();
    for child in children {
        let out = child.wait_with_output().expect("it ended");
        all.push_str(&String::from_utf8_lossy(&out.stdout));
        assert!(out.status.success(), "{}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
    }
    for rank in 0..4 {
        assert_eq!(said(&all, rank), (4, 4, MAP.to_owned()));
    }
    cluster.as_before();
}

/// Another socket of the engine, and one that is not there.
#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn container_host_says_which_engine() {
    let cluster = Cluster::take();
    for host in ["gpu01", "gpu02"] {
        cluster.on(host, "ln -sf /var/run/docker.sock /run/second.sock");
    }
    let laptop = Laptop::new();
    let mut job = Job::quick("engine").command(&["/bin/sh", "-c", "echo here"]);
    job.container = "host: unix:///run/second.sock\n".to_owned();
    let file = cluster.inventory(&laptop, &job);
    laptop.run(&["up", "-d", "--keep", word(&file)]).code(0);
    laptop.run(&["ps", word(&file)]).code(0).says("gpu02");
    laptop.run(&["down", "--yes", word(&file)]).code(0);
    for host in ["gpu01", "gpu02"] {
        cluster.on(host, "rm /run/second.sock");
    }
    laptop.run(&["up", word(&file)]).code(3).says("unix:///run/second.sock");
    cluster.as_before();
}

/// Tier 2.
mod whole {
    use super::*;

    /// ZeRO stage 1 on gloo; what DeepSpeed would compile is left out.
    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn accelerate_runs_deepspeed_over_two_hosts() {
        let mut job = job("acc-ds", "accelerate", &["/mnt/zero.py"], "args: [--use_deepspeed, --zero_stage=1]\n");
        job.env = "DS_ACCELERATOR: cpu\nDS_SKIP_CUDA_CHECK: 1\n".to_owned();
        runs(&job);
    }

    /// A host that an elastic gang can do without: its launcher is killed, the others meet again and end well.
    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn an_elastic_gang_goes_on_with_the_hosts_that_are_left() {
        let cluster = Cluster::take();
        let laptop = Laptop::new();
        let mut job = job("elastic", "torchrun", &["/mnt/elastic.py"], "");
        job.launch = "rendezvous: c10d\nmin_nodes: 1\nmax_restarts: 6\n".to_owned();
        job.image = Some("orchestrate-torch:test".to_owned());
        let file = cluster.inventory(&laptop, &job);
        let mut up = laptop.start(&["up", word(&file)]);
        up.until("all four have met", || (0..4).all(|rank| laptop.text(&format!("rank-{rank}.log")).contains("a gang of 4")).then_some(()));
        cluster.on("gpu02", "pkill -9 -f '[b]in/torchrun --nnodes=1:2'; pkill -9 -f '[/]mnt/elastic.py'");
        up.says("the other hosts are enough and go on");
        // torch forgets a silent host after its keep-alive and waits for late ones; meanwhile it may call the dead one once more.
        let logs = |laptop: &Laptop| laptop.rank_logs().iter().map(|name| laptop.text(name)).collect::<String>();
        up.until("two have met", || (logs(&laptop).matches("two are left").count() == 2).then_some(()));
        up.end().code(0).recap("OK");
        let logs = logs(&laptop);
        assert_eq!(logs.matches("two are left").count(), 2, "{logs}");
        cluster.as_before();
    }

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn deepspeeds_own_launcher_runs_once_a_host() {
        runs(&job("ds-own", "deepspeed", &["/mnt/world.py", "deepspeed"], "rendezvous: hostfile\n"));
    }

    /// A script has one rank a host, and what it starts says the rest in that rank's log.
    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn a_script_around_torchrun_runs_once_a_host() {
        let cluster = Cluster::take();
        let laptop = Laptop::new();
        let file = cluster.inventory(&laptop, &job("script", "script", &["bash", "/mnt/train.sh", "/mnt/world.py", "torch"], ""));
        laptop.run(&["up", word(&file)]).code(0).recap("OK").says("2 ok  0 failed of 2");
        for rank in 0..4 {
            let text = laptop.text(&format!("rank-{}.log", rank / 2));
            assert!(text.contains(&format!("host {} of 2 starts 2 processes", rank / 2)), "{text}");
            assert_eq!(said(&text, rank), (4, 4, MAP.to_owned()));
        }
        cluster.as_before();
    }

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn processes_meet_over_gloo() {
        runs(&job("processes", "processes", &["/mnt/world.py", "torch"], ""));
    }

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn deepspeed_is_launched_by_torch() {
        runs(&job("deepspeed", "deepspeed", &["/mnt/world.py", "deepspeed"], ""));
    }

    /// The interpreter of an environment, without activating it.
    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn launch_python_is_the_interpreter_of_launcher_and_ranks() {
        let mut job = job("python", "torchrun", &["/mnt/which.py"], "");
        job.launch = "python: /opt/ml/bin/python\n".to_owned();
        let cluster = Cluster::take();
        for host in ["gpu01", "gpu02"] {
            cluster.on(host, "echo 'import sys, accelerate; print(sys.executable)' >/srv/suite/which.py");
        }
        let laptop = Laptop::new();
        let file = cluster.inventory(&laptop, &job);
        laptop.run(&["up", word(&file)]).code(0).recap("OK");
        for rank in 0..4 {
            assert_eq!(laptop.text(&format!("rank-{rank}.log")).lines().last(), Some("/opt/ml/bin/python"), "rank {rank}");
        }
        for host in ["gpu01", "gpu02"] {
            cluster.on(host, "rm /srv/suite/which.py");
        }
        cluster.as_before();
    }

    /// A real script in the inventory, after `launch.setup`: once a host, or once a process.
    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn launch_shell_runs_after_launch_setup() {
        let cluster = Cluster::take();
        for (name, with, ranks) in [("sh-script", "script", 2), ("sh-each", "processes", 4)] {
            let mut job = job(name, with, &[], "");
            job.launch = "setup: export PREPARED=\"it's $((40 + 2))\"\ngate: started\nshell: |\n  set -euo pipefail\n  words=(a \"b c\")\n  echo \"$PREPARED ${#words[@]} $RANK\"\n".to_owned();
            let laptop = Laptop::new();
            let file = cluster.inventory(&laptop, &job);
            let text = std::fs::read_to_string(&file).expect("an inventory").replace("  command: []\n", "");
            std::fs::write(&file, text).expect("written");
            laptop.run(&["up", word(&file)]).code(0).recap("OK");
            for rank in 0..ranks {
                assert_eq!(laptop.text(&format!("rank-{rank}.log")), format!("it's 42 2 {rank}\n"), "{with}");
            }
        }
        cluster.as_before();
    }
}
