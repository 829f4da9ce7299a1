//! The reserve of the laptop's disk that log copies leave free for the journal, the report and other programs.
//!
//! Free space is read once per budget of bytes, not at every write.

use std::io;
use std::path::Path;

/// The maximum reserve; disks below 25 GiB reserve one percent.
const MAX_RESERVE_BYTES: u64 = 256 << 20;
/// The maximum written before free space is read again, since other programs write too.
const RECHECK_BYTES: u64 = 4 << 20;
/// What must be free beyond the reserve before copying resumes; with less it would stop again immediately.
const RESUME_BYTES: u64 = 256 << 10;

/// Returns the free and total bytes of a directory's disk.
type DiskSpaceFn = fn(&Path) -> io::Result<(u64, u64)>;

/// A write would use the reserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DiskFull {
    pub(super) free: u64,
    pub(super) reserved: u64,
}

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

fn reserved_bytes(total: u64) -> u64 {
    (total / 100).min(MAX_RESERVE_BYTES)
}

impl DiskReserve {
    /// Takes `bytes` from the budget; refused if the write would use the reserve. If free space cannot be read, writes are allowed.
    pub(super) fn try_take(&mut self, dir: &Path, bytes: u64) -> Result<(), DiskFull> {
        if let Some(left) = self.budget.checked_sub(bytes) {
            self.budget = left;
            return Ok(());
        }
        self.budget = 0;
        let Ok((free, total)) = (self.disk_space)(dir) else { return Ok(()) };
        let reserved = reserved_bytes(total);
        let Some(rest) = free.checked_sub(reserved.saturating_add(bytes)) else { return Err(DiskFull { free, reserved }) };
        self.budget = (rest / 2).min(RECHECK_BYTES);
        Ok(())
    }

    /// Whether copying can resume.
    pub(super) fn has_space(&mut self, dir: &Path) -> bool {
        self.budget = 0;
        (self.disk_space)(dir).is_ok_and(|(free, total)| free >= 2 * reserved_bytes(total) + RESUME_BYTES)
    }
}

fn read_disk_space(dir: &Path) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::statvfs(dir)?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Ok((bytes(stat.f_bavail), bytes(stat.f_blocks)))
}

/// `12 KiB`, `300 MiB`.
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
        // A small disk reserves one percent and is checked again after half of the rest.
        let mut reserve = DiskReserve { disk_space: small_disk, budget: 0 };
        assert_eq!(reserve.try_take(dir, 1000), Ok(()));
        assert_eq!(reserve.budget, ((1 << 20) - (1 << 20) / 100 - 1000) / 2);
        assert!(reserve.try_take(dir, 1_039_000).is_err() && reserve.has_space(dir));
        assert_eq!((reserved_bytes(10 << 30), reserved_bytes(100 << 30)), ((10 << 30) / 100, 256 << 20));
    }
}
