//! Which lines of which log a person sees, and equal ones of many ranks as one.
//!
//! Uses `event`, `state` and `sanitize`. Time is the events'. Bounded: what waits to be folded, and what one rank may complain.

use std::collections::{BTreeSet, HashMap};

use regex::bytes::Regex;

use crate::event::{LogFile, UnixMillis};
use crate::state::RunState;
use crate::state::log_lines::LineSplitter;

use super::style::{self, TextStyle, Tone};
use crate::text::sanitize::Sanitizer;

/// How long a line waits for equal ones.
const MERGE_WINDOW_MS: i64 = 250;
/// How many lines wait.
const MAX_PENDING_LINES: usize = 256;
/// How many complaints of one file are shown beside the main rank's log.
const MAX_ERRORS_PER_FILE: u32 = 40;
/// A progress bar is shown once in this time.
const PROGRESS_INTERVAL_MS: i64 = 10_000;
/// What a complaint looks like.
const ERROR_PATTERN: &str = r"(?i-u)traceback \(most recent|\werror:|\wexception:|\berror\b|\bfatal\b|\bpanic|segfault|segmentation fault|out of memory|\bkilled\b|\baborted\b|nccl warn|core dumped";

/// Whose lines are shown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum LogSelection {
    None,
    /// Rank 0 whole, and what the others complain of.
    #[default]
    MainRank,
    All,
    Ranks(BTreeSet<u32>),
}

/// How much of one file is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LogDetail {
    None,
    Errors,
    All,
}

#[derive(Default)]
struct LogFileState {
    splitter: LineSplitter,
    next_offset: u64,
    error_count: u32,
    last_shown: UnixMillis,
}

struct PendingLine {
    text: String,
    files: Vec<(u32, LogFile)>,
}

/// Turns log chunks into lines for people.
pub(crate) struct LogLineMerger {
    selection: LogSelection,
    error_pattern: Option<Regex>,
    followers: HashMap<(u32, LogFile), LogFileState>,
    pending: Vec<PendingLine>,
    pending_since: UnixMillis,
}

impl LogLineMerger {
    /// Shows what `logs` says.
    pub(crate) fn new(logs: LogSelection) -> Self {
        LogLineMerger {
            selection: logs,
            error_pattern: Regex::new(ERROR_PATTERN).ok(),
            followers: HashMap::new(),
            pending: Vec::new(),
            pending_since: 0,
        }
    }

    fn detail_for(&self, file: LogFile) -> LogDetail {
        match (&self.selection, file) {
            (LogSelection::None, _) => LogDetail::None,
            (LogSelection::All, _) | (LogSelection::MainRank, LogFile::Rank { rank: 0, .. }) => LogDetail::All,
            (LogSelection::MainRank, _) => LogDetail::Errors,
            (LogSelection::Ranks(ranks), LogFile::Rank { rank, .. }) if ranks.contains(&rank) => LogDetail::All,
            (LogSelection::Ranks(_), _) => LogDetail::None,
        }
    }

    /// Takes bytes of a log.
    pub(crate) fn push(&mut self, key: (u32, LogFile), offset: u64, bytes: &[u8], at: UnixMillis) {
        let share = self.detail_for(key.1);
        if share == LogDetail::None {
            return;
        }
        let LogLineMerger { error_pattern: alarm, followers: follows, .. } = self;
        let alarm = alarm.as_ref();
        let follow = follows.entry(key).or_default();
        let end = offset + bytes.len() as u64;
        let seen = usize::try_from(follow.next_offset.saturating_sub(offset)).unwrap_or(usize::MAX);
        let Some(bytes) = bytes.get(seen..).filter(|bytes| !bytes.is_empty()) else { return };
        follow.next_offset = end;
        let mut lines = Vec::new();
        if share == LogDetail::All {
            follow.splitter.push(bytes, |line| lines.push(line));
            if follow.splitter.is_redrawn() && at - follow.last_shown >= PROGRESS_INTERVAL_MS {
                lines.extend(follow.splitter.partial_line());
            }
        } else {
            follow.push_errors(bytes, alarm, |line| lines.push(line));
        }
        if !lines.is_empty() {
            follow.last_shown = at;
        }
        for line in lines {
            self.queue_line(key, line, at);
        }
    }

    /// What follows are the logs of another run.
    pub(crate) fn start_next_run(&mut self) {
        self.followers.clear();
    }

    /// A file begins again at its first byte.
    pub(crate) fn restart_file(&mut self, key: (u32, LogFile)) {
        self.followers.remove(&key);
    }

    /// A file has ended: what is left of it without a newline is a line.
    pub(crate) fn flush_partial_lines(&mut self, at: UnixMillis) {
        let whole: Vec<(u32, LogFile)> = self.followers.keys().copied().filter(|key| self.detail_for(key.1) == LogDetail::All).collect();
        for key in whole {
            if let Some(line) = self.followers.get_mut(&key).and_then(|follow| follow.splitter.finish_line()) {
                self.queue_line(key, line, at);
            }
        }
    }

    /// Joins a line to an equal one that waits, never to one before a line of the same file: order within a file is kept.
    fn queue_line(&mut self, key: (u32, LogFile), text: String, at: UnixMillis) {
        if self.pending.is_empty() {
            self.pending_since = at;
        }
        let after = self.pending.iter().rposition(|held| held.files.contains(&key)).map_or(0, |place| place + 1);
        match self.pending[after..].iter_mut().find(|held| held.text == text) {
            Some(held) => held.files.push(key),
            None => self.pending.push(PendingLine { text, files: vec![key] }),
        }
    }

    /// Lines that have waited long enough, ready to be shown.
    pub(crate) fn take_due(&mut self, now: UnixMillis, state: &RunState, sanitizer: &Sanitizer, style: TextStyle) -> Vec<String> {
        // Where only one file is shown whole there is nothing to wait for.
        let alone = self.selection == LogSelection::MainRank
            && self.pending.iter().all(|held| matches!(held.files[..], [(_, LogFile::Rank { rank: 0, .. })]));
        let waits = !alone && state.ranks.len() > 1 && now - self.pending_since < MERGE_WINDOW_MS && self.pending.len() < MAX_PENDING_LINES;
        if waits { Vec::new() } else { self.take_all(state, sanitizer, style) }
    }

    /// All lines that wait.
    pub(crate) fn take_all(&mut self, state: &RunState, sanitizer: &Sanitizer, style: TextStyle) -> Vec<String> {
        let mut last = (Vec::new(), String::new());
        let held = std::mem::take(&mut self.pending);
        let text = |held: PendingLine| {
            if held.files != last.0 {
                let prefix = style.paint(Tone::Dim, &line_prefix(&held.files, state, sanitizer));
                last = (held.files, prefix);
            }
            format!("{} {}", last.1, sanitizer.sanitize_line(&held.text))
        };
        held.into_iter().map(text).collect()
    }
}

impl LogFileState {
    /// Cuts only what may hold a complaint.
    fn push_errors(&mut self, bytes: &[u8], error_pattern: Option<&Regex>, mut out: impl FnMut(String)) {
        let Some(alarm) = error_pattern else { return };
        let (Some(first), Some(last)) = (memchr::memchr(b'\n', bytes), memchr::memrchr(b'\n', bytes)) else {
            self.splitter.push(bytes, |_| ());
            return;
        };
        let complaints = &mut self.error_count;
        let mut tell = |line: String| {
            if alarm.is_match(line.as_bytes()) {
                *complaints = complaints.saturating_add(1);
                match *complaints {
                    1..MAX_ERRORS_PER_FILE => out(line),
                    MAX_ERRORS_PER_FILE => out(format!("{line} (more of the like are in the log)")),
                    _ => {}
                }
            }
        };
        self.splitter.push(&bytes[..=first], &mut tell);
        if alarm.is_match(&bytes[first + 1..=last]) {
            self.splitter.push(&bytes[first + 1..=last], &mut tell);
        }
        self.splitter.push(&bytes[last + 1..], |_| ());
    }
}

/// `[rank 3 gpu02]`, `[rank 0-15]`, `[gpu02]`.
fn line_prefix(files: &[(u32, LogFile)], state: &RunState, sanitizer: &Sanitizer) -> String {
    let ranks: Vec<u32> =
        files.iter().filter_map(|(_, file)| if let LogFile::Rank { rank, .. } = file { Some(*rank) } else { None }).collect();
    let nodes: Vec<u32> = files.iter().filter(|(_, file)| *file == LogFile::Launcher).map(|(host, _)| *host).collect();
    let mut words = Vec::new();
    match (&ranks[..], files) {
        ([], _) => {}
        ([rank], [(host, _)]) => words.push(format!("rank {rank} {}", style::format_hosts(state, sanitizer, [host]))),
        (ranks, _) => words.push(format!("rank {}", crate::text::hostlist::fold_numbers(ranks))),
    }
    if !nodes.is_empty() {
        words.push(style::format_hosts(state, sanitizer, &nodes));
    }
    format!("[{}]", words.join(" "))
}
