//! The name's lock: one symbolic link on every host. Its text names the holder, so creating and signing it is one step.
//!
//! Held only while something is changed. `docs/decisions/` says why a link and not a directory.

use std::time::Duration;

use crate::model::remote_command::RemoteCommand;
use crate::plan::host_context::HostContext;
use crate::plan::protocol::lock_record::LockRecord;
use crate::text::shell_quote::quote;

/// Seconds without a heartbeat after which a lock is stale.
pub const STALE_AFTER_SECS: i64 = 30;

/// The script's exit status when another process holds the lock.
pub const EXIT_LOCK_HELD: i32 = 76;

/// Sets s to the seconds since the host's boot and the boot's id, since a wall clock may be set; to the wall clock's second where there is no /proc.
const READ_UPTIME_SH: &str = "s= b=; { read -r s _ </proc/uptime; read -r b </proc/sys/kernel/random/boot_id; } 2>/dev/null; s=${s%%.*}; \
                      case $s:$b in :* | *: | *[!0-9]*:*) s=$(date +%s) ;; *) s=\"$s $b\" ;; esac";

/// Records the host's uptime in seconds, and a copy for the keeper, which may run as another user. Written in place, so that it is never
/// empty, even on a full disk.
fn heartbeat_script() -> String {
    format!("(umask 022; {READ_UPTIME_SH}; echo \"$s\" 1<>\"$P/lock.beat\"; echo \"$s\" 1<>\"$IN/beat\")")
}

/// How long a lock script may take.
const LOCK_TIMEOUT: Duration = Duration::from_secs(20);

/// Directories that we made are recognized by the mode with which they are created: 0700 and the sticky bit. Others are used unchanged and
/// never removed. Directories below `~/.orchestrate` are also ours; earlier versions made them without the bit.
const OWN_DIRECTORY_SH: &str = r#"
made() {
  [ -d "$1" ] && [ ! -L "$1" ] && [ -O "$1" ] || return 1
  case $1 in "$HOME/.orchestrate" | "$HOME/.orchestrate/"*) return 0 ;; esac
  case $(ls -ldn "$1" 2>/dev/null) in drwx-----T*) ;; *) return 1 ;; esac
}
"#;

/// Refuses, with place, cause and remedy, what cannot be used safely: a link or a directory of another user, and one in which another user may
/// rename what is ours. A shared directory like /tmp or /scratch is fine: what is below it is ours alone.
const USABLE_DIRECTORY_SH: &str = r#"
whose() { ls -ld "$1" 2>/dev/null | { read -r _ _ o _; printf %s "$o"; }; }
refuse() { printf '%s; help: %s\n' "$1" "$2" >&2; exit 73; }
# look PATH: sets mode and owner; of a link itself, not of what it leads to.
look() { set -f; set -- $(ls -ldn "$1" 2>/dev/null); set +f; mode=${1:--} owner=${3:--}; }
# Fails where another process releases the directories meanwhile: the caller tries again.
usable() {
  own='set run_dir to a directory that belongs to you, or leave it out (~/.orchestrate)'
  if [ -L "$B" ]; then look "$B"; case $owner in 0 | "$uid") ;; *) refuse "$B is a link of another user ($(whose "$B"))" "$own" ;; esac; fi
  [ -d "$B" ] || { [ -d "${B%/*}/" ] || mkdir -p "${B%/*}"; mkdir -m 1700 "$B" 2>/dev/null; }
  [ -d "$B" ] || mkdir -p "$B" || exit 73
  look "$B/."
  [ -d "$B" ] || return 1
  case $owner in 0 | "$uid") ;; *) refuse "$B belongs to another user ($(whose "$B/.")), who could replace its contents" "$own" ;; esac
  private=; case $owner:$mode in "$uid":d???-----[-T]*) private=1 ;; esac
  case $owner:$mode in
    *:d????????[tT]*) ;;
    *:d???????w*) refuse "any user may rename your directories in $B" "$own" ;;
    "$uid":*) ;;
    *:d????w*) refuse "its group may rename your directories in $B" "$own" ;;
  esac
  mkdir -m 1700 "$N" 2>/dev/null && return 0
  if ! [ -e "$N" ] && ! [ -L "$N" ]; then
    e=$(mkdir -m 1700 "$N" 2>&1) && return 0
    if [ -d "$B" ] && ! [ -e "$N" ]; then printf '%s\n' "$e" >&2; exit 73; fi
    return 1
  fi
  if [ -L "$N" ] || ! [ -d "$N" ] || ! [ -O "$N" ]; then refuse "$N is not a directory of yours (it belongs to $(whose "$N"))" "$own, or change name"; fi
  # Ours by its name, whatever mode it was made with.
  case $N in "$HOME/.orchestrate/"*) chmod 700 "$N" ;; esac
  look "$N"
  [ -d "$N" ] || return 1
  case $private:$mode in 1:* | :d???-----[-T]*) ;; *) refuse "$N existed before and other users may enter it" "change name or run_dir; or run \`chmod 700 $N\` on that host if nothing else uses it" ;; esac
}
"#;

/// Takes the lock, and prints which run is there now; prints the holder's text and ends with [`EXIT_LOCK_HELD`] when it is taken. The directories above it
/// are made here, by the ssh user. A process that releases a lock removes them, so the script tries more than once.
pub fn acquire_lock_command(context: &HostContext, text: &str) -> RemoteCommand {
    let script = format!(
        "{}{USABLE_DIRECTORY_SH}B={base} N={base}/{name} uid=$(id -u)\n\
         directories() {{ mkdir -p \"$IN\" \"$OUT\" && chmod 755 \"$IN\" && chmod 777 \"$OUT\"; }}\n\
         foreign() {{ [ -L \"$1\" ] || {{ [ -e \"$1\" ] && [ ! -O \"$1\" ] && [ -e \"$1\" ]; }}; }}\n\
         l= e=\n\
         for i in 1 2 3 4 5; do\n\
         usable || continue\n\
         for d in \"$P\" \"$IN\" \"$OUT\"; do ! foreign \"$d\" || refuse \"$d is not a directory of this user\" 'check it on that host; remove it, or change name or run_dir'; done\n\
         [ -d \"$P\" ] || e=$(mkdir \"$P\" 2>&1)\n\
         ln -s {text} \"$P/lock\" 2>/dev/null\n\
         l=$(readlink \"$P/lock\") && break\n\
         done\n\
         [ -n \"$l\" ] || {{ printf '%s\\n' \"${{e:-other processes keep removing $N}}\" >&2; exit 73; }}\n\
         # Only under the lock: its holder may be removing them.\n\
         if [ \"$l\" = {text} ]; then {{ [ -O \"$N\" ] && [ ! -L \"$N\" ] && directories; }} || {{ rm -f \"$P/lock\"; exit 73; }}; {beat}; cat \"$P/current\" 2>/dev/null; exit 0; fi\n\
         printf '%s\\n' \"$l\"\n\
         exit {EXIT_LOCK_HELD}\n",
        context.script_preamble(),
        base = quote(&context.run_dir_root),
        name = quote(&context.name),
        text = quote(text),
        beat = heartbeat_script(),
    );
    RemoteCommand::from_script("take the lock", script, LOCK_TIMEOUT)
}

/// The current lock, in the format of the facts. If its holder was killed before the first heartbeat, its age counts from the first look at it.
pub fn inspect_lock_command(context: &HostContext) -> RemoteCommand {
    let script = format!(
        "{}printf 'now %s\\n' \"$(date +%s)\"\n{READ_UPTIME_SH}; printf 'uptime %s\\n' \"$s\"\n\
         l=$(readlink \"$P/lock\") && printf 'lock %s\\n' \"$l\" && {{ [ -s \"$P/lock.beat\" ] || {}; }}\n\
         b=0; {{ read -r b <\"$P/lock.beat\"; }} 2>/dev/null; printf 'lock_beat %s\\n' \"$b\"\n",
        context.script_preamble(),
        heartbeat_script()
    );
    RemoteCommand::from_script("check the lock", script, LOCK_TIMEOUT)
}

/// Moves a stale lock aside if it has not changed since it was read; taking the lock is the next step. Its last heartbeat is moved too, so
/// that it does not count for the next holder. If another operator did both in between, the fresh lock is put back.
pub fn break_lock_command(context: &HostContext, lock: &LockRecord) -> RemoteCommand {
    let script = format!(
        "{}case $(readlink \"$P/lock\") in {token}:*) ;; *) exit 0 ;; esac\n\
         mv -f \"$P/lock\" \"$P/lock.old.$$\" || exit 0\n\
         l=$(readlink \"$P/lock.old.$$\")\n\
         case $l in {token}:*) rm -f \"$P/lock.beat\" \"$IN/beat\" ;; *) ln -s \"$l\" \"$P/lock\" 2>/dev/null ;; esac\n\
         rm -f \"$P/lock.old.$$\"\n",
        context.script_preamble(),
        token = quote(&lock.token),
    );
    RemoteCommand::from_script("take over the lock", script, LOCK_TIMEOUT)
}

/// Shows that the holder lives; ends with 75 when the lock is no longer ours.
pub fn renew_lock_command(context: &HostContext) -> RemoteCommand {
    RemoteCommand::from_script("renew the lock", format!("{}{}\n", context.lock_check(), heartbeat_script()), LOCK_TIMEOUT)
}

/// Gives the lock back; what is empty then goes: the open directories while the lock still holds, since the next holder makes them again. Those of
/// a container that stays are kept: they are mounted in it, and it would not see new ones.
pub fn release_lock_command(context: &HostContext) -> RemoteCommand {
    let script = format!(
        "{}{OWN_DIRECTORY_SH}rm -f \"$IN/beat\"; [ -e \"$P/keep\" ] || rmdir \"$OUT\" \"$IN\" 2>/dev/null\nrm -f \"$P/lock.beat\" \"$P/lock\"\nrmdir \"$P\" 2>/dev/null\n\
         for d in {base}/{name} {base}; do made \"$d\" && rmdir \"$d\" 2>/dev/null; done\nexit 0\n",
        context.lock_check(),
        base = quote(&context.run_dir_root),
        name = quote(&context.name),
    );
    RemoteCommand::from_script("release the lock", script, LOCK_TIMEOUT)
}

/// Whether a lock as found may be taken over: its holder gave no sign of life, or was a process of this laptop that is gone.
pub fn is_lock_stale(lock: &LockRecord, laptop_id: &str, alive: impl Fn(u32) -> bool) -> bool {
    lock.heartbeat_age > STALE_AFTER_SECS || (lock.laptop_id == laptop_id && !alive(lock.pid))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;
    use crate::plan::test_program::write_program;

    fn test_context(base: &std::path::Path) -> HostContext {
        HostContext { lock_token: Some("tok".to_owned()), ..HostContext::new("n", "gpu01", base.display().to_string()) }
    }

    /// Runs it with programs of ours before the host's.
    fn run_with_path(programs: Option<&std::path::Path>, command: &RemoteCommand) -> (Option<i32>, String) {
        let path = std::env::var("PATH").expect("a path");
        let path = programs.map_or(path.clone(), |dir| format!("{}:{path}", dir.display()));
        let out = std::process::Command::new("/bin/sh").args(["-c", &command.script]).env("PATH", path).output().expect("a shell");
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    }

    fn file_mode(path: &std::path::Path) -> u32 {
        path.metadata().expect("it is there").permissions().mode() & 0o7777
    }

    #[test]
    fn lock_only_touches_directories_it_made() {
        let dir = tempfile::tempdir().expect("a folder");
        let text = "tok:1:2:lap:me";
        let both = |base: &std::path::Path| {
            [acquire_lock_command(&test_context(base), text), release_lock_command(&test_context(base))]
                .map(|command| run_with_path(None, &command))
        };
        let new = dir.path().join("new");
        assert_eq!(run_with_path(None, &acquire_lock_command(&test_context(&new), text)).0, Some(0));
        assert_eq!((file_mode(&new) & 0o777, file_mode(&new.join("n")) & 0o777), (0o700, 0o700));
        assert_eq!(run_with_path(None, &release_lock_command(&test_context(&new))).0, Some(0));
        assert!(!new.exists(), "what we made goes");
        // A directory of the person's, shared or not, stays as it is; what is in it is ours alone.
        for before in [0o755, 0o1777, 0o750] {
            let base = dir.path().join(format!("{before:o}"));
            std::fs::create_dir(&base).expect("made");
            std::fs::set_permissions(&base, std::fs::Permissions::from_mode(before)).expect("its mode");
            assert_eq!(run_with_path(None, &acquire_lock_command(&test_context(&base), text)).0, Some(0), "{before:o}");
            assert_eq!((file_mode(&base), file_mode(&base.join("n")) & 0o777), (before, 0o700));
            assert_eq!(run_with_path(None, &release_lock_command(&test_context(&base))).0, Some(0));
            assert!(base.is_dir() && !base.join("n").exists() && file_mode(&base) == before, "{before:o}");
        }
        // A link of the person's leads to where it leads, and stays.
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path().join("755"), &link).expect("a link");
        assert!(both(&link).iter().all(|(code, _)| *code == Some(0)) && link.is_symlink() && dir.path().join("755").is_dir());
        // The person's own folder has the run's name: not made by us, so neither changed nor removed.
        let own = dir.path().join("own");
        std::fs::create_dir_all(own.join("n")).expect("made");
        for path in [&own, &own.join("n")] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).expect("its mode");
        }
        assert!(both(&own).iter().all(|(code, _)| *code == Some(0)) && own.join("n").is_dir() && file_mode(&own.join("n")) == 0o700);
    }

    #[test]
    fn open_directories_of_a_container_that_stays_are_kept() {
        let dir = tempfile::tempdir().expect("a folder");
        let context = test_context(&dir.path().join("new"));
        let keep = std::path::PathBuf::from(format!("{}/keep", context.private_dir()));
        let take_and_release = |while_held: &dyn Fn()| {
            assert_eq!(run_with_path(None, &acquire_lock_command(&context, "tok:1:2:lap:me")).0, Some(0));
            for open in [context.output_dir(), context.input_dir()] {
                std::fs::create_dir_all(open).expect("made");
            }
            while_held();
            assert_eq!(run_with_path(None, &release_lock_command(&context)).0, Some(0));
        };
        take_and_release(&|| std::fs::write(&keep, "").expect("written"));
        assert!(std::path::Path::new(&context.output_dir()).is_dir(), "the container would not see a new one");
        take_and_release(&|| std::fs::remove_file(&keep).expect("removed"));
        assert!(!dir.path().join("new").exists(), "nothing is left");
    }

    #[test]
    fn unsafe_run_dir_is_refused_with_hint() {
        let dir = tempfile::tempdir().expect("a folder");
        let refused = |what: &str, base: &std::path::Path, programs: Option<&std::path::Path>, expected: &str| {
            let (code, text) = run_with_path(programs, &acquire_lock_command(&test_context(base), "tok:1:2:lap:me"));
            assert_eq!(code, Some(73), "{what}: {text}");
            assert!(text.contains(expected) && text.contains(&base.display().to_string()) && text.contains("; help: "), "{what}: {text}");
        };
        let base = dir.path().join("open");
        std::fs::create_dir(&base).expect("made");
        std::fs::set_permissions(&base, std::fs::Permissions::from_mode(0o777)).expect("its mode");
        refused("no sticky bit", &base, None, "any user may rename your directories");
        assert_eq!(file_mode(&base), 0o777);
        // Another user was faster: `n` leads elsewhere, or others may enter it.
        std::fs::set_permissions(&base, std::fs::Permissions::from_mode(0o1777)).expect("its mode");
        let trap = dir.path().join("trap");
        std::fs::create_dir(&trap).expect("made");
        std::os::unix::fs::symlink(&trap, base.join("n")).expect("a link");
        refused("a link in the place of ours", &base, None, "is not a directory of yours");
        assert_eq!(std::fs::read_dir(&trap).expect("a folder").count(), 0);
        std::fs::remove_file(base.join("n")).expect("removed");
        std::fs::create_dir(base.join("n")).expect("made");
        std::fs::set_permissions(base.join("n"), std::fs::Permissions::from_mode(0o755)).expect("its mode");
        refused("what was there before", &base, None, "other users may enter it");
        assert_eq!(file_mode(&base.join("n")), 0o755);
        // As `ls` shows a directory of another user.
        let programs = dir.path().join("bin");
        std::fs::create_dir(&programs).expect("made");
        write_program(&programs.join("ls"), "#!/bin/sh\necho 'drwxr-xr-x 2 4711 4711 0 Jan 1 00:00 x'\n");
        std::fs::remove_dir(base.join("n")).expect("removed");
        refused("of another user", &base, Some(&programs), "belongs to another user (4711)");
    }

    #[test]
    fn heartbeat_is_overwritten_in_place() {
        let base = tempfile::tempdir().expect("a folder");
        let context = test_context(&base.path().join("runs"));
        let beat = base.path().join("runs/n/gpu01.private/lock.beat");
        let run = |command: &RemoteCommand| {
            let out = std::process::Command::new("/bin/sh").args(["-c", &command.script]).output().expect("a shell");
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        };
        // Where there is /proc, the boot's own clock.
        let text = || std::fs::read_to_string(&beat).expect("a beat");
        let second = || text().lines().next().and_then(|l| l.split(' ').next()).and_then(|s| s.parse::<i64>().ok()).expect("a second");
        run(&acquire_lock_command(&context, "tok:1:2:lap:me"));
        let made = beat.metadata().expect("a beat");
        assert_eq!((made.permissions().mode() & 0o777, second() > 1), (0o644, true));
        if cfg!(target_os = "linux") {
            let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot id");
            assert_eq!(text().trim_end().split_once(' ').map(|(_, boot)| boot), Some(boot.trim_end()));
        }
        std::fs::write(&beat, "1\n").expect("written");
        // As on a full disk: no new file, and none that is emptied.
        run(&RemoteCommand::from_script("renew", format!("set -C\n{}", renew_lock_command(&context).script), LOCK_TIMEOUT));
        assert_eq!((beat.metadata().expect("a beat").ino(), second() > 1), (made.ino(), true));
        // A holder that was killed before its first beat: from the first look on.
        std::fs::remove_file(&beat).expect("removed");
        run(&inspect_lock_command(&context));
        assert!(second() > 1);
        // Its holder is replaced: its last heartbeat does not count for the next one.
        let found = LockRecord { token: "tok".to_owned(), owner: "me".to_owned(), laptop_id: "lap".to_owned(), pid: 2, heartbeat_age: 100 };
        run(&break_lock_command(&context, &found));
        assert!(!beat.exists());
    }
}
