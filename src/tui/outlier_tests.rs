//! What the first screen says about ranks and GPUs that differ from the others, and the lines that prove a failure.

use super::fixtures::{self, DashboardFixture};
use super::tests::{draw, press_keys, screen_text};
use super::view::run_problems::collect_problems;
use crate::event::{EventKind, GpuProcess, GpuSample, LogFile};

fn text(scene: &mut DashboardFixture, width: u16, height: u16) -> String {
    screen_text(&mut scene.app, width, height)
}

/// Where only the first rank prints, the silence of the others is usual.
#[test]
fn quietest_rank_is_compared_with_most_ranks() {
    let mut scene = fixtures::training_hosts(2);
    for _ in 0..20 {
        scene.emit_rank_log(0, "working\n");
        scene.advance(1_000);
    }
    assert!(!text(&mut scene, 120, 36).contains("quietest"), "15 of 16 ranks are as quiet");
    let mut scene = fixtures::training_hosts(2);
    for _ in 0..20 {
        (0..16).filter(|rank| *rank != 11).for_each(|rank| scene.emit_rank_log(rank, "working\n"));
        scene.advance(1_000);
    }
    assert!(text(&mut scene, 120, 36).contains("quietest r11 on gpu01 "), "{}", text(&mut scene, 120, 36));
}

/// The lines that prove a cause come before the newest lines of the log, however many came after them.
#[test]
fn proving_lines_come_before_the_newest() {
    let mut scene = fixtures::bad_day();
    let first = &collect_problems(&scene.app.model)[0];
    let (evidence, Some((host, LogFile::Rank { rank, .. }))) = (first.evidence[0].clone(), first.log) else { panic!("{first:?}") };
    (0..40).for_each(|n| scene.emit_rank_log(rank, &format!("teardown line {n}\n")));
    assert!(host == 4 && !evidence.is_empty());
    let shown = text(&mut scene, 120, 40);
    let row = |part: &str| shown.lines().position(|row| row.contains("| ") && row.contains(part));
    assert!(row(&evidence).expect("the proving line") < row("teardown line 39").expect("the newest line"), "{shown}");
}

/// The plan before a start keeps its phases where few rows are left.
#[test]
fn small_plan_keeps_its_phases() {
    let mut scene = super::screen_matrix_tests::planned(4);
    scene.change_capabilities(|known| known.plan_lines = (0..12).map(|n| format!("differs   hosts[{n}].gpus: 4 → 8")).collect());
    let shown = text(&mut scene, 80, 24);
    for phase in ["preflight", "pull", "container", "master", "workers"] {
        assert!(shown.lines().any(|row| row.starts_with("│ ") && row.contains(phase) && row.contains("/4 steps")), "{phase} in {shown}");
    }
}

/// The logs open with the rank that failed first, unless another was chosen before.
#[test]
fn logs_open_with_the_first_failed_rank() {
    let mut scene = fixtures::training_hosts(2);
    scene.fail_rank();
    press_keys(&mut scene.app, "4");
    assert!(text(&mut scene, 120, 36).contains("ValueError: the batch is empty"), "{}", text(&mut scene, 120, 36));
    let mut scene = fixtures::training_hosts(2);
    press_keys(&mut scene.app, "4 ] 1");
    scene.fail_rank();
    press_keys(&mut scene.app, "4");
    assert!(!text(&mut scene, 120, 36).contains("ValueError"), "rank 1 was chosen");
}

/// One process a host that uses several GPUs: a GPU with a process of the run that does nothing is amber, another is not.
#[test]
fn idle_gpus_of_one_process_are_marked() {
    let mut scene = DashboardFixture::training_processes(2);
    let process = |gpu: u32| GpuProcess { pid: 7, gpu: format!("GPU-0-{gpu}"), belongs_to_run: true, ..GpuProcess::default() };
    scene.emit(1, EventKind::GpuProcesses { host: 0, processes: (0..4).map(process).collect() });
    (0..6).for_each(|_| scene.emit_gpus(0, 8, 0.0));
    let shown = text(&mut scene, 120, 36);
    let marked: Vec<bool> =
        (0..8).map(|gpu| shown.lines().find_map(|row| row.strip_prefix(&format!("│ {gpu}"))).expect("a row").starts_with('▲')).collect();
    assert_eq!(marked, [true, true, true, true, false, false, false, false], "{shown}");
    assert!(shown.contains("· GPU 0-3 idle ─"), "and the pane says why: {shown}");
    let table = text(&mut scene, 80, 10);
    assert!(table.contains(" ▲▲▲▲.... "), "{table}");
    press_keys(&mut scene.app, "5 !");
    let shown = text(&mut scene, 120, 36);
    assert!(shown.contains("only faults (!): 4 of 8 GPUs"), "{shown}");
}

/// A GPU with a limit of four digits has its whole power.
#[test]
fn power_of_four_digits_is_whole() {
    let mut scene = fixtures::training_hosts(1);
    let gpu =
        |index: u32| GpuSample { index, utilization: Some(99.0), power: Some(1_000.0), power_limit: Some(1_200.0), ..GpuSample::default() };
    scene.emit(1, EventKind::Gpus { host: 0, gpus: (0..8).map(gpu).collect() });
    let shown = text(&mut scene, 120, 36);
    assert_eq!(shown.matches(" 1000/1200W ").count(), 8, "{shown}");
}

/// A clock that differs from the first host's is amber; what a slow answer leaves uncertain is not.
#[test]
fn skewed_clock_is_named() {
    let mut scene = fixtures::training_hosts(2);
    scene.emit(1, EventKind::HostConnected { host: 1, clock_offset: 700, uncertainty: 300 });
    assert!(!text(&mut scene, 120, 36).contains("clock"));
    scene.emit(1, EventKind::HostConnected { host: 1, clock_offset: -3_188, uncertainty: 4 });
    text(&mut scene, 120, 36);
    let standing = &scene.app.model.host_statuses[1];
    assert_eq!((standing.status, &*standing.reason), (super::theme::DisplayStatus::Warn, "clock -3.2 s from gpu00"));
}

/// Ranks of one host have its colour in the merged log, ranks of several hosts none.
#[test]
fn merged_log_is_coloured_by_host() {
    let mut scene = fixtures::training_hosts(2);
    (8..16).for_each(|rank| scene.emit_rank_log(rank, "alone on one host\n"));
    (0..16).for_each(|rank| scene.emit_rank_log(rank, "on both hosts\n"));
    let buffer = draw(&mut scene.app, 120, 36);
    let theme = scene.app.model.theme;
    let color = |wanted: &str| {
        let row = (0..36).find(|y| (0..120).map(|x| buffer[(x, *y)].symbol()).collect::<String>().contains(wanted)).expect("the row");
        (0..120).map(|x| &buffer[(x, row)]).find(|cell| cell.symbol() == "r").expect("the ranks").fg
    };
    assert_eq!(Some(color("alone on one host")), theme.host_style(1).fg);
    assert_eq!(Some(color("on both hosts")), theme.dim().fg);
}
