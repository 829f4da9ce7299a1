//! The rendered script on a real SLURM cluster: `tests/cluster/slurm up` starts slurmctld and two slurmd on loopback. The nodes share this
//! machine, its file system and its processes; GPUs are names without devices.
#![expect(clippy::disallowed_methods, clippy::expect_used, clippy::panic, reason = "the tests use a real cluster")]

#[path = "slurm/docker_jobs.rs"]
mod docker_jobs;
#[path = "slurm/followers.rs"]
mod followers;
#[path = "slurm/login_node.rs"]
mod login_node;
#[path = "slurm/prepare.rs"]
mod prepare;
#[path = "slurm/whole.rs"]
mod whole;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use orchestrate::inventory::Launcher;

/// A temporary directory, and the environment to reach the cluster.
struct Cluster {
    dir: tempfile::TempDir,
    configuration: String,
}

impl Cluster {
    fn new() -> Cluster {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/slurm");
        let out = Command::new(&script).arg("up").output().expect("the script runs");
        assert!(out.status.success(), "the cluster is not up: {}", String::from_utf8_lossy(&out.stderr));
        let conf = Command::new(script).arg("conf").output().expect("the script runs");
        let configuration = String::from_utf8_lossy(&conf.stdout).trim().to_owned();
        Cluster { dir: tempfile::tempdir().expect("a folder"), configuration }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.dir.path()).env("SLURM_CONF", &self.configuration).stdin(Stdio::null());
        command
    }

    fn run(&self, program: &str, args: &[&str]) -> Output {
        self.command(program).args(args).output().unwrap_or_else(|error| panic!("{program}: {error}"))
    }

    /// Renders an inventory with a `run_dir` in this test's directory.
    fn render(&self, name: &str, text: &str) -> PathBuf {
        let (inventory, script) = (self.path(&format!("{name}.yaml")), self.path(&format!("{name}.sbatch")));
        let text = format!("name: {name}\nrun_dir: {}\n{text}", self.path("run").display());
        std::fs::write(&inventory, text).expect("written");
        let (from, to) = (inventory.display().to_string(), script.display().to_string());
        let out = self.run(env!("CARGO_BIN_EXE_orchestrate"), &["slurm", "render", &from, "-o", &to]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        script
    }

    /// Submits a script and waits until its job ends; returns its exit code and its log.
    fn submit_and_wait(&self, script: &Path) -> (Option<i32>, String) {
        let out = self.command("timeout").args(["120", "sbatch", "-W", "--parsable"]).arg(script).output().expect("sbatch");
        let job = String::from_utf8_lossy(&out.stdout).trim().to_owned();
        assert!(!job.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
        (out.status.code(), self.job_log(script, &job))
    }

    fn job_log(&self, script: &Path, job: &str) -> String {
        let name = script.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
        std::fs::read_to_string(self.path(&format!("{name}-{job}.out"))).unwrap_or_default()
    }

    /// The rank logs of a run, in rank order.
    fn rank_logs(&self, name: &str) -> Vec<String> {
        let mut logs: Vec<(String, String)> = Vec::new();
        for node in ["n0", "n1"] {
            let out = self.path("run").join(name).join(format!("{node}.out"));
            for entry in std::fs::read_dir(&out).unwrap_or_else(|error| panic!("{}: {error}", out.display())) {
                let path = entry.expect("an entry").path();
                let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
                if let Some((_, rank)) = file.split_once(".rank-").filter(|(_, rank)| rank.ends_with(".log")) {
                    logs.push((rank.to_owned(), std::fs::read_to_string(&path).expect("a log")));
                }
            }
        }
        logs.sort();
        logs.into_iter().map(|(_, text)| text).collect()
    }

    fn wait_until(&self, what: &str, holds: impl Fn() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(90), "{what} after 90 s");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

const SLURM: &str = "slurm: { nodes: 2, gpus_per_node: 2, time: \"10\", partition: gpu, cpus_per_task: 2 }\n";

#[test]
#[ignore = "needs a SLURM cluster, root and Debian's packages: tests/cluster/slurm up"]
fn ranks_run_once_each_and_know_their_places() {
    let cluster = Cluster::new();
    let script = cluster.render(
        "places",
        &format!(
            "env: {{ ODD: \"a, b 'c' $d\" }}\nlaunch:\n  with: processes\n  nproc_per_node: 2\n  shell: |\n    set -eu\n    \
             echo \"$RANK/$WORLD_SIZE $LOCAL_RANK $ORCH_HOST $NODE_RANK $MASTER_ADDR gpus $CUDA_VISIBLE_DEVICES [$ODD] ${{SLURM_PROCID-none}}\"\n{SLURM}"
        ),
    );
    let (code, log) = cluster.submit_and_wait(&script);
    assert_eq!(code, Some(0), "{log}");
    let expected: Vec<String> =
        (0..4).map(|rank| format!("{rank}/4 {} n{} {} 127.0.0.1 gpus 0,1 [a, b 'c' $d] none\n", rank % 2, rank / 2, rank / 2)).collect();
    assert_eq!(cluster.rank_logs("places"), expected, "{log}");
}

#[test]
#[ignore = "needs a SLURM cluster, root and Debian's packages: tests/cluster/slurm up"]
fn first_failed_rank_ends_the_gang_and_is_named() {
    let cluster = Cluster::new();
    // It fails when the others can save. A shell that is signaled while it starts its child may run the trap in both, so the child starts first.
    let script = cluster.render(
        "fails",
        &format!(
            "launch:\n  with: processes\n  nproc_per_node: 2\n  stop_grace: 30s\n  shell: |\n    set -eu\n    trap 'sleep 8; echo saved; exit 3' TERM\n    \
             if [ \"$RANK\" = 2 ]; then\n      until [ -e {up}-0 ] && [ -e {up}-1 ] && [ -e {up}-3 ]; do sleep 0.1; done\n      \
             echo broken; exit 7\n    fi\n    sleep 600 &\n    : >{up}-$RANK\n    wait\n{SLURM}",
            up = cluster.path("up").display()
        ),
    );
    let (code, log) = cluster.submit_and_wait(&script);
    assert_eq!(code, Some(7), "the code of the rank that failed first: {log}");
    assert!(log.contains("rank 2 on n1 failed first, with exit code 7"), "{log}");
    let logs = cluster.rank_logs("fails");
    assert_eq!(
        logs,
        ["saved\n", "saved\n", "broken\n", "saved\n"],
        "the other node too has longer than the cluster's KillWait of 5 s: {log}"
    );
}

#[test]
#[ignore = "needs a SLURM cluster, root and Debian's packages: tests/cluster/slurm up"]
fn cancelled_job_lets_ranks_save_and_leaves_nothing() {
    let cluster = Cluster::new();
    // TERM may reach the sleeping child before its shell: a shell that started another one then would leave it behind.
    let mark = format!("6{:05}", std::process::id() % 100_000);
    let script = cluster.render(
        "stopped",
        &format!(
            "launch:\n  with: script\n  stop_grace: 10s\n  shell: |\n    set -eu\n    trap 'echo saved; exit 3' TERM\n    echo ready\n    \
             sleep {mark} & wait\n    sleep 2\n{SLURM}"
        ),
    );
    let out = cluster.run("sbatch", &["--parsable", &script.display().to_string()]);
    let job = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    let log_of = |rank: usize| cluster.path("run/stopped").join(format!("n{rank}.out"));
    cluster.wait_until("no rank is ready", || {
        (0..2).all(|rank| log_of(rank).exists()) && cluster.rank_logs("stopped").iter().filter(|log| log.contains("ready")).count() == 2
    });
    assert!(cluster.run("scancel", &[&job]).status.success());
    cluster.wait_until("the job is still there", || {
        let state = cluster.run("squeue", &["-h", "-t", "all", "-j", &job, "-o", "%T"]);
        String::from_utf8_lossy(&state.stdout).trim() == "CANCELLED"
    });
    let logs = cluster.rank_logs("stopped");
    assert!(logs.iter().all(|log| log.contains("saved")), "{logs:?}");
    cluster.wait_until("a process of the ranks is left", || !cluster.run("pgrep", &["-f", &format!("^sleep {mark}")]).status.success());
    let text = cluster.job_log(&script, &job);
    assert!(text.contains("stopping the ranks: cancelled or preempted"), "{text}");
}

/// Sends the signal that SLURM sends before the time limit.
#[test]
#[ignore = "needs a SLURM cluster, root and Debian's packages: tests/cluster/slurm up"]
fn signal_to_the_batch_shell_stops_ranks_with_their_grace() {
    let cluster = Cluster::new();
    let script = cluster.render(
        "signalled",
        &format!(
            "launch:\n  with: processes\n  nproc_per_node: 2\n  stop_grace: 30s\n  shell: |\n    set -eu\n    \
             trap 'sleep 8; echo saved; exit 0' TERM\n    echo ready\n    while :; do sleep 1 || :; done\n{SLURM}"
        ),
    );
    let out = cluster.run("sbatch", &["--parsable", &script.display().to_string()]);
    let job = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    cluster.wait_until("no rank is ready", || {
        let both = ["n0", "n1"].iter().all(|node| cluster.path("run/signalled").join(format!("{node}.out")).exists());
        both && cluster.rank_logs("signalled").iter().filter(|log| log.contains("ready")).count() == 4
    });
    assert!(cluster.run("scancel", &["--batch", "--signal=USR1", &job]).status.success());
    cluster.wait_until("the job is still there", || {
        let state = cluster.run("squeue", &["-h", "-t", "all", "-j", &job, "-o", "%T"]);
        String::from_utf8_lossy(&state.stdout).trim() == "COMPLETED"
    });
    let logs = cluster.rank_logs("signalled");
    assert!(logs.iter().all(|log| log.ends_with("saved\n")), "longer than the cluster's KillWait of 5 s: {logs:?}");
}

#[test]
#[ignore = "needs a SLURM cluster, root and Debian's packages: tests/cluster/slurm up"]
fn secrets_reach_ranks_and_leave_the_disk_first() {
    let cluster = Cluster::new();
    let settings = SLURM.replace("nodes: 2", "secrets: file, nodes: 2");
    let script = cluster.render(
        "secret",
        &format!("secrets: [HF_TOKEN]\nlaunch:\n  with: script\n  command: [sh, -c, 'echo \"<$HF_TOKEN>\"; env | grep -c ORCH_SECRETS']\n{settings}"),
    );
    let missing = cluster.submit_and_wait(&script);
    assert!(missing.0 == Some(1) && missing.1.contains("no secrets: "), "{missing:?}");
    let file = cluster.path("run/secret/slurm-secrets");
    std::fs::write(&file, "export HF_TOKEN='it'\\''s $x'\n").expect("written");
    let (code, log) = cluster.submit_and_wait(&script);
    assert_eq!((code, file.exists()), (Some(1), false), "grep finds none, and ends with 1: {log}");
    assert_eq!(cluster.rank_logs("secret"), ["<it's $x>\n0\n", "<it's $x>\n0\n"]);
    let found = cluster.run("grep", &["-rl", "it's", &cluster.path("run").display().to_string()]);
    let found = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(found.lines().all(|path| path.ends_with(".log")), "only the ranks wrote it: {found}");
}

#[test]
#[ignore = "needs a SLURM cluster, root and Debian's packages: tests/cluster/slurm up"]
fn cluster_accepts_every_launcher_and_container() {
    let cluster = Cluster::new();
    for launcher in Launcher::ALL.map(Launcher::as_str) {
        for mode in ["none", "docker", "pyxis", "apptainer"] {
            let container = if mode == "none" { "" } else { "container: { image: \"train:1\" }\n" };
            let settings = SLURM.replace("nodes: 2", &format!("container: {mode}, nodes: 2"));
            let text = format!("{container}launch: {{ with: {launcher}, nproc_per_node: 2, command: [train.py] }}\n{settings}");
            let script = cluster.render(&format!("{launcher}-{mode}"), &text);
            let out = cluster.run("sbatch", &["--test-only", &script.display().to_string()]);
            let expected = String::from_utf8_lossy(&out.stderr).into_owned();
            assert!(out.status.success() && expected.contains("to start at"), "{launcher} {mode}: {expected}");
        }
    }
}
