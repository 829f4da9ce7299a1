//! The Problems screen: the problems, worst first, and beside or below them what is known of the one under the cursor: cause, advice and the
//! lines around it in its log.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

use crate::event::LogFile;
use crate::report::style;
use crate::state::RankState;
use crate::tui::keymap::UiCommand;
use crate::tui::model::Model;
use crate::tui::pane_action::PaneAction;
use crate::tui::theme::DisplayStatus;

use super::failure::{advice_rows, next_label, problem_frame, problem_line, proving_lines};
use super::lines::{render_lines, rows_area, selected_row};
use super::pane_frame::{PaneFrame, draw_frame, has_frame_room};
use super::run_problems::{RunProblem, collect_problems};
use super::selectable_list::SelectableList;
use super::{events, host_status, ranks};

/// From this width on the details are beside the list.
const WIDE: u16 = 110;
/// From this width on the list has half of it.
const WIDER: u16 = 160;
/// The fewest rows of the events below a short list.
const MIN_EVENT_ROWS: u16 = 6;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProblemsPane {
    list: SelectableList<ProblemKey>,
}

/// What a problem is known by while its figures change and hosts join it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ProblemKey {
    status: DisplayStatus,
    /// Its text without digits.
    text: String,
    /// Its first host.
    host: Option<u32>,
    log: Option<(u32, LogFile)>,
    /// How many problems before it are equal in all of this.
    equal_before: usize,
}

fn problem_keys(all: &[RunProblem]) -> Vec<ProblemKey> {
    let mut keys: Vec<ProblemKey> = Vec::new();
    for RunProblem { status, text, hosts, log, .. } in all {
        let text = text.chars().filter(|c| !c.is_ascii_digit()).collect();
        let mut key = ProblemKey { status: *status, text, host: hosts.first().copied(), log: *log, equal_before: 0 };
        while keys.contains(&key) {
            key.equal_before += 1;
        }
        keys.push(key);
    }
    keys
}

/// Updates the rows as [`SelectableList::set_rows`] does; the cursor stays on a problem that another host has joined.
fn set_rows(list: &mut SelectableList<ProblemKey>, all: &[RunProblem], room: usize) -> (usize, usize) {
    let keys = problem_keys(all);
    let before = list.selected_key().filter(|key| !keys.contains(key));
    let joined = before.and_then(|before| {
        let is_same = |(key, problem): &(&ProblemKey, &RunProblem)| {
            (key.status, &key.text) == (before.status, &before.text) && before.host.is_some_and(|host| problem.hosts.contains(&host))
        };
        keys.iter().zip(all).find(is_same).map(|(key, _)| key.clone())
    });
    joined.into_iter().for_each(|key| list.select(key));
    list.set_rows(keys, room)
}

/// Handles a click in this row of the terminal; `false` if nothing was hit.
pub(super) fn handle_click(view: &mut ProblemsPane, y: u16) -> bool {
    view.list.select_at(y)
}

/// The problem under the cursor; where there are none, the rank whose lines are shown.
fn at_cursor<'a>(view: &ProblemsPane, model: &'a Model) -> (Option<RunProblem>, Option<&'a RankState>) {
    let mut all = collect_problems(model);
    if all.is_empty() {
        return (None, shown_rank(model));
    }
    let at = view.list.selected().and_then(|key| problem_keys(&all).iter().position(|known| *known == key));
    (at.map(|at| all.swap_remove(at)), None)
}

/// The rank whose lines are shown while there are no problems: the first that has started.
fn shown_rank(model: &Model) -> Option<&RankState> {
    model.state.ranks.values().find(|rank| rank.started_at.is_some())
}

/// The host of the problem under the cursor, and its rank if the related log is a rank's; without problems the rank whose lines are shown.
pub(crate) fn target_at_cursor(view: &ProblemsPane, model: &Model) -> Option<(u32, Option<u32>)> {
    let (problem, rank) = at_cursor(view, model);
    let Some(problem) = problem else { return rank.map(|rank| (rank.host, Some(rank.rank))) };
    problem.log.map(|(host, file)| (host, file.rank())).or_else(|| problem.hosts.first().map(|host| (*host, None)))
}

pub(crate) fn update(view: &mut ProblemsPane, model: &Model, cmd: UiCommand) -> Option<PaneAction> {
    if view.list.move_cursor(cmd, model.page_rows) || !matches!(cmd, UiCommand::Open | UiCommand::Output) {
        return None;
    }
    let (problem, rank) = at_cursor(view, model);
    let Some(problem) = problem else { return rank.map(|rank| PaneAction::ShowLog(rank.log())) };
    problem.log.map(PaneAction::ShowLog).or_else(|| problem.hosts.first().copied().map(PaneAction::ShowHost))
}

/// Selects the next or previous problem; from another screen, the first one.
pub(crate) fn select_problem(view: &mut ProblemsPane, model: &Model, cmd: UiCommand) {
    set_rows(&mut view.list, &collect_problems(model), model.page_rows);
    view.list.move_cursor(cmd, 1);
}

/// Draws the list and the details of the problem under the cursor; returns the page size in rows.
pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, view: &mut ProblemsPane) -> usize {
    let all = collect_problems(model);
    if all.is_empty() {
        draw_healthy(frame, area, model);
        return model.page_rows;
    }
    let height = usize::from(area.height);
    let (list, detail) = match area.width >= WIDE {
        true => {
            let left = if area.width >= WIDER { area.width / 2 } else { area.width * 2 / 5 };
            (Rect { width: left, ..area }, Rect { x: area.x + left, width: area.width - left, ..area })
        }
        false => {
            let rows = u16::try_from(all.len().min((height / 2).max(1))).unwrap_or(area.height);
            (rows_area(area, 0, rows), rows_area(area, rows, area.height - rows))
        }
    };
    let has_frame = area.width >= WIDE && has_frame_room(area);
    let framed = rows_area(list, 0, u16::try_from(all.len() + 2).unwrap_or(u16::MAX).min(list.height));
    let title = PaneFrame::titled(model.theme, model.lang.tr("problems"), all.len().to_string());
    let inside = if has_frame { draw_frame(frame, framed, model.theme, &title) } else { list };
    let room = usize::from(inside.height);
    let (at, top) = set_rows(&mut view.list, &all, room);
    view.list.set_screen_rows(inside.y, room);
    let width = usize::from(inside.width);
    let rows = all.iter().enumerate().skip(top).take(room).map(|(n, problem)| {
        let line = problem_line(model, problem, width);
        if n == at { selected_row(&line, model.theme, width) } else { line }
    });
    render_lines(frame, inside, rows.collect());
    let used = if has_frame { framed.height } else { u16::try_from(all.len()).unwrap_or(u16::MAX).saturating_add(1) };
    if area.width >= WIDE && used + MIN_EVENT_ROWS <= list.height {
        events::draw_newest(frame, rows_area(list, used, list.height - used), model);
    }
    if let Some(problem) = all.get(at) {
        draw_details(frame, detail, model, problem);
    }
    room
}

/// No problems: what happened last takes the space, and below it what the first rank writes.
fn draw_healthy(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let has_frame = has_frame_room(area);
    let title = if has_frame { model.lang.tr(" no problems") } else { model.lang.tr(" no problems; what happened last:") };
    render_lines(frame, rows_area(area, 0, 1), vec![Line::styled(title, model.theme.dim())]);
    let rest = rows_area(area, 1, area.height.saturating_sub(1));
    let first = shown_rank(model).filter(|_| rest.height - rest.height / 2 >= MIN_EVENT_ROWS);
    let room = first.map_or(rest.height, |_| rest.height / 2);
    let rows = events::newest_rows(model, usize::from(rest.width), usize::from(room));
    let is_framed = has_frame && !rows.is_empty();
    let edges = if is_framed { 2 } else { 0 };
    let used = u16::try_from(rows.len() + edges).unwrap_or(u16::MAX).min(room);
    if is_framed {
        events::draw_newest(frame, rows_area(rest, 0, used), model);
    } else {
        render_lines(frame, rest, rows);
    }
    if let Some(rank) = first {
        ranks::draw_log(frame, rows_area(rest, used, rest.height - used), model, rank);
    }
}

/// What is known of a problem: all of its text, the hosts, the advice, and the lines of its log.
fn draw_details(frame: &mut Frame<'_>, area: Rect, model: &Model, problem: &RunProblem) {
    let inner = draw_frame(frame, area, model.theme, &problem_frame(model, problem, log_name(model, problem)));
    let (width, room) = (usize::from(inner.width).saturating_sub(2), usize::from(inner.height));
    let mut lines: Vec<Line<'static>> =
        style::wrap_text(&problem.text, width).into_iter().map(|row| Line::raw(format!(" {row}"))).collect();
    for host in problem.hosts.iter().take(4).filter_map(|host| model.host_statuses.get(*host as usize).map(|status| (*host, status))) {
        let name = model.sanitize(model.state.host_name(host.0));
        let ranks = host_status::ranks_text(&host.1.ranks, host.1.status);
        // What the problem itself says already is not said again.
        let text = if problem.text.contains(&*host.1.reason) {
            model.lang.tr_fill(" {}: ranks {}", &[&name, &ranks])
        } else {
            model.lang.tr_fill(" {}: {}; ranks {}", &[&name, &host.1.reason, &ranks])
        };
        lines.push(Line::styled(style::truncate_text(&text, width), model.theme.dim()));
    }
    if !problem.next_step.is_empty() {
        lines.push(Line::raw(""));
        let advice_width = (width + 1).saturating_sub(next_label(model).width());
        lines.extend(advice_rows(model, style::wrap_text(&problem.next_step, advice_width)));
    }
    // What is left has the lines around the evidence.
    let tail = proving_lines(model, problem, room.saturating_sub(lines.len() + 1));
    if !tail.is_empty() {
        lines.push(Line::raw(""));
    }
    let bar = || Span::styled("  | ", model.theme.dim());
    lines.extend(tail.iter().map(|line| {
        let is_proof = problem.evidence.contains(line);
        let style = if is_proof { model.theme.status_text_style(problem.status) } else { Style::new() };
        Line::from(vec![bar(), Span::styled(style::truncate_text(&model.sanitize(line), width.saturating_sub(3)), style)])
    }));
    render_lines(frame, inner, lines);
}

/// `r37 log`, with how the rank ended.
fn log_name(model: &Model, problem: &RunProblem) -> Option<String> {
    Some(match problem.log? {
        (_, LogFile::Rank { rank, .. }) => {
            let word = model.state.ranks.get(&rank).map(|rank| host_status::rank_status(&model.state, rank).1).unwrap_or_default();
            format!("r{rank} {}", model.lang.message(&word))
        }
        (_, LogFile::Launcher) => "launcher".to_owned(),
        (_, LogFile::Task { number }) => model.lang.tr_fill("task {}", &[&number.to_string()]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_stays_on_its_problem() {
        let problem = |text: &str, hosts: &[u32]| RunProblem { text: text.to_owned(), hosts: hosts.to_vec(), ..RunProblem::default() };
        let mut list = SelectableList::default();
        set_rows(&mut list, &[problem("the clock", &[3]), problem("8 GPUs at 31%", &[5]), problem("disk: 41 GiB", &[5])], 9);
        list.move_cursor(UiCommand::Down, 1);
        let next =
            [problem("a new one", &[1]), problem("the clock", &[3]), problem("disk: 40 GiB", &[5]), problem("7 GPUs at 29%", &[2, 5])];
        assert_eq!(set_rows(&mut list, &next, 9).0, 3, "another host has joined it");
        assert_eq!(set_rows(&mut list, &[problem("6 GPUs at 1%", &[2])], 9).0, 0);
        // Problems that differ in figures alone are rows of their own.
        set_rows(&mut list, &[problem("off by 700 ms", &[3]), problem("off by 900 ms", &[3])], 9);
        assert!(list.move_cursor(UiCommand::Bottom, 1));
        assert_eq!(set_rows(&mut list, &[problem("off by 701 ms", &[3]), problem("off by 900 ms", &[3])], 9).0, 1);
    }
}
