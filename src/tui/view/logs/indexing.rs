//! The index of the one log that is shown, built while time goes by.
//!
//! Uses `log_index`. It begins at the end of the log and works backwards.

use crate::tui::log_index::LineQuery;
use crate::tui::model::Model;

use super::pane::{LogScope, LogsPane, line_origin};
use super::rows::with_shown_log;

/// How many bytes of a log are looked at while time goes by.
const SCAN_BYTES_PER_TICK: u64 = 4 << 20;

/// Whether there is more of the log to look at.
pub(crate) fn is_indexing(pane: &LogsPane) -> bool {
    pane.scope == LogScope::Single && pane.index.is_scanning()
}

/// Time goes by: looks at more of the log. Whether that shows.
pub(crate) fn index_on_tick(pane: &mut LogsPane, model: &Model) -> bool {
    let counts = |pane: &LogsPane| [&pane.index.errors, &pane.index.filtered, &pane.index.matches].map(|places| places.offsets().len());
    let before = counts(pane);
    let whole = index_more(pane, model, SCAN_BYTES_PER_TICK);
    before != counts(pane) || whole
}

/// Looks at so many bytes more of the one log; whether its beginning was reached just now.
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
