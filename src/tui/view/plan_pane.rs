//! What a plan would run, and its phases: how many hosts are done with each, as a bar, and how long it took.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

use crate::event::Phase;
use crate::model::step_status::StepStatus;
use crate::report::style;
use crate::state::StepState;
use crate::text::width::wrap_bounded;
use crate::tui::model::Model;
use crate::tui::theme::DisplayStatus;

use super::formatting;
use super::launch_columns::{phase_status, plan_phases};
use super::lines::{render_lines, rows_area};
use super::pane_frame::{PaneFrame, draw_frame};

/// The most rows of what the plan would run, and of one command of it.
const MAX_SUMMARY_ROWS: usize = 16;
const MAX_COMMAND_ROWS: usize = 6;
/// The labels of such rows.
const LABELS: [&str; 6] = ["hosts", "ranks", "image", "command", "container", "differs"];
/// The width of the label of such a row.
const LABEL_WIDTH: usize = 10;

/// Draws the plan in a frame at the top of an area. Gives the rows that it took; 0: there is no plan or no room.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model) -> u16 {
    let width = usize::from(area.width).saturating_sub(2);
    let phases = plan_phases(model);
    // The phases come first where there is no room for both.
    let summary_rows = usize::from(area.height).saturating_sub(phases.len() + 2).min(MAX_SUMMARY_ROWS);
    let mut summary: Vec<String> = model.capabilities.plan_lines.iter().flat_map(|line| summary_rows_of(model, line, width)).collect();
    if summary.len() > summary_rows {
        summary.truncate(summary_rows);
        // Not to be taken for the whole.
        if let Some(last) = summary.last_mut() {
            *last = style::truncate_text(&format!("{last} …"), width);
        }
    }
    let mut lines: Vec<Line<'static>> = summary.into_iter().map(Line::raw).collect();
    let count_width = phases.iter().map(|phase| count_text(model, *phase).width()).max().unwrap_or(0);
    lines.extend(phases.iter().map(|phase| phase_line(model, *phase, (width, count_width))));
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX);
    if phases.is_empty() || height > area.height {
        return 0;
    }
    let title = PaneFrame::titled(model.theme, model.lang.tr("plan"), model.lang.tr("phase by phase, all hosts at once"));
    let inner = draw_frame(frame, rows_area(area, 0, height), model.theme, &title);
    render_lines(frame, inner, lines);
    height
}

/// ` hosts     2, 16 ranks`: a label and its value, a command on several rows.
fn summary_rows_of(model: &Model, line: &str, width: usize) -> Vec<String> {
    let lang = model.lang;
    let (label, value) = line.split_once(' ').unwrap_or((line, ""));
    let value = match label {
        "hosts" => model.counts_text(value.trim_start()),
        "command" | "container" => model.sanitize(value.trim_start()),
        _ => model.sanitize(&lang.message(value.trim_start())),
    };
    let known = LABELS.into_iter().find(|known| *known == label);
    let label = known.map_or_else(|| model.sanitize(label), |known| lang.term(known).to_owned());
    let mut rows = wrap_bounded(&value, width.saturating_sub(LABEL_WIDTH + 2).max(1), MAX_COMMAND_ROWS);
    for (at, row) in rows.iter_mut().enumerate() {
        let label = if at == 0 { label.as_str() } else { "" };
        row.insert_str(0, &format!(" {}", formatting::pad(label, LABEL_WIDTH)));
    }
    rows
}

/// `4/6 steps`: how many of a phase have ended.
fn count_text(model: &Model, phase: Phase) -> String {
    let steps = model.state.step_tracker.steps_in_phase(phase);
    let (ended, all) = steps.fold((0, 0), |(ended, all), step| (ended + usize::from(step.status.has_ended()), all + 1));
    format!("{ended}/{}", model.count(all, "step"))
}

/// `● pull        pull the image          ██████▋     4/6 steps     28 s`.
fn phase_line(model: &Model, phase: Phase, (width, count_width): (usize, usize)) -> Line<'static> {
    let theme = model.theme;
    let steps: Vec<&StepState> = model.state.step_tracker.steps_in_phase(phase).collect();
    let ended = steps.iter().filter(|step| step.status.has_ended()).count();
    let status = phase_status(&steps);
    let title = steps.iter().find(|step| step.status == StepStatus::Running).or(steps.first()).map_or("", |step| step.info.title.as_str());
    let began = steps.iter().filter_map(|step| step.started_at).min();
    let until = if ended == steps.len() { steps.iter().filter_map(|step| step.ended_at).max() } else { Some(model.now) };
    let took = began.zip(until).map_or_else(String::new, |(from, to)| style::format_duration(to - from));
    // Mark, name, count and duration.
    let rest = width.saturating_sub(3 + 12 + count_width + 2 + 9 + 1);
    let title_width = rest / 2;
    // Apart from the bar.
    let title = formatting::pad(&model.sanitize(&model.lang.message(title)), title_width.saturating_sub(1));
    let share = ended as f32 / steps.len().max(1) as f32 * 100.0;
    // A phase that is done is no longer bright.
    let style = if status == DisplayStatus::Done { theme.dim() } else { theme.status_style(status) };
    let [done, open] = formatting::bar_spans(Some(share), rest.saturating_sub(title_width).min(40), theme, style);
    Line::from(vec![
        Span::styled(format!(" {} ", theme.symbol(status)), theme.status_style(status)),
        Span::raw(formatting::pad(&phase.label(), 12)),
        Span::styled(formatting::pad(&title, title_width), theme.dim()),
        done,
        open,
        Span::raw(formatting::pad_left(&count_text(model, phase), count_width + 2) + &formatting::pad_left(&took, 9)),
    ])
}
