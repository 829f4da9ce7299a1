#![expect(clippy::disallowed_methods, reason = "writes the pictures where a directory is named")]
//! Every screen at the common sizes for 1 to 128 hosts, healthy and on a bad day: frames are whole, the first problem is there.
//!
//! With `SCREENS=DIR` in the environment each is also written there, as text and as SVG.

use std::path::Path;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::feed::{DashboardCapabilities, DashboardRole, FeedMessage};
use super::fixtures::{self, DashboardFixture};
use super::svg::render_svg;
use super::tests::{draw, snapshot_text};
use super::ui::Screen;
use crate::event::{EventKind, GpuSample};

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 36), (200, 50)];

/// The frames of a picture: every rounded or heavy rectangle, each edge whole but for its titles.
///
/// # Panics
/// Where a corner belongs to no frame or a side has a gap: something was drawn over it.
pub(super) fn frames(buffer: &Buffer, what: &str) -> Vec<Rect> {
    let symbol = |x: u16, y: u16| buffer[(x, y)].symbol();
    let mut found: Vec<Rect> = Vec::new();
    let mut corners = 0;
    for y in 0..buffer.area.height {
        for x in 0..buffer.area.width {
            corners += usize::from(["╮", "╰", "╯", "┓", "┗", "┛"].contains(&symbol(x, y)));
            let (right_corner, sides, lower) = match symbol(x, y) {
                "╭" => ("╮", "│", ["╰", "╯"]),
                "┏" => ("┓", "┃", ["┗", "┛"]),
                _ => continue,
            };
            let right = (x + 1..buffer.area.width).find(|at| symbol(*at, y) == right_corner);
            let right = right.unwrap_or_else(|| panic!("{what}: the frame at {x},{y} has no right corner"));
            let bottom = (y + 1..buffer.area.height).find(|at| symbol(x, *at) != sides);
            let bottom = bottom.unwrap_or_else(|| panic!("{what}: the frame at {x},{y} has no lower edge"));
            assert_eq!([symbol(x, bottom), symbol(right, bottom)], lower, "{what}: lower corners of the frame at {x},{y}");
            for row in y + 1..bottom {
                assert_eq!(symbol(right, row), sides, "{what}: the right side of the frame at {x},{y} in row {row}");
            }
            found.push(Rect { x, y, width: right - x + 1, height: bottom - y + 1 });
        }
    }
    assert_eq!(corners, found.len() * 3, "{what}: a corner without its frame");
    for (n, one) in found.iter().enumerate() {
        assert!(found[n + 1..].iter().all(|other| other.intersection(*one).area() == 0), "{what}: {one:?} overlaps");
    }
    found
}

/// Hosts with eight GPUs and ranks each in training, with histories.
fn healthy(hosts: u32) -> DashboardFixture {
    let mut scene = fixtures::training_hosts(hosts);
    for round in 0..if hosts > 16 { 2 } else { 24_u16 } {
        for rank in 0..hosts * 8 {
            let noise = (u32::from(round) * 7 + rank) % 90;
            scene.emit_rank_log(
                rank,
                &format!("step {}/400 loss 2.{:03} tokens/s {} lr 3.0e-04\n", 81 + round, 340 - round * 9, 52_600 + noise),
            );
        }
        (0..hosts).for_each(|host| scene.emit_gpus(host, 8, 99.0 - f32::from((round * 5 + 3) % 11)));
        scene.advance(2_000);
    }
    (0..hosts).for_each(|host| scene.emit_host_metrics(host));
    scene
}

/// A rank has died and the gang is stopped; of several hosts one is lost, one has broken memory, one idles.
fn bad_day(hosts: u32) -> DashboardFixture {
    let mut scene = healthy(hosts);
    if hosts > 1 {
        let error = "no answer for 30 s".to_owned();
        scene.emit(1, EventKind::HostLost { host: hosts - 1, error, will_retry: true });
    }
    if hosts > 2 {
        let gpu = |index: u32| GpuSample {
            index,
            utilization: Some(if index == 5 { 0.0 } else { 71.0 }),
            temperature: Some(88.0),
            throttle_reasons: (index == 2).then_some(0x20),
            ecc_errors: (index == 6).then_some(3.0),
            ..GpuSample::default()
        };
        for _ in 0..6 {
            scene.emit(1, EventKind::Gpus { host: 1, gpus: (0..8).map(gpu).collect() });
        }
        scene.emit(1, EventKind::Notice { host: Some(1), text: "clock is 700 ms off".to_owned(), warn: true });
    }
    scene.fail_rank();
    scene.advance(1_000);
    scene
}

/// The plan waits for its start.
fn planned(hosts: u32) -> DashboardFixture {
    let mut scene = fixtures::launching_hosts(hosts);
    let lines = ["image     registry/train:7", "command   torchrun train.py --steps 4000", "differs   launch.nproc_per_node: 4 → 8"];
    scene.app.handle_message(FeedMessage::Capabilities(DashboardCapabilities {
        start_summary: Some("no run exists: it would be launched".to_owned()),
        plan_lines: lines.map(str::to_owned).into(),
        ..DashboardCapabilities::view_only(DashboardRole::Owner)
    }));
    scene
}

fn write_picture(name: &str, buffer: &Buffer) {
    let Some(dir) = std::env::var_os("SCREENS") else { return };
    std::fs::create_dir_all(&dir).expect("a directory");
    std::fs::write(Path::new(&dir).join(format!("{name}.txt")), snapshot_text(buffer)).expect("written");
    std::fs::write(Path::new(&dir).join(format!("{name}.svg")), render_svg(buffer, name)).expect("written");
}

fn check_screens(kind: &str, hosts: u32, scene: &mut DashboardFixture) {
    for (width, height) in SIZES {
        for screen in Screen::ALL {
            scene.app.ui.screen = screen;
            let name = format!("{}-{kind}-{hosts}-{width}x{height}", screen.title().1.to_lowercase());
            let buffer = draw(&mut scene.app, width, height);
            write_picture(&name, &buffer);
            frames(&buffer, &name);
            let text = snapshot_text(&buffer);
            assert!(kind != "bad" || screen != Screen::Overview || text.contains("rank 3 on gpu00"), "{name}\n{text}");
        }
    }
}

#[test]
fn every_screen_at_common_sizes() {
    std::thread::scope(|scope| {
        for hosts in [1, 2, 4, 16, 128] {
            scope.spawn(move || {
                check_screens("healthy", hosts, &mut healthy(hosts));
                check_screens("bad", hosts, &mut bad_day(hosts));
                check_screens("launch", hosts, &mut fixtures::launching_hosts(hosts));
                check_screens("plan", hosts, &mut planned(hosts));
            });
        }
    });
}
