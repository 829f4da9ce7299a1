//! The matrix of hosts and phases during a launch: the status and duration of steps, and which hosts delay the others.
//!
//! Delaying hosts come first; the line above says what a barrier waits for. If the hosts do not
//! fit, hosts with equal progress share an expandable row.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::event::{Phase, UnixMillis};
use crate::model::step_status::StepStatus;
use crate::report::style;
use crate::report::transfer_text::transfer_text;
use crate::state::{StepState, StepTransfer};
use crate::text::translation::Lang;
use crate::tui::keymap::UiCommand;
use crate::tui::model::Model;
use crate::tui::theme::DisplayStatus;

use super::formatting;
use super::host_list::{HostList, group_entries};
use super::launch_columns::{ColumnWidths, plan_phases, pull_text, visible_phases};
use super::lines::{render_lines, selected_row};

/// Width of a host range, also where rows are long.
const HOST_RANGE_WIDTH: usize = 26;
const WIDE_HOST_RANGE: usize = 36;
/// The most rows of hosts before a start.
const MAX_PLANNED_ROWS: usize = 8;
/// A note that is cut to fewer columns says nothing.
const MIN_NOTE_WIDTH: usize = 12;

/// Progress of a host in a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PhaseCell {
    status: DisplayStatus,
    /// The text that stands for the time.
    label: Option<&'static str>,
    /// Milliseconds.
    took: Option<UnixMillis>,
}

impl PhaseCell {
    fn text(self) -> String {
        self.label.map_or_else(|| self.took.map_or_else(String::new, style::format_duration), str::to_owned)
    }

    /// Of two hosts: the one that took longer.
    fn slower(self, other: PhaseCell) -> PhaseCell {
        if other.took > self.took { other } else { self }
    }
}

/// A row: hosts whose cells are equal except for their times.
#[derive(Clone)]
struct PhaseRow {
    hosts: Vec<u32>,
    cells: Vec<Option<PhaseCell>>,
    note: String,
    /// The files that its hosts are being sent.
    sent: Option<StepTransfer>,
    urgency: (bool, bool),
    /// Why a step of its host is tried again.
    retry_reason: Option<String>,
    /// Of several hosts, the row of each.
    members: Vec<PhaseRow>,
    /// A host of the expanded row above.
    is_member: bool,
}

/// Draws the matrix at the top of an area. Gives the rows that it took.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, list: &mut HostList) -> u16 {
    let width = usize::from(area.width);
    let phases = plan_phases(model);
    // Before a start no host differs from another: what runs has the room.
    let most = if model.capabilities.start_summary.is_some() { MAX_PLANNED_ROWS } else { usize::MAX };
    let room = usize::from(area.height).saturating_sub(2).min(most);
    let longest = model.state.hosts.iter().map(|host| host.name.len()).max().unwrap_or(4);
    // Folded host names use the available width.
    let range = if width >= 160 { WIDE_HOST_RANGE } else { HOST_RANGE_WIDTH };
    let name = if model.state.hosts.len() > room { range.max(longest) } else { longest }.clamp(4, (width / 4).max(4));
    // The current phase is always visible.
    let widths = ColumnWidths::new(model, width);
    let shown = visible_phases(&phases, current_phase(model), width.saturating_sub(name + 2), widths);
    let rows = phase_rows(model, list, &shown, room);
    list.groups = rows.iter().filter(|row| !row.is_member).flat_map(|row| group_entries(&row.hosts, &group_key(row))).collect();
    let drawn = rows.iter().map(|row| (row.hosts.len() > 1, row.hosts[0])).collect();
    let (at, top) = list.set_rows(drawn, room);
    list.rows.set_screen_rows(area.y + 2, room);
    let left = width.saturating_sub(name + 2 + shown.iter().map(|phase| widths.of(*phase)).sum::<usize>());
    let heads: String = shown.iter().map(|phase| formatting::pad(&widths.head(*phase, model.lang), widths.of(*phase))).collect();
    let mut lines = vec![
        Line::raw(formatting::pad(&format!(" {}", progress_text(model)), width)),
        Line::styled(format!(" {} {heads}", formatting::pad(model.lang.tr("HOST"), name)), model.theme.header()),
    ];
    for (n, row) in rows.iter().enumerate().skip(top).take(room) {
        let label = row_label(model, list, row, name);
        let mut spans = vec![Span::raw(format!(" {} ", formatting::pad(&label, name)))];
        for (phase, cell) in shown.iter().zip(&row.cells) {
            let column = widths.of(*phase);
            match cell {
                Some(cell) => {
                    let layers = if *phase == Phase::Pull { pull_text(model, &row.hosts) } else { None };
                    let text = match layers.filter(|_| [DisplayStatus::Busy, DisplayStatus::Warn].contains(&cell.status)) {
                        Some(bar) if widths.has_pull_time => format!("{bar} {}", cell.text()),
                        Some(bar) => bar,
                        None => cell.text(),
                    };
                    spans.push(model.theme.symbol_span(cell.status));
                    spans.push(Span::raw(formatting::pad(&format!(" {text}"), column - 1)));
                }
                None => spans.push(Span::raw(" ".repeat(column))),
            }
        }
        let note = row.sent.as_ref().map_or_else(|| row.note.clone(), |sent| transfer_text(sent, model.lang));
        let fitting = style::truncate_text(&note, left);
        if left >= MIN_NOTE_WIDTH || fitting == note {
            spans.push(Span::raw(fitting));
        }
        let line = Line::from(spans);
        lines.push(if n == at { selected_row(&line, model.theme, width) } else { line });
    }
    let used = u16::try_from(lines.len()).unwrap_or(u16::MAX).min(area.height);
    render_lines(frame, area, lines);
    used
}

/// The current phase: the first one with a step that has not ended.
fn current_phase(model: &Model) -> Option<Phase> {
    let open = model.state.step_tracker.steps().iter().filter(|step| !step.status.has_ended());
    open.map(|step| step.info.phase).min()
}

/// Live and total number of ranks started on these hosts.
fn count_live_ranks(model: &Model, hosts: &[u32]) -> (usize, usize) {
    let own = || model.state.ranks.values().filter(|rank| hosts.contains(&rank.host) && rank.started_at.is_some());
    (own().filter(|rank| rank.exit.is_none()).count(), own().count())
}

/// One sentence about the current operation.
pub(super) fn progress_text(model: &Model) -> String {
    if let Some(what) = &model.capabilities.start_summary {
        let text = model.sanitize(&model.lang.message(what));
        return match model.readonly {
            true => text,
            false => model.lang.tr_fill("{}; press {} to start", &[&text, &model.key(UiCommand::Start)]),
        };
    }
    let Some(phase) = current_phase(model) else { return model.lang.tr("all steps have ended").to_owned() };
    let steps: Vec<&StepState> = model.state.step_tracker.steps_in_phase(phase).collect();
    let running: Vec<u32> = steps.iter().filter(|s| s.status == StepStatus::Running).map(|s| s.info.host).collect();
    let ended = steps.iter().filter(|step| step.status.has_ended()).count();
    let since = steps.iter().filter(|s| s.status == StepStatus::Running).filter_map(|s| s.started_at).min();
    let title = steps.iter().find(|s| s.status == StepStatus::Running).map_or_else(String::new, |s| model.sanitize(&s.info.title));
    let lang = model.lang;
    let time = since.map_or_else(String::new, |since| lang.tr_fill(" for {}", &[&style::format_duration(model.now - since)]));
    let counts = [ended, steps.len()].map(|count| count.to_string());
    if running.is_empty() {
        return lang.tr_fill("{}: waiting to start ({} of {} ended)", &[&phase.label(), &counts[0], &counts[1]]);
    }
    let rest = if model.state.step_tracker.steps().iter().any(|s| s.info.phase > phase) { lang.tr("; later phases wait") } else { "" };
    let hosts = style::format_hosts(&model.state, &model.sanitizer, &running);
    let ranks = match count_live_ranks(model, &running) {
        (left, all) if phase == Phase::Stop && all > 0 => lang.tr_fill(", {} left", &[&model.count(left, "rank")]),
        _ => String::new(),
    };
    let (title, hosts) = (lang.message(&title), style::truncate_text(&hosts, 40));
    let label = phase.label();
    let values = [&label, &*title, &hosts, &time, &counts[0], &counts[1], &ranks, rest];
    lang.tr_fill("{}: {} on {}{} ({} of {} ended{}){}", &values)
}

fn phase_rows(model: &Model, list: &HostList, phases: &[Phase], room: usize) -> Vec<PhaseRow> {
    let mut rows: Vec<PhaseRow> = list.selection.hosts(model).into_iter().map(|at| host_row(model, at, phases)).collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.urgency), row.hosts[0]));
    if rows.len() <= room {
        return rows;
    }
    let mut folded: Vec<PhaseRow> = Vec::new();
    for mut row in rows {
        let progress = |row: &PhaseRow| {
            let statuses = row.cells.iter().map(|cell| cell.map(|cell| cell.status)).collect::<Vec<_>>();
            // Hosts that try again for another reason are not equal.
            (statuses, row.retry_reason.clone())
        };
        match folded.iter_mut().find(|known| !row.urgency.0 && progress(known) == progress(&row)) {
            Some(known) => {
                row.is_member = true;
                fold_into(known, row);
            }
            None => folded.push(row),
        }
    }
    folded.into_iter().flat_map(|row| expand_row(list, row)).collect()
}

/// Adds a host to the row of equal hosts: the row has the time of the slowest in each phase.
fn fold_into(known: &mut PhaseRow, row: PhaseRow) {
    if known.members.is_empty() {
        known.members.push(PhaseRow { is_member: true, ..known.clone() });
    }
    known.hosts.extend(&row.hosts);
    known.sent = known.sent.into_iter().chain(row.sent).reduce(StepTransfer::plus);
    for (cell, other) in known.cells.iter_mut().zip(&row.cells) {
        *cell = (*cell).into_iter().chain(*other).reduce(PhaseCell::slower);
    }
    known.members.push(row);
}

/// A row, followed by those of its hosts if it is expanded.
fn expand_row(list: &HostList, mut row: PhaseRow) -> Vec<PhaseRow> {
    let members = std::mem::take(&mut row.members);
    let is_expanded = list.expanded.contains(&group_key(&row));
    std::iter::once(row).chain(members.into_iter().filter(|_| is_expanded)).collect()
}

/// Key that identifies a row while its steps change: its first host.
fn group_key(row: &PhaseRow) -> String {
    format!("steps {}", row.hosts[0])
}

/// `+ gpu[00-89]` can be expanded, `- gpu[00-89]` collapsed.
fn row_label(model: &Model, list: &HostList, row: &PhaseRow, width: usize) -> String {
    let mut names = style::format_hosts(&model.state, &model.sanitizer, &row.hosts);
    if row.hosts.len() > 1 && names.len() + 2 > width {
        names = model.count(row.hosts.len(), "host");
    }
    let mark = match (row.hosts.len() > 1, row.is_member) {
        (true, _) if list.expanded.contains(&group_key(row)) => "- ",
        (true, _) => "+ ",
        (_, true) => "    ",
        _ => "",
    };
    format!("{mark}{names}")
}

fn host_row(model: &Model, host: u32, phases: &[Phase]) -> PhaseRow {
    let own: Vec<&StepState> = model.state.step_tracker.steps().iter().filter(|step| step.info.host == host).collect();
    let cell = |phase: &Phase| {
        let steps: Vec<&StepState> = own.iter().copied().filter(|step| step.info.phase == *phase).collect();
        (!steps.is_empty()).then(|| phase_cell(&steps, model.now, model.lang))
    };
    let step = own.iter().find(|s| s.status == StepStatus::Failed).or_else(|| own.iter().find(|s| s.status == StepStatus::Running));
    let note = step.map_or_else(String::new, |step| {
        let lang = model.lang;
        let retries = if step.retries > 0 { lang.tr_fill(" (try {})", &[&(step.retries + 1).to_string()]) } else { String::new() };
        let what = match count_live_ranks(model, &[host]) {
            (left, all) if step.info.phase == Phase::Stop && step.status == StepStatus::Running && all > 0 => {
                lang.tr_fill("{} of {} left", &[&left.to_string(), &model.count(all, "rank")])
            }
            _ => model.sanitize(&model.lang.message(if step.note.is_empty() { &step.info.title } else { &step.note })),
        };
        let layers = step.layers.filter(|counts| step.status == StepStatus::Running && counts.downloaded > counts.complete);
        // Beside the bar, which counts those that are done.
        let layers = layers
            .map_or_else(String::new, |counts| lang.tr_fill(", {} more downloaded", &[&(counts.downloaded - counts.complete).to_string()]));
        format!("{what}{retries}{layers}")
    });
    let sent = step.filter(|step| step.status == StepStatus::Running).and_then(|step| step.transfer);
    let failed = own.iter().any(|step| step.status == StepStatus::Failed);
    let running = own.iter().any(|step| step.status == StepStatus::Running);
    PhaseRow {
        hosts: vec![host],
        cells: phases.iter().map(cell).collect(),
        note,
        sent,
        urgency: (failed, running),
        retry_reason: own.iter().find(|step| is_retrying(step)).map(|step| step.note.clone()),
        members: Vec::new(),
        is_member: false,
    }
}

fn is_retrying(step: &StepState) -> bool {
    step.status == StepStatus::Running && step.retries > 0
}

/// The steps of one host in one phase as one cell: worst status and duration.
fn phase_cell(steps: &[&StepState], now: UnixMillis, lang: Lang) -> PhaseCell {
    let began = steps.iter().filter_map(|step| step.started_at).min();
    let ended = steps.iter().filter_map(|step| step.ended_at).max();
    let took = |to: Option<UnixMillis>| began.zip(to).map(|(from, to)| to - from);
    let is = |status: StepStatus| steps.iter().any(|step| step.status == status);
    let (status, label, took) = if is(StepStatus::Failed) {
        (DisplayStatus::Error, Some(lang.tr("failed")), None)
    } else if is(StepStatus::Running) {
        // A step that is tried again is something to look at.
        (if steps.iter().any(|step| is_retrying(step)) { DisplayStatus::Warn } else { DisplayStatus::Busy }, None, took(Some(now)))
    } else if is(StepStatus::Waiting) {
        (DisplayStatus::Pending, Some(""), None)
    } else if is(StepStatus::Done) {
        (DisplayStatus::Done, None, took(ended))
    } else {
        (DisplayStatus::Done, Some(lang.tr("ok")), None)
    };
    PhaseCell { status, label, took }
}
