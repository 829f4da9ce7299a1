//! A bench: a sandbox, a folder that stands for the laptop, and a payload that does what files tell it. Nothing here sleeps for luck.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use orchestrate::event::{Event, EventKind};
use orchestrate::report::journal;
use orchestrate::sandbox::{Faults, Sandbox, Scenario};
use sha2::{Digest as _, Sha256};
use tokio::process::{Child, Command};

/// The longest that anything may take. Reaching it is a failure; nothing waits for it in the good case.
const TEST_TIMEOUT: Duration = Duration::from_secs(300);

/// One rank: says who it is, notes that it is up, then waits for the file that tells it to end, and with which code.
const PAYLOAD: &str = r#"#!/bin/sh
term() { trap '' TERM; date +%s%N >"$BENCH/term.$RANK.new"; mv "$BENCH/term.$RANK.new" "$BENCH/term.$RANK"; }
case " $DEAF " in
*" $RANK "*) trap 'term; echo "rank $RANK is deaf"' TERM ;;
*) trap 'term; echo "rank $RANK saw TERM and saved"; exit 143' TERM ;;
esac
echo "rank $RANK of $WORLD_SIZE on $ORCH_HOST"
if [ -e "$BENCH/job" ]; then . "$BENCH/job"; fi
echo $$ >"$BENCH/up.$RANK.new"; mv "$BENCH/up.$RANK.new" "$BENCH/up.$RANK"
while :; do
  for f in "$BENCH/go.$RANK" "$BENCH/go"; do
    if [ -e "$f" ]; then
      read -r code <"$f"
      echo "rank $RANK ends with $code"
      date +%s%N >"$BENCH/died.$RANK"
      exit "$code"
    fi
  done
  sleep 0.2
done
"#;

/// A cluster, a laptop, a job.
pub(crate) struct SandboxFixture {
    pub(crate) sandbox: Sandbox,
    pub(crate) master_port: u16,
    dir: tempfile::TempDir,
}

/// What an inventory of the bench says beyond its hosts.
pub(crate) struct JobSpec {
    /// Ranks of a host.
    pub(crate) nproc_per_node: u32,
    /// From TERM to KILL.
    pub(crate) stop_grace: &'static str,
    /// Whether in a container.
    pub(crate) in_container: bool,
    /// Lines under `container:`.
    pub(crate) container: String,
    /// Lines under `launch:`.
    pub(crate) launch: String,
    /// Lines under `env:`.
    pub(crate) env: String,
    /// Lines at the top.
    pub(crate) top_level: String,
}

impl Default for JobSpec {
    fn default() -> Self {
        let none = String::new;
        JobSpec {
            nproc_per_node: 1,
            stop_grace: "10s",
            in_container: true,
            container: none(),
            launch: none(),
            env: none(),
            top_level: none(),
        }
    }
}

fn indent(text: &str) -> String {
    text.lines().fold(String::new(), |mut all, line| {
        writeln!(all, "  {line}").expect("a String takes all");
        all
    })
}

/// A port that nobody else of this machine is given by chance: below the range of outgoing connections.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 12_000 + u16::try_from((std::process::id().wrapping_mul(61) + step) % 18_000).expect("small");
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

impl SandboxFixture {
    /// A bench with the sandbox of `scenario`.
    pub(crate) async fn start(scenario: &str) -> SandboxFixture {
        let scenario = Scenario::parse(scenario).expect("a scenario");
        let program = PathBuf::from(env!("CARGO_BIN_EXE_orchestrate"));
        let sandbox = Sandbox::start_with(scenario, program).await.expect("a sandbox");
        let dir = tempfile::Builder::new().prefix("it-").tempdir().expect("a folder");
        std::fs::create_dir_all(dir.path().join("bench")).expect("made");
        std::fs::write(dir.path().join("bench/payload"), PAYLOAD).expect("written");
        SandboxFixture { sandbox, master_port: free_port(), dir }
    }

    /// Healthy hosts.
    pub(crate) async fn with_hosts(count: usize) -> SandboxFixture {
        SandboxFixture::start(&format!("{{hosts: {count}, gpus: 2}}")).await
    }

    /// The folder that the payload and the test share.
    pub(crate) fn control_dir(&self) -> PathBuf {
        self.dir.path().join("bench")
    }

    /// The whole folder.
    pub(crate) fn root(&self) -> &Path {
        self.dir.path()
    }

    /// Writes an inventory and says where.
    pub(crate) fn write_inventory(&self, name: &str, job: &JobSpec) -> PathBuf {
        let bench = self.control_dir();
        let bench = bench.display();
        let container = if job.in_container {
            format!("container:\n  image: demo/train:1\n  mounts: [\"{bench}:{bench}\"]\n{}", indent(&job.container))
        } else {
            String::new()
        };
        let command = if job.launch.contains("command:") || job.launch.contains("shell:") {
            String::new()
        } else {
            format!("  command: [--no_python, /bin/sh, \"{bench}/payload\"]\n")
        };
        let with = if job.launch.contains("with:") { String::new() } else { "  with: torchrun\n".to_owned() };
        let extra = format!(
            "{container}env:\n  BENCH: \"{bench}\"\n{}launch:\n{with}  nproc_per_node: {}\n  master_port: {}\n{command}  stop_grace: {}\n{}{}",
            indent(&job.env),
            job.nproc_per_node,
            self.master_port,
            job.stop_grace,
            indent(&job.launch),
            job.top_level
        );
        // A machine that is busy with other tests is no host that is away.
        let text = self.sandbox.inventory_yaml(name, &extra).replacen("\nssh:\n", "\nssh:\n  connect_timeout: 60s\n", 1);
        self.write_yaml(name, &text)
    }

    /// Writes a file beside the inventories.
    pub(crate) fn write_yaml(&self, name: &str, text: &str) -> PathBuf {
        let file = self.dir.path().join(format!("{name}.yaml"));
        std::fs::write(&file, text).expect("written");
        file
    }

    /// A laptop: a home and a state folder of its own.
    pub(crate) fn new_laptop(&self, name: &str) -> Laptop {
        let home = self.dir.path().join(name);
        std::fs::create_dir_all(&home).expect("made");
        Laptop { home, env_vars: BTreeMap::new() }
    }

    /// What the payload reads before it says that it is up: sh text.
    pub(crate) fn set_payload_setup(&self, text: &str) {
        std::fs::write(self.control_dir().join("job"), text).expect("written");
    }

    /// Tells every rank, or one, to end with a code.
    pub(crate) fn end_ranks(&self, rank: Option<u32>, code: i32) {
        let name = rank.map_or("go".to_owned(), |rank| format!("go.{rank}"));
        let beside = self.control_dir().join(format!("{name}.new"));
        std::fs::write(&beside, format!("{code}\n")).expect("written");
        std::fs::rename(&beside, self.control_dir().join(name)).expect("renamed");
    }

    /// Forgets every order and every sign, for the next run.
    pub(crate) fn clear_control_files(&self) {
        for entry in std::fs::read_dir(self.control_dir()).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            if name.starts_with("go") || name.starts_with("up.") || name.starts_with("term.") || name.starts_with("died.") {
                std::fs::remove_file(&path).expect("removed");
            }
        }
    }

    /// Waits until so many ranks are up; their pids.
    pub(crate) async fn wait_for_ranks(&self, count: u32) -> Vec<i32> {
        let mut pids = Vec::new();
        for rank in 0..count {
            let file = self.control_dir().join(format!("up.{rank}"));
            pids.push(wait_until(&format!("rank {rank} is up"), async || std::fs::read_to_string(&file).ok()?.trim().parse().ok()).await);
        }
        pids
    }

    /// Whether a rank was told to end: when, nanoseconds since 1970.
    pub(crate) fn term_received_at(&self, rank: u32) -> Option<u128> {
        std::fs::read_to_string(self.control_dir().join(format!("term.{rank}"))).ok()?.trim().parse().ok()
    }

    /// When a rank ended by order: milliseconds since 1970.
    pub(crate) fn rank_ended_at_ms(&self, rank: u32) -> i64 {
        let text = std::fs::read_to_string(self.control_dir().join(format!("died.{rank}"))).expect("it has ended");
        i64::try_from(text.trim().parse::<i128>().expect("a time") / 1_000_000).expect("a time")
    }

    /// A host's home.
    pub(crate) fn host_home(&self, host: usize) -> PathBuf {
        self.sandbox.host_root(host).expect("a host").join("home")
    }

    /// The only run directory of a name on a host.
    pub(crate) fn run_dir(&self, name: &str, host: usize) -> PathBuf {
        self.private_dir(name, host).with_extension("in").join(self.current_run_id(name, host))
    }

    /// The id of the current run.
    pub(crate) fn current_run_id(&self, name: &str, host: usize) -> String {
        std::fs::read_to_string(self.private_dir(name, host).join("current")).expect("a current run").trim().to_owned()
    }

    /// A file that the run's processes write: `node.rc`, `rank-3.0.log`.
    pub(crate) fn run_file(&self, name: &str, host: usize, file: &str) -> PathBuf {
        self.private_dir(name, host).with_extension("out").join(format!("{}.{file}", self.current_run_id(name, host)))
    }

    /// What the host's side alone can reach of a name.
    pub(crate) fn private_dir(&self, name: &str, host: usize) -> PathBuf {
        self.host_home(host).join(".orchestrate").join(name).join(format!("{}.private", self.sandbox.host_name(host).expect("a host")))
    }

    /// `name id status` of each container of a host.
    pub(crate) fn containers(&self, host: usize) -> Vec<(String, String, String)> {
        let file = self.sandbox.host_root(host).expect("a host").join("docker/state.json");
        let Ok(text) = std::fs::read_to_string(file) else { return Vec::new() };
        let state: serde_json::Value = serde_json::from_str(&text).expect("docker's state");
        let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let list = state["containers"].as_array().cloned().unwrap_or_default();
        list.iter().map(|c| (word(&c["name"]), word(&c["id"]), word(&c["status"]))).collect()
    }

    /// Orders what is wrong with a host.
    pub(crate) fn set_faults(&self, host: &str, faults: &Faults) {
        self.sandbox.set_faults(host, faults).expect("a host");
    }

    /// Everything of ours that is on any host now.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let mut left: Vec<String> =
            self.sandbox.processes().iter().map(|pid| format!("process {pid}: {}", process_cmdline(*pid))).collect();
        for host in 0..self.sandbox.len() {
            let name = self.sandbox.host_name(host).unwrap_or_default();
            left.extend(self.containers(host).into_iter().map(|(box_, _, status)| format!("{name}: container {box_} ({status})")));
            let run_dir = self.host_home(host).join(".orchestrate");
            if run_dir.exists() {
                left.push(format!("{name}: {}", describe_dir(&run_dir)));
            }
        }
        left
    }

    /// Nothing is left on any host. What ends by itself (a shell whose connection was closed) gets a moment.
    pub(crate) async fn assert_no_leftovers(&self) {
        let end = Instant::now() + TEST_TIMEOUT / 2;
        loop {
            let left = self.leftovers();
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < end, "left behind:\n{}", left.join("\n"));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The end of a test: nothing is left, and the sandbox agrees.
    pub(crate) async fn assert_clean_and_stop(self) {
        self.assert_no_leftovers().await;
        self.sandbox.stop().await.expect("the sandbox ends");
    }
}

fn process_cmdline(pid: i32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

fn describe_dir(dir: &Path) -> String {
    let mut names = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() { open.push(path) } else { names.push(path.display().to_string()) }
        }
    }
    format!("{} with {}", dir.display(), names.join(" "))
}

/// A person's machine.
pub(crate) struct Laptop {
    pub(crate) home: PathBuf,
    pub(crate) env_vars: BTreeMap<String, String>,
}

impl Laptop {
    fn build_command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orchestrate"));
        command.args(words);
        // The checks have tests of their own (`check.rs`); what a launch cannot do without is looked at in any case.
        if matches!(words.first(), Some(&("up" | "tui"))) && !words.contains(&"--preflight") {
            command.args(["--preflight", "off"]);
        }
        command.env_clear().current_dir(&self.home).stdin(Stdio::null()).kill_on_drop(true);
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", &self.home).env("XDG_STATE_HOME", self.home.join("state")).env("USER", "tester");
        command.envs(&self.env_vars);
        command
    }

    /// The variables of this person, for a program in a terminal.
    pub(crate) fn terminal_env(&self) -> BTreeMap<String, String> {
        let text = |path: PathBuf| path.display().to_string();
        let own = [("HOME", text(self.home.clone())), ("XDG_STATE_HOME", text(self.home.join("state"))), ("USER", "tester".to_owned())];
        let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
        own.chain(self.env_vars.clone()).collect()
    }

    /// Starts a command; what it says goes to files.
    pub(crate) fn start(&self, words: &[&str]) -> CliProcess {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (out, err) = (self.home.join(format!("out-{number}")), self.home.join(format!("err-{number}")));
        let file = |path: &Path| std::fs::File::create(path).expect("a file");
        let child = self.build_command(words).stdout(file(&out)).stderr(file(&err)).spawn().expect("orchestrate starts");
        CliProcess { args: words.join(" "), child, stdout_path: out, stderr_path: err }
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, words: &[&str]) -> CliOutput {
        self.start(words).wait_for_exit().await
    }

    /// The folders of the runs that this laptop knows, oldest first.
    pub(crate) fn run_dirs(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.home.join("state/orchestrate/runs"));
        let mut runs: Vec<PathBuf> = entries.into_iter().flatten().flatten().map(|e| e.path()).collect();
        runs.sort();
        runs
    }

    /// The folder of the only run.
    pub(crate) fn only_run_dir(&self) -> PathBuf {
        let runs = self.run_dirs();
        assert_eq!(runs.len(), 1, "{runs:?}");
        runs[0].clone()
    }

    /// A log of the only run.
    pub(crate) fn read_log(&self, name: &str) -> Vec<u8> {
        let file = self.only_run_dir().join("logs").join(name);
        std::fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
    }

    /// The journal of the only run.
    pub(crate) fn read_journal(&self) -> Vec<Event> {
        let file = self.only_run_dir().join("journal.jsonl");
        journal::JournalReader::open(&file).expect("a journal").read_all().expect("events")
    }

    /// The kinds of event in the journal of the only run.
    pub(crate) fn journal_kinds(&self) -> Vec<EventKind> {
        self.read_journal().into_iter().map(|event| event.kind).collect()
    }
}

/// A command under way.
pub(crate) struct CliProcess {
    args: String,
    child: Child,
    stdout_path: PathBuf,
    stderr_path: PathBuf,
}

impl CliProcess {
    /// What it has said so far, both ways.
    pub(crate) fn output_so_far(&self) -> String {
        let read = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
        format!("{}{}", read(&self.stdout_path), read(&self.stderr_path))
    }

    /// Waits until it says something.
    pub(crate) async fn wait_for_output(&mut self, text: &str) {
        let end = Instant::now() + TEST_TIMEOUT;
        while !self.output_so_far().contains(text) {
            let ended = self.child.try_wait().expect("a child");
            if let Some(status) = ended
                && !self.output_so_far().contains(text)
            {
                panic!("`{}` ended ({status}) without saying {text:?}:\n{}", self.args, self.output_so_far());
            }
            assert!(Instant::now() < end, "`{}` never said {text:?}:\n{}", self.args, self.output_so_far());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Whether it has not ended.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Sends it a signal, by name: `INT`.
    pub(crate) fn send_signal(&self, name: &str) {
        use rustix::process::{Pid, Signal, kill_process};
        let signal = match name {
            "INT" => Signal::INT,
            "TERM" => Signal::TERM,
            "HUP" => Signal::HUP,
            "KILL" => Signal::KILL,
            other => panic!("{other}?"),
        };
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw).expect("it runs");
        kill_process(pid, signal).expect("signalled");
    }

    /// Waits for its end.
    pub(crate) async fn wait_for_exit(mut self) -> CliOutput {
        let status = match tokio::time::timeout(TEST_TIMEOUT, self.child.wait()).await {
            Ok(status) => status.expect("it ran"),
            Err(_) => panic!("`{}` does not end:\n{}", self.args, self.output_so_far()),
        };
        let read = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).expect("its words")).into_owned();
        CliOutput { args: self.args, exit_code: status.code(), stdout: read(&self.stdout_path), stderr: read(&self.stderr_path) }
    }
}

/// How a command ended.
pub(crate) struct CliOutput {
    args: String,
    pub(crate) exit_code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl CliOutput {
    /// It ended with this code.
    #[track_caller]
    pub(crate) fn assert_exit_code(&self, code: i32) -> &Self {
        assert_eq!(self.exit_code, Some(code), "`{}`\n--- out\n{}--- err\n{}", self.args, self.stdout, self.stderr);
        self
    }

    /// It said this, on either way.
    #[track_caller]
    pub(crate) fn assert_contains(&self, text: &str) -> &Self {
        let said = self.stdout.contains(text) || self.stderr.contains(text);
        assert!(said, "`{}` did not say {text:?}\n--- out\n{}--- err\n{}", self.args, self.stdout, self.stderr);
        self
    }

    /// It did not say this.
    #[track_caller]
    pub(crate) fn assert_not_contains(&self, text: &str) -> &Self {
        let said = self.stdout.contains(text) || self.stderr.contains(text);
        assert!(!said, "`{}` said {text:?}\n--- out\n{}--- err\n{}", self.args, self.stdout, self.stderr);
        self
    }

    /// The recap's first line has this word for how it ended.
    #[track_caller]
    pub(crate) fn assert_recap(&self, word: &str) -> &Self {
        let head = self.stderr.lines().find(|line| line.starts_with("RECAP"));
        assert!(head.is_some_and(|line| line.contains(&format!("  {word}  "))), "no recap `{word}`: {head:?}\n--- err\n{}", self.stderr);
        self
    }
}

/// Waits until the probe has a value.
pub(crate) async fn wait_until<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + TEST_TIMEOUT;
    loop {
        if let Some(value) = probe().await {
            return value;
        }
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The digest by which copies are compared.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes all");
        text
    })
}

/// A path as a word of a command.
pub(crate) fn path_str(path: &Path) -> &str {
    path.to_str().expect("text")
}
