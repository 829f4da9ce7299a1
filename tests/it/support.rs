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
const PATIENCE: Duration = Duration::from_secs(300);

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
pub(crate) struct Bench {
    pub(crate) sandbox: Sandbox,
    pub(crate) port: u16,
    dir: tempfile::TempDir,
}

/// What an inventory of the bench says beyond its hosts.
pub(crate) struct Job {
    /// Ranks of a host.
    pub(crate) nproc: u32,
    /// From TERM to KILL.
    pub(crate) grace: &'static str,
    /// Whether in a container.
    pub(crate) contained: bool,
    /// Lines under `container:`.
    pub(crate) container: String,
    /// Lines under `launch:`.
    pub(crate) launch: String,
    /// Lines under `env:`.
    pub(crate) env: String,
    /// Lines at the top.
    pub(crate) top: String,
}

impl Default for Job {
    fn default() -> Self {
        let none = String::new;
        Job { nproc: 1, grace: "10s", contained: true, container: none(), launch: none(), env: none(), top: none() }
    }
}

fn indented(text: &str) -> String {
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

impl Bench {
    /// A bench with the sandbox of `scenario`.
    pub(crate) async fn new(scenario: &str) -> Bench {
        let scenario = Scenario::parse(scenario).expect("a scenario");
        let program = PathBuf::from(env!("CARGO_BIN_EXE_orchestrate"));
        let sandbox = Sandbox::start_with(scenario, program).await.expect("a sandbox");
        let dir = tempfile::Builder::new().prefix("it-").tempdir().expect("a folder");
        std::fs::create_dir_all(dir.path().join("bench")).expect("made");
        std::fs::write(dir.path().join("bench/payload"), PAYLOAD).expect("written");
        Bench { sandbox, port: free_port(), dir }
    }

    /// Healthy hosts.
    pub(crate) async fn hosts(count: usize) -> Bench {
        Bench::new(&format!("{{hosts: {count}, gpus: 2}}")).await
    }

    /// The folder that the payload and the test share.
    pub(crate) fn bench(&self) -> PathBuf {
        self.dir.path().join("bench")
    }

    /// The whole folder.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Writes an inventory and says where.
    pub(crate) fn inventory(&self, name: &str, job: &Job) -> PathBuf {
        let bench = self.bench();
        let bench = bench.display();
        let container = if job.contained {
            format!("container:\n  image: demo/train:1\n  mounts: [\"{bench}:{bench}\"]\n{}", indented(&job.container))
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
            indented(&job.env),
            job.nproc,
            self.port,
            job.grace,
            indented(&job.launch),
            job.top
        );
        // A machine that is busy with other tests is no host that is away.
        let text = self.sandbox.inventory_yaml(name, &extra).replacen("\nssh:\n", "\nssh:\n  connect_timeout: 60s\n", 1);
        self.write(name, &text)
    }

    /// Writes a file beside the inventories.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let file = self.dir.path().join(format!("{name}.yaml"));
        std::fs::write(&file, text).expect("written");
        file
    }

    /// A laptop: a home and a state folder of its own.
    pub(crate) fn laptop(&self, name: &str) -> Laptop {
        let home = self.dir.path().join(name);
        std::fs::create_dir_all(&home).expect("made");
        Laptop { home, variables: BTreeMap::new() }
    }

    /// What the payload reads before it says that it is up: sh text.
    pub(crate) fn job(&self, text: &str) {
        std::fs::write(self.bench().join("job"), text).expect("written");
    }

    /// Tells every rank, or one, to end with a code.
    pub(crate) fn end(&self, rank: Option<u32>, code: i32) {
        let name = rank.map_or("go".to_owned(), |rank| format!("go.{rank}"));
        let beside = self.bench().join(format!("{name}.new"));
        std::fs::write(&beside, format!("{code}\n")).expect("written");
        std::fs::rename(&beside, self.bench().join(name)).expect("renamed");
    }

    /// Forgets every order and every sign, for the next run.
    pub(crate) fn again(&self) {
        for entry in std::fs::read_dir(self.bench()).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            if name.starts_with("go") || name.starts_with("up.") || name.starts_with("term.") || name.starts_with("died.") {
                std::fs::remove_file(&path).expect("removed");
            }
        }
    }

    /// Waits until so many ranks are up; their pids.
    pub(crate) async fn ranks_up(&self, count: u32) -> Vec<i32> {
        let mut pids = Vec::new();
        for rank in 0..count {
            let file = self.bench().join(format!("up.{rank}"));
            pids.push(until(&format!("rank {rank} is up"), async || std::fs::read_to_string(&file).ok()?.trim().parse().ok()).await);
        }
        pids
    }

    /// Whether a rank was told to end: when, nanoseconds since 1970.
    pub(crate) fn term(&self, rank: u32) -> Option<u128> {
        std::fs::read_to_string(self.bench().join(format!("term.{rank}"))).ok()?.trim().parse().ok()
    }

    /// When a rank ended by order: milliseconds since 1970.
    pub(crate) fn died(&self, rank: u32) -> i64 {
        let text = std::fs::read_to_string(self.bench().join(format!("died.{rank}"))).expect("it has ended");
        i64::try_from(text.trim().parse::<i128>().expect("a time") / 1_000_000).expect("a time")
    }

    /// A host's home.
    pub(crate) fn home(&self, host: usize) -> PathBuf {
        self.sandbox.host_root(host).expect("a host").join("home")
    }

    /// The only run directory of a name on a host.
    pub(crate) fn run_dir(&self, name: &str, host: usize) -> PathBuf {
        self.host_dir(name, host).with_extension("in").join(self.current(name, host))
    }

    /// The id of the current run.
    pub(crate) fn current(&self, name: &str, host: usize) -> String {
        std::fs::read_to_string(self.host_dir(name, host).join("current")).expect("a current run").trim().to_owned()
    }

    /// A file that the run's processes write: `node.rc`, `rank-3.0.log`.
    pub(crate) fn written(&self, name: &str, host: usize, file: &str) -> PathBuf {
        self.host_dir(name, host).with_extension("out").join(format!("{}.{file}", self.current(name, host)))
    }

    /// What the host's side alone can reach of a name.
    pub(crate) fn host_dir(&self, name: &str, host: usize) -> PathBuf {
        self.home(host).join(".orchestrate").join(name).join(format!("{}.private", self.sandbox.host_name(host).expect("a host")))
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
    pub(crate) fn faults(&self, host: &str, faults: &Faults) {
        self.sandbox.set_faults(host, faults).expect("a host");
    }

    /// Everything of ours that is on any host now.
    pub(crate) fn left(&self) -> Vec<String> {
        let mut left: Vec<String> = self.sandbox.processes().iter().map(|pid| format!("process {pid}: {}", words_of(*pid))).collect();
        for host in 0..self.sandbox.len() {
            let name = self.sandbox.host_name(host).unwrap_or_default();
            left.extend(self.containers(host).into_iter().map(|(box_, _, status)| format!("{name}: container {box_} ({status})")));
            let run_dir = self.home(host).join(".orchestrate");
            if run_dir.exists() {
                left.push(format!("{name}: {}", tree(&run_dir)));
            }
        }
        left
    }

    /// Nothing is left on any host. What ends by itself (a shell whose connection was closed) gets a moment.
    pub(crate) async fn nothing_left(&self) {
        let end = Instant::now() + PATIENCE / 2;
        loop {
            let left = self.left();
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < end, "left behind:\n{}", left.join("\n"));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The end of a test: nothing is left, and the sandbox agrees.
    pub(crate) async fn done(self) {
        self.nothing_left().await;
        self.sandbox.stop().await.expect("the sandbox ends");
    }
}

fn words_of(pid: i32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

fn tree(dir: &Path) -> String {
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
    pub(crate) variables: BTreeMap<String, String>,
}

impl Laptop {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orchestrate"));
        command.args(words);
        // The checks have tests of their own (`check.rs`); what a launch cannot do without is looked at in any case.
        if matches!(words.first(), Some(&("up" | "tui"))) && !words.contains(&"--preflight") {
            command.args(["--preflight", "off"]);
        }
        command.env_clear().current_dir(&self.home).stdin(Stdio::null()).kill_on_drop(true);
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", &self.home).env("XDG_STATE_HOME", self.home.join("state")).env("USER", "tester");
        command.envs(&self.variables);
        command
    }

    /// The variables of this person, for a program in a terminal.
    pub(crate) fn environment(&self) -> BTreeMap<String, String> {
        let text = |path: PathBuf| path.display().to_string();
        let own = [("HOME", text(self.home.clone())), ("XDG_STATE_HOME", text(self.home.join("state"))), ("USER", "tester".to_owned())];
        let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
        own.chain(self.variables.clone()).collect()
    }

    /// Starts a command; what it says goes to files.
    pub(crate) fn start(&self, words: &[&str]) -> Running {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (out, err) = (self.home.join(format!("out-{number}")), self.home.join(format!("err-{number}")));
        let file = |path: &Path| std::fs::File::create(path).expect("a file");
        let child = self.command(words).stdout(file(&out)).stderr(file(&err)).spawn().expect("orchestrate starts");
        Running { words: words.join(" "), child, out, err }
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, words: &[&str]) -> Ended {
        self.start(words).end().await
    }

    /// The folders of the runs that this laptop knows, oldest first.
    pub(crate) fn runs(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.home.join("state/orchestrate/runs"));
        let mut runs: Vec<PathBuf> = entries.into_iter().flatten().flatten().map(|e| e.path()).collect();
        runs.sort();
        runs
    }

    /// The folder of the only run.
    pub(crate) fn run_dir(&self) -> PathBuf {
        let runs = self.runs();
        assert_eq!(runs.len(), 1, "{runs:?}");
        runs[0].clone()
    }

    /// A log of the only run.
    pub(crate) fn log(&self, name: &str) -> Vec<u8> {
        let file = self.run_dir().join("logs").join(name);
        std::fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
    }

    /// The journal of the only run.
    pub(crate) fn journal(&self) -> Vec<Event> {
        let file = self.run_dir().join("journal.jsonl");
        journal::Reader::open(&file).expect("a journal").all().expect("events")
    }

    /// The kinds of event in the journal of the only run.
    pub(crate) fn kinds(&self) -> Vec<EventKind> {
        self.journal().into_iter().map(|event| event.kind).collect()
    }
}

/// A command under way.
pub(crate) struct Running {
    words: String,
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Running {
    /// What it has said so far, both ways.
    pub(crate) fn said(&self) -> String {
        let read = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
        format!("{}{}", read(&self.out), read(&self.err))
    }

    /// Waits until it says something.
    pub(crate) async fn says(&mut self, text: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.said().contains(text) {
            let ended = self.child.try_wait().expect("a child");
            if let Some(status) = ended
                && !self.said().contains(text)
            {
                panic!("`{}` ended ({status}) without saying {text:?}:\n{}", self.words, self.said());
            }
            assert!(Instant::now() < end, "`{}` never said {text:?}:\n{}", self.words, self.said());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Whether it has not ended.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Sends it a signal, by name: `INT`.
    pub(crate) fn signal(&self, name: &str) {
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
    pub(crate) async fn end(mut self) -> Ended {
        let status = match tokio::time::timeout(PATIENCE, self.child.wait()).await {
            Ok(status) => status.expect("it ran"),
            Err(_) => panic!("`{}` does not end:\n{}", self.words, self.said()),
        };
        let read = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).expect("its words")).into_owned();
        Ended { words: self.words, code: status.code(), out: read(&self.out), err: read(&self.err) }
    }
}

/// How a command ended.
pub(crate) struct Ended {
    words: String,
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    /// It ended with this code.
    #[track_caller]
    pub(crate) fn code(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "`{}`\n--- out\n{}--- err\n{}", self.words, self.out, self.err);
        self
    }

    /// It said this, on either way.
    #[track_caller]
    pub(crate) fn says(&self, text: &str) -> &Self {
        let said = self.out.contains(text) || self.err.contains(text);
        assert!(said, "`{}` did not say {text:?}\n--- out\n{}--- err\n{}", self.words, self.out, self.err);
        self
    }

    /// It did not say this.
    #[track_caller]
    pub(crate) fn silent_about(&self, text: &str) -> &Self {
        let said = self.out.contains(text) || self.err.contains(text);
        assert!(!said, "`{}` said {text:?}\n--- out\n{}--- err\n{}", self.words, self.out, self.err);
        self
    }

    /// The recap's first line has this word for how it ended.
    #[track_caller]
    pub(crate) fn recap(&self, word: &str) -> &Self {
        let head = self.err.lines().find(|line| line.starts_with("RECAP"));
        assert!(head.is_some_and(|line| line.contains(&format!("  {word}  "))), "no recap `{word}`: {head:?}\n--- err\n{}", self.err);
        self
    }
}

/// Waits until the probe has a value.
pub(crate) async fn until<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = probe().await {
            return value;
        }
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The digest by which copies are compared.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes all");
        text
    })
}

/// A path as a word of a command.
pub(crate) fn word(path: &Path) -> &str {
    path.to_str().expect("text")
}
