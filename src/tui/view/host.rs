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
use crate::state::{ConnectionStatus, HostState, RankState};
use crate::tui::feed::{DashboardRole, UserAction};
use crate::tui::keymap::UiCommand;
use crate::tui::model::Model;
use crate::tui::pane_action::PaneAction;
use crate::tui::theme::DisplayStatus;

use super::lines::{join_parts, render_lines};
use super::pane_frame::has_frame_room;
use super::section::{Section, SectionStyle, beside};
use super::{formatting, gpu_table, host_machine, host_processes, host_status, overview};

/// Minimum width for a second column.
const WIDE_COLUMNS: u16 = 180;
/// Width of nvidia-smi's table since driver 525, plus a frame.
const SIDE_COLUMNS: u16 = 93;
/// Minimum width for ranks and processes side by side.
const MIN_PAIR_WIDTH: usize = 100;
/// Minimum height for graphs, histories and frames or empty lines.
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
        _ => cmd.target_row(top, model.page_rows, usize::MAX / 2).unwrap_or(top),
    };
    None
}

/// Draws the screen; returns the page size in rows.
pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, view: &mut HostPane) -> usize {
    let page_rows = usize::from(area.height);
    let at = view.host as usize;
    let Some(host) = model.state.hosts.get(at) else {
        render_lines(frame, area, vec![Line::styled(model.lang.tr(" no hosts yet"), model.theme.dim())]);
        return page_rows;
    };
    let wide = area.width >= WIDE_COLUMNS;
    let left = if wide { Rect { width: area.width - SIDE_COLUMNS - 1, ..area } } else { area };
    let room = usize::from(left.height);
    let page_of = |layout| HostPage { model, view, at, host, width: usize::from(left.width), room, is_wide: wide, layout };
    // The richest layout that fits as a whole; the last one scrolls.
    let drawn = |layout| {
        let page = page_of(layout);
        (page.lines(), page)
    };
    let fitting = HostLayout::choices(left).into_iter().map(drawn).find(|(lines, _)| lines.len() <= room);
    let (mut lines, shown_page) = fitting.unwrap_or_else(|| drawn(HostLayout::scrolling(room)));
    let side = wide.then(|| shown_page.side_lines());
    let top = view.first_line.min(lines.len().saturating_sub(room));
    view.first_line = top;
    let mut shown = lines.split_off(top);
    if shown.len() > room && room > 0 {
        let more = model.count(shown.len() - room + 1, "more line");
        shown.truncate(room - 1);
        shown.push(Line::styled(
            model.lang.tr_fill(" {} {}: press {}", &[model.theme.ellipsis(), &more, &model.key(UiCommand::Down)]),
            model.theme.dim(),
        ));
    }
    render_lines(frame, left, shown);
    if let Some(side) = side {
        render_lines(frame, Rect { x: area.x + left.width + 1, width: SIDE_COLUMNS, ..area }, side);
    }
    page_rows
}

/// How the sections stand, and how high the graphs are.
#[derive(Debug, Clone, Copy)]
struct HostLayout {
    style: SectionStyle,
    graph_rows: usize,
}

impl HostLayout {
    /// Frames, then lower graphs.
    fn choices(area: Rect) -> Vec<HostLayout> {
        if !has_frame_room(area) {
            return Vec::new();
        }
        [3, 1].map(|graph_rows| HostLayout { style: SectionStyle::Framed, graph_rows }).to_vec()
    }

    /// Without frames: one that is cut has no lower edge.
    fn scrolling(room: usize) -> HostLayout {
        HostLayout { style: if room >= TALL_ROWS { SectionStyle::Loose } else { SectionStyle::Dense }, graph_rows: 3 }
    }
}

/// What is drawn of a host, and in which way.
struct HostPage<'a> {
    model: &'a Model,
    view: &'a HostPane,
    at: usize,
    host: &'a HostState,
    width: usize,
    room: usize,
    /// The graphs, or the output of nvidia-smi, are in a second column.
    is_wide: bool,
    layout: HostLayout,
}

impl HostPage<'_> {
    /// Everything but the second column.
    fn lines(&self) -> Vec<Line<'static>> {
        let HostPage { model, host, width, room, layout: HostLayout { style, graph_rows }, .. } = *self;
        let inner = style.inner(width);
        let is_dense = style == SectionStyle::Dense;
        let mut lines = header_lines(model, self.at, host, width, is_dense);
        let mut sections = Vec::new();
        if style == SectionStyle::Dense {
            lines.extend(host_machine::short_lines(model, host, width));
        } else {
            sections.push(host_machine::section(model, host, inner));
        }
        if self.view.show_smi && !self.is_wide {
            sections.push(smi_section(model, self.view, host, inner));
        }
        sections.push(gpu_table::gpu_section(model, (self.view.host, host), inner));
        if style != SectionStyle::Dense && !self.is_wide {
            sections.push(gpu_table::mean_graphs(model, host, inner, graph_rows));
        }
        lines.extend(sections.into_iter().flat_map(|section| style.render(section, model.theme, width)));
        lines.extend(self.process_lines(room.saturating_sub(lines.len())));
        let free = room.saturating_sub(lines.len());
        if free >= MIN_LOG_ROWS {
            let section = log_section(model, self.view.host, inner, free - 2);
            lines.extend(style.render(section, model.theme, width));
        }
        lines
    }

    /// The second column: graphs, or the output of nvidia-smi.
    fn side_lines(&self) -> Vec<Line<'static>> {
        let (model, width) = (self.model, usize::from(SIDE_COLUMNS));
        let render = |style: SectionStyle| {
            let inner = style.inner(width);
            let section = match self.view.show_smi {
                true => smi_section(model, self.view, self.host, inner),
                // A section has two rows of its own.
                false => gpu_table::gpu_graphs(model, self.host, inner, self.room.saturating_sub(2)),
            };
            style.render(section, model.theme, width)
        };
        let lines = render(self.layout.style);
        if lines.len() <= self.room { lines } else { render(HostLayout::scrolling(self.room).style) }
    }

    /// The ranks and the processes on the GPUs: below each other, or side by side where rows are short and columns are not.
    fn process_lines(&self, room: usize) -> Vec<Line<'static>> {
        let HostPage { model, width, layout: HostLayout { style, .. }, .. } = *self;
        let of_width = |width: usize| {
            let inner = style.inner(width);
            [rank_section(model, self.at, inner), host_processes::section(model, self.host, inner)]
        };
        let stacked = of_width(width);
        let rows: usize = stacked.iter().map(|section| style.rows(section)).sum();
        if rows <= room || width < MIN_PAIR_WIDTH || stacked.iter().any(|section| section.lines.is_empty()) {
            return stacked.into_iter().flat_map(|section| style.render(section, model.theme, width)).collect();
        }
        let left = width / 2;
        let [mut ranks, _] = of_width(left);
        let [_, mut processes] = of_width(width - left);
        // Both frames end on the same row.
        let rows = ranks.lines.len().max(processes.lines.len());
        [&mut ranks, &mut processes].into_iter().for_each(|section| section.lines.resize(rows, Line::raw("")));
        beside(style.render(ranks, model.theme, left), style.render(processes, model.theme, width - left), left)
    }
}

/// The output of nvidia-smi with its age, or the reason why there is none.
fn smi_section(model: &Model, view: &HostPane, host: &HostState, width: usize) -> Section {
    let asked = view.smi_asked.filter(|(of, at)| *of == view.host && *at >= host.nvidia_smi_at).map(|(_, at)| at);
    let lang = model.lang;
    let since = |at: UnixMillis| formatting::format_age(at, model.now);
    let age = if host.nvidia_smi_at > 0 { lang.tr_fill("{} ago", &[&since(host.nvidia_smi_at)]) } else { String::new() };
    let under_way = asked.map_or_else(String::new, |at| lang.tr_fill("requested {} ago", &[&since(at)]));
    let state = join_parts([age, under_way, lang.tr("r refreshes, v hides").to_owned()]);
    let mut lines = Vec::new();
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
    Section { title: "nvidia-smi".to_owned(), state, lines }
}

/// `has_machine_age`: the values of the machine follow on one line, which has no room for their age.
fn header_lines(model: &Model, at: usize, host: &HostState, width: usize, has_machine_age: bool) -> Vec<Line<'static>> {
    let (status, why) = model.host_statuses.get(at).map(|host| (host.status, &*host.reason)).unwrap_or_default();
    let lang = model.lang;
    let number = lang.tr_fill("host {} of {}", &[&(at + 1).to_string(), &model.state.hosts.len().to_string()]);
    let name = model.sanitize(&host.name);
    let used = name.width() + number.width() + 7;
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
        Span::styled(format!(" {name}  "), model.theme.accent()),
        Span::styled(format!("{number}  "), model.theme.dim()),
        model.theme.symbol_span(status),
        Span::raw(style::truncate_text(&format!(" {why}"), width.saturating_sub(used))),
    ]);
    let age = if has_machine_age { host_machine::age_of_values(model, host) } else { String::new() };
    vec![first, Line::raw(style::truncate_text(&format!(" {link}{since}{clock}{age}"), width))]
}

/// What the host's ranks wrote last fills the rest of the screen.
fn log_section(model: &Model, host: u32, width: usize, rows: usize) -> Section {
    let (_, file) = overview::most_relevant_log(model, host);
    let name = match file {
        LogFile::Rank { rank, .. } => format!("r{rank}"),
        LogFile::Launcher => model.lang.tr("the launcher").to_owned(),
        LogFile::Task { number } => model.lang.tr_fill("task {}", &[&number.to_string()]),
    };
    let lines = model.state.recent_lines(host, file).map(|recent| recent.last_lines(rows)).unwrap_or_default();
    let row = |line: &String| Line::raw(format!("   {}", style::truncate_text(&model.sanitize(line), width.saturating_sub(3))));
    Section {
        title: model.lang.tr_fill("last lines of {}", &[&name]),
        state: model.lang.tr_fill("{} opens the log", &[&model.key(UiCommand::Output)]),
        lines: lines.iter().map(row).collect(),
    }
}

fn rank_section(model: &Model, at: usize, width: usize) -> Section {
    let own = || model.state.ranks.values().filter(|rank| rank.host as usize == at);
    let word_of = |rank: &RankState| model.lang.message(&host_status::rank_status(&model.state, rank).1).into_owned();
    let word_width = own().map(|rank| word_of(rank).width()).max().unwrap_or(0);
    let number_width = own().map(|rank| rank.rank.to_string().len()).max().unwrap_or(0);
    let row = |rank: &RankState| {
        let (status, _) = host_status::rank_status(&model.state, rank);
        let last = model.last_line(rank);
        let local = rank.local_rank.map_or_else(|| "-".to_owned(), |local| format!("g{local}"));
        let number = format!("rank {:<number_width$}", rank.rank);
        let text = format!(" {number}  {}  {last}", formatting::pad(&word_of(rank), word_width));
        Line::from(vec![
            Span::raw(format!("   {local:<4} ")),
            model.theme.symbol_span(status),
            Span::raw(style::truncate_text(&text, width.saturating_sub(9))),
        ])
    };
    Section { title: model.lang.tr("ranks").to_owned(), state: String::new(), lines: own().map(row).collect() }
}
