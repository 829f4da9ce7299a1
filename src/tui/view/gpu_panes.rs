//! The hosts of the overview as nvidia-smi panes: a frame a host, with a row a GPU or, where rows are short, with a vertical bar a GPU.
//!
//! The size of the area and the number of hosts and GPUs alone decide the layout, so that no value moves a pane.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::event::GpuSample;
use crate::state::HostState;
use crate::text::hostlist::fold_numbers;
use crate::tui::model::Model;
use crate::tui::theme::DisplayStatus;

use super::gpu_pane_rows::{MAX_ROWS_PER_PANE, full_rows, medium_rows};
use super::gpu_ranks::RanksByGpu;
use super::gpu_status::is_idle_at_work;
use super::lines::render_lines;
use super::pane_frame::{PaneFrame, draw_frame};
use super::{figure_age, formatting, host_status};

/// The fewest columns of a pane with a row a GPU, frame included.
const FULL_MIN_WIDTH: u16 = 48;
/// The fewest columns of a pane with a bar a GPU, frame included, for hosts with up to eight GPUs.
const MEDIUM_MIN_WIDTH: u16 = 30;
/// The rows of a pane with a bar a GPU, frame included.
const MEDIUM_HEIGHT: u16 = 5;

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
            let title = self.fit_title(title, model, (at, host), usize::from(pane.width));
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

    /// The title of a host's pane, without what has no room in this width.
    fn fit_title(&self, title: PaneFrame, model: &Model, (at, host): (u32, &HostState), width: usize) -> PaneFrame {
        let mut title = title;
        let name_alone = |title: &PaneFrame| vec![Span::styled(model.sanitize(&host.name), title.left[0].style)];
        // A row of the pane says what is wrong.
        if self.density == PaneDensity::Medium && title.left.len() > 1 {
            title.left = name_alone(&title);
        }
        let is_too_long = |title: &PaneFrame| formatting::spans_width(&title.left) + formatting::spans_width(&title.right) + 7 > width;
        // What is wrong needs the room more than the power does.
        if title.status >= DisplayStatus::Warn && !figure_age::has_old_figures(model, at) && is_too_long(&title) {
            title.right = rank_spans(model, at);
        }
        match self.density {
            _ if !is_too_long(&title) => {}
            PaneDensity::Full if title.status < DisplayStatus::Warn => title.left.truncate(1),
            PaneDensity::Full => {}
            PaneDensity::Medium => title.left = name_alone(&title),
        }
        title
    }
}

/// ` · GPU 0-1 idle`: those that do nothing while the run trains on them.
fn idle_text(model: &Model, at: u32, host: &HostState, ranks: &RanksByGpu<'_>) -> Option<Span<'static>> {
    let is_idle = |gpu: &&GpuSample| is_idle_at_work(model, host, gpu, ranks.of_gpu(at, gpu.index));
    let idle: Vec<u32> = host.gpus.iter().filter(is_idle).map(|gpu| gpu.index).collect();
    let text = format!(" {} {}", model.theme.separator(), model.lang.tr_fill("GPU {} idle", &[&fold_numbers(&idle)]));
    let is_known = !idle.is_empty() && !figure_age::has_old_figures(model, at);
    is_known.then(|| Span::styled(text, model.theme.status_text_style(DisplayStatus::Warn)))
}

/// The title of a host's pane: its name and what is wrong at the left; ranks, state and power at the right.
fn host_frame(model: &Model, at: u32, host: &HostState, selected: bool) -> PaneFrame {
    let standing = model.host_statuses.get(at as usize).cloned().unwrap_or_default();
    let mut title = model.sanitize(&host.name);
    if at == 0 && model.state.hosts.len() > 1 && !model.state.ranks.is_empty() {
        title += &format!(" {} master", model.theme.separator());
    }
    let mut left = vec![Span::styled(title, if selected { model.theme.accent() } else { model.theme.header() })];
    if standing.status >= DisplayStatus::Warn {
        let style = model.theme.status_text_style(standing.status);
        left.push(Span::styled(format!(" {} {}", model.theme.separator(), standing.reason), style));
    }
    let mut right = rank_spans(model, at);
    if figure_age::has_old_figures(model, at) && !host.gpus.is_empty() {
        right.push(Span::styled(model.lang.tr_fill(" {} old", &[&formatting::format_age(host.gpus_at, model.now)]), model.theme.dim()));
    } else if let Some(power) = host_status::sum_gpus(host.gpus.iter()).power {
        right.push(Span::raw(format!(" {}", formatting::format_watts(power))));
    }
    PaneFrame { left, right, selected, status: standing.status }
}

/// `8/8 ●`: the ranks of a host and its state.
fn rank_spans(model: &Model, at: u32) -> Vec<Span<'static>> {
    let Some(standing) = model.host_statuses.get(at as usize) else { return Vec::new() };
    let ranks = (standing.ranks.total > 0).then(|| Span::raw(host_status::ranks_text(&standing.ranks, standing.status) + " "));
    let symbol = model.theme.symbol_span(standing.status);
    ranks.into_iter().chain([symbol]).collect()
}
