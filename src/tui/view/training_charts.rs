//! The course of the training as charts side by side: loss, speed and other metrics of the lines, then how busy the GPUs are.
//!
//! A value of the training covers all that is known of it, from its smallest to its largest (a speed from 0); a constant one has no chart. Those of
//! GPUs cover the last minutes, from 0 to 100.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

use crate::state::metric_scanner::{ITERATIONS_PER_SECOND_INDEX, STEP_INDEX, TOKENS_PER_SECOND_INDEX};
use crate::state::training_metrics::MetricSeries;
use crate::tui::model::Model;
use crate::tui::theme::DisplayStatus;

use super::lines::{render_lines, rows_area, samples_span};
use super::pane_frame::{PaneFrame, draw_frame};
use super::{formatting, graph, host_status, training};

/// The rows of the charts, frames included.
pub(super) const HEIGHT: u16 = 6;
/// The fewest columns of a chart.
const MIN_WIDTH: u16 = 36;
/// The most points of the GPUs.
const MAX_GPU_POINTS: usize = 240;

struct Chart {
    name: String,
    value: String,
    range: String,
    /// From 0 to 100.
    points: Vec<Option<f32>>,
    /// The points are spread over the whole width.
    is_stretched: bool,
    status: DisplayStatus,
}

/// Whether there is anything to draw.
pub(super) fn has_charts(model: &Model) -> bool {
    let has_metrics = model.state.metrics.iter().any(|(metric, series)| metric != STEP_INDEX && series.points().nth(1).is_some());
    has_metrics || model.state.hosts.iter().any(|host| host.gpu_history.len() > 1)
}

/// Draws as many charts as fit side by side at the top of an area, and returns the rest of the area.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model) -> Rect {
    let charts = charts(model, area.width);
    let count = charts.len();
    let edge = |at: usize| u16::try_from(usize::from(area.width) * at / count.max(1)).unwrap_or(area.width);
    for (at, chart) in charts.into_iter().enumerate() {
        let place = Rect { x: area.x + edge(at), width: edge(at + 1) - edge(at), height: HEIGHT.min(area.height), ..area };
        let style = model.theme.graph_style;
        let width = usize::from(place.width.saturating_sub(2));
        let left = vec![Span::styled(chart.name, model.theme.header()), Span::raw(format!(" {}", chart.value))];
        let span =
            if chart.is_stretched { String::new() } else { samples_span(model, graph::point_count(width, style).min(MAX_GPU_POINTS)) };
        let whole = if span.is_empty() { chart.range.clone() } else { [chart.range.as_str(), &span].join(model.lang.comma()) };
        // The value comes first, then its axis.
        let room = usize::from(place.width).saturating_sub(formatting::spans_width(&left) + 7);
        let range = [whole, chart.range].into_iter().find(|text| text.width() <= room);
        let right = range.map(|text| Span::styled(text, model.theme.dim())).into_iter().collect();
        let title = PaneFrame { left, right, ..PaneFrame::default() };
        let inner = draw_frame(frame, place, model.theme, &title);
        let height = usize::from(inner.height);
        let points = if chart.is_stretched { graph::stretch(&chart.points, width, style) } else { chart.points };
        let rows = graph::render_graph(&points, width, height, style);
        let look = model.theme.status_style(chart.status);
        render_lines(frame, inner, rows.into_iter().map(|row| Line::styled(row, look)).collect());
    }
    let used = if count > 0 { HEIGHT.min(area.height) } else { 0 };
    rows_area(area, used, area.height - used)
}

/// The metrics of the training, then the GPUs, which keep one slot.
fn charts(model: &Model, width: u16) -> Vec<Chart> {
    let most = usize::from(width / MIN_WIDTH);
    let metrics = model.state.metrics.iter().filter(|(metric, _)| *metric != STEP_INDEX);
    let mut charts: Vec<Chart> =
        metrics.filter_map(|(metric, series)| metric_chart(model, metric, series)).take(most.saturating_sub(1).max(1)).collect();
    // Only the points that are shown are summed up: there may be a thousand GPUs.
    let shown = most.min(charts.len() + 2).max(1);
    let points = graph::point_count(usize::from(width).div_ceil(shown), model.theme.graph_style).min(MAX_GPU_POINTS);
    let means = host_status::mean_gpu_history(model.state.hosts.iter(), points);
    let [utilization, power] = [0, 1].map(|at| means.iter().map(|both| both[at]).collect());
    charts.extend(gpu_chart(model, model.lang.tr("GPUs, mean"), utilization));
    charts.extend(gpu_chart(model, model.lang.tr("power, mean of limit"), power));
    charts.truncate(most);
    charts
}

fn metric_chart(model: &Model, metric: u8, series: &MetricSeries) -> Option<Chart> {
    let mut points = training::longest_points(model, metric, series);
    points.get(1)?;
    let (last, _) = model.combined_metric(metric)?;
    // The points are means: the newest value is not among them.
    let newest = last as f32;
    points.push(newest);
    // From its smallest value the noise of a speed would fill the chart.
    let is_speed = [TOKENS_PER_SECOND_INDEX, ITERATIONS_PER_SECOND_INDEX].contains(&metric);
    let (least, most) = training::finite_range(&points);
    let least = if is_speed { 0.0 } else { least };
    // The line above has the value.
    let is_constant = training::is_constant(least, most);
    if is_constant && last.is_finite() {
        return None;
    }
    let share = |value: f32| if is_constant { 50.0 } else { (value - least) / (most - least) * 100.0 };
    // Rounded as the value above it.
    let axis = |value: f32| training::format_value(if value == newest { last } else { value.into() });
    Some(Chart {
        name: model.sanitize(model.state.metric_name(metric)),
        value: format!("{}{}", training::format_value(last), training::reporters_text(model, metric)),
        range: if is_constant { String::new() } else { [axis(least), axis(most)].join(model.lang.tr(" to ")) },
        points: points.iter().map(|value| value.is_finite().then(|| share(*value))).collect(),
        is_stretched: true,
        status: if last.is_finite() { DisplayStatus::Ok } else { DisplayStatus::Error },
    })
}

fn gpu_chart(model: &Model, name: &str, points: Vec<Option<f32>>) -> Option<Chart> {
    let last = points.last().copied().flatten().filter(|_| points.len() > 1)?;
    let (name, range) = (name.to_owned(), ["0", "100%"].join(model.lang.tr(" to ")));
    Some(Chart { name, value: format!("{last:.0}%"), range, points, is_stretched: false, status: DisplayStatus::Ok })
}
