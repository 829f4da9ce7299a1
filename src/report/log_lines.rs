//! Selects the log lines to show and merges equal lines of several ranks.
//!
//! All times come from the events. The queue and the error lines of one rank are bounded.

use std::collections::{HashMap, VecDeque};
use std::sync::LazyLock;

use regex::bytes::Regex;

use crate::event::{LogFile, UnixMillis};
use crate::state::RunState;
use crate::state::log_lines::{LineSplitter, unseen};

use super::style::{self, TextStyle, Tone};
use crate::text::rank_selection::RankFilter;
use crate::text::sanitize::Sanitizer;

/// How long a line waits for equal lines.
const MERGE_WINDOW_MS: i64 = 250;
/// After this time without bytes, the lines of a history are shown although more of it may come.
const HISTORY_PAUSE_MS: i64 = 10_000;
/// How many lines wait at most.
const MAX_PENDING_LINES: usize = 256;
/// How many error lines of one file are shown beside the main rank's log.
const MAX_ERRORS_PER_FILE: u32 = 40;
/// A progress bar is shown once in this time.
const PROGRESS_INTERVAL_MS: i64 = 10_000;
/// Always `Some`: the pattern is a constant, and tests match lines with it.
static ERROR_PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i-u)traceback \(most recent|\werror:|\wexception:|\berror\b|\bfatal\b|\bpanic|segfault|segmentation fault|out of memory|\bkilled\b|\baborted\b|nccl warn|core dumped").ok()
});

/// Whether a line, or one of several, looks like an error.
pub(super) fn has_error(text: &[u8]) -> bool {
    ERROR_PATTERN.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

/// Whose lines are shown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum LogSelection {
    None,
    /// All lines of rank 0 and the error lines of the others.
    #[default]
    MainRank,
    /// The same, of a command that leaves as soon as the ranks run.
    MainRankUntilDetached,
    All,
    Filtered(RankFilter),
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
    /// The last lines of what was written before this command; `None` once the log is current.
    history: Option<LogHistory>,
}

#[derive(Default)]
struct LogHistory {
    last_lines: VecDeque<String>,
    pushed_at: UnixMillis,
}

struct PendingLine {
    text: String,
    files: Vec<(u32, LogFile)>,
}

/// Turns log chunks into lines for people.
pub(crate) struct LogLineMerger {
    selection: LogSelection,
    files: HashMap<(u32, LogFile), LogFileState>,
    pending: Vec<PendingLine>,
    pending_since: UnixMillis,
    /// How many lines of each log that were written before this command are shown; `None`: all.
    history_lines: Option<usize>,
    has_cut_history: bool,
}

impl LogLineMerger {
    pub(crate) fn new(logs: LogSelection) -> Self {
        LogLineMerger {
            selection: logs,
            files: HashMap::new(),
            pending: Vec::new(),
            pending_since: 0,
            history_lines: None,
            has_cut_history: false,
        }
    }

    /// Shows only the last `lines` of what every log already has; `None`: all.
    pub(crate) fn limit_history(&mut self, lines: Option<usize>) {
        self.history_lines = lines;
    }

    /// Whether lines were left out since the last call.
    pub(crate) fn take_cut_history(&mut self) -> bool {
        std::mem::take(&mut self.has_cut_history)
    }

    /// The log's end was reached: its last lines are shown, and from now on every line.
    pub(crate) fn mark_current(&mut self, key: (u32, LogFile), at: UnixMillis) {
        let Some(history) = self.files.get_mut(&key).and_then(|file| file.history.take()) else { return };
        for line in history.last_lines {
            self.queue_line(key, line, at);
        }
    }

    /// Shows histories that have stopped to grow, for example because the connection is lost.
    fn show_paused_histories(&mut self, now: UnixMillis) {
        let is_due = |history: &LogHistory| !history.last_lines.is_empty() && now - history.pushed_at >= HISTORY_PAUSE_MS;
        let mut due: Vec<(u32, LogFile)> =
            self.files.iter().filter(|(_, file)| file.history.as_ref().is_some_and(is_due)).map(|(key, _)| *key).collect();
        due.sort();
        for key in due {
            let lines =
                self.files.get_mut(&key).and_then(|file| file.history.as_mut()).map(|history| std::mem::take(&mut history.last_lines));
            for line in lines.unwrap_or_default() {
                self.queue_line(key, line, now);
            }
        }
    }

    fn detail_for(&self, (host, file): (u32, LogFile)) -> LogDetail {
        match (&self.selection, file) {
            (LogSelection::None, _) => LogDetail::None,
            (LogSelection::All, _) => LogDetail::All,
            // While a task runs, nothing else does.
            (LogSelection::MainRank | LogSelection::MainRankUntilDetached, LogFile::Rank { rank: 0, .. } | LogFile::Task { .. }) => {
                LogDetail::All
            }
            (LogSelection::MainRank | LogSelection::MainRankUntilDetached, _) => LogDetail::Errors,
            (LogSelection::Filtered(filter), LogFile::Rank { rank, .. }) if filter.selects_rank(host, rank) => LogDetail::All,
            (LogSelection::Filtered(filter), LogFile::Launcher | LogFile::Task { .. }) if filter.selects_launcher(host) => LogDetail::All,
            (LogSelection::Filtered(_), _) => LogDetail::None,
        }
    }

    /// Adds bytes of a log; bytes before the file's last known offset are skipped.
    pub(crate) fn push(&mut self, key: (u32, LogFile), offset: u64, bytes: &[u8], at: UnixMillis) {
        let detail = self.detail_for(key);
        if detail == LogDetail::None {
            return;
        }
        let history_lines = self.history_lines;
        let new_state = || LogFileState { history: history_lines.map(|_| LogHistory::default()), ..LogFileState::default() };
        let file_state = self.files.entry(key).or_insert_with(new_state);
        // The beginning of a copy's end, or of what this laptop lacks, is not the log's.
        self.has_cut_history |= file_state.history.is_some() && file_state.next_offset == 0 && offset > 0;
        let fresh = unseen(file_state.next_offset, offset, bytes);
        if fresh.is_empty() {
            return;
        }
        file_state.next_offset = offset.saturating_add(bytes.len() as u64);
        let mut lines = Vec::new();
        if detail == LogDetail::All {
            file_state.splitter.push(fresh, |line| lines.push(line));
            if file_state.splitter.is_redrawn() && at - file_state.last_shown >= PROGRESS_INTERVAL_MS {
                lines.extend(file_state.splitter.partial_line());
            }
        } else {
            file_state.push_errors(fresh, |line| lines.push(line));
        }
        if !lines.is_empty() {
            file_state.last_shown = at;
        }
        if let (Some(history), Some(limit)) = (&mut file_state.history, history_lines) {
            history.pushed_at = at;
            history.last_lines.extend(lines);
            let surplus = history.last_lines.len().saturating_sub(limit);
            self.has_cut_history |= surplus > 0;
            history.last_lines.drain(..surplus);
            return;
        }
        for line in lines {
            self.queue_line(key, line, at);
        }
    }

    /// Forgets all files: the next bytes belong to another run, which has no history.
    pub(crate) fn start_next_run(&mut self) {
        self.files.clear();
        self.history_lines = None;
    }

    /// The file was truncated and comes again from offset 0.
    pub(crate) fn restart_file(&mut self, key: (u32, LogFile)) {
        self.files.remove(&key);
    }

    /// Queues the unfinished last lines, since no more bytes follow.
    pub(crate) fn flush_partial_lines(&mut self, at: UnixMillis) {
        let mut with_history: Vec<(u32, LogFile)> =
            self.files.iter().filter(|(_, file)| file.history.is_some()).map(|(key, _)| *key).collect();
        with_history.sort();
        with_history.into_iter().for_each(|key| self.mark_current(key, at));
        let shown: Vec<(u32, LogFile)> = self.files.keys().copied().filter(|key| self.detail_for(*key) == LogDetail::All).collect();
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
        self.show_paused_histories(now);
        // Lines of rank 0 alone have no equals to wait for.
        let main_rank_only = matches!(self.selection, LogSelection::MainRank | LogSelection::MainRankUntilDetached)
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
                let prefix = line_prefix(&line.files, state, sanitizer);
                let prefix = match line.files[..] {
                    [(_, LogFile::Rank { rank, .. })] => style.paint_rank(rank, &prefix),
                    _ => style.paint(Tone::Dim, &prefix),
                };
                last = (line.files, prefix);
            }
            format!("{} {}", last.1, sanitizer.sanitize_line(&line.text))
        };
        pending.into_iter().map(format).collect()
    }
}

impl LogFileState {
    /// Passes error lines on. Only bytes that match the pattern are split into lines, which keeps this cheap.
    fn push_errors(&mut self, bytes: &[u8], mut out: impl FnMut(String)) {
        let (Some(first), Some(last)) = (memchr::memchr(b'\n', bytes), memchr::memrchr(b'\n', bytes)) else {
            self.splitter.push(bytes, |_| ());
            return;
        };
        let errors = &mut self.error_count;
        let mut on_line = |line: String| {
            if has_error(line.as_bytes()) && !is_traceback_source(&line) {
                *errors = errors.saturating_add(1);
                match *errors {
                    1..MAX_ERRORS_PER_FILE => out(line),
                    MAX_ERRORS_PER_FILE => out(format!("{line} (further errors are only in the log)")),
                    _ => {}
                }
            }
        };
        self.splitter.push(&bytes[..=first], &mut on_line);
        if has_error(&bytes[first + 1..=last]) {
            self.splitter.push(&bytes[first + 1..=last], &mut on_line);
        }
        self.splitter.push(&bytes[last + 1..], |_| ());
    }
}

/// Whether a line is source code in a traceback, where the name of an error says nothing.
fn is_traceback_source(line: &str) -> bool {
    let text = line.strip_prefix("[rank").and_then(|rest| rest.split_once("]: ")).map_or(line, |(_, text)| text);
    text.starts_with("    ")
}

/// `[rank 3 gpu02]`, `[rank 0-15]`, `[launcher gpu02]`, `[task 2 gpu02]`.
fn line_prefix(files: &[(u32, LogFile)], state: &RunState, sanitizer: &Sanitizer) -> String {
    let ranks: Vec<u32> = files.iter().filter_map(|(_, file)| file.rank()).collect();
    let launchers: Vec<u32> =
        files.iter().filter(|(_, file)| matches!(file, LogFile::Launcher | LogFile::Task { .. })).map(|(host, _)| *host).collect();
    let mut labels = Vec::new();
    match (&ranks[..], files) {
        ([], _) => {}
        ([rank], [(host, _)]) => labels.push(format!("rank {rank} {}", style::format_hosts(state, sanitizer, [host]))),
        (ranks, _) => labels.push(format!("rank {}", crate::text::hostlist::fold_numbers(ranks))),
    }
    if !launchers.is_empty() {
        let hosts = style::format_hosts(state, sanitizer, &launchers);
        labels.push(match files {
            [(_, LogFile::Task { number }), ..] => ["task", &number.to_string(), &hosts].join(" "),
            _ => ["launcher", &hosts].join(" "),
        });
    }
    format!("[{}]", labels.join(", "))
}
