//! The GPUs of one host: one row each, throttle reasons, and graphs of the last minutes.
//!
//! Values that the driver does not report are `-`, never zero. Axes are fixed: utilization, percent of the power limit, degrees.

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

use crate::event::GpuSample;
use crate::report::style;
use crate::state::HostState;
use crate::state::host_trace::MAX_TRACE_POINTS;
use crate::tui::model::Model;
use crate::tui::theme::DisplayStatus;

use super::gpu_matrix::GpuMetric;
use super::lines::{age_text, history_span, join_parts};
use super::section::Section;
use super::{figure_age, formatting, gpu_text, graph, host_status};

/// Maximum width of the bars.
const MAX_BARS: usize = 60;
/// From this width on utilization and memory have a bar of this width beside their number.
const MIN_BARS_WIDTH: usize = 100;
const BAR_WIDTH: usize = 10;
/// A higher graph shows no more.
const MAX_GRAPH_ROWS: usize = 6;

pub(super) fn gpu_section(model: &Model, (at, host): (u32, &HostState), width: usize) -> Section {
    let name = host.gpus.first().map_or_else(String::new, |gpu| model.sanitize(&gpu.name));
    let age = if host.gpus.is_empty() { String::new() } else { age_text(model, host.gpus_at) };
    let title = format!("{}  {name}", model.lang.tr("GPUs"));
    Section { title: title.trim_end().to_owned(), state: age, lines: gpu_rows(model, (at, host), width) }
}

fn gpu_rows(model: &Model, (at, host): (u32, &HostState), width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if let Some((error, since)) = &host.gpus_error {
        let (age, error) = (formatting::format_age(*since, model.now), model.sanitize(error));
        let text = model.lang.tr_fill(" no data from nvidia-smi for {}: {}", &[&age, &error]);
        lines.push(Line::styled(style::truncate_text(&text, width), model.theme.status_style(DisplayStatus::Warn)));
    }
    if host.gpus.is_empty() {
        lines.push(Line::styled(model.lang.tr(" no GPU data yet"), model.theme.dim()));
        return lines;
    }
    let bar = " ".repeat(bar_width(width));
    let lang = model.lang;
    let heads =
        [(lang.tr("POWER"), 10), (lang.tr("TEMP"), 7), (lang.tr("CLOCK"), 9)].map(|(head, width)| formatting::pad_left(head, width));
    let used = formatting::pad_left(lang.tr("UTIL"), 4) + " " + &bar + &formatting::pad_left(lang.tr("MEM GiB"), 12) + " " + &bar;
    let head = format!("   #  {used}{}  {}", heads.concat(), lang.tr("HISTORY"));
    lines.push(Line::styled(style::truncate_text(&head, width), model.theme.dim()));
    lines.extend(host.gpus.iter().map(|gpu| gpu_row(model, (at, host), gpu, width)));
    lines
}

/// The width of a bar beside a number; 0: no room.
fn bar_width(width: usize) -> usize {
    if width >= MIN_BARS_WIDTH { BAR_WIDTH } else { 0 }
}

fn gpu_row(model: &Model, (at, host): (u32, &HostState), gpu: &GpuSample, width: usize) -> Line<'static> {
    let is_old = figure_age::has_old_figures(model, at);
    let (glyph, status) = host_status::gpu_glyph(gpu, gpu.utilization, figure_age::has_stale_gpus(model, host));
    // The percentage says what a digit would.
    let mark = if status == DisplayStatus::Ok { " " } else { glyph };
    let util = formatting::whole(gpu.utilization, "%");
    let memory = match (gpu.memory_used, gpu.memory_total) {
        (Some(used), Some(total)) => format!("{:.1}/{:.1}", used / 1024.0, total / 1024.0),
        (Some(used), None) => format!("{:.1}", used / 1024.0),
        _ => "-".to_owned(),
    };
    let power = gpu_text::power_text(gpu, true);
    let temperature = formatting::whole(gpu.temperature, model.theme.degree());
    let clock = formatting::whole(gpu.sm_clock, "");
    let plain = if is_old { model.theme.dim() } else { Style::new() };
    let bar = |share: Option<f32>| formatting::horizontal_bar(share, bar_width(width), model.theme.ascii);
    let bar_style = if is_old { DisplayStatus::Pending } else { DisplayStatus::Ok };
    let mut spans = vec![
        Span::styled(format!(" {mark}"), host_status::gpu_glyph_style(model.theme, status)),
        Span::styled(format!(" {:>2}  {util:>4} ", gpu.index), plain),
        Span::styled(bar(gpu.utilization), model.theme.status_style(bar_style)),
        Span::styled(format!("{memory:>12} "), plain),
        Span::styled(bar(GpuMetric::Memory.value(gpu)), if is_old { model.theme.dim() } else { model.theme.secondary() }),
        Span::styled(format!("{power:>10} {temperature:>6} {clock:>8}  "), plain),
    ];
    let mut why: Vec<String> = gpu.throttle_reason_names().map(|why| model.lang.term(why).to_owned()).collect();
    why.extend(gpu.memory_errors().map(|errors| model.lang.tr_fill("{} ECC errors", &[&format!("{errors:.0}")])));
    why.extend(gpu.mig_enabled.filter(|mig| *mig).map(|_| "MIG".to_owned()));
    let rest = width.saturating_sub(formatting::spans_width(&spans));
    let why = why.join(model.lang.comma());
    let room = rest.saturating_sub(if why.is_empty() { 0 } else { why.width() + 1 }).min(MAX_BARS);
    let bars = graph::sparkline(&gpu_values(host, gpu.index, GpuMetric::Utilization), room, model.theme.uses_ascii_graphs());
    spans.push(Span::styled(bars, model.theme.status_style(bar_style)));
    if !why.is_empty() {
        spans.push(Span::styled(style::truncate_text(&format!(" {why}"), rest), model.theme.status_style(DisplayStatus::Warn)));
    }
    Line::from(spans)
}

/// One value per round of samples; none where the GPU was missing.
fn gpu_values(host: &HostState, gpu: u32, metric: GpuMetric) -> Vec<Option<f32>> {
    host.gpu_rounds(gpu).map(|point| metric.of_point(point?)).collect()
}

/// Mean utilization and power of the host's GPUs, side by side, each `rows` high; no lines where there are no two samples, since one value has no course.
pub(super) fn mean_graphs(model: &Model, host: &HostState, width: usize, rows: usize) -> Section {
    let mut section = Section { title: model.lang.tr("GPU history").to_owned(), state: gpu_history_span(model, host), lines: Vec::new() };
    if host.gpu_history.len() > 1 {
        let half = width.saturating_sub(3) / 2;
        let means = host_status::mean_gpu_history(std::iter::once(host), MAX_TRACE_POINTS);
        let [utilization, power] = [0, 1].map(|at| means.iter().map(|both| both[at]).collect());
        let names = [model.lang.tr("utilization, mean"), model.lang.tr("power, % of limit, mean")];
        section.lines = graph_pair(model, (names[0], utilization), (names[1], power), half, rows);
    }
    section
}

/// Graphs of utilization and power per GPU, as high as these rows allow.
pub(super) fn gpu_graphs(model: &Model, host: &HostState, width: usize, rows: usize) -> Section {
    let state = join_parts([gpu_history_span(model, host), model.lang.tr("v: nvidia-smi output").to_owned()]);
    let mut section = Section { title: model.lang.tr("GPU history").to_owned(), state, lines: Vec::new() };
    let mut gpus = host.traced_gpus();
    // One value has no course.
    gpus.retain(|gpu| host.gpu_trace(*gpu).nth(1).is_some());
    if gpus.is_empty() {
        section.lines.push(Line::styled(model.lang.tr(" no history yet"), model.theme.dim()));
    }
    let half = width.saturating_sub(3) / 2;
    // Each has a line with its name.
    let height = (rows / gpus.len().max(1)).saturating_sub(1).clamp(1, MAX_GRAPH_ROWS);
    for gpu in gpus {
        let names = [model.lang.tr("utilization"), model.lang.tr("power, % of limit")].map(|name| format!("g{gpu} {name}"));
        let utilization = (names[0].as_str(), gpu_values(host, gpu, GpuMetric::Utilization));
        section.lines.extend(graph_pair(model, utilization, (names[1].as_str(), gpu_values(host, gpu, GpuMetric::Power)), half, height));
    }
    section
}

fn gpu_history_span(model: &Model, host: &HostState) -> String {
    history_span(model, host.gpu_history.iter().filter_map(|round| round.first()).map(|point| point.at))
}

/// Two graphs with their names and last values above them; each fills its half.
fn graph_pair(
    model: &Model,
    (left, left_values): (&str, Vec<Option<f32>>),
    (right, right_values): (&str, Vec<Option<f32>>),
    half: usize,
    height: usize,
) -> Vec<Line<'static>> {
    let last = |values: &[Option<f32>]| formatting::whole(values.last().copied().flatten(), "%");
    let head = |name: &str, values: &[Option<f32>]| formatting::pad(&format!(" {name} {}", last(values)), half + 1);
    let names = head(left, &left_values) + &head(right, &right_values);
    let mut lines = vec![Line::styled(names.trim_end().to_owned(), model.theme.dim())];
    let shape = model.theme.graph_style;
    let drawn = |values: &[Option<f32>]| graph::render_graph(&graph::stretch(values, half, shape), half, height, shape);
    for (left, right) in drawn(&left_values).into_iter().zip(drawn(&right_values)) {
        let style = model.theme.status_style(DisplayStatus::Ok);
        lines.push(Line::from(vec![Span::raw(" "), Span::styled(left, style), Span::raw(" "), Span::styled(right, style)]));
    }
    lines
}
