//! A laptop: a home and a state directory of its own, and the commands typed there.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

/// The limit for any single wait. Reaching it is a failure; a passing test never waits for it.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(300);

/// Polls until the probe returns a value.
#[track_caller]
pub(crate) fn wait_until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + TEST_TIMEOUT;
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(Instant::now() < end, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A digest to compare copies by.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a String");
        text
    })
}

/// The path as a command-line argument.
pub(crate) fn path_str(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// A user's machine.
pub(crate) struct Laptop {
    home: tempfile::TempDir,
    env_vars: Vec<(&'static str, String)>,
}

impl Laptop {
    /// A new laptop without any state.
    pub(crate) fn new() -> Laptop {
        Laptop { home: tempfile::Builder::new().prefix("laptop-").tempdir().expect("a folder"), env_vars: Vec::new() }
    }

    /// Adds a variable to its environment.
    pub(crate) fn with_env(mut self, name: &'static str, value: &str) -> Laptop {
        self.env_vars.push((name, value.to_owned()));
        self
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Writes a file into its home directory.
    pub(crate) fn write_file(&self, name: &str, text: &str) -> PathBuf {
        let file = self.home().join(name);
        std::fs::write(&file, text).expect("written");
        file
    }

    /// Starts a command; its output goes to files.
    pub(crate) fn start(&self, words: &[&str]) -> CliProcess {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (out, err) = (self.home().join(format!("out-{number}")), self.home().join(format!("err-{number}")));
        let file = |path: &Path| std::fs::File::create(path).expect("a file");
        let child = Command::new(env!("CARGO_BIN_EXE_orchestrate"))
            .args(words)
            // `check.rs` tests the checks; the ones that a launch depends on run in any case.
            .args(if words.first() == Some(&"up") && !words.contains(&"--preflight") { &["--preflight", "off"][..] } else { &[] })
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home())
            .env("XDG_STATE_HOME", self.home().join("state"))
            .env("USER", "tester")
            .envs(self.env_vars.iter().cloned())
            .current_dir(self.home())
            .stdin(Stdio::null())
            .stdout(file(&out))
            .stderr(file(&err))
            .spawn()
            .expect("orchestrate starts");
        CliProcess { args: words.join(" "), child, stdout_path: out, stderr_path: err, started_at: Instant::now() }
    }

    /// Runs a command to its end.
    #[track_caller]
    pub(crate) fn run(&self, words: &[&str]) -> CliOutput {
        self.start(words).wait_for_exit()
    }

    /// The run directories of this laptop, oldest first.
    pub(crate) fn run_dirs(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.home().join("state/orchestrate/runs"));
        let mut runs: Vec<PathBuf> = entries.into_iter().flatten().flatten().map(|e| e.path()).collect();
        runs.sort();
        runs
    }

    /// The directory of the only run.
    #[track_caller]
    pub(crate) fn only_run_dir(&self) -> PathBuf {
        let runs = self.run_dirs();
        assert_eq!(runs.len(), 1, "{runs:?}");
        runs[0].clone()
    }

    /// The names of the rank logs of the only run.
    #[track_caller]
    pub(crate) fn rank_log_names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.only_run_dir().join("logs")).expect("a folder of logs");
        let mut names: Vec<String> = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.retain(|name| name.starts_with("rank-") && name.ends_with(".log"));
        names.sort();
        names
    }

    /// A log of the only run; a log without output has no file.
    #[track_caller]
    pub(crate) fn read_log(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.only_run_dir().join("logs").join(name)).unwrap_or_default()
    }

    /// A log of the only run as text; empty while the file is missing.
    pub(crate) fn read_log_text(&self, name: &str) -> String {
        let Some(run) = self.run_dirs().pop() else { return String::new() };
        String::from_utf8_lossy(&std::fs::read(run.join("logs").join(name)).unwrap_or_default()).into_owned()
    }
}

/// A running command.
pub(crate) struct CliProcess {
    args: String,
    child: Child,
    stdout_path: PathBuf,
    stderr_path: PathBuf,
    started_at: Instant,
}

impl CliProcess {
    /// Its output so far, from both streams.
    pub(crate) fn output_so_far(&self) -> String {
        let read = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
        format!("{}{}", read(&self.stdout_path), read(&self.stderr_path))
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Polls until the probe returns a value; fails if the command ends first.
    #[track_caller]
    pub(crate) fn wait_until<T>(&mut self, what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
        let end = Instant::now() + TEST_TIMEOUT;
        loop {
            let over = !self.is_running();
            if let Some(value) = probe() {
                return value;
            }
            assert!(!over, "`{}` ended before: {what}\n{}", self.args, self.output_so_far());
            assert!(Instant::now() < end, "timed out: {what}\n`{}`:\n{}", self.args, self.output_so_far());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until its output contains `text`.
    #[track_caller]
    pub(crate) fn wait_for_output(&mut self, text: &str) {
        let (out, err) = (self.stdout_path.clone(), self.stderr_path.clone());
        let read = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).contains(text);
        self.wait_until(&format!("the output contains {text:?}"), || (read(&out) || read(&err)).then_some(()));
    }

    /// Sends a signal by its name: `INT`.
    pub(crate) fn send_signal(&self, name: &str) {
        use rustix::process::{Pid, Signal, kill_process};
        let signal = match name {
            "INT" => Signal::INT,
            "TERM" => Signal::TERM,
            "HUP" => Signal::HUP,
            "KILL" => Signal::KILL,
            other => panic!("{other}?"),
        };
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, signal).expect("signalled");
    }

    /// Kills it with SIGKILL and waits until it is gone.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("gone");
    }

    /// Waits until it ends.
    #[track_caller]
    pub(crate) fn wait_for_exit(mut self) -> CliOutput {
        let end = Instant::now() + TEST_TIMEOUT;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            assert!(Instant::now() < end, "`{}` does not end:\n{}", self.args, self.output_so_far());
            std::thread::sleep(Duration::from_millis(10));
        };
        let read = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).expect("its output")).into_owned();
        CliOutput {
            args: self.args.clone(),
            exit_code: status.code(),
            stdout: read(&self.stdout_path),
            stderr: read(&self.stderr_path),
            elapsed: self.started_at.elapsed(),
        }
    }
}

impl Drop for CliProcess {
    fn drop(&mut self) {
        if self.is_running() {
            let killed = self.child.kill().and_then(|()| self.child.wait());
            assert!(killed.is_ok() || std::thread::panicking(), "`{}` cannot be killed", self.args);
        }
    }
}

/// The result of a command.
pub(crate) struct CliOutput {
    args: String,
    pub(crate) exit_code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) elapsed: Duration,
}

impl CliOutput {
    /// Both outputs.
    pub(crate) fn transcript(&self) -> String {
        format!("`{}`\n--- out\n{}--- err\n{}", self.args, self.stdout, self.stderr)
    }

    /// It exited with this code.
    #[track_caller]
    pub(crate) fn assert_exit_code(&self, code: i32) -> &Self {
        assert_eq!(self.exit_code, Some(code), "{}", self.transcript());
        self
    }

    /// Either output contains this text.
    #[track_caller]
    pub(crate) fn assert_contains(&self, text: &str) -> &Self {
        assert!(self.stdout.contains(text) || self.stderr.contains(text), "missing in the output: {text:?}\n{}", self.transcript());
        self
    }

    /// The recap's first line reports this outcome.
    #[track_caller]
    pub(crate) fn assert_recap(&self, word: &str) -> &Self {
        let head = self.stderr.lines().find(|line| line.starts_with("RECAP"));
        assert!(head.is_some_and(|line| line.contains(&format!("  {word}  "))), "no recap `{word}`\n{}", self.transcript());
        self
    }
}
