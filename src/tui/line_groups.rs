//! Groups equal lines of many ranks into one, with its writers and the range of its numbers: shows which rank lags behind.
//!
//! Takes sanitized text only. The first line of a rank joins the first group of its kind, its second line the second group, and so on,
//! so a group is one round. Lines of numbers only are not grouped. Modeled on Ray's log deduplication (docs.ray.io).

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use crate::event::{LogFile, UnixMillis};

/// Maximum number of groups.
const MAX_GROUPS: usize = 2_000;
/// How many groups of equal lines a line is looked for in, the newest ones: a log that prints the same line again and again opens many.
const MAX_OPEN: usize = 32;
/// A line that comes later than this after the first of a group starts a new group, in milliseconds.
const WINDOW_MS: i64 = 30_000;
/// Maximum bytes of a line to compare.
const MAX_LINE_BYTES: usize = 2 << 10;

/// Placeholders for numbers and for other varying parts in the comparison key: sanitized text contains neither.
const NUMBER_PLACEHOLDER: char = '\u{1}';
const ID_PLACEHOLDER: char = '\u{2}';

/// A token of a line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum LineSegment {
    /// Equal in all lines.
    Text(String),
    /// A number that may differ.
    Number {
        /// As first written.
        first: String,
        /// The smallest value and its text.
        min: (f64, String),
        /// The largest value and its text.
        max: (f64, String),
    },
}

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
}

impl LineGroup {
    /// The group as text: `step 1180 loss [2.31..2.32]`.
    pub(crate) fn text(&self) -> String {
        self.spans().map(|(text, _)| text).collect()
    }

    /// Its tokens as text, each with whether it differs between ranks.
    pub(crate) fn spans(&self) -> impl Iterator<Item = (String, bool)> {
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
        let end = (0..=MAX_LINE_BYTES.min(line.len())).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
        let (key, pieces) = tokenize_line(&line[..end]);
        if let Some(id) = key
            .as_ref()
            .and_then(|key| self.open_by_key.get(key))
            .and_then(|ids| ids.iter().skip(ids.len().saturating_sub(MAX_OPEN)).find(|id| self.can_join(**id, log, at)).copied())
            && let Some(group) = self.get_mut(id)
        {
            group.logs.push(log);
            group.members.insert(log);
            for (known, new) in group.segments.iter_mut().zip(pieces) {
                widen_range(known, new);
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
            segments: pieces,
            logs: vec![log],
            offset,
            members: HashSet::from([log]),
            key,
        });
        if self.groups.len() > MAX_GROUPS {
            self.evict_oldest();
        }
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

fn widen_range(known: &mut LineSegment, new: LineSegment) {
    if let (LineSegment::Number { min: least, max: most, .. }, LineSegment::Number { min: low, max: high, .. }) = (known, new) {
        if low.0 < least.0 {
            *least = low;
        }
        if high.0 > most.0 {
            *most = high;
        }
    }
}

/// Comparison key and tokens of a line; no key for a line of numbers only.
fn tokenize_line(line: &str) -> (Option<String>, Vec<LineSegment>) {
    let (mut key, mut pieces) = (String::new(), Vec::new());
    let mut rest = line;
    let mut letters = false;
    let mut before = ' ';
    while !rest.is_empty() {
        let (len, kind) = next_token(rest, before);
        let (text, after) = rest.split_at(len);
        match kind {
            TokenKind::Number => {
                key.push(NUMBER_PLACEHOLDER);
                let value = text.replace(',', "").parse().unwrap_or(f64::NAN);
                pieces.push(LineSegment::Number { first: text.to_owned(), min: (value, text.to_owned()), max: (value, text.to_owned()) });
            }
            // Differs, but has no numeric value.
            TokenKind::Id => {
                key.push(ID_PLACEHOLDER);
                pieces.push(LineSegment::Text(text.to_owned()));
            }
            TokenKind::Text => {
                letters |= text.chars().any(char::is_alphabetic);
                key.push_str(text);
                match pieces.last_mut() {
                    Some(LineSegment::Text(known)) => known.push_str(text),
                    _ => pieces.push(LineSegment::Text(text.to_owned())),
                }
            }
        }
        before = text.chars().next_back().unwrap_or(' ');
        rest = after;
    }
    (letters.then_some(key), pieces)
}

enum TokenKind {
    Text,
    Number,
    Id,
}

/// The next token of a line and its length in bytes.
fn next_token(text: &str, before: char) -> (usize, TokenKind) {
    let bytes = text.as_bytes();
    let run = |from: usize, of: fn(&u8) -> bool| bytes[from.min(bytes.len())..].iter().take_while(|byte| of(byte)).count();
    let digits = |from: usize| run(from, u8::is_ascii_digit);
    let word = run(0, u8::is_ascii_alphanumeric);
    if !before.is_alphanumeric() {
        let hex = &bytes[..word];
        let marked = hex.starts_with(b"0x") && word > 2 && hex[2..].iter().all(u8::is_ascii_hexdigit);
        let long = word >= 8
            && hex.iter().all(u8::is_ascii_hexdigit)
            && hex.iter().any(u8::is_ascii_digit)
            && hex.iter().any(u8::is_ascii_alphabetic);
        if marked || long {
            return (word, TokenKind::Id);
        }
        // A time of day or a date: 13:06:05.123, 2026-11-22.
        let pair = |from: usize, sign: u8| bytes.get(from) == Some(&sign) && digits(from + 1) == 2;
        if digits(0) == 2 && pair(2, b':') {
            let mut len = if pair(5, b':') { 8 } else { 5 };
            if matches!(bytes.get(len), Some(b'.' | b',')) && digits(len + 1) > 0 {
                len += 1 + digits(len + 1);
            }
            return (len, TokenKind::Id);
        }
        if digits(0) == 4 && pair(4, b'-') && pair(7, b'-') {
            return (10, TokenKind::Id);
        }
    }
    let whole = digits(0);
    if whole > 0 {
        let mut len = whole;
        while bytes.get(len) == Some(&b',') && whole <= 3 && digits(len + 1) == 3 {
            len += 4;
        }
        if bytes.get(len) == Some(&b'.') && digits(len + 1) > 0 {
            len += 1 + digits(len + 1);
        }
        if matches!(bytes.get(len), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(len + 1), Some(b'+' | b'-')));
            let power = digits(len + 1 + sign);
            if power > 0 && !bytes.get(len + 1 + sign + power).is_some_and(u8::is_ascii_alphanumeric) {
                len += 1 + sign + power;
            }
        }
        return (len, TokenKind::Number);
    }
    let len = text
        .char_indices()
        .skip(1)
        .find(|(at, c)| c.is_ascii_digit() || (c.is_ascii_alphanumeric() && !bytes[at - 1].is_ascii_alphanumeric()));
    (len.map_or(text.len(), |(at, _)| at), TokenKind::Text)
}

/// Short form of ranks and launchers: `r[0-7,9]`, `launcher gpu[00-15]`. `hosts` folds host names.
pub(crate) fn format_writers(logs: &[(u32, LogFile)], hosts: impl Fn(&[u32]) -> String) -> String {
    let (mut ranks, mut nodes): (BTreeMap<u32, ()>, Vec<u32>) = (BTreeMap::new(), Vec::new());
    for (host, file) in logs {
        match file {
            LogFile::Rank { rank, .. } => {
                ranks.insert(*rank, ());
            }
            LogFile::Launcher | LogFile::Task { .. } => nodes.push(*host),
        }
    }
    let ranks: Vec<u32> = ranks.into_keys().collect();
    let ranks = match &ranks[..] {
        [] => String::new(),
        [one] => format!("r{one}"),
        many => format!("r[{}]", crate::text::hostlist::fold_numbers(many)),
    };
    let nodes = if nodes.is_empty() { String::new() } else { format!("launcher {}", hosts(&nodes)) };
    [ranks, nodes].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
#[path = "line_groups_tests.rs"]
mod tests;
