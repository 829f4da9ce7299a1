//! Golden recaps.

use super::*;
use crate::diagnose::DiagnosisFinding;
use crate::event::{EventKind, Exit, LogFile, Outcome, Phase, RunGoal};
use crate::inventory::diagnosis_rules::Blame;
use crate::inventory::localized_template::{LocalizedTemplate, TemplateValues};
use crate::model::ADDRESS_NOT_FOUND_HINT;
use crate::report::ReportSink;
use crate::report::test_support::{SinkHarness, rank_exited, recap_context, run_started};

/// A sink that shows nothing.
struct NullSink;

impl ReportSink for NullSink {
    fn on_event(&mut self, _event: &crate::event::Event, _state: &RunState) -> std::io::Result<()> {
        Ok(())
    }

    fn finish(&mut self, _state: &RunState) -> std::io::Result<()> {
        Ok(())
    }
}

fn render(harness: &SinkHarness<NullSink>) -> String {
    render_recap(&harness.state, &recap_context()).join("\n")
}

#[test]
fn failed_run_recap() {
    let mut harness = SinkHarness::new(NullSink);
    harness.emit_failing_run();
    assert_eq!(render(&harness), FAILED_RUN_RECAP.trim_start_matches('\n'));
}

const FAILED_RUN_RECAP: &str = "
RECAP  up wan22  LEFTOVERS  after 9.0 s
  reason    rank 3 failed
  run       FAILED
  ranks     0 ok  1 failed  31 stopped of 32
  host        phases ok  changed  failed  ranks
  gpu01               1        3       0  2 stopped
  gpu02               1        3       0  1 failed: exit 1, 1 stopped
  gpu[03-15]          2        2       0  2 stopped each
  gpu16               2        1       1  2 stopped
  FAILED    gpu16
            remove: remove the container: docker: device or resource busy
            help: docker rm -f orchestrate-wan22
  FIRST     rank 3 on gpu02: exit 1 after 5.0 s
    | step 1
    | Traceback (most recent call last):
    | RuntimeError: CUDA error
  others    ranks 0-2,4-6,8-31: stopped, signal 15 (TERM)
            rank 7: stopped, signal 9 (KILL)
  LEFTOVER  gpu16: container orchestrate-wan22: device or resource busy
  logs      /state/runs/r/logs
  next      orchestrate down wan22.yaml";

#[test]
fn successful_run_of_128_hosts_is_short() {
    let mut harness = SinkHarness::new(NullSink);
    harness.emit(0, run_started(128, 8, &[(Phase::Facts, "look around"), (Phase::Container, "start the container")]));
    for step in 0..256 {
        harness.emit(0, EventKind::StepSatisfied { step, note: String::new() });
    }
    for rank in 0..1024 {
        harness.emit(0, EventKind::RankStarted { host: rank / 8, rank, restart: 0, started_at: 0 });
    }
    for rank in 0..1024 {
        harness.emit(10, rank_exited(rank, rank / 8, Exit::Code(0), 1_010_000));
    }
    harness.emit(0, EventKind::RunFinished { outcome: Outcome::Ok, reason: String::new() });
    let expected = "\
RECAP  up wan22  OK  after 10 s
  ranks     1024 ok  0 failed of 1024
  host                     phases ok  changed  failed  ranks
  gpu[01-99],gpu[100-128]          2        0       0  8 ok each
  logs      /state/runs/r/logs";
    assert_eq!(render(&harness), expected);
}

#[test]
fn errors_of_a_launcher_in_a_good_run_are_explained() {
    let recap = |line: &'static [u8], exit: Exit| {
        let mut harness = SinkHarness::new(NullSink);
        harness.emit(0, run_started(2, 1, &[(Phase::Workers, "launch")]));
        harness.emit(0, EventKind::log(1, LogFile::Launcher, 0, line));
        harness.emit(10, rank_exited(0, 0, Exit::Code(0), 1_010_000));
        harness.emit(0, rank_exited(1, 1, exit, 1_010_000));
        harness.emit(0, EventKind::RunFinished { outcome: Outcome::Ok, reason: String::new() });
        render(&harness)
    };
    let note = "  note      every rank ended with exit 0; the launcher's log on gpu02 has lines\n            that look like errors";
    assert!(recap(b"[E1129] rendezvous Error: peer gone\n", Exit::Code(0)).contains(note));
    assert!(!recap(b"all workers joined\n", Exit::Code(0)).contains("note"), "no error line");
    assert!(!recap(b"[E1129] rendezvous Error: peer gone\n", Exit::Code(1)).contains("note"), "a rank failed");
}

#[test]
fn refused_run_says_that_no_rank_was_started() {
    let mut harness = SinkHarness::new(NullSink);
    harness.emit(0, run_started(2, 0, &[(Phase::Preflight, "look")]));
    harness.emit(0, EventKind::RunFinished { outcome: Outcome::Refused, reason: "gpu01: no disk".to_owned() });
    assert!(render(&harness).contains("  reason    gpu01: no disk\n  ranks     this command started none"), "{}", render(&harness));
}

#[test]
fn simultaneous_failures_are_both_named() {
    let mut harness = SinkHarness::new(NullSink);
    harness.emit(0, run_started(3, 1, &[(Phase::Preflight, "look")]));
    harness.emit(0, EventKind::RankStarted { host: 0, rank: 0, restart: 0, started_at: 0 });
    harness.emit(2000, rank_exited(0, 0, Exit::Signal(11), 1_002_000));
    harness.emit(0, rank_exited(1, 1, Exit::Killed, 1_002_001));
    harness.emit(0, EventKind::Culprit { ranks: vec![0, 1], hosts: vec![0, 1] });
    let error = "no answer from 10.0.0.3:22 within 10 s, and this text is much longer than a line of the page may ever be".to_owned();
    harness.emit(0, EventKind::HostLost { host: 2, error, hint: String::new(), will_retry: false });
    harness.emit(0, EventKind::GoalChanged { goal: RunGoal::Stop, reason: "rank 0 failed".to_owned() });
    harness.emit(0, EventKind::RunFinished { outcome: Outcome::Unreachable, reason: "gpu03 was lost".to_owned() });
    let expected = "\
RECAP  up wan22  UNREACHABLE  after 2.0 s
  reason    gpu03 was lost
  run       FAILED
  ranks     0 ok  2 failed  1 not started of 3
  host   phases ok  changed  failed  ranks
  gpu01          0        0       0  1 failed: signal 11 (SEGV)
  gpu02          0        0       0  1 failed: killed, no exit code
  gpu03          0        0       0  UNREACHABLE
  UNREACHABLE gpu03
            no answer from 10.0.0.3:22 within 10 s, and this text is much longer
            than a line of the page may ever be
  FIRST ?   rank 0 on gpu01: signal 11 (SEGV) after 2.0 s
  FIRST ?   rank 1 on gpu02: killed, no exit code
            they failed too close together for the clocks to order them
  logs      /state/runs/r/logs
  next      ssh gpu03";
    assert_eq!(render(&harness), expected);
}

#[test]
fn launch_that_lost_a_host_can_go_on_without_it() {
    let mut harness = SinkHarness::new(NullSink);
    harness.emit(0, run_started(3, 1, &[(Phase::Preflight, "look")]));
    harness.emit(0, EventKind::HostLost { host: 1, error: "no answer".to_owned(), hint: String::new(), will_retry: false });
    harness.emit(0, EventKind::RunFinished { outcome: Outcome::Unreachable, reason: "gpu02 was lost".to_owned() });
    let recap = render(&harness);
    assert!(recap.ends_with("\n  next      ssh gpu02\n  retry     orchestrate up wan22.yaml\n  skip it   orchestrate up wan22.yaml --limit '!gpu02'\n            (with fewer ranks)"), "{recap}");
}

#[test]
fn unverified_host_comes_with_its_remedy() {
    for (hint, next) in [(ADDRESS_NOT_FOUND_HINT, ""), ("check that the host is up", "\n  next      ssh gpu02")] {
        let mut harness = SinkHarness::new(NullSink);
        harness.emit(0, run_started(2, 1, &[(Phase::Verify, "verify")]));
        harness.emit(0, EventKind::HostLost { host: 1, error: "no way there".to_owned(), hint: hint.to_owned(), will_retry: false });
        harness.emit(0, EventKind::Leftover { host: 1, text: "what is left there is unknown".to_owned(), unchecked: true });
        harness.emit(0, EventKind::RunFinished { outcome: Outcome::Leftovers, reason: String::new() });
        let recap = render(&harness);
        assert!(recap.starts_with("RECAP  up wan22  INCOMPLETE"), "{recap}");
        let flat = recap.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(&format!("no way there help: {hint} ")), "{recap}");
        assert!(flat.contains("UNCHECKED gpu02: what is left there is unknown "), "{recap}");
        assert!(recap.ends_with(&format!("{next}\n  retry     orchestrate down wan22.yaml")), "{recap}");
    }
}

#[test]
fn cleanup_is_claimed_only_where_every_host_was_looked_at() {
    let recap_of = |end: &dyn Fn(u32) -> EventKind| {
        let mut harness = SinkHarness::new(NullSink);
        harness.emit(0, run_started(2, 1, &[(Phase::Verify, "verify")]));
        harness.emit(0, EventKind::StepSatisfied { step: 0, note: String::new() });
        harness.emit(0, end(1));
        harness.emit(0, EventKind::RunFinished { outcome: Outcome::Ok, reason: String::new() });
        render(&harness)
    };
    let verified = recap_of(&|step| EventKind::StepSatisfied { step, note: String::new() });
    assert!(verified.contains("\n  cleanup   nothing is left on gpu[01-02]\n"), "{verified}");
    let skipped = recap_of(&|step| EventKind::StepSkipped { step, note: String::new() });
    assert!(!skipped.contains("cleanup"), "{skipped}");
}

#[test]
fn failed_step_names_the_log_to_read() {
    let logs = |host: &str| format!("  next      orchestrate logs wan22.yaml --host {host}");
    for (phase, is_logged, expected) in [
        (Phase::Task(2), true, logs("gpu02")),
        (Phase::Task(2), false, "  retry     orchestrate up wan22.yaml".to_owned()),
        (Phase::Workers, false, logs("gpu01")),
        (Phase::Pull, false, "ranks".to_owned()),
    ] {
        let mut harness = SinkHarness::new(NullSink);
        harness.emit(0, run_started(2, 1, &[(phase, "step")]));
        if is_logged {
            harness.emit(0, EventKind::log(1, LogFile::Task { number: 2 }, 0, "no such file\n"));
        }
        harness.emit(0, EventKind::StepFailed { step: 1, error: "exit 4".to_owned(), hint: String::new(), unreachable: false });
        harness.emit(0, EventKind::RunFinished { outcome: Outcome::Failed, reason: String::new() });
        let recap = render(&harness);
        assert!(recap.contains(&expected), "{recap}");
        assert_eq!(recap.contains("  next  "), expected.contains("  next  "), "{recap}");
    }
}

#[test]
fn recap_bounds_many_different_failures() {
    let mut harness = SinkHarness::new(NullSink);
    harness.emit(0, run_started(500, 2, &[(Phase::Pull, "pull")]));
    for step in 0..500_u32 {
        let error = format!("{} trouble number {step} {}", "long ".repeat(step as usize % 40), "x".repeat(step as usize));
        harness.emit(0, EventKind::StepFailed { step, error, hint: format!("hint {step}"), unreachable: false });
        harness.emit(0, EventKind::Leftover { host: step, text: format!("container {step}"), unchecked: false });
        harness.emit(0, rank_exited(step, step / 2, Exit::Code(1 + step as i32 % 90), 1));
    }
    harness.emit(0, EventKind::RunFinished { outcome: Outcome::Leftovers, reason: "x".repeat(500) });
    for (columns, width) in [(Some(40), 80), (Some(80), 80), (Some(110), 110), (Some(300), 120), (None, 120)] {
        let lines = render_recap(&harness.state, &RecapContext { columns, ..recap_context() });
        assert!(lines.len() < 250, "{}", lines.len());
        let widths = lines.iter().map(|line| unicode_width::UnicodeWidthStr::width(line.as_str()));
        assert_eq!(widths.max(), Some(width), "{columns:?}");
    }
}

/// The commands of a remedy stay on one line each, so that they can be pasted.
#[test]
fn remedies_are_never_cut() {
    let words = "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or make the batch smaller, or shard the optimizer over more ranks";
    let command = format!("orchestrate exec wan22.yaml -- sh -c '{}'", "nvidia-smi -q ".repeat(8));
    let chinese = "显存已满".repeat(30);
    for hint in [words.to_owned(), format!("{words}; {command}"), chinese] {
        let mut harness = SinkHarness::new(NullSink);
        harness.emit(0, run_started(1, 1, &[(Phase::Pull, "pull")]));
        harness.emit(0, EventKind::StepFailed { step: 0, error: "x".to_owned(), hint: hint.clone(), unreachable: false });
        harness.emit(0, EventKind::RunFinished { outcome: Outcome::Failed, reason: String::new() });
        let text = render(&harness);
        let without_spaces = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
        assert!(without_spaces(&text).contains(&without_spaces(&hint)), "{text}");
        assert!(!hint.contains(&command) || text.contains(command.trim_end()), "{text}");
    }
}

fn finding() -> DiagnosisFinding {
    DiagnosisFinding {
        rule: "disk-full".to_owned(),
        blame: Blame::Cause,
        ranks: Vec::new(),
        hosts: Vec::new(),
        evidence: Vec::new(),
        values: TemplateValues::default(),
        summary: LocalizedTemplate::default(),
        explanation: LocalizedTemplate::default(),
        next_step: LocalizedTemplate::default(),
        affected: Vec::new(),
    }
}

/// A finding about the error of a step says what to do; the step's own advice would be a second one.
#[test]
fn failed_step_has_one_remedy() {
    let mut harness = SinkHarness::new(NullSink);
    harness.emit(0, run_started(1, 1, &[(Phase::Pull, "pull the image")]));
    let error = "docker: no space left on device\nexit 1".to_owned();
    harness.emit(0, EventKind::StepFailed { step: 0, error, hint: "pull it by hand".to_owned(), unreachable: false });
    harness.emit(0, EventKind::RunFinished { outcome: Outcome::Failed, reason: String::new() });
    let remedies = |evidence: &str, next_step: &str| {
        let next_step = LocalizedTemplate { en: next_step.to_owned(), zh: String::new() };
        let found = DiagnosisFinding { hosts: vec![0], evidence: vec![evidence.to_owned()], next_step, ..finding() };
        let text = render_recap(&harness.state, &RecapContext { findings: vec![found], ..recap_context() }).join("\n");
        ["help: pull it by hand", "do        free space"].map(|remedy| text.contains(remedy))
    };
    assert_eq!(remedies("docker: no space left on device", "free space"), [false, true]);
    assert_eq!(remedies("docker: no space left on device", ""), [true, false]);
    assert_eq!(remedies("Out of memory: Killed process 7", "free space"), [true, true], "about something else");
}

#[test]
fn ranks_of_rebooted_host_are_not_running() {
    let mut harness = SinkHarness::new(NullSink);
    harness.emit(0, run_started(2, 1, &[]));
    for host in 0..2 {
        harness.emit(0, EventKind::RankStarted { host, rank: host, restart: 0, started_at: 0 });
    }
    harness.emit(900, EventKind::LauncherExited { host: 1, exit: Exit::Killed, ended_at: 1_000_900, stopped: None });
    harness.emit(0, EventKind::Culprit { ranks: Vec::new(), hosts: vec![1] });
    harness.emit(10, rank_exited(0, 0, Exit::Code(0), 1_000_910));
    harness.emit(10, EventKind::RunFinished { outcome: Outcome::Failed, reason: "the launcher on gpu02 failed".to_owned() });
    let text = render(&harness);
    assert!(text.contains("ranks     1 ok  1 failed of 2") && !text.contains("running"), "{text}");
}

#[test]
fn interrupt_of_live_run_is_detached() {
    let mut harness = SinkHarness::new(NullSink);
    harness.emit(0, run_started(1, 1, &[]));
    harness.emit(0, EventKind::RankStarted { host: 0, rank: 0, restart: 0, started_at: 0 });
    harness.emit(5, EventKind::RunEndReported { end: crate::event::RunOutcome::Running, ended_at: 0 });
    harness.emit(5, EventKind::RunFinished { outcome: Outcome::Signal(2), reason: "detached: the run goes on".to_owned() });
    let text = render(&harness);
    assert!(text.starts_with("RECAP  up wan22  DETACHED  "), "{text}");
    assert!(text.ends_with("  next      orchestrate attach wan22.yaml\n  end it    orchestrate down wan22.yaml"), "{text}");
}

/// Of two ranks that end within a moment the one that lost its peer may be the first.
#[test]
fn cause_of_another_rank_is_pointed_out() {
    let mut harness = SinkHarness::new(NullSink);
    harness.emit_failing_run();
    harness.emit(0, EventKind::RunFinished { outcome: Outcome::Failed, reason: String::new() });
    let cause = |ranks: &[u32]| DiagnosisFinding { ranks: ranks.to_vec(), ..finding() };
    let recap = |ranks: &[u32]| render_recap(&harness.state, &RecapContext { findings: vec![cause(ranks)], ..recap_context() }).join("\n");
    let (other, same) = (recap(&[2]), recap(&[3]));
    assert!(other.contains("FIRST     rank 3 on gpu02") && other.contains("the cause is at rank 2, see CAUSE"), "{other}");
    assert!(other.ends_with("next      orchestrate logs wan22.yaml --rank 2"), "{other}");
    assert!(!same.contains("see CAUSE") && same.ends_with("--rank 3"), "{same}");
    // What a finding advises is not suggested again.
    let command = "orchestrate logs wan22.yaml --rank 3";
    let next_step = LocalizedTemplate { en: command.to_owned(), ..LocalizedTemplate::default() };
    let advised = DiagnosisFinding { next_step, ..cause(&[3]) };
    let recap = render_recap(&harness.state, &RecapContext { findings: vec![advised], ..recap_context() }).join("\n");
    assert!(recap.contains(&format!("  do        {command}")) && !recap.contains("  next  "), "{recap}");
}
