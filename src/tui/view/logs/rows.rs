//! Rows of the current view: from a file, from the ring of merged lines, or from groups of equal lines.
//!
//! Reads only the requested rows and the lines that collapse into them.

use std::io;
use std::sync::Arc;

use crate::event::LogFile;
use crate::state::RunState;
use crate::tui::feed::{DashboardRole, StoredLogs};
use crate::tui::line_filter::{LogLevel, detect_level};
use crate::tui::log_progress_bars;
use crate::tui::log_ring::RingLine;
use crate::tui::log_source::{self, LogSource};
use crate::tui::model::Model;

use super::pane::{LogRow, LogScope, LogsPane, RowCacheKey, line_origin};

/// Maximum lines to read for rows that many lines collapse into.
const MAX_LINES_READ: usize = 16_000;
/// Maximum number of new lines folded between two frames: four of each rank within these bounds, and the upper one for what is there at first.
const FOLDED_PER_FRAME: std::ops::RangeInclusive<usize> = 1_000..=5_000;

/// The last lines kept in `state`, used as a stored log.
struct TailLog(Vec<u8>);

impl TailLog {
    fn from_state(state: &RunState, host: u32, file: LogFile) -> TailLog {
        let tail = state.recent_lines(host, file);
        TailLog(tail.map(|tail| tail.last_lines(usize::MAX).join("\n")).unwrap_or_default().into_bytes())
    }
}

impl StoredLogs for TailLog {
    fn len(&self, _: &str, _: LogFile) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read(&self, _: &str, _: LogFile, from: u64, most: usize) -> io::Result<Vec<u8>> {
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(self.0.len());
        Ok(self.0[from..from.saturating_add(most).min(self.0.len())].to_vec())
    }
}

/// Passes the current log to `act`: live logs in full, in a replay up to the current time.
pub(super) fn with_shown_log<T>(
    pane: &LogsPane,
    model: &Model,
    act: impl FnOnce(&LogSource<'_>) -> io::Result<T>,
) -> io::Result<Option<T>> {
    let Some((host, file)) = pane.shown_log(&model.state) else { return Ok(None) };
    let last = TailLog::from_state(&model.state, host, file);
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
    let logs = pane;
    let (first, next) = ring.seq_range();
    let kept = &mut logs.merged;
    for entry in ring.lines_from(kept.next_seq) {
        let mine = of.is_none_or(|host| entry.log.0 == host);
        if mine && logs.filter.as_ref().is_none_or(|filter| filter.matches(line_origin(state, entry.log), &entry.text)) {
            kept.seqs.push_back(entry.seq);
        }
    }
    kept.next_seq = next;
    // Only the view of single lines marks errors.
    if !logs.fold {
        let unchecked = kept.seqs.partition_point(|seq| *seq < kept.next_unchecked);
        let is_error = |seq: &&u64| ring.get(**seq).is_some_and(|entry| detect_level(&entry.text) == LogLevel::Error);
        kept.errors.extend(kept.seqs.range(unchecked..).filter(is_error));
        kept.next_unchecked = next;
    }
    for list in [&mut kept.seqs, &mut kept.errors] {
        let gone = list.partition_point(|seq| *seq < first);
        list.drain(..gone);
    }
    if !logs.fold {
        return;
    }
    let fresh = kept.seqs.partition_point(|seq| *seq < kept.next_unfolded);
    // Under a flood only the newest lines are folded; the ring and the files have the rest.
    let (least, most) = FOLDED_PER_FRAME.into_inner();
    let most = if kept.next_unfolded == 0 { most } else { (4 * state.ranks.len()).clamp(least, most) };
    let fresh = fresh.max(kept.seqs.len().saturating_sub(most));
    for entry in kept.seqs.range(fresh..).filter_map(|seq| ring.get(*seq)) {
        let text = model.sanitize(&String::from_utf8_lossy(&entry.text));
        // Empty lines are frequent and carry no information.
        if text.trim().is_empty() {
            continue;
        }
        logs.groups.add_line(entry.log, entry.received_at, entry.offset, &text);
    }
    kept.next_unfolded = next;
}

/// How many rows of several logs there are to show, at most `room`.
pub(crate) fn count_rows(pane: &mut LogsPane, model: &Model, room: usize) -> usize {
    update_merged(pane, model);
    let kept = if pane.fold { pane.groups.len() } else { pane.merged.seqs.len() };
    kept.min(room)
}

/// The last `count` rows before this position, oldest first.
pub(super) fn rows_before(pane: &LogsPane, model: &Model, end: u64, count: usize) -> io::Result<Vec<LogRow>> {
    match (pane.scope, pane.fold) {
        (LogScope::Single, _) => {
            Ok(with_shown_log(pane, model, |source| file_rows(pane, model, source, RowRange::Before(end), count))?.unwrap_or_default())
        }
        (_, false) => {
            let all = &pane.merged.seqs;
            let to = all.partition_point(|seq| *seq < end);
            Ok(ring_rows(pane, model, to.saturating_sub(count)..to))
        }
        (_, true) => {
            let (from, to) = pane.groups.id_range();
            let to = end.clamp(from, to);
            Ok(group_rows(pane, to.saturating_sub(count as u64).max(from), to))
        }
    }
}

/// The first `count` rows from this position on.
pub(super) fn rows_from(pane: &LogsPane, model: &Model, from: u64, count: usize) -> io::Result<Vec<LogRow>> {
    match (pane.scope, pane.fold) {
        (LogScope::Single, _) => {
            Ok(with_shown_log(pane, model, |source| file_rows(pane, model, source, RowRange::From(from), count))?.unwrap_or_default())
        }
        (_, false) => {
            let all = &pane.merged.seqs;
            let start = all.partition_point(|seq| *seq < from);
            Ok(ring_rows(pane, model, start..start.saturating_add(count).min(all.len())))
        }
        (_, true) => {
            let (first, next) = pane.groups.id_range();
            let from = from.clamp(first, next);
            Ok(group_rows(pane, from, from.saturating_add(count as u64).min(next)))
        }
    }
}

/// Whether this is the oldest merged row kept, and older lines were dropped or never received.
pub(super) fn is_oldest_kept(pane: &LogsPane, model: &Model, row: &LogRow) -> bool {
    let (first, _) = model.log_ring.seq_range();
    let begun = model.log_ring.get(first).is_none_or(|entry| entry.offset == 0);
    let (oldest, gone) = match (pane.scope, pane.fold) {
        (LogScope::Single, _) => return false,
        (_, false) => (pane.merged.seqs.front().copied(), false),
        (_, true) => (Some(pane.groups.id_range().0), pane.groups.id_range().0 > 0),
    };
    oldest == Some(row.position) && (gone || first > 0 || !begun || model.log_ring.skipped_lines > 0)
}

fn ring_rows(pane: &LogsPane, model: &Model, range: std::ops::Range<usize>) -> Vec<LogRow> {
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

fn group_rows(pane: &LogsPane, from: u64, to: u64) -> Vec<LogRow> {
    let groups = (from..to).filter_map(|id| pane.groups.get(id));
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

/// Direction in which rows are read.
#[derive(Clone, Copy)]
enum RowRange {
    Before(u64),
    From(u64),
}

fn file_rows(pane: &LogsPane, model: &Model, source: &LogSource<'_>, range: RowRange, count: usize) -> io::Result<Vec<LogRow>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if pane.filter.is_some() {
        let kept = &pane.index.filtered;
        let range = match range {
            RowRange::Before(location) => kept.count_before(location).saturating_sub(count)..kept.count_before(location),
            RowRange::From(location) => {
                let at = kept.count_before(location);
                at..at.saturating_add(count).min(kept.offsets().len())
            }
        };
        let mut rows = Vec::new();
        for at in kept.offsets().range(range) {
            rows.extend(lines_to_rows(pane, model, source, &source.lines_from(*at, 1)?));
        }
        return Ok(rows);
    }
    let mut deep = count;
    loop {
        let lines = match range {
            RowRange::Before(location) => source.lines_before(location, deep)?,
            RowRange::From(location) => source.lines_from(location, deep)?,
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
fn lines_to_rows(pane: &LogsPane, model: &Model, source: &LogSource<'_>, lines: &[log_source::StoredLine]) -> Vec<LogRow> {
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
    let location = (!pane.follow).then_some(pane.first_position);
    let kept = pane.index.filtered.offsets().len();
    let key = RowCacheKey {
        log: owner,
        merged: several,
        size,
        first_position: location,
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
    let rows: Arc<[LogRow]> = match location {
        None => rows_before(pane, model, u64::MAX, room)?,
        Some(top) => rows_from(pane, model, top, room)?,
    }
    .into();
    pane.cached_rows = Some((key, Arc::clone(&rows)));
    Ok((size, rows))
}
