//! Runs `orchestrate` as on a laptop of its own, and checks what it prints, its exit code and its files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use orchestrate::event::{Event, EventKind};
use orchestrate::report::journal;
use tokio::process::{Child, Command};

use super::TEST_TIMEOUT;

/// A home directory and environment to run the program in.
pub(crate) struct Laptop {
    pub(crate) home: PathBuf,
    pub(crate) env_vars: BTreeMap<String, String>,
}

impl Laptop {
    fn build_command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orchestrate"));
        command.args(args);
        // `check.rs` tests the checks; the ones that a launch depends on run in any case.
        if matches!(args.first(), Some(&("up" | "tui"))) && !args.contains(&"--preflight") {
            command.args(["--preflight", "off"]);
        }
        command.env_clear().current_dir(&self.home).stdin(Stdio::null()).kill_on_drop(true);
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", &self.home).env("XDG_STATE_HOME", self.home.join("state")).env("USER", "tester");
        command.envs(&self.env_vars);
        command
    }

    /// The environment for a program in a terminal.
    pub(crate) fn terminal_env(&self) -> BTreeMap<String, String> {
        let text = |path: PathBuf| path.display().to_string();
        let own = [("HOME", text(self.home.clone())), ("XDG_STATE_HOME", text(self.home.join("state"))), ("USER", "tester".to_owned())];
        let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
        own.chain(self.env_vars.clone()).collect()
    }

    /// Starts a command; its output goes to files.
    pub(crate) fn start(&self, args: &[&str]) -> CliProcess {
        self.spawn(self.build_command(args), args)
    }

    /// The same with SIGHUP ignored, as `nohup` starts a command.
    pub(crate) fn start_ignoring_hangup(&self, args: &[&str]) -> CliProcess {
        let ours = self.build_command(args);
        let ours = ours.as_std();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(ours.get_program()).args(ours.get_args());
        command.env_clear().envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.current_dir(&self.home).stdin(Stdio::null()).kill_on_drop(true);
        self.spawn(command, args)
    }

    fn spawn(&self, mut command: Command, args: &[&str]) -> CliProcess {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (out, err) = (self.home.join(format!("out-{number}")), self.home.join(format!("err-{number}")));
        let file = |path: &Path| std::fs::File::create(path).expect("a file");
        let child = command.stdout(file(&out)).stderr(file(&err)).spawn().expect("orchestrate starts");
        CliProcess { args: args.join(" "), child, stdout_path: out, stderr_path: err }
    }

    /// Starts a command with its standard output in a pipe.
    pub(crate) fn start_with_pipe(&self, args: &[&str]) -> (Child, tokio::process::ChildStdout) {
        let mut child = self.build_command(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("orchestrate starts");
        let pipe = child.stdout.take().expect("a pipe");
        (child, pipe)
    }

    pub(crate) async fn run(&self, args: &[&str]) -> CliOutput {
        self.start(args).wait_for_exit().await
    }

    /// The same with a file as its standard input.
    pub(crate) async fn run_with_input(&self, args: &[&str], input: &Path) -> CliOutput {
        let mut command = self.build_command(args);
        command.stdin(std::fs::File::open(input).expect("the input"));
        self.spawn(command, args).wait_for_exit().await
    }

    /// The run directories in this laptop's state, oldest first.
    pub(crate) fn run_dirs(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.home.join("state/orchestrate/runs"));
        let mut runs: Vec<PathBuf> = entries.into_iter().flatten().flatten().map(|e| e.path()).collect();
        runs.sort();
        runs
    }

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

/// A running command.
pub(crate) struct CliProcess {
    args: String,
    child: Child,
    stdout_path: PathBuf,
    stderr_path: PathBuf,
}

impl CliProcess {
    /// Standard output, then standard error, so far.
    pub(crate) fn output_so_far(&self) -> String {
        let read = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
        format!("{}{}", read(&self.stdout_path), read(&self.stderr_path))
    }

    /// Waits until the output contains `text`.
    pub(crate) async fn wait_for_output(&mut self, text: &str) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        while !self.output_so_far().contains(text) {
            let ended = self.child.try_wait().expect("a child");
            if let Some(status) = ended
                && !self.output_so_far().contains(text)
            {
                panic!("`{}` ended ({status}) without printing {text:?}:\n{}", self.args, self.output_so_far());
            }
            assert!(Instant::now() < deadline, "`{}` did not print {text:?}:\n{}", self.args, self.output_so_far());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Whether it has a handler for SIGINT.
    pub(crate) fn handles_interrupt(&self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id().unwrap_or_default())).unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.is_some_and(|mask| mask & 2 != 0)
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Sends a signal by its name: `INT`.
    pub(crate) fn send_signal(&self, name: &str) {
        use rustix::process::{Pid, Signal, kill_process};
        let signal = match name {
            "INT" => Signal::INT,
            "TERM" => Signal::TERM,
            "HUP" => Signal::HUP,
            "KILL" => Signal::KILL,
            other => panic!("unknown signal {other}"),
        };
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw).expect("it runs");
        kill_process(pid, signal).expect("signalled");
    }

    pub(crate) async fn wait_for_exit(self) -> CliOutput {
        self.wait_for_exit_within(TEST_TIMEOUT).await
    }

    pub(crate) async fn wait_for_exit_within(mut self, limit: Duration) -> CliOutput {
        let status = match tokio::time::timeout(limit, self.child.wait()).await {
            Ok(status) => status.expect("it ran"),
            Err(_) => panic!("`{}` does not end:\n{}", self.args, self.output_so_far()),
        };
        let read = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).expect("its output")).into_owned();
        CliOutput { args: self.args, exit_code: status.code(), stdout: read(&self.stdout_path), stderr: read(&self.stderr_path) }
    }
}

/// The result of a command.
pub(crate) struct CliOutput {
    args: String,
    pub(crate) exit_code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl CliOutput {
    #[track_caller]
    pub(crate) fn assert_exit_code(&self, code: i32) -> &Self {
        assert_eq!(self.exit_code, Some(code), "`{}`\n--- out\n{}--- err\n{}", self.args, self.stdout, self.stderr);
        self
    }

    /// Standard output or standard error contains `text`.
    #[track_caller]
    pub(crate) fn assert_contains(&self, text: &str) -> &Self {
        let found = self.stdout.contains(text) || self.stderr.contains(text);
        assert!(found, "`{}` did not print {text:?}\n--- out\n{}--- err\n{}", self.args, self.stdout, self.stderr);
        self
    }

    /// As [`Self::assert_contains`], for a sentence that may be wrapped.
    #[track_caller]
    pub(crate) fn assert_says(&self, text: &str) -> &Self {
        let says = |output: &str| output.split_whitespace().collect::<Vec<_>>().join(" ").contains(text);
        let found = says(&self.stdout) || says(&self.stderr);
        assert!(found, "`{}` did not say {text:?}\n--- out\n{}--- err\n{}", self.args, self.stdout, self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn assert_not_contains(&self, text: &str) -> &Self {
        let found = self.stdout.contains(text) || self.stderr.contains(text);
        assert!(!found, "`{}` printed {text:?}\n--- out\n{}--- err\n{}", self.args, self.stdout, self.stderr);
        self
    }

    /// The recap reports this outcome.
    #[track_caller]
    pub(crate) fn assert_recap(&self, outcome: &str) -> &Self {
        let header = self.stderr.lines().find(|line| line.starts_with("RECAP"));
        assert!(
            header.is_some_and(|line| line.contains(&format!("  {outcome}  "))),
            "no recap `{outcome}`: {header:?}\n--- err\n{}",
            self.stderr
        );
        self
    }
}
