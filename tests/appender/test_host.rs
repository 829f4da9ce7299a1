//! A fake host for the appender tests: its directories, its shell, and the files of the appender.

use super::*;

/// A host with one shell as `sh` and the tools that an image with that shell has.
pub(crate) struct TestHost {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) log_max: String,
    pub(crate) is_mounted: bool,
}

impl Drop for TestHost {
    fn drop(&mut self) {
        if self.is_mounted {
            let gone = Command::new("umount").arg("-l").arg(self.path("out")).status();
            assert!(gone.is_ok_and(|status| status.success()) || std::thread::panicking(), "unmounted");
        }
    }
}

/// A wrapper in its own process group, which is killed on `drop`.
pub(crate) struct WrapperProcess(pub(crate) Child);

impl Drop for WrapperProcess {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            let killed = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
            assert!(killed.is_ok() && self.0.wait().is_ok() || std::thread::panicking(), "ended");
        }
    }
}

impl WrapperProcess {
    pub(crate) fn signal_group(&self, signal: Signal) {
        kill_process_group(Pid::from_child(&self.0), signal).expect("signalled");
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        wait_until("the wrapper ends", || self.0.try_wait().expect("a child"))
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LogLoss {
    pub(crate) kind: String,
    pub(crate) offset: u64,
    pub(crate) min_bytes: u64,
    pub(crate) max_bytes: u64,
}

impl TestHost {
    pub(crate) fn new(shell: &'static str) -> TestHost {
        TestHost::without_tool(shell, "")
    }

    pub(crate) fn with_log_max(shell: &'static str, max: &str) -> TestHost {
        let mut host = TestHost::new(shell);
        host.log_max = max.to_owned();
        host
    }

    pub(crate) fn without_tool(shell: &'static str, tool: &str) -> TestHost {
        let host = TestHost { dir: tempfile::tempdir().expect("a folder"), log_max: String::new(), is_mounted: false };
        for dir in ["bin", "in", "out", "host"] {
            fs::create_dir(host.path(dir)).expect("made");
        }
        let program = which(shell).expect("a shell");
        symlink(&program, host.path("bin/sh")).expect("linked");
        for name in REQUIRED_TOOLS.split(' ').filter(|name| *name != tool) {
            let target = if shell == "busybox" { program.clone() } else { which(name).expect("a tool") };
            symlink(target, host.path("bin").join(name)).expect("linked");
        }
        let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets");
        for (from, to) in [("append.sh", "in/append"), ("pipe.sh", "in/pipe")] {
            fs::copy(assets.join(from), host.path(to)).expect("copied");
        }
        fs::write(host.path("in/wrapper"), WRAPPER_SCRIPT).expect("written");
        host
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A file of the rank.
    pub(crate) fn rank_file(&self, end: &str) -> PathBuf {
        self.path(&format!("out/run1.rank-0.0.{end}"))
    }

    pub(crate) fn shell_command(&self) -> Command {
        let mut command = Command::new(self.path("bin/sh"));
        command.env_clear().env("PATH", self.path("bin")).env("ORCH_RUN_ID", "run1").env("TOKEN", "secret");
        command.env("R", self.path("in")).env("F", self.path("out/run1.")).env("log_max", &self.log_max);
        command.current_dir(self.dir.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        command
    }

    /// Starts a script as a rank under a wrapper.
    pub(crate) fn start_rank(&self, rank: &str) -> WrapperProcess {
        let mut command = self.shell_command();
        command.arg(self.path("in/wrapper")).args(["sh", "-c", rank]);
        WrapperProcess(command.spawn().expect("a shell"))
    }

    /// Runs a rank and waits until the appender has ended too.
    pub(crate) fn run_rank(&self, rank: &str) -> Option<i32> {
        let status = self.start_rank(rank).wait();
        self.wait_for_appender_exit();
        status.code()
    }

    pub(crate) fn wait_for_appender_exit(&self) {
        wait_until("the appender ends", || self.rank_file("end").exists().then_some(()));
        assert_eq!(fs::read(self.rank_file("end")).expect("the end"), b"");
        wait_until("the appender's process is gone", || self.appender_pid().is_none().then_some(()));
    }

    pub(crate) fn read_log(&self) -> Vec<u8> {
        fs::read(self.rank_file("log")).expect("the log")
    }

    pub(crate) fn read_log_text(&self) -> String {
        String::from_utf8(self.read_log()).expect("text")
    }

    pub(crate) fn read_note(&self) -> Option<String> {
        fs::read_to_string(self.rank_file("note")).ok()
    }

    pub(crate) fn read_losses(&self) -> Vec<LogLoss> {
        let text = fs::read_to_string(self.rank_file("lost")).unwrap_or_default();
        assert!(text.is_empty() || text.len() == 4096, "the loss file keeps its size");
        let loss = |line: &str| {
            let words: Vec<_> = line.split(' ').collect();
            let number = |at: usize| words[at].parse().expect("a number");
            assert_eq!(words.len(), 4, "{line:?}");
            LogLoss { kind: words[0].to_owned(), offset: number(1), min_bytes: number(2), max_bytes: number(3) }
        };
        text.lines().filter(|line| !line.trim().is_empty()).map(loss).collect()
    }

    pub(crate) fn assert_no_loss(&self) {
        assert!(!self.rank_file("lost").exists(), "{:?}", self.read_losses());
    }

    /// Processes of this host's appender; the supervisor is the first.
    pub(crate) fn appender_pids(&self) -> Vec<i32> {
        let is_first = |pid: &i32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.split(|byte| *byte == 0).nth(1) == Some(self.path("in/append").as_os_str().as_encoded_bytes())
        };
        let all = list_processes();
        let ours: Vec<_> = all.iter().filter(|(pid, _)| is_first(pid)).collect();
        let first = ours.iter().find(|(_, parent)| ours.iter().all(|(pid, _)| pid != parent)).map(|(pid, _)| *pid);
        let mut found: Vec<i32> = first.into_iter().collect();
        let mut seen = 0;
        while seen < found.len() {
            let parent = found[seen];
            found.extend(all.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
            seen += 1;
        }
        found
    }

    pub(crate) fn appender_pid(&self) -> Option<i32> {
        self.appender_pids().first().copied()
    }

    /// The process that reads the pipe: the last one, as nothing else runs.
    pub(crate) fn copier_pid(&self) -> Option<i32> {
        self.appender_pids().into_iter().skip(1).last()
    }
}

/// Every process with its parent.
pub(crate) fn list_processes() -> Vec<(i32, i32)> {
    let entries = fs::read_dir("/proc").expect("/proc").filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    entries.filter_map(|pid| Some((pid, read_process_stat(pid)?.1))).collect()
}

/// State, parent, group and session of a process that is not a zombie.
pub(crate) fn read_process_stat(pid: i32) -> Option<(char, i32, i32, i32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut words = text.rsplit_once(") ")?.1.split(' ');
    let state = words.next()?.chars().next()?;
    let mut number = || words.next()?.parse().ok();
    let all = (state, number()?, number()?, number()?);
    (state != 'Z').then_some(all)
}

pub(crate) fn send_signal(pid: i32, signal: Signal) {
    // The process may have ended by itself.
    if kill_process(Pid::from_raw(pid).expect("a pid"), signal).is_err() {
        assert!(read_process_stat(pid).is_none(), "signalled");
    }
}

/// What `seq 1 LAST` writes.
pub(crate) fn seq_output(first: u64, last: u64) -> String {
    (first..=last).map(|n| format!("{n}\n")).collect()
}
