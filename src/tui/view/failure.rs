//! What is wrong and what to do about it, on the first screen: the verdict in one line with its next step, or, after a failure, a pane with the
//! cause, the last lines of its log and the advice.

use std::collections::BTreeSet;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

use crate::event::{Outcome, RunGoal};
use crate::report::style;
use crate::text::plural::count_noun;
use crate::text::width::wrap_bounded;
use crate::tui::keymap::UiCommand;
use crate::tui::model::Model;
use crate::tui::theme::DisplayStatus;

use super::formatting;
use super::lines::{render_lines, rows_area};
use super::pane_frame::{PaneFrame, draw_frame};
use super::run_problems::RunProblem;

/// From this height on the first failure has a pane.
pub(super) const MIN_PANE_AREA: u16 = 16;
/// From this height on the pane has more lines, and more problems are listed below it.
const TALL: u16 = 30;
/// From this height on all that are listed have a row.
const VERY_TALL: u16 = 44;
/// The columns of a problem that has no row of its own.
const SHORT_PROBLEM: usize = 16;
/// The most rows of the cause, and of the advice.
const MAX_TEXT_ROWS: usize = 3;
/// The most rows of the log, with its frame, below the pane where the screen is short.
const MAX_SHORT_LOG: u16 = 4;
/// The most rows of a pane above hosts and log.
const MAX_PANE_ROWS: usize = 12;

/// Draws what is wrong at the top of an area: the first failure as a pane, other problems as lines. Gives the rest of the area.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, found: &[RunProblem]) -> Rect {
    match found.first().filter(|first| area.height >= MIN_PANE_AREA && is_failure(model, first)) {
        Some(first) => {
            let rest = draw_pane(frame, area, model, first);
            let room = match area.height {
                VERY_TALL.. => 5,
                TALL.. => 3,
                _ => 1,
            };
            draw_lines(frame, rest, problem_lines(model, found, room, usize::from(area.width)))
        }
        None => draw_verdict(frame, area, model, found),
    }
}

/// The rows of the log below the pane of a failure where the screen is short: the hosts in trouble and a row for the others come first.
pub(super) fn spare_log_rows(model: &Model, room: u16) -> u16 {
    let troubled = model.host_statuses.iter().filter(|host| host.needs_attention()).count();
    let table = u16::try_from(troubled + 2).unwrap_or(u16::MAX);
    match room.saturating_sub(table).min(MAX_SHORT_LOG) {
        // A frame without a line.
        0..3 => 0,
        rows => rows,
    }
}

/// Whether the run has a failure that is shown with the last lines of its log.
pub(super) fn has_failure(model: &Model, found: &[RunProblem]) -> bool {
    found.first().is_some_and(|first| is_failure(model, first))
}

/// Whether a problem is why the run ends or has ended.
fn is_failure(model: &Model, problem: &RunProblem) -> bool {
    let ends = model.state.goal.0 != RunGoal::Up || model.state.outcome.is_some();
    problem.status == DisplayStatus::Error && ends
}

/// The verdict: the first problem and its next step, then other problems.
fn draw_verdict(frame: &mut Frame<'_>, area: Rect, model: &Model, found: &[RunProblem]) -> Rect {
    let width = usize::from(area.width);
    let room = if area.height >= TALL { 5 } else { (usize::from(area.height) / 5).clamp(1, 3) };
    let mut lines = Vec::new();
    if let Some(first) = found.first() {
        lines.push(problem_line(model, first, width));
        if room > 1 {
            lines.push(advice_line(model, &next_step(model, first), width));
        }
        lines.extend(problem_lines(model, found, room.saturating_sub(2), width));
    } else if let Some((status, text, next)) = end_verdict(model) {
        lines.push(status_line(model, status, &model.lang.message(&text), width));
        lines.extend((room > 1).then(|| advice_line(model, &next, width)));
    }
    draw_lines(frame, area, lines)
}

fn draw_lines(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'static>>) -> Rect {
    let rows = u16::try_from(lines.len()).unwrap_or(0).min(area.height);
    render_lines(frame, rows_area(area, 0, rows), lines);
    rows_area(area, rows, area.height - rows)
}

/// How a run without problems ended, and what to do next.
fn end_verdict(model: &Model) -> Option<(DisplayStatus, String, String)> {
    let (outcome, reason) = model.state.outcome.as_ref()?;
    let next = format!("{} shows what the ranks wrote", model.advice.format_run_command("logs", ""));
    let (status, text) = match (outcome, model.state.ranks.len()) {
        (Outcome::Ok, 0) => (DisplayStatus::Done, "the run succeeded".to_owned()),
        (Outcome::Ok, ranks) => (DisplayStatus::Done, format!("the run succeeded: {} ended with exit 0", count_noun(ranks, "rank"))),
        _ => {
            let (word, _) = style::outcome_label(outcome);
            let reason = if reason.is_empty() { String::new() } else { format!(": {}", model.sanitize(reason)) };
            (DisplayStatus::Warn, format!("{}{reason}", word.to_lowercase()))
        }
    };
    Some((status, text, next))
}

/// The problems after the first one, one a row; the last row counts those without a row.
fn problem_lines(model: &Model, found: &[RunProblem], room: usize, width: usize) -> Vec<Line<'static>> {
    let rest = found.get(1..).unwrap_or_default();
    let mut lines: Vec<Line<'static>> = rest.iter().take(room).map(|problem| problem_line(model, problem, width)).collect();
    if rest.len() > room && room > 0 {
        lines.truncate(room - 1);
        let more = count_noun(rest.len() - lines.len(), "more problem");
        let text = model.lang.tr_fill("{}: press {}", &[&model.lang.message(&more), &model.key(UiCommand::Problems)]);
        let mut spans = vec![Span::styled(format!(" {} {text}", model.theme.ellipsis()), model.theme.dim())];
        // Each place once; the beginnings of what they say only where all of them have room.
        let mut named: BTreeSet<&str> = rest.iter().take(room - 1).map(|problem| problem.place.as_str()).collect();
        let hidden: Vec<&RunProblem> =
            rest[room - 1..].iter().filter(|problem| named.insert(&problem.place) && !problem.place.is_empty()).collect();
        let place_spans = |problem: &RunProblem, text: String| {
            let symbol = model.theme.symbol_span(problem.status);
            [Span::raw("  "), symbol, Span::raw(format!(" {}{text}", problem.place))]
        };
        let short = |problem: &RunProblem| format!(" {}", style::truncate_text(&problem.text, SHORT_PROBLEM));
        let long: Vec<Span<'static>> = hidden.iter().flat_map(|problem| place_spans(problem, short(problem))).collect();
        if formatting::spans_width(&spans) + formatting::spans_width(&long) <= width {
            spans.extend(long);
        } else {
            for place in hidden.iter().map(|problem| place_spans(problem, String::new())) {
                if formatting::spans_width(&spans) + formatting::spans_width(&place) > width {
                    break;
                }
                spans.extend(place);
            }
        }
        lines.push(Line::from(spans));
    }
    lines
}

/// A problem on one line.
pub(super) fn problem_line(model: &Model, problem: &RunProblem, width: usize) -> Line<'static> {
    status_line(model, problem.status, &problem.line(), width)
}

fn status_line(model: &Model, status: DisplayStatus, text: &str, width: usize) -> Line<'static> {
    let symbol = model.theme.symbol_span(status);
    Line::from(vec![Span::raw(" "), symbol, Span::raw(format!(" {}", style::truncate_text(text, width.saturating_sub(3))))])
}

/// What to do about a problem, on one line.
fn advice_line(model: &Model, text: &str, width: usize) -> Line<'static> {
    let label = format!("  {}", next_label(model));
    let text = style::truncate_text(&model.lang.message(text), width.saturating_sub(label.width()));
    Line::from(vec![Span::styled(label, model.theme.accent()), Span::raw(text)])
}

/// The label before an advice.
pub(super) fn next_label(model: &Model) -> String {
    format!(" {}  ", model.lang.tr("next"))
}

/// The rows of an advice: the label before the first, spaces before the others.
pub(super) fn advice_rows(model: &Model, rows: Vec<String>) -> impl Iterator<Item = Line<'static>> {
    let label = next_label(model);
    let labels = std::iter::once(label.clone()).chain(std::iter::repeat(" ".repeat(label.width())));
    labels.zip(rows).map(|(label, row)| Line::from(vec![Span::styled(label, model.theme.accent()), Span::raw(row)]))
}

/// The advice, or the key that shows more.
fn next_step(model: &Model, problem: &RunProblem) -> String {
    let more = model.key(UiCommand::Problems);
    match (problem.next_step.as_str(), problem.log) {
        ("", Some(_)) => model.lang.tr_fill("press {} for its lines, then {} for its log", &[&more, &model.key(UiCommand::Open)]),
        ("", None) => model.lang.tr_fill("press {} for more", &[&more]),
        (advice, _) => model.lang.message(advice).into_owned(),
    }
}

/// The pane of the first failure. Gives the rest of the area.
fn draw_pane(frame: &mut Frame<'_>, area: Rect, model: &Model, problem: &RunProblem) -> Rect {
    let width = usize::from(area.width).saturating_sub(4);
    // The hosts and the log keep the larger part.
    let most = usize::from(if area.height >= TALL { area.height / 2 } else { area.height * 2 / 5 }).saturating_sub(2).min(MAX_PANE_ROWS);
    let content = explain(model, problem, width, most);
    let height = u16::try_from(content.len() + 2).unwrap_or(area.height).min(area.height);
    let title = problem_frame(model, problem, Some(model.lang.tr_fill("press {} for more", &[&model.key(UiCommand::Problems)])));
    let inner = draw_frame(frame, rows_area(area, 0, height), model.theme, &title);
    render_lines(frame, inner, content);
    rows_area(area, height, area.height - height)
}

/// The frame of a problem: `✗ rank 3 on gpu00  12:03:01, 5s ago`.
pub(super) fn problem_frame(model: &Model, problem: &RunProblem, right: Option<String>) -> PaneFrame {
    let place = if problem.place.is_empty() { model.lang.tr("the run") } else { &problem.place };
    let since = problem.since.map_or_else(String::new, |at| {
        format!("  {}", model.lang.tr_fill("{}, {} ago", &[&model.format_time(at), &formatting::format_age(at, model.now)]))
    });
    PaneFrame {
        left: vec![
            model.theme.symbol_span(problem.status),
            Span::styled(format!(" {place}"), model.theme.header()),
            Span::styled(since, model.theme.dim()),
        ],
        right: right.map(|text| Span::styled(text, model.theme.dim())).into_iter().collect(),
        status: problem.status,
        ..PaneFrame::default()
    }
}

/// The cause, the last lines of its log and the advice in at most `most` rows: the advice and the cause are kept, the newest lines take the rest.
pub(super) fn explain(model: &Model, problem: &RunProblem, width: usize, most: usize) -> Vec<Line<'static>> {
    let mut lines: Vec<Line<'static>> =
        wrap_bounded(&problem.text, width.max(1), MAX_TEXT_ROWS).into_iter().map(|row| Line::raw(format!(" {row}"))).collect();
    let advice_width = (width + 1).saturating_sub(next_label(model).width());
    let advice = wrap_bounded(&next_step(model, problem), advice_width.max(1), MAX_TEXT_ROWS);
    let room = most.saturating_sub(lines.len() + advice.len());
    for line in without_progress(proving_lines(model, problem, room), &problem.evidence) {
        let text = style::truncate_text(&model.sanitize(&line), width.saturating_sub(3));
        lines.push(Line::from(vec![Span::styled("   | ", model.theme.dim()), Span::raw(text)]));
    }
    lines.extend(advice_rows(model, advice));
    lines
}

/// Without what the rank wrote while it was well: the lines from the traceback of the first proving line on, or from two lines before it.
fn without_progress(mut lines: Vec<String>, evidence: &[String]) -> Vec<String> {
    const LINES_BEFORE: usize = 2;
    if let Some(proof) = lines.iter().position(|line| evidence.contains(line)) {
        let traceback =
            lines[..=proof].iter().rposition(|line| memchr::memmem::find(line.as_bytes(), b"Traceback (most recent call last)").is_some());
        lines.drain(..traceback.unwrap_or(proof.saturating_sub(LINES_BEFORE)));
    }
    lines
}

/// The lines that prove a problem, then the newest lines of its log.
pub(super) fn proving_lines(model: &Model, problem: &RunProblem, most: usize) -> Vec<String> {
    let recent = problem.log.and_then(|(host, file)| model.state.recent_lines(host, file));
    let newest = recent.map(|recent| recent.last_lines(most)).unwrap_or_default();
    if problem.evidence.iter().all(|line| newest.contains(line)) {
        return newest;
    }
    let mut lines: Vec<String> = problem.evidence.iter().take(most.div_ceil(2)).cloned().collect();
    let after: Vec<String> = newest.into_iter().filter(|line| !lines.contains(line)).collect();
    let room = most - lines.len();
    if after.len() < room {
        lines.extend(after);
        return lines;
    }
    // They do not follow each other.
    lines.extend((room > 0).then(|| model.theme.ellipsis().to_owned()));
    lines.extend_from_slice(&after[after.len() - room.saturating_sub(1)..]);
    lines
}
