//! The metrics of a run, from those of its ranks.

use std::collections::BTreeMap;

use super::metric_scanner::STEP_INDEX;
use super::training_metrics::{MetricSeries, TrainingMetrics};
use crate::event::UnixMillis;

/// How many points the run keeps of a metric.
const MAX_RUN_POINTS: usize = 240;
/// The run's values are taken at most so often, milliseconds.
const RUN_SAMPLE_INTERVAL_MS: i64 = 1_000;
/// A rank that was silent for longer says nothing about the run, milliseconds.
const RANK_FRESHNESS_MS: i64 = 120_000;
/// Ranks so many steps apart are of one round: not all of them print at the same time.
const MAX_STEPS_APART: f64 = 1.0;

/// What the ranks that report a metric say together, collected in three passes: when the last one spoke, then the furthest step of those that are
/// fresh by then, then the values of the ranks at that step: the loss of a rank that is behind is that of an earlier step.
#[derive(Debug, Clone, Copy)]
struct CombinedMetric {
    last_at: UnixMillis,
    furthest_step: f64,
    sum: f64,
    count: f64,
    max: f64,
}

impl CombinedMetric {
    const NONE: CombinedMetric = CombinedMetric { last_at: UnixMillis::MIN, furthest_step: f64::MIN, sum: 0.0, count: 0.0, max: f64::MIN };

    fn note_time(&mut self, series: &MetricSeries, _: Option<f64>) {
        self.last_at = self.last_at.max(series.last_at);
    }

    fn is_fresh(&self, series: &MetricSeries) -> bool {
        self.last_at - series.last_at < RANK_FRESHNESS_MS
    }

    fn note_step(&mut self, series: &MetricSeries, step: Option<f64>) {
        if let Some(step) = step.filter(|_| self.is_fresh(series)) {
            self.furthest_step = self.furthest_step.max(step);
        }
    }

    /// A rank that prints no step is of every round.
    fn add_value(&mut self, series: &MetricSeries, step: Option<f64>) {
        if self.is_fresh(series) && step.is_none_or(|step| self.furthest_step - step <= MAX_STEPS_APART) {
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

/// What is done with the series of each rank and its step, one pass over all ranks after the other.
const COMBINING_PASSES: [fn(&mut CombinedMetric, &MetricSeries, Option<f64>); 3] =
    [CombinedMetric::note_time, CombinedMetric::note_step, CombinedMetric::add_value];

/// The combined values of the ranks that report any: the furthest step, the mean of the others; and the time of the last report.
pub(super) fn combine_rank_metrics<'a>(metric: u8, ranks: impl Iterator<Item = &'a TrainingMetrics> + Clone) -> Option<(f64, UnixMillis)> {
    let mut combined = CombinedMetric::NONE;
    let reported = ranks.filter_map(|rank| Some((rank.get(metric)?, rank.last_step())));
    for note in COMBINING_PASSES {
        reported.clone().for_each(|(series, step)| note(&mut combined, series, step));
    }
    combined.value(metric)
}

/// The same for every metric.
pub(super) fn combine_all_metrics<'a>(ranks: impl Iterator<Item = &'a TrainingMetrics> + Clone) -> BTreeMap<u8, (f64, UnixMillis)> {
    let mut all = [CombinedMetric::NONE; u8::MAX as usize + 1];
    for note in COMBINING_PASSES {
        for rank in ranks.clone() {
            let step = rank.last_step();
            rank.iter().for_each(|(metric, series)| note(&mut all[usize::from(metric)], series, step));
        }
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
mod tests {
    use super::super::metric_scanner::LOSS_INDEX;
    use super::super::training_metrics::record_values;
    use super::*;

    fn rank(values: &[(u8, f64)], at: UnixMillis) -> TrainingMetrics {
        let mut metrics = TrainingMetrics::default();
        record_values(&mut metrics, &values.to_vec(), at);
        metrics
    }

    #[test]
    fn only_ranks_of_the_newest_steps_count() {
        let of = |step: f64, loss: f64, at| rank(&[(STEP_INDEX, step), (LOSS_INDEX, loss)], at);
        let loss_only = rank(&[(LOSS_INDEX, 8.0)], 1_000);
        let ranks = [of(10.0, 2.0, 1_000), of(9.0, 3.0, 1_000), of(8.0, 70.0, 1_000), of(90.0, 500.0, 1_000 - RANK_FRESHNESS_MS)];
        let combined = |ranks: &[TrainingMetrics], metric| combine_rank_metrics(metric, ranks.iter()).map(|(value, _)| value);
        assert_eq!(combined(&ranks, STEP_INDEX), Some(10.0));
        assert_eq!(combined(&ranks, LOSS_INDEX), Some(2.5), "neither the rank that is behind nor the silent one");
        assert_eq!(combined(&[ranks[2].clone()], LOSS_INDEX), Some(70.0), "the only one that reports it");
        assert_eq!(combined(&[ranks[0].clone(), loss_only], LOSS_INDEX), Some(5.0), "a rank without a step is of every round");
    }
}
