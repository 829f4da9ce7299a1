//! Transfers of a user whom file modes restrict.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use crate::transfer::{archive_command, session, shells};

/// Runs as a user whom file modes restrict: another one if root runs the tests.
fn unprivileged(shell: Command) -> Command {
    if !rustix::process::geteuid().is_root() {
        return shell;
    }
    let mut command = Command::new("/usr/bin/setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(shell.get_program()).args(shell.get_args());
    command.envs(shell.get_envs().filter_map(|(key, value)| Some((key, value?))));
    command
}

/// A directory without permission to enter is not reported as missing, and one without permission to read not as empty.
#[test]
fn a_directory_without_permission_is_not_missing() {
    let dir = tempfile::tempdir().expect("a folder");
    let set_mode = |path: &Path, mode: u32| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
    set_mode(dir.path(), 0o755);
    let (closed, unread) = (dir.path().join("closed"), dir.path().join("unread"));
    for path in [closed.join("d"), unread.clone()] {
        std::fs::create_dir_all(&path).expect("made");
        std::fs::write(path.join("x.whl"), "x").expect("written");
    }
    set_mode(&closed, 0);
    set_mode(&unread, 0o311);
    for (name, shell) in shells(dir.path()) {
        let shell = unprivileged(shell);
        let answer = |root: &Path, commands: &[u8]| String::from_utf8_lossy(&session(&shell, root, commands)).into_owned();
        for path in [closed.join("d"), closed.join("d/deeper"), closed.clone()] {
            let hello = answer(&path, b"Z\n");
            assert!(hello.starts_with("H 2 "), "{name}, {}: {hello}", path.display());
        }
        assert!(answer(&dir.path().join("none/at/all"), b"Z\n").starts_with("H 0 "), "{name}");
        let listed = answer(&unread, b"L\nZ\n");
        assert!(listed.contains("\n00ff00ff ! find: ") && listed.contains("ermission denied"), "{name}: {listed}");
    }
    set_mode(&closed, 0o700);
}

/// As rsync does: an own directory without permission to write is changed, and has its mode again.
#[test]
fn a_read_only_directory_is_changed_and_stays_read_only() {
    let dir = tempfile::tempdir().expect("a folder");
    let from = dir.path().join("from");
    std::fs::create_dir_all(from.join("d/e")).expect("made");
    for name in ["d/f", "d/e/f"] {
        std::fs::write(from.join(name), "new").expect("written");
    }
    let archive = archive_command(&from, &["./d"], &["./d/f", "./d/e/f"]);
    for (name, shell) in shells(dir.path()) {
        let shell = unprivileged(shell);
        let to = dir.path().join(name).join("to");
        let made = format!(
            "umask 022; mkdir -p '{0}/d/e' && echo old >'{0}/d/f' && echo x >'{0}/d/gone' && chmod 555 '{0}/d' '{0}/d/e'",
            to.display()
        );
        std::fs::create_dir_all(dir.path().join(name)).expect("made");
        for path in [dir.path(), &dir.path().join(name)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).expect("a mode");
        }
        assert!(unprivileged(Command::new("/bin/sh")).args(["-c", &made]).status().expect("a shell").success());
        std::fs::write(to.join(".orchestrate-sync"), "by hand\n").expect("written");
        let mark = format!("chown {} '{}/.orchestrate-sync'", std::fs::metadata(&to).expect("there").uid(), to.display());
        assert!(Command::new("/bin/sh").args(["-c", &mark]).status().expect("a shell").success());
        let commands = [&archive[..], b"D 9\n./d/gone\0Z\n"].concat();
        let answer = String::from_utf8_lossy(&session(&shell, &to, &commands)).into_owned();
        assert_eq!(answer.lines().skip(1).collect::<Vec<_>>(), ["A", "D"], "{name}: {answer}");
        for file in ["d/f", "d/e/f"] {
            assert_eq!(std::fs::read(to.join(file)).expect("read"), b"new", "{name}: {file}");
        }
        assert!(!to.join("d/gone").exists(), "{name}");
        for path in ["d", "d/e"] {
            assert_eq!(to.join(path).metadata().expect("there").mode() & 0o777, 0o555, "{name}: {path}");
        }
    }
}
