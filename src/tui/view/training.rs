//! Training metrics parsed from logs: step, loss and speed of the run and of each rank with their history, and progress bars.
//!
//! An axis spans the visible minimum and maximum, because a loss has no fixed range.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

use crate::event::{RunGoal, UnixMillis};
use crate::report::style;
use crate::state::metric_scanner::{LOSS_INDEX, STEP_INDEX, TOKENS_PER_SECOND_INDEX};
use crate::state::training_metrics::{MetricSeries, TrainingMetrics, TrainingProgress};
use crate::text::translation::Lang;
use crate::tui::model::Model;
use crate::tui::theme::{DisplayStatus, Theme};

use super::lines::{render_lines, rows_area};
use super::{formatting, graph};

/// A progress bar not redrawn for this long is outdated, in milliseconds.
const STALE_AFTER_MS: i64 = 120_000;
/// The least that the height of a history stands for, as a share of the value.
const MIN_SPAN: f32 = 0.02;
/// From this room on the speed of a rank has a column.
const MIN_SPEED_ROOM: usize = 40;
/// Minimum height to show the metrics.
const MIN_ROWS: u16 = 1;

/// Draws how the training is going at the top of an area, and returns the rest of the area.
pub(crate) fn draw_header(frame: &mut Frame<'_>, area: Rect, model: &Model) -> Rect {
    if area.height < MIN_ROWS {
        return area;
    }
    let line = match model.state.metrics.is_empty() {
        false => run_metrics_line(model, usize::from(area.width)),
        true => match silent_line(model).or_else(|| stopping_span(model).map(Line::from)) {
            Some(line) => line,
            None => return area,
        },
    };
    render_lines(frame, rows_area(area, 0, 1), vec![line]);
    rows_area(area, 1, area.height - 1)
}

/// Whether ranks run and nothing ends them.
fn is_training(model: &Model) -> bool {
    let state = &model.state;
    state.outcome.is_none() && state.goal.0 == RunGoal::Up && model.rank_counts().running > 0 && !model.has_open_steps()
}

/// The ranks run, but their lines contain no step or loss yet.
fn silent_line(model: &Model) -> Option<Line<'static>> {
    let counts = model.rank_counts();
    let counts = [counts.running.to_string(), model.count(model.state.ranks.len(), "rank")];
    let text = model.lang.tr_fill(" {} of {} running; no step or loss in their lines", &[&counts[0], &counts[1]]);
    is_training(model).then(|| Line::from(vec![status_mark(model), Span::raw(text)]))
}

fn status_mark(model: &Model) -> Span<'static> {
    Span::styled(format!(" {}", model.theme.symbol(DisplayStatus::Ok)), model.theme.status_style(DisplayStatus::Ok))
}

/// ` ▲ 23 ranks still running`: how many of those that can be seen, while the run ends.
fn stopping_span(model: &Model) -> Option<Span<'static>> {
    let left = model.rank_counts().running.saturating_sub(model.unknown_ranks());
    // The line of the steps of a teardown says it too.
    let ends = model.state.outcome.is_none() && model.state.goal.0 != RunGoal::Up && left > 0 && !model.has_open_steps();
    let text = || {
        format!(" {} {} ", model.theme.symbol(DisplayStatus::Warn), model.lang.tr_fill("{} still running", &[&model.count(left, "rank")]))
    };
    ends.then(|| Span::styled(text(), model.theme.status_text_style(DisplayStatus::Warn)))
}

fn run_metrics_line(model: &Model, width: usize) -> Line<'static> {
    let (progress, lang) = (run_progress(model), model.lang);
    let mut spans = Vec::new();
    if is_training(model) {
        spans.push(status_mark(model));
        spans.push(Span::styled(lang.tr(" training"), model.theme.header()));
    }
    spans.extend(stopping_span(model));
    match progress {
        Some(progress) => spans.extend(progress_spans(model, &progress, width)),
        None if spans.is_empty() => spans.push(Span::styled(lang.tr(" training "), model.theme.header())),
        None => {}
    }
    for (metric, series) in model.state.metrics.iter().filter(|(metric, _)| progress.is_none() || *metric != STEP_INDEX) {
        let Some((last, at)) = model.combined_metric(metric) else { continue };
        let name = model.sanitize(model.state.metric_name(metric));
        let of = reporters_text(model, metric);
        let is_old = model.is_older_than(at, STALE_AFTER_MS);
        let age = if is_old { lang.tr_fill(" {} ago", &[&formatting::format_age(at, model.now)]) } else { String::new() };
        let value = format!(" {name} {}{of}{age} ", format_value(last));
        let course = if metric == STEP_INDEX { 0 } else { (width / 12).clamp(6, 24) };
        let left = width.saturating_sub(formatting::spans_width(&spans));
        if value.width() > left {
            break;
        }
        let status = if last.is_finite() { DisplayStatus::Ok } else { DisplayStatus::Error };
        let room = left - value.width();
        spans.push(if last.is_finite() { Span::raw(value) } else { Span::styled(value, model.theme.status_style(status)) });
        if course > 0 && course < room {
            let graph = sparkline(longest_points(model, metric, series).into_iter(), course, model.theme);
            let gap = if graph.is_empty() { "" } else { " " };
            spans.extend([Span::styled(graph, model.theme.status_style(status)), Span::raw(gap)]);
        }
    }
    Line::from(spans)
}

/// The source of a speed: the mean of the ranks that reported one, or a single rank.
pub(super) fn reporters_text(model: &Model, metric: u8) -> String {
    let mut reported = model.state.ranks.values().filter(|rank| rank.metrics.get(metric).is_some());
    match (reported.next(), reported.next()) {
        (Some(_), Some(_)) if metric == TOKENS_PER_SECOND_INDEX => "/rank".to_owned(),
        (Some(one), None) if metric == TOKENS_PER_SECOND_INDEX && model.state.ranks.len() > 1 => {
            model.lang.tr_fill(" of r{}", &[&one.rank.to_string()])
        }
        _ => String::new(),
    }
}

/// The history of the run. After an attach the lines of before arrive at once: then that of a rank reaches further back.
pub(super) fn longest_points(model: &Model, metric: u8, run: &MetricSeries) -> Vec<f32> {
    let own: Vec<f32> = run.points().collect();
    let of_ranks = model.state.ranks.values().take(64).filter_map(|rank| rank.metrics.get(metric));
    let longest = of_ranks.max_by_key(|series| series.points().count()).map(|series| series.points().collect::<Vec<f32>>());
    longest.filter(|longest| longest.len() > own.len() * 2).unwrap_or(own)
}

/// Progress of the run: the median of the ranks that printed a step and its total lately, the lower one of two; a rank that is behind is named as
/// an extreme. A run that ends has no ETA.
fn run_progress(model: &Model) -> Option<TrainingProgress> {
    let reported = model.state.ranks.values().filter_map(|rank| rank.progress.filter(|progress| progress.is_step));
    let fresh = reported.filter(|progress| !model.is_older_than(progress.drawn_at, STALE_AFTER_MS));
    let ends = model.state.outcome.is_some() || model.state.goal.0 != RunGoal::Up;
    let mut all: Vec<TrainingProgress> = fresh.collect();
    all.sort_by(|a, b| a.percent.total_cmp(&b.percent));
    let median = all.get(all.len().saturating_sub(1) / 2).copied()?;
    Some(TrainingProgress { seconds_left: median.seconds_left.filter(|_| !ends), ..median })
}

/// ` step 1180/4000 ███████▌             29%  eta 1h12m`.
fn progress_spans(model: &Model, progress: &TrainingProgress, width: usize) -> Vec<Span<'static>> {
    let (theme, lang) = (model.theme, model.lang);
    let (done, total) = progress.done_of_total.unwrap_or_default();
    let eta = match progress.seconds_left.filter(|_| done < total) {
        Some(left) => lang.tr_fill("  eta {}", &[&style::format_duration(left.saturating_mul(1000))]),
        // An estimate needs a second step.
        None if done < total && is_training(model) => lang.tr("  eta not yet known").to_owned(),
        None => String::new(),
    };
    let columns = (width / 8).clamp(6, 24);
    let [bar, dots] = formatting::bar_spans(Some(progress.percent), columns, theme, theme.status_style(DisplayStatus::Ok));
    vec![
        Span::styled(lang.tr_fill(" step {}/{} ", &[&done.to_string(), &total.to_string()]), theme.header()),
        bar,
        dots,
        Span::raw(format!(" {:.0}%{eta} ", progress.percent)),
    ]
}

/// Columns for the step and loss of a rank, with their widths.
pub(crate) struct TrainingColumns {
    sparkline_width: usize,
    /// Tokens per second have a column.
    has_speed: bool,
}

impl TrainingColumns {
    /// The columns that fit into `room` beside a last line, if any rank has metrics.
    pub(crate) fn fit(model: &Model, room: usize) -> Option<TrainingColumns> {
        let any = model.state.metrics.get(STEP_INDEX).or(model.state.metrics.get(LOSS_INDEX)).is_some();
        let has_speed = room >= MIN_SPEED_ROOM && model.state.metrics.get(TOKENS_PER_SECOND_INDEX).is_some();
        (any && room >= 28).then(|| TrainingColumns { sparkline_width: (room / 5).clamp(4, 20), has_speed })
    }

    /// Total width.
    pub(crate) fn width(&self) -> usize {
        7 + 8 + self.sparkline_width + 1 + if self.has_speed { 8 } else { 0 }
    }

    pub(crate) fn header_text(&self, lang: Lang) -> String {
        let speed = if self.has_speed { format!("{:>7} ", "TOK/S") } else { String::new() };
        format!("{} {:>7} {} {speed}", formatting::pad_left(lang.tr("STEP"), 6), "LOSS", formatting::pad("", self.sparkline_width))
    }

    /// `is_behind`: the rank holds up the others.
    pub(crate) fn rank_spans(&self, theme: Theme, metrics: &TrainingMetrics, is_behind: bool) -> Vec<Span<'static>> {
        let value = |metric| metrics.get(metric).map_or_else(|| "-".to_owned(), |series: &MetricSeries| format_value(series.last));
        let loss = metrics.get(LOSS_INDEX);
        let status = if loss.is_some_and(|loss| !loss.last.is_finite()) { DisplayStatus::Error } else { DisplayStatus::Ok };
        let course = loss.map(|loss| sparkline(loss.points(), self.sparkline_width, theme)).unwrap_or_default();
        let step_style = if is_behind { theme.status_text_style(DisplayStatus::Warn) } else { Style::new() };
        let number = format!("{:>7} ", style::truncate_text(&value(LOSS_INDEX), 7));
        vec![
            Span::styled(format!("{:>6} ", style::truncate_text(&value(STEP_INDEX), 6)), step_style),
            if status == DisplayStatus::Error { Span::styled(number, theme.status_style(status)) } else { Span::raw(number) },
            Span::styled(formatting::pad(&course, self.sparkline_width), theme.status_style(status)),
            Span::raw(if self.has_speed { format!(" {:>7} ", value(TOKENS_PER_SECOND_INDEX)) } else { " ".to_owned() }),
        ]
    }
}

/// An active progress bar in `width` columns: `37% ███▌     371/1000 19s left`.
pub(super) fn gauge_text(progress: &TrainingProgress, now: UnixMillis, width: usize, (theme, lang): (Theme, Lang)) -> Option<String> {
    if now - progress.drawn_at > STALE_AFTER_MS || width < 6 {
        return None;
    }
    let percent = format!("{:>3.0}%", progress.percent);
    let count = progress.done_of_total.map_or_else(String::new, |(done, all)| format!(" {done}/{all}"));
    let left = progress.seconds_left.map(|left| style::format_duration(left.saturating_mul(1000)));
    let left = left.map_or_else(String::new, |left| lang.tr_fill(" {} left", &[&left]));
    let tail = format!("{count}{left}");
    let room = width.saturating_sub(percent.len() + tail.width() + 1).min(20);
    let bar = if room >= 4 { format!(" {}", bar_text(progress.percent, room, theme.ascii)) } else { String::new() };
    Some(style::truncate_text(&format!("{percent}{bar}{tail}"), width))
}

fn bar_text(percent: f32, room: usize, ascii: bool) -> String {
    let share = percent.clamp(0.0, 100.0) / 100.0 * room as f32;
    let full = (share.floor() as usize).min(room);
    let (on, off) = if ascii { ("#", ".") } else { ("█", "░") };
    on.repeat(full) + &off.repeat(room - full)
}

/// History of a value as bars between its minimum and maximum; the last `width` points, stretched to the available width.
pub(crate) fn sparkline(points: impl Iterator<Item = f32>, width: usize, theme: Theme) -> String {
    let all: Vec<f32> = points.collect();
    // One point has no course.
    if all.len() < 2 || width == 0 {
        return String::new();
    }
    // All points in as many columns as there are: the mean of each section.
    let part = all.len().div_ceil(width).max(1);
    let shown: Vec<f32> = all.chunks(part).filter_map(|chunk| formatting::mean(chunk.iter().copied())).collect();
    let (mut least, mut most) = finite_range(&shown);
    let level = is_constant(least, most);
    // A noise of a thousandth is drawn as small as it is.
    let missing = (most.abs().max(least.abs()) * MIN_SPAN - (most - least)).max(0.0);
    (least, most) = (least - missing / 2.0, most + missing / 2.0);
    let bar = |value: f32| {
        let percent = if level { 50.0 } else { (value - least) / (most - least) * 100.0 };
        if value.is_finite() { graph::bar(percent, theme.uses_ascii_graphs()) } else { '!' }
    };
    shown.into_iter().map(bar).collect()
}

/// The smallest and the largest of the finite values.
pub(super) fn finite_range(values: &[f32]) -> (f32, f32) {
    let finite = values.iter().filter(|value| value.is_finite());
    finite.fold((f32::MAX, f32::MIN), |(least, most), value| (least.min(*value), most.max(*value)))
}

/// Whether values of this range are equal: means of equal values may differ by rounding.
pub(super) fn is_constant(least: f32, most: f32) -> bool {
    most - least <= most.abs().max(least.abs()) * 1e-5
}

/// A value in at most seven columns: `1180`, `2.318`, `12.9k`, `3.0e-4`.
pub(crate) fn format_value(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    match value.abs() {
        v if v.is_infinite() => if value > 0.0 { "inf" } else { "-inf" }.to_owned(),
        0.0 => "0".to_owned(),
        v if v < 0.001 => format!("{value:.1e}"),
        v if v >= 1e9 => format!("{value:.1e}"),
        v if v >= 1e6 => format!("{:.1}M", value / 1e6),
        v if v >= 100_000.0 => format!("{:.0}k", value / 1e3),
        v if v.fract() == 0.0 => format!("{value:.0}"),
        v if v >= 10_000.0 => format!("{:.1}k", value / 1e3),
        v if v >= 100.0 => format!("{value:.1}"),
        v if v >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::theme::GraphStyle;

    const UNICODE_THEME: Theme = Theme::new(crate::tui::theme::ColorScheme::Mono, false);

    #[test]
    fn values_fit_seven_columns() {
        let values = [0.0, 3e-4, 2.3182, 31.456, 412.25, 1180.0, 12_874.3, 512_000.0, 3.2e6, 7e12, f64::NAN];
        assert_eq!(values.map(format_value).join(" "), "0 3.0e-4 2.318 31.46 412.2 1180 12.9k 512k 3.2M 7.0e12 nan");
        assert!(values.iter().all(|value| format_value(*value).len() <= 7));
    }

    #[test]
    fn sparkline_spans_min_to_max() {
        assert_eq!(sparkline([9.0, 5.0, 1.0].into_iter(), 8, UNICODE_THEME), "█▅▁");
        assert_eq!(sparkline([2.0, 2.0].into_iter(), 8, UNICODE_THEME), "▅▅");
        assert_eq!(sparkline(std::iter::repeat_n(3.0e-4, 1003), 8, UNICODE_THEME), "▅▅▅▅▅▅▅▅", "a constant lr has no spike");
        assert_eq!(sparkline((0..100_u8).map(f32::from), 4, UNICODE_THEME), "▁▃▆█");
        assert_eq!(sparkline([1.0, f32::NAN, 2.0].into_iter(), 8, UNICODE_THEME), "▁!█");
        assert_eq!(sparkline(std::iter::once(1.0), 8, UNICODE_THEME), "");
        let ascii_graphs = Theme { graph_style: GraphStyle::Ascii, ..UNICODE_THEME };
        assert_eq!(sparkline([9.0, 5.0, 1.0].into_iter(), 8, ascii_graphs), "#=_");
    }

    #[test]
    fn gauge_fits_and_expires() {
        let bar = TrainingProgress {
            percent: 37.1,
            done_of_total: Some((371, 1000)),
            seconds_left: Some(19),
            drawn_at: 1_000,
            is_step: false,
            estimated_since: None,
            attached_at: None,
        };
        let gauge = |now, width| gauge_text(&bar, now, width, (UNICODE_THEME, Lang::En));
        assert_eq!(gauge(2_000, 40).as_deref(), Some(" 37% █████░░░░░░░░░░░ 371/1000 19 s left"));
        assert_eq!(gauge(2_000, 14).as_deref(), Some(" 37% 371/1000…"));
        assert_eq!((gauge(200_000, 40), gauge(2_000, 3)), (None, None));
    }
}
