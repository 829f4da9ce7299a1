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

use crate::event::UnixMillis;
use crate::report::style;
use crate::state::HostState;
use crate::tui::model::Model;
use crate::tui::theme::DisplayStatus;

use super::host_list::HostList;
use super::host_status::{self, HostRankCounts};
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

struct HostTableRow {
    hosts: Vec<u32>,
    /// The hosts' names, folded, set when it is drawn.
    label: String,
    status: DisplayStatus,
    reason: Cow<'static, str>,
    ranks: HostRankCounts,
    last_output_at: UnixMillis,
    /// A host of the expanded row above.
    is_member: bool,
}

pub(super) struct HostTable {
    rows: Vec<HostTableRow>,
    groups: BTreeMap<u32, (Arc<str>, u32)>,
}

impl HostTable {
    /// One row per host, or folded rows if space is short.
    pub(super) fn new(model: &Model, list: &HostList, room: usize) -> HostTable {
        let is_low = |row: &HostTableRow| model.host_statuses.get(row.hosts[0] as usize).is_some_and(|host| host.low_gpus.is_some());
        let all = host_rows(model, list);
        if all.len() <= room || list.selection.is_ordered_by_value() {
            return HostTable { rows: all, groups: BTreeMap::new() };
        }
        let mut rows: Vec<HostTableRow> = Vec::new();
        let mut members: BTreeMap<u32, Vec<HostTableRow>> = BTreeMap::new();
        for row in all {
            let alike = |known: &HostTableRow| {
                known.status == row.status
                    && known.reason == row.reason
                    && row.status < DisplayStatus::Warn
                    && !is_low(known)
                    && !is_low(&row)
            };
            match rows.iter_mut().find(|known| alike(known)) {
                Some(known) => {
                    known.hosts.extend(&row.hosts);
                    known.ranks.total += row.ranks.total;
                    known.ranks.running += row.ranks.running;
                    known.ranks.ok += row.ranks.ok;
                    known.last_output_at = known.last_output_at.max(row.last_output_at);
                    members.entry(known.hosts[0]).or_default().push(HostTableRow { is_member: true, ..row });
                }
                None => rows.push(row),
            }
        }
        let mut table = HostTable { rows: Vec::new(), groups: BTreeMap::new() };
        for row in rows {
            let Some(others) = members.remove(&row.hosts[0]) else {
                table.rows.push(row);
                continue;
            };
            let (first, group) = (row.hosts[0], Arc::from(group_key(&row)));
            table.groups.extend(row.hosts.iter().map(|host| (*host, (Arc::clone(&group), first))));
            let open = list.expanded.contains(&*group);
            table.rows.push(row);
            if open {
                let standing = model.host_statuses.get(first as usize).cloned().unwrap_or_default();
                let host_status::HostStatus { ranks, status, reason: why, last_output_at, .. } = standing;
                table.rows.push(HostTableRow {
                    hosts: vec![first],
                    label: String::new(),
                    status,
                    reason: why,
                    ranks,
                    last_output_at,
                    is_member: true,
                });
                table.rows.extend(others);
            }
        }
        table
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
        let mut lines = vec![columns.header_line(model)];
        for (n, row) in self.rows.iter().enumerate().skip(top).take(room) {
            let line = columns.row_line(model, row);
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

    fn row_line(&self, model: &Model, row: &HostTableRow) -> Line<'static> {
        let style = model.theme.status_style(row.status);
        let tag = host_count_suffix(model, &row.hosts);
        let name = style::truncate_text(&row.label, self.name_width.saturating_sub(tag.width())) + &tag;
        let ranks = host_status::ranks_text(&row.ranks, row.status);
        let mut spans = vec![
            Span::raw(format!(" {} ", formatting::pad(&name, self.name_width))),
            Span::styled(model.theme.symbol(row.status), style),
            Span::raw(format!("  {} ", formatting::pad(&ranks, 9))),
        ];
        spans.extend(self.gpu_glyphs(model, row));
        let is_old = matches!(row.hosts[..], [at] if has_old_figures(model, at));
        let plain = if is_old { model.theme.dim() } else { Style::new() };
        if self.show_gpu_totals {
            spans.push(Span::styled(host_totals::gpu_totals_text(model, row_hosts(model, row), row.last_output_at), plain));
        }
        if self.show_machine {
            spans.push(Span::styled(host_totals::machine_text(model, row_hosts(model, row)), plain));
        }
        if self.history_width > 0 {
            let values = host_status::mean_gpu_history(row_hosts(model, row), |round| round.utilization, self.history_width * 2);
            let drawn = graph::render_graph(&values, self.history_width, 1, model.theme.effective_graph_style()).pop().unwrap_or_default();
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
            let age = model.state.hosts.get(at as usize).filter(|host| host.gpus_at > 0 && has_old_figures(model, at));
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

    fn gpu_glyphs(&self, model: &Model, row: &HostTableRow) -> Vec<Span<'static>> {
        let [host] = row.hosts[..] else { return vec![Span::raw(" ".repeat(self.gpu_width + 1))] };
        let Some(host) = model.state.hosts.get(host as usize) else { return Vec::new() };
        let (old, dead) = (figure_age::has_lost_figures(model, host), has_old_figures(model, row.hosts[0]));
        let standing = model.host_statuses.get(row.hosts[0] as usize);
        let low = standing.and_then(|standing| standing.low_gpus.as_ref()).filter(|low| low.is_warning);
        let failed = host_status::gpus_of_failed_ranks(&model.state, row.hosts[0], &row.ranks);
        let mut spans: Vec<Span<'static>> = host
            .gpus
            .iter()
            .take(self.gpu_width)
            .map(|gpu| {
                let is_failed = failed.contains(&gpu.index);
                let is_low = low.is_some_and(|low| low.gpus.contains(&gpu.index));
                let is_slow = !old && !dead && gpu.memory_errors().is_none() && (is_low || gpu.slowdown_reason().is_some());
                let (glyph, status) = match (is_failed, is_slow) {
                    (true, _) => (host_status::failed_rank_glyph(model.theme), DisplayStatus::Error),
                    (false, true) => (model.theme.symbol(DisplayStatus::Warn), DisplayStatus::Warn),
                    (false, false) => host_status::gpu_glyph(gpu, gpu.utilization, old),
                };
                let style = match (status, gpu.utilization) {
                    (DisplayStatus::Ok, _) if dead => model.theme.dim(),
                    (DisplayStatus::Ok, Some(percent)) => model.theme.heat(percent),
                    _ => host_status::gpu_glyph_style(model.theme, status),
                };
                Span::styled(glyph, style)
            })
            .collect();
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

fn has_old_figures(model: &Model, at: u32) -> bool {
    model.state.hosts.get(at as usize).is_some_and(|host| figure_age::has_old_figures(model, at as usize, host))
}
