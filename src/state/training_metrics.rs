//! Training metrics in log lines: step, loss, tokens per second and the like, and the state of a progress bar.
//!
//! The forms that are read were taken from the lines of nanoGPT, Megatron-LM, the trainers of transformers and Lightning, torchtitan,
//! DeepSpeed and tqdm. Works on bytes with ASCII rules alone: lines come fast, and Unicode word boundaries are slow.

use std::collections::BTreeMap;

use super::metric_scanner::{METRIC_NAME_REGEX, MetricValues, STEP_INDEX, metric_for_name, parse_number, parse_value_after_name};
use crate::event::UnixMillis;

/// How many points a rank keeps of a metric.
const MAX_RANK_POINTS: usize = 64;
/// How many points the run keeps of a metric.
const MAX_RUN_POINTS: usize = 240;
/// The run's values are taken at most so often, milliseconds.
const RUN_SAMPLE_INTERVAL_MS: i64 = 1_000;
/// An estimate covers at least so many steps and so long, and at most twice as much of one of them.
const MIN_ESTIMATE_STEPS: u64 = 10;
const MIN_ESTIMATE_MS: i64 = 120_000;
/// The lines that an attach brings of before come within this time, milliseconds.
const CATCH_UP_MS: i64 = 5_000;
/// A rank that was silent for longer says nothing about the run, milliseconds.
const RANK_FRESHNESS_MS: i64 = 120_000;
/// So many lines of a rank are read in each second; of a flood every so many-th after them, since reading is what a flood costs most by.
const LINES_SCANNED_PER_SECOND: u32 = 64;
const FLOOD_SAMPLE_STRIDE: u32 = 17;

/// A value over time. It covers all reported values: when the points are full, every two become one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MetricSeries {
    pub last: f64,
    pub last_at: UnixMillis,
    points: Vec<f32>,
    max_points: usize,
    stride: u32,
    pending_sum: f64,
    pending_count: u32,
}

impl MetricSeries {
    fn new(max: usize) -> MetricSeries {
        MetricSeries { last: 0.0, last_at: 0, points: Vec::new(), max_points: max, stride: 1, pending_sum: 0.0, pending_count: 0 }
    }

    fn push(&mut self, value: f64, at: UnixMillis) {
        (self.last, self.last_at) = (value, at);
        self.pending_sum += value;
        self.pending_count += 1;
        if self.pending_count < self.stride {
            return;
        }
        // A graph needs no more than single precision.
        let mean = (self.pending_sum / f64::from(self.pending_count)) as f32;
        (self.pending_sum, self.pending_count) = (0.0, 0);
        if self.points.len() >= self.max_points {
            self.points = self.points.chunks(2).map(|pair| pair.iter().sum::<f32>() / pair.len() as f32).collect();
            self.stride = self.stride.saturating_mul(2);
        }
        self.points.push(mean);
    }

    /// The points, the oldest first; each represents the same number of values. Not a number if the line printed `nan`.
    pub(crate) fn points(&self) -> impl DoubleEndedIterator<Item = f32> {
        self.points.iter().copied()
    }
}

/// How far the training is, by a progress bar or by lines like `step 1180/4000`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TrainingProgress {
    /// From 0 to 100.
    pub percent: f32,
    /// Done and total.
    pub done_of_total: Option<(u64, u64)>,
    /// Seconds that are left: as the bar says, else estimated from the latest steps.
    pub seconds_left: Option<i64>,
    /// When the line came.
    pub drawn_at: UnixMillis,
    /// A line gave the step and its total; else it is a progress bar, which may count anything.
    pub is_step: bool,
    /// Two earlier steps of this total and when they came. The estimate begins at the older one: a slow first step (a compilation) counts for
    /// minutes, not for hours.
    pub estimated_since: Option<[(u64, UnixMillis); 2]>,
    /// When the first line of this total came.
    pub attached_at: Option<UnixMillis>,
}

impl TrainingProgress {
    /// Combines it with the previous progress: steps of the same total continue it and give an estimate if the line itself has none.
    ///
    /// An attach brings the lines of before at once, so that its first seconds do not show how long a step takes: the estimate begins
    /// after them. `started_at` is when the rank started.
    pub(super) fn after(mut self, before: Option<&TrainingProgress>, started_at: Option<UnixMillis>) -> TrainingProgress {
        let Some((done, total)) = self.done_of_total else { return self };
        let same = before.filter(|before| before.done_of_total.is_some_and(|(earlier, all)| all == total && earlier <= done));
        let attached_at = same.and_then(|before| before.attached_at).unwrap_or(self.drawn_at);
        self.attached_at = Some(attached_at);
        let ran_before = started_at.is_some_and(|started| attached_at - started > CATCH_UP_MS);
        let is_catching_up = ran_before && self.drawn_at - attached_at < CATCH_UP_MS;
        let known = same.and_then(|before| before.estimated_since).filter(|_| !is_catching_up);
        let [older, newer] = known.unwrap_or([(done, self.drawn_at); 2]);
        let moves_on = done - newer.0 >= MIN_ESTIMATE_STEPS && self.drawn_at - newer.1 >= MIN_ESTIMATE_MS;
        self.estimated_since = Some(if moves_on { [newer, (done, self.drawn_at)] } else { [older, newer] });
        let (first, began) = if moves_on { newer } else { older };
        if self.seconds_left.is_none() && done > first && self.drawn_at > began {
            let left = i128::from(total.saturating_sub(done)) * i128::from(self.drawn_at - began) / i128::from(done - first) / 1000;
            self.seconds_left = i64::try_from(left).ok();
        }
        self
    }
}

/// All values of one rank, or of the run, in the order of the metrics' places among the names.
///
/// A rank has few metrics, and each frame reads those of every rank: a list is faster than a map.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct TrainingMetrics(Vec<(u8, MetricSeries)>);

impl TrainingMetrics {
    pub(crate) fn get(&self, metric: u8) -> Option<&MetricSeries> {
        self.0.iter().find(|(known, _)| *known == metric).map(|(_, series)| series)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u8, &MetricSeries)> {
        self.0.iter().map(|(metric, series)| (*metric, series))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The series of a metric; a new one keeps that many points.
    fn series_mut(&mut self, metric: u8, max_points: usize) -> &mut MetricSeries {
        let at = self.0.partition_point(|(known, _)| *known < metric);
        if self.0.get(at).is_none_or(|(known, _)| *known != metric) {
            self.0.insert(at, (metric, MetricSeries::new(max_points)));
        }
        &mut self.0[at].1
    }
}

/// Which lines of a rank are read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineSampler {
    second: i64,
    lines: u32,
}

impl LineSampler {
    /// Whether the next line, which came then, is read.
    pub(super) fn should_scan(&mut self, at: UnixMillis) -> bool {
        let second = at.div_euclid(1000);
        if self.second != second {
            *self = LineSampler { second, lines: 0 };
        }
        self.lines = self.lines.saturating_add(1);
        self.lines <= LINES_SCANNED_PER_SECOND || self.lines.is_multiple_of(FLOOD_SAMPLE_STRIDE)
    }
}

/// The progress bar in a line: `37%|###   | 371/1000 [00:11<00:19, 32.9it/s]` as tqdm draws it, `━━━━ 37% 0:00:19` as rich does.
pub(crate) fn parse_progress(line: &[u8], at: UnixMillis) -> Option<TrainingProgress> {
    let percent_at = memchr::memchr(b'%', line);
    let count = memchr::memmem::find(line, b" [").and_then(|end| parse_done_of_total(&line[..end]));
    let percent = percent_at.and_then(|at| {
        let start = line[..at].iter().rposition(|byte| !byte.is_ascii_digit() && *byte != b'.').map_or(0, |at| at + 1);
        let bar = line.get(at + 1) == Some(&b'|') || count.is_some();
        let rich = || memchr::memmem::find(&line[..at], "━".as_bytes()).is_some();
        parse_number(&line[start..at], false).filter(|_| bar || rich()).map(|(value, _)| value)
    });
    // Counted things have a bar of their own only where a bracket with a time follows.
    let timed = || memchr::memmem::find(line, b" [").is_some_and(|at| line.get(at + 2).is_some_and(|b| b.is_ascii_digit() || *b == b'?'));
    let percent = match (percent, count) {
        (Some(percent), _) => percent,
        (None, Some((done, all))) if all > 0 && timed() => percent_done(done, all),
        _ => return None,
    };
    let left = match memchr::memchr(b'<', line) {
        Some(at) => parse_clock(&line[at + 1..]),
        None => percent_at.and_then(|at| parse_clock(line[at + 1..].trim_ascii_start())),
    };
    let percent = percent.clamp(0.0, 100.0) as f32;
    Some(TrainingProgress { percent, done_of_total: count, seconds_left: left, drawn_at: at, ..TrainingProgress::default() })
}

/// How far a line says that the training is: `step 1180/4000`, `iteration 12/ 100 |`.
pub(crate) fn parse_step_of_total(line: &[u8], at: UnixMillis) -> Option<TrainingProgress> {
    memchr::memchr(b'/', line)?;
    let names = METRIC_NAME_REGEX.as_ref()?;
    let step = |hit: regex::bytes::Match<'_>| {
        let rest = &line[hit.end()..];
        let (done, len) = parse_value_after_name(rest, false).filter(|_| metric_for_name(hit.as_bytes()) == Some(STEP_INDEX))?;
        let total = rest[len..].trim_ascii_start().strip_prefix(b"/")?.trim_ascii_start();
        let digits = total.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let total: u64 = std::str::from_utf8(&total[..digits]).ok()?.parse().ok()?;
        let done = (done >= 0.0 && done.fract() == 0.0).then_some(done as u64)?;
        (total > 0 && done <= total).then_some((done, total))
    };
    let (done, total) = names.find_iter(line).find_map(step)?;
    let percent = percent_done(done, total) as f32;
    Some(TrainingProgress { percent, done_of_total: Some((done, total)), drawn_at: at, is_step: true, ..TrainingProgress::default() })
}

fn percent_done(done: u64, all: u64) -> f64 {
    // For a bar of a few columns.
    done as f64 / all as f64 * 100.0
}

/// `371/1000` at the end of a text.
fn parse_done_of_total(text: &[u8]) -> Option<(u64, u64)> {
    let digits = |text: &[u8]| text.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let parse = |text: &[u8]| std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    let (head, all) = text.split_at(text.len() - digits(text));
    let head = head.strip_suffix(b"/")?;
    let (_, done) = head.split_at(head.len() - digits(head));
    Some((parse(done)?, parse(all)?))
}

/// `00:19`, `1:02:03` at the beginning of a text, in seconds.
fn parse_clock(text: &[u8]) -> Option<i64> {
    let end = text.iter().position(|byte| !byte.is_ascii_digit() && *byte != b':').unwrap_or(text.len());
    let text = std::str::from_utf8(&text[..end]).ok().filter(|text| text.len() <= 12)?;
    let mut parts = text.split(':');
    let mut seconds: i64 = parts.next()?.parse().ok()?;
    let mut any = false;
    for part in parts {
        seconds = seconds.checked_mul(60)?.checked_add(part.parse().ok()?)?;
        any = true;
    }
    any.then_some(seconds)
}

/// Adds the values of a line to those of a rank.
pub(super) fn record_values(metrics: &mut TrainingMetrics, values: &MetricValues, at: UnixMillis) {
    for (metric, value) in values {
        metrics.series_mut(*metric, MAX_RANK_POINTS).push(*value, at);
    }
}

/// What the ranks that report a metric say together, collected in two passes: when the last one spoke, then the values that are fresh by then.
#[derive(Debug, Clone, Copy)]
struct CombinedMetric {
    last_at: UnixMillis,
    sum: f64,
    count: f64,
    max: f64,
}

impl CombinedMetric {
    const NONE: CombinedMetric = CombinedMetric { last_at: UnixMillis::MIN, sum: 0.0, count: 0.0, max: f64::MIN };

    fn note_time(&mut self, series: &MetricSeries) {
        self.last_at = self.last_at.max(series.last_at);
    }

    fn add_if_fresh(&mut self, series: &MetricSeries) {
        if self.last_at - series.last_at < RANK_FRESHNESS_MS {
            self.sum += series.last;
            self.count += 1.0;
            self.max = self.max.max(series.last);
        }
    }

    /// The furthest step, the mean of other metrics.
    fn value(&self, metric: u8) -> Option<(f64, UnixMillis)> {
        let value = if metric == STEP_INDEX { self.max } else { self.sum / self.count };
        (self.count > 0.0).then_some((value, self.last_at))
    }
}

/// The combined values of the ranks that report any: the furthest step, the mean of the others; and the time of the last report.
pub(super) fn combine_rank_metrics<'a>(metric: u8, ranks: impl Iterator<Item = &'a TrainingMetrics> + Clone) -> Option<(f64, UnixMillis)> {
    let mut combined = CombinedMetric::NONE;
    ranks.clone().filter_map(|rank| rank.get(metric)).for_each(|series| combined.note_time(series));
    ranks.filter_map(|rank| rank.get(metric)).for_each(|series| combined.add_if_fresh(series));
    combined.value(metric)
}

/// The same for every metric.
pub(super) fn combine_all_metrics<'a>(ranks: impl Iterator<Item = &'a TrainingMetrics> + Clone) -> BTreeMap<u8, (f64, UnixMillis)> {
    let mut all = [CombinedMetric::NONE; u8::MAX as usize + 1];
    for rank in ranks.clone() {
        rank.iter().for_each(|(metric, series)| all[usize::from(metric)].note_time(series));
    }
    for rank in ranks {
        rank.iter().for_each(|(metric, series)| all[usize::from(metric)].add_if_fresh(series));
    }
    (0..=u8::MAX).zip(&all).filter_map(|(metric, combined)| Some((metric, combined.value(metric)?))).collect()
}

/// Notes where the ranks stand before the news of one of them is taken: so all are of one round.
pub(super) fn sample_run_metric<'a>(
    run: &mut TrainingMetrics,
    metric: u8,
    at: UnixMillis,
    ranks: impl Iterator<Item = &'a TrainingMetrics> + Clone,
) {
    let series = run.series_mut(metric, MAX_RUN_POINTS);
    if at - series.last_at < RUN_SAMPLE_INTERVAL_MS {
        return;
    }
    series.last_at = at;
    if let Some((value, _)) = combine_rank_metrics(metric, ranks) {
        series.push(value, at);
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
