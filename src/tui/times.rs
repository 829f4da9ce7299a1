//! When which part of a log came here: the nearest thing to a line's time where lines carry none.
//!
//! Uses `event`. Bounded: a log has at most so many places, and when they are full every second one goes.

use std::collections::BTreeMap;

use crate::event::{LogFile, Millis};

/// Places of one log.
const PLACES: usize = 1024;
/// Logs.
const LOGS: usize = 1 << 16;

/// When each log grew.
#[derive(Debug, Clone, Default)]
pub struct Times {
    logs: BTreeMap<(u32, LogFile), Grown>,
}

#[derive(Debug, Clone, Default)]
struct Grown {
    /// From which place on, since when.
    places: Vec<(u64, Millis)>,
    /// Places closer together than this in time are one.
    every: i64,
    last: Millis,
}

impl Times {
    /// Bytes from `offset` on came at that time.
    pub fn grew(&mut self, log: (u32, LogFile), offset: u64, at: Millis) {
        if self.logs.len() >= LOGS && !self.logs.contains_key(&log) {
            return;
        }
        let grown = self.logs.entry(log).or_default();
        grown.last = at;
        match grown.places.last() {
            Some((known, since)) if offset <= *known || at - since < grown.every => return,
            _ => {}
        }
        if grown.places.len() >= PLACES {
            let mut n = 0;
            grown.places.retain(|_| {
                n += 1;
                n % 2 == 1
            });
            grown.every = (grown.every * 2).max(1_000);
        }
        grown.places.push((offset, at));
    }

    /// A log begins again at its first byte.
    pub fn begin_again(&mut self, log: (u32, LogFile)) {
        self.logs.remove(&log);
    }

    /// When a log last grew.
    pub fn last(&self, log: (u32, LogFile)) -> Option<Millis> {
        self.logs.get(&log).map(|grown| grown.last)
    }

    /// The host of each log, and when it last grew.
    pub fn lasts(&self) -> impl Iterator<Item = (u32, Millis)> {
        self.logs.iter().map(|((host, _), grown)| (*host, grown.last))
    }

    /// When the byte at that place came; none where nothing is known of it.
    pub fn of(&self, log: (u32, LogFile), place: u64) -> Option<Millis> {
        let places = &self.logs.get(&log)?.places;
        let after = places.partition_point(|(offset, _)| *offset <= place);
        places.get(after.checked_sub(1)?).map(|(_, at)| *at)
    }

    /// Where a log stood at that time.
    pub fn place(&self, log: (u32, LogFile), at: Millis) -> Option<u64> {
        let places = &self.logs.get(&log)?.places;
        let after = places.partition_point(|(_, since)| *since < at);
        places.get(after).or_else(|| places.last()).map(|(offset, _)| *offset)
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.logs.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: (u32, LogFile) = (0, LogFile::Node);

    #[test]
    fn places_have_times_and_times_have_places() {
        let mut times = Times::default();
        for (offset, at) in [(0, 1_000), (100, 2_000), (200, 5_000)] {
            times.grew(LOG, offset, at);
        }
        assert_eq!([0, 99, 100, 9_999].map(|place| times.of(LOG, place)), [Some(1_000), Some(1_000), Some(2_000), Some(5_000)]);
        assert_eq!([0, 2_000, 2_001, 9_000].map(|at| times.place(LOG, at)), [Some(0), Some(100), Some(200), Some(200)]);
        assert_eq!((times.of((1, LogFile::Node), 0), times.last(LOG)), (None, Some(5_000)));
    }

    #[test]
    fn they_are_bounded_and_stay_in_order() {
        let mut times = Times::default();
        for n in 0..100_000_u64 {
            times.grew(LOG, n * 100, i64::try_from(n).expect("small") * 10);
        }
        let places = &times.logs[&LOG].places;
        assert!(places.len() <= PLACES && places.is_sorted());
        let told = times.of(LOG, 5_000_000).expect("known");
        assert!((498_000..=500_000).contains(&told), "{told}: within a second or two of 500000");
    }
}
