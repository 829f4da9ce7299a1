//! Rows of the current view: from a file, from the ring of merged lines, or from groups of equal lines.
//!
//! Reads only the requested rows and the lines that collapse into them.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::event::LogFile;
use crate::state::RunState;
use crate::tui::feed::{DashboardRole, StoredLogs};
use crate::tui::line_filter::{LogLevel, detect_level};
use crate::tui::log_progress_bars;
use crate::tui::log_ring::RingLine;
use crate::tui::log_source::{LogSource, MemoryLog, StoredLine};
use crate::tui::model::Model;

use super::pane::{LogRow, LogScope, LogsPane, RowCacheKey, line_origin};

/// Maximum lines to read for rows that many lines collapse into.
const MAX_LINES_READ: usize = 16_000;
/// Maximum number of new lines folded between two frames: four of each rank within these bounds, and the upper one for what is there at first.
const FOLDED_PER_FRAME: std::ops::RangeInclusive<usize> = 1_000..=5_000;

/// The last lines kept in `state`, used as a stored log.
fn recent_log(state: &RunState, host: u32, file: LogFile) -> MemoryLog {
    let tail = state.recent_lines(host, file);
    MemoryLog(tail.map(|tail| tail.last_lines(usize::MAX).join("\n")).unwrap_or_default().into_bytes())
}

/// Passes the current log to `act`: live logs in full, in a replay up to the current time.
pub(super) fn with_shown_log<T>(
    pane: &LogsPane,
    model: &Model,
    act: impl FnOnce(&LogSource<'_>) -> io::Result<T>,
) -> io::Result<Option<T>> {
    let Some((host, file)) = pane.shown_log(&model.state) else { return Ok(None) };
    let last = recent_log(&model.state, host, file);
    let stored: &dyn StoredLogs = model.stored_logs.as_deref().unwrap_or(&last);
    let name = model.state.host_name(host);
    let mut len = stored.len(name, file)?;
    if model.capabilities.role == DashboardRole::Replay && model.stored_logs.is_some() {
        let known_len = model.state.recent_lines(host, file).map(|lines| lines.next_offset);
        len = len.min(known_len.unwrap_or(0));
    }
    act(&LogSource { logs: stored, host, host_name: name, file, len }).map(Some)
}

/// Number of lines: complete lines of the single log, or lines received of all logs.
pub(super) fn count_lines(pane: &LogsPane, model: &Model) -> u64 {
    if pane.scope != LogScope::Single {
        return model.log_ring.seq_range().1;
    }
    let Some((host, file)) = pane.shown_log(&model.state) else { return 0 };
    model.state.recent_lines(host, file).map_or(0, |tail| tail.total_lines)
}

/// Adds the lines of merged logs since the last call.
pub(super) fn update_merged(pane: &mut LogsPane, model: &Model) {
    if pane.scope == LogScope::Single {
        return;
    }
    let host = || pane.shown_log(&model.state).map(|(host, _)| host);
    let of = (pane.scope == LogScope::Host).then(host).flatten();
    let Model { log_ring: ring, state, .. } = model;
    let (first, next) = ring.seq_range();
    let kept = &mut pane.merged;
    let seen = std::mem::replace(&mut kept.next_seq, next);
    for entry in ring.lines_from(seen) {
        let mine = of.is_none_or(|host| entry.log.0 == host);
        if mine && pane.filter.as_ref().is_none_or(|filter| filter.matches(line_origin(state, entry.log), &entry.text)) {
            kept.seqs.push_back(entry.seq);
            // Only the view of single lines marks errors.
            if pane.is_unfolded && detect_level(&entry.text) == LogLevel::Error {
                kept.errors.push_back(entry.seq);
            }
        }
    }
    for list in [&mut kept.seqs, &mut kept.errors] {
        let gone = list.partition_point(|seq| *seq < first);
        list.drain(..gone);
    }
    if pane.is_unfolded {
        return;
    }
    let fresh = kept.seqs.partition_point(|seq| *seq < seen);
    // Under a flood only the newest lines are folded; the ring and the files have the rest.
    let (least, most) = FOLDED_PER_FRAME.into_inner();
    let most = if seen == 0 { most } else { (4 * state.ranks.len()).clamp(least, most) };
    let fresh = fresh.max(kept.seqs.len().saturating_sub(most));
    for entry in kept.seqs.range(fresh..).filter_map(|seq| ring.get(*seq)) {
        let text = model.sanitize(&String::from_utf8_lossy(&entry.text));
        // Empty lines are frequent and carry no information.
        if text.trim().is_empty() {
            continue;
        }
        pane.groups.add_line(entry.log, entry.received_at, entry.offset, &text);
    }
}

/// How many rows of several logs there are to show, at most `room`.
pub(crate) fn count_rows(pane: &mut LogsPane, model: &Model, room: usize) -> usize {
    update_merged(pane, model);
    let kept = if pane.is_unfolded { pane.merged.seqs.len() } else { pane.groups.len() };
    kept.min(room)
}

/// Which rows are read.
#[derive(Clone, Copy)]
pub(super) enum RowRange {
    /// The last ones before this position.
    Before(u64),
    /// The first ones from this position on.
    From(u64),
}

impl RowRange {
    fn position(self) -> u64 {
        match self {
            RowRange::Before(position) | RowRange::From(position) => position,
        }
    }

    /// `count` of `len` items: those before item `at`, or those from it on.
    fn select(self, at: usize, len: usize, count: usize) -> Range<usize> {
        match self {
            RowRange::Before(_) => at.saturating_sub(count)..at,
            RowRange::From(_) => at..at.saturating_add(count).min(len),
        }
    }
}

/// At most `count` rows, oldest first.
pub(super) fn read_rows(pane: &LogsPane, model: &Model, range: RowRange, count: usize) -> io::Result<Vec<LogRow>> {
    match (pane.scope, pane.is_unfolded) {
        (LogScope::Single, _) => Ok(with_shown_log(pane, model, |log| file_rows(pane, model, log, range, count))?.unwrap_or_default()),
        (_, true) => {
            let all = &pane.merged.seqs;
            let at = all.partition_point(|seq| *seq < range.position());
            Ok(ring_rows(pane, model, range.select(at, all.len(), count)))
        }
        (_, false) => {
            let (first, next) = pane.groups.id_range();
            let at = usize::try_from(range.position().clamp(first, next) - first).unwrap_or(usize::MAX);
            Ok(group_rows(pane, range.select(at, pane.groups.len(), count)))
        }
    }
}

/// Whether this is the oldest merged row kept, and older lines were dropped or never received.
pub(super) fn is_oldest_kept(pane: &LogsPane, model: &Model, row: &LogRow) -> bool {
    let (first, _) = model.log_ring.seq_range();
    let begun = model.log_ring.get(first).is_none_or(|entry| entry.offset == 0);
    let (oldest, gone) = match (pane.scope, pane.is_unfolded) {
        (LogScope::Single, _) => return false,
        (_, true) => (pane.merged.seqs.front().copied(), false),
        (_, false) => (Some(pane.groups.id_range().0), pane.groups.id_range().0 > 0),
    };
    oldest == Some(row.position) && (gone || first > 0 || !begun || model.log_ring.skipped_lines > 0)
}

fn ring_rows(pane: &LogsPane, model: &Model, range: Range<usize>) -> Vec<LogRow> {
    let row = |entry: &RingLine| LogRow {
        position: entry.seq,
        next_position: entry.seq + 1,
        log: entry.log,
        offset: entry.offset,
        received_at: Some(entry.received_at),
        bytes: entry.text.to_vec(),
        draw_count: 1,
        group: None,
    };
    pane.merged.seqs.range(range).filter_map(|seq| model.log_ring.get(*seq)).map(row).collect()
}

fn group_rows(pane: &LogsPane, range: Range<usize>) -> Vec<LogRow> {
    let groups = range.filter_map(|at| pane.groups.get(pane.groups.id_range().0 + at as u64));
    let row = |group: &crate::tui::line_groups::LineGroup| LogRow {
        position: group.id,
        next_position: group.id + 1,
        log: group.logs.first().copied().unwrap_or((0, LogFile::Launcher)),
        offset: group.offset,
        received_at: Some(group.first_at),
        bytes: group.text().into_bytes(),
        draw_count: 1,
        group: Some(group.folded()),
    };
    groups.map(row).collect()
}

fn file_rows(pane: &LogsPane, model: &Model, source: &LogSource<'_>, range: RowRange, count: usize) -> io::Result<Vec<LogRow>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if pane.filter.is_some() {
        let kept = &pane.index.filtered;
        let range = range.select(kept.count_before(range.position()), kept.offsets().len(), count);
        let mut rows = Vec::new();
        for at in kept.offsets().range(range) {
            rows.extend(lines_to_rows(pane, model, source, &source.lines_from(*at, 1)?));
        }
        return Ok(rows);
    }
    let mut deep = count;
    loop {
        let lines = match range {
            RowRange::Before(offset) => source.lines_before(offset, deep)?,
            RowRange::From(offset) => source.lines_from(offset, deep)?,
        };
        let rows = lines_to_rows(pane, model, source, &lines);
        if rows.len() >= count || lines.len() < deep || deep >= MAX_LINES_READ {
            let from = if matches!(range, RowRange::Before(_)) { rows.len().saturating_sub(count) } else { 0 };
            return Ok(rows.into_iter().skip(from).take(count).collect());
        }
        deep = (deep * 4).min(MAX_LINES_READ);
    }
}

/// Lines of a file as rows: progress bars collapsed, every redraw, or raw bytes.
fn lines_to_rows(pane: &LogsPane, model: &Model, source: &LogSource<'_>, lines: &[StoredLine]) -> Vec<LogRow> {
    let log = (source.host, source.file);
    let row = |at: u64, next: u64, bytes: Vec<u8>, drawn: u32| LogRow {
        position: at,
        next_position: next,
        log,
        offset: at,
        // The kept last lines have no offsets of the log.
        received_at: model.stored_logs.as_ref().and_then(|_| model.log_times.received_at(log, at)),
        bytes,
        draw_count: drawn,
        group: None,
    };
    if pane.show_bytes {
        return lines.iter().map(|line| row(line.offset, line.next_offset, line.bytes.clone(), 1)).collect();
    }
    let rows = if pane.show_all_redraws { log_progress_bars::expand_progress(lines) } else { log_progress_bars::collapse_progress(lines) };
    rows.into_iter().map(|line| row(line.offset, line.next_offset, line.bytes, line.draw_count)).collect()
}

/// The visible rows, read again only if something changed, and the scrollable size.
pub(super) fn read_visible(pane: &mut LogsPane, model: &Model, room: usize) -> io::Result<(u64, Arc<[LogRow]>)> {
    update_merged(pane, model);
    let Some(owner) = pane.shown_log(&model.state) else { return Ok((0, Arc::default())) };
    let several = pane.scope != LogScope::Single;
    let size = if several { model.log_ring.seq_range().1 } else { with_shown_log(pane, model, |source| Ok(source.len))?.unwrap_or(0) };
    let kept = pane.index.filtered.offsets().len();
    let key = RowCacheKey {
        log: owner,
        merged: several,
        size,
        top: pane.top,
        max_rows: room,
        show_bytes: pane.show_bytes,
        show_all_redraws: pane.show_all_redraws,
        filtered_count: kept,
    };
    if let Some((known, rows)) = &pane.cached_rows
        && *known == key
    {
        return Ok((size, Arc::clone(rows)));
    }
    let range = pane.top.map_or(RowRange::Before(u64::MAX), RowRange::From);
    let rows: Arc<[LogRow]> = read_rows(pane, model, range, room)?.into();
    pane.cached_rows = Some((key, Arc::clone(&rows)));
    Ok((size, rows))
}
