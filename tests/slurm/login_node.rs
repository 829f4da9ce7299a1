//! Commands that reach a cluster through its login node: the test's own sshd, whose user has SLURM only in a login shell.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::Cluster;

/// A laptop and the login node that it reaches.
pub(crate) struct Login {
    pub(crate) cluster: Cluster,
    pub(crate) port: u16,
    sshd: Child,
}

impl Drop for Login {
    fn drop(&mut self) {
        // Removes jobs that a failed test left in the queue.
        drop(self.cluster.run("scancel", &["--full", "--user=root"]));
        std::fs::remove_file(self.epilog_gate()).ok();
        self.sshd.kill().ok();
        self.sshd.wait().ok();
    }
}

/// Output and exit code of a command.
pub(crate) struct CommandResult {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl CommandResult {
    pub(crate) fn new(out: &Output) -> CommandResult {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        CommandResult { code: out.status.code(), out: text(&out.stdout), err: text(&out.stderr) }
    }

    #[track_caller]
    pub(crate) fn expect(self, code: i32, words: &[&str]) -> CommandResult {
        let all = format!("exit code {:?}\n{}{}", self.code, self.out, self.err);
        assert_eq!(self.code, Some(code), "{all}");
        for word in words {
            assert!(all.contains(word), "{word:?} is missing: {all}");
        }
        self
    }
}

impl Login {
    pub(crate) fn new() -> Login {
        Login::with_sshd_options("")
    }

    pub(crate) fn with_sshd_options(options: &str) -> Login {
        let cluster = Cluster::new();
        let at = |name: &str| cluster.path(name);
        let text = |name: &str| at(name).display().to_string();
        std::fs::create_dir_all(at("home")).expect("made");
        std::fs::create_dir_all("/run/sshd").expect("sshd's own folder");
        for key in ["host_key", "id"] {
            let made = cluster.run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &text(key)]);
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        }
        // Only a login shell finds the cluster, and both startup files print noise.
        let conf = &cluster.configuration;
        let path = format!("export PATH={}:$PATH", text("bin"));
        std::fs::write(at("home/.bash_profile"), format!("echo welcome to the cluster\nexport SLURM_CONF={conf}\n{path}\n"))
            .expect("written");
        std::fs::write(at("home/.bashrc"), "echo noise\n").expect("written");
        std::fs::write(at("ssh_config"), "").expect("written");
        let config = format!(
            "ListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}.pub\nStrictModes no\nPidFile none\nUsePAM no\n\
             PasswordAuthentication no\nMaxStartups 10:30:100\nSetEnv HOME={} SLURM_JOB_ID=7 SBATCH_HOLD=1\n{options}",
            text("host_key"),
            text("id"),
            text("home"),
        );
        let started = (0..10).find_map(|_| start_sshd(&cluster.path(""), &config));
        let (port, sshd) = started.expect("one of ten ports is free");
        let key = std::fs::read_to_string(at("host_key.pub")).expect("a host key");
        let words: Vec<&str> = key.split_whitespace().take(2).collect();
        std::fs::write(at("known"), format!("[127.0.0.1]:{port} {}\n", words.join(" "))).expect("written");
        Login { cluster, port, sshd }
    }

    /// Writes an inventory; `slurm` has keys of the block beside `login`. The run directory is below the login node's home.
    pub(crate) fn inventory(&self, name: &str, slurm: &str, rest: &str) -> PathBuf {
        let path = self.cluster.path(&format!("{name}.yaml"));
        let text = format!(
            "name: {name}\nrun_dir: ~/run\nssh: {{ user: root, port: {}, identity: ./id, known_hosts: ./known }}\n{rest}\n\
             slurm: {{ login: 127.0.0.1, nodes: 2, gpus_per_node: 2, time: \"10\", cpus_per_task: 2{slurm} }}\n",
            self.port
        );
        std::fs::write(&path, text).expect("written");
        path
    }

    /// A file that keeps jobs COMPLETING while it is there.
    pub(crate) fn epilog_gate(&self) -> PathBuf {
        Path::new(&self.cluster.configuration).with_file_name("hold-epilog")
    }

    pub(crate) fn command(&self, words: &[&str], inventory: &Path) -> Command {
        let mut command = self.cluster.command("timeout");
        command.args(["-k", "5", "150", env!("CARGO_BIN_EXE_orchestrate")]);
        self.complete_command(command, words, inventory)
    }

    /// A command that receives a signal only once.
    pub(crate) fn plain_command(&self, words: &[&str], inventory: &Path) -> Command {
        let mut command = self.cluster.command("timeout");
        command.args(["--foreground", "-k", "5", "150", env!("CARGO_BIN_EXE_orchestrate")]);
        self.complete_command(command, words, inventory)
    }

    pub(crate) fn complete_command(&self, mut command: Command, words: &[&str], inventory: &Path) -> Command {
        command.args(words).arg(inventory);
        command.arg("-F").arg(self.cluster.path("ssh_config"));
        command.env("XDG_STATE_HOME", self.cluster.path("state")).env_remove("SLURM_CONF").env("HF_TOKEN", "it's $x");
        command
    }

    pub(crate) fn orchestrate(&self, words: &[&str], inventory: &Path) -> CommandResult {
        CommandResult::new(&self.command(words, inventory).output().expect("it runs"))
    }

    pub(crate) fn submit(&self, inventory: &Path) -> String {
        self.orchestrate(&["slurm", "submit"], inventory).expect(0, &["next: orchestrate slurm status"]).out.trim().to_owned()
    }

    pub(crate) fn runs(&self) -> String {
        let mut command = self.cluster.command(env!("CARGO_BIN_EXE_orchestrate"));
        CommandResult::new(&command.arg("runs").env("XDG_STATE_HOME", self.cluster.path("state")).output().expect("it runs"))
            .expect(0, &[])
            .out
    }

    /// Stops the login node with all its connections.
    pub(crate) fn stop_sshd(&mut self) {
        let sessions = self.cluster.run("pgrep", &["-P", &self.sshd.id().to_string()]);
        self.sshd.kill().expect("killed");
        self.sshd.wait().expect("reaped");
        for session in String::from_utf8_lossy(&sessions.stdout).split_whitespace() {
            drop(self.cluster.run("kill", &["-9", session]));
        }
    }

    /// Starts the login node again at the same address.
    pub(crate) fn start_sshd_again(&mut self) {
        self.sshd = spawn_sshd(self.cluster.dir.path());
        assert!(listens(self.cluster.dir.path()), "the port is free");
    }

    /// The number of connections that its sshd has accepted.
    pub(crate) fn connections(&self) -> usize {
        std::fs::read_to_string(self.cluster.path("sshd.log")).expect("sshd's log").matches("Accepted publickey").count()
    }

    /// The first Ctrl-C ends a follower of a job that is pending.
    #[track_caller]
    fn assert_interrupt_ends_waiting(&self, words: &[&str], inventory: &Path) {
        let output = self.cluster.path("waiting");
        let file = std::fs::File::create(&output).expect("a file");
        let mut command = self.plain_command(words, inventory);
        command.arg(if words.contains(&"logs") { "-f" } else { "--progress=plain" });
        let mut follower = command.stdout(file.try_clone().expect("a file")).stderr(file).spawn().expect("it runs");
        let text = || std::fs::read_to_string(&output).expect("its output");
        self.cluster.wait_until("the follower does not say that the job is pending", || text().contains("PENDING"));
        assert!(self.cluster.run("kill", &["-INT", &follower.id().to_string()]).status.success());
        let begun = Instant::now();
        let status = follower.wait().expect("it ends");
        assert_eq!(status.code(), Some(130), "{}", text());
        assert!(begun.elapsed() < Duration::from_secs(30), "it waited: {}", text());
    }

    pub(crate) fn wait_for_status(&self, inventory: &Path, words: &str) {
        self.cluster
            .wait_until(&format!("no status with {words:?}"), || self.orchestrate(&["slurm", "status"], inventory).out.contains(words));
    }
}

fn start_sshd(dir: &Path, config: &str) -> Option<(u16, Child)> {
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port();
    std::fs::write(dir.join("sshd_config"), format!("Port {port}\n{config}")).expect("written");
    let mut child = spawn_sshd(dir);
    if listens(dir) {
        return Some((port, child));
    }
    child.kill().ok();
    child.wait().ok();
    None
}

fn spawn_sshd(dir: &Path) -> Child {
    let log = std::fs::File::create(dir.join("sshd.log")).expect("a log");
    let mut child = Command::new("/usr/sbin/sshd");
    let child = child.args(["-D", "-e", "-f"]).arg(dir.join("sshd_config"));
    child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("sshd starts")
}

/// Waits until sshd logs whether it got its port; returns whether it did.
fn listens(dir: &Path) -> bool {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let said = std::fs::read_to_string(dir.join("sshd.log")).unwrap_or_default();
        if said.contains("Server listening") || said.contains("Address already in use") {
            return said.contains("Server listening");
        }
        assert!(Instant::now() < end, "sshd does not listen: {said}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Ranks that end when a file of the test exists.
pub(crate) fn waiting_ranks(until: &Path) -> String {
    format!(
        "launch:\n  with: processes\n  nproc_per_node: 2\n  stop_grace: 5s\n  shell: |\n    set -eu\n    trap 'echo saved; exit 3' TERM\n    \
         echo \"rank $RANK begins\"\n    while [ ! -e {} ]; do sleep 0.2 || :; done\n    echo \"rank $RANK ends\"\n",
        until.display()
    )
}

#[test]
#[ignore = "needs a SLURM cluster, root and Debian's packages: tests/cluster/slurm up"]
fn job_is_submitted_once_followed_to_its_end_and_removed() {
    let login = Login::new();
    let go = login.cluster.path("go");
    let inventory = login.inventory("follow", ", args: [\"--hold\"]", &waiting_ranks(&go));
    login.orchestrate(&["slurm", "status"], &inventory).expect(0, &["no job of follow"]);
    let job = login.submit(&inventory);
    login.orchestrate(&["slurm", "status"], &inventory).expect(0, &["PENDING (JobHeldUser)", "scontrol release", "place 1 of 1"]);
    // Simulates a kill between sbatch and writing the records, on both sides.
    std::fs::remove_file(login.cluster.path("home/run/follow/slurm-job")).expect("the job was recorded");
    std::fs::remove_dir_all(login.cluster.path("state")).expect("a record");
    login.orchestrate(&["slurm", "submit"], &inventory).expect(3, &[&format!("job {job} of this name is live: nothing was submitted")]);
    for words in [["slurm", "attach"], ["slurm", "logs"]] {
        login.assert_interrupt_ends_waiting(&words, &inventory);
    }
    let follower =
        login.command(&["slurm", "logs", "-f"], &inventory).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    assert!(login.cluster.run("scontrol", &["release", &job]).status.success());
    login.wait_for_status(&inventory, "RUNNING on n[0-1]");
    let begun = || (0..2).all(|node| login.cluster.path(&format!("home/run/follow/n{node}.out")).exists());
    login.cluster.wait_until("no rank has begun", begun);
    std::fs::write(&go, "").expect("written");
    let followed = CommandResult::new(&follower.wait_with_output().expect("it ends")).expect(0, &[&format!("job {job}: COMPLETED")]);
    for rank in 0..4 {
        let line = |word: &str| format!("[rank {rank} n{}] rank {rank} {word}\n", rank / 2);
        assert!(followed.out.contains(&line("begins")) && followed.out.contains(&line("ends")), "{}", followed.out);
    }
    login.orchestrate(&["slurm", "status"], &inventory).expect(0, &["COMPLETED"]);
    let one = login.orchestrate(&["slurm", "logs", "--rank", "3", "--tail", "1"], &inventory).expect(0, &[]);
    assert_eq!(one.out, "[rank 3 n1] rank 3 ends\n");
    assert!(login.runs().contains("OK"), "{}", login.runs());
    login.orchestrate(&["down"], &inventory).expect(0, &["nothing of the job is left"]);
    assert!(!login.cluster.path("home/run/follow").exists());
    login.orchestrate(&["slurm", "logs", "--run", "2", "--rank", "0"], &inventory).expect(0, &["rank 0 ends"]);
}

#[test]
#[ignore = "needs a SLURM cluster, root and Debian's packages: tests/cluster/slurm up"]
fn failed_job_names_its_first_rank_to_every_command() {
    let login = Login::new();
    let ranks = "launch:\n  with: processes\n  nproc_per_node: 2\n  stop_grace: 5s\n  shell: |\n    set -eu\n    \
                 if [ \"$RANK\" = 2 ]; then echo \"<$HF_TOKEN>\"; exit 7; fi\n    sleep 600\n";
    let inventory = login.inventory("fails", ", secrets: file", &format!("secrets: [HF_TOKEN]\n{ranks}"));
    // Its nodes run an epilogue: SLURM says COMPLETING, and the job's own note how it ended.
    std::fs::write(login.epilog_gate(), "").expect("written");
    login.submit(&inventory);
    let first = "rank 2 on n1 failed first, with exit code 7";
    login.orchestrate(&["slurm", "attach", "--progress", "plain"], &inventory).expect(1, &["FAILED on n[0-1], by its status file", first]);
    login.orchestrate(&["slurm", "status"], &inventory).expect(0, &["COMPLETING on n[0-1]\n", first]);
    std::fs::remove_file(login.epilog_gate()).expect("it waits");
    login.wait_for_status(&inventory, "FAILED");
    login.orchestrate(&["slurm", "status"], &inventory).expect(1, &["FAILED", "rank 2 on n1 failed first, with exit code 7", "help: "]);
    let log = std::fs::read_dir(login.cluster.path("home/run/fails/n1.out")).expect("logs");
    let log = log.filter_map(Result::ok).find(|entry| entry.file_name().to_string_lossy().ends_with(".rank-2.0.log")).expect("rank 2");
    assert_eq!(std::fs::read_to_string(log.path()).expect("read"), "<it's $x>\n", "the secret arrived");
    assert!(!login.cluster.path("home/run/fails/slurm-secrets").exists());
    assert!(login.runs().contains("FAILED"), "{}", login.runs());
}

#[test]
#[ignore = "needs a SLURM cluster, root and Debian's packages: tests/cluster/slurm up"]
fn cancelled_and_refused_jobs_leave_nothing_queued() {
    let login = Login::new();
    let go = login.cluster.path("never");
    let inventory = login.inventory("stopped", "", &waiting_ranks(&go));
    let job = login.submit(&inventory);
    let refused = format!("secrets: [HF_TOKEN]\n{}", waiting_ranks(&go));
    let refused = login.inventory("refused", ", secrets: file, partition: none", &refused);
    login
        .orchestrate(&["slurm", "submit"], &refused)
        .expect(3, &["sinfo shows no partition none", "sbatch --test-only refused the job", "set slurm.partition"]);
    assert!(!login.cluster.path("home/run/refused/slurm-secrets").exists(), "no job reads them");
    // What sinfo says of the partition refuses before sbatch is asked.
    let text = std::fs::read_to_string(&refused)
        .expect("read")
        .replace("partition: none", "partition: gpu")
        .replace("time: \"10\"", "time: \"90\"");
    std::fs::write(&refused, text).expect("written");
    login
        .orchestrate(&["slurm", "submit"], &refused)
        .expect(3, &["slurm.time: 90 is more than partition gpu allows", "nothing was submitted"]);
    let waits = login.inventory("waits", "", &waiting_ranks(&go));
    login.wait_for_status(&inventory, "RUNNING");
    login.submit(&waits);
    login.wait_for_status(&waits, "PENDING (Resources)");
    assert!(login.runs().contains("DETACHED"), "{}", login.runs());
    login.orchestrate(&["slurm", "cancel"], &waits).expect(0, &["CANCELLED"]);
    let ended = login.runs().lines().filter(|line| line.contains("waits") && line.contains("STOPPED")).count();
    assert_eq!(ended, 1, "a job that never started has ended: {}", login.runs());
    login.wait_for_status(&inventory, "\n  run ");
    login.cluster.wait_until("no rank has begun", || {
        let said = login.orchestrate(&["slurm", "logs"], &inventory).out;
        (0..4).all(|rank| said.contains(&format!("rank {rank} begins")))
    });
    login.orchestrate(&["slurm", "cancel"], &inventory).expect(0, &[&format!("job {job}: CANCELLED")]);
    login.orchestrate(&["slurm", "cancel"], &inventory).expect(0, &["no live job; the last one"]);
    let logs = login.orchestrate(&["slurm", "logs"], &inventory).expect(0, &[]);
    assert!((0..4).all(|rank| logs.out.contains(&format!("[rank {rank} n{}] saved", rank / 2))), "{}", logs.out);
    login.orchestrate(&["slurm", "status"], &inventory).expect(1, &["CANCELLED", "cancelled with scancel"]);
}

#[test]
#[ignore = "needs a SLURM cluster, root and Debian's packages: tests/cluster/slurm up"]
fn silent_slurmctld_is_reported_and_ends_no_job() {
    let login = Login::new();
    let go = login.cluster.path("go");
    let inventory = login.inventory("outage", "", &waiting_ranks(&go));
    let job = login.submit(&inventory);
    login.wait_for_status(&inventory, "\n  run ");
    let follower =
        login.command(&["slurm", "logs", "-f"], &inventory).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let state = Path::new(&login.cluster.configuration).parent().expect("a folder").to_owned();
    let controller = std::fs::read_to_string(state.join("slurmctld.pid")).expect("its pid").trim().to_owned();
    assert!(login.cluster.run("kill", &[&controller]).status.success());
    login.cluster.wait_until("slurmctld is still there", || !login.cluster.run("kill", &["-0", &controller]).status.success());
    let words = ["RUNNING on n[0-1], by its status file", "slurmctld does not answer: "];
    let status = login.orchestrate(&["slurm", "status"], &inventory);
    let submit = login.orchestrate(&["slurm", "submit"], &inventory);
    let started = login.cluster.command("/usr/sbin/slurmctld").status().expect("slurmctld starts");
    assert!(started.success());
    status.expect(0, &words);
    submit.expect(4, &["slurmctld does not answer: ", "nothing was changed"]);
    login.wait_for_status(&inventory, &format!("job {job}  outage  RUNNING on n[0-1] for "));
    std::fs::write(&go, "").expect("written");
    CommandResult::new(&follower.wait_with_output().expect("it ends")).expect(0, &["rank 3 ends", &format!("job {job}: COMPLETED")]);
}
