//! Incremental index of a log of any size: errors, search matches, filtered lines, and the offset of every thousandth line.
//!
//! Scans backwards from the end, in small steps; memory is bounded.

use std::collections::VecDeque;
use std::io;

use regex::bytes::Regex;

use super::line_filter::{LineFilter, LineOrigin, LogLevel, detect_level};
use super::log_source::{LogSource, MAX_LINE_BYTES, StoredLine};

/// Maximum number of offsets per kind.
const MAX_POSITIONS: usize = 100_000;
/// Initial distance between two index entries, in lines.
const INITIAL_STRIDE: i64 = 1_000;
/// Maximum number of index entries; when reached, every second one is dropped.
const MAX_CHECKPOINTS: usize = 1 << 14;
/// Lines per read.
const LINES_PER_READ: usize = 2_000;

/// Offsets of lines, ascending.
#[derive(Debug, Clone, Default)]
pub(crate) struct LinePositions {
    offsets: VecDeque<u64>,
    /// Older ones were dropped.
    pub truncated: bool,
}

impl LinePositions {
    fn push_newer(&mut self, at: u64) {
        if self.offsets.len() >= MAX_POSITIONS {
            self.offsets.pop_front();
            self.truncated = true;
        }
        self.offsets.push_back(at);
    }

    fn push_older(&mut self, at: u64) {
        if self.offsets.len() >= MAX_POSITIONS {
            self.truncated = true;
        } else {
            self.offsets.push_front(at);
        }
    }

    pub(crate) fn offsets(&self) -> &VecDeque<u64> {
        &self.offsets
    }

    /// Number of offsets before this one.
    pub(crate) fn count_before(&self, offset: u64) -> usize {
        self.offsets.partition_point(|at| *at < offset)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct LineQuery<'a> {
    pub pattern: Option<&'a Regex>,
    pub filter: Option<&'a LineFilter>,
    /// The writer of the log.
    pub origin: LineOrigin<'a>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct LogIndex {
    /// The range scanned so far.
    scanned: Option<(u64, u64)>,
    /// Number of the first and of the next line, relative to where the scan started.
    line_numbers: (i64, i64),
    checkpoints: VecDeque<(u64, i64)>,
    stride: i64,
    /// Lines with an error.
    pub errors: LinePositions,
    /// Lines that match the search.
    pub matches: LinePositions,
    /// Lines that pass the filter.
    pub filtered: LinePositions,
}

impl LogIndex {
    /// Scans about `budget` more bytes, newest first; returns whether the scan is complete.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub(crate) fn scan_more(&mut self, source: &LogSource<'_>, query: LineQuery<'_>, mut budget: u64) -> io::Result<bool> {
        let begin = || Ok::<u64, io::Error>(source.lines_before(u64::MAX, 1)?.first().map_or(0, |line| line.offset));
        let (mut lo, mut hi) = match self.scanned {
            Some((lo, hi)) if hi <= source.len => (lo, hi),
            _ => {
                *self = LogIndex { stride: INITIAL_STRIDE, ..LogIndex::default() };
                let at = begin()?;
                (at, at)
            }
        };
        while budget > 0 && hi < source.len {
            let lines = source.lines_from(hi, LINES_PER_READ)?;
            let mut any = false;
            for line in lines.iter().filter(|line| is_complete_line(line)) {
                self.index_line(line, query, true);
                budget = budget.saturating_sub(line.next_offset - line.offset);
                hi = line.next_offset;
                any = true;
            }
            if !any {
                break;
            }
        }
        while budget > 0 && lo > 0 {
            let lines = source.lines_before(lo, LINES_PER_READ)?;
            let Some(first) = lines.first().map(|line| line.offset).filter(|at| *at < lo) else { break };
            for line in lines.iter().rev() {
                self.index_line(line, query, false);
            }
            budget = budget.saturating_sub(lo - first);
            lo = first;
        }
        self.scanned = Some((lo, hi));
        Ok(lo == 0)
    }

    fn index_line(&mut self, line: &StoredLine, query: LineQuery<'_>, newer: bool) {
        let number = if newer {
            self.line_numbers.1 += 1;
            self.line_numbers.1 - 1
        } else {
            self.line_numbers.0 -= 1;
            self.line_numbers.0
        };
        if number % self.stride == 0 {
            if newer {
                self.checkpoints.push_back((line.offset, number))
            } else {
                self.checkpoints.push_front((line.offset, number))
            }
            if self.checkpoints.len() > MAX_CHECKPOINTS {
                self.stride *= 2;
                let stride = self.stride;
                self.checkpoints.retain(|(_, number)| number % stride == 0);
            }
        }
        let shown = query.filter.is_none_or(|filter| filter.matches(query.origin, &line.bytes));
        if !shown {
            return;
        }
        let add = |places: &mut LinePositions| if newer { places.push_newer(line.offset) } else { places.push_older(line.offset) };
        if query.filter.is_some() {
            add(&mut self.filtered);
        }
        if detect_level(&line.bytes) == LogLevel::Error {
            add(&mut self.errors);
        }
        if query.pattern.is_some_and(|text| text.is_match(&line.bytes)) {
            add(&mut self.matches);
        }
    }

    /// Whether the scan reached the start of the log.
    pub(crate) fn is_complete(&self) -> bool {
        matches!(self.scanned, Some((0, _)))
    }

    /// Whether the scan has started and is not complete.
    pub(crate) fn is_scanning(&self) -> bool {
        matches!(self.scanned, Some((from, _)) if from > 0)
    }

    /// Percentage of the log scanned.
    pub(crate) fn percent_scanned(&self, len: u64) -> u64 {
        self.scanned.map_or(0, |(lo, hi)| (hi - lo).saturating_mul(100).checked_div(len).unwrap_or(100))
    }

    /// Number of the line at this offset, from 1; `None` while the scan is incomplete or outside of the scanned range.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub(crate) fn line_number(&self, source: &LogSource<'_>, offset: u64) -> io::Result<Option<i64>> {
        let Some((0, hi)) = self.scanned else { return Ok(None) };
        if offset > hi {
            return Ok(None);
        }
        let after = self.checkpoints.partition_point(|(at, _)| *at <= offset);
        let (from, number) = after.checked_sub(1).and_then(|at| self.checkpoints.get(at)).copied().unwrap_or((0, self.line_numbers.0));
        let most = usize::try_from(self.stride).unwrap_or(usize::MAX);
        // Distant lines of a very long log are not counted in every frame.
        if most > 4 * LINES_PER_READ {
            return Ok(None);
        }
        let between = source.lines_from(from, most)?.iter().take_while(|line| line.offset < offset).count();
        Ok(Some(number + i64::try_from(between).unwrap_or(0) - self.line_numbers.0 + 1))
    }
}

/// Whether a line is complete, or a piece of an overlong one.
fn is_complete_line(line: &StoredLine) -> bool {
    line.next_offset - line.offset > line.bytes.len() as u64 || line.bytes.len() >= MAX_LINE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::log_source::MemoryLog;
    use crate::tui::log_source::tests::log_source;

    fn sample_log(lines: usize) -> String {
        (0..lines).map(|n| if n % 1000 == 7 { format!("RuntimeError {n}\n") } else { format!("line {n} of it\n") }).collect()
    }

    #[test]
    fn scan_runs_from_end_to_start() {
        let text = MemoryLog(sample_log(10_000).into_bytes());
        let wanted = Regex::new("line 99[0-9]{2} ").expect("a pattern");
        let filter = LineFilter::parse("line").expect("reads");
        let wanted = LineQuery { pattern: Some(&wanted), filter: filter.as_ref(), origin: LineOrigin { rank: None, host: "" } };
        let mut scan = LogIndex::default();
        assert!(!scan.scan_more(&log_source(&text), wanted, 1).expect("read"));
        assert_eq!((scan.filtered.offsets().len(), scan.matches.offsets().len()), (1, 1));
        assert!(!scan.scan_more(&log_source(&text), wanted, 1).expect("read"));
        assert_eq!((scan.filtered.offsets().len(), scan.matches.offsets().len()), (1999, 100), "the newest first");
        while !scan.scan_more(&log_source(&text), wanted, 1).expect("read") {}
        assert_eq!((scan.filtered.offsets().len(), scan.errors.offsets().len(), scan.percent_scanned(text.0.len() as u64)), (9990, 0, 100));
        assert!(scan.filtered.offsets().iter().is_sorted());
        let location = text.0.windows(10).position(|w| w == b"line 5000 ").expect("there") as u64;
        assert_eq!(scan.line_number(&log_source(&text), location).expect("read"), Some(5001));
        assert_eq!(scan.line_number(&log_source(&text), 0).expect("read"), Some(1));
    }

    #[test]
    fn scan_follows_growth_and_restarts_on_shrink() {
        let none = LineQuery { pattern: None, filter: None, origin: LineOrigin { rank: None, host: "" } };
        let mut text = MemoryLog(sample_log(3_000).into_bytes());
        let mut scan = LogIndex::default();
        assert!(scan.scan_more(&log_source(&text), none, u64::MAX).expect("read"));
        assert_eq!(scan.errors.offsets().len(), 3);
        text.0.extend_from_slice(b"ValueError: x\nKeyErr");
        scan.scan_more(&log_source(&text), none, u64::MAX).expect("read");
        assert_eq!(scan.errors.offsets().len(), 4, "a line that is being written is not looked at yet");
        text.0.extend_from_slice(b"or KeyError\n");
        scan.scan_more(&log_source(&text), none, u64::MAX).expect("read");
        assert_eq!(scan.errors.offsets().len(), 5);
        text.0.truncate(100);
        scan.scan_more(&log_source(&text), none, u64::MAX).expect("read");
        assert_eq!((scan.errors.offsets().len(), scan.is_complete()), (0, true));
    }

    #[test]
    fn positions_are_bounded() {
        let mut places = LinePositions::default();
        for n in 0..(MAX_POSITIONS as u64 + 10) {
            places.push_newer(n);
        }
        places.push_older(0);
        assert_eq!((places.offsets().len(), places.truncated, places.offsets()[0]), (MAX_POSITIONS, true, 10));
    }
}
