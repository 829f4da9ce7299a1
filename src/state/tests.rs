//! What the fold must hold to.

use bytes::Bytes;

use super::bounded_text::MAX_TEXT_BYTES;
use super::host_trace::MAX_TRACE_POINTS;
use super::*;
use crate::event::stop_orders::StopOrders;
use crate::event::{Exit, GpuSample, LogFile, RankInfo, StepInfo};

fn state_after_events(kinds: Vec<EventKind>) -> RunState {
    let (mut state, mut stop_orders) = (RunState::new(), StopOrders::default());
    for (at, mut kind) in (1_i64..).zip(kinds) {
        stop_orders.stamp(&mut kind, at * 1000);
        state.apply(&Event { seq: at.unsigned_abs(), at: at * 1000, kind });
    }
    state
}

fn run_started(hosts: &[&str], attempt: u32) -> EventKind {
    let step = |id: u32, host: u32, phase| StepInfo { id, host, phase, title: format!("step {id}") };
    EventKind::RunStarted(RunInfo {
        run_id: "r1".to_owned(),
        attempt,
        hosts: hosts.iter().map(|name| (*name).to_owned()).collect(),
        ranks: vec![RankInfo { rank: 0, host: 0, local_rank: 0 }, RankInfo { rank: 1, host: 1, local_rank: 0 }],
        steps: vec![step(0, 0, Phase::Facts), step(1, 0, Phase::Container), step(2, 1, Phase::Container)],
        ..RunInfo::default()
    })
}

fn rank_log(host: u32, rank: u32, restart: u32, offset: u64, text: &str) -> EventKind {
    EventKind::log(host, LogFile::Rank { rank, restart }, offset, text.to_owned())
}

fn rank_exited(host: u32, rank: u32, restart: u32, exit: Exit, at: UnixMillis) -> EventKind {
    EventKind::RankExited { host, rank, restart, exit, ended_at: at, uncertainty: 5, stopped: None }
}

#[test]
fn phase_counts_cover_all_plans() {
    let done = |step| EventKind::StepDone { step, note: String::new() };
    let state = state_after_events(vec![
        run_started(&["a", "b"], 1),
        EventKind::StepStarted { step: 0 },
        done(0),
        EventKind::StepStarted { step: 1 },
        done(1),
        EventKind::StepFailed { step: 2, error: "no".to_owned(), hint: String::new(), unreachable: false },
        run_started(&["b", "a"], 1),
        EventKind::StepSatisfied { step: 0, note: "there".to_owned() },
        done(1),
    ]);
    assert_eq!(state.phase_counts(1), PhaseCounts { ok: 1, changed: 1, failed: 0, skipped: 0 }, "a is the second host now");
    assert_eq!(state.phase_counts(0), PhaseCounts { ok: 1, changed: 0, failed: 1, skipped: 0 });
    let failed: Vec<(u32, &str)> = state.failed_steps().map(|step| (step.info.host, step.note.as_str())).collect();
    assert_eq!(failed, [(0, "no")], "a new plan does not hide it, and b is the first host now");
}

#[test]
fn phase_with_a_step_that_never_ran_is_not_ok() {
    let EventKind::RunStarted(mut plan) = run_started(&["a", "b"], 1) else { unreachable!("a plan") };
    // On each host the container is looked at, then started.
    plan.steps.extend([(3, 0), (4, 1)].map(|(id, host)| StepInfo { id, host, phase: Phase::Container, title: "start".to_owned() }));
    let looked_at = [1, 2].map(|step| EventKind::StepSatisfied { step, note: String::new() });
    let failed = EventKind::StepFailed { step: 3, error: "no".to_owned(), hint: String::new(), unreachable: false };
    let state = state_after_events([vec![EventKind::RunStarted(plan)], looked_at.to_vec(), vec![failed]].concat());
    assert_eq!(state.phase_results(Phase::Container), [(summary::PhaseResult::Failed, [0].into())].into());
    assert_eq!(state.phase_counts(1), PhaseCounts::default(), "b was not started");
}

#[test]
fn moved_rank_belongs_to_new_host() {
    let started = |host, when| EventKind::RankStarted { host, rank: 0, restart: 0, started_at: when };
    let first_life =
        vec![run_started(&["a", "b"], 1), started(0, 1000), rank_log(0, 0, 0, 0, "old\n"), rank_exited(0, 0, 0, Exit::Signal(15), 2000)];
    let moved = vec![started(1, 3000), rank_exited(0, 0, 0, Exit::Signal(15), 2000), rank_log(1, 0, 0, 0, "new\n")];
    let state = state_after_events([first_life.clone(), moved.clone()].concat());
    let rank = &state.ranks[&0];
    assert_eq!((rank.host, rank.exit, rank.recent_lines.last_lines(5)), (1, None, vec!["new".to_owned()]));
    // A later attach gets both lives in any order.
    let state = state_after_events(
        [vec![run_started(&["a", "b"], 1)], moved, first_life[1..].to_vec(), vec![rank_exited(1, 0, 0, Exit::Code(0), 4000)]].concat(),
    );
    let rank = &state.ranks[&0];
    assert_eq!((rank.host, rank.exit, rank.recent_lines.last_lines(5)), (1, Some(Exit::Code(0)), vec!["new".to_owned()]));
}

#[test]
fn ranks_start_fail_and_restart() {
    let state = state_after_events(vec![
        run_started(&["a", "b"], 1),
        EventKind::RankStarted { host: 0, rank: 0, restart: 0, started_at: 0 },
        rank_log(0, 0, 0, 0, "old\n"),
        rank_exited(0, 0, 0, Exit::Signal(9), 9000),
        EventKind::RankStarted { host: 1, rank: 0, restart: 1, started_at: 0 },
        rank_log(1, 0, 1, 0, "new\nhal"),
        rank_log(0, 0, 0, 4, "late\n"),
        rank_exited(1, 1, 0, Exit::Code(1), 7000),
        rank_exited(1, 0, 1, Exit::Code(3), 8000),
    ]);
    let rank = &state.ranks[&0];
    assert_eq!((rank.host, rank.restart, rank.exit, rank.duration()), (1, 1, Some(Exit::Code(3)), Some(3000)));
    assert_eq!(rank.recent_lines.last_lines(5), ["new", "hal"]);
    assert_eq!(state.failed_ranks().iter().map(|rank| rank.rank).collect::<Vec<_>>(), [1, 0], "the first to end comes first");
    assert_eq!(state.rank_counts(), RankCounts { failed: 2, ..RankCounts::default() });
}

#[test]
fn new_attempt_clears_ranks_keeps_hosts() {
    let state = state_after_events(vec![
        run_started(&["a", "b"], 1),
        EventKind::HostConnected { host: 1, clock_offset: -20, uncertainty: 3 },
        rank_exited(1, 1, 0, Exit::Code(1), 7000),
        EventKind::Culprit { ranks: vec![1], hosts: vec![1] },
        run_started(&["a", "b"], 2),
    ]);
    assert_eq!(state.culprit, None);
    assert_eq!(state.rank_counts(), RankCounts { waiting: 2, ..RankCounts::default() });
    assert_eq!(state.hosts[1].clock_offset, Some((-20, 3)));
}

#[test]
fn impossible_events_change_nothing() {
    let state = state_after_events(vec![
        EventKind::HostConnected { host: 9, clock_offset: 0, uncertainty: 0 },
        EventKind::StepDone { step: 3, note: String::new() },
        rank_exited(4, u32::MAX, 0, Exit::Killed, 0),
        rank_log(7, 1, 0, u64::MAX, "x"),
        EventKind::Log { host: 7, file: LogFile::Launcher, offset: 0, bytes: Bytes::new(), len: u64::MAX },
        EventKind::Gpus { host: 2, gpus: Vec::new().into() },
    ]);
    assert!(state.ranks.is_empty() && state.hosts.is_empty() && state.step_tracker.steps().is_empty());
}

#[test]
fn values_of_a_gpu_are_found_in_rounds_without_others() {
    let round = |indexes: &[u32]| {
        let gpus = indexes.iter().map(|index| GpuSample { index: *index, utilization: Some(10.0 + *index as f32), ..GpuSample::default() });
        EventKind::Gpus { host: 0, gpus: gpus.collect() }
    };
    let rounds = [run_started(&["a"], 1), round(&[0, 1, 2]), round(&[0, 2]), round(&[2, 5])];
    let state = state_after_events(rounds.to_vec());
    let values = |gpu| state.hosts[0].gpu_trace(gpu).map(|point| point.utilization).collect::<Vec<_>>();
    assert_eq!((values(0).len(), values(1).len(), values(2), values(5)), (2, 1, vec![Some(12.0); 3], vec![Some(15.0)]));
    let known: Vec<bool> = state.hosts[0].gpu_rounds(0).map(|point| point.is_some()).collect();
    assert_eq!(known, [true, true, false], "a graph has a gap where the GPU was missing");
    assert_eq!(state.hosts[0].traced_gpus(), [0, 1, 2, 5].into());
    let many = state_after_events([vec![run_started(&["a"], 1)], vec![round(&[0, 1]); MAX_TRACE_POINTS + 7]].concat());
    assert_eq!(many.hosts[0].gpu_trace(1).count(), MAX_TRACE_POINTS);
}

#[test]
fn log_ranges_without_bytes_are_counted() {
    let range = EventKind::Log { host: 0, file: LogFile::Rank { rank: 0, restart: 0 }, offset: 0, bytes: Bytes::new(), len: 1 << 30 };
    let state = state_after_events(vec![run_started(&["a", "b"], 1), range]);
    assert_eq!((state.ranks[&0].recent_lines.next_offset, state.ranks[&0].recent_lines.last_lines(5).len()), (1 << 30, 0));
}

#[test]
fn long_texts_are_truncated() {
    let long = || "é".repeat(1 << 20);
    let state = state_after_events(vec![
        run_started(&["a", "b"], 1),
        EventKind::StepFailed { step: 0, error: long(), hint: long(), unreachable: false },
        EventKind::Notice { host: None, text: long(), warn: false },
        EventKind::HostLost { host: 0, error: long(), hint: String::new(), will_retry: false },
        EventKind::Leftover { host: 0, text: long(), unchecked: false },
    ]);
    let step = state.failed_steps().next().expect("it failed");
    for text in [&step.note, &step.hint, &state.notices[0].text, &state.hosts[0].connection_error, &state.leftovers[0].text] {
        assert!(text.len() <= MAX_TEXT_BYTES + 3 && text.ends_with("é…"));
    }
}

#[test]
fn notices_and_leftovers_are_bounded() {
    let mut kinds = Vec::new();
    for n in 0..3000 {
        kinds.push(EventKind::Notice { host: None, text: format!("{n}"), warn: false });
        kinds.push(EventKind::Leftover { host: 0, text: format!("{}", n / 2), unchecked: false });
    }
    let state = state_after_events(kinds);
    assert_eq!((state.notices.len(), state.leftovers.len()), (MAX_NOTICES, MAX_LEFTOVERS));
}

#[test]
fn stopped_ranks_are_not_failed() {
    let state = state_after_events(vec![
        run_started(&["a", "b"], 1),
        rank_exited(1, 1, 0, Exit::Code(1), 1900),
        EventKind::Culprit { ranks: vec![1], hosts: vec![1] },
        EventKind::GoalChanged { goal: RunGoal::Stop, reason: "rank 1 failed".to_owned() },
        EventKind::RanksSignaled { host: 0, signal: "TERM".to_owned() },
        EventKind::RanksSignaled { host: 1, signal: "TERM".to_owned() },
        rank_exited(0, 0, 0, Exit::Signal(15), 6000),
    ]);
    assert_eq!(state.rank_counts(), RankCounts { failed: 1, stopped: 1, ..RankCounts::default() });
    assert_eq!(state.failed_ranks().iter().map(|rank| rank.rank).collect::<Vec<_>>(), [1]);
}

#[test]
fn log_lines_update_training_metrics() {
    let mut state = RunState::new();
    let mut apply = |at: i64, kind| state.apply(&Event { seq: 1, at, kind });
    let EventKind::RunStarted(info) = run_started(&["a", "b"], 1) else { panic!("a plan is a start") };
    let metrics = [("reward".to_owned(), "reward ([0-9.]+)".to_owned())].into();
    apply(0, EventKind::RunStarted(RunInfo { metrics, ..info }));
    let mut ends = [0, 0];
    for (n, at) in (1..=30_i64).zip((1000..).step_by(1500)) {
        for rank in 0..2_u32 {
            let end = if n > 1 { "\n" } else { "" };
            let text = format!("{end}step {n} loss {}.5 reward {rank}\n\r{:>3}%|# | {n}/30 [00:01<00:29, 1.00it/s]", 30 - n, n * 100 / 30);
            apply(at, rank_log(rank, rank, 0, ends[rank as usize], &text));
            ends[rank as usize] += text.len() as u64;
        }
    }
    let rank = &state.ranks[&1];
    let values: Vec<(&str, f64)> = rank.metrics.iter().map(|(metric, series)| (state.metric_name(metric), series.last)).collect();
    assert_eq!(values, [("step", 30.0), ("loss", 0.5), ("it/s", 1.0), ("reward", 1.0)]);
    let bar = rank.progress.expect("it draws one");
    assert_eq!((bar.done_of_total, bar.seconds_left), (Some((30, 30)), Some(29)));
    let run = [metric_scanner::STEP_INDEX, metric_scanner::LOSS_INDEX, 6]
        .map(|metric| state.combined_metrics().get(&metric).map(|(value, _)| *value));
    assert_eq!(run, [Some(30.0), Some(0.5), Some(0.5)], "the furthest step, the mean of the others");
    assert_eq!(state.combined_metrics().len(), state.metrics.iter().count());
    let course: Vec<f32> = state.metrics.get(metric_scanner::LOSS_INDEX).expect("a loss").points().collect();
    assert_eq!(
        course,
        (1..30_u8).rev().map(|n| f32::from(n) + 0.5).collect::<Vec<_>>(),
        "a point is a round of all ranks, once the next begins"
    );
}
