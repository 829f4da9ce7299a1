//! The first screen at many sizes and with many hosts: nothing overlaps, the first problem and its next step are always there, outliers are
//! named.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::fixtures::{self, DashboardFixture};
use super::keymap::UiCommand;
use super::tests::{draw, press_keys};
use super::ui::Screen;
use super::view::run_problems::collect_problems;
use crate::event::{EventKind, GpuSample};

fn rows(buffer: &Buffer) -> Vec<String> {
    let row = |y: u16| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..buffer.area.height).map(row).collect()
}

/// The sizes of a run of this test: the corners, and others by a fixed rule.
fn sizes(count: u32, seed: u32) -> impl Iterator<Item = (u16, u16)> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12_345);
    let mut next = move |from: u16, to: u16| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        from + u16::try_from((state >> 16) % u32::from(to - from + 1)).expect("below its bound")
    };
    let corners = [(40, 10), (80, 24), (120, 36), (200, 50), (250, 80), (40, 80), (250, 10)];
    corners.into_iter().chain((0..count).map(move |_| (next(40, 250), next(10, 80))))
}

/// The frames of all panes are whole and no two share a cell.
fn assert_frames_whole(buffer: &Buffer, areas: &[Rect], what: &str) {
    for (n, area) in areas.iter().enumerate() {
        assert_eq!(buffer.area.intersection(*area), *area, "{what}: {area:?} leaves the screen");
        assert!(areas[n + 1..].iter().all(|other| other.intersection(*area).area() == 0), "{what}: {area:?} overlaps");
        let symbol = |x: u16, y: u16| buffer[(x, y)].symbol();
        let (right, bottom) = (area.right() - 1, area.bottom() - 1);
        let corners = [symbol(area.x, area.y), symbol(right, area.y), symbol(area.x, bottom), symbol(right, bottom)];
        assert!(corners == ["╭", "╮", "╰", "╯"] || corners == ["┏", "┓", "┗", "┛"], "{what}: {area:?} {corners:?}");
        for y in area.y + 1..bottom {
            assert!(["│", "┃"].contains(&symbol(area.x, y)) && ["│", "┃"].contains(&symbol(right, y)), "{what}: {area:?} row {y}");
        }
    }
}

fn longest_blank_run(rows: &[String]) -> usize {
    let is_blank = |row: &String| row.chars().all(|c| matches!(c, ' ' | '│' | '┃'));
    rows.chunk_by(|a, b| is_blank(a) == is_blank(b)).filter(|run| is_blank(&run[0])).map(<[_]>::len).max().unwrap_or(0)
}

fn check_sizes(scene: &mut DashboardFixture, hosts: u32, fails: bool, count: u32) {
    for (n, (width, height)) in sizes(count, hosts + u32::from(fails)).enumerate() {
        let what = format!("{hosts} hosts, {width}x{height}, failed: {fails}");
        scene.app.ui.screen = Screen::ALL[1 + n % 6];
        draw(&mut scene.app, width, height);
        scene.app.ui.screen = Screen::Overview;
        let buffer = draw(&mut scene.app, width, height);
        assert_frames_whole(&buffer, &scene.app.ui.overview.framed_areas(), &what);
        let rows = rows(&buffer);
        let text = rows.join("\n");
        if fails {
            assert!(text.contains("rank 3 on gpu00"), "{what}: the first problem is missing\n{text}");
            assert!(height < 18 || text.contains(" next  "), "{what}: no next step\n{text}");
        } else {
            assert!(text.contains("training step 80/400"), "{what}: no verdict\n{text}");
        }
        let has_room = width >= 120 && height >= 36 && (2..=16).contains(&hosts);
        assert!(!has_room || longest_blank_run(&rows) <= usize::from(height) / 4, "{what}: a large blank area\n{text}");
    }
}

#[test]
fn every_size_and_host_count_keeps_its_panes() {
    std::thread::scope(|scope| {
        for counts in [&[1, 2, 3, 16][..], &[4, 7, 100], &[8, 5, 33, 12], &[256]] {
            scope.spawn(move || {
                for hosts in counts {
                    let mut scene = fixtures::training_hosts(*hosts);
                    let count = if *hosts > 16 { 4 } else { 40 };
                    check_sizes(&mut scene, *hosts, false, count);
                    scene.fail_rank();
                    check_sizes(&mut scene, *hosts, true, count);
                }
            });
        }
    });
}

/// Smaller than the panes need: the status, the first problem, or how far the training is.
#[test]
fn small_terminals_tell_the_verdict() {
    let mut scene = fixtures::training_hosts(2);
    let text = |scene: &mut DashboardFixture, width, height| rows(&draw(&mut scene.app, width, height)).join("\n");
    assert!(text(&mut scene, 40, 6).contains("training step 80/400"));
    scene.fail_rank();
    for (width, height) in [(20, 3), (39, 9), (40, 9)] {
        assert!(text(&mut scene, width, height).contains("rank 3 on gpu00"), "{width}x{height}");
    }
}

/// The cause tells the exit of its rank: no second problem repeats it.
#[test]
fn one_failure_is_one_problem() {
    let mut scene = fixtures::bad_day();
    let mut problems = collect_problems(&scene.app.model);
    problems.retain(|problem| problem.line().contains("rank 37"));
    assert_eq!(problems.len(), 1, "{problems:?}");
    let text = rows(&draw(&mut scene.app, 80, 24)).join("\n");
    assert_eq!(text.matches("failed first").count(), 1, "{text}");
    for part in ["exit 1, failed first: a GPU is lost", "| RuntimeError: CUDA error", "next  exclude gpu04"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

/// After a failure the dashboard stays open with the end of the run: the failure has the screen, not the steps of the teardown.
#[test]
fn failure_stays_after_teardown() {
    let mut scene = fixtures::training_hosts(2);
    scene.fail_rank();
    scene.emit(1, EventKind::RunFinished { outcome: crate::event::Outcome::Failed, reason: "rank 3 on gpu00 failed: exit 1".to_owned() });
    let mut capabilities = scene.app.model.capabilities.clone();
    capabilities.start_summary = Some("the run has ended: this launches a new run with the same inventory".to_owned());
    scene.app.handle_message(super::feed::FeedMessage::Capabilities(capabilities));
    let text = rows(&draw(&mut scene.app, 120, 36)).join("\n");
    assert!(text.contains("ValueError: the batch is empty") && text.contains("FAILED"), "{text}");
    // The steps of a teardown that is over are not shown either.
    let mut scene = fixtures::tearing_down();
    assert!(rows(&draw(&mut scene.app, 120, 36)).join("\n").contains("HOST  stop"));
    scene.emit(1, EventKind::RunFinished { outcome: crate::event::Outcome::Failed, reason: "a rank failed".to_owned() });
    let mut capabilities = scene.app.model.capabilities.clone();
    capabilities.start_summary = Some("the run has ended".to_owned());
    scene.app.handle_message(super::feed::FeedMessage::Capabilities(capabilities));
    let text = rows(&draw(&mut scene.app, 120, 36)).join("\n");
    assert!(text.contains("╭ gpu00 · master") && !text.contains("HOST  stop"), "{text}");
}

/// A host whose GPUs idle among busy ones is named, and never part of a folded row.
#[test]
fn outliers_are_named_and_never_folded() {
    let mut scene = fixtures::training_hosts(64);
    let sample = |index: u32| GpuSample { index, utilization: Some(31.0), temperature: Some(91.0), ..GpuSample::default() };
    for _ in 0..6 {
        (0..64).filter(|host| *host != 40).for_each(|host| scene.emit_gpus(host, 8, 96.0));
        scene.emit(1, EventKind::Gpus { host: 40, gpus: (0..8).map(sample).collect() });
    }
    let text = rows(&draw(&mut scene.app, 80, 24)).join("\n");
    assert!(text.contains("   gpu40                     ▲"), "{text}");
    assert!(text.contains("63 hosts ●") && text.contains("hottest gpu40 GPU 0 91°"), "{text}");
    let text = rows(&draw(&mut scene.app, 160, 40)).join("\n");
    assert!(text.contains("least used gpu40 8 GPUs at 31%, median 96%"), "{text}");
}

/// The rank that is behind is named with its host, and how far it is behind.
#[test]
fn slowest_rank_is_named() {
    let mut scene = fixtures::training_hosts(2);
    for rank in (0..16).filter(|rank| *rank != 11) {
        scene.emit_rank_log(rank, "step 84/400 loss 2.1\n");
    }
    let text = rows(&draw(&mut scene.app, 80, 24)).join("\n");
    assert!(text.contains("slowest r11 on gpu01 step 80, 4 behind"), "{text}");
}

/// A bar that the ranks draw is one row below the log, which changes; the line that comes after it is another.
#[test]
fn live_bar_is_one_row_of_the_log() {
    let mut scene = fixtures::training_hosts(2);
    let bar = |n: u32| format!("\reval: {n:3}%|##  | {n}/100 [00:01<00:09, 9.1it/s]");
    for n in [10, 20, 30] {
        (0..16).for_each(|rank| scene.emit_rank_log(rank, &bar(n + rank)));
    }
    let text = |scene: &mut DashboardFixture| rows(&draw(&mut scene.app, 120, 36)).join("\n");
    let shown = text(&mut scene);
    assert!(shown.contains("r[0-15]") && shown.contains("eval:  30%|##  | 30/100") && shown.matches("eval:").count() == 1, "{shown}");
    (0..16).for_each(|rank| scene.emit_rank_log(rank, &format!("\r{}\reval loss 2.5\n", " ".repeat(50))));
    let shown = text(&mut scene);
    assert!(shown.contains("eval loss 2.5") && !shown.contains("eval:") && !shown.contains("(x"), "{shown}");
}

/// The plan that waits for its start: what would run, and its phases.
#[test]
fn plan_before_a_start_is_told() {
    let mut scene = fixtures::launching_hosts(4);
    let mut capabilities = scene.app.model.capabilities.clone();
    capabilities.start_summary = Some("no run exists: it would be launched".to_owned());
    capabilities.plan_lines = vec!["image     registry/train:7".to_owned(), "differs   launch.nproc_per_node: 4 → 8".to_owned()];
    scene.app.handle_message(super::feed::FeedMessage::Capabilities(capabilities));
    let text = rows(&draw(&mut scene.app, 120, 36)).join("\n");
    for part in ["PLAN", "press U to start", "image     registry/train:7", "nproc_per_node: 4 → 8", "container   start the container"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

/// With c10d the ranks have no numbers before torchrun gives them.
#[test]
fn start_dialog_counts_ranks_without_numbers() {
    let mut scene = fixtures::launching_hosts(4);
    scene.app.model.state.ranks.clear();
    let mut capabilities = scene.app.model.capabilities.clone();
    capabilities.start_summary = Some("no run exists: it would be launched".to_owned());
    capabilities.plan_lines = vec!["hosts     4 × 8 ranks, numbered by torchrun".to_owned()];
    scene.app.handle_message(super::feed::FeedMessage::Capabilities(capabilities));
    scene.app.update(UiCommand::Start);
    let text = rows(&draw(&mut scene.app, 120, 36)).join("\n");
    assert!(text.contains("4 × 8 ranks, numbered by torchrun on gpu[00-03]"), "{text}");
}

/// The wheel scrolls what is under it.
#[test]
fn wheel_focuses_the_zone_under_it() {
    let mut scene = fixtures::training_hosts(2);
    let text = |scene: &mut DashboardFixture| rows(&draw(&mut scene.app, 120, 36)).join("\n");
    assert!(text(&mut scene).contains(" follow ╮"));
    scene.app.focus_under_wheel(10, 30);
    scene.app.update(super::keymap::UiCommand::Up);
    assert!(text(&mut scene).contains(" new ╮"), "the log has left its end");
}

/// A click on a row of the heat map moves the cursor there.
#[test]
fn heat_map_moves_by_key_and_click() {
    let mut scene = fixtures::training_hosts(2);
    press_keys(&mut scene.app, "5 j j");
    draw(&mut scene.app, 120, 36);
    assert_eq!((scene.app.ui.gpus.selection.host, scene.app.ui.gpus.selection.gpu), (0, 2));
    assert!(scene.app.handle_click(10, 4 + 9, false));
    assert_eq!((scene.app.ui.gpus.selection.host, scene.app.ui.gpus.selection.gpu), (1, 1));
}
