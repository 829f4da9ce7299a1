//! Tier 2: ends that take minutes, a lost login node, and `submit` and `cancel` killed at each of their commands.

#[path = "whole/guides.rs"]
mod guides;
#[path = "whole/torch.rs"]
mod torch;

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::login_node::{CommandResult, Login, waiting_ranks};

fn state_dir(login: &Login) -> PathBuf {
    Path::new(&login.cluster.configuration).parent().expect("a folder").to_owned()
}

#[test]
#[ignore = "needs a SLURM cluster, root and Debian's packages: tests/cluster/slurm up"]
fn time_limit_gives_ranks_their_grace() {
    let login = Login::new();
    let ranks = "launch:\n  with: processes\n  nproc_per_node: 1\n  stop_grace: 10s\n  shell: |\n    set -eu\n    \
                 trap 'sleep 7; echo \"saved in time\"; exit 0' TERM\n    echo begins\n    while :; do sleep 0.2 || :; done\n";
    let inventory = login.inventory("limit", "", ranks);
    let text = std::fs::read_to_string(&inventory).expect("read").replace("time: \"10\"", "time: \"2\"");
    std::fs::write(&inventory, text).expect("written");
    login.submit(&inventory);
    // SLURM may send a signal up to a minute early, so a job with 40 s left before its signal may get it at once.
    let followed = login.orchestrate(&["slurm", "attach", "--progress", "plain"], &inventory);
    assert!(
        followed.err.contains("the time limit is near") || followed.out.contains("the time limit is near"),
        "{}{}",
        followed.out,
        followed.err
    );
    let logs = login.orchestrate(&["slurm", "logs"], &inventory).expect(0, &[]);
    assert_eq!(logs.out.matches("saved in time").count(), 2, "longer than the cluster's KillWait of 5 s: {}", logs.out);
    login.orchestrate(&["slurm", "status"], &inventory).expect(0, &["COMPLETED", "its ranks were stopped: the time limit is near"]);
}

#[test]
#[ignore = "needs a SLURM cluster, root and Debian's packages: tests/cluster/slurm up"]
fn lowered_time_limit_ends_as_timeout() {
    let login = Login::new();
    let inventory = login.inventory("over", "", &waiting_ranks(&login.cluster.path("never")));
    let job = login.submit(&inventory);
    login.wait_for_status(&inventory, "\n  run ");
    let began = || login.orchestrate(&["slurm", "logs"], &inventory).out.matches("begins").count() == 4;
    login.cluster.wait_until("no rank has begun", began);
    // Limits are whole minutes: the job is older than the lowest limit when it is set.
    login.cluster.wait_until("the job is not a minute old", || {
        let age = login.cluster.run("squeue", &["-h", "-j", &job, "-o", "%M"]);
        !String::from_utf8_lossy(&age.stdout).starts_with("0:")
    });
    assert!(login.cluster.run("scontrol", &["update", &format!("job={job}"), "TimeLimit=1"]).status.success());
    let followed = login.orchestrate(&["slurm", "attach", "--progress", "plain"], &inventory);
    followed.expect(1, &["TIMEOUT", "it reached its time limit; help: raise slurm.time"]);
    login
        .orchestrate(&["slurm", "status"], &inventory)
        .expect(1, &["TIMEOUT", "cause: it reached its time limit", "help: raise slurm.time"]);
    let logs = login.orchestrate(&["slurm", "logs"], &inventory).expect(0, &[]);
    assert_eq!(logs.out.matches("saved").count(), 4, "they used their grace: {}", logs.out);
    assert!(login.runs().contains("FAILED"), "{}", login.runs());
}

#[test]
#[ignore = "needs a SLURM cluster, root and Debian's packages: tests/cluster/slurm up"]
fn waiting_job_shows_its_reason() {
    let login = Login::new();
    let ranks = waiting_ranks(&login.cluster.path("never"));
    let runs = login.inventory("runs", "", &ranks);
    login.submit(&runs);
    login.wait_for_status(&runs, "RUNNING");
    for (name, args, reason, advice) in [
        ("later", "--begin=now+1hour", "PENDING (BeginTime)", "its start time is not reached"),
        ("held", "--hold", "PENDING (JobHeldUser)", "scontrol release"),
        ("next", "--nice=5", "PENDING (Resources)", "it waits for free nodes, CPUs or GPUs"),
        ("after", "--nice=50", "PENDING (Priority)", "jobs of higher priority are before it"),
    ] {
        let inventory = login.inventory(name, &format!(", args: [\"{args}\"]"), &ranks);
        login.submit(&inventory);
        login.wait_for_status(&inventory, reason);
        login.orchestrate(&["slurm", "status"], &inventory).expect(0, &[reason, advice]);
    }
}

/// Restarts a node that a test has killed, also if the test fails.
struct KilledNode<'a> {
    login: &'a Login,
    name: &'static str,
}

impl Drop for KilledNode<'_> {
    fn drop(&mut self) {
        drop(self.login.cluster.run("/usr/sbin/slurmd", &["-N", self.name]));
        let end = Instant::now() + Duration::from_secs(60);
        let idle = || {
            let out = self.login.cluster.run("sinfo", &["-h", "-n", self.name, "-o", "%t"]);
            String::from_utf8_lossy(&out.stdout).trim() == "idle"
        };
        while !idle() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(500));
        }
    }
}

#[test]
#[ignore = "needs a SLURM cluster, root and Debian's packages: tests/cluster/slurm up"]
fn lost_node_fails_the_job_and_is_named_as_the_cause() {
    let login = Login::new();
    let go = login.cluster.path("go");
    let inventory = login.inventory("lost", "", &waiting_ranks(&go));
    login.submit(&inventory);
    login.wait_for_status(&inventory, "\n  run ");
    let mut follower = login.command(&["slurm", "attach", "--progress", "plain"], &inventory);
    let follower = follower.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    login.cluster.wait_until("no rank has begun", || login.orchestrate(&["slurm", "logs"], &inventory).out.matches("begins").count() == 4);
    let slurmd = std::fs::read_to_string(state_dir(&login).join("slurmd.n1.pid")).expect("its pid").trim().to_owned();
    assert!(login.cluster.run("kill", &["-9", &slurmd]).status.success());
    let again = KilledNode { login: &login, name: "n1" };
    let followed = CommandResult::new(&follower.wait_with_output().expect("it ends"));
    let followed = followed.expect(1, &["NODE_FAIL", "a node was lost; help: submit it again without that node", "--exclude=NODE"]);
    assert!(!followed.err.contains("first to fail") && !followed.err.contains("CAUSE"), "no rank is to blame: {}", followed.err);
    login.orchestrate(&["slurm", "status"], &inventory).expect(1, &["NODE_FAIL", "cause: a node was lost"]);
    // Ranks of a lost node keep running; the test can still end them here.
    login
        .orchestrate(&["slurm", "down"], &inventory)
        .expect(5, &["nodes that do not answer, where the job may still run: n1", "the rest was removed"]);
    std::fs::write(&go, "").expect("written");
    drop(again);
    login.orchestrate(&["slurm", "down"], &inventory).expect(0, &["nothing of the job is left"]);
}

#[test]
#[ignore = "needs a SLURM cluster, root and Debian's packages: tests/cluster/slurm up"]
fn lost_login_node_ends_nothing_and_loses_no_line() {
    let mut login = Login::new();
    let go = login.cluster.path("go");
    let ranks = format!(
        "launch:\n  with: script\n  stop_grace: 5s\n  shell: |\n    n=0\n    while [ ! -e {} ]; do echo \"$RANK: line $n\"; n=$((n + 1)); sleep 0.1; done\n    echo \"$RANK: last $n\"\n",
        go.display()
    );
    let inventory = login.inventory("away", "", &ranks);
    let job = login.submit(&inventory);
    login.wait_for_status(&inventory, "\n  run ");
    let mut follower =
        login.command(&["slurm", "logs", "-f"], &inventory).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut out = BufReader::new(follower.stdout.take().expect("its output"));
    let mut seen = String::new();
    while !seen.contains("] 0: line 40\n") {
        assert!(out.read_line(&mut seen).expect("a line") > 0, "it ended: {seen}");
    }
    login.stop_sshd();
    std::thread::sleep(Duration::from_secs(3));
    login.start_sshd_again();
    login.orchestrate(&["slurm", "status"], &inventory).expect(0, &["RUNNING"]);
    std::fs::write(&go, "").expect("written");
    out.read_to_string(&mut seen).expect("the rest");
    let followed = CommandResult::new(&follower.wait_with_output().expect("it ends"));
    let followed = CommandResult { out: seen, ..followed }.expect(0, &[&format!("job {job}: COMPLETED")]);
    // Equal lines of several ranks are printed once, so these lines differ by rank.
    for node in ["[rank 0 n0] 0: ", "[rank 1 n1] 1: "] {
        let lines: Vec<&str> = followed.out.lines().filter_map(|line| line.strip_prefix(node)).collect();
        let last: usize = lines.last().and_then(|line| line.strip_prefix("last ")?.parse().ok()).expect("the last line");
        let expected: Vec<String> = (0..last).map(|n| format!("line {n}")).chain([format!("last {last}")]).collect();
        assert_eq!(lines, expected, "every line once and in order");
    }
}

/// Counts the commands that reach the login node; at the command that `hold` names it waits for `release`, before or after running it.
const COUNTING_SHELL: &str = "#!/bin/sh
cd DIR || exit 1
n=$(($(cat count 2>/dev/null || echo 0) + 1))
echo \"$n\" >count
how=$(sed -n \"s/^$n //p\" hold 2>/dev/null)
wait_for_release() { : >held; until [ -e release ]; do sleep 0.05; done; }
if [ \"$how\" = before ]; then wait_for_release; exit 1; fi
if [ \"$how\" = answer ]; then
  sh -c \"$SSH_ORIGINAL_COMMAND\" >answer 2>&1
  wait_for_release
  exit 1
fi
exec sh -c \"$SSH_ORIGINAL_COMMAND\"
";

/// A login node at which commands can be held, and the directory of the shell that holds them.
fn holding_login() -> (tempfile::TempDir, Login) {
    let dir = tempfile::tempdir().expect("a folder");
    let shell = dir.path().join("shell");
    std::fs::write(&shell, COUNTING_SHELL.replace("DIR", &dir.path().display().to_string())).expect("written");
    assert!(Command::new("chmod").args(["755", &shell.display().to_string()]).status().expect("chmod").success());
    let login = Login::with_sshd_options(&format!("ForceCommand {}\n", shell.display()));
    (dir, login)
}

/// Kills a command when its remote command with this number is held; returns whether it got so far.
fn kill_at(dir: &Path, login: &Login, verb: &str, inventory: &Path, (number, how): (usize, &str)) -> bool {
    for file in ["count", "held", "release"] {
        drop(std::fs::remove_file(dir.join(file)));
    }
    std::fs::write(dir.join("hold"), format!("{number} {how}\n")).expect("written");
    let mut command = login.complete_command(login.cluster.command(env!("CARGO_BIN_EXE_orchestrate")), &["slurm", verb], inventory);
    let mut command = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
    let held = || dir.join("held").exists();
    let (mut ended, deadline) = (false, Instant::now() + Duration::from_secs(60));
    while !held() && !ended {
        assert!(Instant::now() < deadline, "{how} command {number}: `{verb}` neither ends nor reaches it");
        ended = command.try_wait().expect("its state").is_some();
        std::thread::sleep(Duration::from_millis(20));
    }
    command.kill().expect("killed");
    command.wait().expect("reaped");
    std::fs::write(dir.join("release"), "").expect("written");
    drop(std::fs::remove_file(dir.join("hold")));
    held()
}

#[test]
#[ignore = "needs a SLURM cluster, root and Debian's packages: tests/cluster/slurm up"]
fn submit_killed_at_each_command_leaves_no_unknown_job() {
    let (dir, login) = holding_login();
    // The commands of tasks on the login node are among those of `submit`.
    let tasks = "secrets: [HF_TOKEN]\nprepare: [{ name: look, run: echo seen }]\n";
    let ranks = format!("{tasks}{}", waiting_ranks(&login.cluster.path("never")));
    let inventory = login.inventory("sweep", ", secrets: file, args: [\"--hold\"]", &ranks);
    let mut struck = 0;
    for how in ["before", "answer"] {
        for number in 1..60 {
            let is_struck = kill_at(dir.path(), &login, "submit", &inventory, (number, how));
            check_known_and_clean(&login, &inventory, &format!("{how} command {number}"));
            if !is_struck {
                break;
            }
            struck += 1;
        }
    }
    assert!(struck >= 16, "the check of the cluster, the tasks and the submission, each before and after: {struck}");
}

#[test]
#[ignore = "needs a SLURM cluster, root and Debian's packages: tests/cluster/slurm up"]
fn cancel_killed_at_each_command_leaves_the_job_known() {
    let (dir, login) = holding_login();
    let inventory = login.inventory("sweep", "", &waiting_ranks(&login.cluster.path("never")));
    let mut struck = 0;
    for how in ["before", "answer"] {
        for number in 1..20 {
            let job = login.submit(&inventory);
            login.wait_for_status(&inventory, "\n  run ");
            let is_struck = kill_at(dir.path(), &login, "cancel", &inventory, (number, how));
            login.orchestrate(&["slurm", "cancel"], &inventory).expect(0, &[&format!("job {job}"), "CANCELLED"]);
            check_known_and_clean(&login, &inventory, &format!("{how} command {number}"));
            if !is_struck {
                break;
            }
            struck += 1;
        }
    }
    assert!(struck >= 4, "scancel and the question for its end, each before and after: {struck}");
}

/// `status` knows a queued job, and `down` leaves nothing.
fn check_known_and_clean(login: &Login, inventory: &Path, what: &str) {
    let queue = || String::from_utf8_lossy(&login.cluster.run("squeue", &["-h", "-n", "sweep", "-o", "%i"]).stdout).trim().to_owned();
    let job = queue();
    let status = login.orchestrate(&["slurm", "status"], inventory);
    if job.is_empty() {
        assert!(!status.out.contains("PENDING"), "{what}: {}{}", status.out, status.err);
    } else {
        assert!(status.out.contains(&format!("job {job}  sweep  PENDING")), "{what}: {}{}", status.out, status.err);
    }
    let down = login.orchestrate(&["slurm", "down"], inventory);
    assert_eq!(down.code, Some(0), "{what}: {}{}", down.out, down.err);
    assert_eq!((queue(), login.cluster.path("home/run/sweep").exists()), (String::new(), false), "{what}: {}", down.err);
}

/// A program in the place of torchrun, which fails on the second node when both nodes run it.
const FAILING_LAUNCHER: &str = "#!/bin/sh
up=$(dirname \"$0\")/../up
: >\"$up-$ORCH_HOST\"
until [ -e \"$up-n0\" ] && [ -e \"$up-n1\" ]; do sleep 0.1; done
if [ \"$ORCH_HOST\" = n1 ]; then echo 'no such backend' >&2; exit 9; fi
exec sleep 600
";

#[test]
#[ignore = "needs a SLURM cluster, root and Debian's packages: tests/cluster/slurm up"]
fn launcher_that_fails_first_is_named_with_its_node() {
    let login = Login::new();
    let torchrun = login.cluster.path("bin/torchrun");
    std::fs::create_dir_all(login.cluster.path("bin")).expect("made");
    std::fs::write(&torchrun, FAILING_LAUNCHER).expect("written");
    std::fs::set_permissions(torchrun, std::fs::Permissions::from_mode(0o755)).expect("made executable");
    let inventory = login.inventory("broken", "", "launch: { with: torchrun, nproc_per_node: 2, stop_grace: 5s, command: [/bin/true] }\n");
    login.submit(&inventory);
    let cause = "the launcher on n1 failed first, with exit code 9";
    login.orchestrate(&["slurm", "attach", "--progress", "plain"], &inventory).expect(1, &[cause, "no such backend"]);
    login.orchestrate(&["slurm", "status"], &inventory).expect(1, &["FAILED", cause]);
    login.orchestrate(&["slurm", "down"], &inventory).expect(0, &["nothing of the job is left"]);
}

#[test]
#[ignore = "needs a SLURM cluster, root and Debian's packages: tests/cluster/slurm up"]
fn cancel_after_a_failure_keeps_the_cause() {
    let login = Login::new();
    let ranks = format!(
        "launch:\n  with: processes\n  nproc_per_node: 2\n  stop_grace: 60s\n  shell: |\n    set -eu\n    trap ': >{up}-stop-$RANK' TERM\n    \
         : >{up}-$RANK\n    until [ -e {up}-0 ] && [ -e {up}-1 ] && [ -e {up}-3 ]; do sleep 0.1 || :; done\n    \
         if [ \"$RANK\" = 2 ]; then exit 7; fi\n    while :; do sleep 0.2 || :; done\n",
        up = login.cluster.path("up").display()
    );
    let inventory = login.inventory("late", "", &ranks);
    login.submit(&inventory);
    let is_asked = |rank: u32| login.cluster.path(&format!("up-stop-{rank}")).exists();
    login.cluster.wait_until("the other ranks were not asked to stop", || [0, 1, 3].into_iter().all(is_asked));
    login.orchestrate(&["slurm", "cancel"], &inventory).expect(0, &["CANCELLED"]);
    let cause = "rank 2 on n1 failed first, with exit code 7";
    login.orchestrate(&["slurm", "status"], &inventory).expect(1, &["CANCELLED", cause]);
    login.orchestrate(&["slurm", "down"], &inventory).expect(0, &["nothing of the job is left"]);
}
