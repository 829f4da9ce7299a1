//! View state of the Logs screen: which lines are shown and how, and what was read.
//!
//! A position is a byte of the file, a line of the ring, or a group, depending on the view.

use std::collections::VecDeque;
use std::sync::Arc;

use regex::bytes::Regex;

use crate::event::{LogFile, UnixMillis};
use crate::state::{RankState, RunState};
use crate::tui::line_filter::{LineFilter, LineOrigin};
use crate::tui::line_groups::{FoldedLines, LineGroups};
use crate::tui::log_index::LogIndex;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum LogScope {
    #[default]
    Single,
    All,
    /// All logs of a host.
    Host,
}

/// Which time a line shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum TimeColumn {
    #[default]
    Off,
    Relative,
    TimeOfDay,
}

/// A line marked by the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LineMark {
    pub(super) log: (u32, LogFile),
    pub(super) offset: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct LogRow {
    /// Position of the row, and of the next one.
    pub position: u64,
    pub next_position: u64,
    /// The writer of the line, and the offset in its log.
    pub log: (u32, LogFile),
    pub offset: u64,
    pub received_at: Option<UnixMillis>,
    /// Text as the host wrote it: sanitize before display.
    pub bytes: Vec<u8>,
    /// Number of redraws of a progress bar.
    pub draw_count: u32,
    /// The lines it represents, if it is a group.
    pub group: Option<Arc<FoldedLines>>,
}

/// Everything the visible rows depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RowCacheKey {
    pub log: (u32, LogFile),
    pub merged: bool,
    pub size: u64,
    pub top: Option<u64>,
    pub max_rows: usize,
    pub show_bytes: bool,
    pub show_all_redraws: bool,
    pub filtered_count: usize,
}

/// The merged lines shown, by sequence number.
#[derive(Debug, Clone, Default)]
pub(super) struct MergedLines {
    pub next_seq: u64,
    pub seqs: VecDeque<u64>,
    pub errors: VecDeque<u64>,
}

#[derive(Debug, Clone, Default)]
pub struct LogsPane {
    /// The log; `None` for that of the first rank.
    pub(super) selected_log: Option<(u32, LogFile)>,
    pub(super) scope: LogScope,
    /// Show every line of merged logs, also equal ones.
    pub(super) is_unfolded: bool,
    /// Position of the first row; `None` follows the newest lines.
    pub(super) top: Option<u64>,
    /// The number of lines when following stopped.
    pub(super) lines_when_left: u64,
    /// Wrap long lines.
    pub(super) wrap: bool,
    /// First visible column.
    pub(super) first_column: usize,
    pub(super) time_column: TimeColumn,
    /// Show raw bytes.
    pub(super) show_bytes: bool,
    /// Show every redraw of progress bars.
    pub(super) show_all_redraws: bool,
    /// Only the log is shown.
    pub(crate) zoomed: bool,
    /// Search pattern.
    pub(super) search: Option<Regex>,
    /// Position of the last match.
    pub(super) found_position: Option<u64>,
    pub(super) filter: Option<LineFilter>,
    pub(super) marks: Vec<LineMark>,
    /// Index of the single log.
    pub(super) index: LogIndex,
    /// Lines of the merged logs.
    pub(super) merged: MergedLines,
    pub(super) groups: LineGroups,
    /// The width of the writers' column. It becomes narrower only by much: the lines seldom move to the left.
    pub(super) writer_width: usize,
    /// The rows drawn last, with their cache key.
    pub(super) cached_rows: Option<(RowCacheKey, Arc<[LogRow]>)>,
}

impl LogsPane {
    /// Ends the search, else the filter, else the zoom; `false` if there is none of them.
    pub(crate) fn undo_last_view(&mut self) -> bool {
        if self.search.take().is_some() {
            self.found_position = None;
            self.clear_caches();
        } else if self.filter.take().is_some() {
            self.reset_view();
        } else {
            return std::mem::take(&mut self.zoomed);
        }
        true
    }

    /// The lines of all logs as they come, equal ones as one.
    pub(crate) fn merged() -> LogsPane {
        LogsPane { scope: LogScope::All, ..LogsPane::default() }
    }

    /// Shows another log from its newest line.
    pub(crate) fn show_log(&mut self, log: (u32, LogFile)) {
        (self.selected_log, self.scope) = (Some(log), LogScope::Single);
        self.reset_view();
    }

    /// Something else is shown: follow its newest line and discard cached data.
    pub(crate) fn reset_view(&mut self) {
        (self.top, self.first_column, self.found_position) = (None, 0, None);
        self.clear_caches();
    }

    /// Discards search and index results.
    pub(super) fn clear_caches(&mut self) {
        (self.index, self.merged, self.groups, self.cached_rows) =
            (LogIndex::default(), MergedLines::default(), LineGroups::default(), None);
        self.writer_width = 0;
    }

    /// Shows the log of the rank that failed first, unless another log was chosen.
    pub(crate) fn prefer_failed_rank(&mut self, state: &RunState) {
        let first = state.culprit_ranks().first().and_then(|rank| state.ranks.get(rank));
        if let (None, LogScope::Single, Some(rank)) = (self.selected_log, self.scope, first) {
            self.show_log(rank.log());
        }
    }

    /// The current single log, or the one shown before merging.
    pub(crate) fn shown_log(&self, state: &RunState) -> Option<(u32, LogFile)> {
        self.selected_log.or_else(|| all_logs(state).first().copied())
    }

    /// The filter as typed.
    pub(crate) fn filter_text(&self) -> String {
        self.filter.as_ref().map_or_else(String::new, |filter| filter.text.clone())
    }
}

/// All rank logs in rank order; launcher logs while there are no ranks.
pub(super) fn all_logs(state: &RunState) -> Vec<(u32, LogFile)> {
    let ranks: Vec<_> = state.ranks.values().map(RankState::log).collect();
    if ranks.is_empty() { (0_u32..).zip(&state.hosts).map(|(at, _)| (at, LogFile::Launcher)).collect() } else { ranks }
}

/// The writer of a line, for filters.
pub(super) fn line_origin(state: &RunState, log: (u32, LogFile)) -> LineOrigin<'_> {
    LineOrigin { rank: log.1.rank(), host: state.host_name(log.0) }
}
