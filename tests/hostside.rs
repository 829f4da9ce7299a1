//! The scripts of a host, each in a real shell, where time and moments are the test's: what the sandbox's whole runs do not meet.
#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "the proof is real shells with real files, driven by helpers of a test"
)]

#[path = "hostside/aftermath.rs"]
mod aftermath;
#[path = "hostside/ends.rs"]
mod ends;
#[path = "hostside/lock.rs"]
mod lock;
#[path = "hostside/logout.rs"]
mod logout;

use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use orchestrate::plan::action::remove::{Clean, Cleaned};
use orchestrate::plan::action::{Action, Do};
use orchestrate::plan::site::Site;

/// The longest that anything may take. Reaching it is a failure; nothing waits for it in the good case.
const PATIENCE: Duration = Duration::from_secs(60);

/// A name's directory on a host, with a clock of its own.
struct Host {
    dir: tempfile::TempDir,
}

/// A process of a test; it ends with the test.
struct Kept(Child);

impl Drop for Kept {
    fn drop(&mut self) {
        if self.0.kill().and_then(|()| self.0.wait()).is_err() {
            assert!(std::thread::panicking(), "it could not be ended");
        }
    }
}

fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn asset(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("assets").join(name)).expect("an asset")
}

fn executable(path: &Path, text: &str) {
    std::fs::write(path, text).expect("written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("made executable");
}

impl Host {
    fn new() -> Host {
        let host = Host { dir: tempfile::tempdir().expect("a folder") };
        // As the directory of a name is: nobody else may enter.
        std::fs::set_permissions(host.dir.path(), std::fs::Permissions::from_mode(0o700)).expect("its mode");
        for dir in ["bin", "h.in", "h.out", "h.private"] {
            std::fs::create_dir_all(host.at(dir)).expect("made");
        }
        // Each look at the clock is noted; a second passes in no time.
        executable(&host.at("bin/date"), &format!("#!/bin/sh\necho >>'{0}/looks'\ncat '{0}/clock'\n", host.at("").display()));
        executable(&host.at("bin/sleep"), "#!/bin/sh\nexec /bin/sleep 0.02\n");
        host.clock(1000);
        host
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let aside = self.at(&format!("{name}.aside"));
        std::fs::write(&aside, text).expect("written");
        std::fs::rename(aside, self.at(name)).expect("renamed");
    }

    /// Seconds pass: on the wall clock and on the boot's own.
    fn clock(&self, second: u32) {
        self.wall(second);
        self.write("uptime", &format!("{second}.25 1.00\n"));
    }

    /// Somebody sets the wall clock.
    fn wall(&self, second: u32) {
        self.write("clock", &format!("{second}\n"));
    }

    /// A run as it is before the launch.
    fn run(&self, name: &str, settings: &str) {
        std::fs::create_dir_all(self.at(&format!("h.in/{name}"))).expect("made");
        for (file, text) in [
            ("lib", asset("lib.sh")),
            ("reap", asset("reap.sh")),
            ("worker", asset("worker.sh")),
            ("pipe", asset("pipe.sh")),
            ("append", asset("append.sh")),
        ] {
            self.write(&format!("h.in/{name}/{file}"), &text);
        }
        self.write(&format!("h.in/{name}/settings"), settings);
        self.write(&format!("h.out/{name}.node.log"), "here\n");
        self.write(&format!("h.private/{name}.json"), "{}\n");
        for side in ["in", "private"] {
            self.write(&format!("h.{side}/current"), &format!("{name}\n"));
        }
    }

    /// Its place in `run1`, for the program's own scripts.
    fn site(&self) -> Site {
        Site {
            name: ".".to_owned(),
            host: "h".to_owned(),
            run: "run1".to_owned(),
            base: self.dir.path().to_str().expect("text").to_owned(),
            sudo: false,
            engine: None,
            contained: false,
            token: None,
            old: false,
            log_max: 0,
            ranks: 0,
        }
    }

    /// The words that begin a script of a wrapper of `run1`.
    fn wrapper(&self) -> String {
        format!("R='{0}/h.in/run1' F='{0}/h.out/run1.'; . \"$R/lib\"; ", self.dir.path().display())
    }

    /// A shell whose first words are a script's, with our clock and sleep.
    fn shell(&self) -> Command {
        let mut command = Command::new("/bin/sh");
        let path = std::env::var("PATH").expect("a path");
        command.env("PATH", format!("{}:{path}", self.at("bin").display()));
        command.current_dir(self.dir.path()).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    fn keeper(&self) -> Kept {
        let keeper = asset("keeper.sh");
        assert!(keeper.contains("/proc/uptime"), "it has a clock that nobody sets");
        self.write("h.in/keeper", &keeper.replace("/proc/uptime", &self.at("uptime").display().to_string()));
        Kept(self.shell().arg(self.at("h.in/keeper")).spawn().expect("a shell"))
    }

    /// The keeper goes round often enough to have seen what was there when this was called, and lives.
    fn goes_on(&self, keeper: &mut Kept) {
        let looks = || std::fs::metadata(self.at("looks")).map_or(0, |m| m.len());
        let before = looks();
        until("it looks at the clock", || {
            assert_eq!(keeper.0.try_wait().expect("a child"), None, "it goes on");
            (looks() >= before + 5).then_some(())
        });
    }

    fn leaves(&self, keeper: &mut Kept) {
        until("the keeper leaves", || keeper.0.try_wait().expect("a child"));
    }
}

#[test]
fn a_keeper_waits_for_the_next_run_from_when_the_last_one_went() {
    let host = Host::new();
    host.run("run1", "start_timeout=300\n");
    let mut keeper = host.keeper();
    until("the keeper has seen the run", || host.at("h.out/run1.times").exists().then_some(()));
    // The launcher runs for long; its directory goes.
    let launcher = format!("{}record node; exec /bin/sleep 1000", host.wrapper());
    let _launcher = Kept(host.shell().args(["-c", &launcher]).spawn().expect("a shell"));
    until("the launcher is noted", || host.at("h.out/run1.node.pid").exists().then_some(()));
    host.goes_on(&mut keeper);
    host.write("h.in/keep", "");
    host.clock(9000);
    host.goes_on(&mut keeper);
    std::fs::remove_file(host.at("h.in/current")).expect("removed");
    std::fs::remove_dir_all(host.at("h.in/run1")).expect("removed");
    host.goes_on(&mut keeper);
    std::fs::remove_file(host.at("h.in/keep")).expect("removed");
    host.goes_on(&mut keeper);
    // Somebody is at work, and then nobody.
    host.clock(9590);
    host.write("h.in/beat", "17 boot\n");
    host.goes_on(&mut keeper);
    host.clock(9601);
    host.goes_on(&mut keeper);
    host.clock(9701);
    host.leaves(&mut keeper);
}

#[test]
fn a_keeper_stays_while_a_launch_takes_its_time() {
    let host = Host::new();
    host.run("run1", "start_timeout=300\n");
    let mut keeper = host.keeper();
    until("the keeper has seen the run", || host.at("h.out/run1.times").exists().then_some(()));
    host.clock(1300);
    // What says nothing is no sign of life, nor an end of the keeper.
    host.write("h.in/beat", "");
    host.goes_on(&mut keeper);
    host.write("h.in/beat", "5 boot\n");
    host.goes_on(&mut keeper);
    host.clock(1301);
    host.goes_on(&mut keeper);
    host.write("h.in/beat", "");
    host.leaves(&mut keeper);
}

/// A follower's note and a holder's beat count from when the keeper sees them change, on the boot's own clock.
#[test]
fn a_wall_clock_that_is_set_changes_nothing_for_a_keeper() {
    let host = Host::new();
    host.run("run1", "start_timeout=300\nfail_fast=1\nstop_grace=1\n");
    let launcher = format!("{}record node; exec /bin/sleep 1000", host.wrapper());
    let _launcher = Kept(host.shell().args(["-c", &launcher]).spawn().expect("a shell"));
    until("the launcher is noted", || host.at("h.out/run1.node.pid").exists().then_some(()));
    host.clock(100_000);
    host.write("h.in/run1/attached", "100000\n");
    let mut keeper = host.keeper();
    host.goes_on(&mut keeper);
    host.write("h.out/run1.rank-0.0.rc", "3 5\n");
    let said = || std::fs::read_to_string(host.at("h.out/run1.keeper.log")).unwrap_or_default();
    for wall in [103_600, 96_400, 100_000] {
        host.wall(wall);
        host.goes_on(&mut keeper);
        assert_eq!(said(), "", "a follower is attached, with the wall clock at {wall}");
    }
    // It is gone for half a minute, and the wall clock says that no time has passed.
    host.clock(100_031);
    host.wall(100_000);
    until("it stops the ranks", || said().contains("rank-0.0.rc: 3, and nobody is attached").then_some(()));
}

/// Without a follower the keeper stops the ranks when one failed. Files that a rank made and that are no exit status stop nothing.
#[test]
fn a_keeper_ignores_files_that_are_no_exit_status() {
    let host = Host::new();
    host.run("run1", "start_timeout=300\nfail_fast=1\nstop_grace=1\n");
    let launcher = format!("{}record node; exec /bin/sleep 1000", host.wrapper());
    let _launcher = Kept(host.shell().args(["-c", &launcher]).spawn().expect("a shell"));
    until("the launcher is noted", || host.at("h.out/run1.node.pid").exists().then_some(()));
    let mut keeper = host.keeper();
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
        host.write(&format!("h.out/run1.{name}"), text);
    }
    host.goes_on(&mut keeper);
    let said = || std::fs::read_to_string(host.at("h.out/run1.keeper.log")).unwrap_or_default();
    assert_eq!(said(), "");
    host.write("h.out/run1.rank-21.0.rc", "3 5\n");
    until("it stops the ranks", || said().contains("rank-21.0.rc: 3, and nobody is attached").then_some(()));
}

#[test]
fn each_life_of_a_rank_has_files_of_its_own() {
    let host = Host::new();
    host.run("run1", "");
    host.write("h.in/run1/worker.argv", "set -- sh -c 'echo life $LIFE; exit $LIFE'\n");
    for (restart, life) in [("0", 0), ("0", 1), ("1", 2), ("5", 3)] {
        let mut worker = host.shell();
        worker.arg(host.at("h.in/run1/worker")).envs([("RANK", "3"), ("TORCHELASTIC_RESTART_COUNT", restart), ("LIFE", &life.to_string())]);
        assert_eq!(worker.status().expect("a shell").code(), Some(life));
    }
    for (number, life) in [(0, 0), (1, 1), (2, 2), (5, 3)] {
        let read = |end: &str| std::fs::read_to_string(host.at(&format!("h.out/run1.rank-3.{number}.{end}"))).expect("its file");
        // Its appender writes on for a moment.
        until("its line is in its log", || (read("log") == format!("life {life}\n")).then_some(()));
        assert_eq!(read("rc").split_whitespace().next(), Some(life.to_string().as_str()));
    }
}

#[test]
fn a_wrapper_that_is_noted_has_no_status_of_an_earlier_life() {
    let host = Host::new();
    host.run("run1", "");
    host.write("h.out/run1.node.pid", "1 earlier 1 -\n");
    host.write("h.out/run1.node.rc", "killed 1\n");
    // Whoever looks when the old status goes finds the new wrapper.
    let path = host.at("h.out/run1").display().to_string();
    executable(&host.at("bin/rm"), &format!("#!/bin/sh\ncat '{path}.node.pid' >'{path}.seen'\nexec /bin/rm \"$@\"\n"));
    let script = format!("{}record node; alive node", host.wrapper());
    assert!(host.shell().args(["-c", &script]).status().expect("a shell").success());
    let read = |name: &str| std::fs::read_to_string(host.at(name)).expect("a note");
    assert_eq!(read("h.out/run1.seen"), read("h.out/run1.node.pid"));
    assert!(!host.at("h.out/run1.node.rc").exists());
}

#[test]
fn a_status_is_written_where_nothing_more_can_be() {
    let host = Host::new();
    host.run("run1", "");
    let sh = |script: &str| {
        let script = format!("{}{script}", host.wrapper());
        assert!(host.shell().args(["-c", &script]).status().expect("a shell").success(), "{script}");
    };
    let status = || {
        let text = std::fs::read_to_string(host.at("h.out/run1.node.rc")).expect("a status");
        assert_eq!((text.len(), text.lines().count()), (64, 1), "{text:?}");
        text.split_whitespace().next().map(str::to_owned)
    };
    sh("record node");
    let room = host.at("h.out/run1.node.rc.new").metadata().expect("room is kept").ino();
    // A shell that overwrites no file by `>`, as a full disk takes none that is emptied first.
    sh("set -C; ended node 7");
    assert_eq!((status().as_deref(), host.at("h.out/run1.node.rc").metadata().expect("a status").ino()), (Some("7"), room));
    // Who was killed in the midst of it leaves no word of his beside that of the keeper.
    sh("record node; printf '143 1795251815.123456789' 1<>\"${F}node.rc.new\"; ended node killed");
    assert_eq!(status().as_deref(), Some("killed"));
    // Without the room, as well as it can be.
    sh("rm \"${F}node.rc\"; ended node 0");
    assert_eq!(status().as_deref(), Some("0"));
}

/// The log stream of a run directory in which somebody looks on.
fn follow(host: &Host, said: &Path) -> Kept {
    let out = std::fs::File::create(said).expect("a file");
    let mut follower = follower(host);
    follower.stdout(out);
    Kept(follower.spawn().expect("a shell"))
}

fn follower(host: &Host) -> Command {
    following(host, "once='' guards=1")
}

/// One that sends what is there.
fn follower_once(host: &Host) -> Command {
    following(host, "once=1 guards=''")
}

fn following(host: &Host, how: &str) -> Command {
    let script = format!(
        "umask 077\n{how} F='{0}/h.out/run1.' record='{0}/h.private/run1.json' note='{0}/h.in/run1/attached' mark='{0}/h.private/following.run1.'$$\n{1}{2}",
        host.dir.path().display(),
        asset("read.sh"),
        asset("follow.sh")
    );
    let mut follower = host.shell();
    follower.args(["-c", &script]).stdin(Stdio::piped());
    follower
}

#[test]
fn a_follower_of_a_run_that_is_removed_says_so_and_ends() {
    let host = Host::new();
    host.run("run1", "");
    let said = host.at("said");
    let mut follower = follow(&host, &said);
    // The keeper, who may be another user, can read that somebody is there.
    let note = until("it notes that it is there", || host.at("h.in/run1/attached").metadata().ok());
    assert_eq!(note.permissions().mode() & 0o777, 0o644);
    let text = || std::fs::read_to_string(&said).expect("its words");
    until("it sends the log", || text().contains("here").then_some(()));
    follower.0.stdin.as_mut().expect("its input").write_all(b"5 1\n").expect("acknowledged");
    std::fs::remove_file(host.at("h.private/run1.json")).expect("removed");
    let status = until("it ends", || follower.0.try_wait().expect("a child"));
    assert_eq!((status.code(), text().as_str()), (Some(0), "F node 0 5\nhere\nN\n"));
}

/// As with a stale file handle of NFS: a link that leads to itself makes every look at what is beneath it fail, and not as what is missing does.
#[test]
fn what_cannot_be_looked_at_has_not_ended_and_a_fetch_of_it_is_not_complete() {
    let host = Host::new();
    host.run("run1", "");
    let said = host.at("said");
    let text = || std::fs::read_to_string(&said).expect("its words");
    let ends = |follower: &mut Kept| until("it ends", || follower.0.try_wait().expect("a child")).code();
    let hide = |dir: &str| {
        std::fs::rename(host.at(dir), host.at("aside")).expect("renamed");
        std::os::unix::fs::symlink(dir, host.at(dir)).expect("linked");
    };
    let show = |dir: &str| {
        std::fs::remove_file(host.at(dir)).expect("removed");
        std::fs::rename(host.at("aside"), host.at(dir)).expect("renamed");
    };
    let mut follower = follow(&host, &said);
    until("it sends the log", || text().contains("here").then_some(()));
    // All that it will ever send.
    follower.0.stdin.as_mut().expect("its input").write_all(b"12 100000\n").expect("acknowledged");
    hide("h.private");
    until("it says so", || text().contains("W unreadable run1.json\n").then_some(()));
    host.write("h.out/run1.node.log", "here\nand on\n");
    until("it goes on", || text().contains("F node 5 7\nand on\n").then_some(()));
    let fetch = |said: &Path| {
        let mut fetch = follower_once(&host);
        Kept(fetch.stdout(std::fs::File::create(said).expect("a file")).spawn().expect("a shell"))
    };
    let mut broken = fetch(&host.at("fetched"));
    broken.0.stdin.as_mut().expect("its input").write_all(b"12 100\n").expect("acknowledged");
    assert_eq!(ends(&mut broken), Some(0));
    let fetched = || std::fs::read_to_string(host.at("fetched")).expect("its words");
    assert!(fetched().ends_with("F node 0 12\nhere\nand on\n"), "{:?}", fetched());
    show("h.private");
    // The directory of the logs: a follower that begins then has not seen the run's end.
    hide("h.out");
    let mut broken = fetch(&host.at("fetched"));
    assert_eq!((ends(&mut broken), fetched().as_str()), (Some(1), ""));
    show("h.out");
    let mut whole = fetch(&host.at("fetched"));
    whole.0.stdin.as_mut().expect("its input").write_all(b"12 100\n").expect("acknowledged");
    assert_eq!((ends(&mut whole), fetched().as_str()), (Some(0), "F node 0 12\nhere\nand on\nE\n"));
    std::fs::remove_file(host.at("h.private/run1.json")).expect("removed");
    assert_eq!((ends(&mut follower), text().ends_with("N\n")), (Some(0), true), "{:?}", text());
}

/// A laptop that sleeps while a rank writes much.
#[cfg(target_os = "linux")]
#[test]
fn a_follower_whose_reader_is_gone_for_a_minute_ends_and_never_sends_zeros_in_a_log_s_place() {
    use std::io::Read as _;
    let host = Host::new();
    executable(&host.at("bin/timeout"), "#!/bin/sh\nshift\nexec /usr/bin/timeout 1 \"$@\"\n");
    host.run("run1", "");
    host.write("h.out/run1.node.log", &"every byte counts\n".repeat(100_000));
    let mut follower = Kept(follower(&host).stdout(Stdio::piped()).spawn().expect("a shell"));
    let status = until("it ends, since nobody reads", || follower.0.try_wait().expect("a child"));
    assert_eq!(status.code(), Some(1));
    let mut sent = Vec::new();
    follower.0.stdout.take().expect("its output").read_to_end(&mut sent).expect("read");
    let bytes = sent.strip_prefix(b"F node 0 1800000\n").expect("a frame");
    assert!(!bytes.is_empty() && bytes.len() < 1_800_000, "{}", bytes.len());
    assert!("every byte counts\n".repeat(100_000).as_bytes().starts_with(bytes), "what was sent is of the log");
}

#[test]
fn a_follower_that_lags_behind_is_heard_before_the_directory_goes() {
    use rustix::process::{Pid, Signal, kill_process};
    let host = Host::new();
    host.run("run1", "");
    let said = host.at("said");
    let mut follower = follow(&host, &said);
    let signal = |signal| kill_process(Pid::from_child(&follower.0), signal).expect("signalled");
    let text = || std::fs::read_to_string(&said).expect("its words");
    let entries = |name: &str| {
        let names = std::fs::read_dir(host.at(name)).expect("a folder").map(|e| e.expect("an entry").file_name().into_string());
        names.map(|name| name.expect("text")).collect::<Vec<_>>()
    };
    until("it sends the log", || text().contains("here").then_some(()));
    assert!(entries("h.private").contains(&format!("following.run1.{}", follower.0.id())));
    signal(Signal::STOP);
    host.write("h.out/run1.node.pid", "1 1 1 -\n");
    host.write("h.out/run1.node.rc", "7 5\n");
    host.write("h.out/run1.node.end", "");
    let site = host.site();
    let Do::Script(clean) = Action::Clean(Clean { site, what: Cleaned::Run("run1".to_owned()) }).command() else { return };
    let mut clean = Kept(Command::new("/bin/sh").args(["-c", &clean.script]).spawn().expect("a shell"));
    until("the keeper is asked to let go", || (!host.at("h.in/current").exists()).then_some(()));
    signal(Signal::CONT);
    follower.0.stdin.as_mut().expect("its input").write_all(b"5 1\n").expect("acknowledged");
    assert!(until("it is removed", || clean.0.try_wait().expect("a child")).success());
    assert!(["h.in", "h.out", "h.private"].iter().all(|dir| !entries(dir).iter().any(|name| name.contains("run1"))));
    until("its last words", || text().contains("\nX node 7 5\n").then_some(()));
}
