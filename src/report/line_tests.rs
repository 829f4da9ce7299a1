//! Golden lines.

use super::*;
use crate::event::{Exit, Outcome};
use crate::report::scene::{Scene, exited, log, plan};

fn scene(logs: Logs) -> Scene<Lines<Vec<String>>> {
    Scene::new(Lines::new(Vec::new(), Cleaner::new(&["s3cret".to_owned()]), Style::default(), logs))
}

#[test]
fn a_run_that_fails_reads_well() {
    let mut scene = scene(Logs::Main);
    scene.failing_run();
    let text = scene.face.out().join("\n");
    assert_eq!(text, FAILING.trim_start());
}

const FAILING: &str = "
up wan22: 16 hosts, 32 ranks, run 20261121-0915-7f3a
facts      ok gpu[01-16] (0.8 s)
container  changed gpu[01-02]; as it was gpu[03-16] (0.8 s)
workers    changed gpu[01-16] (0.8 s)
ready      32 ranks on 16 hosts (2.5 s)
[rank 0 gpu01] step 1
[rank 0 gpu01] step 2
[rank 3 gpu02] Traceback (most recent call last):
[rank 3 gpu02] RuntimeError: CUDA error
rank 3 on gpu02: exit 1
first to fail: rank 3 on gpu02
stopping every rank: rank 3 failed
TERM sent to the ranks on gpu[01-16]
ranks 0-2,4-6,8-31 on gpu[01-16]: stopped, signal 15 (TERM)
rank 7 on gpu04: stopped, signal 9 (KILL)
FAILED gpu16 remove: remove the container: docker: device or resource busy
  hint: docker rm -f orchestrate-wan22
remove     FAILED gpu16; changed gpu[01-15] (0.1 s)
LEFT on gpu16: container orchestrate-wan22: device or resource busy";

#[test]
fn equal_lines_of_many_ranks_are_one_and_order_is_kept() {
    let mut scene = scene(Logs::All);
    scene.tell(0, plan(4, 1, &[]));
    for rank in 0..4 {
        scene.tell(1, log(rank, rank, 0, "loading\nloaded s3cret\nloading\n"));
    }
    assert_eq!(scene.face.out().len(), 1, "they wait for each other");
    scene.tell(300, log(2, 2, 30, "alone\n"));
    scene.tell(300, EventKind::Ready);
    let lines: Vec<&str> = scene.face.out()[1..5].iter().map(String::as_str).collect();
    assert_eq!(lines, ["[rank 0-3] loading", "[rank 0-3] loaded ***", "[rank 0-3] loading", "[rank 2 gpu03] alone"]);
}

#[test]
fn a_progress_bar_is_one_line_and_the_unfinished_end_is_shown() {
    let mut scene = scene(Logs::Main);
    scene.tell(0, plan(1, 2, &[]));
    scene.tell(0, log(0, 0, 0, "start\n"));
    let mut offset = 6;
    for n in 0..100 {
        let text = format!("\r{n:3}%");
        scene.tell(300, log(0, 0, offset, &text));
        offset += text.len() as u64;
    }
    scene.tell(0, EventKind::RunFinished { outcome: Outcome::Ok, why: String::new() });
    let shown = &scene.face.out()[1..];
    assert_eq!(shown.first().map(String::as_str), Some("[rank 0 gpu01] start"));
    assert_eq!(shown.last().map(String::as_str), Some("[rank 0 gpu01]  99%"));
    assert!(shown.len() <= 5, "{shown:?}");
}

#[test]
fn other_ranks_only_complain_and_not_for_ever() {
    let mut scene = scene(Logs::Main);
    scene.tell(0, plan(1, 2, &[]));
    let text: String = (0..1000).map(|n| format!("step {n} loss 0.1\nValueError: number {n}\n")).collect();
    let (head, rest) = text.split_at(1234);
    scene.tell(0, log(1, 0, 0, head));
    scene.tell(0, log(1, 0, 1234, rest));
    scene.finish();
    let shown = &scene.face.out()[1..];
    assert_eq!(shown.len(), 40);
    assert_eq!(shown[39], "[rank 1 gpu01] ValueError: number 39 (more of the like are in the log)");
}

#[test]
fn nothing_is_shown_twice_after_a_lost_connection() {
    let mut scene = scene(Logs::Ranks(BTreeSet::from([1])));
    scene.tell(0, plan(2, 1, &[]));
    scene.tell(0, log(1, 1, 0, "one\ntw"));
    let error = "connection reset".to_owned();
    scene.tell(0, EventKind::HostLost { host: 1, error, retrying: true });
    scene.tell(900, EventKind::HostConnected { host: 1, clock_offset: 0, uncertainty: 1 });
    scene.tell(300, log(1, 1, 4, "two\n"));
    scene.tell(0, exited(1, 1, Exit::Code(0), 1));
    scene.finish();
    let shown = &scene.face.out()[1..];
    let expected =
        ["[rank 1 gpu02] one", "gpu02: no connection: connection reset; trying again", "gpu02: connected again", "[rank 1 gpu02] two"];
    assert_eq!(shown, expected);
}

#[test]
fn hosts_that_cannot_be_reached_for_one_reason_are_told_once() {
    let mut scene = scene(Logs::None);
    scene.tell(0, plan(4, 1, &[]));
    (0..4).for_each(|host| scene.tell(0, EventKind::HostConnecting { host }));
    let refused = "key refused (tried ~/.ssh/id_ed25519, agent 3 keys)";
    for host in [0, 2] {
        scene.tell(400, EventKind::HostLost { host, error: refused.to_owned(), retrying: false });
    }
    scene.tell(400, EventKind::HostConnected { host: 1, clock_offset: 0, uncertainty: 1 });
    scene.tell(300, EventKind::HostLost { host: 3, error: refused.to_owned(), retrying: false });
    scene.tell(300, EventKind::HostLost { host: 1, error: "connection reset".to_owned(), retrying: false });
    scene.finish();
    let expected =
        [format!("UNREACHABLE 3 hosts: {refused}"), "  gpu[01,03-04]".to_owned(), "UNREACHABLE gpu02: connection reset".to_owned()];
    assert_eq!(&scene.face.out()[1..], expected);
}

#[test]
fn a_host_that_cannot_be_reached_is_told_while_others_are_still_tried() {
    let mut scene = scene(Logs::None);
    scene.tell(0, plan(3, 1, &[]));
    (0..3).for_each(|host| scene.tell(0, EventKind::HostConnecting { host }));
    for host in [0, 1] {
        scene.tell(200, EventKind::HostLost { host, error: "key refused".to_owned(), retrying: false });
    }
    assert_eq!(scene.face.out().len(), 1, "the third may say the same");
    scene.tell(1_500, EventKind::Ready);
    let expected = ["UNREACHABLE 2 hosts: key refused", "  gpu[01-02]"];
    assert_eq!(&scene.face.out()[1..3], expected);
}

#[test]
fn what_hosts_say_cannot_reach_the_terminal() {
    let mut scene = scene(Logs::All);
    scene.tell(0, plan(1, 1, &[(Phase::Pull, "pull\u{1b}[2J")]));
    let evil = "\u{1b}]0;x\u{7}a\nb\u{9b}31m s3cret".to_owned();
    scene.tell(0, EventKind::StepFailed { step: 0, error: evil.clone(), hint: evil.clone() });
    scene.tell(0, EventKind::Notice { host: Some(0), text: evil.clone(), warn: true });
    scene.tell(0, EventKind::Leftover { host: 0, text: evil.clone() });
    scene.tell(0, EventKind::GoalChanged { goal: Goal::Down, why: evil.clone() });
    scene.tell(0, EventKind::HostLost { host: 0, error: evil.clone(), retrying: false });
    scene.tell(0, log(0, 0, 0, &format!("{evil}\n")));
    scene.finish();
    let text = scene.face.out().join("\n");
    assert!(!text.chars().any(|c| c.is_control() && c != '\n') && !text.contains("s3cret"), "{text:?}");
    assert_eq!(text.matches("a; b ***").count(), 6, "{text}");
}

proptest::proptest! {
    #[test]
    fn a_secret_is_hidden_wherever_the_chunks_are_cut(cuts in proptest::collection::vec(0..60_usize, 0..6)) {
        let text = "\u{1b}[1mkey=s3cret\u{1b}[0m and s3cr\u{1b}[31met again\r\nlast s3cret";
        let mut cuts: Vec<usize> = cuts.into_iter().map(|at| at.min(text.len())).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let mut scene = scene(Logs::Main);
        scene.tell(0, plan(1, 1, &[]));
        for pair in cuts.windows(2) {
            scene.tell(1, log(0, 0, pair[0] as u64, &text[pair[0]..pair[1]]));
        }
        scene.finish();
        proptest::prop_assert_eq!(&scene.face.out()[1..], ["[rank 0 gpu01] key=*** and *** again", "[rank 0 gpu01] last ***"]);
    }
}

#[test]
fn where_nothing_can_change_looking_is_all() {
    let mut scene = scene(Logs::None);
    scene.tell(0, plan(3, 1, &[(Phase::Preflight, "look"), (Phase::Remove, "remove")]));
    scene.tell(0, EventKind::StepSatisfied { step: 0, note: String::new() });
    scene.tell(0, EventKind::StepFailed { step: 1, error: "no docker".to_owned(), hint: "install it".to_owned() });
    scene.tell(0, EventKind::StepStarted { step: 2 });
    scene.tell(0, EventKind::StepDone { step: 2, note: String::new() });
    for step in 3..6 {
        scene.tell(0, EventKind::StepSatisfied { step, note: String::new() });
    }
    let expected = [
        "FAILED gpu02 preflight: look: no docker",
        "  hint: install it",
        "preflight  FAILED gpu02; ok gpu[01,03] (0.0 s)",
        "remove     as it was gpu[01-03] (0.0 s)",
    ];
    assert_eq!(&scene.face.out()[1..], expected);
}

#[test]
fn the_next_run_is_shown_from_its_first_line() {
    let mut scene = scene(Logs::Main);
    let of = |run: &str| {
        let EventKind::RunStarted(mut info) = plan(1, 1, &[]) else { unreachable!("a plan") };
        run.clone_into(&mut info.run);
        EventKind::RunStarted(info)
    };
    scene.tell(0, of("first"));
    scene.tell(0, log(0, 0, 0, "step 1 of the first run\nstep 2 of the first run\n"));
    // A teardown is planned, the next run has no name yet: its logs are the first run's as before.
    scene.tell(0, of("first"));
    scene.tell(0, log(0, 0, 0, "step 1 of the first run\n"));
    scene.tell(0, of(""));
    scene.tell(0, of("second"));
    scene.tell(0, log(0, 0, 0, "step 1\n"));
    scene.finish();
    let shown: Vec<&str> = scene.face.out().iter().filter(|line| line.starts_with('[')).map(String::as_str).collect();
    let expected = ["[rank 0 gpu01] step 1 of the first run", "[rank 0 gpu01] step 2 of the first run", "[rank 0 gpu01] step 1"];
    assert_eq!(shown, expected);
}

#[test]
fn preflight_takes_as_long_as_its_checks() {
    let mut scene = scene(Logs::Main);
    scene.tell(0, plan(2, 1, &[]));
    scene.tell(0, EventKind::PhaseStarted { phase: Phase::Preflight });
    scene.tell(0, EventKind::PhaseStarted { phase: Phase::Connect });
    scene.tell(2300, plan(2, 1, &[(Phase::Preflight, "check"), (Phase::Pull, "pull")]));
    scene.tell(0, EventKind::PhaseStarted { phase: Phase::Preflight });
    for step in 0..2 {
        scene.tell(50, EventKind::StepSatisfied { step, note: String::new() });
    }
    scene.tell(10, EventKind::PhaseStarted { phase: Phase::Pull });
    for step in 2..4 {
        scene.tell(100, EventKind::StepSatisfied { step, note: String::new() });
    }
    scene.finish();
    let lines: Vec<&str> = scene.face.out().iter().skip(1).map(String::as_str).collect();
    assert_eq!(lines, ["preflight  ok gpu[01-02] (2.4 s)", "pull       as it was gpu[01-02] (0.2 s)"]);
}
