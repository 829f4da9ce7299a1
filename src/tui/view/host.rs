//! One host: how it stands, its machine, its GPUs with their last minutes, its ranks, the processes on its GPUs, and what nvidia-smi prints.
//! A wide screen has the graphs, or nvidia-smi, in a column of its own.
//!
//! Uses `sum` and `cards`. Every value has its age; what is old is said to be.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::event::{GpuProcess, Millis};
use crate::report::words;
use crate::state::{HostState, Liveness};
use crate::tui::app::{App, Screen};
use crate::tui::feed::{Ask, Role};
use crate::tui::keymap::Cmd;
use crate::tui::theme::Status;

use super::{cards, overview, put, sum, text};

/// From so many columns on there is a second column.
const WIDE: u16 = 180;
/// The columns that nvidia-smi's table has since driver 525, and one more.
const SIDE: u16 = 92;
/// From so many rows on there are graphs and empty lines.
const TALL: usize = 30;
/// An answer that has not come by then is asked for again.
const PATIENCE: i64 = 30_000;

/// What the host's pane remembers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    /// Which; the first one until another is opened.
    pub(crate) host: u32,
    /// The first line that is shown.
    top: usize,
    /// What nvidia-smi prints is shown.
    pub(crate) raw: bool,
    /// When and of which host that was asked for last.
    asked: Option<(u32, Millis)>,
}

impl View {
    /// That host, from its first line.
    pub(super) fn of(host: u32) -> View {
        View { host, ..View::default() }
    }
}

/// Shows another host, and asks it too what nvidia-smi prints where that is shown.
fn turn(app: &mut App, host: u32) {
    app.host = View { host, top: 0, ..app.host };
    let known = app.state.hosts.get(host as usize).is_some_and(|host| host.smi_at > 0);
    if app.host.raw && !known {
        ask(app);
    }
}

fn ask(app: &mut App) {
    let host = app.host.host;
    let waits = app.host.asked.is_some_and(|(of, at)| {
        let answered = app.state.hosts.get(host as usize).map_or(0, |host| host.smi_at);
        of == host && answered <= at && app.now - at < PATIENCE
    });
    if app.offer.role != Role::Replay && !waits {
        app.host.asked = Some((host, app.now));
        app.asks.push(Ask::Look(host));
    }
}

/// Obeys a command.
pub(crate) fn update(app: &mut App, cmd: Cmd) {
    let page = app.page.max(1);
    let hosts = u32::try_from(app.state.hosts.len()).unwrap_or(u32::MAX).max(1);
    let top = app.host.top;
    match cmd {
        Cmd::PrevHost | Cmd::PrevRank | Cmd::Left => turn(app, (app.host.host + hosts - 1) % hosts),
        Cmd::NextHost | Cmd::NextRank | Cmd::Right => turn(app, (app.host.host + 1) % hosts),
        Cmd::Raw => {
            app.host = View { raw: !app.host.raw, top: 0, ..app.host };
            if app.host.raw {
                ask(app);
            }
        }
        Cmd::Again if app.host.raw => ask(app),
        Cmd::Open | Cmd::Output => {
            let log = overview::worst_log(app, app.host.host);
            app.logs.show(log);
            app.screen = Screen::Logs;
        }
        Cmd::Up => app.host.top = top.saturating_sub(1),
        Cmd::Down => app.host.top = top + 1,
        Cmd::PageUp => app.host.top = top.saturating_sub(page),
        Cmd::PageDown => app.host.top = top + page,
        Cmd::HalfUp => app.host.top = top.saturating_sub(page / 2),
        Cmd::HalfDown => app.host.top = top + page / 2,
        Cmd::Top => app.host.top = 0,
        Cmd::Bottom => app.host.top = usize::MAX / 2,
        _ => {}
    }
}

/// Draws it.
pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, app: &mut App) {
    app.page = usize::from(area.height);
    let at = app.host.host as usize;
    let Some(host) = app.state.hosts.get(at) else {
        put(frame, area, vec![Line::styled(" no host is known yet", app.theme.dim())]);
        return;
    };
    let wide = area.width >= WIDE;
    let left = if wide { Rect { width: area.width - SIDE - 1, ..area } } else { area };
    let (width, room) = (usize::from(left.width), usize::from(left.height));
    let tall = room >= TALL;
    let mut lines = head(app, at, host, width);
    lines.extend(machine(app, host, width, if tall { 4 } else { 1 }));
    if app.host.raw && !wide {
        lines.extend(raw(app, host, width));
    }
    let mut sections = vec![cards::gpus(app, host, width)];
    if tall && !wide {
        sections.push(cards::means(app, host, width));
    }
    sections.push(ranks(app, at, width));
    sections.push(processes(app, host, width));
    for section in sections.into_iter().filter(|section| !section.is_empty()) {
        if tall {
            lines.push(Line::raw(""));
        }
        lines.extend(section);
    }
    let side = wide.then(|| if app.host.raw { raw(app, host, usize::from(SIDE)) } else { cards::graphs(app, host, usize::from(SIDE)) });
    let top = app.host.top.min(lines.len().saturating_sub(room));
    app.host.top = top;
    put(frame, left, lines.split_off(top));
    if let Some(side) = side {
        put(frame, Rect { x: area.x + left.width + 1, width: SIDE, ..area }, side);
    }
}

/// What nvidia-smi printed there, with its age; or why there is nothing.
fn raw(app: &App, host: &HostState, width: usize) -> Vec<Line<'static>> {
    let asked = app.host.asked.filter(|(of, at)| *of == app.host.host && *at >= host.smi_at).map(|(_, at)| at);
    let age = if host.smi_at > 0 { format!("  {} ago", text::age(host.smi_at, app.now)) } else { String::new() };
    let under_way = asked.map_or_else(String::new, |at| format!("  asked {} ago", text::age(at, app.now)));
    let mut lines = vec![title(app, &format!("nvidia-smi{age}{under_way}  r asks again, v hides it"), width)];
    if !host.smi_error.is_empty() {
        lines.push(Line::styled(words::cut(&format!(" {}", app.clean(&host.smi_error)), width), app.theme.status(Status::Warn)));
    }
    if host.smi_at == 0 {
        let text = if app.offer.role == Role::Replay { " the journal has none of this host until now" } else { " waiting for its answer" };
        lines.push(Line::styled(text, app.theme.dim()));
    }
    lines.extend(host.smi.lines().map(|line| Line::raw(words::cut(&app.clean(line), width))));
    lines
}

/// How old a value is, in words.
pub(super) fn aged(app: &App, at: Millis) -> String {
    match at {
        0 => "never seen".to_owned(),
        at if app.stale(at) => format!("? {} old", text::age(at, app.now)),
        at => format!("{} ago", text::age(at, app.now)),
    }
}

pub(super) fn title(app: &App, text: &str, width: usize) -> Line<'static> {
    Line::styled(text::pad(&format!(" {text}"), width), app.theme.head())
}

fn head(app: &App, at: usize, host: &HostState, width: usize) -> Vec<Line<'static>> {
    let (status, why) = app.standings.get(at).map(|host| (host.status, host.why.as_str())).unwrap_or_default();
    let place = format!("{} of {}  ", at + 1, app.state.hosts.len());
    let clock = host.clock.map_or_else(String::new, |(offset, wrong)| format!("  clock {offset:+} ms (±{wrong})"));
    let link = match host.liveness {
        Liveness::Unknown => "not tried",
        Liveness::Connecting => "connecting",
        Liveness::Connected => "connected",
        Liveness::Retrying => "lost, trying again",
        Liveness::Unreachable => "unreachable",
    };
    let since = if host.since > 0 { format!(" for {}", words::span(app.now - host.since)) } else { String::new() };
    let first = Line::from(vec![
        Span::styled(format!(" {}  ", app.clean(&host.name)), app.theme.accent()),
        Span::styled(app.theme.symbol(status), app.theme.status(status)),
        Span::raw(words::cut(&format!(" {why}  {place}"), width.saturating_sub(host.name.len() + 6))),
    ]);
    vec![first, Line::raw(words::cut(&format!(" {link}{since}{clock}"), width))]
}

fn machine(app: &App, host: &HostState, width: usize, most: usize) -> Vec<Line<'static>> {
    let vitals = &host.vitals;
    let mut parts = Vec::new();
    if host.vitals_at > 0 {
        parts.extend(vitals.cpu.map(|cpu| format!("cpu {cpu:.0}%")));
        parts.extend(vitals.load.map(|load| format!("load {load:.1}")));
        if vitals.memory_total > 0 {
            let used = vitals.memory_total.saturating_sub(vitals.memory_available);
            parts.push(format!("mem {}", text::part(used, vitals.memory_total)));
        }
    }
    if let Some(disk) = host.disk {
        let age = if host.vitals_at > 0 && disk.at + 15_000 > app.now { String::new() } else { format!(" ({})", aged(app, disk.at)) };
        parts.push(format!("disk {} free{age}", text::part(disk.free, disk.total)));
    }
    let mut lines = Vec::new();
    let age = if host.vitals_at > 0 { format!("  {}", aged(app, host.vitals_at)) } else { String::new() };
    let dim = if app.stale(host.vitals_at) { app.theme.dim() } else { ratatui::style::Style::new() };
    if !parts.is_empty() {
        lines.push(Line::styled(words::cut(&format!(" {}{age}", parts.join("  ")), width), dim));
    }
    let mut nets: Vec<_> = vitals.networks.iter().collect();
    // InfiniBand first, then the busiest.
    nets.sort_by(|a, b| b.port.is_empty().cmp(&a.port.is_empty()).reverse().then((b.received + b.sent).total_cmp(&(a.received + a.sent))));
    let mut row = String::new();
    for net in nets {
        let name = app.clean(&[net.name.as_str(), net.port.as_str()].join(" "));
        let one = format!(" {}  in {}/s out {}/s ", name.trim_end(), text::rate(net.received), text::rate(net.sent));
        if !row.is_empty() && row.chars().count() + one.chars().count() > width {
            lines.push(Line::styled(words::cut(&std::mem::take(&mut row), width), dim));
        }
        row += &one;
        if lines.len() > most {
            return lines;
        }
    }
    if !row.is_empty() {
        lines.push(Line::styled(words::cut(&row, width), dim));
    }
    lines
}

fn processes(app: &App, host: &HostState, width: usize) -> Vec<Line<'static>> {
    if host.processes_at == 0 {
        return Vec::new();
    }
    let foreign = host.processes.iter().filter(|process| !process.ours).count();
    let count = words::count(host.processes.len(), "process").replace("processs", "processes");
    let head = format!("On the GPUs  {count}, {foreign} foreign  {}", aged(app, host.processes_at));
    let mut lines = vec![title(app, &head, width)];
    let mut all: Vec<&GpuProcess> = host.processes.iter().collect();
    all.sort_by_key(|process| (process.ours, process.pid));
    for process in all {
        let gpu = host.gpus.iter().find(|gpu| gpu.uuid == process.gpu).map_or_else(|| "?".to_owned(), |gpu| gpu.index.to_string());
        let memory = process.memory.map_or_else(|| "-".to_owned(), |mib| format!("{:.1} GiB", mib / 1024.0));
        let (whose, status) = if process.ours { ("ours   ", Status::Ok) } else { ("foreign", Status::Warn) };
        lines.push(Line::from(vec![
            Span::raw(format!("   g{gpu:<3} ")),
            Span::styled(whose, app.theme.status(status)),
            Span::raw(words::cut(
                &format!(" {:>8} {memory:>10}  {} {}", process.pid, text::pad(&app.clean(&process.user), 10), app.clean(&process.name)),
                width.saturating_sub(15),
            )),
        ]));
    }
    lines
}

fn ranks(app: &App, at: usize, width: usize) -> Vec<Line<'static>> {
    let own: Vec<_> = app.state.ranks.values().filter(|rank| rank.host as usize == at).collect();
    if own.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![title(app, "Ranks", width)];
    for rank in own {
        let (status, word) = sum::rank_status(&app.state, rank);
        let last = rank.tail.last(1).pop().map(|line| app.clean(&line)).unwrap_or_default();
        let local = rank.local_rank.map_or_else(|| "-".to_owned(), |local| format!("g{local}"));
        lines.push(Line::from(vec![
            Span::raw(format!("   {local:<4} ")),
            Span::styled(app.theme.symbol(status), app.theme.status(status)),
            Span::raw(words::cut(&format!(" rank {:<5} {}  {last}", rank.rank, text::pad(&word, 12)), width.saturating_sub(9))),
        ]));
    }
    lines
}
