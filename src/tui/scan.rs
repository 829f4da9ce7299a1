//! What a log of any size holds, found piece by piece: where its errors, hits and filtered lines are, and where every thousandth line begins.
//!
//! Uses `pager` and `filter`. It begins at the end, which a person looks at first, and works backwards while there is time; memory is bounded.

use std::collections::VecDeque;
use std::io;

use regex::bytes::Regex;

use super::filter::{Filter, Level, Writer, level};
use super::pager::{Line, PIECE, Source};

/// How many places of one kind are kept.
const PLACES: usize = 100_000;
/// How many lines lie between two places of the index at first.
const STRIDE: i64 = 1_000;
/// How many places the index has; when they are full every second one goes.
const INDEX: usize = 1 << 14;
/// How many lines are read at once.
const BATCH: usize = 2_000;

/// Places of lines, the first one first.
#[derive(Debug, Clone, Default)]
pub struct Places {
    at: VecDeque<u64>,
    /// Older ones were left out.
    pub cut: bool,
}

impl Places {
    fn newer(&mut self, at: u64) {
        if self.at.len() >= PLACES {
            self.at.pop_front();
            self.cut = true;
        }
        self.at.push_back(at);
    }

    fn older(&mut self, at: u64) {
        if self.at.len() >= PLACES {
            self.cut = true;
        } else {
            self.at.push_front(at);
        }
    }

    /// All.
    pub fn all(&self) -> &VecDeque<u64> {
        &self.at
    }

    /// How many lie before that place.
    pub fn before(&self, place: u64) -> usize {
        self.at.partition_point(|at| *at < place)
    }
}

/// What is looked for.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    /// A text.
    pub text: Option<&'a Regex>,
    /// What is shown.
    pub filter: Option<&'a Filter>,
    /// Whose log it is.
    pub writer: Writer<'a>,
}

/// What was found so far.
#[derive(Debug, Clone, Default)]
pub struct Scan {
    /// The part that was looked at.
    range: Option<(u64, u64)>,
    /// The number of the first and of the next line, counted from where it began.
    lines: (i64, i64),
    index: VecDeque<(u64, i64)>,
    stride: i64,
    /// Lines that say that something is wrong.
    pub errors: Places,
    /// Lines that have what is looked for.
    pub hits: Places,
    /// Lines that the filter keeps.
    pub kept: Places,
}

impl Scan {
    /// Looks at about `budget` bytes more, the newest first. Whether all was looked at.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn step(&mut self, source: &Source<'_>, wanted: Wanted<'_>, mut budget: u64) -> io::Result<bool> {
        let begin = || Ok::<u64, io::Error>(source.before(u64::MAX, 1)?.first().map_or(0, |line| line.at));
        let (mut lo, mut hi) = match self.range {
            Some((lo, hi)) if hi <= source.len => (lo, hi),
            _ => {
                *self = Scan { stride: STRIDE, ..Scan::default() };
                let at = begin()?;
                (at, at)
            }
        };
        while budget > 0 && hi < source.len {
            let lines = source.after(hi, BATCH)?;
            let mut any = false;
            for line in lines.iter().filter(|line| ended(line)) {
                self.note(line, wanted, true);
                budget = budget.saturating_sub(line.next - line.at);
                hi = line.next;
                any = true;
            }
            if !any {
                break;
            }
        }
        while budget > 0 && lo > 0 {
            let lines = source.before(lo, BATCH)?;
            let Some(first) = lines.first().map(|line| line.at).filter(|at| *at < lo) else { break };
            for line in lines.iter().rev() {
                self.note(line, wanted, false);
            }
            budget = budget.saturating_sub(lo - first);
            lo = first;
        }
        self.range = Some((lo, hi));
        Ok(lo == 0)
    }

    fn note(&mut self, line: &Line, wanted: Wanted<'_>, newer: bool) {
        let number = if newer {
            self.lines.1 += 1;
            self.lines.1 - 1
        } else {
            self.lines.0 -= 1;
            self.lines.0
        };
        if number % self.stride == 0 {
            if newer {
                self.index.push_back((line.at, number))
            } else {
                self.index.push_front((line.at, number))
            }
            if self.index.len() > INDEX {
                self.stride *= 2;
                let stride = self.stride;
                self.index.retain(|(_, number)| number % stride == 0);
            }
        }
        let shown = wanted.filter.is_none_or(|filter| filter.keeps(wanted.writer, &line.bytes));
        if !shown {
            return;
        }
        let add = |places: &mut Places| if newer { places.newer(line.at) } else { places.older(line.at) };
        if wanted.filter.is_some() {
            add(&mut self.kept);
        }
        if level(&line.bytes) == Level::Error {
            add(&mut self.errors);
        }
        if wanted.text.is_some_and(|text| text.is_match(&line.bytes)) {
            add(&mut self.hits);
        }
    }

    /// Whether the beginning was reached.
    pub fn whole(&self) -> bool {
        matches!(self.range, Some((0, _)))
    }

    /// Whether it was begun and its beginning was not reached.
    pub fn behind(&self) -> bool {
        matches!(self.range, Some((from, _)) if from > 0)
    }

    /// How many percent of the log were looked at.
    pub fn percent(&self, len: u64) -> u64 {
        self.range.map_or(0, |(lo, hi)| (hi - lo).saturating_mul(100).checked_div(len).unwrap_or(100))
    }

    /// The number of the line that begins there, from 1 on; none while the beginning was not reached, or where the place is not in what was looked at.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn number(&self, source: &Source<'_>, place: u64) -> io::Result<Option<i64>> {
        let Some((0, hi)) = self.range else { return Ok(None) };
        if place > hi {
            return Ok(None);
        }
        let after = self.index.partition_point(|(at, _)| *at <= place);
        let (from, number) = after.checked_sub(1).and_then(|at| self.index.get(at)).copied().unwrap_or((0, self.lines.0));
        let most = usize::try_from(self.stride).unwrap_or(usize::MAX);
        // Far apart lines of a very long log are not counted at each frame.
        if most > 4 * BATCH {
            return Ok(None);
        }
        let between = source.after(from, most)?.iter().take_while(|line| line.at < place).count();
        Ok(Some(number + i64::try_from(between).unwrap_or(0) - self.lines.0 + 1))
    }
}

/// Whether a line has its end, or is a piece of one without.
fn ended(line: &Line) -> bool {
    line.next - line.at > line.bytes.len() as u64 || line.bytes.len() >= PIECE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::LogFile;
    use crate::tui::pager::tests::Text;

    fn source(text: &Text) -> Source<'_> {
        Source { stored: text, host: 0, name: "", file: LogFile::Node, len: text.0.len() as u64 }
    }

    fn log(lines: usize) -> String {
        (0..lines).map(|n| if n % 1000 == 7 { format!("RuntimeError {n}\n") } else { format!("line {n} of it\n") }).collect()
    }

    #[test]
    fn it_begins_at_the_end_and_reaches_the_beginning_in_steps() {
        let text = Text(log(10_000).into_bytes());
        let wanted = Regex::new("line 99[0-9]{2} ").expect("a pattern");
        let filter = Filter::parse("line").expect("reads");
        let wanted = Wanted { text: Some(&wanted), filter: filter.as_ref(), writer: Writer { rank: None, host: "" } };
        let mut scan = Scan::default();
        assert!(!scan.step(&source(&text), wanted, 1).expect("read"));
        assert_eq!((scan.kept.all().len(), scan.hits.all().len()), (1, 1));
        assert!(!scan.step(&source(&text), wanted, 1).expect("read"));
        assert_eq!((scan.kept.all().len(), scan.hits.all().len()), (1999, 100), "the newest first");
        while !scan.step(&source(&text), wanted, 1).expect("read") {}
        assert_eq!((scan.kept.all().len(), scan.errors.all().len(), scan.percent(text.0.len() as u64)), (9990, 0, 100));
        assert!(scan.kept.all().iter().is_sorted());
        let place = text.0.windows(10).position(|w| w == b"line 5000 ").expect("there") as u64;
        assert_eq!(scan.number(&source(&text), place).expect("read"), Some(5001));
        assert_eq!(scan.number(&source(&text), 0).expect("read"), Some(1));
    }

    #[test]
    fn it_goes_on_where_the_log_grows_and_anew_where_it_shrinks() {
        let none = Wanted { text: None, filter: None, writer: Writer { rank: None, host: "" } };
        let mut text = Text(log(3_000).into_bytes());
        let mut scan = Scan::default();
        assert!(scan.step(&source(&text), none, u64::MAX).expect("read"));
        assert_eq!(scan.errors.all().len(), 3);
        text.0.extend_from_slice(b"ValueError: x\nKeyErr");
        scan.step(&source(&text), none, u64::MAX).expect("read");
        assert_eq!(scan.errors.all().len(), 4, "a line that is being written is not looked at yet");
        text.0.extend_from_slice(b"or KeyError\n");
        scan.step(&source(&text), none, u64::MAX).expect("read");
        assert_eq!(scan.errors.all().len(), 5);
        text.0.truncate(100);
        scan.step(&source(&text), none, u64::MAX).expect("read");
        assert_eq!((scan.errors.all().len(), scan.whole()), (0, true));
    }

    #[test]
    fn memory_is_bounded() {
        let mut places = Places::default();
        for n in 0..(PLACES as u64 + 10) {
            places.newer(n);
        }
        places.older(0);
        assert_eq!((places.all().len(), places.cut, places.all()[0]), (PLACES, true, 10));
    }
}
