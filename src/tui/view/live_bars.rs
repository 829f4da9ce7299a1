//! Progress bars that ranks draw now: below the merged log, which has only lines with an end. Equal bars of several ranks are one row, that of the
//! rank that is furthest behind.

use std::collections::BTreeMap;

use ratatui::text::{Line, Span};

use crate::event::LogFile;
use crate::report::style;
use crate::state::training_metrics::parse_progress;
use crate::tui::line_groups::LogWriters;
use crate::tui::log_progress_bars::bar_shape;
use crate::tui::model::Model;

use super::formatting;

/// The most rows.
pub(super) const MAX_ROWS: usize = 2;
/// A bar that was not drawn for this long is left out, in milliseconds.
const STALE_MS: i64 = 120_000;

struct LiveBar {
    logs: Vec<(u32, LogFile)>,
    percent: f32,
    text: String,
}

/// A row for each kind of bar, that of most ranks first; at most [`MAX_ROWS`].
pub(super) fn rows(model: &Model, width: usize) -> Vec<Line<'static>> {
    let mut bars: BTreeMap<String, LiveBar> = BTreeMap::new();
    for rank in model.state.ranks.values().filter(|rank| rank.exit.is_none() && model.now - rank.last_output_at < STALE_MS) {
        let Some(text) = rank.recent_lines.progress_line().map(|line| model.sanitize(&line)) else { continue };
        let Some(progress) = parse_progress(text.as_bytes(), rank.last_output_at) else { continue };
        let bar =
            bars.entry(bar_shape(text.as_bytes())).or_insert_with(|| LiveBar { logs: Vec::new(), percent: f32::MAX, text: String::new() });
        bar.logs.push(rank.log());
        if progress.percent < bar.percent {
            (bar.percent, bar.text) = (progress.percent, text);
        }
    }
    let mut bars: Vec<LiveBar> = bars.into_values().collect();
    bars.sort_by_key(|bar| std::cmp::Reverse(bar.logs.len()));
    let room = (width / 4).clamp(6, 28);
    let row = |bar: LiveBar| {
        let owner = LogWriters::of(&bar.logs).format(|_| String::new());
        Line::from(vec![
            Span::styled(format!(" {} ", formatting::pad(&owner, room)), model.theme.dim()),
            Span::raw(style::truncate_text(bar.text.trim(), width.saturating_sub(room + 2))),
        ])
    };
    bars.into_iter().take(MAX_ROWS).map(row).collect()
}
