//! Problems, worst first: a strip on the overview, and a screen of its own with evidence and next steps.
//!
//! A cause comes before its effects; equal problems of several hosts are merged.

use std::cmp::Reverse;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::diagnose::{self, DiagnosisFinding};
use crate::event::LogFile;
use crate::report::{finding, style};
use crate::state::{ConnectionStatus, RankState};
use crate::tui::keymap::UiCommand;
use crate::tui::model::Model;
use crate::tui::pane_action::PaneAction;
use crate::tui::theme::DisplayStatus;

use super::lines::{render_lines, rows_area};
use super::selectable_list::SelectableList;
use super::{formatting, host_status};

/// How long a warning is shown.
const NOTICE_MS: i64 = 60_000;
/// Number of last log lines shown as evidence.
const EVIDENCE_LINES: usize = 12;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunProblem {
    pub status: DisplayStatus,
    /// Location and description, sanitized.
    pub text: String,
    /// Affected hosts; empty if it concerns the whole run.
    pub hosts: Vec<u32>,
    /// The related log.
    pub log: Option<(u32, LogFile)>,
    /// Next step, sanitized; may be empty.
    pub next_step: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProblemsPane {
    list: SelectableList<(DisplayStatus, String)>,
}

#[derive(Default)]
struct ProblemList(Vec<RunProblem>);

impl ProblemList {
    /// Merges with an equal problem of another host.
    fn push_or_merge(&mut self, status: DisplayStatus, host: u32, text: String, next: String, log: Option<(u32, LogFile)>) {
        match self.0.iter_mut().find(|known| known.status == status && known.text == text) {
            Some(known) => known.hosts.push(host),
            None => self.0.push(RunProblem { status, text, hosts: vec![host], log, next_step: next }),
        }
    }
}

fn rank_log(rank: &RankState) -> (u32, LogFile) {
    (rank.host, LogFile::Rank { rank: rank.rank, restart: rank.restart })
}

pub(crate) fn collect_problems(model: &Model) -> Vec<RunProblem> {
    let mut found = ProblemList::default();
    let mut causes = cause_problems(model);
    add_rank_problems(model, &mut found);
    add_step_problems(model, &mut found);
    add_host_problems(model, &mut found);
    let fresh =
        model.state.notices.iter().rev().filter(|note| note.warn && (model.now - note.at < NOTICE_MS || model.state.outcome.is_some()));
    for note in fresh.take(20) {
        let text = model.sanitize(&note.text);
        match note.host {
            Some(host) => found.push_or_merge(DisplayStatus::Warn, host, text, String::new(), None),
            None if found.0.iter().any(|known| known.text == text) => {}
            None => found.0.push(RunProblem { status: DisplayStatus::Warn, text, hosts: Vec::new(), log: None, next_step: String::new() }),
        }
    }
    let mut all = found.0;
    for problem in all.iter_mut().filter(|problem| !problem.hosts.is_empty()) {
        problem.hosts.sort_unstable();
        problem.hosts.dedup();
        problem.text = format!("{}  {}", style::format_hosts(&model.state, &model.sanitizer, &problem.hosts), problem.text);
    }
    all.sort_by_key(|problem| Reverse(problem.status));
    causes.extend(all);
    causes
}

/// Diagnosed causes, first cause first.
fn cause_problems(model: &Model) -> Vec<RunProblem> {
    let to_problem = |found: &DiagnosisFinding| {
        let [what, why, next] = finding::finding_texts(found, model.lang, &model.sanitizer);
        let affected =
            if found.affected.is_empty() { String::new() } else { format!("; affects {}", style::format_ranks(&found.affected)) };
        let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
        let log = found.ranks.first().and_then(|rank| model.state.ranks.get(rank)).map(rank_log);
        RunProblem {
            status: DisplayStatus::Error,
            text: format!("{}  {what}{why}{affected}", finding::format_location(found, &model.state, &model.sanitizer)),
            hosts: found.hosts.clone(),
            log: log.or_else(|| found.hosts.first().map(|host| (*host, LogFile::Launcher))),
            next_step: next,
        }
    };
    diagnose::diagnose_run(&model.evidence, &model.state).iter().map(to_problem).collect()
}

fn add_rank_problems(model: &Model, problems: &mut ProblemList) {
    let first: Vec<u32> = model.state.culprit.as_ref().map(|culprit| culprit.ranks.clone()).unwrap_or_default();
    for rank in model.state.failed_ranks() {
        let exit = rank.exit.map(style::format_exit).unwrap_or_default();
        if !first.is_empty() && !first.contains(&rank.rank) {
            // Its own launcher or a broken connection to the first failed rank ended it.
            let text = format!("ranks that ended after the first failure: {exit}");
            problems.push_or_merge(DisplayStatus::Warn, rank.host, text, String::new(), Some(rank_log(rank)));
            continue;
        }
        let mark = if first.contains(&rank.rank) { ", failed first" } else { "" };
        let last = rank.recent_lines.last_lines(1).pop().map_or_else(String::new, |line| format!(": {}", model.sanitize(&line)));
        let next = model.evidence.command_formatter().format_command("logs", &format!("--rank {}", rank.rank));
        problems.push_or_merge(
            DisplayStatus::Error,
            rank.host,
            format!("rank {} {exit}{mark}{last}", rank.rank),
            next,
            Some(rank_log(rank)),
        );
    }
}

fn add_step_problems(model: &Model, problems: &mut ProblemList) {
    for step in model.state.failed_steps() {
        let text = format!("{}: {}", step.info.phase.name(), model.sanitize(&step.note));
        problems.push_or_merge(
            DisplayStatus::Error,
            step.info.host,
            text,
            model.sanitize(&step.hint),
            Some((step.info.host, LogFile::Launcher)),
        );
    }
    for left in &model.state.leftovers {
        problems.push_or_merge(
            DisplayStatus::Error,
            left.host,
            format!("leftover: {}", model.sanitize(&left.text)),
            model.evidence.command_formatter().format_command("down", ""),
            None,
        );
    }
}

fn add_host_problems(model: &Model, problems: &mut ProblemList) {
    for ((at, host), standing) in (0_u32..).zip(&model.state.hosts).zip(&model.host_statuses) {
        let failing = !standing.ranks.failed.is_empty() || standing.ranks.stopped > 0;
        let node = Some((at, LogFile::Launcher));
        match (host.connection_status, host.launcher_exit) {
            (ConnectionStatus::Unreachable, _) => {
                problems.push_or_merge(
                    DisplayStatus::Lost,
                    at,
                    format!("unreachable: {}", model.sanitize(&host.connection_error)),
                    String::new(),
                    None,
                );
            }
            (ConnectionStatus::Retrying, _) => {
                let next = "its ranks may still run; reconnecting automatically".to_owned();
                problems.push_or_merge(
                    DisplayStatus::Lost,
                    at,
                    format!("no connection, retrying: {}", model.sanitize(&host.connection_error)),
                    next,
                    None,
                );
            }
            (_, Some((exit, _))) if !exit.is_success() && !failing && model.state.stopping_since.is_none() => {
                problems.push_or_merge(
                    DisplayStatus::Error,
                    at,
                    format!("the launcher ended: {}", style::format_exit(exit)),
                    String::new(),
                    node,
                );
            }
            _ => {}
        }
        if let Some(why) = host_status::hardware_warning(host) {
            problems.push_or_merge(DisplayStatus::Warn, at, model.sanitize(&why), String::new(), None);
        }
    }
}

/// Handles a click in this row of the terminal; `false` if nothing was hit.
pub(super) fn handle_click(view: &mut ProblemsPane, y: u16) -> bool {
    view.list.select_at(y)
}

fn selected_problem(view: &ProblemsPane, model: &Model) -> Option<RunProblem> {
    let key = view.list.selected()?;
    collect_problems(model).into_iter().find(|problem| (problem.status, problem.text.clone()) == key)
}

/// The host of the problem under the cursor, and its rank if the related log is a rank's.
pub(crate) fn target_at_cursor(view: &ProblemsPane, model: &Model) -> Option<(u32, Option<u32>)> {
    let problem = selected_problem(view, model)?;
    match problem.log {
        Some((host, LogFile::Rank { rank, .. })) => Some((host, Some(rank))),
        Some((host, LogFile::Launcher)) => Some((host, None)),
        None => problem.hosts.first().map(|host| (*host, None)),
    }
}

pub(crate) fn update(view: &mut ProblemsPane, model: &Model, cmd: UiCommand) -> Option<PaneAction> {
    if view.list.move_cursor(cmd, model.page_rows) || !matches!(cmd, UiCommand::Open | UiCommand::Output) {
        return None;
    }
    let problem = selected_problem(view, model)?;
    problem.log.map(PaneAction::ShowLog).or_else(|| problem.hosts.first().copied().map(PaneAction::ShowHost))
}

/// Selects the next or previous problem; from another screen, the first one.
pub(crate) fn select_problem(view: &mut ProblemsPane, model: &Model, cmd: UiCommand) {
    let keys = collect_problems(model).iter().map(|p| (p.status, p.text.clone())).collect();
    view.list.set_rows(keys, model.page_rows.max(1));
    view.list.move_cursor(cmd, 1);
}

/// Draws the list and the details of the problem under the cursor; returns the page size in rows.
pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, view: &mut ProblemsPane) -> usize {
    let width = usize::from(area.width);
    let height = usize::from(area.height);
    let all = collect_problems(model);
    if all.is_empty() {
        render_lines(frame, area, vec![Line::styled(" no problems", model.theme.dim())]);
        return model.page_rows;
    }
    let room = all.len().min((height / 2).max(1));
    let (at, top) = view.list.set_rows(all.iter().map(|p| (p.status, p.text.clone())).collect(), room);
    view.list.set_screen_rows(area.y, room);
    let mut lines: Vec<Line<'static>> = Vec::new();
    for (n, problem) in all.iter().enumerate().skip(top).take(room) {
        let line = problem_line(model, problem, width);
        lines.push(if n == at { line.style(model.theme.selected()) } else { line });
    }
    render_lines(frame, rows_area(area, 0, area.height), lines);
    if let Some(problem) = all.get(at) {
        let below = u16::try_from(room).unwrap_or(u16::MAX);
        let evidence = evidence_lines(model, problem, width, height.saturating_sub(room));
        render_lines(frame, rows_area(area, below, area.height.saturating_sub(below)), evidence);
    }
    room
}

fn evidence_lines(model: &Model, problem: &RunProblem, width: usize, height: usize) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled(formatting::pad(" evidence", width), model.theme.header())];
    lines.extend(wrap_at_spaces(&problem.text, width.saturating_sub(2)).into_iter().map(|row| Line::raw(format!(" {row}"))));
    let tail = problem.log.map(|(host, file)| match file {
        LogFile::Launcher => {
            model.state.hosts.get(host as usize).map(|host| host.launcher_recent_lines.last_lines(EVIDENCE_LINES)).unwrap_or_default()
        }
        LogFile::Rank { rank, .. } => {
            model.state.ranks.get(&rank).map(|rank| rank.recent_lines.last_lines(EVIDENCE_LINES)).unwrap_or_default()
        }
    });
    // The last lines matter most: they end at the bottom.
    let next = if problem.next_step.is_empty() { Vec::new() } else { style::wrap_text(&problem.next_step, width.saturating_sub(8), true) };
    let fit = height.saturating_sub(lines.len() + next.len());
    let tail = tail.unwrap_or_default();
    for line in tail.iter().skip(tail.len().saturating_sub(fit)) {
        let text = style::truncate_text(&model.sanitize(line), width.saturating_sub(4));
        lines.push(Line::from(vec![Span::styled("  | ", model.theme.dim()), Span::raw(text)]));
    }
    for (n, row) in next.into_iter().enumerate() {
        lines.push(Line::from(vec![Span::styled(if n == 0 { " next  " } else { "       " }, model.theme.accent()), Span::raw(row)]));
    }
    lines
}

pub(super) fn problem_line(model: &Model, problem: &RunProblem, width: usize) -> Line<'static> {
    let symbol = Span::styled(format!(" {} ", model.theme.symbol(problem.status)), model.theme.status_style(problem.status));
    Line::from(vec![symbol, Span::raw(style::truncate_text(&problem.text, width.saturating_sub(3)))])
}

/// Wraps at `width` columns, at spaces where possible.
fn wrap_at_spaces(text: &str, width: usize) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match rows.last_mut() {
            Some(row) if row.chars().count() + 1 + word.chars().count() <= width => {
                row.push(' ');
                row.push_str(word);
            }
            _ => rows.push(style::truncate_text(word, width)),
        }
    }
    rows
}
