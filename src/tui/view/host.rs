//! One host: status, machine, GPUs with history, ranks, GPU processes, and the output of nvidia-smi.
//! A wide screen shows graphs or nvidia-smi in a second column.
//!
//! Every value shows its age; stale values are marked.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

use crate::event::{LogFile, UnixMillis};
use crate::report::style;
use crate::state::{ConnectionStatus, HostState};
use crate::tui::feed::{DashboardRole, UserAction};
use crate::tui::keymap::UiCommand;
use crate::tui::model::Model;
use crate::tui::pane_action::PaneAction;
use crate::tui::theme::DisplayStatus;

use super::lines::{age_text, render_lines, section_title};
use super::{formatting, gpu_table, host_processes, host_status, overview};

/// Minimum width for a second column.
const WIDE_COLUMNS: u16 = 180;
/// Width of nvidia-smi's table since driver 525, plus one.
const SIDE_COLUMNS: u16 = 92;
/// Minimum width for ranks and processes side by side.
const MIN_PAIR_WIDTH: usize = 100;
/// Minimum height for graphs and empty lines.
const TALL_ROWS: usize = 30;
/// The fewest rows for the last lines of a log.
const MIN_LOG_ROWS: usize = 4;
/// A request without a response after this time is repeated, in milliseconds.
const SMI_TIMEOUT_MS: i64 = 30_000;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostPane {
    /// Index of the host; the first one until another is opened.
    pub(crate) host: u32,
    /// First visible line.
    first_line: usize,
    /// The output of nvidia-smi is shown.
    pub(crate) show_smi: bool,
    /// Host and time of the last nvidia-smi request.
    smi_asked: Option<(u32, UnixMillis)>,
}

impl HostPane {
    /// This host, from its first line.
    pub(crate) fn new(host: u32) -> HostPane {
        HostPane { host, ..HostPane::default() }
    }
}

/// Shows another host, and requests its nvidia-smi output if that is shown.
fn show_host(view: &mut HostPane, model: &Model, host: u32) -> Option<PaneAction> {
    (view.host, view.first_line) = (host, 0);
    let known = model.state.hosts.get(host as usize).is_some_and(|host| host.nvidia_smi_at > 0);
    if view.show_smi && !known { query_nvidia_smi(view, model) } else { None }
}

fn query_nvidia_smi(view: &mut HostPane, model: &Model) -> Option<PaneAction> {
    let host = view.host;
    let waits = view.smi_asked.is_some_and(|(of, at)| {
        let answered = model.state.hosts.get(host as usize).map_or(0, |host| host.nvidia_smi_at);
        of == host && answered <= at && model.now - at < SMI_TIMEOUT_MS
    });
    if model.capabilities.role == DashboardRole::Replay || waits {
        return None;
    }
    view.smi_asked = Some((host, model.now));
    Some(PaneAction::Request(UserAction::QueryNvidiaSmi(host)))
}

pub(crate) fn update(view: &mut HostPane, model: &Model, cmd: UiCommand) -> Option<PaneAction> {
    let page = model.page_rows.max(1);
    let hosts = u32::try_from(model.state.hosts.len()).unwrap_or(u32::MAX).max(1);
    let top = view.first_line;
    view.first_line = match cmd {
        UiCommand::PrevHost | UiCommand::PrevRank | UiCommand::Left => return show_host(view, model, (view.host + hosts - 1) % hosts),
        UiCommand::NextHost | UiCommand::NextRank | UiCommand::Right => return show_host(view, model, (view.host + 1) % hosts),
        UiCommand::Raw => {
            (view.show_smi, view.first_line) = (!view.show_smi, 0);
            return if view.show_smi { query_nvidia_smi(view, model) } else { None };
        }
        UiCommand::Again if view.show_smi => return query_nvidia_smi(view, model),
        UiCommand::Open | UiCommand::Output => return Some(PaneAction::ShowLog(overview::most_relevant_log(model, view.host))),
        UiCommand::Up => top.saturating_sub(1),
        UiCommand::Down => top + 1,
        UiCommand::PageUp => top.saturating_sub(page),
        UiCommand::PageDown => top + page,
        UiCommand::HalfUp => top.saturating_sub(page / 2),
        UiCommand::HalfDown => top + page / 2,
        UiCommand::Top => 0,
        UiCommand::Bottom => usize::MAX / 2,
        _ => top,
    };
    None
}

/// Draws the screen; returns the page size in rows.
pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, view: &mut HostPane) -> usize {
    let page = usize::from(area.height);
    let at = view.host as usize;
    let Some(host) = model.state.hosts.get(at) else {
        render_lines(frame, area, vec![Line::styled(model.lang.tr(" no hosts yet"), model.theme.dim())]);
        return page;
    };
    let wide = area.width >= WIDE_COLUMNS;
    let left = if wide { Rect { width: area.width - SIDE_COLUMNS - 1, ..area } } else { area };
    let (width, room) = (usize::from(left.width), usize::from(left.height));
    let tall = room >= TALL_ROWS;
    let mut lines = header_lines(model, at, host, width);
    lines.extend(machine_lines(model, host, width, if tall { 4 } else { 1 }));
    if view.show_smi && !wide {
        lines.extend(smi_lines(model, view, host, width));
    }
    let mut sections = vec![gpu_table::gpu_rows(model, host, width)];
    if tall && !wide {
        sections.push(gpu_table::mean_graphs(model, host, width));
    }
    let rows: usize = sections.iter().map(|section| section.len() + usize::from(tall)).sum();
    sections.extend(process_lines(model, at, host, (width, room.saturating_sub(lines.len() + rows))));
    for section in sections.into_iter().filter(|section| !section.is_empty()) {
        if tall {
            lines.push(Line::raw(""));
        }
        lines.extend(section);
    }
    let free = room.saturating_sub(lines.len());
    if free >= MIN_LOG_ROWS {
        lines.extend(log_lines(model, view.host, width, free));
    }
    let side = wide.then(|| {
        if view.show_smi {
            smi_lines(model, view, host, usize::from(SIDE_COLUMNS))
        } else {
            gpu_table::gpu_graphs(model, host, usize::from(SIDE_COLUMNS))
        }
    });
    let top = view.first_line.min(lines.len().saturating_sub(room));
    view.first_line = top;
    let mut shown = lines.split_off(top);
    if shown.len() > room && room > 0 {
        let more = model.count(shown.len() - room + 1, "more line");
        shown.truncate(room - 1);
        shown.push(Line::styled(model.lang.tr_fill(" {} {}: down", &[model.theme.ellipsis(), &more]), model.theme.dim()));
    }
    render_lines(frame, left, shown);
    if let Some(side) = side {
        render_lines(frame, Rect { x: area.x + left.width + 1, width: SIDE_COLUMNS, ..area }, side);
    }
    page
}

/// The ranks and the processes on the GPUs: below each other, or side by side where rows are short and columns are not.
fn process_lines(model: &Model, at: usize, host: &HostState, (width, room): (usize, usize)) -> Vec<Vec<Line<'static>>> {
    let stacked = [rank_lines(model, at, width), host_processes::lines(model, host, width)];
    let rows: usize = stacked.iter().map(Vec::len).sum();
    if rows + 2 <= room || width < MIN_PAIR_WIDTH || stacked.iter().any(Vec::is_empty) {
        return stacked.into();
    }
    let left = width / 2;
    let ranks = rank_lines(model, at, left - 1);
    vec![host_processes::beside(ranks, host_processes::lines(model, host, width - left), left)]
}

/// The output of nvidia-smi with its age, or the reason why there is none.
fn smi_lines(model: &Model, view: &HostPane, host: &HostState, width: usize) -> Vec<Line<'static>> {
    let asked = view.smi_asked.filter(|(of, at)| *of == view.host && *at >= host.nvidia_smi_at).map(|(_, at)| at);
    let lang = model.lang;
    let since = |at: UnixMillis| formatting::format_age(at, model.now);
    let age = if host.nvidia_smi_at > 0 { lang.tr_fill("  {} ago", &[&since(host.nvidia_smi_at)]) } else { String::new() };
    let under_way = asked.map_or_else(String::new, |at| lang.tr_fill("  requested {} ago", &[&since(at)]));
    let mut lines = vec![section_title(model, &lang.tr_fill("nvidia-smi{}{}  r refreshes, v hides", &[&age, &under_way]), width)];
    if !host.nvidia_smi_error.is_empty() {
        lines.push(Line::styled(
            style::truncate_text(&format!(" {}", model.sanitize(&host.nvidia_smi_error)), width),
            model.theme.status_style(DisplayStatus::Warn),
        ));
    }
    if host.nvidia_smi_at == 0 {
        let text = if model.capabilities.role == DashboardRole::Replay {
            lang.tr(" no nvidia-smi output of this host in the journal so far")
        } else {
            lang.tr(" waiting for nvidia-smi")
        };
        lines.push(Line::styled(text, model.theme.dim()));
    }
    lines.extend(host.nvidia_smi_output.lines().map(|line| Line::raw(style::truncate_text(&model.sanitize(line), width))));
    lines
}

fn header_lines(model: &Model, at: usize, host: &HostState, width: usize) -> Vec<Line<'static>> {
    let (status, why) = model.host_statuses.get(at).map(|host| (host.status, host.reason.as_str())).unwrap_or_default();
    let lang = model.lang;
    let location = lang.tr_fill("{} of {}", &[&(at + 1).to_string(), &model.state.hosts.len().to_string()]);
    let clock = host.clock_offset.map(|(offset, wrong)| [format!("{offset:+}"), wrong.to_string()]);
    let clock = clock.map_or_else(String::new, |[offset, wrong]| lang.tr_fill("  clock {} ms (±{})", &[&offset, &wrong]));
    let link = match host.connection_status {
        ConnectionStatus::Unknown => lang.tr("not connected yet"),
        ConnectionStatus::Connecting => lang.tr("connecting"),
        ConnectionStatus::Connected => lang.tr("connected"),
        ConnectionStatus::Retrying => lang.tr("lost, retrying"),
        ConnectionStatus::Unreachable => lang.tr("unreachable"),
    };
    let since = if host.connection_since > 0 {
        lang.tr_fill(" for {}", &[&style::format_duration(model.now - host.connection_since)])
    } else {
        String::new()
    };
    let first = Line::from(vec![
        Span::styled(format!(" {}  ", model.sanitize(&host.name)), model.theme.accent()),
        Span::styled(model.theme.symbol(status), model.theme.status_style(status)),
        Span::raw(style::truncate_text(&format!(" {why}  {location}  "), width.saturating_sub(host.name.len() + 6))),
    ]);
    vec![first, Line::raw(style::truncate_text(&format!(" {link}{since}{clock}"), width))]
}

fn machine_lines(model: &Model, host: &HostState, width: usize, most: usize) -> Vec<Line<'static>> {
    let (metrics, lang) = (&host.host_metrics, model.lang);
    let mut parts = Vec::new();
    if host.host_metrics_at > 0 {
        parts.extend(metrics.cpu_percent.map(|cpu| format!("{}{cpu:.0}%", lang.tr("cpu "))));
        parts.extend(metrics.load_average.map(|load| format!("{}{load:.1}", lang.tr("load "))));
        if metrics.memory_total > 0 {
            let used = metrics.memory_total.saturating_sub(metrics.memory_available);
            parts.push(lang.tr_fill("mem {}", &[&formatting::format_part_of(used, metrics.memory_total, lang)]));
        }
    }
    if let Some(disk) = host.disk {
        let age = if host.host_metrics_at > 0 && disk.at + 15_000 > model.now {
            String::new()
        } else {
            format!(" ({})", age_text(model, disk.at))
        };
        parts.push(lang.tr_fill("disk {} free{}", &[&formatting::format_part_of(disk.free, disk.total, lang), &age]));
    }
    let mut lines = Vec::new();
    let age = if host.host_metrics_at > 0 { format!("  {}", age_text(model, host.host_metrics_at)) } else { String::new() };
    let dim = if model.is_stale(host.host_metrics_at) { model.theme.dim() } else { ratatui::style::Style::new() };
    if !parts.is_empty() {
        lines.push(Line::styled(style::truncate_text(&format!(" {}{age}", parts.join("  ")), width), dim));
    }
    let mut nets: Vec<_> = metrics.networks.iter().collect();
    // InfiniBand first, then by traffic.
    nets.sort_by(|a, b| {
        b.infiniband_port_state
            .is_empty()
            .cmp(&a.infiniband_port_state.is_empty())
            .reverse()
            .then((b.received_bytes_per_sec + b.sent_bytes_per_sec).total_cmp(&(a.received_bytes_per_sec + a.sent_bytes_per_sec)))
    });
    let mut row = String::new();
    for net in nets {
        let name = model.sanitize(&[net.name.as_str(), net.infiniband_port_state.as_str()].join(" "));
        let rates = [net.received_bytes_per_sec, net.sent_bytes_per_sec].map(formatting::format_rate);
        let one = lang.tr_fill(" {}  in {}/s out {}/s ", &[name.trim_end(), &rates[0], &rates[1]]);
        if !row.is_empty() && row.width() + one.width() > width {
            lines.push(Line::styled(style::truncate_text(&std::mem::take(&mut row), width), dim));
        }
        row += &one;
        if lines.len() > most {
            return lines;
        }
    }
    if !row.is_empty() {
        lines.push(Line::styled(style::truncate_text(&row, width), dim));
    }
    lines
}

/// What the host's ranks wrote last fills the rest of the screen.
fn log_lines(model: &Model, host: u32, width: usize, room: usize) -> Vec<Line<'static>> {
    let (_, file) = overview::most_relevant_log(model, host);
    let name = match file {
        LogFile::Rank { rank, .. } => format!("r{rank}"),
        LogFile::Launcher => model.lang.tr("the launcher").to_owned(),
        LogFile::Task { number } => model.lang.tr_fill("task {}", &[&number.to_string()]),
    };
    let lines = model.state.recent_lines(host, file).map(|recent| recent.last_lines(room.saturating_sub(2))).unwrap_or_default();
    if lines.is_empty() {
        return Vec::new();
    }
    let title = section_title(model, &model.lang.tr_fill("Last lines of {}  enter opens the log", &[&name]), width);
    let row = |line: &String| Line::raw(format!("   {}", style::truncate_text(&model.sanitize(line), width.saturating_sub(3))));
    [Line::raw(""), title].into_iter().chain(lines.iter().map(row)).collect()
}

fn rank_lines(model: &Model, at: usize, width: usize) -> Vec<Line<'static>> {
    let own: Vec<_> = model.state.ranks.values().filter(|rank| rank.host as usize == at).collect();
    if own.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![section_title(model, model.lang.tr("Ranks"), width)];
    for rank in own {
        let (status, word) = host_status::rank_status(&model.state, rank);
        let word = model.lang.message(&word).into_owned();
        let last = rank.recent_lines.last_lines(1).pop().map(|line| model.sanitize(&line)).unwrap_or_default();
        let local = rank.local_rank.map_or_else(|| "-".to_owned(), |local| format!("g{local}"));
        lines.push(Line::from(vec![
            Span::raw(format!("   {local:<4} ")),
            Span::styled(model.theme.symbol(status), model.theme.status_style(status)),
            Span::raw(style::truncate_text(
                &format!(" rank {:<5} {}  {last}", rank.rank, formatting::pad(&word, 12)),
                width.saturating_sub(9),
            )),
        ]));
    }
    lines
}
