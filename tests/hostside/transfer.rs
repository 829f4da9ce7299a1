//! `assets/transfer.sh` in every shell and userland that a host may have, driven without a connection.

use std::os::unix::fs::symlink;

use sha2::{Digest as _, Sha256};

use super::*;

/// A shell with its tools: GNU or busybox.
pub(super) fn shells(dir: &Path) -> Vec<(&'static str, Command)> {
    let bin = dir.join("busybox-bin");
    std::fs::create_dir_all(&bin).expect("made");
    let busybox = ["/usr/bin/busybox", "/bin/busybox"].into_iter().find(|path| Path::new(path).exists());
    let mut shells = Vec::new();
    // Debian's /bin/sh is dash.
    let other_sh = std::fs::canonicalize("/bin/sh").ok().filter(|sh| !sh.ends_with("dash")).map(|_| ("sh", &["/bin/sh"][..]));
    for (name, argv) in [("dash", &["dash"][..]), ("bash", &["bash", "--posix"])].into_iter().chain(other_sh) {
        let mut command = Command::new(argv[0]);
        command.args(&argv[1..]);
        if Command::new(argv[0]).args(["-c", ":"]).status().is_ok_and(|status| status.success()) {
            shells.push((name, command));
        }
    }
    if let Some(busybox) = busybox {
        let list = Command::new(busybox).arg("--list").output().expect("its applets").stdout;
        for applet in String::from_utf8_lossy(&list).lines() {
            symlink(busybox, bin.join(applet)).expect("a link");
        }
        let mut command = Command::new(busybox);
        command.arg("sh").env("PATH", &bin);
        shells.push(("busybox", command));
    }
    shells
}

pub(super) fn part_dir() -> String {
    format!(".orchestrate-part.{}", rustix::process::geteuid().as_raw())
}

fn make_part_dir(root: &Path, mode: u32) {
    let dir = root.join(part_dir());
    std::fs::create_dir(&dir).expect("made");
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(mode)).expect("a mode");
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Runs a session of the script with these commands; returns its output.
pub(super) fn session(shell: &Command, root: &Path, commands: &[u8]) -> Vec<u8> {
    session_of_home(shell, Path::new("/root"), root, commands)
}

pub(super) fn session_of_home(shell: &Command, home: &Path, root: &Path, commands: &[u8]) -> Vec<u8> {
    let script = format!("HOME='{}' root='{}' nonce=00ff00ff\n{}", home.display(), root.display(), read_asset("transfer.sh"));
    let mut command = Command::new(shell.get_program());
    command.args(shell.get_args()).args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.envs(shell.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let mut child = command.spawn().expect("a shell");
    let mut stdin = child.stdin.take().expect("piped");
    let commands = commands.to_vec();
    let feed = std::thread::spawn(move || stdin.write_all(&commands));
    let output = child.wait_with_output().expect("ended");
    feed.join().expect("joined").expect("all commands were read");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    output.stdout
}

fn tar_of(dir: &Path, names: &[&str]) -> Vec<u8> {
    let tar = Command::new("tar").args(["--format=gnu", "-cf", "-", "-C"]).arg(dir).args(names).output().expect("tar");
    assert!(tar.status.success(), "{}", String::from_utf8_lossy(&tar.stderr));
    tar.stdout
}

/// The command for an archive of these names, of which `files` are regular files.
pub(crate) fn archive_command(dir: &Path, names: &[&str], files: &[&str]) -> Vec<u8> {
    let archive = tar_of(dir, names);
    let list: Vec<u8> = files.iter().flat_map(|name| [name.as_bytes(), b"\0"].concat()).collect();
    let contents: Vec<u8> = files.iter().flat_map(|name| std::fs::read(dir.join(name)).expect("read")).collect();
    let head = format!("A {} {}\n", archive.len() / 10240, list.len());
    [head.as_bytes(), &archive, &list, format!("V {}\n", hex(&contents)).as_bytes()].concat()
}

#[test]
fn archives_and_big_files_arrive_in_every_shell() {
    let dir = tempfile::tempdir().expect("a folder");
    let from = dir.path().join("from");
    std::fs::create_dir_all(from.join("d/new")).expect("made");
    for (name, content) in [("a", "one"), ("d/b\nc", "two"), ("d/new/x", "three"), ("d/-n", "four")] {
        std::fs::write(from.join(name), content).expect("written");
    }
    symlink("d/-n", from.join("l")).expect("a link");
    let big: Vec<u8> = (0..300_000_u32).flat_map(u32::to_be_bytes).collect();
    for (name, shell) in shells(dir.path()) {
        let root = dir.path().join(name).join("to");
        std::fs::create_dir_all(root.join("d")).expect("made");
        std::fs::write(root.join("a"), "old").expect("written");
        symlink("/etc/passwd", root.join("d/-n")).expect("a link");
        let all = archive_command(&from, &["./a", "./d", "./l"], &["./a", "./d/b\nc", "./d/new/x", "./d/-n"]);
        let (first, rest) = big.split_at(70_001);
        let segment = |offset: usize, last: u8, bytes: &[u8]| {
            let head = format!("B abc123 {offset} {} {last} 640 1000000 7\n./d/big", bytes.len());
            [head.as_bytes(), bytes, format!("V {}\n", hex(bytes)).as_bytes()].concat()
        };
        let mode = b"C 711 7\n./d/-n\0";
        let commands = [&all[..], &segment(0, 0, first), b"Q abc123\n", &segment(first.len(), 1, rest), mode, b"Z\n"].concat();
        let answer = String::from_utf8_lossy(&session(&shell, &root, &commands)).into_owned();
        let lines: Vec<&str> = answer.lines().collect();
        let part = format!("Q 70001 {}", hex(first));
        assert_eq!(lines.get(1..), Some(&["A", "B", part.as_str(), "B", "C"][..]), "{name}: {answer}");
        for file in ["a", "d/b\nc", "d/new/x", "d/-n"] {
            assert_eq!(std::fs::read(root.join(file)).expect("read"), std::fs::read(from.join(file)).expect("read"), "{name}: {file}");
        }
        assert!(!root.join("d/-n").symlink_metadata().expect("a file").is_symlink(), "{name}: a link is replaced, not followed");
        assert_eq!(std::fs::read_link(root.join("l")).expect("a link"), Path::new("d/-n"));
        let stat = root.join("d/big").metadata().expect("a file");
        assert_eq!((stat.len(), stat.mode() & 0o777, stat.mtime()), (1_200_000, 0o640, 1_000_000), "{name}");
        assert_eq!(std::fs::read(root.join("d/big")).expect("read"), big, "{name}");
        assert_eq!(root.join("d/-n").metadata().expect("a file").mode() & 0o777, 0o711, "{name}");
        assert!(!root.join(part_dir()).exists(), "{name}: nothing is left");
    }
}

/// New directories are renamed many at once, each into its own holder, beside those that are there.
#[test]
fn new_directories_arrive_beside_present_ones() {
    let dir = tempfile::tempdir().expect("a folder");
    let from = dir.path().join("from");
    let mut files: Vec<String> = (0..450).map(|n| format!("./n{n}/f")).collect();
    files.extend(["./d/-new/deep/f", "./d/-new/f", "./d/old/new/f", "./d/zz/f", "./n1 b/f", "./z/y/x/f"].map(str::to_owned));
    for file in &files {
        std::fs::create_dir_all(from.join(file).parent().expect("a folder")).expect("made");
        std::fs::write(from.join(file), file).expect("written");
    }
    let mut names: Vec<&str> = files.iter().map(|file| &file[..2 + file[2..].find('/').expect("a folder")]).collect();
    names.dedup();
    let all: Vec<&str> = files.iter().map(String::as_str).collect();
    for (name, shell) in shells(dir.path()) {
        let root = dir.path().join(name).join("to");
        for present in ["n7/g", "n300/g", "d/old/g", "z/y/g"] {
            std::fs::create_dir_all(root.join(present).parent().expect("a folder")).expect("made");
            std::fs::write(root.join(present), "stays").expect("written");
        }
        std::fs::create_dir_all(root.join("n9")).expect("made");
        let commands = [&archive_command(&from, &names, &all)[..], b"Z\n"].concat();
        let answer = String::from_utf8_lossy(&session(&shell, &root, &commands)).into_owned();
        assert!(answer.ends_with("\nA\n"), "{name}: {answer}");
        for file in &files {
            assert_eq!(std::fs::read_to_string(root.join(file)).expect("read"), *file, "{name}");
        }
        for present in ["n7/g", "n300/g", "d/old/g", "z/y/g"] {
            assert_eq!(std::fs::read_to_string(root.join(present)).expect("read"), "stays", "{name}");
        }
        let count =
            Command::new("find").arg(&root).args(["-type", "f"]).output().expect("find").stdout.iter().filter(|b| **b == b'\n').count();
        assert_eq!(count, files.len() + 4, "{name}: nothing else");
    }
}

/// The last segment of a file with holes asks for holes: its content is the same, also where the host has no `fallocate` that makes them.
#[test]
fn zeros_of_a_file_with_holes_become_holes() {
    let dir = tempfile::tempdir().expect("a folder");
    let bytes = [&[7; 4096][..], &vec![0; 4 << 20], b"end"].concat();
    let digs = "cd \"$0\" && head -c 65536 /dev/zero >x && fallocate -d x && [ $(stat -c %b x) = 0 ]";
    let works = Command::new("sh").args(["-c", digs]).arg(dir.path()).status().is_ok_and(|status| status.success());
    for (name, shell) in shells(dir.path()) {
        let root = dir.path().join(name).join("to");
        std::fs::create_dir_all(&root).expect("made");
        let head = format!("B abc 0 {} 2 644 1000000 5\n./big", bytes.len());
        let commands = [head.as_bytes(), &bytes, format!("V {}\nZ\n", hex(&bytes)).as_bytes()].concat();
        let answer = String::from_utf8_lossy(&session(&shell, &root, &commands)).into_owned();
        assert_eq!(answer.lines().skip(1).collect::<Vec<_>>(), ["B"], "{name}");
        assert_eq!(std::fs::read(root.join("big")).expect("read"), bytes, "{name}");
        let stat = root.join("big").metadata().expect("a file");
        assert_eq!(stat.mtime(), 1_000_000, "{name}");
        // busybox has one without this flag.
        assert!(!works || name.contains("busybox") || stat.blocks() * 512 < 1 << 20, "{name}: {} blocks", stat.blocks());
    }
}

#[test]
fn wrong_checksum_or_escaping_path_is_refused_in_every_shell() {
    let dir = tempfile::tempdir().expect("a folder");
    let from = dir.path().join("from");
    std::fs::create_dir_all(from.join("d")).expect("made");
    std::fs::write(from.join("d/f"), "new").expect("written");
    for (name, shell) in shells(dir.path()) {
        let (root, outside) = (dir.path().join(name).join("to"), dir.path().join(name).join("outside"));
        std::fs::create_dir_all(&root).expect("made");
        std::fs::create_dir_all(&outside).expect("made");
        let answer = |commands: &[u8]| String::from_utf8_lossy(&session(&shell, &root, commands)).into_owned();
        let mut wrong = archive_command(&from, &["./d"], &["./d/f"]);
        let end = wrong.len() - 2;
        wrong[end] = if wrong[end] == b'0' { b'1' } else { b'0' };
        assert!(answer(&wrong).contains("\nF what arrived is not what was sent"), "{name}");
        assert!(!root.join("d").exists(), "{name}: nothing is half-written under its final name");
        symlink(&outside, root.join("d")).expect("a link");
        let through = answer(&[&archive_command(&from, &["./d"], &["./d/f"])[..], b"Z\n"].concat());
        assert!(through.contains("a link leads to another directory"), "{name}: {through}");
        let big = answer(&[&b"B abc 0 3 1 644 1 5\n./d/fnewV "[..], hex(b"new").as_bytes(), b"\nZ\n"].concat());
        assert!(big.contains("a link leads to another directory"), "{name}: {big}");
        std::fs::remove_dir_all(root.join(part_dir())).expect("removed");
        make_part_dir(&root, 0o700);
        symlink(outside.join("file"), root.join(part_dir()).join("abc")).expect("a link");
        std::fs::remove_file(root.join("d")).expect("removed");
        let planted = answer(&[&b"B abc 0 3 1 644 1 3\n./fnewV "[..], hex(b"new").as_bytes(), b"\nZ\n"].concat());
        assert!(planted.ends_with("B\n"), "{name}: {planted}");
        assert_eq!(std::fs::read_dir(&outside).expect("a folder").count(), 0, "{name}: nothing outside changes");
        let chmod = answer(b"C 777 6\n./../x\0Z\n");
        assert!(chmod.contains("\nF "), "{name}: {chmod}");
    }
}

#[test]
fn short_commands_end_their_heartbeat_without_a_complaint() {
    let dir = tempfile::tempdir().expect("a folder");
    for (name, shell) in shells(dir.path()) {
        let root = dir.path().join(name);
        std::fs::create_dir(&root).expect("made");
        let commands = [b"Q abc123\n".repeat(50), b"Z\n".to_vec()].concat();
        let answer = String::from_utf8_lossy(&session(&shell, &root, &commands)).into_owned();
        assert_eq!(answer.lines().skip(1).collect::<Vec<_>>(), ["Q 0 none"; 50], "{name}");
    }
}

#[test]
fn bulk_data_waits_for_acknowledgements() {
    let dir = tempfile::tempdir().expect("a folder");
    let content: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_be_bytes).collect();
    std::fs::write(dir.path().join("big"), &content).expect("written");
    for (name, shell) in shells(dir.path()) {
        let commands = format!("R 1 {} 5\n./big1\n2\n3\n4\n5\nZ\n", content.len() - (1 << 20));
        let answer = session(&shell, dir.path(), commands.as_bytes());
        let at = answer.iter().position(|byte| *byte == b'\n').expect("a line") + 1;
        let expected = &content[1 << 20..];
        assert_eq!(answer.get(at..at + expected.len()), Some(expected), "{name}");
        let stat = dir.path().join("big").metadata().expect("a file");
        let end = format!("R {} 0 {} {}\n", hex(expected), stat.len(), stat.mtime());
        assert_eq!(String::from_utf8_lossy(&answer[at + expected.len()..]), end, "{name}");
        // Without acknowledgements the script stops after three frames.
        let stopped = session(&shell, dir.path(), format!("R 0 {} 5\n./big", content.len()).as_bytes());
        assert!(stopped.len() < (3 << 21) + 1000, "{name}: {}", stopped.len());
    }
}

/// Zeros that replace unreadable bytes are reported.
#[test]
fn a_big_file_that_cannot_be_read_whole_is_reported() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("short"), vec![7; 1 << 20]).expect("written");
    std::fs::write(dir.path().join("grown"), vec![7; (1 << 21) + 6]).expect("written");
    std::fs::create_dir(dir.path().join("dir")).expect("made");
    for (name, shell) in shells(dir.path()) {
        for file in ["short", "grown", "none", "dir"] {
            let length = (1 << 20) + 5;
            let commands = format!("R 0 {length} {}\n./{file}1\n2\nZ\n", file.len() + 2);
            let answer = session(&shell, dir.path(), commands.as_bytes());
            let start = answer.iter().position(|byte| *byte == b'\n').expect("a line") + 1;
            let end = String::from_utf8_lossy(&answer[start + length..]).into_owned();
            let words: Vec<&str> = end.split_whitespace().collect();
            let sum = hex(&answer[start..start + length]);
            assert_eq!(words.get(..3), Some(&["R", sum.as_str(), "1"][..]), "{name}: {file}: {end}");
        }
    }
}

/// A part directory that others can write or own is refused, an ended session's directory is removed, a running one's stays.
#[test]
fn the_part_directory_is_the_users_own() {
    let dir = tempfile::tempdir().expect("a folder");
    let from = dir.path().join("from");
    std::fs::create_dir_all(&from).expect("made");
    std::fs::write(from.join("f"), "new").expect("written");
    for (name, shell) in shells(dir.path()) {
        let root = dir.path().join(name).join("to");
        std::fs::create_dir_all(root.join(".orchestrate-part")).expect("made");
        let push = || {
            let commands = [&archive_command(&from, &["./f"], &["./f"])[..], b"Z\n"].concat();
            String::from_utf8_lossy(&session(&shell, &root, &commands)).into_owned()
        };
        make_part_dir(&root, 0o777);
        let refused = push();
        assert!(refused.contains("\nF ") && refused.contains("this is no directory of orchestrate"), "{name}: {refused}");
        assert!(!root.join("f").exists(), "{name}");
        std::fs::remove_dir(root.join(part_dir())).expect("removed");
        // A link instead of the part directory: its target keeps its old files.
        let old = dir.path().join(name).join("old");
        std::fs::create_dir_all(&old).expect("made");
        let touched = Command::new("touch").args(["-d", "@1"]).arg(old.join("mine")).status().expect("touch");
        assert!(touched.success());
        symlink(&old, root.join(part_dir())).expect("a link");
        assert!(push().contains("this is no directory of orchestrate"), "{name}");
        assert!(old.join("mine").exists(), "{name}");
        std::fs::remove_file(root.join(part_dir())).expect("removed");
        // Unpacked files of an ended session are removed, those of a running one are not.
        make_part_dir(&root, 0o700);
        let place = |path: &str| std::fs::read_to_string(path).expect("read");
        let space = std::fs::read_link("/proc/self/ns/pid").expect("a link").display().to_string();
        let digits = |text: &str| text.chars().filter(|c| matches!(c, '0'..='9' | 'a'..='f')).collect::<String>();
        let place = digits(&format!("{space}{}", place("/proc/sys/kernel/random/boot_id")));
        let work = |pid: u32| root.join(part_dir()).join(format!("w.{place}.{pid}.aa"));
        std::fs::create_dir_all(work(u32::MAX).join("t/d")).expect("made");
        std::fs::create_dir_all(work(std::process::id())).expect("made");
        assert!(push().ends_with("A\n"), "{name}");
        assert!(!work(u32::MAX).exists() && work(std::process::id()).exists(), "{name}");
        assert_eq!(std::fs::read(root.join("f")).expect("read"), b"new", "{name}");
    }
}

/// The listing reports directories that find cannot enter.
#[test]
fn a_directory_that_cannot_be_listed_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    for (name, shell) in shells(dir.path()) {
        let (root, bin) = (dir.path().join(name).join("to"), dir.path().join(name).join("bin"));
        for path in [&root, &bin] {
            std::fs::create_dir_all(path).expect("made");
        }
        std::fs::write(root.join("f"), "x").expect("written");
        let real = if name == "busybox" { "busybox find" } else { "/usr/bin/find" };
        write_program(&bin.join("find"), &format!("#!/bin/sh\necho \"find: './d': Permission denied\" >&2\nexec {real} \"$@\"\n"));
        let path = shell.get_envs().find_map(|(key, value)| (key == "PATH").then_some(value?)).map(ToOwned::to_owned);
        let path = path.or_else(|| std::env::var_os("PATH")).expect("a path").to_string_lossy().into_owned();
        let mut faulty = Command::new(shell.get_program());
        faulty.args(shell.get_args()).env("PATH", format!("{}:{path}", bin.display()));
        let answer = String::from_utf8_lossy(&session(&faulty, &root, b"T\nZ\n")).into_owned();
        // busybox's shell may use its built-in find.
        let complained = answer.contains("\n00ff00ff ! find: './d': Permission denied\n");
        assert!(answer.contains("./f\n") && (complained || name == "busybox"), "{name}: {answer}");
    }
}

/// The shell with our own programs first on PATH.
fn with_programs(shell: &Command, bin: &Path, programs: &[(&str, String)]) -> Command {
    std::fs::create_dir_all(bin).expect("made");
    for (name, script) in programs {
        write_program(&bin.join(name), &format!("#!/bin/sh\n{script}\n"));
    }
    let path = shell.get_envs().find_map(|(key, value)| (key == "PATH").then_some(value?)).map(ToOwned::to_owned);
    let path = path.or_else(|| std::env::var_os("PATH")).expect("a path").to_string_lossy().into_owned();
    let mut faulty = Command::new(shell.get_program());
    faulty.args(shell.get_args()).env("PATH", format!("{}:{path}", bin.display()));
    faulty
}

/// Renaming across file systems would copy: refused before any change, with the name of the mount.
#[test]
fn a_file_system_mounted_below_the_target_is_named() {
    let allowed = Command::new("unshare").args(["-rm", "true"]).output().is_ok_and(|output| output.status.success());
    assert!(allowed || std::env::var_os("CI").is_none(), "CI must allow user namespaces");
    if !allowed {
        eprintln!("ignored: this machine allows no user namespaces");
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let from = dir.path().join("from");
    for name in ["d/m p/sub/f", "d/f", "f"] {
        std::fs::create_dir_all(from.join(name).parent().expect("a folder")).expect("made");
        std::fs::write(from.join(name), "new").expect("written");
    }
    for (name, shell) in shells(dir.path()) {
        let root = dir.path().join(name).join("to");
        std::fs::create_dir_all(root.join("d/m p/sub")).expect("made");
        let outside = dir.path().join(name).join("outside");
        std::fs::create_dir_all(outside.join("sub")).expect("made");
        // A bind mount has the device of its parent, a tmpfs has not.
        for mount in [format!("--bind '{}'", outside.display()), "-t tmpfs none".to_owned()] {
            let mut mounted = Command::new("unshare");
            let inner = format!("mount {mount} '{}/d/m p' && exec \"$@\"", root.display());
            mounted.args(["-rm", "sh", "-c", &inner, "sh"]).arg(shell.get_program()).args(shell.get_args());
            // `mount` is looked up before our own programs are on PATH.
            for (key, value) in shell.get_envs() {
                mounted.env(key, value.expect("a value"));
            }
            if name == "busybox" {
                mounted.env("PATH", format!("{}:/usr/bin:/bin", dir.path().join("busybox-bin").display()));
            }
            let answer = |commands: &[u8]| String::from_utf8_lossy(&session(&mounted, &root, commands)).into_owned();
            let archive = [&archive_command(&from, &["./d", "./f"], &["./d/m p/sub/f", "./d/f", "./f"])[..], b"Z\n"].concat();
            let named = format!("F {}/d/m p: another file system is mounted there", root.display());
            let refused = answer(&archive);
            assert!(refused.contains(&named), "{name}, {mount}: {refused}");
            let big = answer(&[&b"B abc 0 3 1 644 1 15\n./d/m p/sub/bignewV "[..], hex(b"new").as_bytes(), b"\nZ\n"].concat());
            assert!(big.contains(&named), "{name}, {mount}: {big}");
            assert!(!root.join("f").exists() && !root.join("d/f").exists(), "{name}, {mount}: nothing has changed");
            assert!(!outside.join("sub/f").exists() && !outside.join("sub/big").exists(), "{name}, {mount}");
            let beside = answer(&[&archive_command(&from, &["./d/f"], &["./d/f"])[..], b"Z\n"].concat());
            assert!(beside.ends_with("A\n"), "{name}, {mount}: {beside}");
            std::fs::remove_file(root.join("d/f")).expect("removed");
        }
    }
}

/// During a long step the script sends heartbeats to the laptop.
#[test]
fn long_checksum_sends_heartbeats() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("big"), vec![7; 2 << 20]).expect("written");
    // busybox's shell may use its built-in programs.
    for (name, shell) in shells(dir.path()).into_iter().filter(|(name, _)| *name != "busybox") {
        let (bin, calls) = (dir.path().join(name), dir.path().join(format!("{name}-calls")));
        std::fs::write(&calls, "").expect("written");
        let sleep = format!("echo >>'{}'; exec /usr/bin/sleep 0.02", calls.display());
        // It ends after 21 sleeps of the shell, so that at least one heartbeat was sent.
        let sum = format!(
            "n=0; while [ $n -lt 200 ] && [ \"$(wc -l <'{0}' 2>/dev/null || echo 0)\" -lt 21 ]; do n=$((n + 1)); /usr/bin/sleep 0.05; done; exec /usr/bin/sha256sum",
            calls.display()
        );
        let slow = with_programs(&shell, &bin, &[("sleep", sleep), ("openssl", "exit 1".to_owned()), ("sha256sum", sum)]);
        let answer = String::from_utf8_lossy(&session(&slow, dir.path(), b"P 1048576 5\n./bigZ\n")).into_owned();
        let lines: Vec<&str> = answer.lines().skip(1).collect();
        let sum = format!("P {}", hex(&vec![7; 1 << 20]));
        assert!(lines.len() > 1 && lines.last() == Some(&sum.as_str()), "{name}: {answer}");
        assert!(lines.iter().rev().skip(1).all(|line| *line == "K"), "{name}: {answer}");
    }
}

/// The end of an archive reports that tar failed, and why.
#[test]
fn failing_tar_is_reported_with_its_message() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("f"), "content").expect("written");
    for (name, shell) in shells(dir.path()).into_iter().filter(|(name, _)| *name != "busybox") {
        let bin = dir.path().join(name);
        let tar = "case $* in --version) exec /usr/bin/tar --version ;; esac; /usr/bin/tar \"$@\"; echo 'tar: ./f: file=changed as we read it!' >&2; exit 1";
        let faulty = with_programs(&shell, &bin, &[("tar", tar.to_owned())]);
        let end = |shell: &Command| {
            let answer = session(shell, dir.path(), b"G 4\n./f\0Z\n");
            let start = answer.iter().position(|byte| *byte == b'\n').expect("a line") + 1;
            let archive = &answer[start..answer.len() - 512];
            let end = String::from_utf8_lossy(&answer[answer.len() - 512..]).into_owned();
            end.trim_end().strip_prefix(&format!("00ff00ff {} ", hex(archive))).expect("its checksum").to_owned()
        };
        assert_eq!(end(&shell), "0", "{name}");
        assert_eq!(end(&faulty), "1 tar: ./f: file?changed as we read it?", "{name}");
    }
}

/// A big file with a wrong checksum is discarded: the next transfer starts at its first byte.
#[test]
fn big_file_with_wrong_checksum_is_discarded() {
    let dir = tempfile::tempdir().expect("a folder");
    for (name, shell) in shells(dir.path()) {
        let root = dir.path().join(name).join("to");
        std::fs::create_dir_all(&root).expect("made");
        let answer = |commands: &[u8]| String::from_utf8_lossy(&session(&shell, &root, commands)).into_owned();
        let first = [&b"B abc 0 3 0 644 1 5\n./bignewV "[..], hex(b"new").as_bytes(), b"\n"].concat();
        let wrong = answer(&[&first[..], b"B abc 3 3 1 644 1 5\n./bigbadV ", hex(b"new").as_bytes(), b"\nZ\n"].concat());
        assert!(wrong.contains("\nB\nF what arrived is not what was sent"), "{name}: {wrong}");
        let asked = answer(b"Q abc\nZ\n");
        assert!(asked.ends_with("Q 0 none\n"), "{name}: {asked}");
        assert!(!root.join("big").exists(), "{name}");
    }
}

/// The script opens a file first and then verifies its name: it neither sends nor hashes a link's target, and does not wait for a fifo.
#[test]
fn links_of_the_source_are_not_followed_in_every_shell() {
    let dir = tempfile::tempdir().expect("a folder");
    let root = dir.path().join("root");
    std::fs::create_dir_all(root.join("d")).expect("made");
    for name in ["a file\n", "d/below"] {
        std::fs::write(root.join(name), "public").expect("written");
    }
    symlink("d/below", root.join("link")).expect("a link");
    assert!(Command::new("mkfifo").arg(root.join("fifo")).status().expect("mkfifo").success());
    for (name, shell) in shells(dir.path()) {
        let answer = |commands: &[u8]| String::from_utf8_lossy(&session(&shell, &root, commands)).into_owned();
        let read = |file: &str| answer(format!("R 0 6 {}\n./{file}1\nZ\n", file.len() + 2).as_bytes());
        let digest = |file: &str| answer(format!("P 3 {}\n./{file}Z\n", file.len() + 2).as_bytes());
        assert!(read("a file\n").contains(&format!("publicR {} 0 6 ", hex(b"public"))), "{name}: {}", read("a file\n"));
        assert!(digest("a file\n").ends_with(&format!("P {}\n", hex(b"pub"))), "{name}: {}", digest("a file\n"));
        for file in ["link", "fifo"] {
            let sent = read(file);
            assert!(!sent.contains("public") && sent.contains(&format!("R {} 1 ", hex(&[0; 6]))), "{name}, {file}: {sent}");
            assert!(digest(file).ends_with("P \n"), "{name}, {file}: {}", digest(file));
        }
        let listed = answer(b"L\nZ\n");
        assert!(listed.contains("./link") && listed.contains("./d") && !listed.contains("below"), "{name}: {listed}");
    }
}
