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

/// How long a lock script may take.
const DEADLINE: Duration = Duration::from_secs(20);

/// Takes the lock, and prints which run is there now; prints the holder's text and ends with [`HELD`] when it is taken. The directories above it
/// are made here, by the ssh user; who gives a lock back removes them, so it is tried more than once.
pub fn take(site: &Site, text: &str) -> Command {
    let script = format!(
        "{}for i in 1 2 3; do\n\
         mkdir -p {base} && chmod 700 {base} && mkdir -p \"$H\" && chmod 777 {base}/{name} \"$H\"\n\
         ln -s {text} \"$H/lock\" 2>/dev/null\n\
         l=$(readlink \"$H/lock\") && break\n\
         done\n\
         [ -n \"$l\" ] || exit 73\n\
         if [ \"$l\" = {text} ]; then date +%s >\"$H/lock.beat\"; cat \"$H/current\" 2>/dev/null; exit 0; fi\n\
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
        "{}printf 'now %s\\n' \"$(date +%s)\"\nl=$(readlink \"$H/lock\") && printf 'lock %s\\n' \"$l\"\n\
         b=0; {{ read -r b <\"$H/lock.beat\"; }} 2>/dev/null; printf 'lock_beat %s\\n' \"$b\"\n",
        site.preamble()
    );
    Command::sh("look at the lock", script, DEADLINE)
}

/// Puts another's lock aside, if it is still the one that was judged; taking it is the next step.
pub fn put_aside(site: &Site, found: &Lock) -> Command {
    let script = format!(
        "{}case $(readlink \"$H/lock\") in {token}:*) mv -f \"$H/lock\" \"$H/lock.old.$$\" && rm -f \"$H/lock.old.$$\" ;; esac\n",
        site.preamble(),
        token = quote(&found.token),
    );
    Command::sh("take over the lock", script, DEADLINE)
}

/// Shows that the holder lives; ends with 75 when the lock is no longer ours.
pub fn renew(site: &Site) -> Command {
    Command::sh("renew the lock", format!("{}date +%s >\"$H/lock.beat\"\n", site.guard()), DEADLINE)
}

/// Gives the lock back; what is empty then goes.
pub fn release(site: &Site) -> Command {
    let script = format!(
        "{}rm -f \"$H/lock.beat\" \"$H/lock\"\nrmdir \"$H\" {base}/{name} {base} 2>/dev/null\nexit 0\n",
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
