//! The panes: each draws what the app knows into its part of the screen. The frame around them is drawn here.
//!
//! Uses the app. Which pane gets which room depends on the size of the terminal alone; every size is drawn, down to one cell.

pub(crate) mod dialog;
pub(crate) mod events;
pub(crate) mod formatting;
mod gpu_matrix;
mod gpu_table;
pub(crate) mod gpus;
mod graph;
pub(crate) mod help;
pub(crate) mod host;
pub(crate) mod host_status;
mod host_table;
pub(crate) mod launch_matrix;
mod lines;
pub(crate) mod logs;
pub(crate) mod overview;
pub(crate) mod palette;
pub(crate) mod problems;
pub(crate) mod ranks;
mod selectable_list;
pub(crate) mod training;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::event::Goal;
use crate::report::style;
use crate::state::ConnectionStatus;

use lines::{render_lines, row_range};

use super::app::{App, Overlay, Screen};
use super::feed::DashboardRole;
use super::keymap::UiCommand;
use super::theme::DisplayStatus;

/// Below this many columns or rows only what is wrong is shown.
const MIN_FULL_SIZE: (u16, u16) = (40, 10);
/// Below this only that it is too small.
const MIN_SIZE: (u16, u16) = (20, 3);

/// Draws all.
pub(super) fn draw(frame: &mut Frame<'_>, app: &mut App) {
    let area = frame.area();
    app.model.update_host_statuses();
    if area.width < MIN_SIZE.0 || area.height < MIN_SIZE.1 {
        draw_tiny(frame, area, app);
    } else if area.width < MIN_FULL_SIZE.0 || area.height < MIN_FULL_SIZE.1 {
        draw_small(frame, area, app);
    } else {
        draw_full(frame, area, app);
    }
    match &app.overlay {
        Some(Overlay::Help(_)) if area.width >= MIN_SIZE.0 && area.height >= MIN_SIZE.1 => help::draw(frame, area, app),
        Some(Overlay::Dialog(dialog)) => dialog::draw(frame, area, &app.model, dialog),
        Some(Overlay::Palette(_)) => palette::draw(frame, area, app),
        Some(Overlay::Help(_) | Overlay::Find(_) | Overlay::Filter(_)) | None => {}
    }
    if app.model.theme.ascii {
        replace_non_ascii(frame.buffer_mut());
    }
}

/// Where the terminal knows ASCII only, nothing else is drawn.
fn replace_non_ascii(buffer: &mut ratatui::buffer::Buffer) {
    for cell in &mut buffer.content {
        if !cell.symbol().is_ascii() {
            cell.set_symbol(if cell.symbol() == "…" { ">" } else { "?" });
        }
    }
}

fn draw_tiny(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let (word, status) = run_status(app);
    render_lines(frame, area, vec![Line::styled(word, app.model.theme.status_style(status)), Line::raw("too small")]);
}

/// One line that says how it stands, and what is wrong.
fn draw_small(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let mut lines = vec![title_line(app, usize::from(area.width))];
    let found = problems::collect_problems(app);
    let room = usize::from(area.height) - 1;
    for problem in found.iter().take(room) {
        lines.push(problem_line(app, problem, usize::from(area.width)));
    }
    if found.is_empty() {
        lines.push(Line::styled(" nothing is wrong; make the window larger for more", app.model.theme.dim()));
    }
    render_lines(frame, area, lines);
}

fn problem_line(app: &App, problem: &problems::RunProblem, width: usize) -> Line<'static> {
    let symbol = Span::styled(format!(" {} ", app.model.theme.symbol(problem.status)), app.model.theme.status_style(problem.status));
    Line::from(vec![symbol, Span::raw(style::truncate_text(&problem.text, width.saturating_sub(3)))])
}

fn draw_full(frame: &mut Frame<'_>, area: Rect, app: &mut App) {
    if app.screen == Screen::Logs && app.logs_pane.is_zoomed() {
        return logs::draw(frame, area, app);
    }
    let width = usize::from(area.width);
    let head = vec![title_line(app, width), tab_line(app, width)];
    render_lines(frame, row_range(area, 0, 2), head);
    let body = row_range(area, 2, area.height - 3);
    match app.screen {
        Screen::Overview => overview::draw(frame, body, app),
        Screen::Host => host::draw(frame, body, app),
        Screen::Ranks => ranks::draw(frame, body, app),
        Screen::Logs => logs::draw(frame, body, app),
        Screen::Gpus => gpus::draw(frame, body, app),
        Screen::Events => events::draw(frame, body, app),
        Screen::Problems => problems::draw(frame, body, app),
    }
    let foot = footer_line(app, width);
    render_lines(frame, row_range(area, area.height - 1, 1), vec![foot]);
}

/// A click on a pane puts the cursor there; `false`: nothing is there.
pub(super) fn handle_click(app: &mut App, x: u16, y: u16) -> bool {
    if y == 1 {
        let Some(screen) = tab_at(app.screen, usize::from(x)) else { return false };
        app.screen = screen;
        return true;
    }
    match app.screen {
        Screen::Overview => overview::handle_click(app, y),
        Screen::Ranks => ranks::handle_click(app, y),
        Screen::Gpus => gpus::handle_click(app, x, y),
        Screen::Problems => problems::handle_click(app, y),
        Screen::Host | Screen::Logs | Screen::Events => false,
    }
}

/// The screen whose name stands in this column of the second row.
fn tab_at(shown: Screen, x: usize) -> Option<Screen> {
    let mut left = 1;
    Screen::ALL.into_iter().find(|screen| {
        let (key, name) = screen.title();
        // The one that is shown stands in brackets.
        let width = key.len() + name.len() + if *screen == shown { 4 } else { 2 };
        left += width;
        (left - width..left).contains(&x)
    })
}

/// How the run stands, in a word.
pub(super) fn run_status(app: &App) -> (&'static str, DisplayStatus) {
    let state = &app.model.state;
    if let Some((word, role)) = style::operation_outcome_label(state) {
        let status = match role {
            style::Tone::Ok => DisplayStatus::Done,
            style::Tone::Bad => DisplayStatus::Error,
            style::Tone::Warn | style::Tone::Dim | style::Tone::Plain => DisplayStatus::Warn,
        };
        return (word, status);
    }
    if app.model.capabilities.start_summary.is_some() {
        return ("PLAN", DisplayStatus::Pending);
    }
    match state.goal.0 {
        _ if app.model.is_tearing_down() => return ("TEARING DOWN", DisplayStatus::Warn),
        Goal::Stop => return ("STOPPING", DisplayStatus::Warn),
        Goal::Kill => return ("KILLING", DisplayStatus::Error),
        Goal::Down => return ("TEARING DOWN", DisplayStatus::Warn),
        Goal::Up => {}
    }
    let counts = state.rank_counts();
    if app.model.has_open_steps() {
        return ("LAUNCHING", DisplayStatus::Busy);
    }
    if counts.failed > 0 {
        return ("FAILING", DisplayStatus::Error);
    }
    if counts.running > 0 {
        // Whoever attaches cannot know whether the mark of readiness was seen.
        let launched = state.phases.iter().any(|(phase, _)| *phase == crate::event::Phase::Master);
        return if state.ready_at.is_some() || !launched { ("RUNNING", DisplayStatus::Ok) } else { ("STARTED", DisplayStatus::Busy) };
    }
    if counts.ok > 0 && counts.waiting == 0 {
        return ("ENDED", DisplayStatus::Done);
    }
    if state.hosts.iter().any(|host| host.connection_status != ConnectionStatus::Connected) {
        ("CONNECTING", DisplayStatus::Busy)
    } else {
        ("LOOKING", DisplayStatus::Busy)
    }
}

fn title_line(app: &App, width: usize) -> Line<'static> {
    let state = &app.model.state;
    let (word, status) = run_status(app);
    let name = match (state.info.run_id.as_str(), state.info.name.as_str()) {
        ("", name) => app.model.sanitize(name),
        (run, name) => format!("{} {}", app.model.sanitize(name), app.model.sanitize(run)),
    };
    // The time of a run that is over stands still.
    let until = if state.outcome.is_some() { state.run_ended_at().unwrap_or(state.last_event_at) } else { app.model.now };
    // Whoever attaches counts from the launch, as everybody does.
    let elapsed = state.run_started_at().or(state.first_event_at).map_or_else(String::new, |began| formatting::format_hms(until - began));
    let (mut bad, mut warn, mut lost) = (0, 0, 0);
    for host in &app.model.host_statuses {
        match host.status {
            DisplayStatus::Error => bad += 1,
            DisplayStatus::Warn => warn += 1,
            DisplayStatus::Lost => lost += 1,
            DisplayStatus::Done | DisplayStatus::Ok | DisplayStatus::Pending | DisplayStatus::Busy => {}
        }
    }
    let mut counts = vec![Span::raw(format!("{}h/{}r", state.hosts.len(), state.ranks.len()))];
    for (n, status, mark) in [(bad, DisplayStatus::Error, '!'), (warn, DisplayStatus::Warn, '~'), (lost, DisplayStatus::Lost, '?')] {
        if n > 0 {
            counts.push(Span::raw(" "));
            counts.push(Span::styled(format!("{mark}{n}"), app.model.theme.status_style(status)));
        }
    }
    counts.push(Span::styled(format!(" {} ", mode_text(app)), app.model.theme.dim()));
    let right = formatting::spans_width(&counts);
    let left_room = width.saturating_sub(right);
    let program = if width >= 60 { " orchestrate  " } else { " " };
    let fixed = program.len() + word.len() + elapsed.len() + 4;
    let mut left = vec![
        Span::styled(program, app.model.theme.accent()),
        Span::raw(if left_room > fixed { style::truncate_text(&name, left_room - fixed) } else { String::new() }),
        Span::raw(" "),
        Span::styled(word, app.model.theme.status_style(status)),
        Span::raw(format!(" {elapsed} ")),
    ];
    let gap = left_room.saturating_sub(formatting::spans_width(&left));
    left.push(Span::raw(" ".repeat(gap)));
    left.extend(counts);
    Line::from(left)
}

fn mode_text(app: &App) -> String {
    match (app.model.capabilities.role, app.model.replay_clock) {
        (DashboardRole::Replay, Some(pace)) => {
            let whole = (pace.end - pace.start).max(1);
            let percent = ((app.model.now - pace.start) * 100 / whole).clamp(0, 100);
            let speed = if pace.paused { "paused".to_owned() } else { format!("x{}", pace.speed) };
            format!("replay {percent}% {speed}")
        }
        (DashboardRole::Replay, None) => "replay".to_owned(),
        (DashboardRole::Owner | DashboardRole::Observer, _) => "live".to_owned(),
    }
}

fn tab_line(app: &App, width: usize) -> Line<'static> {
    let mut spans = vec![Span::raw(" ")];
    for screen in Screen::ALL {
        let (key, name) = screen.title();
        let (text, style) = if screen == app.screen {
            (format!("{key}-[{name}] "), app.model.theme.accent())
        } else {
            (format!("{key}-{name} "), app.model.theme.dim())
        };
        spans.push(Span::styled(text, style));
    }
    spans.push(Span::styled("?-help", app.model.theme.dim()));
    let used = formatting::spans_width(&spans);
    let goal = &app.model.state.goal.1;
    let why = match &app.model.state.outcome {
        Some((_, why)) => app.model.sanitize(why),
        None if !goal.is_empty() => app.model.sanitize(goal),
        None => String::new(),
    };
    if !why.is_empty() && width > used + 12 {
        spans.push(Span::raw(formatting::pad_left(&style::truncate_text(&why, width - used - 3), width - used - 1)));
    }
    Line::from(spans)
}

/// The line for the person, or the keys that count here.
fn footer_line(app: &App, width: usize) -> Line<'static> {
    if let Some(Overlay::Find(prompt) | Overlay::Filter(prompt)) = &app.overlay {
        let sign = if matches!(app.overlay, Some(Overlay::Filter(_))) { " &" } else { " /" };
        // The end of a long text is what is being typed.
        let skip = prompt.text.chars().count().saturating_sub(width.saturating_sub(4));
        let seen: String = prompt.text.chars().skip(skip).collect();
        return Line::from(vec![
            Span::styled(sign, app.model.theme.accent()),
            Span::raw(seen),
            Span::styled(" ", app.model.theme.selected()),
        ]);
    }
    if let Some((text, _)) = &app.toast {
        return Line::styled(formatting::pad(&format!(" {text}"), width), app.model.theme.selected());
    }
    let places = app.key_contexts();
    let mut hints: Vec<(String, &'static str)> = places
        .iter()
        .flat_map(|place| app.bindings.bindings_in(*place).filter(|row| !row.hint.is_empty() && !row.keys.is_empty()))
        .map(|row| (row.join_keys("/"), row.hint))
        .collect();
    if let Some(keys) = app.bindings.keys_for(UiCommand::Quit, &places) {
        hints.push((keys, if app.screen == Screen::Overview { "leave" } else { "back" }));
    }
    let mut spans = vec![Span::raw(" ")];
    for (key, help) in hints {
        let more = key.len() + help.len() + 3;
        if formatting::spans_width(&spans) + more > width {
            break;
        }
        spans.push(Span::styled(key, app.model.theme.accent()));
        spans.push(Span::raw(format!(" {help}  ")));
    }
    Line::from(spans)
}
