//! Golden recaps.

use super::*;
use crate::event::{EventKind, Exit, Goal, Phase};
use crate::report::Sink;
use crate::report::scene::{Scene, exited, plan};

/// A face that shows nothing.
struct Nobody;

impl Sink for Nobody {
    fn on(&mut self, _event: &crate::event::Event, _state: &RunState) -> std::io::Result<()> {
        Ok(())
    }

    fn finish(&mut self, _state: &RunState) -> std::io::Result<()> {
        Ok(())
    }
}

fn advice() -> Advice {
    Advice::new(&["wan22.yaml".to_owned()], &[], BTreeMap::new())
}

fn context() -> Context {
    Context { logs: Some("/state/runs/r/logs".to_owned()), advice: advice(), lines: 20, columns: Some(80), ..Context::default() }
}

fn text(scene: &Scene<Nobody>) -> String {
    recap(&scene.state, &context()).join("\n")
}

#[test]
fn a_run_that_failed() {
    let mut scene = Scene::new(Nobody);
    scene.failing_run();
    assert_eq!(text(&scene), FAILED.trim_start_matches('\n'));
    assert_eq!(closing(&scene.state, &context()), "up wan22: LEFTOVERS after 9.0 s: rank 3 failed");
}

const FAILED: &str = "
RECAP  up wan22  LEFTOVERS  after 9.0 s
  because   rank 3 failed
  run       FAILED
  ranks     0 ok  1 failed  31 stopped of 32
  host                             ok  changed  failed  ranks
  gpu01                             4        3       0  2 stopped
  gpu02                             4        3       0  1 exit 1, 1 stopped
  gpu[03-15]                        4        2       0  2 stopped
  gpu16                             3        1       1  2 stopped
  FAILED    gpu16
            remove: remove the container: docker: device or resource busy
            hint: docker rm -f orchestrate-wan22
  FIRST     rank 3 on gpu02: exit 1 after 5.0 s
    | step 1
    | Traceback (most recent call last):
    | RuntimeError: CUDA error
  others    ranks 0-2,4-6,8-31: stopped by us, signal 15 (TERM)
            rank 7: stopped by us, signal 9 (KILL)
  LEFT      gpu16: container orchestrate-wan22: device or resource busy
  logs      /state/runs/r/logs
  next      orchestrate down wan22.yaml";

#[test]
fn a_run_of_128_hosts_that_went_well_is_short() {
    let mut scene = Scene::new(Nobody);
    scene.tell(0, plan(128, 8, &[(Phase::Facts, "look around"), (Phase::Container, "start the container")]));
    for step in 0..256 {
        scene.tell(0, EventKind::StepSatisfied { step, note: String::new() });
    }
    for rank in 0..1024 {
        scene.tell(0, EventKind::RankStarted { host: rank / 8, rank, restart: 0, when: 0 });
    }
    for rank in 0..1024 {
        scene.tell(10, exited(rank, rank / 8, Exit::Code(0), 1_010_000));
    }
    scene.tell(0, EventKind::RunFinished { outcome: Outcome::Ok, why: String::new() });
    let expected = "\
RECAP  up wan22  OK  after 10 s
  ranks     1024 ok  0 failed of 1024
  host                             ok  changed  failed  ranks
  gpu[01-99],gpu[100-128]           2        0       0  8 ok
  logs      /state/runs/r/logs";
    assert_eq!(text(&scene), expected);
}

#[test]
fn close_failures_are_both_named_and_unreachable_is_not_failed() {
    let mut scene = Scene::new(Nobody);
    scene.tell(0, plan(3, 1, &[(Phase::Preflight, "look")]));
    scene.tell(0, EventKind::RankStarted { host: 0, rank: 0, restart: 0, when: 0 });
    scene.tell(2000, exited(0, 0, Exit::Signal(11), 1_002_000));
    scene.tell(0, exited(1, 1, Exit::Killed, 1_002_001));
    scene.tell(0, EventKind::Culprit { ranks: vec![0, 1], hosts: vec![0, 1] });
    let error = "no answer from 10.0.0.3:22 within 10 s, and this text is much longer than a line of the page may ever be".to_owned();
    scene.tell(0, EventKind::HostLost { host: 2, error, retrying: false });
    scene.tell(0, EventKind::GoalChanged { goal: Goal::Stop, why: "rank 0 failed".to_owned() });
    scene.tell(0, EventKind::RunFinished { outcome: Outcome::Unreachable, why: "gpu03 was lost".to_owned() });
    let expected = "\
RECAP  up wan22  UNREACHABLE  after 2.0 s
  because   gpu03 was lost
  run       FAILED
  ranks     0 ok  2 failed  1 not started of 3
  host                             ok  changed  failed  ranks
  gpu01                             0        0       0  1 signal 11 (SEGV)
  gpu02                             0        0       0  1 gone without a status
  gpu03                             0        0       0  UNREACHABLE
  UNREACHED gpu03
            no answer from 10.0.0.3:22 within 10 s, and this text is much longer
            than a line of the page may ever be
  FIRST ?   rank 0 on gpu01: signal 11 (SEGV) after 2.0 s
  FIRST ?   rank 1 on gpu02: gone without a status
            they failed closer together than the clocks can tell
  logs      /state/runs/r/logs
  next      orchestrate up wan22.yaml";
    assert_eq!(text(&scene), expected);
}

#[test]
fn a_thousand_different_troubles_fit_the_page() {
    let mut scene = Scene::new(Nobody);
    scene.tell(0, plan(500, 2, &[(Phase::Pull, "pull")]));
    for step in 0..500_u32 {
        let error = format!("{} trouble number {step} {}", "long ".repeat(step as usize % 40), "x".repeat(step as usize));
        scene.tell(0, EventKind::StepFailed { step, error, hint: format!("hint {step}") });
        scene.tell(0, EventKind::Leftover { host: step, text: format!("container {step}") });
        scene.tell(0, exited(step, step / 2, Exit::Code(1 + step as i32 % 90), 1));
    }
    scene.tell(0, EventKind::RunFinished { outcome: Outcome::Leftovers, why: "x".repeat(500) });
    for (columns, width) in [(Some(40), 80), (Some(80), 80), (Some(110), 110), (Some(300), 120), (None, 120)] {
        let lines = recap(&scene.state, &Context { columns, ..context() });
        assert!(lines.len() < 250, "{}", lines.len());
        let widths = lines.iter().map(|line| unicode_width::UnicodeWidthStr::width(line.as_str()));
        assert_eq!(widths.max(), Some(width), "{columns:?}");
    }
}

#[test]
fn a_rank_of_a_host_that_was_restarted_does_not_run() {
    let mut scene = Scene::new(Nobody);
    scene.tell(0, plan(2, 1, &[]));
    for host in 0..2 {
        scene.tell(0, EventKind::RankStarted { host, rank: host, restart: 0, when: 0 });
    }
    scene.tell(900, EventKind::NodeExited { host: 1, exit: Exit::Killed, when: 1_000_900 });
    scene.tell(0, EventKind::Culprit { ranks: Vec::new(), hosts: vec![1] });
    scene.tell(10, exited(0, 0, Exit::Code(0), 1_000_910));
    scene.tell(10, EventKind::RunFinished { outcome: Outcome::Failed, why: "the launcher on gpu02 failed".to_owned() });
    let text = text(&scene);
    assert!(text.contains("ranks     1 ok  1 failed of 2") && !text.contains("running"), "{text}");
}

#[test]
fn who_leaves_a_run_has_detached() {
    let mut scene = Scene::new(Nobody);
    scene.tell(0, plan(1, 1, &[]));
    scene.tell(0, EventKind::RankStarted { host: 0, rank: 0, restart: 0, when: 0 });
    scene.tell(5, EventKind::RunFound { end: crate::event::RunEnd::Running, when: 0 });
    scene.tell(5, EventKind::RunFinished { outcome: Outcome::Signal(2), why: "detached: the run goes on".to_owned() });
    let text = text(&scene);
    assert!(text.starts_with("RECAP  up wan22  DETACHED  "), "{text}");
    assert!(text.ends_with("  next      orchestrate attach wan22.yaml\n  end it    orchestrate down wan22.yaml"), "{text}");
}
