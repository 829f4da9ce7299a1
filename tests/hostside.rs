//! Host-side scripts, each in a real shell with a test-controlled clock: cases that the end-to-end tests in the sandbox do not reach.
#![expect(clippy::disallowed_methods, clippy::expect_used, reason = "the tests use real shells and files through helpers")]

#[path = "hostside/lock.rs"]
mod lock;
#[path = "hostside/log_frames.rs"]
mod log_frames;
#[path = "hostside/logind.rs"]
mod logind;
#[path = "hostside/master_wait.rs"]
mod master_wait;
#[path = "hostside/postmortem.rs"]
mod postmortem;
#[path = "hostside/run_end_detection.rs"]
mod run_end_detection;
#[path = "hostside/shared_logs.rs"]
mod shared_logs;
#[path = "hostside/slurm_containers.rs"]
mod slurm_containers;
#[path = "hostside/slurm_node.rs"]
mod slurm_node;
#[path = "hostside/sync_marker.rs"]
mod sync_marker;
#[path = "../src/plan/test_program.rs"]
mod test_program;
#[path = "hostside/transfer.rs"]
mod transfer;
#[path = "hostside/transfer_permissions.rs"]
mod transfer_permissions;
#[path = "hostside/worker_environment.rs"]
mod worker_environment;

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use orchestrate::model::remote_command::CommandOutput;
use orchestrate::plan::action::cleanup::{CleanupTarget, RemoveFiles};
use orchestrate::plan::action::{Action, Execution};
use orchestrate::plan::host_context::HostContext;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use test_program::write_program;

/// The limit for any single wait. Reaching it is a failure; a passing test never waits for it.
const TEST_TIMEOUT: Duration = Duration::from_secs(180);

/// The directory of a run name on a host, with a fake clock.
struct TestHost {
    dir: tempfile::TempDir,
}

/// A child process that is killed on `drop`.
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        if self.0.kill().and_then(|()| self.0.wait()).is_err() {
            assert!(std::thread::panicking(), "it could not be ended");
        }
    }
}

fn wait_until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + TEST_TIMEOUT;
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(Instant::now() < end, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn read_asset(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("assets").join(name)).expect("an asset")
}

/// Runs an action in a real shell.
#[expect(clippy::panic, reason = "a failed fixture fails the test")]
fn run_action(host: &TestHost, action: &Action) -> CommandOutput {
    let Execution::Script(command) = action.execution() else { panic!("a script") };
    let mut shell = host.shell_command();
    shell.env_remove("XDG_RUNTIME_DIR").args(["-c", &command.script]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let out = shell.output().expect("a shell");
    CommandOutput { exit_code: out.status.code().unwrap_or(-1), stdout: out.stdout, stderr: out.stderr, ..CommandOutput::default() }
}

impl TestHost {
    fn new() -> TestHost {
        let host = TestHost { dir: tempfile::tempdir().expect("a folder") };
        // The program gives a run name's directory this mode.
        std::fs::set_permissions(host.dir.path(), std::fs::Permissions::from_mode(0o700)).expect("its mode");
        for dir in ["bin", "h.in", "h.out", "h.private"] {
            std::fs::create_dir_all(host.path(dir)).expect("made");
        }
        // Each read of the clock is recorded, and a sleep of any length ends at once.
        write_program(&host.path("bin/date"), &format!("#!/bin/sh\necho >>'{0}/looks'\ncat '{0}/clock'\n", host.path("").display()));
        write_program(&host.path("bin/sleep"), "#!/bin/sh\nexec /bin/sleep 0.02\n");
        host.set_clocks(1000);
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write_file(&self, name: &str, text: &str) {
        let aside = self.path(&format!("{name}.aside"));
        std::fs::write(&aside, text).expect("written");
        std::fs::rename(aside, self.path(name)).expect("renamed");
    }

    /// Sets both clocks: wall clock and uptime.
    fn set_clocks(&self, second: u32) {
        self.set_wall_clock(second);
        self.write_file("uptime", &format!("{second}.25 1.00\n"));
    }

    /// Changes the wall clock only.
    fn set_wall_clock(&self, second: u32) {
        self.write_file("clock", &format!("{second}\n"));
    }

    /// Prepares a run as before its launch.
    fn prepare_run(&self, name: &str, settings: &str) {
        std::fs::create_dir_all(self.path(&format!("h.in/{name}"))).expect("made");
        for (file, text) in [
            ("lib", read_asset("lib.sh")),
            ("reap", read_asset("reap.sh")),
            ("worker", read_asset("worker.sh")),
            ("pipe", read_asset("pipe.sh")),
            ("append", read_asset("append.sh")),
        ] {
            self.write_file(&format!("h.in/{name}/{file}"), &text);
        }
        self.write_file(&format!("h.in/{name}/settings"), settings);
        self.write_file(&format!("h.out/{name}.node.log"), "here\n");
        self.write_file(&format!("h.private/{name}.json"), "{}\n");
        for side in ["in", "private"] {
            self.write_file(&format!("h.{side}/current"), &format!("{name}\n"));
        }
    }

    /// The context of `run1`, for the program's own scripts.
    fn host_context(&self) -> HostContext {
        HostContext { run_id: "run1".to_owned(), ..HostContext::new(".", "h", self.dir.path().to_str().expect("text").to_owned()) }
    }

    /// The first lines of `run1`'s wrapper scripts.
    fn wrapper_prologue(&self) -> String {
        format!("R='{0}/h.in/run1' F='{0}/h.out/run1.'; . \"$R/lib\"; ", self.dir.path().display())
    }

    /// A shell with the fake clock and sleep on PATH.
    fn shell_command(&self) -> Command {
        let mut command = Command::new("/bin/sh");
        let path = std::env::var("PATH").expect("a path");
        command.env("PATH", format!("{}:{path}", self.path("bin").display()));
        command.current_dir(self.dir.path()).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    fn start_keeper(&self) -> ChildGuard {
        let keeper = read_asset("keeper.sh");
        assert!(keeper.contains("/proc/uptime"), "the keeper reads a monotonic clock");
        self.write_file("h.in/keeper", &keeper.replace("/proc/uptime", &self.path("uptime").display().to_string()));
        ChildGuard(self.shell_command().arg(self.path("h.in/keeper")).spawn().expect("a shell"))
    }

    /// Waits until the keeper has completed enough rounds to see the current state, and asserts that it still runs.
    fn assert_keeper_stays(&self, keeper: &mut ChildGuard) {
        let views = || std::fs::metadata(self.path("looks")).map_or(0, |m| m.len());
        let before = views();
        wait_until("the keeper reads the clock", || {
            assert_eq!(keeper.0.try_wait().expect("a child"), None, "the keeper still runs");
            (views() >= before + 5).then_some(())
        });
    }

    fn wait_for_keeper_exit(&self, keeper: &mut ChildGuard) {
        wait_until("the keeper exits", || keeper.0.try_wait().expect("a child"));
    }
}

#[test]
fn keeper_waits_for_next_run_since_last_removal() {
    let host = TestHost::new();
    host.prepare_run("run1", "start_timeout=300\n");
    let mut keeper = host.start_keeper();
    wait_until("the keeper has seen the run", || host.path("h.out/run1.times").exists().then_some(()));
    // The launcher keeps running while its directory is removed.
    let launcher = format!("{}record node; exec /bin/sleep 1000", host.wrapper_prologue());
    let _launcher = ChildGuard(host.shell_command().args(["-c", &launcher]).spawn().expect("a shell"));
    wait_until("the launcher is recorded", || host.path("h.out/run1.node.pid").exists().then_some(()));
    host.assert_keeper_stays(&mut keeper);
    host.write_file("h.in/keep", "");
    host.set_clocks(9000);
    host.assert_keeper_stays(&mut keeper);
    std::fs::remove_file(host.path("h.in/current")).expect("removed");
    std::fs::remove_dir_all(host.path("h.in/run1")).expect("removed");
    host.assert_keeper_stays(&mut keeper);
    std::fs::remove_file(host.path("h.in/keep")).expect("removed");
    host.assert_keeper_stays(&mut keeper);
    // A sign of life appears, and then stops changing.
    host.set_clocks(9590);
    host.write_file("h.in/beat", "17 boot\n");
    host.assert_keeper_stays(&mut keeper);
    host.set_clocks(9601);
    host.assert_keeper_stays(&mut keeper);
    host.set_clocks(9701);
    host.wait_for_keeper_exit(&mut keeper);
}

#[test]
fn keeper_stays_during_a_slow_launch() {
    let host = TestHost::new();
    host.prepare_run("run1", "start_timeout=300\n");
    let mut keeper = host.start_keeper();
    wait_until("the keeper has seen the run", || host.path("h.out/run1.times").exists().then_some(()));
    host.set_clocks(1300);
    // An empty sign of life neither extends the wait nor ends the keeper.
    host.write_file("h.in/beat", "");
    host.assert_keeper_stays(&mut keeper);
    host.write_file("h.in/beat", "5 boot\n");
    host.assert_keeper_stays(&mut keeper);
    host.set_clocks(1301);
    host.assert_keeper_stays(&mut keeper);
    host.write_file("h.in/beat", "");
    host.wait_for_keeper_exit(&mut keeper);
}

/// Signs of life of followers and lock holders count from the time when the keeper sees a change, on the monotonic clock.
#[test]
fn keeper_ignores_wall_clock_changes() {
    let host = TestHost::new();
    host.prepare_run("run1", "start_timeout=300\nfail_fast=1\nstop_grace=1\n");
    let launcher = format!("{}record node; exec /bin/sleep 1000", host.wrapper_prologue());
    let _launcher = ChildGuard(host.shell_command().args(["-c", &launcher]).spawn().expect("a shell"));
    wait_until("the launcher is recorded", || host.path("h.out/run1.node.pid").exists().then_some(()));
    host.set_clocks(100_000);
    host.write_file("h.in/run1/attached", "100000\n");
    let mut keeper = host.start_keeper();
    host.assert_keeper_stays(&mut keeper);
    host.write_file("h.out/run1.rank-0.0.rc", "3 5\n");
    let output = || std::fs::read_to_string(host.path("h.out/run1.keeper.log")).unwrap_or_default();
    for wall in [103_600, 96_400, 100_000] {
        host.set_wall_clock(wall);
        host.assert_keeper_stays(&mut keeper);
        assert_eq!(output(), "", "a follower is attached, with the wall clock at {wall}");
    }
    // The follower is silent for 31 s, while the wall clock stands still.
    host.set_clocks(100_031);
    host.set_wall_clock(100_000);
    wait_until("the keeper stops the ranks", || output().contains("rank-0.0.rc: 3, and nobody is attached").then_some(()));
}

/// Without a follower the keeper stops the ranks after one failed. Invalid status files, which a rank can write, stop nothing.
#[test]
fn keeper_ignores_invalid_exit_status_files() {
    let host = TestHost::new();
    host.prepare_run("run1", "start_timeout=300\nfail_fast=1\nstop_grace=1\n");
    let launcher = format!("{}record node; exec /bin/sleep 1000", host.wrapper_prologue());
    let _launcher = ChildGuard(host.shell_command().args(["-c", &launcher]).spawn().expect("a shell"));
    wait_until("the launcher is recorded", || host.path("h.out/run1.node.pid").exists().then_some(()));
    let mut keeper = host.start_keeper();
    for (name, text) in [
        ("rank-x.0.rc", "1 5\n"),
        ("rank-$(touch X).0.rc", "1 5\n"),
        ("rank-1.rc", "1 5\n"),
        ("rank-..0.rc", "1 5\n"),
        ("rank-17.0.rc", "a[$(touch X)] 1\n"),
        ("rank-18.0.rc", "text\n"),
        ("rank-19.0.rc", ""),
        ("rank-20.0.rc", "1000 5\n"),
        ("rank-0.0.rc", "0 5\n"),
    ] {
        host.write_file(&format!("h.out/run1.{name}"), text);
    }
    host.assert_keeper_stays(&mut keeper);
    let output = || std::fs::read_to_string(host.path("h.out/run1.keeper.log")).unwrap_or_default();
    assert_eq!(output(), "");
    host.write_file("h.out/run1.rank-21.0.rc", "3 5\n");
    wait_until("the keeper stops the ranks", || output().contains("rank-21.0.rc: 3, and nobody is attached").then_some(()));
}

#[test]
fn each_rank_restart_has_its_own_files() {
    let host = TestHost::new();
    host.prepare_run("run1", "");
    host.write_file("h.in/run1/worker.argv", "set -- sh -c 'echo life $LIFE; exit $LIFE'\n");
    for (restart, life) in [("0", 0), ("0", 1), ("1", 2), ("5", 3)] {
        let mut worker = host.shell_command();
        worker.arg(host.path("h.in/run1/worker")).envs([
            ("RANK", "3"),
            ("TORCHELASTIC_RESTART_COUNT", restart),
            ("LIFE", &life.to_string()),
        ]);
        assert_eq!(worker.status().expect("a shell").code(), Some(life));
    }
    for (number, life) in [(0, 0), (1, 1), (2, 2), (5, 3)] {
        let read = |end: &str| std::fs::read_to_string(host.path(&format!("h.out/run1.rank-3.{number}.{end}"))).expect("its file");
        // The appender may still be writing.
        wait_until("the line is in the log", || (read("log") == format!("life {life}\n")).then_some(()));
        assert_eq!(read("rc").split_whitespace().next(), Some(life.to_string().as_str()));
    }
}

#[test]
fn recorded_wrapper_has_no_earlier_status() {
    let host = TestHost::new();
    host.prepare_run("run1", "");
    host.write_file("h.out/run1.node.pid", "1 earlier 1 -\n");
    host.write_file("h.out/run1.node.rc", "killed 1\n");
    // A reader finds the new wrapper as soon as the old status is gone.
    let path = host.path("h.out/run1").display().to_string();
    write_program(&host.path("bin/rm"), &format!("#!/bin/sh\ncat '{path}.node.pid' >'{path}.seen'\nexec /bin/rm \"$@\"\n"));
    let script = format!("{}record node; alive node", host.wrapper_prologue());
    assert!(host.shell_command().args(["-c", &script]).status().expect("a shell").success());
    let read = |name: &str| std::fs::read_to_string(host.path(name)).expect("a note");
    assert_eq!(read("h.out/run1.seen"), read("h.out/run1.node.pid"));
    assert!(!host.path("h.out/run1.node.rc").exists());
}

#[test]
fn exit_status_is_written_on_a_full_disk() {
    let host = TestHost::new();
    host.prepare_run("run1", "");
    let sh = |script: &str| {
        let script = format!("{}{script}", host.wrapper_prologue());
        assert!(host.shell_command().args(["-c", &script]).status().expect("a shell").success(), "{script}");
    };
    let status = || {
        let text = std::fs::read_to_string(host.path("h.out/run1.node.rc")).expect("a status");
        assert_eq!((text.len(), text.lines().count()), (64, 1), "{text:?}");
        text.split_whitespace().next().map(str::to_owned)
    };
    sh("record node");
    let room = host.path("h.out/run1.node.rc.new").metadata().expect("the reserved file").ino();
    // With `set -C` the shell cannot overwrite a file with `>`, just as a full disk cannot hold a truncated file's new content.
    sh("set -C; ended node 7");
    assert_eq!((status().as_deref(), host.path("h.out/run1.node.rc").metadata().expect("a status").ino()), (Some("7"), room));
    // A wrapper that was killed while writing leaves no partial status beside the keeper's.
    sh("record node; printf '143 1795251815.123456789' 1<>\"${F}node.rc.new\"; ended node killed");
    assert_eq!(status().as_deref(), Some("killed"));
    // Without the reserved file it writes a new one.
    sh("rm \"${F}node.rc\"; ended node 0");
    assert_eq!(status().as_deref(), Some("0"));
}

/// The log stream of a run directory with an attached laptop.
fn start_follower(host: &TestHost, output: &Path) -> ChildGuard {
    let out = std::fs::File::create(output).expect("a file");
    let mut follower = follower_command(host);
    follower.stdout(out);
    ChildGuard(follower.spawn().expect("a shell"))
}

fn follower_command(host: &TestHost) -> Command {
    build_follower_command(host, "once='' guards=1")
}

/// A follower that sends the existing logs and exits.
fn one_shot_follower_command(host: &TestHost) -> Command {
    build_follower_command(host, "once=1 guards=''")
}

fn build_follower_command(host: &TestHost, how: &str) -> Command {
    let script = format!(
        "umask 077\n{how} F='{0}/h.out/run1.' record='{0}/h.private/run1.json' note='{0}/h.in/run1/attached' mark='{0}/h.private/following.run1.'$$\n{1}{2}",
        host.dir.path().display(),
        read_asset("read.sh"),
        read_asset("follow.sh")
    );
    let mut follower = host.shell_command();
    follower.args(["-c", &script]).stdin(Stdio::piped());
    follower
}

#[test]
fn follower_of_removed_run_reports_and_exits() {
    let host = TestHost::new();
    host.prepare_run("run1", "");
    let output = host.path("said");
    let mut follower = start_follower(&host, &output);
    // The keeper, possibly another user, can read the follower's sign of life.
    let note = wait_until("the follower writes its sign of life", || host.path("h.in/run1/attached").metadata().ok());
    assert_eq!(note.permissions().mode() & 0o777, 0o644);
    let text = || std::fs::read_to_string(&output).expect("its output");
    // The first pass ends with a heartbeat, so that the laptop knows that it has the whole log.
    wait_until("the follower sends the log", || text().contains("here\nH ").then_some(()));
    follower.0.stdin.as_mut().expect("its input").write_all(b"5 2\n").expect("acknowledged");
    std::fs::remove_file(host.path("h.private/run1.json")).expect("removed");
    let status = wait_until("the follower exits", || follower.0.try_wait().expect("a child"));
    let without_heartbeat: Vec<String> = text().lines().filter(|line| !line.starts_with("H ")).map(str::to_owned).collect();
    assert_eq!((status.code(), without_heartbeat.join("\n").as_str()), (Some(0), "F node 0 5 0\nhere\nN"));
}

/// Simulates a stale NFS file handle: with a link to itself, every access below it fails with an error other than "no such file".
#[test]
fn unreadable_run_has_not_ended_and_fetch_is_incomplete() {
    let host = TestHost::new();
    host.prepare_run("run1", "");
    let output = host.path("said");
    let text = || std::fs::read_to_string(&output).expect("its output");
    let ends = |follower: &mut ChildGuard| wait_until("the follower exits", || follower.0.try_wait().expect("a child")).code();
    let swap = |dir: &str| renameat_with(CWD, host.path(dir), CWD, host.path("aside"), RenameFlags::EXCHANGE).expect("exchanged");
    let hide = |dir: &str| {
        std::os::unix::fs::symlink(dir, host.path("aside")).expect("linked");
        swap(dir);
    };
    let show = |dir: &str| {
        swap(dir);
        std::fs::remove_file(host.path("aside")).expect("removed");
    };
    let mut follower = start_follower(&host, &output);
    wait_until("the follower sends the log", || text().contains("here").then_some(()));
    // Acknowledges more bytes than the follower will ever send.
    follower.0.stdin.as_mut().expect("its input").write_all(b"12 100000\n").expect("acknowledged");
    hide("h.private");
    wait_until("the follower reports the unreadable record", || text().contains("W unreadable run1.json\n").then_some(()));
    host.write_file("h.out/run1.node.log", "here\nand on\n");
    wait_until("the follower continues with the log", || text().contains("F node 5 7 0\nand on\n").then_some(()));
    let fetch = |output: &Path| {
        let mut fetch = one_shot_follower_command(&host);
        ChildGuard(fetch.stdout(std::fs::File::create(output).expect("a file")).spawn().expect("a shell"))
    };
    let mut broken = fetch(&host.path("fetched"));
    broken.0.stdin.as_mut().expect("its input").write_all(b"12 100\n").expect("acknowledged");
    assert_eq!(ends(&mut broken), Some(0));
    let fetched = || std::fs::read_to_string(host.path("fetched")).expect("its output");
    assert!(fetched().ends_with("F node 0 12 0\nhere\nand on\n"), "{:?}", fetched());
    show("h.private");
    // The log directory: a follower that starts now has not seen the run's end.
    hide("h.out");
    let mut broken = fetch(&host.path("fetched"));
    assert_eq!((ends(&mut broken), fetched().as_str()), (Some(1), ""));
    show("h.out");
    let mut whole = fetch(&host.path("fetched"));
    whole.0.stdin.as_mut().expect("its input").write_all(b"12 100\n").expect("acknowledged");
    assert_eq!((ends(&mut whole), fetched().as_str()), (Some(0), "F node 0 12 0\nhere\nand on\nE\n"));
    std::fs::remove_file(host.path("h.private/run1.json")).expect("removed");
    assert_eq!((ends(&mut follower), text().ends_with("N\n")), (Some(0), true), "{:?}", text());
}

/// The laptop sleeps while a rank writes a lot.
#[cfg(target_os = "linux")]
#[test]
fn follower_without_reader_exits_without_sending_zeros() {
    use std::io::Read as _;
    let host = TestHost::new();
    write_program(&host.path("bin/timeout"), "#!/bin/sh\nshift\nexec /usr/bin/timeout 5 \"$@\"\n");
    host.prepare_run("run1", "");
    host.write_file("h.out/run1.node.log", &"every byte counts\n".repeat(100_000));
    let mut follower = ChildGuard(follower_command(&host).stdout(Stdio::piped()).spawn().expect("a shell"));
    let status = wait_until("the follower exits without a reader", || follower.0.try_wait().expect("a child"));
    assert_eq!(status.code(), Some(1));
    let mut sent = Vec::new();
    follower.0.stdout.take().expect("its output").read_to_end(&mut sent).expect("read");
    let bytes = sent.strip_prefix(b"F node 0 1800000 0\n").expect("a frame");
    assert!(!bytes.is_empty() && bytes.len() < 1_800_000, "{}", bytes.len());
    assert!("every byte counts\n".repeat(100_000).as_bytes().starts_with(bytes), "the sent bytes are a prefix of the log");
}

#[test]
fn lagging_follower_finishes_before_directory_removal() {
    use rustix::process::{Pid, Signal, kill_process};
    let host = TestHost::new();
    host.prepare_run("run1", "");
    let output = host.path("said");
    let mut follower = start_follower(&host, &output);
    let signal = |signal| kill_process(Pid::from_child(&follower.0), signal).expect("signalled");
    let text = || std::fs::read_to_string(&output).expect("its output");
    let entries = |name: &str| {
        let names = std::fs::read_dir(host.path(name)).expect("a folder").map(|e| e.expect("an entry").file_name().into_string());
        names.map(|name| name.expect("text")).collect::<Vec<_>>()
    };
    wait_until("the follower sends the log", || text().contains("here").then_some(()));
    assert!(entries("h.private").contains(&format!("following.run1.{}", follower.0.id())));
    signal(Signal::STOP);
    host.write_file("h.out/run1.node.pid", "1 1 1 -\n");
    host.write_file("h.out/run1.node.rc", "7 5\n");
    host.write_file("h.out/run1.node.end", "");
    let site = host.host_context();
    let Execution::Script(clean) = Action::RemoveFiles(RemoveFiles { context: site, target: CleanupTarget::Run }).execution() else {
        panic!("no script")
    };
    let mut clean = ChildGuard(Command::new("/bin/sh").args(["-c", &clean.script]).spawn().expect("a shell"));
    wait_until("the keeper is stopped", || (!host.path("h.in/current").exists()).then_some(()));
    signal(Signal::CONT);
    follower.0.stdin.as_mut().expect("its input").write_all(b"5 2\n").expect("acknowledged");
    assert!(wait_until("the run is removed", || clean.0.try_wait().expect("a child")).success());
    assert!(["h.in", "h.out", "h.private"].iter().all(|dir| !entries(dir).iter().any(|name| name.contains("run1"))));
    wait_until("the follower sends the exit status", || text().contains("\nX node 7 5\n").then_some(()));
}
