//! The second fold of the events: which lines of which log mean something. Bounded, whatever the logs hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::advice::Advice;
use crate::event::{Event, EventKind, LogFile, Millis};

use super::matcher::{LINE, Rules};

/// How many logs are looked at.
const FILES: usize = 8_192;
/// How many different rules of one log are remembered.
const HITS: usize = 24;
/// The most bytes of a line that are quoted.
const QUOTED: usize = 600;
/// Hits further apart than so many lines do not belong to one another; the later ones count.
pub(super) const BURST: u64 = 200;

/// A rule that a log's lines met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hit {
    /// Its place in the table.
    pub(super) rule: usize,
    /// The line's number, from 0: of the first one of the last burst.
    pub(super) first: u64,
    /// Of the last one.
    pub(super) last: u64,
    /// When it was learned.
    pub(super) at: Millis,
    /// The first line of the last burst, or the first one of it that names something.
    pub(super) text: String,
    /// What its groups matched.
    pub(super) groups: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    next: u64,
    /// The line that has no end yet.
    carry: Vec<u8>,
    pub(super) lines: u64,
    pub(super) hits: Vec<Hit>,
}

/// What the logs gave away.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    rules: Option<Arc<Rules>>,
    files: BTreeMap<(u32, LogFile), Seen>,
    hosts: BTreeMap<u32, Vec<Hit>>,
    advice: Advice,
}

impl Evidence {
    /// Nothing yet; by these rules.
    pub fn new(rules: Arc<Rules>) -> Self {
        Evidence { rules: Some(rules), ..Evidence::default() }
    }

    /// By the program's own rules.
    pub fn built_in() -> Self {
        Evidence { rules: Rules::built_in(), ..Evidence::default() }
    }

    /// Writes commands as this operation's person has to type them.
    #[must_use]
    pub fn advising(self, advice: Advice) -> Self {
        Evidence { advice, ..self }
    }

    /// What makes an advised command complete.
    pub fn advice(&self) -> &Advice {
        &self.advice
    }

    /// Forgets what was seen; the rules stay.
    pub fn clear(&mut self) {
        self.files.clear();
        self.hosts.clear();
    }

    /// Takes an event.
    pub fn apply(&mut self, event: &Event) {
        let Some(rules) = self.rules.clone() else { return };
        match &event.kind {
            EventKind::Log { host, file, offset, bytes, .. } => {
                if self.files.len() >= FILES && !self.files.contains_key(&(*host, *file)) {
                    return;
                }
                self.files.entry((*host, *file)).or_default().push(&rules, *offset, bytes, event.at);
            }
            EventKind::LogShrunk { host, file, .. } => {
                self.finish(&rules, *host, *file, event.at);
                if let Some(seen) = self.files.get_mut(&(*host, *file)) {
                    seen.next = 0;
                }
            }
            EventKind::NodeExited { host, .. } => self.finish(&rules, *host, LogFile::Node, event.at),
            EventKind::RankExited { host, rank, restart, .. } => {
                self.finish(&rules, *host, LogFile::Rank { rank: *rank, restart: *restart }, event.at);
            }
            EventKind::Aftermath { host, lines } if self.hosts.len() < FILES => {
                let mut seen = Seen::default();
                for line in lines {
                    seen.line(&rules, line.as_bytes(), event.at);
                    seen.lines += 1;
                }
                self.hosts.insert(*host, seen.hits);
            }
            // A new attempt writes new logs.
            EventKind::RunStarted(info) if info.attempt > 1 && !info.ranks.is_empty() && info.command != "down" => self.clear(),
            _ => {}
        }
    }

    fn finish(&mut self, rules: &Rules, host: u32, file: LogFile, at: Millis) {
        if let Some(seen) = self.files.get_mut(&(host, file)) {
            let line = std::mem::take(&mut seen.carry);
            seen.line(rules, &line, at);
        }
    }

    /// Names of the rules that a line has met so far.
    pub fn met(&self) -> Vec<String> {
        let Some(rules) = &self.rules else { return Vec::new() };
        let mut met: Vec<String> = self.files.values().flat_map(|seen| &seen.hits).map(|hit| rules.all()[hit.rule].id.clone()).collect();
        met.sort();
        met.dedup();
        met
    }

    pub(super) fn rules(&self) -> Option<&Rules> {
        self.rules.as_deref()
    }

    /// What a host said after a failure.
    pub(super) fn host(&self, host: u32) -> &[Hit] {
        self.hosts.get(&host).map_or(&[], Vec::as_slice)
    }

    pub(super) fn of(&self, host: u32, file: LogFile) -> Option<&Seen> {
        self.files.get(&(host, file))
    }
}

impl Seen {
    /// Takes the bytes at `offset`; what was seen before is not looked at twice.
    fn push(&mut self, rules: &Rules, offset: u64, bytes: &[u8], at: Millis) {
        let end = offset.saturating_add(bytes.len() as u64);
        if end <= self.next {
            return;
        }
        if offset > self.next {
            self.carry.clear();
        }
        let seen = usize::try_from(self.next.saturating_sub(offset)).unwrap_or(usize::MAX).min(bytes.len());
        self.next = end;
        let mut bytes = &bytes[seen..];
        if !self.carry.is_empty() {
            let end = memchr::memchr2(b'\n', b'\r', bytes);
            self.keep(&bytes[..end.unwrap_or(bytes.len())]);
            let Some(end) = end else { return };
            let line = std::mem::take(&mut self.carry);
            self.line(rules, &line, at);
            bytes = &bytes[end..];
        }
        let whole = memchr::memrchr2(b'\n', b'\r', bytes).map_or(0, |at| at + 1);
        let (text, rest) = bytes.split_at(whole);
        let (mut told, mut counted) = (Vec::new(), 0);
        rules.likely(text, |from, to| told.push((from, to)));
        for (from, to) in told {
            self.lines += newlines(&text[counted..from]);
            counted = from;
            self.line(rules, &text[from..to], at);
        }
        self.lines += newlines(&text[counted..]);
        self.keep(rest);
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = LINE.saturating_sub(self.carry.len()).min(bytes.len());
        self.carry.extend_from_slice(&bytes[..room]);
    }

    fn line(&mut self, rules: &Rules, line: &[u8], at: Millis) {
        let Some((rule, groups)) = rules.line(line) else { return };
        let number = self.lines;
        let quoted = String::from_utf8_lossy(&line[..line.len().min(QUOTED)]).into_owned();
        match self.hits.iter_mut().find(|hit| hit.rule == rule) {
            Some(hit) if number <= hit.last + BURST => {
                hit.last = number;
                if blank(&hit.groups) && !blank(&groups) {
                    (hit.text, hit.groups) = (quoted, groups);
                }
            }
            Some(hit) => *hit = Hit { rule, first: number, last: number, at, text: quoted, groups },
            None => {
                if self.hits.len() >= HITS {
                    self.hits.remove(0);
                }
                self.hits.push(Hit { rule, first: number, last: number, at, text: quoted, groups });
            }
        }
    }
}

/// Whether nothing is named.
fn blank(groups: &BTreeMap<String, String>) -> bool {
    groups.values().all(String::is_empty)
}

fn newlines(text: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', text).count() as u64
}
