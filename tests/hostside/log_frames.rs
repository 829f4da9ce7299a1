//! Frames of `assets/follow.sh` that are larger than a block, in every shell and userland that a host may have.

use super::transfer::shells;
use super::*;

/// More than a frame of 4 MiB, and no whole number of blocks of 64 KiB.
const LONG_LOG: usize = (9 << 20) + 12_345;

struct Frame {
    file: String,
    offset: usize,
    left: usize,
    bytes: Vec<u8>,
}

/// Bytes without a pattern that would hide a shift by a block.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// A search path with this dd.
fn with_dd(host: &TestHost, name: &str, script: &str) -> String {
    let tools = host.path(name);
    std::fs::create_dir(&tools).expect("made");
    write_program(&tools.join("dd"), script);
    format!("{}:{}", tools.display(), std::env::var("PATH").expect("a path"))
}

/// Fetches the run's logs with this shell; everything is acknowledged at once. Returns what the script has sent.
fn fetch_bytes(shell: &Command, host: &TestHost, have: &str) -> Vec<u8> {
    let script = format!(
        "once=1 have={have} F='{0}/h.out/run1.' record='{0}/h.private/run1.json'\n{1}{2}",
        host.dir.path().display(),
        read_asset("read.sh"),
        read_asset("follow.sh")
    );
    let mut command = Command::new(shell.get_program());
    command.args(shell.get_args()).args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.envs(shell.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let mut child = command.spawn().expect("a shell");
    child.stdin.take().expect("its input").write_all(b"99999999 1000\n").expect("acknowledged");
    child.wait_with_output().expect("its output").stdout
}

/// The frames of a fetch that ends; other messages as a frame without bytes.
fn fetch(shell: &Command, host: &TestHost, have: &str) -> Vec<Frame> {
    let sent = fetch_bytes(shell, host, have);
    let mut rest = sent.as_slice();
    let mut frames = Vec::new();
    while rest != b"E\n" {
        let end = rest.iter().position(|byte| *byte == b'\n').expect("a head");
        let head = std::str::from_utf8(&rest[..end]).expect("a head is text");
        let words: Vec<&str> = head.split(' ').collect();
        if words[0] != "F" {
            frames.push(Frame { file: head.to_owned(), offset: 0, left: 0, bytes: Vec::new() });
            rest = &rest[end + 1..];
            continue;
        }
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<usize>().ok()).expect(head);
        let begin = end + 1;
        assert_eq!(words.len(), 5, "{head}");
        let bytes = rest[begin..begin + number(3)].to_vec();
        frames.push(Frame { file: words[1].to_owned(), offset: number(2), left: number(4), bytes });
        rest = &rest[begin + number(3)..];
    }
    frames
}

#[test]
fn frames_have_every_byte_in_every_shell() {
    let host = TestHost::new();
    host.prepare_run("run1", "");
    let (long, short) = (noise(LONG_LOG), noise(300_000));
    std::fs::write(host.path("h.out/run1.rank-0.0.log"), &long).expect("written");
    std::fs::write(host.path("h.out/run1.rank-1.0.log"), &short).expect("written");
    // The second limits are those of many hosts.
    let limits = ["", " frame=3000000 window=5000000", " frame=40000 window=40000"];
    let mut shells = shells(host.dir.path());
    // A dd without these flags, and one that the script does not use.
    let uutils = "#!/bin/sh\n[ \"$1\" != --version ] || exec echo 'dd (uutils coreutils) 0.2.2'\ncase $* in *bs=1\\ *) echo '0+0 records in' >&2 ;; *) exit 1 ;; esac\n";
    for (name, script) in [("old dd", "#!/bin/sh\nexit 1\n"), ("uutils", uutils)] {
        let mut shell = Command::new("sh");
        shell.env("PATH", with_dd(&host, name, script));
        shells.push((name, shell));
    }
    for ((name, shell), limits) in shells.iter().flat_map(|shell| limits.map(|limits| (shell, limits))) {
        let frames = fetch(shell, &host, &format!("' rank-0.0=7 '{limits}"));
        for (file, log, from) in [("rank-0.0", &long[..], 7), ("rank-1.0", &short[..], 0), ("node", &b"here\n"[..], 0)] {
            let mut at = from;
            for frame in frames.iter().filter(|frame| frame.file == file) {
                assert_eq!((frame.offset, frame.left), (at, log.len() - at - frame.bytes.len()), "{name}: {file}");
                assert!(frame.bytes == log[at..at + frame.bytes.len()], "{name}: {file} from byte {at} on");
                at += frame.bytes.len();
            }
            assert_eq!(at, log.len(), "{name}: {file}");
        }
        if limits.is_empty() {
            let order: Vec<&str> = frames.iter().map(|frame| frame.file.as_str()).collect();
            assert_eq!(order, ["rank-1.0", "rank-0.0", "node", "rank-0.0", "rank-0.0"], "{name}: the files in turn");
        }
    }
}

#[test]
fn each_log_continues_at_its_own_offset() {
    let host = TestHost::new();
    host.prepare_run("run1", "");
    let offsets = [("node", 1), ("rank-1.0", 2), ("rank-1.1", 3), ("rank-1.10", 4), ("rank-11.0", 5), ("task-1", 6), ("task-11", 7)];
    for (file, _) in offsets {
        host.write_file(&format!("h.out/run1.{file}.log"), "0123456789");
    }
    // The first two words are no offsets of logs.
    let have = offsets.iter().fold("' rank-9=1 x=1 ".to_owned(), |have, (file, at)| format!("{have}{file}={at} ")) + "'";
    for (name, shell) in shells(host.dir.path()) {
        let mut frames = fetch(&shell, &host, &have);
        frames.sort_by_key(|frame| frame.offset);
        let sent: Vec<_> = frames.iter().map(|frame| (frame.file.as_str(), frame.offset)).collect();
        assert_eq!(sent, offsets, "{name}");
        assert!(frames.iter().all(|frame| frame.bytes == "0123456789".as_bytes()[frame.offset..]), "{name}");
    }
}

/// A rank truncates its log between the moment that the frame was announced and the first read.
#[test]
fn bytes_that_vanish_are_sent_as_zeros() {
    let host = TestHost::new();
    host.prepare_run("run1", "");
    let (log, bin) = (noise(300_000), host.path("tools"));
    std::fs::create_dir(&bin).expect("made");
    let file = host.path("h.out/run1.rank-0.0.log");
    // The script asks for the name of the file after it has opened it.
    let readlink = format!("#!/bin/sh\ncase $1 in */0) truncate -s 100000 {}; esac\nexec /usr/bin/readlink \"$@\"\n", file.display());
    write_program(&bin.join("readlink"), &readlink);
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").expect("a path"));
    // Busybox runs its own readlink.
    for (name, mut shell) in shells(host.dir.path()).into_iter().filter(|(name, _)| *name != "busybox") {
        std::fs::write(&file, &log).expect("written");
        let frames = fetch(shell.env("PATH", &path), &host, "' '");
        let first = &frames[0];
        assert_eq!((first.file.as_str(), first.bytes.len()), ("rank-0.0", log.len()), "{name}");
        assert!(first.bytes[..100_000] == log[..100_000] && first.bytes[100_000..].iter().all(|byte| *byte == 0), "{name}");
    }
}

/// A log that cannot be sent ends the stream. It must not hold back the end of another rank.
#[test]
fn ends_do_not_wait_for_a_log_that_cannot_be_sent() {
    let host = TestHost::new();
    host.prepare_run("run1", "");
    for rank in 0..3 {
        host.write_file(&format!("h.out/run1.rank-{rank}.0.log"), "x\n");
    }
    for (suffix, text) in [("pid", "1 1 1.5 b\n"), ("rc", "7 2.5\n"), ("end", "")] {
        host.write_file(&format!("h.out/run1.rank-2.0.{suffix}"), text);
    }
    let tools = host.path("tools");
    std::fs::create_dir(&tools).expect("made");
    // The script asks for the name of a file that it has opened.
    write_program(&tools.join("readlink"), "#!/bin/sh\n/usr/bin/readlink \"$@\" | sed 's/rank-1.0.log$/& (deleted)/'\n");
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").expect("a path"));
    for (name, mut shell) in shells(host.dir.path()).into_iter().filter(|(name, _)| *name != "busybox") {
        let sent = fetch_bytes(shell.env("PATH", &path), &host, "' '");
        let text = String::from_utf8_lossy(&sent);
        assert!(text.contains("F rank-2.0 0 2 0\nx\nX rank-2.0 7 2.5\n") && !text.ends_with("E\n"), "{name}: {text}");
    }
}

#[test]
fn read_error_is_not_sent_as_zeros() {
    let host = TestHost::new();
    host.prepare_run("run1", "");
    let broken = "#!/bin/sh\ncase $* in *skip=*) echo '0+0 records in' >&2; exit 1 ;; esac\nexec /usr/bin/dd \"$@\"\n";
    let path = with_dd(&host, "tools", broken);
    for (name, mut shell) in shells(host.dir.path()).into_iter().filter(|(name, _)| *name != "busybox") {
        let sent = fetch_bytes(shell.env("PATH", &path), &host, "' '");
        assert_eq!(String::from_utf8_lossy(&sent), "F node 0 5 0\n", "{name}");
    }
}

/// The status is written before the appender has written the rest of the log.
#[test]
fn end_of_a_rank_follows_what_its_appender_writes_meanwhile() {
    let host = TestHost::new();
    host.prepare_run("run1", "");
    let (log, end) = (host.path("h.out/run1.rank-0.0.log"), host.path("h.out/run1.rank-0.0.end"));
    // While the first frame is sent.
    let dd = format!(
        "#!/bin/sh\ncase $* in *bs=65536\\ skip=0\\ *) printf 'the rest\\n' >>'{}'; : >'{}' ;; esac\nexec /usr/bin/dd \"$@\"\n",
        log.display(),
        end.display()
    );
    let path = with_dd(&host, "tools", &dd);
    host.write_file("h.out/run1.rank-0.0.pid", "1 1 1.5 b\n");
    host.write_file("h.out/run1.rank-0.0.rc", "0 2.5\n");
    for (name, mut shell) in shells(host.dir.path()).into_iter().filter(|(name, _)| *name != "busybox") {
        std::fs::write(&log, noise(12 << 20)).expect("written");
        if end.exists() {
            std::fs::remove_file(&end).expect("removed");
        }
        let frames = fetch(shell.env("PATH", &path), &host, "' '");
        let of_the_rank: Vec<_> = frames.iter().filter(|frame| frame.file.contains("rank-0.0")).collect();
        let [last, exit] = of_the_rank.last_chunk::<2>().expect("a frame and the end");
        assert_eq!((last.bytes.as_slice(), exit.file.as_str()), (&b"the rest\n"[..], "X rank-0.0 0 2.5"), "{name}");
    }
}
