//! What the copies of logs leave free of the laptop's disk, for the journal, the report and everybody else's programs.
//!
//! Uses nothing. Looks at the disk once for some bytes, not at every write.

use std::io;
use std::path::Path;

/// The most that stays free; of a disk that is smaller than 25 GiB, a hundredth.
const MAX_RESERVE_BYTES: u64 = 256 << 20;
/// How much is written, at most, before it is looked again: others write there too.
const RECHECK_BYTES: u64 = 4 << 20;
/// What has to be free beside the reserve before copies go on: less would stop them again at once.
const RESUME_BYTES: u64 = 256 << 10;

/// Free and total bytes of the disk of a folder.
type DiskSpaceFn = fn(&Path) -> io::Result<(u64, u64)>;

/// Too little is free: how much is, and how much stays so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DiskFull {
    pub(super) free: u64,
    pub(super) reserved: u64,
}

/// Counts what may still be written.
#[derive(Debug)]
pub(super) struct DiskReserve {
    disk_space: DiskSpaceFn,
    budget: u64,
}

impl Default for DiskReserve {
    fn default() -> Self {
        DiskReserve { disk_space: read_disk_space, budget: 0 }
    }
}

/// How much of a disk stays free.
fn reserved_bytes(total: u64) -> u64 {
    (total / 100).min(MAX_RESERVE_BYTES)
}

impl DiskReserve {
    /// Takes what is to be written in this folder; refused when too little would be free then. A disk that does not say is written to.
    pub(super) fn try_take(&mut self, dir: &Path, bytes: u64) -> Result<(), DiskFull> {
        if let Some(left) = self.budget.checked_sub(bytes) {
            self.budget = left;
            return Ok(());
        }
        self.budget = 0;
        let Ok((free, total)) = (self.disk_space)(dir) else { return Ok(()) };
        let keep = reserved_bytes(total);
        let Some(over) = free.checked_sub(keep.saturating_add(bytes)) else { return Err(DiskFull { free, reserved: keep }) };
        self.budget = (over / 2).min(RECHECK_BYTES);
        Ok(())
    }

    /// Whether there is room again, and some to begin with.
    pub(super) fn has_space(&mut self, dir: &Path) -> bool {
        self.budget = 0;
        (self.disk_space)(dir).is_ok_and(|(free, total)| free >= 2 * reserved_bytes(total) + RESUME_BYTES)
    }
}

fn read_disk_space(dir: &Path) -> io::Result<(u64, u64)> {
    let told = rustix::fs::statvfs(dir)?;
    let bytes = |blocks: u64| blocks.saturating_mul(told.f_frsize);
    Ok((bytes(told.f_bavail), bytes(told.f_blocks)))
}

/// A number of bytes for people.
pub(super) fn format_size(bytes: u64) -> String {
    if bytes >= 1 << 20 { format!("{} MiB", bytes >> 20) } else { format!("{} KiB", bytes >> 10) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nearly_full(_: &Path) -> io::Result<(u64, u64)> {
        Ok(((256 << 20) + 100, 1 << 40))
    }

    fn small_disk(_: &Path) -> io::Result<(u64, u64)> {
        Ok((1 << 20, 1 << 20))
    }

    #[test]
    fn disk_reserve_is_never_used() {
        let dir = Path::new("/");
        let mut reserve = DiskReserve { disk_space: nearly_full, budget: 0 };
        assert_eq!(reserve.try_take(dir, 100), Ok(()));
        assert_eq!(reserve.try_take(dir, 101), Err(DiskFull { free: (256 << 20) + 100, reserved: 256 << 20 }));
        assert!(!reserve.has_space(dir));
        // A small disk keeps a hundredth, and is looked at before half of what is left is written.
        let mut reserve = DiskReserve { disk_space: small_disk, budget: 0 };
        assert_eq!(reserve.try_take(dir, 1000), Ok(()));
        assert_eq!(reserve.budget, ((1 << 20) - (1 << 20) / 100 - 1000) / 2);
        assert!(reserve.try_take(dir, 1_039_000).is_err() && reserve.has_space(dir));
        assert_eq!((reserved_bytes(10 << 30), reserved_bytes(100 << 30)), ((10 << 30) / 100, 256 << 20));
    }
}
