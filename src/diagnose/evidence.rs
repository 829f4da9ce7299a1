//! The second fold of the events: which lines of which log are evidence. Bounded for any log.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::advice_formatter::AdviceFormatter;
use crate::event::{Event, EventKind, LogFile};
use crate::state::log_lines::unseen;

use super::rule_set::{MAX_LINE_BYTES, RuleSet};

/// How many logs are looked at.
const MAX_LOGS: usize = 8_192;
/// How many different rules of one log are remembered.
const MAX_HITS_PER_LOG: usize = 24;
/// The most bytes of a line that are quoted.
const MAX_QUOTED_BYTES: usize = 600;
/// Hits that are more lines apart than this are unrelated; the later ones count.
pub(super) const MAX_BURST_GAP: u64 = 200;

/// A rule that a log's lines met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RuleHit {
    /// Its place in the table.
    pub(super) rule_index: usize,
    /// The line's number, from 0: of the first one of the last burst.
    pub(super) first_line: u64,
    /// Of the last one.
    pub(super) last_line: u64,
    /// The first line of the last burst, or the first one of it that names something.
    pub(super) text: String,
    /// What its groups matched.
    pub(super) groups: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct LogScan {
    next_offset: u64,
    /// The line that has no end yet.
    partial_line: Vec<u8>,
    pub(super) line_count: u64,
    pub(super) hits: Vec<RuleHit>,
}

/// Most commands read no log: the built-in rules are parsed when a line is first matched.
#[derive(Debug, Clone, Default)]
enum RuleSource {
    #[default]
    None,
    BuiltIn,
    Given(Arc<RuleSet>),
}

impl RuleSource {
    fn rules(&self) -> Option<&RuleSet> {
        match self {
            RuleSource::None => None,
            RuleSource::BuiltIn => RuleSet::built_in(),
            RuleSource::Given(rules) => Some(rules),
        }
    }
}

/// What the logs gave away; by default of no rules, so that no line is looked at.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    rules: RuleSource,
    log_scans: BTreeMap<(u32, LogFile), LogScan>,
    postmortem_hits: BTreeMap<u32, Vec<RuleHit>>,
    advice_formatter: AdviceFormatter,
}

impl Evidence {
    /// Nothing yet; by these rules.
    pub fn new(rules: Arc<RuleSet>) -> Self {
        Evidence { rules: RuleSource::Given(rules), ..Evidence::default() }
    }

    /// By the program's own rules.
    pub fn with_built_in_rules() -> Self {
        Evidence { rules: RuleSource::BuiltIn, ..Evidence::default() }
    }

    /// Writes commands as this operation's person has to type them.
    #[must_use]
    pub fn with_advice_formatter(self, advice: AdviceFormatter) -> Self {
        Evidence { advice_formatter: advice, ..self }
    }

    /// Whether lines are looked at.
    pub(crate) fn has_rules(&self) -> bool {
        !matches!(self.rules, RuleSource::None)
    }

    /// What makes an advised command complete.
    pub fn advice_formatter(&self) -> &AdviceFormatter {
        &self.advice_formatter
    }

    /// Forgets what was seen; the rules stay.
    pub fn clear(&mut self) {
        self.log_scans.clear();
        self.postmortem_hits.clear();
    }

    pub fn apply(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Log { host, file, offset, bytes, .. } => {
                let Some(rules) = self.rules.rules() else { return };
                if self.log_scans.len() >= MAX_LOGS && !self.log_scans.contains_key(&(*host, *file)) {
                    return;
                }
                self.log_scans.entry((*host, *file)).or_default().scan_bytes(rules, *offset, bytes);
            }
            EventKind::LogTruncated { host, file, .. } => {
                self.finish_partial_line(*host, *file);
                if let Some(seen) = self.log_scans.get_mut(&(*host, *file)) {
                    seen.next_offset = 0;
                }
            }
            EventKind::LauncherExited { host, .. } => self.finish_partial_line(*host, LogFile::Launcher),
            EventKind::RankExited { host, rank, restart, .. } => {
                self.finish_partial_line(*host, LogFile::Rank { rank: *rank, restart: *restart });
            }
            EventKind::Postmortem { host, lines } if self.postmortem_hits.len() < MAX_LOGS => {
                let Some(rules) = self.rules.rules() else { return };
                let mut seen = LogScan::default();
                for line in lines {
                    seen.scan_line(rules, line.as_bytes());
                    seen.line_count += 1;
                }
                self.postmortem_hits.insert(*host, seen.hits);
            }
            // Another launch begins, whose logs have the same names. With a run id it is the plan of a run whose evidence may be here already.
            EventKind::RunStarted(info) if info.attempt > 1 && info.run_id.is_empty() => self.clear(),
            _ => {}
        }
    }

    fn finish_partial_line(&mut self, host: u32, file: LogFile) {
        if let Some(seen) = self.log_scans.get_mut(&(host, file))
            && let Some(rules) = self.rules.rules()
        {
            let line = std::mem::take(&mut seen.partial_line);
            seen.scan_line(rules, &line);
        }
    }

    /// Names of the rules that a line has met so far.
    pub fn matched_rule_ids(&self) -> Vec<String> {
        let Some(rules) = self.rules.rules() else { return Vec::new() };
        let mut met: Vec<String> =
            self.log_scans.values().flat_map(|seen| &seen.hits).map(|hit| rules.rules()[hit.rule_index].id.clone()).collect();
        met.sort();
        met.dedup();
        met
    }

    pub(super) fn rules(&self) -> Option<&RuleSet> {
        self.rules.rules()
    }

    /// A host's post-mortem lines after a failure.
    pub(super) fn postmortem_hits(&self, host: u32) -> &[RuleHit] {
        self.postmortem_hits.get(&host).map_or(&[], Vec::as_slice)
    }

    pub(super) fn log_scan(&self, host: u32, file: LogFile) -> Option<&LogScan> {
        self.log_scans.get(&(host, file))
    }
}

impl LogScan {
    /// Takes the bytes at `offset`; what was seen before is not looked at twice.
    fn scan_bytes(&mut self, rules: &RuleSet, offset: u64, bytes: &[u8]) {
        let end = offset.saturating_add(bytes.len() as u64);
        if end <= self.next_offset {
            return;
        }
        if offset > self.next_offset {
            self.partial_line.clear();
        }
        let mut bytes = unseen(self.next_offset, offset, bytes);
        self.next_offset = end;
        if !self.partial_line.is_empty() {
            let end = memchr::memchr2(b'\n', b'\r', bytes);
            self.append_partial_line(&bytes[..end.unwrap_or(bytes.len())]);
            let Some(end) = end else { return };
            let line = std::mem::take(&mut self.partial_line);
            self.scan_line(rules, &line);
            bytes = &bytes[end..];
        }
        let whole = memchr::memrchr2(b'\n', b'\r', bytes).map_or(0, |at| at + 1);
        let (text, rest) = bytes.split_at(whole);
        let (mut reported, mut counted) = (Vec::new(), 0);
        rules.for_each_candidate_line(text, |from, to| reported.push((from, to)));
        for (from, to) in reported {
            self.line_count += count_newlines(&text[counted..from]);
            counted = from;
            self.scan_line(rules, &text[from..to]);
        }
        self.line_count += count_newlines(&text[counted..]);
        self.append_partial_line(rest);
    }

    fn append_partial_line(&mut self, bytes: &[u8]) {
        let room = MAX_LINE_BYTES.saturating_sub(self.partial_line.len()).min(bytes.len());
        self.partial_line.extend_from_slice(&bytes[..room]);
    }

    fn scan_line(&mut self, rules: &RuleSet, line: &[u8]) {
        let Some((rule, groups)) = rules.match_line(line) else { return };
        let number = self.line_count;
        let text = String::from_utf8_lossy(&line[..line.len().min(MAX_QUOTED_BYTES)]).into_owned();
        let new = RuleHit { rule_index: rule, first_line: number, last_line: number, text, groups };
        match self.hits.iter_mut().find(|hit| hit.rule_index == rule) {
            Some(hit) if number <= hit.last_line + MAX_BURST_GAP => {
                hit.last_line = number;
                if are_groups_empty(&hit.groups) && !are_groups_empty(&new.groups) {
                    (hit.text, hit.groups) = (new.text, new.groups);
                }
            }
            Some(hit) => *hit = new,
            None => {
                if self.hits.len() >= MAX_HITS_PER_LOG {
                    self.hits.remove(0);
                }
                self.hits.push(new);
            }
        }
    }
}

/// Whether nothing is named.
fn are_groups_empty(groups: &BTreeMap<String, String>) -> bool {
    groups.values().all(String::is_empty)
}

fn count_newlines(text: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', text).count() as u64
}
