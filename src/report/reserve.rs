//! What the copies of logs leave free of the laptop's disk, for the journal, the report and everybody else's programs.
//!
//! Uses nothing. Looks at the disk once for some bytes, not at every write.

use std::io;
use std::path::Path;

/// The most that stays free; of a disk that is smaller than 25 GiB, a hundredth.
const MOST: u64 = 256 << 20;
/// How much is written, at most, before it is looked again: others write there too.
const STEP: u64 = 4 << 20;
/// What has to be free beside the reserve before copies go on: less would stop them again at once.
const START: u64 = 256 << 10;

/// Free and total bytes of the disk of a folder.
type Look = fn(&Path) -> io::Result<(u64, u64)>;

/// Too little is free: how much is, and how much stays so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full {
    pub(super) free: u64,
    pub(super) keep: u64,
}

/// Counts what may still be written.
#[derive(Debug)]
pub(super) struct Reserve {
    look: Look,
    left: u64,
}

impl Default for Reserve {
    fn default() -> Self {
        Reserve { look: disk, left: 0 }
    }
}

/// How much of a disk stays free.
fn kept(total: u64) -> u64 {
    (total / 100).min(MOST)
}

impl Reserve {
    /// Takes what is to be written in this folder; refused when too little would be free then. A disk that does not say is written to.
    pub(super) fn take(&mut self, dir: &Path, bytes: u64) -> Result<(), Full> {
        if let Some(left) = self.left.checked_sub(bytes) {
            self.left = left;
            return Ok(());
        }
        self.left = 0;
        let Ok((free, total)) = (self.look)(dir) else { return Ok(()) };
        let keep = kept(total);
        let Some(over) = free.checked_sub(keep.saturating_add(bytes)) else { return Err(Full { free, keep }) };
        self.left = (over / 2).min(STEP);
        Ok(())
    }

    /// Whether there is room again, and some to begin with.
    pub(super) fn room(&mut self, dir: &Path) -> bool {
        self.left = 0;
        (self.look)(dir).is_ok_and(|(free, total)| free >= 2 * kept(total) + START)
    }
}

fn disk(dir: &Path) -> io::Result<(u64, u64)> {
    let told = rustix::fs::statvfs(dir)?;
    let bytes = |blocks: u64| blocks.saturating_mul(told.f_frsize);
    Ok((bytes(told.f_bavail), bytes(told.f_blocks)))
}

/// A number of bytes for people.
pub(super) fn size(bytes: u64) -> String {
    if bytes >= 1 << 20 { format!("{} MiB", bytes >> 20) } else { format!("{} KiB", bytes >> 10) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nearly_full(_: &Path) -> io::Result<(u64, u64)> {
        Ok(((256 << 20) + 100, 1 << 40))
    }

    fn small(_: &Path) -> io::Result<(u64, u64)> {
        Ok((1 << 20, 1 << 20))
    }

    #[test]
    fn a_reserve_stays_free() {
        let dir = Path::new("/");
        let mut reserve = Reserve { look: nearly_full, left: 0 };
        assert_eq!(reserve.take(dir, 100), Ok(()));
        assert_eq!(reserve.take(dir, 101), Err(Full { free: (256 << 20) + 100, keep: 256 << 20 }));
        assert!(!reserve.room(dir));
        // A small disk keeps a hundredth, and is looked at before half of what is left is written.
        let mut reserve = Reserve { look: small, left: 0 };
        assert_eq!(reserve.take(dir, 1000), Ok(()));
        assert_eq!(reserve.left, ((1 << 20) - (1 << 20) / 100 - 1000) / 2);
        assert!(reserve.take(dir, 1_039_000).is_err() && reserve.room(dir));
        assert_eq!((kept(10 << 30), kept(100 << 30)), ((10 << 30) / 100, 256 << 20));
    }
}
