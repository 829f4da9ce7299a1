//! The overview: the host table, problems, and the last lines of the ranks. During a launch the table is the matrix of hosts
//! and phases. A wide screen shows problems in a column of their own.
//!
//! The cursor follows its host when rows move.

use std::collections::{BTreeMap, HashMap};

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::event::LogFile;
use crate::report::style;
use crate::tui::keymap::UiCommand;
use crate::tui::model::Model;
use crate::tui::pane_action::PaneAction;

use super::host_list::HostList;
use super::lines::{render_lines, rows_area};
use super::{formatting, host_table, launch_matrix, problems, training};

/// Minimum size for a problem column.
const WIDE_SIZE: (u16, u16) = (180, 36);
/// Width of the problem column.
const SIDE_COLUMNS: u16 = 60;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OverviewPane {
    hosts: HostList,
    /// The last lines of the ranks, updated only for ranks with new output.
    last_lines: BTreeMap<u32, LastLine>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct LastLine {
    /// Log and length as of the update.
    log_position: (u32, u64),
    line: String,
    /// The line without the parts that differ between ranks.
    group_key: String,
}

/// Handles a click in this row of the terminal; `false` if nothing was hit.
pub(super) fn handle_click(view: &mut OverviewPane, y: u16) -> bool {
    view.hosts.rows.select_at(y)
}

pub(crate) fn host_at_cursor(view: &OverviewPane) -> Option<u32> {
    view.hosts.selected_host()
}

pub(crate) fn update(view: &mut OverviewPane, model: &Model, cmd: UiCommand) -> Option<PaneAction> {
    if view.hosts.rows.move_cursor(cmd, model.page_rows) {
        return None;
    }
    let host = view.hosts.selected_host()?;
    match cmd {
        UiCommand::Right | UiCommand::Left => {
            view.hosts.fold(host, cmd);
            None
        }
        UiCommand::Open => Some(PaneAction::ShowHost(host)),
        UiCommand::Output => Some(PaneAction::ShowLog(most_relevant_log(model, host))),
        _ => None,
    }
}

/// The most relevant log of a host: of a failed rank, of its first rank, or of its launcher.
pub(super) fn most_relevant_log(model: &Model, host: u32) -> (u32, LogFile) {
    let mut own: Vec<_> = model.state.ranks.values().filter(|rank| rank.host == host).collect();
    own.sort_by_key(|rank| (!rank.has_failed() || model.state.was_stopped(rank), rank.started_at.is_none(), rank.rank));
    let seen = own.first().filter(|rank| rank.started_at.is_some());
    seen.map_or((host, LogFile::Launcher), |rank| (host, LogFile::Rank { rank: rank.rank, restart: rank.restart }))
}

/// Draws the screen; returns the page size in rows.
pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, view: &mut OverviewPane) -> usize {
    let area = training::draw_header(frame, area, model);
    let found = problems::collect_problems(model);
    if area.width >= WIDE_SIZE.0 && area.height >= WIDE_SIZE.1 {
        let left = Rect { width: area.width - SIDE_COLUMNS - 1, ..area };
        let right = Rect { x: left.x + left.width + 1, width: SIDE_COLUMNS, ..area };
        draw_problem_column(frame, right, model, &found);
        draw_stacked(frame, left, model, view, &[])
    } else {
        draw_stacked(frame, area, model, view, &found)
    }
}

/// The problems, wrapped.
fn draw_problem_column(frame: &mut Frame<'_>, area: Rect, model: &Model, problems: &[problems::RunProblem]) {
    let width = usize::from(area.width);
    let room = usize::from(area.height);
    let mut lines = vec![Line::styled(formatting::pad(&format!(" problems  {}", problems.len()), width), model.theme.header())];
    for (n, problem) in problems.iter().enumerate() {
        let mut own = problems::problem_lines(model, problem, width);
        if lines.len() + own.len() + usize::from(n + 1 < problems.len()) > room {
            lines.push(Line::styled(format!(" {} and {} more", model.theme.ellipsis(), problems.len() - n), model.theme.dim()));
            break;
        }
        lines.append(&mut own);
    }
    if problems.is_empty() {
        lines.push(Line::styled(" no problems", model.theme.dim()));
    }
    render_lines(frame, area, lines);
}

/// The table above, problems and last lines below.
fn draw_stacked(frame: &mut Frame<'_>, area: Rect, model: &Model, view: &mut OverviewPane, problems: &[problems::RunProblem]) -> usize {
    let width = usize::from(area.width);
    let height = usize::from(area.height);
    let strip = problems.len().min(if height >= 30 { 5 } else { (height / 4).clamp(1, 3) });
    update_last_lines(view, model);
    let tails = grouped_last_lines(view, height / 2);
    // The table comes first; where hosts fold, a few rows are kept for last lines.
    let most = height.saturating_sub(strip + 6);
    let table = if model.has_open_steps() { None } else { Some(host_table::HostTable::new(model, &view.hosts, most)) };
    let needed = 2 + table.as_ref().map_or(model.state.hosts.len(), host_table::HostTable::len);
    let spare = height.saturating_sub(strip + needed.min(height));
    let least = usize::from(needed + strip + 6 > height) * 5;
    let shown = tails.len().min(if height >= 30 { 12 } else { 8 }).min(spare.max(least).saturating_sub(1)).min(height / 2);
    let below = strip + if shown > 0 { shown + 1 } else { 0 };
    let upper = rows_area(area, 0, u16::try_from(height.saturating_sub(below)).unwrap_or(0));
    match table {
        Some(table) => table.draw(frame, upper, model, &mut view.hosts),
        None => launch_matrix::draw(frame, upper, model, &mut view.hosts),
    }
    let mut lines: Vec<Line<'_>> = Vec::new();
    for (n, problem) in problems.iter().take(strip).enumerate() {
        if n + 1 == strip && problems.len() > strip {
            lines.push(Line::styled(format!(" {} and {} more", model.theme.ellipsis(), problems.len() - n), model.theme.dim()));
        } else {
            lines.push(problems::problem_line(model, problem, width));
        }
    }
    if shown > 0 {
        lines.push(Line::styled(formatting::pad(" last lines", width), model.theme.header()));
        lines.extend(tails.into_iter().take(shown).map(|(who, line)| tail_line(model, &who, &line, width)));
    }
    render_lines(frame, rows_area(area, upper.height, area.height - upper.height), lines);
    usize::from(upper.height.saturating_sub(1))
}

fn tail_line(model: &Model, label: &str, line: &str, width: usize) -> Line<'static> {
    let room = (width / 4).clamp(8, 24);
    Line::from(vec![
        Span::raw(" "),
        Span::styled(formatting::pad(label, room), model.theme.dim()),
        Span::raw(" "),
        Span::raw(style::truncate_text(line, width.saturating_sub(room + 2))),
    ])
}

/// Updates the last lines of ranks with new output.
fn update_last_lines(view: &mut OverviewPane, model: &Model) {
    let last = &mut view.last_lines;
    last.retain(|rank, _| model.state.ranks.contains_key(rank));
    for rank in model.state.ranks.values() {
        let seen = (rank.restart, rank.recent_lines.next_offset);
        if last.get(&rank.rank).is_some_and(|last| last.log_position == seen) {
            continue;
        }
        let line = rank.recent_lines.last_lines(1).pop().map(|last| model.sanitize(&last)).unwrap_or_default();
        let key = line.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect();
        last.insert(rank.rank, LastLine { log_position: seen, line, group_key: key });
    }
}

/// The last lines; ranks whose lines differ only in digits are grouped, largest group first.
fn grouped_last_lines(view: &OverviewPane, most: usize) -> Vec<(String, String)> {
    let mut groups: HashMap<&str, (Vec<u32>, &str)> = HashMap::new();
    for (rank, last) in view.last_lines.iter().filter(|(_, last)| !last.line.is_empty()) {
        groups.entry(&last.group_key).or_insert_with(|| (Vec::new(), &last.line)).0.push(*rank);
    }
    let mut groups: Vec<(Vec<u32>, &str)> = groups.into_values().collect();
    groups.sort_by_key(|(ranks, _)| (std::cmp::Reverse(ranks.len()), ranks.first().copied()));
    groups.truncate(most);
    groups
        .into_iter()
        .map(|(ranks, line)| (style::format_ranks(&ranks).replacen("ranks ", "r[", 1), line.to_owned()))
        .map(shorten_rank_label)
        .collect()
}

fn shorten_rank_label((who, line): (String, String)) -> (String, String) {
    let who = match who.strip_prefix("rank ") {
        Some(one) => format!("r{one}"),
        None => format!("{who}]"),
    };
    (who, line)
}
