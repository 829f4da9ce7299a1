//! Processors, memory, disk and networks of a host, with their history where there is room.

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

use crate::event::NetSample;
use crate::report::style;
use crate::state::HostState;
use crate::state::host_trace::HostTracePoint;
use crate::text::translation::Lang;
use crate::tui::model::Model;
use crate::tui::theme::{DisplayStatus, GraphStyle};

use super::formatting::{self, format_part_of, format_rate};
use super::graph;
use super::lines::{age_text, history_span, join_parts};
use super::section::Section;

/// From this width on two values stand side by side.
const PAIR_WIDTH: usize = 116;
/// The width of a value beside its history, and the most of the history.
const TEXT_WIDTH: usize = 44;
const MAX_HISTORY_WIDTH: usize = 60;
/// The disk is reported less often than the rest; an older report says its age, milliseconds.
const DISK_AGE_MS: i64 = 15_000;
/// The most rows of networks.
const MAX_NETWORK_ROWS: usize = 3;

/// `  machine values 3s ago`; empty where there are none.
pub(super) fn age_of_values(model: &Model, host: &HostState) -> String {
    match host.host_metrics_at {
        0 => String::new(),
        at => model.lang.tr_fill("  machine values {}", &[&age_text(model, at)]),
    }
}

/// The values as words on one line, then a line of networks; none where nothing is known.
pub(super) fn short_lines(model: &Model, host: &HostState, width: usize) -> Vec<Line<'static>> {
    let (parts, dim) = (parts(model, host), value_style(model, host));
    let mut lines = Vec::new();
    if !parts.is_empty() {
        let texts: Vec<String> = parts.iter().filter(|part| !part.is_traffic).map(|part| part.text.clone()).collect();
        lines.push(Line::styled(style::truncate_text(&format!(" {}", texts.join("  ")), width), dim));
    }
    lines.extend(network_lines(model, host, width, 1));
    lines
}

/// A row per value, or two side by side, each with its history; then the networks.
pub(super) fn section(model: &Model, host: &HostState, width: usize) -> Section {
    let parts = parts(model, host);
    let (columns, dim) = (if width >= PAIR_WIDTH { 2 } else { 1 }, value_style(model, host));
    let cell_width = width / columns;
    let cell = |part: &MachinePart| {
        let values = part.history(host);
        let room = cell_width.saturating_sub(TEXT_WIDTH + 2).min(MAX_HISTORY_WIDTH);
        // All of it, where it is longer than its place: the title says how long that is.
        let values = if values.len() > room { graph::stretch(&values, room, GraphStyle::Block) } else { values };
        let drawn = graph::sparkline(&values, room, model.theme.uses_ascii_graphs());
        let look = if dim == Style::new() { model.theme.status_style(DisplayStatus::Ok) } else { dim };
        let used = TEXT_WIDTH + 1 + drawn.width();
        [
            Span::styled(format!(" {}", formatting::pad(&part.text, TEXT_WIDTH)), dim),
            Span::styled(drawn, look),
            Span::raw(" ".repeat(cell_width.saturating_sub(used))),
        ]
    };
    let mut lines: Vec<Line<'static>> = parts.chunks(columns).map(|row| Line::from_iter(row.iter().flat_map(cell))).collect();
    lines.extend(network_lines(model, host, width, MAX_NETWORK_ROWS));
    let age = if host.host_metrics_at > 0 { age_text(model, host.host_metrics_at) } else { String::new() };
    let over = history_span(model, host.machine_history.iter().map(|point| point.at));
    Section { title: model.lang.tr("machine").to_owned(), state: join_parts([over, age]), lines }
}

/// A value of the machine and where its history is.
struct MachinePart {
    text: String,
    get: fn(&HostTracePoint) -> Option<f32>,
    /// Its axis ends at its highest value: it is no share.
    is_traffic: bool,
}

impl MachinePart {
    fn share(text: String, get: fn(&HostTracePoint) -> Option<f32>) -> MachinePart {
        MachinePart { text, get, is_traffic: false }
    }

    /// In percent; empty where there are no two looks, since one value has no course.
    fn history(&self, host: &HostState) -> Vec<Option<f32>> {
        let values: Vec<Option<f32>> = host.machine_history.iter().map(self.get).collect();
        if values.iter().flatten().count() < 2 {
            return Vec::new();
        }
        let most = if self.is_traffic { values.iter().flatten().copied().fold(f32::MIN_POSITIVE, f32::max) } else { 100.0 };
        values.into_iter().map(|value| value.map(|value| value / most * 100.0)).collect()
    }
}

fn parts(model: &Model, host: &HostState) -> Vec<MachinePart> {
    let (metrics, lang) = (&host.host_metrics, model.lang);
    let mut parts = Vec::new();
    if host.host_metrics_at > 0 {
        let cpu = metrics.cpu_percent.map(|cpu| format!("{}{cpu:.0}%", lang.tr("cpu ")));
        let load = metrics.load_average.map(|load| format!("{}{load:.1}", lang.tr("load ")));
        let words: Vec<String> = cpu.into_iter().chain(load).collect();
        if !words.is_empty() {
            parts.push(MachinePart::share(words.join("  "), |point| point.cpu));
        }
        if metrics.memory_total > 0 {
            let used = metrics.memory_total.saturating_sub(metrics.memory_available);
            let text = lang.tr_fill("mem {}", &[&format_part_of(used, metrics.memory_total, lang)]);
            parts.push(MachinePart::share(text, |point| point.memory));
        }
    }
    if let Some(disk) = host.disk {
        let is_recent = host.host_metrics_at > 0 && disk.at + DISK_AGE_MS > model.now;
        let age = if is_recent { String::new() } else { format!(" ({})", age_text(model, disk.at)) };
        let text = lang.tr_fill("disk {} free{}", &[&format_part_of(disk.free, disk.total, lang), &age]);
        parts.push(MachinePart::share(text, |point| point.disk_free));
    }
    if let Some(rates) = metrics.main_traffic().filter(|_| host.host_metrics_at > 0) {
        let [received, sent] = rates.map(format_rate);
        let text = lang.tr_fill("net in {}/s out {}/s", &[&received, &sent]);
        parts.push(MachinePart { text, get: |point| point.network, is_traffic: true });
    }
    parts
}

fn value_style(model: &Model, host: &HostState) -> Style {
    if model.is_stale(host.host_metrics_at) { model.theme.dim() } else { Style::new() }
}

/// Each network with its rates, several in a row.
fn network_lines(model: &Model, host: &HostState, width: usize, most: usize) -> Vec<Line<'static>> {
    let dim = value_style(model, host);
    let mut rows: Vec<String> = Vec::new();
    for net in sorted_networks(&host.host_metrics.networks) {
        let one = network_text(model, net, model.lang);
        match rows.last_mut().filter(|row| row.width() + one.width() <= width) {
            Some(row) => row.push_str(&one),
            None => rows.push(one),
        }
    }
    rows.iter().take(most).map(|row| Line::styled(style::truncate_text(row, width), dim)).collect()
}

/// InfiniBand first, then by traffic.
fn sorted_networks(networks: &[NetSample]) -> Vec<&NetSample> {
    let mut nets: Vec<&NetSample> = networks.iter().collect();
    let traffic = |net: &NetSample| net.received_bytes_per_sec + net.sent_bytes_per_sec;
    nets.sort_by(|a, b| {
        let by_kind = a.infiniband_port_state.is_empty().cmp(&b.infiniband_port_state.is_empty());
        by_kind.then(traffic(b).total_cmp(&traffic(a)))
    });
    nets
}

fn network_text(model: &Model, net: &NetSample, lang: Lang) -> String {
    let name = model.sanitize(&[net.name.as_str(), net.infiniband_port_state.as_str()].join(" "));
    let rates = [net.received_bytes_per_sec, net.sent_bytes_per_sec].map(format_rate);
    lang.tr_fill(" {}  in {}/s out {}/s ", &[name.trim_end(), &rates[0], &rates[1]])
}
