//! Groups equal lines of many ranks into one, with its writers and the range of its numbers: shows which rank lags behind.
//!
//! Takes sanitized text only. The first line of a rank joins the first group of its kind, its second line the second group, and so on,
//! so a group is one round. Lines of numbers only are not grouped. Modeled on Ray's log deduplication (docs.ray.io).

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::event::{LogFile, UnixMillis};
use crate::text::hostlist::short_ranks;
use crate::text::width::first_bytes;

use super::line_tokens::{LineSegment, Token, tokenize_line};

/// Maximum number of groups.
const MAX_GROUPS: usize = 2_000;
/// How many groups of equal lines a line is looked for in, the newest ones: a log that prints the same line again and again opens many.
const MAX_OPEN: usize = 32;
/// A line that comes later than this after the first of a group starts a new group, in milliseconds.
const WINDOW_MS: i64 = 30_000;
/// Maximum bytes of a line to compare.
const MAX_LINE_BYTES: usize = 2 << 10;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LineGroup {
    /// Sequential number.
    pub id: u64,
    /// When the first line came.
    pub first_at: UnixMillis,
    pub segments: Vec<LineSegment>,
    pub logs: Vec<(u32, LogFile)>,
    /// Offset of the first line.
    pub offset: u64,
    members: HashSet<(u32, LogFile)>,
    key: Option<String>,
    /// What a row shows of it, until it has another line.
    folded: OnceCell<Arc<FoldedLines>>,
}

/// What a row shows of a group.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FoldedLines {
    pub writers: LogWriters,
    /// The sanitized text in pieces, each with whether it differs between the writers.
    pub spans: Vec<(String, bool)>,
}

impl LineGroup {
    /// The group as text: `step 1180 loss [2.31..2.32]`.
    pub(crate) fn text(&self) -> String {
        self.spans().map(|(text, _)| text).collect()
    }

    pub(crate) fn folded(&self) -> Arc<FoldedLines> {
        let fold = || Arc::new(FoldedLines { writers: LogWriters::of(&self.logs), spans: self.spans().collect() });
        Arc::clone(self.folded.get_or_init(fold))
    }

    /// Its tokens as text, each with whether it differs between ranks.
    fn spans(&self) -> impl Iterator<Item = (String, bool)> {
        self.segments.iter().map(|piece| match piece {
            LineSegment::Text(text) => (text.clone(), false),
            LineSegment::Number { first, min: least, max: most } if least.0 == most.0 || least.0.is_nan() => (first.clone(), false),
            LineSegment::Number { min: least, max: most, .. } => (format!("[{}..{}]", least.1, most.1), true),
        })
    }
}

/// The groups, oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct LineGroups {
    groups: VecDeque<LineGroup>,
    next_id: u64,
    open_by_key: HashMap<String, VecDeque<u64>>,
}

impl LineGroups {
    /// Adds a sanitized line.
    pub(crate) fn add_line(&mut self, log: (u32, LogFile), at: UnixMillis, offset: u64, line: &str) {
        let (key, tokens) = tokenize_line(first_bytes(line, MAX_LINE_BYTES));
        if let Some(id) = key.as_ref().and_then(|key| self.open_group(key, log, at))
            && let Some(group) = self.get_mut(id)
        {
            group.logs.push(log);
            group.members.insert(log);
            group.folded = OnceCell::new();
            for (known, token) in group.segments.iter_mut().zip(&tokens) {
                widen_range(known, token, line);
            }
            return;
        }
        let id = self.next_id;
        self.next_id += 1;
        if let Some(key) = &key {
            self.open_by_key.entry(key.clone()).or_default().push_back(id);
        }
        self.groups.push_back(LineGroup {
            id,
            first_at: at,
            segments: tokens.iter().map(|token| token.segment(line)).collect(),
            logs: vec![log],
            offset,
            members: HashSet::from([log]),
            key,
            folded: OnceCell::new(),
        });
        if self.groups.len() > MAX_GROUPS {
            self.evict_oldest();
        }
    }

    /// The first of the newest groups of a kind that this log has not joined yet. It has joined, or is too late for, a run of the oldest of
    /// them, since it always joins the first that it can.
    fn open_group(&self, key: &str, log: (u32, LogFile), at: UnixMillis) -> Option<u64> {
        let ids = self.open_by_key.get(key)?;
        let (mut low, mut high) = (ids.len().saturating_sub(MAX_OPEN), ids.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.can_join(ids[middle], log, at) { high = middle } else { low = middle + 1 }
        }
        ids.get(low).copied().filter(|id| self.can_join(*id, log, at))
    }

    fn can_join(&self, id: u64, log: (u32, LogFile), at: UnixMillis) -> bool {
        self.get(id).is_some_and(|group| at - group.first_at < WINDOW_MS && !group.members.contains(&log))
    }

    fn evict_oldest(&mut self) {
        let Some(key) = self.groups.pop_front().and_then(|group| group.key) else { return };
        if let Some(ids) = self.open_by_key.get_mut(&key) {
            ids.pop_front();
            if ids.is_empty() {
                self.open_by_key.remove(&key);
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }

    /// Id of the first group kept, and of the next one.
    pub(crate) fn id_range(&self) -> (u64, u64) {
        (self.groups.front().map_or(self.next_id, |group| group.id), self.next_id)
    }

    /// The group with this id.
    pub(crate) fn get(&self, id: u64) -> Option<&LineGroup> {
        self.groups.get(usize::try_from(id.checked_sub(self.id_range().0)?).ok()?)
    }

    fn get_mut(&mut self, id: u64) -> Option<&mut LineGroup> {
        let first = self.id_range().0;
        self.groups.get_mut(usize::try_from(id.checked_sub(first)?).ok()?)
    }
}

fn widen_range(known: &mut LineSegment, token: &Token, line: &str) {
    let LineSegment::Number { min: least, max: most, .. } = known else { return };
    if token.value < least.0 {
        *least = (token.value, token.text(line).to_owned());
    }
    if token.value > most.0 {
        *most = (token.value, token.text(line).to_owned());
    }
}

/// The ranks, launchers and tasks that wrote a group of lines.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LogWriters {
    /// `r[0-7,9]`; empty without ranks.
    ranks: String,
    /// The hosts of launchers (`None`), and of each task by its number.
    others: BTreeMap<Option<u32>, Vec<u32>>,
    pub count: usize,
    /// The host, if all of them are on one.
    pub host: Option<u32>,
}

impl LogWriters {
    pub(crate) fn of(logs: &[(u32, LogFile)]) -> LogWriters {
        let (mut ranks, mut others) = (Vec::new(), BTreeMap::<_, Vec<u32>>::new());
        for (host, file) in logs {
            match file {
                LogFile::Rank { rank, .. } => ranks.push(*rank),
                LogFile::Launcher => others.entry(None).or_default().push(*host),
                LogFile::Task { number } => others.entry(Some(*number)).or_default().push(*host),
            }
        }
        // A rank that was restarted has two logs.
        ranks.sort_unstable();
        ranks.dedup();
        let host = logs.first().map(|(host, _)| *host).filter(|first| logs.iter().all(|(host, _)| host == first));
        LogWriters { ranks: short_ranks(&ranks), others, count: logs.len(), host }
    }

    /// Short form: `r[0-7,9]`, `launcher gpu[00-15]`, `task 1 gpu00`. `hosts` folds host names.
    pub(crate) fn format(&self, hosts: impl Fn(&[u32]) -> String) -> String {
        let ranks = Some(self.ranks.clone()).filter(|ranks| !ranks.is_empty());
        let others = self.others.iter().map(|(task, on)| match task {
            None => format!("launcher {}", hosts(on)),
            Some(number) => [format!("task {number}"), hosts(on)].join(" "),
        });
        ranks.into_iter().chain(others).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
#[path = "line_groups_tests.rs"]
mod tests;
