//! The panes: each draws the model into its area. The frame around them is drawn here.
//!
//! The layout depends only on the size of the terminal; every size can be drawn, down to one cell.

pub(crate) mod command_palette;
pub(crate) mod dialog;
pub(crate) mod events;
mod extremes;
mod failure;
mod figure_age;
pub(crate) mod formatting;
mod gpu_heat_map;
mod gpu_matrix;
mod gpu_matrix_rows;
mod gpu_outliers;
mod gpu_panes;
mod gpu_table;
pub(crate) mod gpus;
mod graph;
pub(crate) mod help;
pub(crate) mod host;
mod host_list;
pub(crate) mod host_status;
mod host_table;
pub(crate) mod launch_matrix;
mod lines;
mod live_bars;
pub(crate) mod logs;
pub(crate) mod overview;
mod pane_frame;
mod phase_bars;
mod plan_pane;
pub(crate) mod problems;
pub(crate) mod ranks;
pub(crate) mod run_problems;
mod selectable_list;
pub(crate) mod training;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::event::RunGoal;
use crate::report::style;
use crate::state::ConnectionStatus;

use lines::{render_lines, rows_area};

use super::feed::DashboardRole;
use super::keymap::UiCommand;
use super::model::Model;
use super::theme::DisplayStatus;
use super::ui::{Overlay, Screen, Ui};

/// Below this size only problems are shown.
const MIN_FULL_SIZE: (u16, u16) = (40, 10);
/// Below this size only "too small" is shown.
const MIN_SIZE: (u16, u16) = (20, 3);

/// From this width on the header counts hosts and ranks in words.
const WIDE_HEADER: usize = 90;

/// Draws everything; returns the page size of the current screen in rows.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, ui: &mut Ui) -> usize {
    let area = frame.area();
    let mut page_rows = model.page_rows;
    if area.width < MIN_SIZE.0 || area.height < MIN_SIZE.1 {
        draw_tiny(frame, area, model);
    } else if area.width < MIN_FULL_SIZE.0 || area.height < MIN_FULL_SIZE.1 {
        draw_small(frame, area, model);
    } else {
        page_rows = draw_full(frame, area, model, ui);
    }
    let places = ui.key_contexts(model);
    match &mut ui.overlay {
        Some(Overlay::Help(top)) if area.width >= MIN_SIZE.0 && area.height >= MIN_SIZE.1 => {
            page_rows = help::draw(frame, area, model.theme, help::lines(model.theme, &ui.bindings, &places), top);
        }
        Some(Overlay::Dialog(dialog)) => dialog::draw(frame, area, model, dialog),
        Some(Overlay::Palette(palette)) => {
            command_palette::draw(frame, area, model.theme, palette, &palette.matching_entries(&ui.bindings, &places))
        }
        Some(Overlay::Help(_) | Overlay::Find(_) | Overlay::Filter(_)) | None => {}
    }
    if model.theme.ascii {
        replace_non_ascii(frame.buffer_mut());
    }
    page_rows
}

/// Replaces everything that is not ASCII.
fn replace_non_ascii(buffer: &mut ratatui::buffer::Buffer) {
    for cell in &mut buffer.content {
        if !cell.symbol().is_ascii() {
            cell.set_symbol(if cell.symbol() == "…" { ">" } else { "?" });
        }
    }
}

fn draw_tiny(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let (word, status) = run_status(model);
    render_lines(frame, area, vec![Line::styled(word, model.theme.status_style(status)), Line::raw("too small")]);
}

/// One status line and the problems, or how far the training is.
fn draw_small(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let width = usize::from(area.width);
    render_lines(frame, rows_area(area, 0, 1), vec![title_line(model, width)]);
    let rest = rows_area(area, 1, area.height - 1);
    let found = run_problems::collect_problems(model);
    let rest = failure::draw(frame, rest, model, &found);
    let rest = training::draw_header(frame, rest, model);
    if found.is_empty() && rest.height > 0 {
        render_lines(frame, rest, vec![Line::styled(" no problems; enlarge the window for more", model.theme.dim())]);
    }
}

fn draw_full(frame: &mut Frame<'_>, area: Rect, model: &Model, ui: &mut Ui) -> usize {
    if ui.screen == Screen::Logs && ui.logs.is_zoomed() {
        return logs::draw(frame, area, model, &mut ui.logs);
    }
    let width = usize::from(area.width);
    let head = vec![title_line(model, width), tab_line(model, ui.screen, width)];
    render_lines(frame, rows_area(area, 0, 2), head);
    let body = rows_area(area, 2, area.height - 3);
    let page_rows = match ui.screen {
        Screen::Overview => overview::draw(frame, body, model, &mut ui.overview),
        Screen::Host => host::draw(frame, body, model, &mut ui.host),
        Screen::Ranks => ranks::draw(frame, body, model, &mut ui.ranks),
        Screen::Logs => logs::draw(frame, body, model, &mut ui.logs),
        Screen::Gpus => gpus::draw(frame, body, model, &mut ui.gpus),
        Screen::Events => events::draw(frame, body, model, &ui.events),
        Screen::Problems => problems::draw(frame, body, model, &mut ui.problems),
    };
    render_lines(frame, rows_area(area, area.height - 1, 1), vec![footer_line(model, ui, width)]);
    page_rows
}

/// Moves the cursor of a pane to a click; `false` if nothing was hit.
pub(super) fn handle_click(model: &Model, ui: &mut Ui, x: u16, y: u16) -> bool {
    if y == 1 {
        let Some(screen) = tab_at(ui.screen, usize::from(x)) else { return false };
        ui.screen = screen;
        return true;
    }
    match ui.screen {
        Screen::Overview => overview::handle_click(&mut ui.overview, x, y),
        Screen::Ranks => ranks::handle_click(&mut ui.ranks, y),
        Screen::Gpus => gpus::handle_click(&mut ui.gpus, model, x, y),
        Screen::Problems => problems::handle_click(&mut ui.problems, y),
        Screen::Host | Screen::Logs | Screen::Events => false,
    }
}

/// The wheel at this cell scrolls the zone under it.
pub(super) fn focus_under_wheel(ui: &mut Ui, x: u16, y: u16) {
    if ui.screen == Screen::Overview {
        overview::focus_at(&mut ui.overview, x, y);
    }
}

/// The screen whose tab covers this column of the second row.
fn tab_at(shown: Screen, x: usize) -> Option<Screen> {
    let mut left = 1;
    Screen::ALL.into_iter().find(|screen| {
        let (key, name) = screen.title();
        // The current tab is in brackets.
        let width = key.len() + name.len() + if *screen == shown { 4 } else { 2 };
        left += width;
        (left - width..left).contains(&x)
    })
}

/// Status of the run as a label.
fn run_status(model: &Model) -> (&'static str, DisplayStatus) {
    let state = &model.state;
    if let Some((word, role)) = style::operation_outcome_label(state) {
        let status = match role {
            style::Tone::Ok => DisplayStatus::Done,
            style::Tone::Bad => DisplayStatus::Error,
            style::Tone::Warn | style::Tone::Dim | style::Tone::Plain => DisplayStatus::Warn,
        };
        return (word, status);
    }
    if model.capabilities.start_summary.is_some() {
        return ("PLAN", DisplayStatus::Pending);
    }
    match state.goal.0 {
        _ if model.is_tearing_down() => return ("TEARING DOWN", DisplayStatus::Warn),
        RunGoal::Stop => return ("STOPPING", DisplayStatus::Warn),
        RunGoal::Kill => return ("KILLING", DisplayStatus::Error),
        RunGoal::Down => return ("TEARING DOWN", DisplayStatus::Warn),
        RunGoal::Up => {}
    }
    let counts = state.rank_counts();
    if model.has_open_steps() {
        return ("LAUNCHING", DisplayStatus::Busy);
    }
    if counts.failed > 0 {
        return ("FAILING", DisplayStatus::Error);
    }
    if counts.running > 0 {
        // An observer cannot know whether readiness was reported before it attached.
        let launched = state.phases.iter().any(|(phase, _)| *phase == crate::event::Phase::Master);
        return if state.ready_at.is_some() || !launched { ("RUNNING", DisplayStatus::Ok) } else { ("STARTED", DisplayStatus::Busy) };
    }
    if counts.ok > 0 && counts.waiting == 0 {
        return ("ENDED", DisplayStatus::Done);
    }
    if state.hosts.iter().any(|host| host.connection_status != ConnectionStatus::Connected) {
        ("CONNECTING", DisplayStatus::Busy)
    } else {
        ("PROBING", DisplayStatus::Busy)
    }
}

fn title_line(model: &Model, width: usize) -> Line<'static> {
    let state = &model.state;
    let (word, status) = run_status(model);
    let name = match (state.info.run_id.as_str(), state.info.name.as_str()) {
        ("", name) => model.sanitize(name),
        (run, name) => format!("{} {}", model.sanitize(name), model.sanitize(run)),
    };
    // The clock of a finished run stands still.
    let until = if state.outcome.is_some() { state.run_ended_at().unwrap_or(state.last_event_at) } else { model.now };
    // An observer also counts from the launch.
    let elapsed = state.run_started_at().or(state.first_event_at).map_or_else(String::new, |began| formatting::format_hms(until - began));
    let (mut bad, mut warn, mut lost) = (0, 0, 0);
    for host in &model.host_statuses {
        match host.status {
            DisplayStatus::Error => bad += 1,
            DisplayStatus::Warn => warn += 1,
            DisplayStatus::Lost => lost += 1,
            DisplayStatus::Done | DisplayStatus::Ok | DisplayStatus::Pending | DisplayStatus::Busy => {}
        }
    }
    let (hosts, ranks) = (state.hosts.len(), state.ranks.len());
    let totals = match width >= WIDE_HEADER {
        true => format!("{}  {}", style::count_noun(hosts, "host"), style::count_noun(ranks, "rank")),
        false => format!("{hosts}h/{ranks}r"),
    };
    let mut counts = vec![Span::raw(totals)];
    for (n, status) in [(bad, DisplayStatus::Error), (warn, DisplayStatus::Warn), (lost, DisplayStatus::Lost)] {
        if n > 0 {
            counts.push(Span::raw(" "));
            counts.push(Span::styled(format!("{}{n}", model.theme.symbol(status)), model.theme.status_style(status)));
        }
    }
    if model.readonly {
        counts.push(Span::styled(" READ-ONLY", model.theme.status_style(DisplayStatus::Warn)));
    }
    counts.push(Span::styled(format!(" {} ", mode_text(model)), model.theme.dim()));
    let right = formatting::spans_width(&counts);
    let left_room = width.saturating_sub(right);
    let program = if width >= 60 { " orchestrate  " } else { " " };
    let fixed = program.len() + word.len() + elapsed.len() + 4;
    let mut left = vec![
        Span::styled(program, model.theme.accent()),
        Span::raw(if left_room > fixed { style::truncate_text(&name, left_room - fixed) } else { String::new() }),
        Span::raw(" "),
        Span::styled(word, model.theme.status_style(status)),
        Span::raw(format!(" {elapsed} ")),
    ];
    let gap = left_room.saturating_sub(formatting::spans_width(&left));
    left.push(Span::raw(" ".repeat(gap)));
    left.extend(counts);
    Line::from(left)
}

fn mode_text(model: &Model) -> String {
    match (model.capabilities.role, model.replay_clock) {
        (DashboardRole::Replay, Some(clock)) => {
            let whole = (clock.end - clock.start).max(1);
            let percent = ((model.now - clock.start) * 100 / whole).clamp(0, 100);
            let speed = if clock.paused { "paused".to_owned() } else { format!("x{}", clock.speed) };
            format!("replay {percent}% {speed}")
        }
        (DashboardRole::Replay, None) => "replay".to_owned(),
        (DashboardRole::Owner | DashboardRole::Observer, _) => "live".to_owned(),
    }
}

fn tab_line(model: &Model, shown: Screen, width: usize) -> Line<'static> {
    let mut spans = vec![Span::raw(" ")];
    for screen in Screen::ALL {
        let (key, name) = screen.title();
        let (text, style) = if screen == shown {
            (format!("{key}-[{name}] "), model.theme.accent())
        } else {
            (format!("{key}-{name} "), model.theme.dim())
        };
        spans.push(Span::styled(text, style));
    }
    spans.push(Span::styled("?-help", model.theme.dim()));
    let used = formatting::spans_width(&spans);
    let goal = &model.state.goal.1;
    let why = match &model.state.outcome {
        Some((_, why)) => model.sanitize(why),
        // Who failed first is known after the reason of the stop was told.
        None if model.state.culprit.as_ref().is_some_and(|culprit| !culprit.ranks.is_empty()) => {
            let ranks = model.state.culprit.as_ref().map_or(&[][..], |culprit| &culprit.ranks);
            format!("{} failed first", style::format_ranks(ranks))
        }
        None if !goal.is_empty() => model.sanitize(goal),
        None => String::new(),
    };
    if !why.is_empty() && width > used + 12 {
        spans.push(Span::raw(formatting::pad_left(&style::truncate_text(&why, width - used - 3), width - used - 1)));
    }
    Line::from(spans)
}

/// The toast, or the keys of the current screen.
fn footer_line(model: &Model, ui: &Ui, width: usize) -> Line<'static> {
    if let Some(Overlay::Find(prompt) | Overlay::Filter(prompt)) = &ui.overlay {
        let sign = if matches!(ui.overlay, Some(Overlay::Filter(_))) { " &" } else { " /" };
        // The end of a long input is what is being typed.
        let skip = prompt.text.chars().count().saturating_sub(width.saturating_sub(4));
        let seen: String = prompt.text.chars().skip(skip).collect();
        return Line::from(vec![Span::styled(sign, model.theme.accent()), Span::raw(seen), Span::styled(" ", model.theme.selected())]);
    }
    if let Some((text, _)) = &ui.toast {
        return Line::styled(formatting::pad(&format!(" {text}"), width), model.theme.selected());
    }
    let places = ui.key_contexts(model);
    let mut hints: Vec<(String, &'static str)> = places
        .iter()
        .flat_map(|location| ui.bindings.bindings_in(*location).filter(|row| !row.hint.is_empty() && !row.keys.is_empty()))
        .map(|row| (row.join_keys("/"), row.hint))
        .collect();
    if let Some(keys) = ui.bindings.keys_for(UiCommand::Quit, &places) {
        hints.push((keys, if ui.screen == Screen::Overview { "leave" } else { "back" }));
    }
    let mut spans = vec![Span::raw(" ")];
    for (key, help) in hints {
        let more = key.len() + help.len() + 3;
        if formatting::spans_width(&spans) + more > width {
            break;
        }
        spans.push(Span::styled(key, model.theme.accent()));
        spans.push(Span::raw(format!(" {help}  ")));
    }
    let legend = if ui.screen == Screen::Overview { overview::legend(&ui.overview) } else { "" };
    let room = width.saturating_sub(formatting::spans_width(&spans) + 1);
    if !legend.is_empty() && legend.len() <= room {
        spans.push(Span::styled(formatting::pad_left(legend, room), model.theme.dim()));
    }
    Line::from(spans)
}
