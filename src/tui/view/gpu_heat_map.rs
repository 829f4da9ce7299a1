//! Up to eight hosts: a row a GPU whose cells are the metric over time, the newest at the right. A cell's height and color show the same value.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::event::GpuSample;
use crate::state::{GpuRound, HostState};
use crate::tui::model::Model;
use crate::tui::theme::{DisplayStatus, Theme};

use super::figure_age::{self, has_stale_gpus};
use super::gpu_matrix::{GpuMatrix, GpuMetric};
use super::lines::{render_lines, samples_span};
use super::{formatting, gpu_text, graph, host_status};

/// More hosts are the matrix.
const MAX_HOSTS: usize = 8;
/// The fewest and the most cells of a row.
const MIN_CELLS: usize = 16;
const MAX_CELLS: usize = 120;
/// The figures of a GPU are worth more than more cells than these.
const ENOUGH_CELLS: usize = 40;
/// The most cells of all rows: with every sample all of them move, and a frame has a bounded size.
const MAX_ALL_CELLS: usize = 1_200;
/// The width of a value behind the cells.
const VALUE_WIDTH: usize = 6;
/// The width of the other figures of a GPU and its rank.
const FIGURES_WIDTH: usize = 37;

/// Where each GPU is drawn: host, place on the host, and area.
pub(super) type HeatRows = Vec<(usize, usize, Rect)>;

/// How the GPUs stand: columns of hosts side by side, and the cells of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HeatMapShape {
    columns: usize,
    cells: usize,
    name_width: usize,
    /// Memory, temperature, power and rank have room behind the cells.
    shows_figures: bool,
}

impl HeatMapShape {
    /// The shape in which all GPUs fit, with enough history, then the figures, then more history; `None` where only the matrix does.
    pub(super) fn fit(model: &Model, area: Rect, name_width: usize) -> Option<HeatMapShape> {
        let hosts = model.state.hosts.len();
        let gpus: Vec<usize> = model.state.hosts.iter().map(|host| host.gpus.len().max(1)).collect();
        if hosts == 0 || hosts > MAX_HOSTS {
            return None;
        }
        let most_cells = MAX_CELLS.min(MAX_ALL_CELLS / gpus.iter().sum::<usize>().max(1));
        let shape = |columns: usize| {
            let rows: usize = gpus.chunks(columns).map(|row| row.iter().max().copied().unwrap_or(1)).sum();
            // Name, index, mark, value and gaps.
            let room = (usize::from(area.width) / columns).checked_sub(name_width + 6 + VALUE_WIDTH + 1)?;
            let shows_figures = room >= FIGURES_WIDTH + most_cells.min(ENOUGH_CELLS);
            let cells = most_cells.min(if shows_figures { room - FIGURES_WIDTH } else { room });
            (rows <= usize::from(area.height) && cells >= MIN_CELLS).then_some(HeatMapShape { columns, cells, name_width, shows_figures })
        };
        (1..=hosts).filter_map(shape).max_by_key(|shape| (shape.cells.min(ENOUGH_CELLS), shape.shows_figures, shape.cells, shape.columns))
    }

    /// Draws the rows. Gives where each GPU was drawn, and the row below the last one.
    pub(super) fn draw(&self, frame: &mut Frame<'_>, area: Rect, matrix: &GpuMatrix<'_>) -> (HeatRows, u16) {
        let model = matrix.model;
        let width = area.width / u16::try_from(self.columns).unwrap_or(1);
        let mut places = HeatRows::new();
        let mut y = area.y;
        for (row, hosts) in model.state.hosts.chunks(self.columns).enumerate() {
            let height = hosts.iter().map(|host| host.gpus.len().max(1)).max().unwrap_or(1);
            for (column, host) in hosts.iter().enumerate() {
                let x = area.x + u16::try_from(column).unwrap_or(0) * width;
                let at = row * self.columns + column;
                let lines = (0..host.gpus.len().max(1)).map(|place| self.gpu_line(matrix, (at, host), place)).collect();
                let rows = u16::try_from(host.gpus.len().max(1)).unwrap_or(u16::MAX);
                render_lines(frame, Rect { x, y, width, height: rows.min(area.bottom().saturating_sub(y)) }, lines);
                let gpus = (0_u16..).zip(0..host.gpus.len());
                places.extend(gpus.map(|(down, place)| (at, place, Rect { x, y: y.saturating_add(down), width, height: 1 })));
            }
            y = y.saturating_add(u16::try_from(height).unwrap_or(u16::MAX));
        }
        (places, y.min(area.bottom()))
    }

    /// What the cells mean and which time they cover; where that has no room, without the time.
    pub(super) fn legends(&self, model: &Model) -> [Vec<Span<'static>>; 2] {
        let time = match samples_span(model, self.cells) {
            span if span.is_empty() => String::new(),
            span => format!("{span}{}", model.lang.comma()),
        };
        [time.as_str(), ""].map(|time| legend_spans(model, time))
    }

    fn gpu_line(&self, matrix: &GpuMatrix<'_>, (at, host): (usize, &HostState), place: usize) -> Line<'static> {
        let (model, theme) = (matrix.model, matrix.model.theme);
        let name = if place == 0 { model.sanitize(&host.name) } else { String::new() };
        let mut spans = vec![Span::raw(format!(" {} ", formatting::pad(&name, self.name_width)))];
        let Some(gpu) = host.gpus.get(place) else {
            spans.push(Span::styled(model.lang.tr("no GPU data yet"), theme.dim()));
            return Line::from(spans);
        };
        let is_match = matrix.is_match(at, place);
        let under = at == matrix.selection.host && place == matrix.selection.gpu;
        let index = format!("{:>3} ", gpu.index);
        spans.push(if under { Span::styled(index, theme.selected()) } else { Span::styled(index, theme.dim()) });
        let metric = matrix.selection.metric;
        let values: Vec<Option<f32>> = host.gpu_rounds(gpu.index).map(|point| metric.of_point(point?)).collect();
        let shown = &values[values.len().saturating_sub(self.cells)..];
        spans.push(Span::raw(" ".repeat(self.cells - shown.len())));
        let is_old = has_stale_gpus(model, host) || figure_age::is_past(model, host);
        spans.extend(heat_cells(matrix, shown, is_match && !is_old));
        // The current value as in the matrix, with its mark of a fault or of old values.
        let cell = matrix.plain_cell(at, place, VALUE_WIDTH - 1);
        let is_number = cell.content.ends_with(|c: char| c.is_ascii_digit());
        spans.push(cell);
        spans.push(Span::styled(if is_number { unit(metric, theme) } else { " " }, theme.dim()));
        if self.shows_figures {
            let is_old = !is_match || figure_age::has_old_figures(model, u32::try_from(at).unwrap_or(u32::MAX));
            spans.push(Span::styled(figures_text(gpu, theme), if is_old { theme.dim() } else { Style::new() }));
            if let Some(rank) = matrix.rank_of_gpu(at, gpu.index) {
                let (status, _) = host_status::rank_status(&model.state, rank);
                spans.push(Span::raw(format!("  {:>6} ", format!("r{}", rank.rank))));
                spans.push(theme.symbol_span(status));
            }
        }
        Line::from(spans)
    }
}

/// ` 0 ▁▂▃▄▅▆▇█ 100, over 46 s, the newest at the right  ? old`.
fn legend_spans(model: &Model, time: &str) -> Vec<Span<'static>> {
    let theme = model.theme;
    let mut spans = vec![Span::styled(" 0 ", theme.dim())];
    for step in 0..8_u8 {
        let value = f32::from(step) * 100.0 / 7.0;
        spans.push(Span::styled(graph::sparkline(&[Some(value)], 1, theme.uses_ascii_graphs()), theme.heat(value)));
    }
    spans.push(Span::styled(model.lang.tr_fill(" 100, {}the newest at the right  ", &[time]), theme.dim()));
    spans.push(Span::styled(theme.symbol(DisplayStatus::Lost), theme.dim()));
    spans.push(Span::styled(model.lang.tr(" old  "), theme.dim()));
    spans
}

/// `   57/80G   62°   613/700W`.
fn figures_text(gpu: &GpuSample, theme: Theme) -> String {
    let degrees = formatting::whole(gpu.temperature, theme.degree());
    format!("{:>10}{degrees:>6}{:>11}", gpu_text::memory_text(gpu), gpu_text::power_text(gpu, true))
}

/// The cells of a history whose rows all are below each other: as many as a frame of bounded size has for so many rows; 0: too few to be read.
pub(super) fn cells_of_rows(room: usize, rows: usize) -> usize {
    let cells = room.min(MAX_CELLS).min(MAX_ALL_CELLS / rows.max(1));
    if cells < MIN_CELLS { 0 } else { cells }
}

/// The mean of a host's GPUs over time, in so many cells.
pub(super) fn mean_cells(matrix: &GpuMatrix<'_>, (at, host): (usize, &HostState), cells: usize) -> Vec<Span<'static>> {
    let metric = matrix.selection.metric;
    let mean = |round: &GpuRound| formatting::mean(round.iter().filter_map(|point| metric.of_point(point)));
    let rounds = host.gpu_history.len();
    let values: Vec<Option<f32>> = host.gpu_history.iter().skip(rounds.saturating_sub(cells)).map(|round| mean(round)).collect();
    let is_old = figure_age::has_old_figures(matrix.model, u32::try_from(at).unwrap_or(u32::MAX));
    let is_match = (0..host.gpus.len()).any(|place| matrix.is_match(at, place));
    std::iter::once(Span::raw(" ".repeat(cells - values.len()))).chain(heat_cells(matrix, &values, is_match && !is_old)).collect()
}

/// Neighbouring cells of one color are one span.
fn heat_cells(matrix: &GpuMatrix<'_>, values: &[Option<f32>], is_bright: bool) -> Vec<Span<'static>> {
    let theme = matrix.model.theme;
    let mut spans: Vec<Span<'static>> = Vec::new();
    for value in values {
        let text = graph::sparkline(&[*value], 1, theme.uses_ascii_graphs());
        let style = match value {
            Some(percent) if is_bright => theme.heat(*percent),
            _ => theme.dim(),
        };
        match spans.last_mut().filter(|last| last.style == style) {
            Some(last) => last.content.to_mut().push_str(&text),
            None => spans.push(Span::styled(text, style)),
        }
    }
    spans
}

fn unit(metric: GpuMetric, theme: Theme) -> &'static str {
    match metric {
        GpuMetric::Utilization | GpuMetric::Power | GpuMetric::Memory => "%",
        GpuMetric::Temperature => theme.degree(),
    }
}
