//! Golden lines.

use super::*;
use crate::event::{Exit, LayerCounts, Outcome};
use crate::report::test_support::{SinkHarness, rank_exited, rank_log, run_started};

fn harness(logs: LogSelection) -> SinkHarness<PlainSink<Vec<String>>> {
    let sanitizer = Sanitizer::new(&["s3cret".to_owned()]);
    SinkHarness::new(PlainSink::new(Vec::new(), PlainSettings { sanitizer, logs, ..PlainSettings::default() }))
}

#[test]
fn failing_run_prints_expected_lines() {
    let mut harness = harness(LogSelection::MainRank);
    harness.emit_failing_run();
    let text = harness.sink.output().join("\n");
    assert_eq!(text, FAILING_RUN_OUTPUT.trim_start());
}

const FAILING_RUN_OUTPUT: &str = "
up wan22: 16 hosts, 32 ranks, run 20261121-0915-7f3a
facts        ok gpu[01-16] (0.8 s)
container    changed gpu[01-02]; ok gpu[03-16] (0.8 s)
workers      changed gpu[01-16] (0.8 s)
ready        32 ranks on 16 hosts (after 2.5 s)
             shown: rank 0 and the errors of the others; every rank: `orchestrate logs -f`
             Ctrl-C stops this run; `up -d` starts one that keeps running after the command ends
[rank 0 gpu01] step 1
[rank 0 gpu01] step 2
[rank 3 gpu02] Traceback (most recent call last):
[rank 3 gpu02] RuntimeError: CUDA error
rank 3 on gpu02: exit 1
first to fail: rank 3 on gpu02
stopping all ranks: rank 3 failed
TERM sent to the processes of the run on gpu[01-16]
ranks 0-2,4-6,8-31 on gpu[01-16]: stopped, signal 15 (TERM)
rank 7 on gpu04: stopped, signal 9 (KILL)
FAILED gpu16 remove: remove the container: docker: device or resource busy
  help: docker rm -f orchestrate-wan22
remove       FAILED gpu16; changed gpu[01-15] (0.1 s)
LEFTOVER on gpu16: container orchestrate-wan22: device or resource busy";

#[test]
fn equal_rank_lines_merge_in_order() {
    let mut harness = harness(LogSelection::All);
    harness.emit(0, run_started(4, 1, &[]));
    for rank in 0..4 {
        harness.emit(1, rank_log(rank, rank, 0, "loading\nloaded s3cret\nloading\n"));
    }
    assert_eq!(harness.sink.output().len(), 1, "they wait for each other");
    harness.emit(300, rank_log(2, 2, 30, "alone\n"));
    harness.emit(300, EventKind::Ready);
    let lines: Vec<&str> = harness.sink.output()[1..5].iter().map(String::as_str).collect();
    assert_eq!(lines, ["[rank 0-3] loading", "[rank 0-3] loaded ***", "[rank 0-3] loading", "[rank 2 gpu03] alone"]);
}

#[test]
fn progress_bar_is_thinned_with_last_state() {
    let mut harness = harness(LogSelection::MainRank);
    harness.emit(0, run_started(1, 2, &[]));
    harness.emit(0, rank_log(0, 0, 0, "start\n"));
    let mut offset = 6;
    for n in 0..100 {
        let text = format!("\r{n:3}%");
        harness.emit(300, rank_log(0, 0, offset, &text));
        offset += text.len() as u64;
    }
    harness.emit(0, EventKind::RunFinished { outcome: Outcome::Ok, reason: String::new() });
    let shown = &harness.sink.output()[1..];
    assert_eq!(shown.first().map(String::as_str), Some("[rank 0 gpu01] start"));
    assert_eq!(shown.last().map(String::as_str), Some("[rank 0 gpu01]  99%"));
    assert!(shown.len() <= 5, "{shown:?}");
}

#[test]
fn other_ranks_show_only_bounded_errors() {
    let mut harness = harness(LogSelection::MainRank);
    harness.emit(0, run_started(1, 2, &[]));
    let text: String = (0..1000)
        .map(|n| format!("step {n} loss 0.1\n[rank1]:     raise value error:\n    raise error\nValueError: number {n}\n"))
        .collect();
    let (head, rest) = text.split_at(1234);
    harness.emit(0, rank_log(1, 0, 0, head));
    harness.emit(0, rank_log(1, 0, 1234, rest));
    harness.finish();
    let shown = &harness.sink.output()[1..];
    assert_eq!(shown.len(), 40);
    assert_eq!(shown[39], "[rank 1 gpu01] ValueError: number 39 (further errors are only in the log)");
}

#[test]
fn reconnect_repeats_no_log_lines() {
    let mut harness = harness(LogSelection::Filtered(
        crate::text::rank_selection::RankSelection::parse("1").and_then(|one| one.resolve(&[], &[])).expect("a rank"),
    ));
    harness.emit(0, run_started(2, 1, &[]));
    harness.emit(0, rank_log(1, 1, 0, "one\ntw"));
    let error = "connection reset".to_owned();
    harness.emit(0, EventKind::HostLost { host: 1, error, hint: String::new(), will_retry: true });
    harness.emit(900, EventKind::HostConnected { host: 1, clock_offset: 0, uncertainty: 1 });
    harness.emit(300, rank_log(1, 1, 4, "two\n"));
    harness.emit(0, rank_exited(1, 1, Exit::Code(0), 1));
    harness.finish();
    let shown = &harness.sink.output()[1..];
    let expected = ["[rank 1 gpu02] one", "gpu02: no connection: connection reset; retrying", "gpu02: reconnected", "[rank 1 gpu02] two"];
    assert_eq!(shown, expected);
}

#[test]
fn unreachable_hosts_with_one_reason_merge() {
    let mut harness = harness(LogSelection::None);
    harness.emit(0, run_started(4, 1, &[]));
    (0..4).for_each(|host| harness.emit(0, EventKind::HostConnecting { host }));
    let refused = "key refused (tried ~/.ssh/id_ed25519, agent 3 keys)";
    for host in [0, 2] {
        harness.emit(400, EventKind::HostLost { host, error: refused.to_owned(), hint: String::new(), will_retry: false });
    }
    harness.emit(400, EventKind::HostConnected { host: 1, clock_offset: 0, uncertainty: 1 });
    harness.emit(300, EventKind::HostLost { host: 3, error: refused.to_owned(), hint: String::new(), will_retry: false });
    harness.emit(300, EventKind::HostLost { host: 1, error: "connection reset".to_owned(), hint: String::new(), will_retry: false });
    harness.finish();
    let expected =
        [format!("UNREACHABLE 3 hosts: {refused}"), "  gpu[01,03-04]".to_owned(), "UNREACHABLE gpu02: connection reset".to_owned()];
    assert_eq!(&harness.sink.output()[1..], expected);
}

#[test]
fn unreachable_host_reported_while_others_connect() {
    let mut harness = harness(LogSelection::None);
    harness.emit(0, run_started(3, 1, &[]));
    (0..3).for_each(|host| harness.emit(0, EventKind::HostConnecting { host }));
    for host in [0, 1] {
        harness.emit(200, EventKind::HostLost { host, error: "key refused".to_owned(), hint: String::new(), will_retry: false });
    }
    assert_eq!(harness.sink.output().len(), 1, "the third may say the same");
    harness.emit(10_500, EventKind::Ready);
    let expected = ["UNREACHABLE 2 hosts: key refused", "  gpu[01-02]"];
    assert_eq!(&harness.sink.output()[1..3], expected);
}

#[test]
fn host_text_is_sanitized_for_terminal() {
    let mut harness = harness(LogSelection::All);
    harness.emit(0, run_started(1, 1, &[(Phase::Pull, "pull\u{1b}[2J")]));
    let evil = "\u{1b}]0;x\u{7}a\nb\u{9b}31m s3cret".to_owned();
    harness.emit(0, EventKind::StepFailed { step: 0, error: evil.clone(), hint: evil.clone(), unreachable: false });
    harness.emit(0, EventKind::Notice { host: Some(0), text: evil.clone(), warn: true });
    harness.emit(0, EventKind::Leftover { host: 0, text: evil.clone(), unchecked: false });
    harness.emit(0, EventKind::GoalChanged { goal: RunGoal::Down, reason: evil.clone() });
    harness.emit(0, EventKind::HostLost { host: 0, error: evil.clone(), hint: String::new(), will_retry: false });
    harness.emit(0, rank_log(0, 0, 0, &format!("{evil}\n")));
    harness.finish();
    let text = harness.sink.output().join("\n");
    assert!(!text.chars().any(|c| c.is_control() && c != '\n') && !text.contains("s3cret"), "{text:?}");
    assert_eq!(text.matches("a; b ***").count(), 6, "{text}");
}

proptest::proptest! {
    #[test]
    fn secrets_are_masked_across_chunk_boundaries(cuts in proptest::collection::vec(0..60_usize, 0..6)) {
        let text = "\u{1b}[1mkey=s3cret\u{1b}[0m and s3cr\u{1b}[31met again\r\nlast s3cret";
        let mut cuts: Vec<usize> = cuts.into_iter().map(|at| at.min(text.len())).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let mut harness = harness(LogSelection::MainRank);
        harness.emit(0, run_started(1, 1, &[]));
        for pair in cuts.windows(2) {
            harness.emit(1, rank_log(0, 0, pair[0] as u64, &text[pair[0]..pair[1]]));
        }
        harness.finish();
        proptest::prop_assert_eq!(&harness.sink.output()[1..], ["[rank 0 gpu01] key=*** and *** again", "[rank 0 gpu01] last ***"]);
    }
}

#[test]
fn read_only_phases_report_ok() {
    let mut harness = harness(LogSelection::None);
    harness.emit(0, run_started(3, 1, &[(Phase::Preflight, "look"), (Phase::Remove, "remove")]));
    harness.emit(0, EventKind::StepSatisfied { step: 0, note: String::new() });
    harness.emit(0, EventKind::StepFailed { step: 1, error: "no docker".to_owned(), hint: "install it".to_owned(), unreachable: false });
    harness.emit(0, EventKind::StepStarted { step: 2 });
    harness.emit(0, EventKind::StepDone { step: 2, note: String::new() });
    for step in 3..6 {
        harness.emit(0, EventKind::StepSatisfied { step, note: String::new() });
    }
    let expected = [
        "FAILED gpu02 preflight: look: no docker",
        "  help: install it",
        "preflight    FAILED gpu02; ok gpu[01,03] (0.0 s)",
        "remove       ok gpu[01-03] (0.0 s)",
    ];
    assert_eq!(&harness.sink.output()[1..], expected);
}

#[test]
fn failed_phase_names_the_hosts_where_it_did_not_end() {
    let mut harness = harness(LogSelection::None);
    harness.emit(0, run_started(3, 1, &[(Phase::Task(2), "code"), (Phase::Task(2), "code")]));
    harness.emit(0, EventKind::StepStarted { step: 2 });
    harness.emit(0, EventKind::StepDone { step: 2, note: "one of two".to_owned() });
    harness.emit(0, EventKind::StepFailed { step: 0, error: "exit 3".to_owned(), hint: String::new(), unreachable: false });
    harness.emit(0, EventKind::RunFinished { outcome: Outcome::Failed, reason: String::new() });
    let expected = ["FAILED gpu01 task 2: code: exit 3", "task 2       code: FAILED gpu01; not finished gpu[02-03] (0.0 s)"];
    assert_eq!(&harness.sink.output()[1..], expected);
}

#[test]
fn next_run_logs_start_at_first_line() {
    let mut harness = harness(LogSelection::MainRank);
    let of = |run: &str| {
        let EventKind::RunStarted(mut info) = run_started(1, 1, &[]) else { unreachable!("a plan") };
        run.clone_into(&mut info.run_id);
        EventKind::RunStarted(info)
    };
    harness.emit(0, of("first"));
    harness.emit(0, rank_log(0, 0, 0, "step 1 of the first run\nstep 2 of the first run\n"));
    // A teardown is planned, the next run has no name yet: its logs are the first run's as before.
    harness.emit(0, of("first"));
    harness.emit(0, rank_log(0, 0, 0, "step 1 of the first run\n"));
    harness.emit(0, of(""));
    harness.emit(0, of("second"));
    harness.emit(0, rank_log(0, 0, 0, "step 1\n"));
    harness.finish();
    let shown: Vec<&str> = harness.sink.output().iter().filter(|line| line.starts_with('[')).map(String::as_str).collect();
    let expected = ["[rank 0 gpu01] step 1 of the first run", "[rank 0 gpu01] step 2 of the first run", "[rank 0 gpu01] step 1"];
    assert_eq!(shown, expected);
}

#[test]
fn exits_that_are_learned_together_are_in_the_order_of_their_times_with_their_causes() {
    let mut harness = harness(LogSelection::MainRank);
    harness.emit(0, run_started(2, 2, &[]));
    harness.emit(0, rank_exited(3, 1, Exit::Signal(15), 999_810));
    harness.emit(5, rank_exited(2, 1, Exit::Code(1), 999_740));
    harness.finish();
    let lines: Vec<&str> = harness.sink.output().iter().filter(|line| line.starts_with("rank ")).map(String::as_str).collect();
    assert_eq!(lines, ["rank 2 on gpu02: exit 1", "rank 3 on gpu02: stopped, signal 15 (TERM)"]);
}

#[test]
fn bare_hosts_have_a_keeper_instead_of_a_container() {
    for (title, expected) in [("start the keeper", "keeper       changed gpu01"), ("start the container", "container    changed gpu01")] {
        let mut harness = harness(LogSelection::MainRank);
        harness.emit(0, run_started(1, 1, &[(Phase::Container, title)]));
        harness.emit(0, EventKind::StepStarted { step: 0 });
        harness.emit(0, EventKind::StepDone { step: 0, note: String::new() });
        harness.finish();
        let lines = harness.sink.output();
        assert!(lines.last().is_some_and(|line| line.starts_with(expected)), "{lines:?}");
    }
}

#[test]
fn preflight_duration_includes_its_checks() {
    let mut harness = harness(LogSelection::MainRank);
    harness.emit(0, run_started(2, 1, &[]));
    harness.emit(0, EventKind::PhaseStarted { phase: Phase::Preflight });
    harness.emit(0, EventKind::PhaseStarted { phase: Phase::Connect });
    harness.emit(2300, run_started(2, 1, &[(Phase::Preflight, "check"), (Phase::Pull, "pull")]));
    harness.emit(0, EventKind::PhaseStarted { phase: Phase::Preflight });
    for step in 0..2 {
        harness.emit(50, EventKind::StepSatisfied { step, note: String::new() });
    }
    harness.emit(10, EventKind::PhaseStarted { phase: Phase::Pull });
    for step in 2..4 {
        harness.emit(100, EventKind::StepSatisfied { step, note: String::new() });
    }
    harness.finish();
    let lines: Vec<&str> = harness.sink.output().iter().skip(1).map(String::as_str).collect();
    assert_eq!(lines, ["preflight    ok gpu[01-02], without further checks (2.4 s)", "pull         ok gpu[01-02] (0.2 s)"]);
}

#[test]
fn pull_line_counts_layers() {
    for (layers, expected) in [
        ([12, 12], "pull         changed gpu[01-02] (12 layers, 0.2 s)"),
        ([1, 3], "pull         changed gpu[01-02] (1 to 3 layers, 0.2 s)"),
    ] {
        let mut harness = harness(LogSelection::MainRank);
        harness.emit(0, run_started(2, 1, &[(Phase::Pull, "pull")]));
        harness.emit(0, EventKind::PhaseStarted { phase: Phase::Pull });
        for (step, layers) in (0..).zip(layers) {
            harness.emit(0, EventKind::StepStarted { step });
            let counts = LayerCounts { layers, downloaded: layers, complete: layers };
            harness.emit(50, EventKind::PullProgress { step, counts });
            harness.emit(50, EventKind::StepDone { step, note: String::new() });
        }
        harness.finish();
        let lines: Vec<&str> = harness.sink.output().iter().skip(1).map(String::as_str).collect();
        assert_eq!(lines, [expected]);
    }
}

/// Another operator's run, which this command attaches to.
fn attached_harness(tail: usize) -> SinkHarness<PlainSink<Vec<String>>> {
    let mut harness = SinkHarness::new(PlainSink::new(Vec::new(), PlainSettings { history_lines: Some(tail), ..PlainSettings::default() }));
    harness.emit(0, run_started(2, 1, &[]));
    harness.emit(0, EventKind::RunEndReported { end: crate::event::RunOutcome::Running, ended_at: 0 });
    harness
}

fn log_of_rank_0() -> crate::event::LogFile {
    crate::event::LogFile::Rank { rank: 0, restart: 0 }
}

#[test]
fn attached_output_begins_with_the_last_lines() {
    let mut harness = attached_harness(3);
    let backlog: String = (1..=200_000).map(|step| format!("step {step:06}\n")).collect();
    let half = backlog.len() / 2;
    harness.emit(1, rank_log(0, 0, 0, &backlog[..half]));
    harness.emit(1, rank_log(0, 0, half as u64, &backlog[half..]));
    harness.emit(900, rank_log(0, 0, backlog.len() as u64, "step 200001\n"));
    assert_eq!(harness.sink.output().len(), 1, "the log is not current yet");
    harness.emit(0, EventKind::LogCurrent { host: 0, file: log_of_rank_0() });
    harness.emit(1, rank_log(0, 0, backlog.len() as u64 + 12, "step 200002\nstep 200003\nstep 200004\nstep 200005\n"));
    harness.emit(300, EventKind::Ready);
    let lines: Vec<String> = harness.sink.output()[1..].to_vec();
    assert_eq!(lines[0], "earlier log lines are not shown: `orchestrate logs` prints all, `--tail N` shows more");
    let expected: Vec<String> = (199_999..=200_005).map(|step| format!("[rank 0 gpu01] step {step}")).collect();
    assert_eq!(lines[1..8], expected, "three of the history, then all");
}

#[test]
fn whole_history_is_shown_if_short_or_paused() {
    let mut harness = attached_harness(5);
    harness.emit(1, rank_log(0, 0, 0, "one\ntwo\n"));
    harness.emit(1, EventKind::LogCurrent { host: 0, file: log_of_rank_0() });
    harness.emit(300, EventKind::Ready);
    assert_eq!(harness.sink.output()[1..3], ["[rank 0 gpu01] one", "[rank 0 gpu01] two"]);
    assert!(!harness.sink.output().concat().contains("not shown"));
    // A paused stream shows the lines that have arrived.
    let mut harness = attached_harness(5);
    harness.emit(1, rank_log(0, 0, 0, "one\n"));
    harness.emit(10_500, EventKind::Ready);
    assert!(harness.sink.output().contains(&"[rank 0 gpu01] one".to_owned()));
}

#[test]
fn launched_run_is_shown_from_its_first_line() {
    let mut harness = attached_harness(1);
    // Restarted by a key: another run, which this command launches.
    let EventKind::RunStarted(mut info) = run_started(2, 1, &[]) else { return };
    info.run_id = "20261122-0915-aaaa".to_owned();
    harness.emit(0, EventKind::RunStarted(info));
    harness.emit(1, rank_log(0, 0, 0, "one\ntwo\nthree\n"));
    harness.emit(300, EventKind::Ready);
    let shown = harness.sink.output().iter().filter(|line| line.starts_with("[rank 0")).count();
    assert_eq!(shown, 3);
}
