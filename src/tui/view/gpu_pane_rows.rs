//! What an nvidia-smi pane holds: a row a GPU, or three rows with a vertical bar a GPU.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::event::GpuSample;
use crate::report::style;
use crate::state::{HostState, RankState};
use crate::tui::model::Model;
use crate::tui::theme::DisplayStatus;

use super::formatting::{bar_spans, whole};
use super::gpu_matrix::GpuMetric;
use super::gpu_ranks::RanksByGpu;
use super::gpu_status::gpu_status;
use super::gpu_text::{memory_text, power_text};
use super::{figure_age, formatting, graph, host_status};

/// More GPUs a host are shown by the GPUs screen alone.
pub(super) const MAX_ROWS_PER_PANE: usize = 16;

/// How wide the parts of a GPU's row are that share what is left; 0: left out.
struct RowLayout {
    utilization_bar: usize,
    memory_bar: usize,
    history: usize,
    power: usize,
    shows_limit: bool,
}

impl RowLayout {
    fn new(width: usize, gpus: &[GpuSample]) -> RowLayout {
        // Index, percent, memory, temperature, rank and its state.
        let fixed = 31;
        let shows_limit = width >= 84;
        let power = gpus.iter().map(|gpu| power_text(gpu, shows_limit).len()).max().unwrap_or(0).max(if shows_limit { 9 } else { 5 });
        let spare = width.saturating_sub(fixed + power);
        let memory_bar = (spare * 3 / 10).min(16);
        let utilization_bar = (spare * 4 / 10).min(24);
        let history = spare.saturating_sub(memory_bar + utilization_bar + 1);
        match history < 4 {
            true => RowLayout { utilization_bar: spare - memory_bar, memory_bar, history: 0, power, shows_limit },
            false => RowLayout { utilization_bar, memory_bar, history: history.min(60), power, shows_limit },
        }
    }
}

/// The rows of one host, one a GPU.
struct FullRows<'a> {
    model: &'a Model,
    /// Index of the host.
    at: u32,
    host: &'a HostState,
    layout: RowLayout,
    /// The values are too old to be believed.
    stale: bool,
}

/// A row a GPU.
pub(super) fn full_rows(model: &Model, at: u32, host: &HostState, ranks: &RanksByGpu<'_>, width: usize) -> Vec<Line<'static>> {
    let stale = figure_age::has_old_figures(model, at);
    let rows = FullRows { model, at, host, layout: RowLayout::new(width, &host.gpus), stale };
    host.gpus.iter().take(MAX_ROWS_PER_PANE).map(|gpu| rows.row(gpu, ranks.of_gpu(at, gpu.index))).collect()
}

impl FullRows<'_> {
    fn row(&self, gpu: &GpuSample, rank: Option<&RankState>) -> Line<'static> {
        let (model, theme, stale) = (self.model, self.model.theme, self.stale);
        let plain = if stale { theme.dim() } else { Style::new() };
        let status = gpu_status(model, (self.at, self.host), gpu, rank, stale);
        let mark = match status {
            DisplayStatus::Warn if gpu.memory_errors().is_some() => "!",
            DisplayStatus::Warn => theme.symbol(status),
            _ => " ",
        };
        let calm = if status == DisplayStatus::Ok { plain } else { theme.status_style(status) };
        let power = power_text(gpu, self.layout.shows_limit);
        let mut spans = vec![
            Span::styled(format!("{:>2}", gpu.index), theme.dim()),
            Span::styled(mark, theme.status_style(status)),
            Span::styled(format!("{:>4} ", whole(gpu.utilization, "%")), calm),
        ];
        spans.extend(bar_spans(gpu.utilization, self.layout.utilization_bar, theme, theme.status_style(status)));
        spans.push(Span::styled(format!("{:>8} ", memory_text(gpu)), plain));
        let memory_style = if stale { theme.dim() } else { theme.secondary() };
        spans.extend(bar_spans(GpuMetric::Memory.value(gpu), self.layout.memory_bar, theme, memory_style));
        spans.extend([
            Span::styled(format!(" {:>4} ", whole(gpu.temperature, theme.degree())), plain),
            Span::styled(formatting::pad_left(&power, self.layout.power) + " ", plain),
        ]);
        if self.layout.history > 0 {
            let values: Vec<Option<f32>> = self.host.gpu_trace(gpu.index).map(|point| point.utilization).collect();
            let drawn = graph::render_graph(&values, self.layout.history, 1, theme.graph_style).pop().unwrap_or_default();
            spans.push(Span::styled(drawn + " ", theme.status_style(if stale { DisplayStatus::Pending } else { status })));
        }
        if let Some(rank) = rank {
            let (rank_status, _) = host_status::rank_status(&model.state, rank);
            spans.push(Span::raw(format!("{:<5} ", format!("r{}", rank.rank))));
            spans.push(theme.symbol_span(rank_status));
        }
        Line::from(spans)
    }
}

/// Three rows: utilization and memory as a vertical bar a GPU, then what is wrong, or the hottest GPU and the age of the last line.
pub(super) fn medium_rows(model: &Model, at: u32, host: &HostState, ranks: &RanksByGpu<'_>, width: usize) -> Vec<Line<'static>> {
    let theme = model.theme;
    let stale = figure_age::has_old_figures(model, at);
    let plain = if stale { theme.dim() } else { Style::new() };
    let totals = host_status::sum_gpus(host.gpus.iter());
    let statuses: Vec<DisplayStatus> =
        host.gpus.iter().map(|gpu| gpu_status(model, (at, host), gpu, ranks.of_gpu(at, gpu.index), stale)).collect();
    let worst = statuses.iter().copied().max().unwrap_or_default();
    let memory_style = if stale { theme.dim() } else { theme.secondary() };
    let utilization = gpu_bars(model, host, width, |gpu| gpu.utilization, |place| theme.status_style(statuses[place]));
    let memory = gpu_bars(model, host, width, |gpu| GpuMetric::Memory.value(gpu), |_| memory_style);
    let room = width.saturating_sub(formatting::spans_width(&memory) + 7);
    let memory_sum = memory_text_of_all(host).filter(|text| text.len() <= room).unwrap_or_else(|| whole(totals.memory, "%"));
    let last_output_at = model.host_statuses.get(at as usize).map_or(0, |standing| standing.last_output_at);
    let hottest = whole(totals.hottest, theme.degree());
    let last = model.lang.tr_fill("line {} ago", &[&formatting::format_age(last_output_at, model.now)]);
    let lang = model.lang;
    let mut rows = [lang.tr(" util "), lang.tr(" mem  ")].map(|name| vec![Span::styled(name, theme.dim())]);
    rows[0].extend(utilization);
    rows[0].push(Span::styled(format!(" {}", whole(totals.utilization, "%")), plain));
    rows[0].push(Span::styled(if worst >= DisplayStatus::Warn { theme.symbol(worst) } else { "" }, theme.status_style(worst)));
    rows[1].extend(memory);
    rows[1].push(Span::styled(format!(" {memory_sum}"), plain));
    let third = match model.host_statuses.get(at as usize).filter(|standing| standing.status >= DisplayStatus::Warn) {
        Some(standing) => Line::styled(
            format!(" {}", style::truncate_text(&standing.reason, width.saturating_sub(2))),
            theme.status_text_style(standing.status),
        ),
        None => Line::from(vec![
            Span::styled(lang.tr(" temp "), theme.dim()),
            Span::styled(lang.tr_fill("{} max  {}", &[&hottest, &last]), plain),
        ]),
    };
    rows.into_iter().map(Line::from).chain([third]).collect()
}

/// A vertical bar a GPU; apart from each other where there is room, since bars that touch look like one that lies.
fn gpu_bars(
    model: &Model,
    host: &HostState,
    width: usize,
    share: impl Fn(&GpuSample) -> Option<f32>,
    style: impl Fn(usize) -> Style,
) -> Vec<Span<'static>> {
    let gap = if host.gpus.len() * 2 + 11 <= width { " " } else { "" };
    let bar = |(place, gpu): (usize, &GpuSample)| {
        let drawn = graph::sparkline(&[share(gpu)], 1, model.theme.uses_ascii_graphs());
        Span::styled(if place == 0 { drawn } else { format!("{gap}{drawn}") }, style(place))
    };
    host.gpus.iter().take(width.saturating_sub(18)).enumerate().map(bar).collect()
}

/// `555/637G`, of all GPUs of a host.
fn memory_text_of_all(host: &HostState) -> Option<String> {
    let used: f32 = host.gpus.iter().filter_map(|gpu| gpu.memory_used).sum();
    let total: f32 = host.gpus.iter().filter_map(|gpu| gpu.memory_total).sum();
    (total > 0.0).then(|| format!("{:.0}/{:.0}G", used / 1024.0, total / 1024.0))
}
