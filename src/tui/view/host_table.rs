//! The table of hosts: worst first, equal healthy hosts folded into one row where space is short, expandable. A wider
//! screen shows more columns.
//!
//! Hosts with problems never fold. Hosts with stale values are left out of sums.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

use crate::event::{GpuSample, UnixMillis};
use crate::report::style;
use crate::state::{HostState, RankState};
use crate::tui::model::Model;
use crate::tui::theme::DisplayStatus;

use super::gpu_ranks::RanksByGpu;
use super::gpu_status::gpu_status;
use super::host_list::{HostList, group_entries};
use super::host_status::{self, HostRankCounts, HostStatus};
use super::lines::{render_lines, selected_row};
use super::{figure_age, formatting, graph, host_selection, host_totals};

/// Widths of the GPU summary and of the machine summary.
const GPU_TOTALS_WIDTH: usize = 29;
const MACHINE_WIDTH: usize = 31;
/// Maximum and minimum width of the history: two values per column.
const MAX_HISTORY_WIDTH: usize = 30;
const MIN_HISTORY_WIDTH: usize = 10;
/// Width of the reason: the least that is shown, what it has beside a history, and what it may take from the machine summary.
const MIN_REASON_WIDTH: usize = 7;
const REASON_WIDTH: usize = 14;
const MAX_REASON_WIDTH: usize = 40;

#[derive(Clone)]
struct HostTableRow {
    hosts: Vec<u32>,
    /// The hosts' names, folded, set when it is drawn.
    label: String,
    status: DisplayStatus,
    reason: Cow<'static, str>,
    ranks: HostRankCounts,
    last_output_at: UnixMillis,
    /// Of several hosts, the row of each.
    members: Vec<HostTableRow>,
    /// A host of the expanded row above.
    is_member: bool,
}

impl HostTableRow {
    /// Adds an equal host.
    fn fold(&mut self, row: HostTableRow) {
        if self.members.is_empty() {
            self.members.push(HostTableRow { is_member: true, ..self.clone() });
        }
        self.hosts.extend(&row.hosts);
        self.ranks.total += row.ranks.total;
        self.ranks.running += row.ranks.running;
        self.ranks.ok += row.ranks.ok;
        self.last_output_at = self.last_output_at.max(row.last_output_at);
        self.members.push(HostTableRow { is_member: true, ..row });
    }
}

pub(super) struct HostTable {
    rows: Vec<HostTableRow>,
    groups: BTreeMap<u32, (Arc<str>, u32)>,
}

impl HostTable {
    /// One row per host, or folded rows if space is short.
    pub(super) fn new(model: &Model, list: &HostList, room: usize) -> HostTable {
        let all = host_rows(model, list);
        if all.len() <= room || list.selection.is_ordered_by_value() {
            return HostTable { rows: all, groups: BTreeMap::new() };
        }
        let is_calm = |row: &HostTableRow| !model.host_statuses.get(row.hosts[0] as usize).is_some_and(HostStatus::needs_attention);
        let mut folded: Vec<HostTableRow> = Vec::new();
        for row in all {
            let alike =
                |known: &HostTableRow| (known.status, &known.reason) == (row.status, &row.reason) && is_calm(known) && is_calm(&row);
            match folded.iter_mut().find(|known| alike(known)) {
                Some(known) => known.fold(row),
                None => folded.push(row),
            }
        }
        let groups = folded.iter().flat_map(|row| group_entries(&row.hosts, &group_key(row))).collect();
        let mut rows = Vec::new();
        for mut row in folded {
            let members = std::mem::take(&mut row.members);
            let is_expanded = list.expanded.contains(&group_key(&row));
            rows.push(row);
            rows.extend(members.into_iter().filter(|_| is_expanded));
        }
        HostTable { rows, groups }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn draw(mut self, frame: &mut Frame<'_>, area: Rect, model: &Model, list: &mut HostList) {
        let room = usize::from(area.height).saturating_sub(1);
        let drawn = self.rows.iter().map(|row| (row.hosts.len() > 1, row.hosts[0])).collect();
        list.groups = self.groups;
        let (at, top) = list.set_rows(drawn, room);
        list.rows.set_screen_rows(area.y + 1, room);
        let width = usize::from(area.width);
        let is_folded = !list.groups.is_empty();
        for row in &mut self.rows {
            row.label = row_label(model, list, row, is_folded);
        }
        let columns = HostColumns::fit(width, model, &self.rows);
        let ranks = RanksByGpu::new(model);
        let mut lines = vec![columns.header_line(model)];
        for (n, row) in self.rows.iter().enumerate().skip(top).take(room) {
            let line = columns.row_line(model, row, &ranks);
            lines.push(if n == at { selected_row(&line, model.theme, width) } else { line });
        }
        if self.rows.is_empty() {
            let text = if model.state.hosts.is_empty() { model.lang.tr(" no hosts yet") } else { model.lang.tr(" no host matches") };
            lines.push(Line::styled(text, model.theme.dim()));
        }
        render_lines(frame, area, lines);
    }
}

/// A row for each host that is shown, in the chosen order; else the worst first.
fn host_rows(model: &Model, list: &HostList) -> Vec<HostTableRow> {
    let row = |at: u32| {
        let host = model.host_statuses.get(at as usize)?;
        Some(HostTableRow {
            hosts: vec![at],
            label: String::new(),
            status: host.status,
            reason: host.reason.clone(),
            ranks: host.ranks.clone(),
            last_output_at: host.last_output_at,
            members: Vec::new(),
            is_member: false,
        })
    };
    let mut rows: Vec<HostTableRow> = list.selection.hosts(model).into_iter().filter_map(row).collect();
    if !list.selection.is_ordered_by_value() {
        rows.sort_by_key(|row| host_selection::severity(model, row.hosts[0]));
    }
    rows
}

/// Column widths; 0 hides a column.
struct HostColumns {
    name_width: usize,
    gpu_width: usize,
    show_gpu_totals: bool,
    show_machine: bool,
    history_width: usize,
    reason_width: usize,
}

impl HostColumns {
    fn fit(width: usize, model: &Model, rows: &[HostTableRow]) -> HostColumns {
        let most = model.state.hosts.iter().map(|host| host.gpus.len()).max().unwrap_or(0).clamp(3, 16);
        // " name ST RANKS GPU", and the other columns if space allows.
        let fixed = 1 + 1 + 3 + 10 + most + 1;
        let numbers = width >= fixed + 12 + GPU_TOTALS_WIDTH;
        let longest = rows.iter().map(|row| row.label.len() + host_count_suffix(model, &row.hosts).width()).max().unwrap_or(4).clamp(4, 60);
        let totals = fixed + if numbers { GPU_TOTALS_WIDTH } else { 0 };
        // A host's problem is more important than the load of its machine.
        let widest_reason = rows.iter().map(|row| row.reason.width()).max().unwrap_or(0).clamp(REASON_WIDTH, MAX_REASON_WIDTH);
        let machine = numbers && width >= totals + MACHINE_WIDTH + longest.max(12) + 1 + widest_reason;
        let taken = totals + if machine { MACHINE_WIDTH } else { 0 };
        let rest = width.saturating_sub(taken);
        // Names of many hosts are cut before the reason of one is.
        let own_names = rows.iter().filter(|row| row.hosts.len() == 1).map(|row| row.label.len()).max().unwrap_or(0);
        let name_room = rest.saturating_sub(widest_reason + 2).max(own_names).max(28);
        let name = if rest > longest + 14 { longest.min(name_room).max(6) } else { rest.min(longest.max(rest.saturating_sub(9))) };
        let after = rest.saturating_sub(name + 1);
        let history =
            if machine && after > MIN_HISTORY_WIDTH + widest_reason { (after - widest_reason - 1).min(MAX_HISTORY_WIDTH) } else { 0 };
        let why = if history > 0 { after - history - 1 } else { after };
        // A few letters are useless.
        let why = if why < MIN_REASON_WIDTH { 0 } else { why };
        HostColumns {
            name_width: name,
            gpu_width: most,
            show_gpu_totals: numbers,
            show_machine: machine,
            history_width: history,
            reason_width: why,
        }
    }

    fn header_line(&self, model: &Model) -> Line<'static> {
        let lang = model.lang;
        let state = lang.tr("ST");
        let (ranks, gpus) = (formatting::pad(lang.tr("RANKS"), 11 - state.width()), formatting::pad("GPU", self.gpu_width));
        let mut head = format!(" {} {state} {ranks} {gpus} ", formatting::pad(lang.tr("HOST"), self.name_width));
        let mut add =
            |heads: [(&str, usize); 5]| heads.iter().for_each(|(name, width)| head += &(formatting::pad_left(name, *width) + " "));
        if self.show_gpu_totals {
            add([(lang.tr("AVG"), 4), (lang.tr("MEM"), 4), (lang.tr("MAXT"), 4), (lang.tr("POWER"), 7), (lang.tr("QUIET"), 5)]);
        }
        if self.show_machine {
            add([("CPU", 4), (lang.tr("RAM"), 4), (lang.tr("NET/s"), 9), (lang.tr("SLOW"), 4), (lang.tr("AGE"), 5)]);
        }
        if self.history_width > 0 {
            head += &formatting::pad(lang.tr("HISTORY"), self.history_width + 1);
        }
        if self.reason_width > 0 {
            head += lang.tr("STATE");
        }
        Line::styled(head, model.theme.header())
    }

    fn row_line(&self, model: &Model, row: &HostTableRow, ranks: &RanksByGpu<'_>) -> Line<'static> {
        let style = model.theme.status_style(row.status);
        let tag = host_count_suffix(model, &row.hosts);
        let name = style::truncate_text(&row.label, self.name_width.saturating_sub(tag.width())) + &tag;
        let counts = host_status::ranks_text(&row.ranks, row.status);
        let mut spans = vec![
            Span::raw(format!(" {} ", formatting::pad(&name, self.name_width))),
            Span::styled(model.theme.symbol(row.status), style),
            Span::raw(format!("  {} ", formatting::pad(&counts, 9))),
        ];
        spans.extend(self.gpu_glyphs(model, row, ranks));
        let is_old = matches!(row.hosts[..], [at] if figure_age::has_old_figures(model, at));
        let plain = if is_old { model.theme.dim() } else { Style::new() };
        if self.show_gpu_totals {
            spans.push(Span::styled(host_totals::gpu_totals_text(model, row_hosts(model, row), row.last_output_at), plain));
        }
        if self.show_machine {
            spans.push(Span::styled(host_totals::machine_text(model, row_hosts(model, row)), plain));
        }
        if self.history_width > 0 {
            let means = host_status::mean_gpu_history(row_hosts(model, row), self.history_width * 2);
            let values: Vec<Option<f32>> = means.into_iter().map(|[utilization, _]| utilization).collect();
            let drawn = graph::render_graph(&values, self.history_width, 1, model.theme.graph_style).pop().unwrap_or_default();
            let look = if is_old { plain } else { model.theme.status_style(DisplayStatus::Ok) };
            spans.push(Span::styled(drawn + " ", look));
        }
        if self.reason_width > 0 {
            let [at] = row.hosts[..] else {
                spans.push(Span::raw(style::truncate_text(&row.reason, self.reason_width)));
                return Line::from(spans);
            };
            let standing = model.host_statuses.get(at as usize);
            let low = standing.and_then(|host| host.low_gpus.as_ref()).filter(|_| row.status < DisplayStatus::Warn);
            let age = model.state.hosts.get(at as usize).filter(|host| host.gpus_at > 0 && figure_age::has_old_figures(model, at));
            let reason = low.map_or_else(|| row.reason.to_string(), |low| model.lang.message(&low.text()).into_owned());
            let text = match age.map(|host| formatting::format_age(host.gpus_at, model.now)) {
                None => reason,
                Some(age) => {
                    let age = model.lang.tr_fill("values {} old", &[&age]);
                    // The age is whole or not there: the GPUs' signs say as much.
                    match self.reason_width {
                        room if room >= reason.width() + age.width() + 2 => format!("{reason}  {age}"),
                        room if room >= age.width() + 2 + MAX_REASON_WIDTH / 2 => format!("{age}  {reason}"),
                        _ => reason,
                    }
                }
            };
            spans.push(Span::raw(style::truncate_text(&text, self.reason_width)));
        }
        Line::from(spans)
    }

    fn gpu_glyphs(&self, model: &Model, row: &HostTableRow, ranks: &RanksByGpu<'_>) -> Vec<Span<'static>> {
        let [at] = row.hosts[..] else { return vec![Span::raw(" ".repeat(self.gpu_width + 1))] };
        let Some(host) = model.state.hosts.get(at as usize) else { return Vec::new() };
        let (lost, old) = (figure_age::has_lost_figures(model, host), figure_age::has_old_figures(model, at));
        let sign = |gpu: &GpuSample| {
            let rank = ranks.of_gpu(at, gpu.index);
            let warns = gpu.memory_errors().is_none() && gpu_status(model, (at, host), gpu, rank, old || lost) == DisplayStatus::Warn;
            let (glyph, status) = match (rank.is_some_and(RankState::failed_by_itself), warns) {
                (true, _) => (host_status::failed_rank_glyph(model.theme), DisplayStatus::Error),
                (false, true) => (model.theme.symbol(DisplayStatus::Warn), DisplayStatus::Warn),
                (false, false) => host_status::gpu_glyph(gpu, gpu.utilization, lost),
            };
            let style = match (status, gpu.utilization) {
                (DisplayStatus::Ok, _) if old => model.theme.dim(),
                (DisplayStatus::Ok, Some(percent)) => model.theme.heat(percent),
                _ => host_status::gpu_glyph_style(model.theme, status),
            };
            Span::styled(glyph, style)
        };
        let mut spans: Vec<Span<'static>> = host.gpus.iter().take(self.gpu_width).map(sign).collect();
        spans.push(Span::raw(" ".repeat(self.gpu_width + 1 - spans.len())));
        spans
    }
}

/// What equal hosts have in common.
fn group_key(row: &HostTableRow) -> String {
    format!("{:?} {}", row.status, row.reason)
}

/// `+ gpu[00-89]` can be expanded, `- gpu[00-89]` collapsed.
fn row_label(model: &Model, list: &HostList, row: &HostTableRow, folded: bool) -> String {
    let names = style::format_hosts(&model.state, &model.sanitizer, &row.hosts);
    let mark = match (folded, row.hosts.len() > 1, row.is_member) {
        (false, ..) => "",
        (_, true, _) if list.expanded.contains(&group_key(row)) => "- ",
        (_, true, _) => "+ ",
        (_, _, true) => "    ",
        _ => "  ",
    };
    format!("{mark}{names}")
}

/// Number of hosts in a row.
fn host_count_suffix(model: &Model, hosts: &[u32]) -> String {
    if hosts.len() > 1 { format!("  {}", model.count(hosts.len(), "host")) } else { String::new() }
}

fn row_hosts<'a>(model: &'a Model, row: &'a HostTableRow) -> impl Iterator<Item = &'a HostState> + Clone {
    row.hosts.iter().filter_map(|at| model.state.hosts.get(*at as usize))
}
