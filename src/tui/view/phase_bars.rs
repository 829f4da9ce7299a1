//! The phases of the launch and of the teardown with their durations as bars, and how far each is on the hosts.

use ratatui::text::{Line, Span};

use crate::event::{Phase, UnixMillis};
use crate::model::step_status::StepStatus;
use crate::report::style;
use crate::state::StepState;
use crate::tui::model::Model;
use crate::tui::theme::DisplayStatus;

use super::formatting;
use super::launch_columns::phase_status;

/// The width of a name.
const NAME_WIDTH: usize = 12;
/// The width of a duration.
const TIME_WIDTH: usize = 8;

struct PhaseSpan {
    name: String,
    status: DisplayStatus,
    duration: i64,
    /// How far it is on the hosts.
    detail: String,
}

/// A row for each phase, the newest last; at most `most`.
pub(super) fn rows(model: &Model, width: usize, most: usize) -> Vec<Line<'static>> {
    let spans = phase_spans(model);
    let longest = spans.iter().map(|span| span.duration).max().unwrap_or(0).max(1);
    let room = width.saturating_sub(NAME_WIDTH + TIME_WIDTH + 4);
    let bar_width = (room / 2).min(60);
    let skip = spans.len().saturating_sub(most);
    let row = |span: PhaseSpan| {
        let share = span.duration as f32 / longest as f32 * 100.0;
        Line::from(vec![
            Span::styled(format!(" {}", model.theme.symbol(span.status)), model.theme.status_style(span.status)),
            Span::raw(format!(" {}", formatting::pad(&span.name, NAME_WIDTH))),
            Span::styled(formatting::horizontal_bar(Some(share), bar_width, model.theme.ascii), model.theme.status_style(span.status)),
            Span::raw(format!(" {} ", formatting::pad_left(&style::format_duration(span.duration), TIME_WIDTH))),
            Span::styled(style::truncate_text(&span.detail, room.saturating_sub(bar_width)), model.theme.dim()),
        ])
    };
    spans.into_iter().skip(skip).map(row).collect()
}

/// The phases in the order in which they began. The training between launch and teardown has no bar: it would hide all others.
fn phase_spans(model: &Model) -> Vec<PhaseSpan> {
    let state = &model.state;
    // A plan of before is gone, its failed steps are kept.
    let failed_before = |phase: Phase| state.failed_steps().any(|step| step.info.phase == phase);
    let is_current = |phase: Phase| state.step_tracker.steps_in_phase(phase).next().is_some();
    let mut spans = Vec::new();
    for (n, (phase, began)) in state.phases.iter().enumerate() {
        let steps: Vec<&StepState> = state.step_tracker.steps_in_phase(*phase).collect();
        // A later phase of the same name belongs to another plan.
        let is_last = !state.phases[n + 1..].iter().any(|(later, _)| later == phase);
        let next = state.phases.get(n + 1).map(|(_, at)| *at);
        spans.push(match is_current(*phase) && is_last {
            true => span_of_steps(model, *phase, *began, &steps),
            false => PhaseSpan {
                name: phase.label(),
                status: if failed_before(*phase) { DisplayStatus::Error } else { DisplayStatus::Done },
                duration: earliest([next, state.ready_at.filter(|at| at >= began), state.stopping_since.filter(|at| at >= began)])
                    .unwrap_or(state.last_event_at)
                    - began,
                detail: String::new(),
            },
        });
    }
    spans
}

fn earliest(times: [Option<UnixMillis>; 3]) -> Option<UnixMillis> {
    times.into_iter().flatten().min()
}

fn span_of_steps(model: &Model, phase: Phase, began: UnixMillis, steps: &[&StepState]) -> PhaseSpan {
    let ended = steps.iter().filter(|step| step.status.has_ended()).count();
    let last = steps.iter().filter(|step| step.ended_at.is_some()).max_by_key(|step| step.ended_at);
    let until = if ended == steps.len() { last.and_then(|step| step.ended_at).unwrap_or(began) } else { model.now };
    let (mut parts, lang) = (Vec::new(), model.lang);
    for (status, word) in
        [(StepStatus::Satisfied, "ok"), (StepStatus::Done, "changed"), (StepStatus::Failed, "failed"), (StepStatus::Running, "under way")]
    {
        let n = steps.iter().filter(|step| step.status == status).count();
        if n > 0 {
            parts.push(format!("{n} {}", lang.term(word)));
        }
    }
    if let Some(last) = last.filter(|_| steps.len() > 1 && ended == steps.len()) {
        parts.push(lang.tr_fill("last {}", &[&model.sanitize(model.state.host_name(last.info.host))]));
    }
    PhaseSpan { name: phase.label(), status: phase_status(steps), duration: (until - began).max(0), detail: parts.join(lang.comma()) }
}
