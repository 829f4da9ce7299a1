//! Builds the index of the current log in the background.

use crate::tui::log_index::LineQuery;
use crate::tui::model::Model;

use super::pane::{LogScope, LogsPane, line_origin};
use super::rows::with_shown_log;

/// Bytes to scan per tick.
const SCAN_BYTES_PER_TICK: u64 = 4 << 20;

/// Whether part of the log is not scanned yet.
pub(crate) fn is_indexing(pane: &LogsPane) -> bool {
    pane.scope == LogScope::Single && pane.index.is_scanning()
}

/// Scans more of the log on a tick; returns whether a redraw is needed.
pub(crate) fn index_on_tick(pane: &mut LogsPane, model: &Model) -> bool {
    let counts = |pane: &LogsPane| [&pane.index.errors, &pane.index.filtered, &pane.index.matches].map(|places| places.offsets().len());
    let before = counts(pane);
    let whole = index_more(pane, model, SCAN_BYTES_PER_TICK);
    before != counts(pane) || whole
}

/// Scans this many more bytes; returns whether the scan was completed just now.
pub(super) fn index_more(pane: &mut LogsPane, model: &Model, budget: u64) -> bool {
    if pane.scope != LogScope::Single {
        return false;
    }
    let mut scan = std::mem::take(&mut pane.index);
    let whole = scan.is_complete();
    let done = with_shown_log(pane, model, |source| {
        let (text, filter) = (pane.search.as_ref(), pane.filter.as_ref());
        scan.scan_more(source, LineQuery { pattern: text, filter, origin: line_origin(&model.state, (source.host, source.file)) }, budget)
    });
    pane.index = scan;
    match done {
        Ok(done) => done.unwrap_or(false) && !whole,
        Err(error) => {
            tracing::debug!(%error, "cannot index the log");
            false
        }
    }
}
