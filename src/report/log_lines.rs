//! Selects the log lines to show and merges equal lines of several ranks.
//!
//! All times come from the events. The queue and the error lines of one rank are bounded.

use std::collections::{BTreeSet, HashMap};

use regex::bytes::Regex;

use crate::event::{LogFile, UnixMillis};
use crate::state::RunState;
use crate::state::log_lines::LineSplitter;

use super::style::{self, TextStyle, Tone};
use crate::text::sanitize::Sanitizer;

/// How long a line waits for equal lines.
const MERGE_WINDOW_MS: i64 = 250;
/// How many lines wait at most.
const MAX_PENDING_LINES: usize = 256;
/// How many error lines of one file are shown beside the main rank's log.
const MAX_ERRORS_PER_FILE: u32 = 40;
/// A progress bar is shown once in this time.
const PROGRESS_INTERVAL_MS: i64 = 10_000;
/// Matches error lines.
const ERROR_PATTERN: &str = r"(?i-u)traceback \(most recent|\werror:|\wexception:|\berror\b|\bfatal\b|\bpanic|segfault|segmentation fault|out of memory|\bkilled\b|\baborted\b|nccl warn|core dumped";

/// The ranks whose lines are shown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum LogSelection {
    None,
    /// All lines of rank 0 and the error lines of the others.
    #[default]
    MainRank,
    All,
    Ranks(BTreeSet<u32>),
}

/// Which lines of one file are shown.
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
    files: HashMap<(u32, LogFile), LogFileState>,
    pending: Vec<PendingLine>,
    pending_since: UnixMillis,
}

impl LogLineMerger {
    pub(crate) fn new(logs: LogSelection) -> Self {
        LogLineMerger {
            selection: logs,
            error_pattern: Regex::new(ERROR_PATTERN).ok(),
            files: HashMap::new(),
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

    /// Adds bytes of a log; bytes before the file's last known offset are skipped.
    pub(crate) fn push(&mut self, key: (u32, LogFile), offset: u64, bytes: &[u8], at: UnixMillis) {
        let detail = self.detail_for(key.1);
        if detail == LogDetail::None {
            return;
        }
        let file_state = self.files.entry(key).or_default();
        let end = offset + bytes.len() as u64;
        let seen = usize::try_from(file_state.next_offset.saturating_sub(offset)).unwrap_or(usize::MAX);
        let Some(bytes) = bytes.get(seen..).filter(|bytes| !bytes.is_empty()) else { return };
        file_state.next_offset = end;
        let mut lines = Vec::new();
        if detail == LogDetail::All {
            file_state.splitter.push(bytes, |line| lines.push(line));
            if file_state.splitter.is_redrawn() && at - file_state.last_shown >= PROGRESS_INTERVAL_MS {
                lines.extend(file_state.splitter.partial_line());
            }
        } else {
            file_state.push_errors(bytes, self.error_pattern.as_ref(), |line| lines.push(line));
        }
        if !lines.is_empty() {
            file_state.last_shown = at;
        }
        for line in lines {
            self.queue_line(key, line, at);
        }
    }

    /// Forgets all files: the next bytes belong to another run.
    pub(crate) fn start_next_run(&mut self) {
        self.files.clear();
    }

    /// The file was truncated and comes again from offset 0.
    pub(crate) fn restart_file(&mut self, key: (u32, LogFile)) {
        self.files.remove(&key);
    }

    /// Queues the unfinished last lines, since no more bytes follow.
    pub(crate) fn flush_partial_lines(&mut self, at: UnixMillis) {
        let shown: Vec<(u32, LogFile)> = self.files.keys().copied().filter(|key| self.detail_for(key.1) == LogDetail::All).collect();
        for key in shown {
            if let Some(line) = self.files.get_mut(&key).and_then(|file| file.splitter.finish_line()) {
                self.queue_line(key, line, at);
            }
        }
    }

    /// Merges a line with an equal pending one, but never with one before another line of the same file, so order within a file is kept.
    fn queue_line(&mut self, key: (u32, LogFile), text: String, at: UnixMillis) {
        if self.pending.is_empty() {
            self.pending_since = at;
        }
        let first = self.pending.iter().rposition(|line| line.files.contains(&key)).map_or(0, |index| index + 1);
        match self.pending[first..].iter_mut().find(|line| line.text == text) {
            Some(line) => line.files.push(key),
            None => self.pending.push(PendingLine { text, files: vec![key] }),
        }
    }

    /// The pending lines if they have waited long enough, formatted.
    pub(crate) fn take_due(&mut self, now: UnixMillis, state: &RunState, sanitizer: &Sanitizer, style: TextStyle) -> Vec<String> {
        // Lines of rank 0 alone have no equals to wait for.
        let main_rank_only = self.selection == LogSelection::MainRank
            && self.pending.iter().all(|line| matches!(line.files[..], [(_, LogFile::Rank { rank: 0, .. })]));
        let can_merge = !main_rank_only && state.ranks.len() > 1;
        let waits = can_merge && now - self.pending_since < MERGE_WINDOW_MS && self.pending.len() < MAX_PENDING_LINES;
        if waits { Vec::new() } else { self.take_all(state, sanitizer, style) }
    }

    /// All pending lines, formatted.
    pub(crate) fn take_all(&mut self, state: &RunState, sanitizer: &Sanitizer, style: TextStyle) -> Vec<String> {
        let mut last = (Vec::new(), String::new());
        let pending = std::mem::take(&mut self.pending);
        let format = |line: PendingLine| {
            if line.files != last.0 {
                let prefix = style.paint(Tone::Dim, &line_prefix(&line.files, state, sanitizer));
                last = (line.files, prefix);
            }
            format!("{} {}", last.1, sanitizer.sanitize_line(&line.text))
        };
        pending.into_iter().map(format).collect()
    }
}

impl LogFileState {
    /// Passes error lines on. Only bytes that match the pattern are split into lines, which keeps this cheap.
    fn push_errors(&mut self, bytes: &[u8], error_pattern: Option<&Regex>, mut out: impl FnMut(String)) {
        let Some(pattern) = error_pattern else { return };
        let (Some(first), Some(last)) = (memchr::memchr(b'\n', bytes), memchr::memrchr(b'\n', bytes)) else {
            self.splitter.push(bytes, |_| ());
            return;
        };
        let errors = &mut self.error_count;
        let mut on_line = |line: String| {
            if pattern.is_match(line.as_bytes()) {
                *errors = errors.saturating_add(1);
                match *errors {
                    1..MAX_ERRORS_PER_FILE => out(line),
                    MAX_ERRORS_PER_FILE => out(format!("{line} (further errors are only in the log)")),
                    _ => {}
                }
            }
        };
        self.splitter.push(&bytes[..=first], &mut on_line);
        if pattern.is_match(&bytes[first + 1..=last]) {
            self.splitter.push(&bytes[first + 1..=last], &mut on_line);
        }
        self.splitter.push(&bytes[last + 1..], |_| ());
    }
}

/// `[rank 3 gpu02]`, `[rank 0-15]`, `[gpu02]`.
fn line_prefix(files: &[(u32, LogFile)], state: &RunState, sanitizer: &Sanitizer) -> String {
    let ranks: Vec<u32> =
        files.iter().filter_map(|(_, file)| if let LogFile::Rank { rank, .. } = file { Some(*rank) } else { None }).collect();
    let nodes: Vec<u32> = files.iter().filter(|(_, file)| *file == LogFile::Launcher).map(|(host, _)| *host).collect();
    let mut labels = Vec::new();
    match (&ranks[..], files) {
        ([], _) => {}
        ([rank], [(host, _)]) => labels.push(format!("rank {rank} {}", style::format_hosts(state, sanitizer, [host]))),
        (ranks, _) => labels.push(format!("rank {}", crate::text::hostlist::fold_numbers(ranks))),
    }
    if !nodes.is_empty() {
        labels.push(style::format_hosts(state, sanitizer, &nodes));
    }
    format!("[{}]", labels.join(" "))
}
