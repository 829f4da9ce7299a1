//! A host of these tests: its directories, its shell, and what the appender left there.

use super::*;

/// A host with one shell as `sh` and the tools of its image.
pub(crate) struct Host {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) max: String,
    pub(crate) mounted: bool,
}

impl Drop for Host {
    fn drop(&mut self) {
        if self.mounted {
            let gone = Command::new("umount").arg("-l").arg(self.at("out")).status();
            assert!(gone.is_ok_and(|status| status.success()) || std::thread::panicking(), "unmounted");
        }
    }
}

/// A wrapper in a process group of its own, which ends with the test.
pub(crate) struct Wrapper(pub(crate) Child);

impl Drop for Wrapper {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            let killed = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
            assert!(killed.is_ok() && self.0.wait().is_ok() || std::thread::panicking(), "ended");
        }
    }
}

impl Wrapper {
    pub(crate) fn signal_group(&self, signal: Signal) {
        kill_process_group(Pid::from_child(&self.0), signal).expect("signalled");
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        until("the wrapper ends", || self.0.try_wait().expect("a child"))
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) kind: String,
    pub(crate) offset: u64,
    pub(crate) least: u64,
    pub(crate) most: u64,
}

impl Host {
    pub(crate) fn new(shell: &'static str) -> Host {
        Host::without(shell, "")
    }

    pub(crate) fn bounded(shell: &'static str, max: &str) -> Host {
        let mut host = Host::new(shell);
        host.max = max.to_owned();
        host
    }

    pub(crate) fn without(shell: &'static str, tool: &str) -> Host {
        let host = Host { dir: tempfile::tempdir().expect("a folder"), max: String::new(), mounted: false };
        for dir in ["bin", "in", "out", "host"] {
            fs::create_dir(host.at(dir)).expect("made");
        }
        let program = which(shell).expect("a shell");
        symlink(&program, host.at("bin/sh")).expect("linked");
        for name in TOOLS.split(' ').filter(|name| *name != tool) {
            let target = if shell == "busybox" { program.clone() } else { which(name).expect("a tool") };
            symlink(target, host.at("bin").join(name)).expect("linked");
        }
        let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets");
        for (from, to) in [("append.sh", "in/append"), ("pipe.sh", "in/pipe")] {
            fs::copy(assets.join(from), host.at(to)).expect("copied");
        }
        fs::write(host.at("in/wrapper"), WRAPPER).expect("written");
        host
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A file of the wrapper.
    pub(crate) fn file(&self, end: &str) -> PathBuf {
        self.at(&format!("out/run1.rank-0.0.{end}"))
    }

    pub(crate) fn sh(&self) -> Command {
        let mut command = Command::new(self.at("bin/sh"));
        command.env_clear().env("PATH", self.at("bin")).env("ORCH_RUN_ID", "run1").env("TOKEN", "secret");
        command.env("R", self.at("in")).env("F", self.at("out/run1.")).env("log_max", &self.max);
        command.current_dir(self.dir.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        command
    }

    /// Starts a rank, a script, under a wrapper.
    pub(crate) fn start(&self, rank: &str) -> Wrapper {
        let mut command = self.sh();
        command.arg(self.at("in/wrapper")).args(["sh", "-c", rank]);
        Wrapper(command.spawn().expect("a shell"))
    }

    /// Runs a rank until the appender has ended too.
    pub(crate) fn run(&self, rank: &str) -> Option<i32> {
        let status = self.start(rank).wait();
        self.ended();
        status.code()
    }

    pub(crate) fn ended(&self) {
        until("the appender ends", || self.file("end").exists().then_some(()));
        assert_eq!(fs::read(self.file("end")).expect("the end"), b"");
        until("it is gone", || self.appender().is_none().then_some(()));
    }

    pub(crate) fn log(&self) -> Vec<u8> {
        fs::read(self.file("log")).expect("the log")
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.log()).expect("text")
    }

    pub(crate) fn note(&self) -> Option<String> {
        fs::read_to_string(self.file("note")).ok()
    }

    pub(crate) fn losses(&self) -> Vec<Loss> {
        let text = fs::read_to_string(self.file("lost")).unwrap_or_default();
        assert!(text.is_empty() || text.len() == 4096, "the room of the losses does not change");
        let loss = |line: &str| {
            let words: Vec<_> = line.split(' ').collect();
            let number = |at: usize| words[at].parse().expect("a number");
            assert_eq!(words.len(), 4, "{line:?}");
            Loss { kind: words[0].to_owned(), offset: number(1), least: number(2), most: number(3) }
        };
        text.lines().filter(|line| !line.trim().is_empty()).map(loss).collect()
    }

    pub(crate) fn no_loss(&self) {
        assert!(!self.file("lost").exists(), "{:?}", self.losses());
    }

    /// Processes of this host's appender; the first is the one that supervises.
    pub(crate) fn appenders(&self) -> Vec<i32> {
        let is_first = |pid: &i32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.split(|byte| *byte == 0).nth(1) == Some(self.at("in/append").as_os_str().as_encoded_bytes())
        };
        let all = processes();
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

    pub(crate) fn appender(&self) -> Option<i32> {
        self.appenders().first().copied()
    }

    /// The process that reads the pipe: the last of them, where nothing else is at work.
    pub(crate) fn copier(&self) -> Option<i32> {
        self.appenders().into_iter().skip(1).last()
    }
}

/// A busybox that finds its tools in itself lacks none.
pub(crate) fn brings_its_tools(shell: &str) -> bool {
    shell == "busybox"
        && Command::new(which("busybox").expect("busybox"))
            .args(["sh", "-c", "command -v setsid"])
            .env("PATH", "")
            .status()
            .expect("a shell")
            .success()
}

/// Every process with its parent.
pub(crate) fn processes() -> Vec<(i32, i32)> {
    let entries = fs::read_dir("/proc").expect("/proc").filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    entries.filter_map(|pid| Some((pid, stat(pid)?.1))).collect()
}

/// State, parent, group and session of a process that is no zombie.
pub(crate) fn stat(pid: i32) -> Option<(char, i32, i32, i32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut words = text.rsplit_once(") ")?.1.split(' ');
    let state = words.next()?.chars().next()?;
    let mut number = || words.next()?.parse().ok();
    let all = (state, number()?, number()?, number()?);
    (state != 'Z').then_some(all)
}

pub(crate) fn kill(pid: i32, signal: Signal) {
    // It may have ended by itself.
    if kill_process(Pid::from_raw(pid).expect("a pid"), signal).is_err() {
        assert!(stat(pid).is_none(), "signalled");
    }
}

/// What `seq 1 LAST` writes.
pub(crate) fn seq(first: u64, last: u64) -> String {
    (first..=last).map(|n| format!("{n}\n")).collect()
}
