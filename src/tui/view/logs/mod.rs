//! The Logs screen: one rank or launcher, all logs of a host, or all; following the newest lines, or scrolled back to a fixed position.
//!
//! A single log is read from its file; merged logs show the newest lines kept in memory, each
//! on its own or folded. A position is a byte of the file, a line of the ring, or a group, depending on the view.

mod export;
mod header;
mod indexing;
mod navigation;
mod pane;
mod render;
mod rows;
mod text;

pub(crate) use header::position_text;
pub(crate) use indexing::{index_on_tick, is_indexing};
pub(crate) use navigation::{go_to_offset, open_row};
pub(crate) use pane::LogsPane;
pub(crate) use render::{draw, draw_rows};
pub(crate) use rows::count_rows;
pub(super) use text::style_of_level;

use crate::event::LogFile;
use crate::tui::keymap::UiCommand;
use crate::tui::line_filter::{self, LineFilter, LogLevel};
use crate::tui::model::Model;
use crate::tui::pane_action::PaneAction;

use indexing::index_more;
use navigation::{
    LogsResult, SEARCH_BYTES, find_match, go_to_next_mark, open_log_of_row, scroll_down, scroll_to, scroll_up, seek_row, toast, toggle_mark,
};
use pane::{LogRow, LogScope, TimeColumn, all_logs};
use rows::update_merged;

pub(crate) fn update(pane: &mut LogsPane, model: &Model, cmd: UiCommand) -> Option<PaneAction> {
    obey(pane, model, cmd).unwrap_or_else(|error| toast(error.to_string()))
}

fn obey(pane: &mut LogsPane, model: &Model, cmd: UiCommand) -> LogsResult {
    update_merged(pane, model);
    let page = model.page_rows.max(1);
    let half = page.div_ceil(2);
    match cmd {
        UiCommand::Up => return scroll_up(pane, model, 1),
        UiCommand::Down => return scroll_down(pane, model, 1),
        UiCommand::PageUp => return scroll_up(pane, model, page),
        UiCommand::PageDown => return scroll_down(pane, model, page),
        UiCommand::HalfUp => return scroll_up(pane, model, half),
        UiCommand::HalfDown => return scroll_down(pane, model, half),
        UiCommand::Top => scroll_to(pane, model, 0),
        UiCommand::Follow if pane.top.is_none() => return scroll_up(pane, model, 0),
        UiCommand::Bottom | UiCommand::Follow => pane.top = None,
        UiCommand::Wrap => pane.wrap = !pane.wrap,
        UiCommand::Left => pane.first_column = pane.first_column.saturating_sub(20),
        UiCommand::Right => pane.first_column = (pane.first_column + 20).min(16 << 10),
        UiCommand::PrevRank => show_adjacent_log(pane, model, false),
        UiCommand::NextRank => show_adjacent_log(pane, model, true),
        UiCommand::PrevHost => show_adjacent_host(pane, model, false),
        UiCommand::NextHost => show_adjacent_host(pane, model, true),
        UiCommand::NodeLog => toggle_launcher_log(pane, model),
        UiCommand::FindNext => return find_match(pane, model, true),
        UiCommand::FindPrev => return find_match(pane, model, false),
        UiCommand::NextError | UiCommand::PrevError => {
            let wrong = |row: &LogRow| line_filter::detect_level(&row.bytes) == LogLevel::Error;
            return seek_row(pane, model, cmd == UiCommand::NextError, wrong, "has an error");
        }
        UiCommand::Merge => cycle_scope(pane),
        UiCommand::Fold => {
            pane.is_unfolded = !pane.is_unfolded;
            pane.reset_view();
        }
        UiCommand::Open => return open_log_of_row(pane, model),
        UiCommand::Times => {
            pane.time_column = match pane.time_column {
                TimeColumn::Off => TimeColumn::Relative,
                TimeColumn::Relative => TimeColumn::TimeOfDay,
                TimeColumn::TimeOfDay => TimeColumn::Off,
            }
        }
        UiCommand::Bytes => pane.show_bytes = !pane.show_bytes,
        UiCommand::Collapse => pane.show_all_redraws = !pane.show_all_redraws,
        UiCommand::Zoom => pane.zoomed = !pane.zoomed,
        UiCommand::Mark => return Ok(toggle_mark(pane)),
        UiCommand::NextMark => return go_to_next_mark(pane, model),
        UiCommand::Copy => return Ok(Some(export::copy_line(pane, model))),
        UiCommand::CopyView => return Ok(Some(export::copy_screen(pane, model))),
        UiCommand::Save => return export::save_all(pane, model).map(Some),
        _ => {}
    }
    Ok(None)
}

/// Cycles: this log, all logs, all logs of this host.
fn cycle_scope(pane: &mut LogsPane) {
    pane.scope = match pane.scope {
        LogScope::Single => LogScope::All,
        LogScope::All => LogScope::Host,
        LogScope::Host => LogScope::Single,
    };
    pane.reset_view();
}

fn show_adjacent_log(pane: &mut LogsPane, model: &Model, next: bool) {
    let all = all_logs(&model.state);
    let Some(at) = pane
        .shown_log(&model.state)
        .and_then(|owner| all.iter().position(|log| *log == owner).or_else(|| all.iter().position(|log| log.0 == owner.0)))
    else {
        return;
    };
    let to = if next { (at + 1) % all.len() } else { (at + all.len() - 1) % all.len() };
    pane.show_log(all[to]);
}

fn show_adjacent_host(pane: &mut LogsPane, model: &Model, next: bool) {
    let hosts = u32::try_from(model.state.hosts.len()).unwrap_or(u32::MAX);
    let Some((host, _)) = pane.shown_log(&model.state).filter(|_| hosts > 0) else { return };
    let to = if next { (host + 1) % hosts } else { (host + hosts - 1) % hosts };
    let first = all_logs(&model.state).into_iter().find(|log| log.0 == to).unwrap_or((to, LogFile::Launcher));
    let mode = pane.scope;
    pane.show_log(first);
    if mode == LogScope::Host {
        pane.scope = mode;
    }
}

fn toggle_launcher_log(pane: &mut LogsPane, model: &Model) {
    let Some((host, file)) = pane.shown_log(&model.state) else { return };
    let to = match file {
        LogFile::Rank { .. } | LogFile::Task { .. } => (host, LogFile::Launcher),
        LogFile::Launcher => all_logs(&model.state).into_iter().find(|log| log.0 == host).unwrap_or((host, LogFile::Launcher)),
    };
    pane.show_log(to);
}

/// Searches backwards from the newest line: a regular expression if the text is one, case-insensitive without upper-case letters.
pub(crate) fn set_search(pane: &mut LogsPane, model: &Model, text: &str) -> Option<PaneAction> {
    pane.found_position = None;
    if text.is_empty() {
        pane.search = None;
        pane.clear_caches();
        return None;
    }
    match line_filter::compile_pattern(text) {
        Ok(wanted) => {
            pane.search = Some(wanted);
            pane.clear_caches();
            update_merged(pane, model);
            find_match(pane, model, false).unwrap_or_else(|error| toast(error.to_string()))
        }
        Err(error) => toast(error),
    }
}

/// Sets the line filter; an empty text removes it.
pub(crate) fn set_filter(pane: &mut LogsPane, model: &Model, text: &str) -> Option<PaneAction> {
    match LineFilter::parse(text) {
        Ok(filter) => {
            pane.filter = filter;
            pane.reset_view();
            index_more(pane, model, SEARCH_BYTES);
            update_merged(pane, model);
            None
        }
        Err(why) => toast(why),
    }
}

#[cfg(test)]
mod tests;
