//! When each part of a log arrived: a substitute for timestamps in logs without them.
//!
//! Bounded: when the points of a log reach the limit, every second one is dropped.

use std::collections::BTreeMap;

use crate::event::{LogFile, UnixMillis};

/// Maximum points per log.
const MAX_POINTS: usize = 1024;
const MAX_LOGS: usize = 1 << 16;

#[derive(Debug, Clone, Default)]
pub struct LogArrivalTimes {
    logs: BTreeMap<(u32, LogFile), LogGrowth>,
}

#[derive(Debug, Clone, Default)]
struct LogGrowth {
    /// Offsets with the time since when they exist.
    points: Vec<(u64, UnixMillis)>,
    /// Points closer together than this are merged, in milliseconds.
    min_interval: i64,
    last_at: UnixMillis,
}

impl LogArrivalTimes {
    /// Records that bytes from `offset` on arrived at this time.
    pub fn record_growth(&mut self, log: (u32, LogFile), offset: u64, at: UnixMillis) {
        if self.logs.len() >= MAX_LOGS && !self.logs.contains_key(&log) {
            return;
        }
        let grown = self.logs.entry(log).or_default();
        grown.last_at = at;
        match grown.points.last() {
            Some((known, since)) if offset <= *known || at - since < grown.min_interval => return,
            _ => {}
        }
        if grown.points.len() >= MAX_POINTS {
            grown.points = grown.points.iter().step_by(2).copied().collect();
            grown.min_interval = (grown.min_interval * 2).max(1_000);
        }
        grown.points.push((offset, at));
    }

    /// The log starts again at offset 0.
    pub fn restart_log(&mut self, log: (u32, LogFile)) {
        self.logs.remove(&log);
    }

    /// When a log last grew.
    pub fn last_output(&self, log: (u32, LogFile)) -> Option<UnixMillis> {
        self.logs.get(&log).map(|grown| grown.last_at)
    }

    /// The host of each log and when it last grew.
    pub fn last_outputs(&self) -> impl Iterator<Item = (u32, UnixMillis)> {
        self.logs.iter().map(|((host, _), grown)| (*host, grown.last_at))
    }

    /// When the byte at this offset arrived, if known.
    pub fn received_at(&self, log: (u32, LogFile), offset: u64) -> Option<UnixMillis> {
        let points = &self.logs.get(&log)?.points;
        let after = points.partition_point(|(known, _)| *known <= offset);
        points.get(after.checked_sub(1)?).map(|(_, at)| *at)
    }

    /// End of the log at that time.
    pub fn offset_at(&self, log: (u32, LogFile), at: UnixMillis) -> Option<u64> {
        let points = &self.logs.get(&log)?.points;
        let after = points.partition_point(|(_, since)| *since < at);
        points.get(after).or_else(|| points.last()).map(|(offset, _)| *offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: (u32, LogFile) = (0, LogFile::Launcher);

    #[test]
    fn offsets_and_times_convert() {
        let mut times = LogArrivalTimes::default();
        for (offset, at) in [(0, 1_000), (100, 2_000), (200, 5_000)] {
            times.record_growth(LOG, offset, at);
        }
        assert_eq!([0, 99, 100, 9_999].map(|offset| times.received_at(LOG, offset)), [Some(1_000), Some(1_000), Some(2_000), Some(5_000)]);
        assert_eq!([0, 2_000, 2_001, 9_000].map(|at| times.offset_at(LOG, at)), [Some(0), Some(100), Some(200), Some(200)]);
        assert_eq!((times.received_at((1, LogFile::Launcher), 0), times.last_output(LOG)), (None, Some(5_000)));
    }

    #[test]
    fn points_are_bounded_and_sorted() {
        let mut times = LogArrivalTimes::default();
        for n in 0..100_000_u64 {
            times.record_growth(LOG, n * 100, i64::try_from(n).expect("small") * 10);
        }
        let points = &times.logs[&LOG].points;
        assert!(points.len() <= MAX_POINTS && points.is_sorted());
        let output = times.received_at(LOG, 5_000_000).expect("known");
        assert!((498_000..=500_000).contains(&output), "{output}: within a second or two of 500000");
    }
}
