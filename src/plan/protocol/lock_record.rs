//! The lock of a host: its text, and the age of its last heartbeat.

use crate::text::width::first_bytes;

/// The lock as found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockRecord {
    /// A random word that identifies its creator.
    pub token: String,
    /// `user@laptop`.
    pub owner: String,
    pub laptop_id: String,
    /// The pid of that `orchestrate`.
    pub pid: u32,
    /// Age of the last heartbeat on the host's own clock, seconds.
    pub heartbeat_age: i64,
}

impl LockRecord {
    /// The lock's text: `token:created:pid:laptop:owner`. The owner's end is cut off where it would be longer than 59 bytes: what ext4 keeps in
    /// the link itself (linux, `fs/ext4/namei.c`), so that a name can be locked, and cleared away, on a full disk.
    pub fn format_link_text(token: &str, created: i64, pid: u32, laptop_id: &str, owner: &str) -> String {
        first_bytes(&format!("{token}:{created}:{pid}:{laptop_id}:{owner}"), 59).to_owned()
    }

    /// Seconds since a beat, on the host's own clock: `<seconds since the boot> <boot id>`, or the wall clock's second where there is no /proc and
    /// of earlier versions. A beat of another boot is at least as old as this boot.
    pub(crate) fn seconds_since_heartbeat(beat: &str, uptime: &str, now: f64) -> Option<i64> {
        let (then, boot) = beat.trim().split_once(' ').unwrap_or((beat.trim(), ""));
        let then: f64 = then.parse().ok().filter(|then| *then > 0.0)?;
        if boot.is_empty() {
            return Some((now - then) as i64);
        }
        let (up, here) = uptime.trim().split_once(' ')?;
        let up: f64 = up.parse().ok()?;
        Some(if here == boot { up - then } else { up } as i64)
    }

    pub(crate) fn parse(value: &str, now: f64) -> Option<LockRecord> {
        let mut parts = value.splitn(5, ':');
        let token = parts.next()?.to_owned();
        let created: f64 = parts.next()?.parse().ok()?;
        let pid = parts.next()?.parse().ok()?;
        let laptop = parts.next()?.to_owned();
        Some(LockRecord {
            token,
            pid,
            laptop_id: laptop,
            owner: parts.next().unwrap_or_default().to_owned(),
            heartbeat_age: (now - created) as i64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_text_fits_into_an_inline_symlink() {
        let text = LockRecord::format_link_text(
            "0123abcd",
            1_795_251_815,
            4_194_304,
            "4567ef01",
            "someone-with-a-long-name-é@workstation.example.org",
        );
        assert!(text.len() <= 59, "{text}");
        let lock = LockRecord::parse(&text, 1_795_251_820.0).expect("a lock");
        assert_eq!((lock.token.as_str(), lock.laptop_id.as_str(), lock.heartbeat_age), ("0123abcd", "4567ef01", 5));
        assert!(lock.owner.starts_with("someone-with-a-long"), "{}", lock.owner);
    }
}
