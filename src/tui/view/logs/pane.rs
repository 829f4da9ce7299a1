//! What the logs remember: whose lines are shown and how, and what was read of them.
//!
//! Uses `state` and the tables of log text. Every place is a number of its own kind: a byte of the file, a line of the ring, a group.

use std::collections::VecDeque;

use regex::bytes::Regex;

use crate::event::{LogFile, UnixMillis};
use crate::state::RunState;
use crate::tui::line_filter::{LineFilter, LineOrigin};
use crate::tui::line_groups::LineGroups;
use crate::tui::log_index::LogIndex;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum LogScope {
    #[default]
    Single,
    All,
    /// Of all logs of a host.
    Host,
}

/// When a line came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum TimeColumn {
    #[default]
    Off,
    Relative,
    /// The time of day.
    TimeOfDay,
}

/// A line that the person marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LineMark {
    pub(super) log: (u32, LogFile),
    pub(super) offset: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct LogRow {
    /// Its place, and that of the row after it.
    pub position: u64,
    pub next_position: u64,
    /// Whose line it is, and where it stands in that log.
    pub log: (u32, LogFile),
    pub offset: u64,
    pub received_at: Option<UnixMillis>,
    /// Its text as the host wrote it.
    pub bytes: Vec<u8>,
    /// How often it was drawn, as progress bars are.
    pub draw_count: u32,
    /// What it stands for where equal lines are one.
    pub group: Option<FoldedLines>,
}

/// Who wrote equal lines, and their clean text in pieces, each with whether it differs among them.
pub(super) type FoldedLines = (Vec<(u32, LogFile)>, Vec<(String, bool)>);

/// What the rows on the screen depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RowCacheKey {
    pub log: (u32, LogFile),
    pub merged: bool,
    pub size: u64,
    pub first_position: Option<u64>,
    pub max_rows: usize,
    pub show_bytes: bool,
    pub show_all_redraws: bool,
    pub filtered_count: usize,
}

/// The lines of several logs that are shown, by their numbers.
#[derive(Debug, Clone, Default)]
pub(super) struct MergedLines {
    pub next_seq: u64,
    pub seqs: VecDeque<u64>,
    pub errors: VecDeque<u64>,
    pub next_unfolded: u64,
}

/// What the logs remember.
#[derive(Debug, Clone)]
pub struct LogsPane {
    /// Whose log; none: that of the first rank.
    pub(super) selected_log: Option<(u32, LogFile)>,
    pub(super) scope: LogScope,
    /// Equal lines of several logs are one.
    pub(super) fold: bool,
    /// The newest lines are shown as they come.
    pub(super) follow: bool,
    /// Else the place of the first line that is shown, and how much there was when the screen left the newest line.
    pub(super) first_position: u64,
    pub(super) lines_when_left: u64,
    /// Long lines are shown whole.
    pub(super) wrap: bool,
    /// The first column that is shown.
    pub(super) first_column: usize,
    pub(super) time_column: TimeColumn,
    /// Every byte as it is.
    pub(super) show_bytes: bool,
    /// Every picture of a progress bar.
    pub(super) show_all_redraws: bool,
    pub(super) zoomed: bool,
    /// What is looked for.
    pub(super) search: Option<Regex>,
    /// The line that was found last.
    pub(super) found_position: Option<u64>,
    pub(super) filter: Option<LineFilter>,
    pub(super) marks: Vec<LineMark>,
    /// What is known of the one log.
    pub(super) index: LogIndex,
    /// What is known of several.
    pub(super) merged: MergedLines,
    pub(super) groups: LineGroups,
    /// What was drawn last, and of what.
    pub(super) cached_rows: Option<(RowCacheKey, Vec<LogRow>)>,
}

impl Default for LogsPane {
    fn default() -> Self {
        LogsPane {
            selected_log: None,
            scope: LogScope::Single,
            fold: true,
            follow: true,
            first_position: 0,
            lines_when_left: 0,
            wrap: false,
            first_column: 0,
            time_column: TimeColumn::Off,
            show_bytes: false,
            show_all_redraws: false,
            zoomed: false,
            search: None,
            found_position: None,
            filter: None,
            marks: Vec::new(),
            index: LogIndex::default(),
            merged: MergedLines::default(),
            groups: LineGroups::default(),
            cached_rows: None,
        }
    }
}

impl LogsPane {
    /// The lines of all logs as they come, equal ones as one.
    pub(crate) fn merged() -> LogsPane {
        LogsPane { scope: LogScope::All, ..LogsPane::default() }
    }

    /// Shows another log, from its newest lines on.
    pub(crate) fn show_log(&mut self, log: (u32, LogFile)) {
        (self.selected_log, self.scope) = (Some(log), LogScope::Single);
        self.reset_view();
    }

    /// Something else is shown: from its newest line on, and nothing is known of it.
    pub(super) fn reset_view(&mut self) {
        (self.follow, self.first_position, self.first_column, self.found_position) = (true, 0, 0, None);
        self.clear_caches();
    }

    /// What was found out is void.
    pub(super) fn clear_caches(&mut self) {
        (self.index, self.merged, self.groups, self.cached_rows) =
            (LogIndex::default(), MergedLines::default(), LineGroups::default(), None);
    }

    /// The feed begins anew.
    pub(crate) fn reset(&mut self) {
        self.reset_view();
    }

    /// Whether nothing but the log is to be on the screen.
    pub(crate) fn is_zoomed(&self) -> bool {
        self.zoomed
    }

    /// The one log that is shown, or was before all of them were.
    pub(crate) fn shown_log(&self, state: &RunState) -> Option<(u32, LogFile)> {
        self.selected_log.or_else(|| all_logs(state).first().copied())
    }

    /// The filter as it was typed.
    pub(crate) fn filter_text(&self) -> String {
        self.filter.as_ref().map_or_else(String::new, |filter| filter.text.clone())
    }
}

/// All logs of ranks in their order; those of launchers where there are no ranks yet.
pub(super) fn all_logs(state: &RunState) -> Vec<(u32, LogFile)> {
    let ranks: Vec<_> = state.ranks.values().map(|rank| (rank.host, LogFile::Rank { rank: rank.rank, restart: rank.restart })).collect();
    if ranks.is_empty() { (0_u32..).zip(&state.hosts).map(|(at, _)| (at, LogFile::Launcher)).collect() } else { ranks }
}

/// Whose line it is, for filters.
pub(super) fn line_origin(state: &RunState, log: (u32, LogFile)) -> LineOrigin<'_> {
    let rank = match log.1 {
        LogFile::Rank { rank, .. } => Some(rank),
        LogFile::Launcher => None,
    };
    LineOrigin { rank, host: state.host_name(log.0) }
}
