//! The hosts of the overview as nvidia-smi panes: a frame a host, with a row a GPU or, where rows are short, with a vertical bar a GPU.
//!
//! The size of the area and the number of hosts and GPUs alone decide the layout, so that no value moves a pane.

use std::collections::HashMap;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::event::GpuSample;
use crate::report::style;
use crate::state::{HostState, RankState};
use crate::text::hostlist::fold_numbers;
use crate::tui::model::Model;
use crate::tui::theme::DisplayStatus;

use super::gpu_status::{gpu_status, is_idle_at_work};
use super::gpu_text::{memory_text, power_text};
use super::lines::render_lines;
use super::pane_frame::{PaneFrame, draw_frame};
use super::{figure_age, formatting, graph, host_status};

/// The fewest columns of a pane with a row a GPU, frame included.
const FULL_MIN_WIDTH: u16 = 48;
/// The fewest columns of a pane with a bar a GPU, frame included, for hosts with up to eight GPUs.
const MEDIUM_MIN_WIDTH: u16 = 30;
/// The rows of a pane with a bar a GPU, frame included.
const MEDIUM_HEIGHT: u16 = 5;
/// More GPUs a host are shown by the GPUs screen alone.
const MAX_ROWS_PER_PANE: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PaneDensity {
    /// A row a GPU.
    Full,
    /// A vertical bar a GPU.
    Medium,
}

/// Where each host's pane is drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PaneGrid {
    /// The hosts in their order.
    pub(super) hosts: Vec<u32>,
    density: PaneDensity,
    /// Panes side by side.
    pub(super) columns: usize,
    /// The rows that all panes take.
    pub(super) height: u16,
    pane_height: u16,
}

impl PaneGrid {
    /// The richest layout that shows each of these hosts in an area of this width and height; none where only a table can.
    pub(super) fn fit(model: &Model, hosts: Vec<u32>, (width, height): (u16, u16)) -> Option<PaneGrid> {
        let of = |at: &u32| model.state.hosts.get(*at as usize).map_or(0, |host| host.gpus.len());
        let gpus = hosts.iter().map(of).max()?.max(1);
        let grid = |density, min_width: u16, pane_height: u16| {
            let columns = usize::from(width / min_width).min(hosts.len());
            let rows = u16::try_from(hosts.len().checked_div(columns).map(|_| hosts.len().div_ceil(columns))?).ok()?;
            let height_needed = rows.checked_mul(pane_height)?;
            let grid = || PaneGrid { hosts: hosts.clone(), density, columns, height: height_needed, pane_height };
            (height_needed <= height).then(grid)
        };
        let full = (gpus <= MAX_ROWS_PER_PANE).then(|| u16::try_from(gpus + 2).ok()).flatten();
        let medium_width = MEDIUM_MIN_WIDTH.max(u16::try_from(gpus + 22).unwrap_or(u16::MAX));
        full.and_then(|height| grid(PaneDensity::Full, FULL_MIN_WIDTH, height))
            .or_else(|| grid(PaneDensity::Medium, medium_width, MEDIUM_HEIGHT))
    }

    /// Whether each GPU has a row.
    pub(super) fn is_full(&self) -> bool {
        self.density == PaneDensity::Full
    }

    /// What the bars mean.
    pub(super) fn legend(&self) -> &'static str {
        match self.density {
            PaneDensity::Full => "utilization and memory; graph: utilization",
            PaneDensity::Medium => "a bar a GPU: utilization, memory used",
        }
    }

    /// The area of a pane by its place.
    fn pane_area(&self, area: Rect, place: usize) -> Rect {
        let (row, column) = (place / self.columns, place % self.columns);
        let edge = |column: usize| u16::try_from(usize::from(area.width) * column / self.columns).unwrap_or(area.width);
        let y = u16::try_from(row).unwrap_or(u16::MAX).saturating_mul(self.pane_height);
        let x = edge(column);
        Rect { x: area.x + x, y: area.y + y, width: edge(column + 1) - x, height: self.pane_height }
    }

    /// Draws the pane of every host. Gives where each was drawn.
    pub(super) fn draw(&self, frame: &mut Frame<'_>, area: Rect, model: &Model, selected: Option<u32>) -> Vec<(u32, Rect)> {
        let ranks = RanksByGpu::new(model);
        let mut drawn = Vec::new();
        for (place, at) in self.hosts.iter().copied().enumerate() {
            let Some(host) = model.state.hosts.get(at as usize) else { continue };
            let pane = self.pane_area(area, place);
            let mut title = host_frame(model, at, host, selected == Some(at));
            if self.density == PaneDensity::Full && title.left.len() == 1 {
                title.left.extend(idle_text(model, at, host, &ranks));
            }
            let needed = formatting::spans_width(&title.left) + formatting::spans_width(&title.right) + 7;
            let is_too_long = needed > usize::from(pane.width);
            if is_too_long && self.density == PaneDensity::Full && title.status < DisplayStatus::Warn {
                title.left.truncate(1);
            }
            if self.density == PaneDensity::Medium && (title.left.len() > 1 || is_too_long) {
                // A narrow title has room for the name alone: a row of the pane says what is wrong.
                title.left = vec![Span::styled(model.sanitize(&host.name), title.left[0].style)];
            }
            let inner = draw_frame(frame, pane, model.theme, &title);
            let width = usize::from(inner.width);
            let lines = match self.density {
                _ if host.gpus.is_empty() => vec![Line::styled(model.lang.tr(" no GPU data yet"), model.theme.dim())],
                PaneDensity::Full => full_rows(model, at, host, &ranks, width),
                PaneDensity::Medium => medium_rows(model, at, host, &ranks, width),
            };
            render_lines(frame, inner, lines);
            drawn.push((at, pane));
        }
        drawn
    }
}

/// ` · GPU 0-1 idle`: those that do nothing while the run trains on them.
fn idle_text(model: &Model, at: u32, host: &HostState, ranks: &RanksByGpu<'_>) -> Option<Span<'static>> {
    let is_idle = |gpu: &&GpuSample| is_idle_at_work(model, host, gpu, ranks.0.get(&(at, gpu.index)).copied());
    let idle: Vec<u32> = host.gpus.iter().filter(is_idle).map(|gpu| gpu.index).collect();
    let text = format!(" {} {}", model.theme.separator(), model.lang.tr_fill("GPU {} idle", &[&fold_numbers(&idle)]));
    let is_known = !idle.is_empty() && !figure_age::has_old_figures(model, at as usize, host);
    is_known.then(|| Span::styled(text, model.theme.status_text_style(DisplayStatus::Warn)))
}

/// The title of a host's pane: its name and what is wrong at the left; ranks, state and power at the right.
fn host_frame(model: &Model, at: u32, host: &HostState, selected: bool) -> PaneFrame {
    let standing = model.host_statuses.get(at as usize).cloned().unwrap_or_default();
    let mut title = model.sanitize(&host.name);
    if at == 0 && model.state.hosts.len() > 1 && !model.state.ranks.is_empty() {
        title += &format!(" {} master", model.theme.separator());
    }
    let status_style = model.theme.status_style(standing.status);
    let mut left = vec![Span::styled(title, if selected { model.theme.accent() } else { model.theme.header() })];
    if standing.status >= DisplayStatus::Warn {
        let style = model.theme.status_text_style(standing.status);
        left.push(Span::styled(format!(" {} {}", model.theme.separator(), standing.reason), style));
    }
    let mut right = Vec::new();
    if standing.ranks.total > 0 {
        right.push(Span::raw(host_status::ranks_text(&standing.ranks, standing.status) + " "));
    }
    right.push(Span::styled(model.theme.symbol(standing.status), status_style));
    // What is wrong needs the room more than the power does.
    if standing.status >= DisplayStatus::Warn && !figure_age::has_old_figures(model, at as usize, host) {
        return PaneFrame { left, right, selected, status: standing.status };
    }
    if figure_age::has_old_figures(model, at as usize, host) && !host.gpus.is_empty() {
        right.push(Span::styled(model.lang.tr_fill(" {} old", &[&formatting::format_age(host.gpus_at, model.now)]), model.theme.dim()));
    } else if let Some(power) = host_status::sum_gpus(host.gpus.iter()).power {
        right.push(Span::raw(format!(" {}", formatting::format_watts(power))));
    }
    PaneFrame { left, right, selected, status: standing.status }
}

/// The rank that uses each GPU: the one whose local rank is the GPU's index. If a run uses only some of a host's GPUs the indexes do not
/// show which, so no rank is shown.
struct RanksByGpu<'a>(HashMap<(u32, u32), &'a RankState>);

impl<'a> RanksByGpu<'a> {
    fn new(model: &'a Model) -> Self {
        let is_paired = |rank: &&RankState| {
            let gpus = model.state.hosts.get(rank.host as usize).map_or(0, |host| host.gpus.len());
            model.host_statuses.get(rank.host as usize).is_some_and(|standing| standing.ranks.total == gpus)
        };
        let ranks = model.state.ranks.values().filter(is_paired);
        RanksByGpu(ranks.filter_map(|rank| Some(((rank.host, rank.local_rank?), rank))).collect())
    }
}

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

fn full_rows(model: &Model, at: u32, host: &HostState, ranks: &RanksByGpu<'_>, width: usize) -> Vec<Line<'static>> {
    let stale = figure_age::has_old_figures(model, at as usize, host);
    let rows = FullRows { model, at, host, layout: RowLayout::new(width, &host.gpus), stale };
    host.gpus.iter().take(MAX_ROWS_PER_PANE).map(|gpu| rows.row(gpu, ranks.0.get(&(at, gpu.index)).copied())).collect()
}

impl FullRows<'_> {
    /// A bar, and what is left to its end.
    fn bar(&self, share: Option<f32>, width: usize, style: Style) -> [Span<'static>; 2] {
        let theme = self.model.theme;
        let filled = formatting::horizontal_bar(share, width, theme.ascii).trim_end().to_owned();
        let rest = width.saturating_sub(filled.chars().count());
        [Span::styled(filled, style), Span::styled(theme.separator().repeat(rest), theme.dim())]
    }

    fn row(&self, gpu: &GpuSample, rank: Option<&RankState>) -> Line<'static> {
        let (model, theme, stale) = (self.model, self.model.theme, self.stale);
        let plain = if stale { theme.dim() } else { Style::new() };
        let status = gpu_status(model, (self.at, self.host), gpu, rank, stale);
        let calm = if status == DisplayStatus::Ok { plain } else { theme.status_style(status) };
        let unit = theme.degree();
        let power = power_text(gpu, self.layout.shows_limit);
        let mut spans = vec![
            Span::styled(format!("{:>2}", gpu.index), theme.dim()),
            Span::styled(if status >= DisplayStatus::Warn { theme.symbol(status) } else { " " }, theme.status_style(status)),
            Span::styled(format!("{:>4} ", or_dash(gpu.utilization.map(|percent| format!("{percent:.0}%")))), calm),
        ];
        spans.extend(self.bar(gpu.utilization, self.layout.utilization_bar, theme.status_style(status)));
        spans.push(Span::styled(format!("{:>8} ", memory_text(gpu)), plain));
        spans.extend(self.bar(memory_share(gpu), self.layout.memory_bar, if stale { theme.dim() } else { theme.secondary() }));
        spans.extend([
            Span::styled(format!(" {:>4} ", or_dash(gpu.temperature.map(|degrees| format!("{degrees:.0}{unit}")))), plain),
            Span::styled(formatting::pad_left(&power, self.layout.power) + " ", plain),
        ]);
        if self.layout.history > 0 {
            let values: Vec<Option<f32>> = self.host.gpu_trace(gpu.index).map(|point| point.utilization).collect();
            let drawn = graph::render_graph(&values, self.layout.history, 1, theme.effective_graph_style()).pop().unwrap_or_default();
            spans.push(Span::styled(drawn + " ", theme.status_style(if stale { DisplayStatus::Pending } else { status })));
        }
        if let Some(rank) = rank {
            let (rank_status, _) = host_status::rank_status(&model.state, rank);
            spans.push(Span::raw(format!("{:<5} ", format!("r{}", rank.rank))));
            spans.push(Span::styled(theme.symbol(rank_status), theme.status_style(rank_status)));
        }
        Line::from(spans)
    }
}

/// Three rows: utilization and memory as a vertical bar a GPU, then what is wrong, or the hottest GPU and the age of the last line.
fn medium_rows(model: &Model, at: u32, host: &HostState, ranks: &RanksByGpu<'_>, width: usize) -> Vec<Line<'static>> {
    let theme = model.theme;
    let stale = figure_age::has_old_figures(model, at as usize, host);
    let plain = if stale { theme.dim() } else { Style::new() };
    let totals = host_status::sum_gpus(host.gpus.iter());
    let statuses: Vec<DisplayStatus> =
        host.gpus.iter().map(|gpu| gpu_status(model, (at, host), gpu, ranks.0.get(&(at, gpu.index)).copied(), stale)).collect();
    let worst = statuses.iter().copied().max().unwrap_or_default();
    let memory_style = if stale { theme.dim() } else { theme.secondary() };
    let utilization = gpu_bars(model, host, width, |gpu| gpu.utilization, |place| theme.status_style(statuses[place]));
    let memory = gpu_bars(model, host, width, memory_share, |_| memory_style);
    let room = width.saturating_sub(formatting::spans_width(&memory) + 7);
    let memory_sum =
        or_dash(memory_text_of_all(host).filter(|text| text.len() <= room).or(totals.memory.map(|share| format!("{share:.0}%"))));
    let last_output_at = model.host_statuses.get(at as usize).map_or(0, |standing| standing.last_output_at);
    let hottest = or_dash(totals.hottest.map(|degrees| format!("{degrees:.0}{}", theme.degree())));
    let last = model.lang.tr_fill("line {} ago", &[&formatting::format_age(last_output_at, model.now)]);
    let lang = model.lang;
    let mut rows = [lang.tr(" util "), lang.tr(" mem  ")].map(|name| vec![Span::styled(name, theme.dim())]);
    rows[0].extend(utilization);
    rows[0].push(Span::styled(format!(" {}", or_dash(totals.utilization.map(|percent| format!("{percent:.0}%")))), plain));
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

fn memory_share(gpu: &GpuSample) -> Option<f32> {
    gpu.memory_used.zip(gpu.memory_total).filter(|(_, total)| *total > 0.0).map(|(used, total)| used / total * 100.0)
}

fn or_dash(value: Option<String>) -> String {
    value.unwrap_or_else(|| "-".to_owned())
}
