//! The appender of a log, `assets/append.sh` and `assets/pipe.sh`, in each shell that a host or an image may have as `sh`.
#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "the proof is real shells with real files, driven by helpers of a test"
)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, symlink};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

#[path = "appender/host.rs"]
mod host;

use host::{Host, Loss, Wrapper, brings_its_tools, kill, seq, stat};

/// The longest that anything may take. Reaching it is a failure; nothing waits for it in the good case.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the wrappers, the appender and the ranks of these tests call.
const TOOLS: &str = "cat dd env grep head ls mkfifo readlink rm seq setsid sha256sum sleep tee touch true wc";

/// A wrapper as `node.sh` and `worker.sh` are: it says how its rank ended, by its own status.
const WRAPPER: &str = r#"
. "$R/pipe"
log_through rank-0.0 && echo 0 >"$R/../through" || echo 1 >"$R/../through"
trap : TERM INT HUP
"$@"
exit "$?"
"#;

macro_rules! in_each_shell {
    ($($name:ident)*) => {
        mod dash { $( #[test] #[ignore = "needs root, bash and busybox: tests/run says how"] fn $name() { super::$name("dash"); } )* }
        mod bash { $( #[test] #[ignore = "needs root, bash and busybox: tests/run says how"] fn $name() { super::$name("bash"); } )* }
        mod busybox { $( #[test] #[ignore = "needs root, bash and busybox: tests/run says how"] fn $name() { super::$name("busybox"); } )* }
    };
}

in_each_shell! {
    reopening_stdout_and_stderr_keeps_the_log
    output_moved_to_a_file_leaves_the_log_as_it_is
    binary_bytes_and_an_unfinished_line_arrive
    two_hundred_mib_arrive_unchanged
    a_second_start_continues_the_log
    a_killed_copy_loses_no_more_than_it_says
    signals_to_the_group_and_to_the_appender_lose_nothing
    a_killed_group_loses_nothing
    a_grandchild_keeps_the_appender_and_its_end_ends_it
    the_bound_is_exact_and_the_rest_is_counted
    a_full_disk_is_counted_and_tried_again
    planted_links_and_fifos_are_not_followed
    planted_directories_have_a_defined_effect
    the_appender_has_nothing_of_the_run
    a_rank_is_started_as_without_the_appender
    missing_tools_fall_back_to_the_direct_log
    without_setsid_it_stays_in_the_group
    a_copy_goes_on_where_none_can_be_started_again
}

fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").expect("a path");
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn reopening_stdout_and_stderr_keeps_the_log(shell: &'static str) {
    let host = Host::new(shell);
    let rank = "seq 1 1000; echo x >/dev/stderr; echo y | tee /dev/stdout; echo z >/proc/self/fd/1; echo end >&2; exit 7";
    assert_eq!(host.run(rank), Some(7));
    assert_eq!(host.text(), format!("{}x\ny\ny\nz\nend\n", seq(1, 1000)));
    host.no_loss();
    assert_eq!(fs::read_to_string(host.at("through")).expect("its status"), "0\n");
    let left: BTreeSet<_> = fs::read_dir(host.at("out")).expect("a folder").map(|e| e.expect("an entry").file_name()).collect();
    assert_eq!(left, ["run1.rank-0.0.end", "run1.rank-0.0.log"].map(Into::into).into());
}

fn output_moved_to_a_file_leaves_the_log_as_it_is(shell: &'static str) {
    let host = Host::new(shell);
    assert_eq!(host.run("echo before; exec >file 2>&1; echo after; echo x >/dev/stderr; echo more"), Some(0));
    assert_eq!(host.text(), "before\n");
    host.no_loss();
}

fn binary_bytes_and_an_unfinished_line_arrive(shell: &'static str) {
    let host = Host::new(shell);
    let bytes: Vec<u8> = (0..=255).cycle().take(70_001).chain(*b"in the middle").collect();
    fs::write(host.at("bytes"), &bytes).expect("written");
    assert_eq!(host.run("cat bytes"), Some(0));
    assert!(host.log() == bytes);
    host.no_loss();
}

fn two_hundred_mib_arrive_unchanged(shell: &'static str) {
    let host = Host::bounded(shell, &(1_u64 << 30).to_string());
    assert_eq!(host.run("head -c 209715200 /dev/urandom | tee copy"), Some(0));
    host.no_loss();
    assert_eq!(host.file("log").metadata().expect("the log").len(), 200 << 20);
    let sums = Command::new("sha256sum").arg(host.at("copy")).arg(host.file("log")).output().expect("sums").stdout;
    let sums: BTreeSet<_> = String::from_utf8(sums).expect("text").lines().map(|line| line[..64].to_owned()).collect();
    assert_eq!(sums.len(), 1, "{sums:?}");
}

fn a_second_start_continues_the_log(shell: &'static str) {
    let host = Host::new(shell);
    assert_eq!((host.run("echo first"), host.run("echo second")), (Some(0), Some(0)));
    assert_eq!(host.text(), "first\nsecond\n");
}

fn a_killed_copy_loses_no_more_than_it_says(shell: &'static str) {
    for max in ["", "4000000000"] {
        let host = Host::bounded(shell, max);
        let rank = "n=1; until [ -e stop ]; do seq $n $((n + 4999)); n=$((n + 5000)); sleep 0.002; done; echo $n >count";
        let mut wrapper = host.start(rank);
        let mut last = None;
        for _ in 0..10 {
            let copier = until("somebody copies", || host.copier().filter(|pid| Some(*pid) != last));
            kill(copier, Signal::KILL);
            last = Some(copier);
        }
        until("somebody copies again", || host.copier().filter(|pid| Some(*pid) != last));
        fs::write(host.at("stop"), "").expect("written");
        assert_eq!(wrapper.wait().code(), Some(0), "the writer is not hurt");
        host.ended();
        let count: u64 = fs::read_to_string(host.at("count")).expect("its count").trim().parse().expect("a number");
        arrived(&host, seq(1, count - 1).as_bytes(), "killed", 65536);
    }
}

/// The log is what was written, except at its losses, which are no larger than stated.
fn arrived(host: &Host, written: &[u8], kind: &str, each: u64) {
    let (log, losses) = (host.log(), host.losses());
    let number = |n: u64| usize::try_from(n).expect("a size");
    let (mut at, mut from) = (0, 0);
    for (i, loss) in losses.iter().enumerate() {
        assert!(loss.kind == kind && loss.least <= loss.most && (each == 0 || loss.most <= each * 10), "{losses:?}");
        let piece = &log[from..number(loss.offset)];
        assert!(written[at..].starts_with(piece), "piece {i} is in order: {losses:?}");
        (at, from) = (at + piece.len(), number(loss.offset));
        // The next piece goes on somewhere behind. Lines are unique, so its first bytes are.
        let next = losses.get(i + 1).map_or(log.len(), |next| number(next.offset));
        let head = &log[from..next.min(from + 100)];
        let room = number(loss.most).min(written.len() - at);
        let gap = if head.is_empty() { Some(room) } else { (number(loss.least)..=room).find(|gap| written[at + gap..].starts_with(head)) };
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
    let sum = |part: fn(&Loss) -> u64| losses.iter().map(part).sum::<u64>();
    assert!(sum(|l| l.least) <= missing && missing <= sum(|l| l.most), "{missing}: {losses:?}");
}

fn signals_to_the_group_and_to_the_appender_lose_nothing(shell: &'static str) {
    let host = Host::new(shell);
    let rank = "trap '' TERM INT HUP; for i in 1 2 3 4; do seq 1 5000; touch at$i; until [ -e go$i ]; do sleep 0.01; done; done; exit 3";
    let mut wrapper = host.start(rank);
    for (i, signal) in [(1, Signal::TERM), (2, Signal::INT), (3, Signal::HUP), (4, Signal::USR1)] {
        until("the rank writes", || host.at(&format!("at{i}")).exists().then_some(()));
        if signal != Signal::USR1 {
            wrapper.signal_group(signal);
        }
        for pid in host.appenders() {
            kill(pid, signal);
        }
        fs::write(host.at(&format!("go{i}")), "").expect("written");
    }
    assert_eq!(wrapper.wait().code(), Some(3));
    host.ended();
    assert!(host.text() == seq(1, 5000).repeat(4));
    host.no_loss();
}

fn a_killed_group_loses_nothing(shell: &'static str) {
    let host = Host::new(shell);
    let mut wrapper = host.start("seq 1 100000; touch ready; sleep 1000");
    until("the rank has written", || host.at("ready").exists().then_some(()));
    wrapper.signal_group(Signal::KILL);
    assert_eq!(wrapper.wait().signal(), Some(9));
    host.ended();
    assert!(host.text() == seq(1, 100_000));
    host.no_loss();
}

fn a_grandchild_keeps_the_appender_and_its_end_ends_it(shell: &'static str) {
    let host = Host::new(shell);
    let mut wrapper = host.start("sh -c 'until [ -e go ]; do sleep 0.01; done; echo late' & echo early");
    assert_eq!(wrapper.wait().code(), Some(0));
    until("what was written is in the log", || (host.text() == "early\n").then_some(()));
    assert!(host.appender().is_some() && !host.file("end").exists());
    fs::write(host.at("go"), "").expect("written");
    host.ended();
    assert_eq!(host.text(), "early\nlate\n");
    host.no_loss();
}

fn the_bound_is_exact_and_the_rest_is_counted(shell: &'static str) {
    let written = seq(1, 300_000);
    for max in [0, 1, 4097, 100_001, 1_500_000, written.len(), written.len() + 1] {
        let host = Host::bounded(shell, &max.to_string());
        assert_eq!(host.run("seq 1 300000; exit 5"), Some(5));
        let (kept, lost) = (max.min(written.len()), written.len().saturating_sub(max) as u64);
        assert!(host.log() == written.as_bytes()[..kept], "{max}");
        let loss = Loss { kind: "max".to_owned(), offset: kept as u64, least: lost, most: lost };
        assert_eq!(host.losses(), if lost == 0 { vec![] } else { vec![loss] });
    }
    // Small writes: the bound is crossed while the appender keeps up.
    let host = Host::bounded(shell, "9000");
    assert_eq!(host.run("i=1; while [ $i -le 3000 ]; do echo $i; i=$((i + 1)); done"), Some(0));
    let written = seq(1, 3000);
    assert!(host.log() == written.as_bytes()[..9000]);
    let lost = written.len() as u64 - 9000;
    assert_eq!(host.losses(), [Loss { kind: "max".to_owned(), offset: 9000, least: lost, most: lost }]);
}

fn a_full_disk_is_counted_and_tried_again(shell: &'static str) {
    let mut host = Host::new(shell);
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(host.at("out")).output();
    host.mounted = mount.is_ok_and(|output| output.status.success());
    assert!(host.mounted, "a tmpfs cannot be mounted, which takes root");
    fs::write(host.at("out/filler"), vec![1; 500_000]).expect("room is taken");
    let rank = "seq 1 500000; touch ready; until [ -e go ]; do sleep 0.01; done; n=500001
        until [ -e stop ]; do echo $n; n=$((n + 1)); sleep 0.005; done; echo $n >count; exit 4";
    let mut wrapper = host.start(rank);
    // The rank gets rid of everything.
    until("the rank has written", || host.at("ready").exists().then_some(()));
    until("it is said while it lasts", || host.losses().iter().any(|loss| loss.kind == "full").then_some(()));
    fs::remove_file(host.at("out/filler")).expect("room is made");
    let before = host.log().len();
    fs::write(host.at("go"), "").expect("written");
    until("the log grows again", || (host.log().len() > before).then_some(()));
    fs::write(host.at("stop"), "").expect("written");
    assert_eq!(wrapper.wait().code(), Some(4));
    host.ended();
    let count: u64 = fs::read_to_string(host.at("count")).expect("its count").trim().parse().expect("a number");
    let written = seq(1, count - 1);
    // The tee of busybox writes on after a failure: what it keeps of a block may lie behind a gap.
    if shell == "busybox" {
        let (log, losses) = (host.text(), host.losses());
        let first = usize::try_from(losses[0].offset).expect("a size") - 65536;
        assert!(written[..first] == log[..first], "{losses:?}");
        let (least, missing) = (losses.iter().map(|loss| loss.least).sum::<u64>(), (written.len() - log.len()) as u64);
        assert!(least <= missing && missing <= least + 65536, "{missing}: {losses:?}");
    } else {
        arrived(&host, written.as_bytes(), "full", 0);
    }
    let spread: u64 = host.losses().iter().map(|loss| loss.most - loss.least).sum();
    assert!(spread <= 65536, "only the first block is not counted: {:?}", host.losses());
    // The disk is full to the end.
    fs::write(host.at("out/filler"), vec![1; 1 << 20]).expect_err("no room");
    let start = host.log().len();
    let rank = "seq 1 500000";
    assert_eq!(host.run(rank), Some(0));
    assert!(host.losses().last().is_some_and(|loss| loss.kind == "full" && loss.offset >= start as u64));
}

const NAMES: [&str; 6] = ["log", "pipe", "end", "lost", "end.new", "note"];

fn planted_links_and_fifos_are_not_followed(shell: &'static str) {
    for target in ["file", "none", "fifo", "dir", "hard"] {
        let host = Host::new(shell);
        let foreign = host.at("host/file");
        fs::write(&foreign, "of the host\n").expect("written");
        fs::create_dir(host.at("host/dir")).expect("made");
        for name in NAMES {
            match target {
                "fifo" => assert!(Command::new("mkfifo").arg(host.file(name)).status().expect("mkfifo").success()),
                "hard" => fs::hard_link(&foreign, host.file(name)).expect("linked"),
                target => symlink(host.at("host").join(target), host.file(name)).expect("linked"),
            }
        }
        assert_eq!(host.run("echo line; echo x >/dev/stderr; exit 9"), Some(9), "{target}");
        assert_eq!(host.text(), "line\nx\n", "{target}");
        assert_eq!(fs::read_to_string(&foreign).expect("the file"), "of the host\n");
        let meta = foreign.metadata().expect("the file");
        assert_eq!((meta.nlink(), meta.mode() & 0o777), (1, 0o644), "{target}");
        let host_files: BTreeSet<_> = fs::read_dir(host.at("host")).expect("a folder").map(|e| e.expect("an entry").file_name()).collect();
        assert_eq!(host_files, ["dir", "file"].map(Into::into).into(), "{target}");
        assert_eq!(fs::read_dir(host.at("host/dir")).expect("a folder").count(), 0, "{target}");
        let kind = fs::symlink_metadata(host.file("log")).expect("the log").file_type();
        assert!(kind.is_file() && !kind.is_fifo());
        assert_eq!(host.note(), None);
        host.no_loss();
    }
}

fn planted_directories_have_a_defined_effect(shell: &'static str) {
    for name in NAMES {
        let host = Host::new(shell);
        fs::create_dir_all(host.file(name).join("inner")).expect("made");
        assert_eq!(host.start("echo line; exit 9").wait().code(), Some(9), "{name}");
        let line = "line\n";
        let (log, note, end) = match name {
            "log" => (None, Some("none: the log cannot be made\n"), true),
            "pipe" => (Some(line), Some("direct: mkfifo failed\n"), true),
            "end" => (Some(line), None, false),
            _ => (Some(line), None, true),
        };
        until("the log has what it gets", || (fs::read_to_string(host.file("log")).ok().as_deref() == log).then_some(()));
        until("the appender ends", || host.appender().is_none().then_some(()));
        if name != "note" {
            assert_eq!(host.note().as_deref(), note, "{name}");
        }
        assert_eq!(host.file("end").is_file(), end, "{name}");
        assert!(host.file(name).join("inner").is_dir());
    }
}

fn the_appender_has_nothing_of_the_run(shell: &'static str) {
    for max in ["", "1000000"] {
        let host = Host::bounded(shell, max);
        let mut command = host.sh();
        // dash cannot close what has two digits.
        let leak = if shell == "dash" { "exec 7>leak" } else { "exec 7>leak 12>leak" };
        command.args(["-c", &format!("{leak}; exec sh \"$@\""), "sh"]).arg(host.at("in/wrapper"));
        command.args(["sh", "-c", "echo here; touch ready; until [ -e go ]; do sleep 0.01; done"]);
        let mut wrapper = Wrapper(command.spawn().expect("a shell"));
        until("the rank runs", || host.at("ready").exists().then_some(()));
        until("it is copied", || (host.text() == "here\n" && host.copier().is_some()).then_some(()));
        let own = i32::try_from(wrapper.0.id()).expect("a pid");
        let group = stat(own).expect("the wrapper");
        for (i, pid) in host.appenders().into_iter().enumerate() {
            let (_, parent, its_group, session) = stat(pid).expect("it lives");
            assert!(its_group != group.2 && session != group.3, "a session of its own");
            assert!(i > 0 || (parent != own && stat(parent).is_none_or(|stat| stat.2 != group.2)), "no child of the run");
            let environ = fs::read(format!("/proc/{pid}/environ")).expect("its environment");
            let environ = String::from_utf8_lossy(&environ);
            assert!(!environ.contains("run1") && !environ.contains("secret"), "{environ}");
            assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).expect("its folder"), Path::new("/"));
            let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("its files").filter_map(|e| fs::read_link(e.ok()?.path()).ok());
            for file in open {
                assert!(!file.ends_with("leak"), "{pid} has {}", file.display());
            }
        }
        // Only readers: the rank and its wrapper are the pipe's writers.
        for pid in host.appenders() {
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
        fs::write(host.at("go"), "").expect("written");
        assert_eq!(wrapper.wait().code(), Some(0));
        host.ended();
    }
}

fn a_rank_is_started_as_without_the_appender(shell: &'static str) {
    let host = Host::new(shell);
    // Signals, umask and descriptors other than stdout and stderr.
    let look =
        "umask; grep -E 'Sig(Ign|Blk|Cgt)' /proc/self/status; for f in 0 3 4 5 6 7 8 9; do readlink /proc/self/fd/$f || echo none; done";
    let start = format!("umask 027; exec 4>four 8<eight; . \"$R/pipe\"; $1; sh -c '{}' >seen 2>&1", look.replace('\'', "'\\''"));
    fs::write(host.at("eight"), "").expect("written");
    let seen: Vec<_> = ["true", "log_through rank-0.0"]
        .map(|first| {
            assert!(host.sh().args(["-c", &start, "sh", first]).status().expect("a shell").success());
            fs::read_to_string(host.at("seen")).expect("what it saw")
        })
        .into();
    assert_eq!(seen[0], seen[1]);
    assert!(seen[0].contains("four") && seen[0].contains("0027"), "{}", seen[0]);
    host.ended();
    assert_eq!(host.run("kill -9 $$"), Some(137));
    assert_eq!(host.run("kill -TERM $$"), Some(143));
    assert_eq!(host.run("sh -c 'kill -PIPE $$'"), Some(141));
}

fn missing_tools_fall_back_to_the_direct_log(shell: &'static str) {
    if brings_its_tools(shell) {
        return;
    }
    for tool in ["mkfifo", "dd", "readlink"] {
        let host = Host::without(shell, tool);
        assert_eq!(host.run("echo line; exit 6"), Some(6));
        assert_eq!((host.text().as_str(), host.note()), ("line\n", Some(format!("direct: {tool} is missing\n"))));
        assert_eq!(fs::read_to_string(host.at("through")).expect("its status"), "1\n");
    }
}

fn without_setsid_it_stays_in_the_group(shell: &'static str) {
    if brings_its_tools(shell) {
        return;
    }
    let host = Host::without(shell, "setsid");
    let mut wrapper = host.start("trap '' TERM; echo line; touch ready; until [ -e go ]; do sleep 0.01; done; echo more; exit 6");
    until("the rank runs", || host.at("ready").exists().then_some(()));
    assert_eq!(host.note().as_deref(), Some("group\n"));
    wrapper.signal_group(Signal::TERM);
    fs::write(host.at("go"), "").expect("written");
    assert_eq!(wrapper.wait().code(), Some(6));
    host.ended();
    assert_eq!(host.text(), "line\nmore\n");
}

fn a_copy_goes_on_where_none_can_be_started_again(shell: &'static str) {
    if brings_its_tools(shell) {
        return;
    }
    let host = Host::new(shell);
    let mut wrapper = host.start("echo one; touch ready; until [ -e go ]; do sleep 0.01; done; seq 1 1000; exit 6");
    until("the rank runs", || host.at("ready").exists().then_some(()));
    until("it is copied", || (host.text() == "one\n").then_some(()));
    fs::remove_file(host.at("bin/dd")).expect("removed");
    kill(until("somebody copies", || host.copier()), Signal::KILL);
    until("it is noted", || host.losses().iter().any(|loss| loss.kind == "plain").then_some(()));
    fs::write(host.at("go"), "").expect("written");
    assert_eq!(wrapper.wait().code(), Some(6));
    until("the rest is in the log", || (host.text() == format!("one\n{}", seq(1, 1000))).then_some(()));
    assert!(!host.file("end").exists());
}
