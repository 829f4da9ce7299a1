//! The phases of a plan, and their columns in the matrix of hosts and phases: which fit, how wide they are, and the bar of a pull.

use std::collections::BTreeSet;

use crate::event::{LayerCounts, Phase};
use crate::model::step_status::StepStatus;
use crate::state::StepState;
use crate::text::translation::Lang;
use crate::tui::model::Model;
use crate::tui::theme::DisplayStatus;

/// Minimum width of a phase column.
const PHASE_COLUMN_WIDTH: usize = 10;
/// Cells of the bar of a pull, the width of its column with it, and what the time beside it takes.
const PULL_BAR_WIDTH: usize = 5;
const PULL_COLUMN_WIDTH: usize = PULL_BAR_WIDTH + 11;
const PULL_TIME_WIDTH: usize = 7;
/// Minimum width for the time beside the bar of a pull.
const MIN_PULL_TIME_COLUMNS: usize = 100;

/// The widths of the columns: that of the pull has room for a bar while layers are counted.
#[derive(Clone, Copy)]
pub(super) struct ColumnWidths {
    pull: usize,
    pub(super) has_pull_time: bool,
}

impl ColumnWidths {
    pub(super) fn new(model: &Model, width: usize) -> ColumnWidths {
        let has_layers = running_pulls(model).next().is_some();
        let has_pull_time = has_layers && width >= MIN_PULL_TIME_COLUMNS;
        let bar = if has_layers { PULL_COLUMN_WIDTH } else { 0 };
        ColumnWidths { pull: bar + if has_pull_time { PULL_TIME_WIDTH } else { 0 }, has_pull_time }
    }

    /// The heading of a phase, with the unit of the bars.
    pub(super) fn head(self, phase: Phase, lang: Lang) -> String {
        match phase {
            Phase::Pull if self.pull > 0 => format!("{} ({})", phase.label(), lang.tr("layers")),
            _ => phase.label(),
        }
    }

    pub(super) fn of(self, phase: Phase) -> usize {
        let least = if phase == Phase::Pull { self.pull } else { 0 };
        PHASE_COLUMN_WIDTH.max(least).max(phase.label().len() + 1)
    }
}

/// The phases of the plan in force, in its order.
pub(super) fn plan_phases(model: &Model) -> Vec<Phase> {
    Vec::from_iter(model.state.step_tracker.steps().iter().map(|step| step.info.phase).collect::<BTreeSet<_>>())
}

/// How a phase with these steps stands.
pub(super) fn phase_status(steps: &[&StepState]) -> DisplayStatus {
    let is = |status: StepStatus| steps.iter().any(|step| step.status == status);
    if is(StepStatus::Failed) {
        DisplayStatus::Error
    } else if is(StepStatus::Running) {
        DisplayStatus::Busy
    } else if steps.iter().all(|step| step.status.has_ended()) {
        DisplayStatus::Done
    } else {
        DisplayStatus::Pending
    }
}

/// The hosts that pull and how far they are, where that is known.
fn running_pulls(model: &Model) -> impl Iterator<Item = (u32, LayerCounts)> {
    let steps = model.state.step_tracker.steps_in_phase(Phase::Pull).filter(|step| step.status == StepStatus::Running);
    steps.filter_map(|step| Some((step.info.host, step.layers?)))
}

/// `▰▰▱▱▱ 5/12`: of several hosts, the one that is furthest behind.
pub(super) fn pull_text(model: &Model, hosts: &[u32]) -> Option<String> {
    let counts = running_pulls(model).filter(|(host, _)| hosts.contains(host)).map(|(_, counts)| counts);
    let LayerCounts { layers, complete, .. } = counts.min_by(|one, other| one.cmp_progress(*other))?;
    // Rounded; only a pull that is done has a full bar.
    let rounded = (complete as usize * PULL_BAR_WIDTH + layers as usize / 2).checked_div(layers as usize).unwrap_or(0);
    let filled = rounded.min(if complete < layers { PULL_BAR_WIDTH - 1 } else { PULL_BAR_WIDTH });
    let (full, empty) = if model.theme.ascii { ("#", "-") } else { ("▰", "▱") };
    Some(format!("{}{} {complete}/{layers}", full.repeat(filled), empty.repeat(PULL_BAR_WIDTH - filled)))
}

/// The phases whose columns fit, the current one among them.
pub(super) fn visible_phases(phases: &[Phase], current: Option<Phase>, width: usize, widths: ColumnWidths) -> Vec<Phase> {
    let total = |phases: &[Phase]| phases.iter().map(|phase| widths.of(*phase)).sum::<usize>();
    let current = current.and_then(|phase| phases.iter().position(|known| *known == phase)).unwrap_or(0);
    let first = (0..current).find(|first| total(&phases[*first..=current]) <= width).unwrap_or(current);
    let count = (1..=phases.len() - first.min(phases.len())).rev().find(|count| total(&phases[first..first + count]) <= width).unwrap_or(1);
    phases.iter().copied().skip(first).take(count).collect()
}
