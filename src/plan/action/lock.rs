//! The name's lock: one symbolic link on every host whose text says who holds it, so that making it and signing it is one step.
//!
//! Held only while something is changed. `docs/decisions/` says why a link and not a directory.

use std::time::Duration;

use crate::plan::facts::Lock;
use crate::plan::site::Site;
use crate::shell::{Command, quote};

/// Seconds without a heartbeat after which a lock is nobody's.
pub const STALE: i64 = 30;

/// The script's exit status when another holds the lock.
pub const HELD: i32 = 76;

/// Notes the host's second, and a copy for the keeper, who may be another user. In place, so that it is never found empty, not on a full disk
/// either.
const BEAT: &str = "(umask 022; s=$(date +%s); echo \"$s\" 1<>\"$P/lock.beat\"; echo \"$s\" 1<>\"$IN/beat\")";

/// How long a lock script may take.
const DEADLINE: Duration = Duration::from_secs(20);

/// Takes the lock, and prints which run is there now; prints the holder's text and ends with [`HELD`] when it is taken. The directories above it
/// are made here, by the ssh user; who gives a lock back removes them, so it is tried more than once.
pub fn take(site: &Site, text: &str) -> Command {
    let script = format!(
        "{}directories() {{ mkdir -p \"$IN\" \"$OUT\" && chmod 755 \"$IN\" && chmod 777 \"$OUT\"; }}\n\
         foreign() {{ [ -L \"$1\" ] || {{ [ -e \"$1\" ] && [ ! -O \"$1\" ] && [ -e \"$1\" ]; }}; }}\n\
         for i in 1 2 3 4 5; do\n\
         for d in \"$P\" \"$IN\" \"$OUT\"; do ! foreign \"$d\" || {{ echo \"$d is not a directory of this user\" >&2; exit 73; }}; done\n\
         mkdir -p {base} && chmod 700 {base} && mkdir -p \"$P\" && chmod 755 {base}/{name} && chmod 700 \"$P\"\n\
         ln -s {text} \"$P/lock\" 2>/dev/null\n\
         l=$(readlink \"$P/lock\") && break\n\
         done\n\
         [ -n \"$l\" ] || exit 73\n\
         # Only under the lock: its holder may be removing them.\n\
         if [ \"$l\" = {text} ]; then directories || {{ rm -f \"$P/lock\"; exit 73; }}; {BEAT}; cat \"$P/current\" 2>/dev/null; exit 0; fi\n\
         printf '%s\\n' \"$l\"\n\
         exit {HELD}\n",
        site.preamble(),
        base = quote(&site.base),
        name = quote(&site.name),
        text = quote(text),
    );
    Command::sh("take the lock", script, DEADLINE)
}

/// The lock as it stands, in the words of the facts.
pub fn look(site: &Site) -> Command {
    let script = format!(
        "{}printf 'now %s\\n' \"$(date +%s)\"\nl=$(readlink \"$P/lock\") && printf 'lock %s\\n' \"$l\"\n\
         b=0; {{ read -r b <\"$P/lock.beat\"; }} 2>/dev/null; printf 'lock_beat %s\\n' \"$b\"\n",
        site.preamble()
    );
    Command::sh("look at the lock", script, DEADLINE)
}

/// Puts another's lock aside, if it is still the one that was judged; taking it is the next step. Its last beat goes with it: the next holder
/// would be judged by it until his own. Another may have done both between our look and our move: his lock is put back.
pub fn put_aside(site: &Site, found: &Lock) -> Command {
    let script = format!(
        "{}case $(readlink \"$P/lock\") in {token}:*) ;; *) exit 0 ;; esac\n\
         mv -f \"$P/lock\" \"$P/lock.old.$$\" || exit 0\n\
         l=$(readlink \"$P/lock.old.$$\")\n\
         case $l in {token}:*) rm -f \"$P/lock.beat\" \"$IN/beat\" ;; *) ln -s \"$l\" \"$P/lock\" 2>/dev/null ;; esac\n\
         rm -f \"$P/lock.old.$$\"\n",
        site.preamble(),
        token = quote(&found.token),
    );
    Command::sh("take over the lock", script, DEADLINE)
}

/// Shows that the holder lives; ends with 75 when the lock is no longer ours.
pub fn renew(site: &Site) -> Command {
    Command::sh("renew the lock", format!("{}{BEAT}\n", site.guard()), DEADLINE)
}

/// Gives the lock back; what is empty then goes: the open directories while the lock still holds, since the next holder makes them again.
pub fn release(site: &Site) -> Command {
    let script = format!(
        "{}rm -f \"$IN/beat\"; rmdir \"$OUT\" \"$IN\" 2>/dev/null\nrm -f \"$P/lock.beat\" \"$P/lock\"\nrmdir \"$P\" {base}/{name} {base} 2>/dev/null\nexit 0\n",
        site.guard(),
        base = quote(&site.base),
        name = quote(&site.name),
    );
    Command::sh("release the lock", script, DEADLINE)
}

/// Whether a lock as found may be taken over: its holder gave no sign of life, or was a process of this laptop that is gone.
pub fn is_stale(lock: &Lock, laptop: &str, alive: impl Fn(u32) -> bool) -> bool {
    lock.age > STALE || (lock.laptop == laptop && !alive(lock.pid))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the proof is a real shell")]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    #[test]
    fn a_beat_is_written_over_the_last_one_for_all_to_read() {
        let base = tempfile::tempdir().expect("a folder");
        let site = Site {
            name: "n".to_owned(),
            host: "gpu01".to_owned(),
            run: String::new(),
            base: base.path().join("runs").display().to_string(),
            sudo: false,
            engine: None,
            contained: false,
            token: Some("tok".to_owned()),
            old: false,
            log_max: 0,
            ranks: 0,
        };
        let beat = base.path().join("runs/n/gpu01.private/lock.beat");
        let run = |command: &Command| {
            let out = std::process::Command::new("/bin/sh").args(["-c", &command.script]).output().expect("a shell");
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        };
        let second = || std::fs::read_to_string(&beat).expect("a beat").trim_end().parse::<i64>().expect("a second");
        run(&take(&site, "tok:1:2:lap:me"));
        let made = beat.metadata().expect("a beat");
        assert_eq!((made.permissions().mode() & 0o777, second() > 1_600_000_000), (0o644, true));
        std::fs::write(&beat, "1600000000\n").expect("written");
        // As on a full disk: no new file, and none that is emptied.
        run(&Command::sh("renew", format!("set -C\n{}", renew(&site).script), DEADLINE));
        assert_eq!((beat.metadata().expect("a beat").ino(), second() > 1_600_000_000), (made.ino(), true));
        // Its holder is put aside: what he did last says nothing of the next one.
        let found = Lock { token: "tok".to_owned(), owner: "me".to_owned(), laptop: "lap".to_owned(), pid: 2, age: 100 };
        run(&put_aside(&site, &found));
        assert!(!beat.exists());
    }
}
