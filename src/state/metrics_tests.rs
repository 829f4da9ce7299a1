//! Metrics in the lines of trainers, and lines without any.

use proptest::prelude::*;

use super::*;
use crate::state::metric_scanner::{BUILT_IN_METRICS, MetricScanner};

fn scan_to_pairs(own: &[(&str, &str)], line: &str) -> Vec<(String, f64)> {
    let scanner = MetricScanner::new(&own.iter().map(|(name, pattern)| ((*name).to_owned(), (*pattern).to_owned())).collect());
    let mut found = MetricValues::new();
    scanner.scan_line(line.as_bytes(), &mut found);
    found.sort_by_key(|(metric, _)| *metric);
    found.iter().map(|(metric, value)| (scanner.metric_name(*metric).to_owned(), *value)).collect()
}

#[test]
fn trainer_log_lines_are_parsed() {
    for (line, expected) in [
        ("step 1180 loss 2.318 lr 3.0e-4 tok/s 12874 gnorm 0.31", "step=1180 loss=2.318 tokens/s=12874 lr=0.0003 grad_norm=0.31"),
        ("iter 100: loss 2.3182, time 123.45ms, mfu 12.3%", "step=100 loss=2.3182"),
        ("step 1000: train loss 1.2345, val loss 1.5", "step=1000 loss=1.2345"),
        ("{'loss': 2.3182, 'grad_norm': 0.31, 'learning_rate': 3e-04, 'epoch': 0.5}", "loss=2.3182 lr=0.0003 grad_norm=0.31"),
        ("{'loss': '2.318', 'learning_rate': '3e-04'}", "loss=2.318 lr=0.0003"),
        (
            " iteration      100/  500000 | elapsed time per iteration (ms): 1234.5 | learning rate: 1.500E-04 | lm loss: 7.123456E+00 | loss scale: 1.0 | grad norm: 0.310 |",
            "step=100 loss=7.123456 lr=0.00015 grad_norm=0.31",
        ),
        (
            "step: 10  loss:  7.1234  grad_norm:  1.2  memory: 50.1GiB(63%)  tps: 5,234  tflops: 31",
            "step=10 loss=7.1234 tokens/s=5234 grad_norm=1.2",
        ),
        ("[Rank 0] step=10, skipped=0, lr=[0.0001], mom=[(0.9, 0.95)]", "step=10 lr=0.0001"),
        ("Epoch 0:  37%|####      | 371/1000 [00:11<00:19, 32.9it/s, train_loss=2.31]", "loss=2.31 it/s=32.9"),
        ("  5%|5 | 5/100 [00:10<03:10, 2.00s/it]", "it/s=0.5"),
        ("12.9k tok/s at step 7", "step=7 tokens/s=12900"),
        ("speed: 51,234 tokens/s, loss=nan", "loss=NaN tokens/s=51234"),
        ("[rank 3] step 4/18 loss 3.660 51234 tokens/s", "step=4 loss=3.66 tokens/s=51234"),
        ("step_time 0.3 losses 4 eval_loss 2.2 eval loss: 2.2 stepping 3 lrs 5", ""),
        ("loss of contact at step twelve; 3 steps/s; commit step 3a5f", ""),
    ] {
        let found: Vec<String> = scan_to_pairs(&[], line).iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(found.join(" "), expected, "{line}");
    }
}

#[test]
fn only_floods_are_sampled() {
    let mut reading = LineSampler::default();
    let read =
        |reading: &mut LineSampler, second: i64, lines: usize| (0..lines).filter(|_| reading.should_scan(second * 1000 + 500)).count();
    assert_eq!(read(&mut reading, 1, 64), 64);
    assert_eq!(read(&mut reading, 2, 64), 64, "each second starts from zero");
    assert_eq!(read(&mut reading, 3, 1_700), 64 + 100 - 3);
}

#[test]
fn custom_patterns_override_built_in_metrics() {
    let own = [("reward", r"reward[ =]+([-0-9.]+)"), ("loss", r"total ([0-9.]+)"), ("broken", "("), ("two", "(a)(b)")];
    assert_eq!(scan_to_pairs(&own, "loss 9.0 total 2.5 reward -3.25 ab"), [("loss".to_owned(), 2.5), ("reward".to_owned(), -3.25)]);
}

#[test]
fn progress_bars_are_parsed() {
    let step = |line: &str, at| parse_step_of_total(line.as_bytes(), at);
    assert_eq!(
        ["step 1180/4000 loss 2.3", "iteration       12/   100 | loss", "step 5 / 4", "loss 3/4", "step 1.5/4"]
            .map(|line| step(line, 7).and_then(|step| step.done_of_total)),
        [Some((1180, 4000)), Some((12, 100)), None, None, None]
    );
    let later = |line: &str, at, before: &TrainingProgress| step(line, at).expect("a step").after(Some(before), None);
    let first = step("step 100/400", 1_000).expect("a step").after(None, None);
    let second = later("step 110/400", 21_000, &first);
    assert_eq!((first.seconds_left, second.seconds_left), (None, Some(580)), "ten steps took 20 s, 290 are left");
    assert_eq!(later("step 1/400", 22_000, &second).seconds_left, None, "it began again");
    // The first step takes 10 minutes, the others 10 seconds: what is left is known 5 minutes later.
    let start = (step("step 0/1000", 0).expect("a step").after(None, None), Vec::new());
    let (_, left) = (1..=36_u8).fold(start, |(before, mut left), n| {
        let next = later(&format!("step {n}/1000"), 590_000 + i64::from(n) * 10_000, &before);
        left.push(next.seconds_left.expect("known") / i64::from(1000 - u16::from(n)));
        (next, left)
    });
    assert_eq!((left[0], left[35]), (600, 10), "seconds a step: {left:?}");
    // An attach to a run that started long ago: the lines of before come at once.
    let started = Some(-600_000);
    let attached = |line: &str, at, before: Option<&TrainingProgress>| step(line, at).expect("a step").after(before, started);
    let old = attached("step 100/400", 1_000, None);
    let tail = attached("step 190/400", 1_200, Some(&old));
    let live = attached("step 191/400", 9_000, Some(&tail));
    assert_eq!((tail.seconds_left, live.seconds_left), (None, Some(1630)), "90 steps in 0.2 s are no speed");
    let bar = |line: &str| parse_progress(line.as_bytes(), 7).map(|p| (p.percent, p.done_of_total, p.seconds_left));
    assert_eq!(bar(" 37%|####      | 371/1000 [00:11<00:19, 32.9it/s]"), Some((37.0, Some((371, 1000)), Some(19))));
    assert_eq!(bar("eval: 12%|# | 12/100 [1:00:00<07:20:00,  4.0s/it]"), Some((12.0, Some((12, 100)), Some(26_400))));
    assert_eq!(bar("371/1000 [00:11<?, ?it/s]"), Some((37.1, Some((371, 1000)), None)));
    assert_eq!(bar("Training ━━━━━╸━━━  62% 0:01:05"), Some((62.0, None, Some(65))));
    assert_eq!(bar("  5%|5    | 1/18 [00:01]"), Some((5.0, Some((1, 18)), None)));
    for line in ["memory 63% used", "see 3/4 [note]", "100%", "a/b [00:01]", "step 3/18 loss 2.0", ""] {
        assert_eq!(bar(line), None, "{line}");
    }
}

#[test]
fn series_covers_all_values_within_bound() {
    let mut series = MetricSeries::new(8);
    for n in 0..1000_i32 {
        series.push(f64::from(n), i64::from(n));
    }
    let points: Vec<f32> = series.points().collect();
    assert!(points.len() <= 8 && points.len() >= 4, "{points:?}");
    assert!(points[0] < 130.0 && points[points.len() - 1] > 700.0 && points.is_sorted(), "{points:?}");
    assert_eq!((series.last, series.last_at), (999.0, 999));
}

proptest! {
    #[test]
    fn scanner_accepts_arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut found = MetricValues::new();
        MetricScanner::new(&BTreeMap::new()).scan_line(&bytes, &mut found);
        parse_progress(&bytes, 0);
    }

    #[test]
    fn scanner_accepts_shuffled_line_fragments(parts in proptest::collection::vec(proptest::sample::select(vec![
        "loss", "step", "it/s", "s/it", "tok/s", " ", "=", ":", "-", "+", ".", ",", "1", "99", "000", "e", "nan", "[", "%", "|", "/", "<", ":", "k", "━", "val ",
    ]), 0..40)) {
        let line = parts.concat();
        let mut found = MetricValues::new();
        MetricScanner::new(&BTreeMap::new()).scan_line(line.as_bytes(), &mut found);
        prop_assert!(found.len() <= BUILT_IN_METRICS.len());
        if let Some(bar) = parse_progress(line.as_bytes(), 0) {
            prop_assert!((0.0..=100.0).contains(&bar.percent));
        }
    }
}
