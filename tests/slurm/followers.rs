//! Following a job: through a requeue, with the GPUs of its nodes, and detaching before its end.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use crate::login_node::{CommandResult, Login, waiting_ranks};

#[test]
#[ignore = "needs a SLURM cluster, root and Debian's packages: tests/cluster/slurm up"]
fn requeued_job_is_followed_to_its_end_and_fetched_whole() {
    let login = Login::new();
    let ranks = "launch:\n  with: script\n  stop_grace: 5s\n  shell: |\n    set -eu\n    trap 'exit 3' TERM\n    \
                 echo \"start ${SLURM_RESTART_COUNT-0}, rank $RANK of $ORCH_RUN_ID\"\n    \
                 if [ \"${SLURM_RESTART_COUNT-0}\" = 0 ]; then sleep 600 & wait; fi\n";
    let inventory = login.inventory("again", ", requeue: true", ranks);
    let job = login.submit(&inventory);
    let mut follower =
        login.command(&["slurm", "logs", "-f"], &inventory).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut out = BufReader::new(follower.stdout.take().expect("its output"));
    let mut seen = String::new();
    while seen.matches("start 0,").count() < 2 {
        assert!(out.read_line(&mut seen).expect("a line") > 0, "it ended: {seen}");
    }
    assert!(login.cluster.run("scontrol", &["requeue", &job]).status.success());
    login.cluster.wait_until("the second start did not begin", || {
        // A requeued job waits for two minutes unless its start time is set.
        drop(login.cluster.run("scontrol", &["update", &format!("job={job}"), "StartTime=now"]));
        login.orchestrate(&["slurm", "status"], &inventory).out.contains("COMPLETED")
    });
    out.read_to_string(&mut seen).expect("the rest");
    let followed = CommandResult::new(&follower.wait_with_output().expect("it ends"));
    let followed = CommandResult { out: seen, ..followed }.expect(0, &["was requeued", &format!("job {job}: COMPLETED")]);
    let mut runs: Vec<&str> = followed.out.lines().filter_map(|line| line.split(" of ").nth(1)).collect();
    runs.sort_unstable();
    assert!(runs.len() == 4 && runs[0] == runs[1] && runs[1] != runs[2] && runs[2] == runs[3], "two ranks in each start: {runs:?}");
    let text = std::fs::read_to_string(login.cluster.path(&format!("home/run/again/again-{job}.out"))).expect("the job's log");
    assert!(text.contains(", start 0:") && text.contains(", start 1:"), "the log of the first start stays: {text}");
    // A laptop without state gets the logs of both starts.
    std::fs::remove_dir_all(login.cluster.path("state")).expect("a record");
    login.orchestrate(&["down"], &inventory).expect(0, &["nothing of the job is left"]);
    assert!(!login.cluster.path("home/run/again").exists());
    // The log of the job itself is kept with its last run.
    let kept = std::fs::read_dir(login.cluster.path("state/orchestrate/runs")).expect("runs").filter_map(Result::ok);
    let kept: Vec<_> = kept.filter_map(|run| std::fs::read_to_string(run.path().join(format!("job-{job}.log"))).ok()).collect();
    assert_eq!(kept, [text]);
    for (run, start) in [(runs[0], 0), (runs[2], 1)] {
        let logs = login.orchestrate(&["slurm", "logs", "--run", run, "--rank", "1"], &inventory).expect(0, &[]);
        assert_eq!(logs.out, format!("[rank 1 n1] start {start}, rank 1 of {run}\n"));
    }
}

/// Fake GPU values of a node, in the order of the queried fields. The nodes share this machine, so a directory early on a login shell's
/// PATH holds it.
const NVIDIA_SMI: &str = "#!/bin/sh
case \"$*\" in *--query-gpu=index,uuid,name,*) ;; *) exit 1 ;; esac
while :; do
  for gpu in 0 1; do echo \"$gpu, GPU-$gpu, NVIDIA H200, 143771, 90000, 87, 45, 500, 700, 1900, 1980, 0x0, 0x0, 0, Disabled\"; done
  case \"$*\" in *' -l '*) sleep 1 ;; *) exit 0 ;; esac
done
";

#[test]
#[ignore = "needs a SLURM cluster, root and Debian's packages: tests/cluster/slurm up"]
fn attached_laptop_sees_gpus_of_all_nodes_and_leaves_no_step() {
    let login = Login::new();
    std::fs::create_dir_all(login.cluster.path("bin")).expect("made");
    std::fs::write(login.cluster.path("bin/nvidia-smi"), NVIDIA_SMI).expect("written");
    assert!(login.cluster.run("chmod", &["755", "bin/nvidia-smi"]).status.success());
    let go = login.cluster.path("go");
    let inventory = login.inventory("seen", "", &waiting_ranks(&go));
    let job = login.submit(&inventory);
    login.wait_for_status(&inventory, "\n  run ");
    let before = login.connections();
    let mut attach = login.plain_command(&["slurm", "attach", "--progress", "json"], &inventory);
    let mut attach = attach.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let (mut nodes, mut reached) = (std::collections::BTreeSet::new(), 0);
    let mut out = BufReader::new(attach.stdout.take().expect("its output"));
    while nodes.len() < 2 || reached < 2 {
        let mut line = String::new();
        assert!(out.read_line(&mut line).expect("a line") > 0, "it ended after {reached} nodes were reached, and GPUs of {nodes:?}");
        let event: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        reached += usize::from(event["kind"] == "host-connected");
        if event["kind"] == "gpus" {
            assert_eq!(event["gpus"].as_array().map(Vec::len), Some(2), "{line}");
            nodes.insert(event["host"].as_u64());
        }
    }
    assert_eq!(reached, 2, "each node once");
    assert_eq!(login.connections() - before, 2, "one connection polls, the other carries the logs and GPU values of all nodes");
    let steps = || String::from_utf8_lossy(&login.cluster.run("squeue", &["-h", "-s", "-j", &job, "-o", "%i %j"]).stdout).into_owned();
    assert_eq!(steps().lines().filter(|step| step.ends_with(" sh")).count(), 3, "the ranks' step and one step per node: {}", steps());
    assert!(login.cluster.run("kill", &["-INT", &attach.id().to_string()]).status.success());
    std::io::copy(&mut out, &mut std::io::sink()).expect("the rest");
    assert_eq!(attach.wait().expect("it ends").code(), Some(130));
    login.cluster.wait_until("a step of the attach is left", || steps().lines().filter(|step| step.ends_with(" sh")).count() == 1);
    // `logs -f | head -n 1`: the follower ends with its reader.
    let mut logs =
        login.command(&["slurm", "logs", "-f"], &inventory).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut first = String::new();
    BufReader::new(logs.stdout.take().expect("its output")).read_line(&mut first).expect("a line");
    assert!(first.contains(" begins"), "{first}");
    CommandResult::new(&logs.wait_with_output().expect("it ends")).expect(0, &["detached: the job goes on"]);
    login
        .orchestrate(&["slurm", "submit", "--dry-run"], &inventory)
        .expect(3, &["error: job", "of this name is live", "nothing was submitted"]);
    login.orchestrate(&["slurm", "cancel"], &inventory).expect(0, &["CANCELLED"]);
    login.orchestrate(&["slurm", "submit", "--dry-run"], &inventory).expect(0, &["the cluster would take the job; nothing was submitted"]);
}

#[test]
#[ignore = "needs a SLURM cluster, root and Debian's packages: tests/cluster/slurm up"]
fn another_laptop_follows_after_the_first_was_killed() {
    let login = Login::new();
    let go = login.cluster.path("go");
    let inventory = login.inventory("killed", "", &waiting_ranks(&go));
    login.submit(&inventory);
    let attach = |mut command: Command, state: &str| {
        command.env("XDG_STATE_HOME", login.cluster.path(state)).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("it runs")
    };
    let read_until_begun = |out: &mut dyn std::io::BufRead| {
        let mut seen = String::new();
        while !seen.contains("begins") {
            assert!(out.read_line(&mut seen).expect("a line") > 0, "it ended: {seen}");
        }
        seen
    };
    let words = ["slurm", "attach", "--progress", "plain"];
    // Without `timeout` around it, which would take the signal.
    let program = login.cluster.command(env!("CARGO_BIN_EXE_orchestrate"));
    let mut first = attach(login.complete_command(program, &words, &inventory), "state");
    read_until_begun(&mut BufReader::new(first.stdout.take().expect("its output")));
    first.kill().expect("killed");
    first.wait().expect("reaped");
    let mut second = attach(login.command(&words, &inventory), "other");
    let mut out = BufReader::new(second.stdout.take().expect("its output"));
    let mut seen = read_until_begun(&mut out);
    std::fs::write(&go, "").expect("written");
    out.read_to_string(&mut seen).expect("the rest");
    let followed = CommandResult::new(&second.wait_with_output().expect("it ends"));
    CommandResult { out: seen, ..followed }.expect(0, &["COMPLETED", "4 ok"]);
    // The first laptop has the rest by now, and the job is ended from there.
    let logs = login.orchestrate(&["slurm", "logs"], &inventory).expect(0, &[]).out;
    assert_eq!((logs.matches("begins").count(), logs.matches("ends").count()), (4, 4), "{logs}");
    login.orchestrate(&["slurm", "down"], &inventory).expect(0, &["nothing of the job is left"]);
}
