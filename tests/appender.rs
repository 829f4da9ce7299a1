//! The log appender (`assets/append.sh` and `assets/pipe.sh`) in each shell that a host or an image may have as `sh`.
#![expect(clippy::disallowed_methods, clippy::expect_used, reason = "the tests use real shells and files through helpers")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, symlink};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

#[path = "appender/test_host.rs"]
mod test_host;

use test_host::{LogLoss, TestHost, WrapperProcess, read_process_stat, send_signal, seq_output};

/// The limit for any single wait. Reaching it is a failure; a passing test never waits for it.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The tools that the wrappers, the appender and the ranks of these tests call.
const REQUIRED_TOOLS: &str = "cat dd env grep head ls mkfifo readlink rm seq setsid sha256sum sleep tee touch true wc";

/// A wrapper like `node.sh` and `worker.sh`: it exits with its rank's status.
const WRAPPER_SCRIPT: &str = r#"
. "$R/pipe"
log_through rank-0.0 && echo 0 >"$R/../through" || echo 1 >"$R/../through"
trap : TERM INT HUP
"$@"
exit "$?"
"#;

macro_rules! tests_of_shells {
    ($($shell:ident: $($name:ident)*;)*) => { $(
        mod $shell { $( #[test] #[ignore = "needs root, bash and busybox: tests/run says how"] fn $name() { super::super::$name(stringify!($shell)); } )* }
    )* };
}
macro_rules! in_each_shell {
    ($($name:ident)*) => { mod each { tests_of_shells! { dash: $($name)*; bash: $($name)*; busybox: $($name)*; } } };
}
/// For tests that take a tool away: busybox has its tools built in.
macro_rules! in_shells_without_tools {
    ($($name:ident)*) => { mod without_tools { tests_of_shells! { dash: $($name)*; bash: $($name)*; } } };
}

in_each_shell! {
    reopening_stdout_and_stderr_keeps_the_log
    output_redirected_to_a_file_skips_the_log
    binary_bytes_and_unfinished_line_are_logged
    two_hundred_mib_arrive_unchanged
    second_start_appends_to_the_log
    killed_copier_reports_its_maximum_loss
    signals_to_group_and_appender_lose_nothing
    killed_group_loses_nothing
    appender_lives_until_grandchild_exits
    log_limit_is_exact_and_excess_counted
    full_disk_losses_are_counted_and_retried
    planted_links_and_fifos_are_not_followed
    planted_directories_have_a_defined_effect
    appender_inherits_no_run_state
    rank_starts_as_without_the_appender
}

in_shells_without_tools! {
    missing_tools_fall_back_to_direct_log
    without_setsid_appender_stays_in_group
    copying_continues_without_a_new_copier
}

fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").expect("a path");
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

fn wait_until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + TEST_TIMEOUT;
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(Instant::now() < end, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn reopening_stdout_and_stderr_keeps_the_log(shell: &'static str) {
    let host = TestHost::new(shell);
    let rank = "seq 1 1000; echo x >/dev/stderr; echo y | tee /dev/stdout; echo z >/proc/self/fd/1; echo end >&2; exit 7";
    assert_eq!(host.run_rank(rank), Some(7));
    assert_eq!(host.read_log_text(), format!("{}x\ny\ny\nz\nend\n", seq_output(1, 1000)));
    host.assert_no_loss();
    assert_eq!(fs::read_to_string(host.path("through")).expect("its status"), "0\n");
    let left: BTreeSet<_> = fs::read_dir(host.path("out")).expect("a folder").map(|e| e.expect("an entry").file_name()).collect();
    assert_eq!(left, ["run1.rank-0.0.end", "run1.rank-0.0.log"].map(Into::into).into());
}

fn output_redirected_to_a_file_skips_the_log(shell: &'static str) {
    let host = TestHost::new(shell);
    assert_eq!(host.run_rank("echo before; exec >file 2>&1; echo after; echo x >/dev/stderr; echo more"), Some(0));
    assert_eq!(host.read_log_text(), "before\n");
    host.assert_no_loss();
}

fn binary_bytes_and_unfinished_line_are_logged(shell: &'static str) {
    let host = TestHost::new(shell);
    let bytes: Vec<u8> = (0..=255).cycle().take(70_001).chain(*b"in the middle").collect();
    fs::write(host.path("bytes"), &bytes).expect("written");
    assert_eq!(host.run_rank("cat bytes"), Some(0));
    assert!(host.read_log() == bytes);
    host.assert_no_loss();
}

fn two_hundred_mib_arrive_unchanged(shell: &'static str) {
    let host = TestHost::with_log_max(shell, &(1_u64 << 30).to_string());
    assert_eq!(host.run_rank("head -c 209715200 /dev/urandom | tee copy"), Some(0));
    host.assert_no_loss();
    assert_eq!(host.rank_file("log").metadata().expect("the log").len(), 200 << 20);
    let sums = Command::new("sha256sum").arg(host.path("copy")).arg(host.rank_file("log")).output().expect("sums").stdout;
    let sums: BTreeSet<_> = String::from_utf8(sums).expect("text").lines().map(|line| line[..64].to_owned()).collect();
    assert_eq!(sums.len(), 1, "{sums:?}");
}

fn second_start_appends_to_the_log(shell: &'static str) {
    let host = TestHost::new(shell);
    assert_eq!((host.run_rank("echo first"), host.run_rank("echo second")), (Some(0), Some(0)));
    assert_eq!(host.read_log_text(), "first\nsecond\n");
}

fn killed_copier_reports_its_maximum_loss(shell: &'static str) {
    for max in ["", "4000000000"] {
        let host = TestHost::with_log_max(shell, max);
        let rank = "n=1; until [ -e stop ]; do seq $n $((n + 4999)); n=$((n + 5000)); sleep 0.002; done; echo $n >count";
        let mut wrapper = host.start_rank(rank);
        let mut last = None;
        for _ in 0..10 {
            let copier = wait_until("a new copier starts", || host.copier_pid().filter(|pid| Some(*pid) != last));
            send_signal(copier, Signal::KILL);
            last = Some(copier);
        }
        wait_until("a copier starts again", || host.copier_pid().filter(|pid| Some(*pid) != last));
        fs::write(host.path("stop"), "").expect("written");
        assert_eq!(wrapper.wait().code(), Some(0), "the writer is not affected");
        host.wait_for_appender_exit();
        let count: u64 = fs::read_to_string(host.path("count")).expect("its count").trim().parse().expect("a number");
        assert_log_matches_losses(&host, seq_output(1, count - 1).as_bytes(), "killed", 65536);
    }
}

/// The log equals the written bytes except at its losses, which are no larger than reported.
fn assert_log_matches_losses(host: &TestHost, written: &[u8], kind: &str, each: u64) {
    let (log, losses) = (host.read_log(), host.read_losses());
    let number = |n: u64| usize::try_from(n).expect("a size");
    let (mut at, mut from) = (0, 0);
    for (i, loss) in losses.iter().enumerate() {
        assert!(loss.kind == kind && loss.min_bytes <= loss.max_bytes && (each == 0 || loss.max_bytes <= each * 10), "{losses:?}");
        let piece = &log[from..number(loss.offset)];
        assert!(written[at..].starts_with(piece), "piece {i} is in order: {losses:?}");
        (at, from) = (at + piece.len(), number(loss.offset));
        // The next piece continues somewhere behind the gap. Lines are unique, so its first bytes are too.
        let next = losses.get(i + 1).map_or(log.len(), |next| number(next.offset));
        let head = &log[from..next.min(from + 100)];
        let room = number(loss.max_bytes).min(written.len() - at);
        let gap =
            if head.is_empty() { Some(room) } else { (number(loss.min_bytes)..=room).find(|gap| written[at + gap..].starts_with(head)) };
        assert!(
            gap.is_some(),
            "{:?} follows piece {i}, which ends at byte {at}, within the bounds: {losses:?}",
            String::from_utf8_lossy(head)
        );
        at += gap.unwrap_or(0);
    }
    assert!(
        losses.last().is_some_and(|loss| number(loss.offset) == log.len()) || written[at..] == log[from..],
        "the end is in order: {losses:?}"
    );
    let missing = (written.len() - log.len()) as u64;
    let sum = |part: fn(&LogLoss) -> u64| losses.iter().map(part).sum::<u64>();
    assert!(sum(|l| l.min_bytes) <= missing && missing <= sum(|l| l.max_bytes), "{missing}: {losses:?}");
}

fn signals_to_group_and_appender_lose_nothing(shell: &'static str) {
    let host = TestHost::new(shell);
    let rank = "trap '' TERM INT HUP; for i in 1 2 3 4; do seq 1 5000; touch at$i; until [ -e go$i ]; do sleep 0.01; done; done; exit 3";
    let mut wrapper = host.start_rank(rank);
    for (i, signal) in [(1, Signal::TERM), (2, Signal::INT), (3, Signal::HUP), (4, Signal::USR1)] {
        wait_until("the rank writes", || host.path(&format!("at{i}")).exists().then_some(()));
        if signal != Signal::USR1 {
            wrapper.signal_group(signal);
        }
        for pid in host.appender_pids() {
            send_signal(pid, signal);
        }
        fs::write(host.path(&format!("go{i}")), "").expect("written");
    }
    assert_eq!(wrapper.wait().code(), Some(3));
    host.wait_for_appender_exit();
    assert!(host.read_log_text() == seq_output(1, 5000).repeat(4));
    host.assert_no_loss();
}

fn killed_group_loses_nothing(shell: &'static str) {
    let host = TestHost::new(shell);
    let mut wrapper = host.start_rank("seq 1 100000; touch ready; sleep 1000");
    wait_until("the rank has written", || host.path("ready").exists().then_some(()));
    wrapper.signal_group(Signal::KILL);
    assert_eq!(wrapper.wait().signal(), Some(9));
    host.wait_for_appender_exit();
    assert!(host.read_log_text() == seq_output(1, 100_000));
    host.assert_no_loss();
}

fn appender_lives_until_grandchild_exits(shell: &'static str) {
    let host = TestHost::new(shell);
    let mut wrapper = host.start_rank("sh -c 'until [ -e go ]; do sleep 0.01; done; echo late' & echo early");
    assert_eq!(wrapper.wait().code(), Some(0));
    wait_until("the written line is in the log", || (host.read_log_text() == "early\n").then_some(()));
    assert!(host.appender_pid().is_some() && !host.rank_file("end").exists());
    fs::write(host.path("go"), "").expect("written");
    host.wait_for_appender_exit();
    assert_eq!(host.read_log_text(), "early\nlate\n");
    host.assert_no_loss();
}

fn log_limit_is_exact_and_excess_counted(shell: &'static str) {
    let written = seq_output(1, 300_000);
    for max in [0, 1, 4097, 100_001, 1_500_000, written.len(), written.len() + 1] {
        let host = TestHost::with_log_max(shell, &max.to_string());
        assert_eq!(host.run_rank("seq 1 300000; exit 5"), Some(5));
        let (kept, lost) = (max.min(written.len()), written.len().saturating_sub(max) as u64);
        assert!(host.read_log() == written.as_bytes()[..kept], "{max}");
        let loss = LogLoss { kind: "max".to_owned(), offset: kept as u64, min_bytes: lost, max_bytes: lost };
        assert_eq!(host.read_losses(), if lost == 0 { vec![] } else { vec![loss] });
    }
    // Small writes: the log reaches its limit while the appender keeps up.
    let host = TestHost::with_log_max(shell, "9000");
    assert_eq!(host.run_rank("i=1; while [ $i -le 3000 ]; do echo $i; i=$((i + 1)); done"), Some(0));
    let written = seq_output(1, 3000);
    assert!(host.read_log() == written.as_bytes()[..9000]);
    let lost = written.len() as u64 - 9000;
    assert_eq!(host.read_losses(), [LogLoss { kind: "max".to_owned(), offset: 9000, min_bytes: lost, max_bytes: lost }]);
}

fn full_disk_losses_are_counted_and_retried(shell: &'static str) {
    let mut host = TestHost::new(shell);
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(host.path("out")).output();
    host.is_mounted = mount.is_ok_and(|output| output.status.success());
    assert!(host.is_mounted, "a tmpfs cannot be mounted, which takes root");
    fs::write(host.path("out/filler"), vec![1; 500_000]).expect("the disk is filled");
    let rank = "seq 1 500000; touch ready; until [ -e go ]; do sleep 0.01; done; n=500001
        until [ -e stop ]; do echo $n; n=$((n + 1)); sleep 0.005; done; echo $n >count; exit 4";
    let mut wrapper = host.start_rank(rank);
    // The rank is not blocked.
    wait_until("the rank has written", || host.path("ready").exists().then_some(()));
    wait_until("the loss is reported while the disk is full", || host.read_losses().iter().any(|loss| loss.kind == "full").then_some(()));
    fs::remove_file(host.path("out/filler")).expect("the disk has space again");
    let before = host.read_log().len();
    fs::write(host.path("go"), "").expect("written");
    wait_until("the log grows again", || (host.read_log().len() > before).then_some(()));
    fs::write(host.path("stop"), "").expect("written");
    assert_eq!(wrapper.wait().code(), Some(4));
    host.wait_for_appender_exit();
    let count: u64 = fs::read_to_string(host.path("count")).expect("its count").trim().parse().expect("a number");
    let written = seq_output(1, count - 1);
    // busybox tee continues after a failed write: part of a block may be behind a gap.
    if shell == "busybox" {
        let (log, losses) = (host.read_log_text(), host.read_losses());
        let first = usize::try_from(losses[0].offset).expect("a size") - 65536;
        assert!(written[..first] == log[..first], "{losses:?}");
        let (least, missing) = (losses.iter().map(|loss| loss.min_bytes).sum::<u64>(), (written.len() - log.len()) as u64);
        assert!(least <= missing && missing <= least + 65536, "{missing}: {losses:?}");
    } else {
        assert_log_matches_losses(&host, written.as_bytes(), "full", 0);
    }
    let spread: u64 = host.read_losses().iter().map(|loss| loss.max_bytes - loss.min_bytes).sum();
    assert!(spread <= 65536, "only the first block is not counted: {:?}", host.read_losses());
    // The disk stays full until the end.
    fs::write(host.path("out/filler"), vec![1; 1 << 20]).expect_err("no room");
    let start = host.read_log().len();
    let rank = "seq 1 500000";
    assert_eq!(host.run_rank(rank), Some(0));
    assert!(host.read_losses().last().is_some_and(|loss| loss.kind == "full" && loss.offset >= start as u64));
}

const APPENDER_FILE_SUFFIXES: [&str; 6] = ["log", "pipe", "end", "lost", "end.new", "note"];

fn planted_links_and_fifos_are_not_followed(shell: &'static str) {
    for target in ["file", "none", "fifo", "dir", "hard"] {
        let host = TestHost::new(shell);
        let foreign = host.path("host/file");
        fs::write(&foreign, "of the host\n").expect("written");
        fs::create_dir(host.path("host/dir")).expect("made");
        for name in APPENDER_FILE_SUFFIXES {
            match target {
                "fifo" => assert!(Command::new("mkfifo").arg(host.rank_file(name)).status().expect("mkfifo").success()),
                "hard" => fs::hard_link(&foreign, host.rank_file(name)).expect("linked"),
                target => symlink(host.path("host").join(target), host.rank_file(name)).expect("linked"),
            }
        }
        assert_eq!(host.run_rank("echo line; echo x >/dev/stderr; exit 9"), Some(9), "{target}");
        assert_eq!(host.read_log_text(), "line\nx\n", "{target}");
        assert_eq!(fs::read_to_string(&foreign).expect("the file"), "of the host\n");
        let meta = foreign.metadata().expect("the file");
        assert_eq!((meta.nlink(), meta.mode() & 0o777), (1, 0o644), "{target}");
        let host_files: BTreeSet<_> =
            fs::read_dir(host.path("host")).expect("a folder").map(|e| e.expect("an entry").file_name()).collect();
        assert_eq!(host_files, ["dir", "file"].map(Into::into).into(), "{target}");
        assert_eq!(fs::read_dir(host.path("host/dir")).expect("a folder").count(), 0, "{target}");
        let kind = fs::symlink_metadata(host.rank_file("log")).expect("the log").file_type();
        assert!(kind.is_file() && !kind.is_fifo());
        assert_eq!(host.read_note(), None);
        host.assert_no_loss();
    }
}

fn planted_directories_have_a_defined_effect(shell: &'static str) {
    for name in APPENDER_FILE_SUFFIXES {
        let host = TestHost::new(shell);
        fs::create_dir_all(host.rank_file(name).join("inner")).expect("made");
        assert_eq!(host.start_rank("echo line; exit 9").wait().code(), Some(9), "{name}");
        let line = "line\n";
        let (log, note, end) = match name {
            "log" => (None, Some("none: the log cannot be made\n"), true),
            "pipe" => (Some(line), Some("direct: mkfifo failed\n"), true),
            "end" => (Some(line), None, false),
            _ => (Some(line), None, true),
        };
        wait_until("the log has its expected content", || (fs::read_to_string(host.rank_file("log")).ok().as_deref() == log).then_some(()));
        wait_until("the appender ends", || host.appender_pid().is_none().then_some(()));
        if name != "note" {
            assert_eq!(host.read_note().as_deref(), note, "{name}");
        }
        assert_eq!(host.rank_file("end").is_file(), end, "{name}");
        assert!(host.rank_file(name).join("inner").is_dir());
    }
}

fn appender_inherits_no_run_state(shell: &'static str) {
    for max in ["", "1000000"] {
        let host = TestHost::with_log_max(shell, max);
        let mut command = host.shell_command();
        // dash cannot close descriptors with two digits.
        let leak = if shell == "dash" { "exec 7>leak" } else { "exec 7>leak 12>leak" };
        command.args(["-c", &format!("{leak}; exec sh \"$@\""), "sh"]).arg(host.path("in/wrapper"));
        command.args(["sh", "-c", "echo here; touch ready; until [ -e go ]; do sleep 0.01; done"]);
        let mut wrapper = WrapperProcess(command.spawn().expect("a shell"));
        wait_until("the rank runs", || host.path("ready").exists().then_some(()));
        wait_until("its output is in the log", || (host.read_log_text() == "here\n" && host.copier_pid().is_some()).then_some(()));
        let own = i32::try_from(wrapper.0.id()).expect("a pid");
        let group = read_process_stat(own).expect("the wrapper");
        for (i, pid) in host.appender_pids().into_iter().enumerate() {
            let (_, parent, its_group, session) = read_process_stat(pid).expect("it lives");
            assert!(its_group != group.2 && session != group.3, "a session of its own");
            assert!(i > 0 || (parent != own && read_process_stat(parent).is_none_or(|stat| stat.2 != group.2)), "not a child of the run");
            let environ = fs::read(format!("/proc/{pid}/environ")).expect("its environment");
            let environ = String::from_utf8_lossy(&environ);
            assert!(!environ.contains("run1") && !environ.contains("secret"), "{environ}");
            assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).expect("its folder"), Path::new("/"));
            let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("its files").filter_map(|e| fs::read_link(e.ok()?.path()).ok());
            for file in open {
                assert!(!file.ends_with("leak"), "{pid} has {}", file.display());
            }
        }
        // The appender only reads the pipe: the rank and its wrapper write to it.
        for pid in host.appender_pids() {
            for entry in fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("its files").flatten() {
                let name = entry.file_name();
                let target = fs::read_link(format!("/proc/{pid}/fd/{}", name.display())).unwrap_or_default();
                if target.to_string_lossy().contains(".pipe") {
                    let info = fs::read_to_string(entry.path()).expect("its mode");
                    let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).expect("flags").trim();
                    assert!(flags.ends_with('0'), "{pid} {}: {flags}", name.display());
                }
            }
        }
        fs::write(host.path("go"), "").expect("written");
        assert_eq!(wrapper.wait().code(), Some(0));
        host.wait_for_appender_exit();
    }
}

fn rank_starts_as_without_the_appender(shell: &'static str) {
    let host = TestHost::new(shell);
    // Signals, umask, and descriptors other than stdout and stderr.
    let look =
        "umask; grep -E 'Sig(Ign|Blk|Cgt)' /proc/self/status; for f in 0 3 4 5 6 7 8 9; do readlink /proc/self/fd/$f || echo none; done";
    let start = format!("umask 027; exec 4>four 8<eight; . \"$R/pipe\"; $1; sh -c '{}' >seen 2>&1", look.replace('\'', "'\\''"));
    fs::write(host.path("eight"), "").expect("written");
    let seen: Vec<_> = ["true", "log_through rank-0.0"]
        .map(|first| {
            assert!(host.shell_command().args(["-c", &start, "sh", first]).status().expect("a shell").success());
            fs::read_to_string(host.path("seen")).expect("the output")
        })
        .into();
    assert_eq!(seen[0], seen[1]);
    assert!(seen[0].contains("four") && seen[0].contains("0027"), "{}", seen[0]);
    host.wait_for_appender_exit();
    assert_eq!(host.run_rank("kill -9 $$"), Some(137));
    assert_eq!(host.run_rank("kill -TERM $$"), Some(143));
    assert_eq!(host.run_rank("sh -c 'kill -PIPE $$'"), Some(141));
}

fn missing_tools_fall_back_to_direct_log(shell: &'static str) {
    for tool in ["mkfifo", "dd", "readlink"] {
        let host = TestHost::without_tool(shell, tool);
        assert_eq!(host.run_rank("echo line; exit 6"), Some(6));
        assert_eq!((host.read_log_text().as_str(), host.read_note()), ("line\n", Some(format!("direct: {tool} is missing\n"))));
        assert_eq!(fs::read_to_string(host.path("through")).expect("its status"), "1\n");
    }
}

fn without_setsid_appender_stays_in_group(shell: &'static str) {
    let host = TestHost::without_tool(shell, "setsid");
    let mut wrapper = host.start_rank("trap '' TERM; echo line; touch ready; until [ -e go ]; do sleep 0.01; done; echo more; exit 6");
    wait_until("the rank runs", || host.path("ready").exists().then_some(()));
    assert_eq!(host.read_note().as_deref(), Some("group\n"));
    wrapper.signal_group(Signal::TERM);
    fs::write(host.path("go"), "").expect("written");
    assert_eq!(wrapper.wait().code(), Some(6));
    host.wait_for_appender_exit();
    assert_eq!(host.read_log_text(), "line\nmore\n");
}

fn copying_continues_without_a_new_copier(shell: &'static str) {
    let host = TestHost::new(shell);
    let mut wrapper = host.start_rank("echo one; touch ready; until [ -e go ]; do sleep 0.01; done; seq 1 1000; exit 6");
    wait_until("the rank runs", || host.path("ready").exists().then_some(()));
    wait_until("its output is in the log", || (host.read_log_text() == "one\n").then_some(()));
    fs::remove_file(host.path("bin/dd")).expect("removed");
    send_signal(wait_until("a copier runs", || host.copier_pid()), Signal::KILL);
    wait_until("the missing copier is reported", || host.read_losses().iter().any(|loss| loss.kind == "plain").then_some(()));
    fs::write(host.path("go"), "").expect("written");
    assert_eq!(wrapper.wait().code(), Some(6));
    wait_until("the rest is in the log", || (host.read_log_text() == format!("one\n{}", seq_output(1, 1000))).then_some(()));
    assert!(!host.rank_file("end").exists());
}
