//! The first screen at many sizes and with many hosts: nothing overlaps, the first problem and its next step are always there, outliers are
//! named.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::fixtures::{self, DashboardFixture};
use super::keymap::UiCommand;
use super::screen_matrix_tests::frames;
use super::tests::{draw, press_keys, screen_text};
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
    let corners = [(40, 10), (80, 24), (120, 36), (160, 40), (200, 50), (250, 80), (40, 80), (250, 10)];
    corners.into_iter().chain((0..count).map(move |_| (next(40, 250), next(10, 80))))
}

/// The frames of all panes are whole and no two share a cell; each pane has the frame that it was drawn with.
fn assert_frames_whole(buffer: &Buffer, areas: &[Rect], what: &str) {
    let drawn = frames(buffer, what);
    assert!(areas.iter().all(|area| drawn.contains(area)), "{what}: {areas:?} in {drawn:?}");
}

fn longest_blank_run(rows: &[String]) -> usize {
    let is_blank = |row: &String| row.chars().all(|c| matches!(c, ' ' | '│' | '┃'));
    rows.chunk_by(|a, b| is_blank(a) == is_blank(b)).filter(|run| is_blank(&run[0])).map(<[_]>::len).max().unwrap_or(0)
}

/// What has happened to the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    None,
    /// The last host is lost, the ranks run.
    HostLost,
    RankFailed,
}

fn check_sizes(scene: &mut DashboardFixture, hosts: u32, trouble: Trouble, count: u32) {
    for (n, (width, height)) in sizes(count, hosts + trouble as u32).enumerate() {
        let what = format!("{hosts} hosts, {width}x{height}, {trouble:?}");
        scene.app.ui.screen = Screen::ALL[1 + n % (Screen::ALL.len() - 1)];
        frames(&draw(&mut scene.app, width, height), &format!("{what}, {:?}", scene.app.ui.screen));
        scene.app.ui.screen = Screen::Overview;
        let buffer = draw(&mut scene.app, width, height);
        assert_frames_whole(&buffer, &scene.app.ui.overview.framed_areas(), &what);
        let rows = rows(&buffer);
        let text = rows.join("\n");
        let first = match trouble {
            Trouble::None => "training step 80/400".to_owned(),
            Trouble::HostLost => format!(" ? gpu{:02}  no connection", hosts - 1),
            Trouble::RankFailed => "rank 3 on gpu00".to_owned(),
        };
        assert!(text.contains(&first), "{what}: `{first}` is missing\n{text}");
        assert!(trouble == Trouble::None || height < 18 || text.contains(" next  "), "{what}: no next step\n{text}");
        let has_room = width >= 120 && height >= 36 && (2..=16).contains(&hosts);
        assert!(!has_room || longest_blank_run(&rows) <= usize::from(height) / 4, "{what}: a large blank area\n{text}");
        assert!(!has_room || trouble != Trouble::None || text.contains("╭ gpu00 "), "{what}: no panes\n{text}");
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
                    check_sizes(&mut scene, *hosts, Trouble::None, count);
                    scene.emit(
                        1,
                        EventKind::HostLost { host: hosts - 1, error: "no answer".to_owned(), hint: String::new(), will_retry: true },
                    );
                    check_sizes(&mut scene, *hosts, Trouble::HostLost, count);
                    // Hosts that are left out take no problem with them.
                    scene.app.ui.overview.set_host_filter("gpu01");
                    check_sizes(&mut scene, *hosts, Trouble::HostLost, count / 4);
                    scene.app.ui.overview.set_host_filter("");
                    scene.fail_rank();
                    check_sizes(&mut scene, *hosts, Trouble::RankFailed, count);
                }
            });
        }
    });
}

/// Smaller than the panes need: the status, the first problem, or how far the training is.
#[test]
fn small_terminals_show_the_verdict() {
    let mut scene = fixtures::training_hosts(2);
    let text = |scene: &mut DashboardFixture, width, height| screen_text(&mut scene.app, width, height);
    assert!(text(&mut scene, 40, 6).contains("training step 80/400"));
    scene.fail_rank();
    for (width, height) in [(20, 3), (39, 9), (40, 9)] {
        assert!(text(&mut scene, width, height).contains("rank 3 on gpu00"), "{width}x{height}");
    }
}

/// The cause shows the exit of its rank: no second problem repeats it.
#[test]
fn one_failure_is_one_problem() {
    let mut scene = fixtures::bad_day();
    let mut problems = collect_problems(&scene.app.model);
    problems.retain(|problem| problem.line().contains("rank 37"));
    assert_eq!(problems.len(), 1, "{problems:?}");
    let text = screen_text(&mut scene.app, 80, 24);
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
    scene.change_capabilities(|known| {
        known.start_summary = Some("the run has ended: this launches a new run with the same inventory".to_owned())
    });
    let text = screen_text(&mut scene.app, 120, 36);
    assert!(text.contains("ValueError: the batch is empty") && text.contains("FAILED"), "{text}");
    // The steps of a teardown that is over are not shown either.
    let mut scene = fixtures::tearing_down();
    assert!(screen_text(&mut scene.app, 120, 36).contains("HOST  stop"));
    scene.emit(1, EventKind::RunFinished { outcome: crate::event::Outcome::Failed, reason: "a rank failed".to_owned() });
    scene.change_capabilities(|known| known.start_summary = Some("the run has ended".to_owned()));
    let text = screen_text(&mut scene.app, 120, 36);
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
    let text = screen_text(&mut scene.app, 80, 24);
    assert!(text.contains("   gpu40                     ▲"), "{text}");
    assert!(text.contains(" ▲ gpu40  8 GPUs at 31% utilization; the median of the run is 96%"), "{text}");
    assert!(text.contains("63 hosts ●") && text.contains("hottest gpu40 GPU 0 91°"), "{text}");
    let text = screen_text(&mut scene.app, 160, 40);
    assert!(text.contains("least used gpu40 8 GPUs at 31%, median 96%"), "{text}");
    assert!(text.contains("next  orchestrate exec --limit gpu40 -- nvidia-smi -q -d PERFORMANCE"), "{text}");
}

/// A bar that the ranks draw is one row below the log, which changes; the line that comes after it is another.
#[test]
fn live_bar_is_one_row_of_the_log() {
    let mut scene = fixtures::training_hosts(2);
    let bar = |n: u32| format!("\reval: {n:3}%|##  | {n}/100 [00:01<00:09, 9.1it/s]");
    for n in [10, 20, 30] {
        (0..16).for_each(|rank| scene.emit_rank_log(rank, &bar(n + rank)));
    }
    let text = |scene: &mut DashboardFixture| screen_text(&mut scene.app, 120, 36);
    let shown = text(&mut scene);
    assert!(shown.contains("r[0-15]") && shown.contains("eval:  30%|##  | 30/100") && shown.matches("eval:").count() == 1, "{shown}");
    (0..16).for_each(|rank| scene.emit_rank_log(rank, &format!("\r{}\reval loss 2.5\n", " ".repeat(50))));
    let shown = text(&mut scene);
    assert!(shown.contains("eval loss 2.5") && !shown.contains("eval:") && !shown.contains("(x"), "{shown}");
}

/// The plan that waits for its start: what would run, and its phases.
#[test]
fn plan_before_a_start_is_shown() {
    let mut scene = fixtures::planned_hosts(4);
    scene.change_capabilities(|known| {
        known.start_summary = Some("no run exists: a new one would be launched".to_owned());
        known.plan_lines = vec![
            "image     registry/train:7".to_owned(),
            "differs   launch.nproc_per_node: 4 → 8".to_owned(),
            format!("container docker run -d --name wan22-gpu00{} registry/train:7", " -v /data:/data:ro".repeat(8)),
        ];
    });
    let text = screen_text(&mut scene.app, 120, 36);
    for part in [
        "container docker run -d --name wan22-gpu00 -v",
        "│           -v /data:/data:ro -v",
        "PLAN",
        "press U to start",
        "image     registry/train:7",
        "nproc_per_node: 4 → 8",
        "container   start the container",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

/// While a task sends files, a host's row has a bar with bytes and rate, and a row of several hosts their sum.
#[test]
fn task_that_sends_files_has_a_bar() {
    for (hosts, height, shown) in
        [(2, 24, "[#####-----] 5.0 MiB of 10.0 MiB, 2.0 MiB/s"), (40, 24, "[#####-----] 200.0 MiB of 400.0 MiB, 80.0 MiB/s")]
    {
        let mut scene = fixtures::preparing_hosts(hosts);
        for done in [1 << 20, 5 << 20] {
            for host in 0..hosts {
                scene.emit(0, EventKind::StepProgress { host, step: host, done, total: 10 << 20 });
            }
            scene.advance(2_000);
        }
        let text = screen_text(&mut scene.app, 120, height);
        assert!(text.contains(shown), "{text}");
    }
}

/// With c10d the ranks have no numbers before torchrun gives them.
#[test]
fn start_dialog_counts_ranks_without_numbers() {
    let mut scene = fixtures::launching_hosts(4);
    std::sync::Arc::make_mut(&mut scene.app.model.state).ranks.clear();
    scene.change_capabilities(|known| {
        known.start_summary = Some("no run exists: a new one would be launched".to_owned());
        known.plan_lines = vec!["hosts     4 × 8 ranks, numbered by torchrun".to_owned()];
    });
    scene.app.update(UiCommand::Start);
    let text = screen_text(&mut scene.app, 120, 36);
    assert!(text.contains("4 × 8 ranks, numbered by torchrun on gpu[00-03]"), "{text}");
}

/// The wheel scrolls what is under it.
#[test]
fn wheel_focuses_the_zone_under_it() {
    let mut scene = fixtures::training_hosts(2);
    let text = |scene: &mut DashboardFixture| screen_text(&mut scene.app, 120, 36);
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
    assert!(scene.app.handle_click(10, 3 + 9, false));
    assert_eq!((scene.app.ui.gpus.selection.host, scene.app.ui.gpus.selection.gpu), (1, 1));
}

/// Names and order of the panes or rows of the hosts.
fn host_order(scene: &mut DashboardFixture, width: u16, height: u16) -> Vec<String> {
    let buffer = draw(&mut scene.app, width, height);
    let hosts = scene.app.ui.overview.shown_hosts();
    let names: Vec<String> = hosts.iter().map(|host| scene.app.model.state.host_name(*host).to_owned()).collect();
    let text = rows(&buffer).join("\n");
    assert!(names.iter().all(|name| text.contains(name.as_str())), "{names:?} in {text}");
    names
}

#[test]
fn hosts_are_filtered_and_ordered() {
    let mut scene = fixtures::training_hosts(4);
    scene.emit(1, EventKind::HostLost { host: 2, error: "no answer".to_owned(), hint: String::new(), will_retry: true });
    // As panes, and as rows of the table.
    for (width, height) in [(120, 40), (80, 20)] {
        for (host, percent) in [(0, 96.0), (1, 20.0), (2, 99.0), (3, 50.0)] {
            (0..6).for_each(|_| scene.emit_gpus(host, 8, percent));
        }
        let order = |scene: &mut DashboardFixture| host_order(scene, width, height).join(" ");
        let standard = if height == 40 { "gpu00 gpu01 gpu02 gpu03" } else { "gpu02 gpu01 gpu00 gpu03" };
        assert_eq!(order(&mut scene), standard);
        for (name, expected) in [
            ("problems first", "gpu02 gpu01 gpu00 gpu03"),
            ("order of the inventory", "gpu00 gpu01 gpu02 gpu03"),
            ("least used first", "gpu01 gpu03 gpu00 gpu02"),
            ("hottest first", "gpu00 gpu01 gpu03 gpu02"),
            ("longest silent first", "gpu00 gpu01 gpu02 gpu03"),
        ] {
            scene.app.update(UiCommand::Sort);
            assert_eq!(order(&mut scene), expected, "{name} at {width}x{height}");
            let text = screen_text(&mut scene.app, width, height);
            assert!(text.contains(&format!("4 of 4 hosts  {name} (s)")), "{text}");
        }
        scene.app.update(UiCommand::Sort);
        assert_eq!(order(&mut scene), standard);
        scene.app.update(UiCommand::Faults);
        assert_eq!(order(&mut scene), "gpu01 gpu02", "the others are well, and two have room for panes");
        scene.app.update(UiCommand::Faults);
        press_keys(&mut scene.app, "/ g p u [ 1 - 3 ] space u t i l < 6 0 enter");
        assert_eq!(order(&mut scene).len(), 0, "gpu1 is no host: a pattern is the whole name");
        let text = screen_text(&mut scene.app, width, height);
        assert!(
            text.contains("0 of 4 hosts  /gpu[1-3] util<60") && text.contains("no host matches") && text.contains("gpu02  no"),
            "{text}"
        );
        press_keys(&mut scene.app, "/ g p u 0 [ 1 - 3 ] space u t i l < 6 0 enter");
        assert_eq!(order(&mut scene).split(' ').count(), 2);
        press_keys(&mut scene.app, "esc");
        assert_eq!(order(&mut scene), standard);
        press_keys(&mut scene.app, "/ h e a t > 1 enter");
        assert!(screen_text(&mut scene.app, width, height).contains("unknown metric `heat`"));
        scene.advance(10_000);
    }
    // In the log the same key searches.
    press_keys(&mut scene.app, "tab / s t e p space 7 9 enter");
    let text = screen_text(&mut scene.app, 120, 40);
    assert!(text.contains(" new ╮") && text.contains("step 79/400"), "the log has left its end: {text}");
}

/// The charts take room from neither panes nor log.
#[test]
fn charts_stand_where_panes_and_log_keep_their_room() {
    let mut scene = fixtures::training_hosts(4);
    (0..4).for_each(|host| scene.emit_gpus(host, 8, 96.0));
    let text = |scene: &mut DashboardFixture, width, height| screen_text(&mut scene.app, width, height);
    let shown = text(&mut scene, 200, 50);
    assert!(shown.contains("╭ loss 2.340 ") && shown.contains("╭ GPUs, mean 96% ") && shown.contains(" 0 to 100% ╮"), "{shown}");
    assert!(shown.contains("│ 7  96% █"), "{shown}");
    let small = text(&mut scene, 120, 36);
    assert!(!small.contains("╭ loss") && small.contains("│ 7  96% █"), "{small}");
    scene.fail_rank();
    assert!(!text(&mut scene, 200, 50).contains("╭ loss"), "a failure has the room");
}
