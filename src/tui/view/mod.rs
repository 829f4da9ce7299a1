//! The panes: each draws what the app knows into its part of the screen. The frame around them is drawn here.
//!
//! Uses the app. Which pane gets which room depends on the size of the terminal alone; every size is drawn, down to one cell.

mod cards;
mod cells;
pub(crate) mod events;
pub(crate) mod gpus;
mod graph;
pub(crate) mod help;
pub(crate) mod host;
mod hosts;
pub(crate) mod launch;
mod list;
pub(crate) mod logs;
pub(crate) mod overview;
pub(crate) mod palette;
pub(crate) mod problems;
pub(crate) mod question;
pub(crate) mod ranks;
pub(crate) mod sum;
mod text;
pub(crate) mod training;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use crate::event::Goal;
use crate::report::words;
use crate::state::Liveness;

use super::app::{App, Overlay, Screen};
use super::feed::Role;
use super::keymap::Cmd;
use super::theme::Status;

/// Below this many columns or rows only what is wrong is shown.
const SMALL: (u16, u16) = (40, 10);
/// Below this only that it is too small.
const TINY: (u16, u16) = (20, 3);

/// `14:02:11` on a clock that is so many seconds ahead of UTC.
pub(super) fn time_of_day(at: crate::event::Millis, zone: i64) -> String {
    text::clock((at.div_euclid(1000) + zone).rem_euclid(86_400) * 1000)
}

/// Draws all.
pub(super) fn draw(frame: &mut Frame<'_>, app: &mut App) {
    let area = frame.area();
    app.standings = sum::standings(app);
    if area.width < TINY.0 || area.height < TINY.1 {
        tiny(frame, area, app);
    } else if area.width < SMALL.0 || area.height < SMALL.1 {
        small(frame, area, app);
    } else {
        whole(frame, area, app);
    }
    match &app.overlay {
        Some(Overlay::Help(_)) if area.width >= TINY.0 && area.height >= TINY.1 => help::draw(frame, area, app),
        Some(Overlay::Dialog(dialog)) => question::draw(frame, area, app, &dialog.clone()),
        Some(Overlay::Palette(_)) => palette::draw(frame, area, app),
        Some(Overlay::Help(_) | Overlay::Find(_) | Overlay::Filter(_)) | None => {}
    }
    if app.theme.ascii {
        plain(frame.buffer_mut());
    }
}

/// Where the terminal knows ASCII only, nothing else is drawn.
fn plain(buffer: &mut ratatui::buffer::Buffer) {
    for cell in &mut buffer.content {
        if !cell.symbol().is_ascii() {
            cell.set_symbol(if cell.symbol() == "…" { ">" } else { "?" });
        }
    }
}

fn rows(area: Rect, from: u16, count: u16) -> Rect {
    Rect { y: area.y.saturating_add(from), height: count.min(area.height.saturating_sub(from)), ..area }
}

fn put(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'_>>) {
    if area.width > 0 && area.height > 0 {
        frame.render_widget(Paragraph::new(lines), area);
    }
}

fn tiny(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let (word, status) = standing(app);
    put(frame, area, vec![Line::styled(word, app.theme.status(status)), Line::raw("too small")]);
}

/// One line that says how it stands, and what is wrong.
fn small(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let mut lines = vec![title(app, usize::from(area.width))];
    let found = problems::problems(app);
    let room = usize::from(area.height) - 1;
    for problem in found.iter().take(room) {
        lines.push(problem_line(app, problem, usize::from(area.width)));
    }
    if found.is_empty() {
        lines.push(Line::styled(" nothing is wrong; make the window larger for more", app.theme.dim()));
    }
    put(frame, area, lines);
}

fn problem_line(app: &App, problem: &problems::Problem, width: usize) -> Line<'static> {
    let symbol = Span::styled(format!(" {} ", app.theme.symbol(problem.status)), app.theme.status(problem.status));
    Line::from(vec![symbol, Span::raw(words::cut(&problem.text, width.saturating_sub(3)))])
}

fn whole(frame: &mut Frame<'_>, area: Rect, app: &mut App) {
    if app.screen == Screen::Logs && app.logs.zoomed() {
        return logs::draw(frame, area, app);
    }
    let width = usize::from(area.width);
    let head = vec![title(app, width), tabs(app, width)];
    put(frame, rows(area, 0, 2), head);
    let body = rows(area, 2, area.height - 3);
    match app.screen {
        Screen::Overview => overview::draw(frame, body, app),
        Screen::Host => host::draw(frame, body, app),
        Screen::Ranks => ranks::draw(frame, body, app),
        Screen::Logs => logs::draw(frame, body, app),
        Screen::Gpus => gpus::draw(frame, body, app),
        Screen::Events => events::draw(frame, body, app),
        Screen::Problems => problems::draw(frame, body, app),
    }
    let foot = footer(app, width);
    put(frame, rows(area, area.height - 1, 1), vec![foot]);
}

/// A click on a pane puts the cursor there; `false`: nothing is there.
pub(super) fn touch(app: &mut App, x: u16, y: u16) -> bool {
    if y == 1 {
        let Some(screen) = tab_at(app.screen, usize::from(x)) else { return false };
        app.screen = screen;
        return true;
    }
    match app.screen {
        Screen::Overview => overview::touch(app, y),
        Screen::Ranks => ranks::touch(app, y),
        Screen::Gpus => gpus::touch(app, x, y),
        Screen::Problems => problems::touch(app, y),
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
pub(super) fn standing(app: &App) -> (&'static str, Status) {
    let state = &app.state;
    if let Some((word, role)) = words::ending(state) {
        let status = match role {
            words::Role::Ok => Status::Done,
            words::Role::Bad => Status::Bad,
            words::Role::Warn | words::Role::Dim | words::Role::Plain => Status::Warn,
        };
        return (word, status);
    }
    if app.offer.start.is_some() {
        return ("PLAN", Status::Pending);
    }
    match state.goal.0 {
        _ if app.tearing_down() => return ("TEARING DOWN", Status::Warn),
        Goal::Stop => return ("STOPPING", Status::Warn),
        Goal::Kill => return ("KILLING", Status::Bad),
        Goal::Down => return ("TEARING DOWN", Status::Warn),
        Goal::Up => {}
    }
    let counts = state.rank_counts();
    if app.stepping() {
        return ("LAUNCHING", Status::Busy);
    }
    if counts.failed > 0 {
        return ("FAILING", Status::Bad);
    }
    if counts.running > 0 {
        // Whoever attaches cannot know whether the mark of readiness was seen.
        let launched = state.phases.iter().any(|(phase, _)| *phase == crate::event::Phase::Master);
        return if state.ready.is_some() || !launched { ("RUNNING", Status::Ok) } else { ("STARTED", Status::Busy) };
    }
    if counts.ok > 0 && counts.waiting == 0 {
        return ("ENDED", Status::Done);
    }
    if state.hosts.iter().any(|host| host.liveness != Liveness::Connected) {
        ("CONNECTING", Status::Busy)
    } else {
        ("LOOKING", Status::Busy)
    }
}

fn title(app: &App, width: usize) -> Line<'static> {
    let state = &app.state;
    let (word, status) = standing(app);
    let name = match (state.info.run.as_str(), state.info.name.as_str()) {
        ("", name) => app.clean(name),
        (run, name) => format!("{} {}", app.clean(name), app.clean(run)),
    };
    // The time of a run that is over stands still.
    let until = if state.outcome.is_some() { state.run_ended().unwrap_or(state.now) } else { app.now };
    // Whoever attaches counts from the launch, as everybody does.
    let elapsed = state.run_began().or(state.began).map_or_else(String::new, |began| text::clock(until - began));
    let (mut bad, mut warn, mut lost) = (0, 0, 0);
    for host in &app.standings {
        match host.status {
            Status::Bad => bad += 1,
            Status::Warn => warn += 1,
            Status::Lost => lost += 1,
            Status::Done | Status::Ok | Status::Pending | Status::Busy => {}
        }
    }
    let mut counts = vec![Span::raw(format!("{}h/{}r", state.hosts.len(), state.ranks.len()))];
    for (n, status, mark) in [(bad, Status::Bad, '!'), (warn, Status::Warn, '~'), (lost, Status::Lost, '?')] {
        if n > 0 {
            counts.push(Span::raw(" "));
            counts.push(Span::styled(format!("{mark}{n}"), app.theme.status(status)));
        }
    }
    counts.push(Span::styled(format!(" {} ", mode(app)), app.theme.dim()));
    let right = text::width(&counts);
    let left_room = width.saturating_sub(right);
    let program = if width >= 60 { " orchestrate  " } else { " " };
    let fixed = program.len() + word.len() + elapsed.len() + 4;
    let mut left = vec![
        Span::styled(program, app.theme.accent()),
        Span::raw(if left_room > fixed { words::cut(&name, left_room - fixed) } else { String::new() }),
        Span::raw(" "),
        Span::styled(word, app.theme.status(status)),
        Span::raw(format!(" {elapsed} ")),
    ];
    let gap = left_room.saturating_sub(text::width(&left));
    left.push(Span::raw(" ".repeat(gap)));
    left.extend(counts);
    Line::from(left)
}

fn mode(app: &App) -> String {
    match (app.offer.role, app.pace) {
        (Role::Replay, Some(pace)) => {
            let whole = (pace.to - pace.from).max(1);
            let percent = ((app.now - pace.from) * 100 / whole).clamp(0, 100);
            let speed = if pace.paused { "paused".to_owned() } else { format!("x{}", pace.speed) };
            format!("replay {percent}% {speed}")
        }
        (Role::Replay, None) => "replay".to_owned(),
        (Role::Launcher | Role::Onlooker, _) => "live".to_owned(),
    }
}

fn tabs(app: &App, width: usize) -> Line<'static> {
    let mut spans = vec![Span::raw(" ")];
    for screen in Screen::ALL {
        let (key, name) = screen.title();
        let (text, style) = if screen == app.screen {
            (format!("{key}-[{name}] "), app.theme.accent())
        } else {
            (format!("{key}-{name} "), app.theme.dim())
        };
        spans.push(Span::styled(text, style));
    }
    spans.push(Span::styled("?-help", app.theme.dim()));
    let used = text::width(&spans);
    let goal = &app.state.goal.1;
    let why = match &app.state.outcome {
        Some((_, why)) => app.clean(why),
        None if !goal.is_empty() => app.clean(goal),
        None => String::new(),
    };
    if !why.is_empty() && width > used + 12 {
        spans.push(Span::raw(text::right(&words::cut(&why, width - used - 3), width - used - 1)));
    }
    Line::from(spans)
}

/// The line for the person, or the keys that count here.
fn footer(app: &App, width: usize) -> Line<'static> {
    if let Some(Overlay::Find(prompt) | Overlay::Filter(prompt)) = &app.overlay {
        let sign = if matches!(app.overlay, Some(Overlay::Filter(_))) { " &" } else { " /" };
        // The end of a long text is what is being typed.
        let skip = prompt.text.chars().count().saturating_sub(width.saturating_sub(4));
        let seen: String = prompt.text.chars().skip(skip).collect();
        return Line::from(vec![Span::styled(sign, app.theme.accent()), Span::raw(seen), Span::styled(" ", app.theme.chosen())]);
    }
    if let Some((text, _)) = &app.toast {
        return Line::styled(text::pad(&format!(" {text}"), width), app.theme.chosen());
    }
    let places = app.places();
    let mut hints: Vec<(String, &'static str)> = places
        .iter()
        .flat_map(|place| app.bindings.rows(*place).filter(|row| !row.hint.is_empty() && !row.keys.is_empty()))
        .map(|row| (row.names("/"), row.hint))
        .collect();
    if let Some(keys) = app.bindings.keys(Cmd::Quit, &places) {
        hints.push((keys, if app.screen == Screen::Overview { "leave" } else { "back" }));
    }
    let mut spans = vec![Span::raw(" ")];
    for (key, help) in hints {
        let more = key.len() + help.len() + 3;
        if text::width(&spans) + more > width {
            break;
        }
        spans.push(Span::styled(key, app.theme.accent()));
        spans.push(Span::raw(format!(" {help}  ")));
    }
    Line::from(spans)
}
