//! Every screen at the common sizes for 1 to 128 hosts, healthy and on a bad day: frames are whole, the first problem is there.
//!
//! With `SCREENS=DIR` in the environment each is also written there, as text, as SVG, and as the bytes for a terminal.

use std::path::Path;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};

use super::compact_backend::CompactBackend;
use super::feed::DashboardRole;
use super::fixtures::{self, BuildFixture, DashboardFixture};
use super::svg::render_svg;
use super::tests::{cell_text, draw, press_keys, screen_text};
use super::ui::Screen;
use crate::event::{EventKind, GpuSample};
use crate::text::golden::assert_golden;

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

/// Eight GPUs at work, each a little different; one of them at another utilization.
fn busy_gpus(host: u32, round: u16, odd: Option<(u32, f32)>) -> EventKind {
    let gpu = |index: u32| {
        let wave = f32::from(u8::try_from((host * 7 + index * 5 + u32::from(round) * 3) % 11).expect("small"));
        let utilization = odd.filter(|(gpu, _)| *gpu == index).map_or(99.0 - wave, |(_, percent)| percent);
        GpuSample {
            index,
            uuid: format!("GPU-{host}-{index}"),
            name: "NVIDIA H100 80GB HBM3".to_owned(),
            utilization: Some(utilization),
            memory_used: Some(71_000.0 - wave * 300.0),
            memory_total: Some(81_559.0),
            power: Some(110.0 + utilization * 5.6),
            power_limit: Some(700.0),
            sm_clock: Some(1_980.0),
            temperature: Some(40.0 + utilization / 4.0 + if (host, index) == (1, 6) { 9.0 } else { 0.0 }),
            ..GpuSample::default()
        }
    };
    EventKind::Gpus { host, gpus: (0..8).map(gpu).collect() }
}

/// A line of every rank but the silent one, then the GPUs; `odd`: a host, one of its GPUs and the utilization of that.
fn train_round(scene: &mut DashboardFixture, hosts: u32, round: u16, silent: Option<u32>, odd: Option<(u32, (u32, f32))>) {
    for rank in (0..hosts * 8).filter(|rank| Some(*rank) != silent) {
        let noise = (u32::from(round) * 7 + rank) % 90;
        let line = format!("step {}/400 loss 2.{:03} tokens/s {} lr 3.0e-04\n", 81 + round, 340 - round * 9, 52_600 + noise);
        scene.emit_rank_log(rank, &line);
    }
    let odd_gpu = |host: u32| odd.filter(|(odd, _)| *odd == host).map(|(_, gpu)| gpu);
    (0..hosts).for_each(|host| scene.emit(1, busy_gpus(host, round, odd_gpu(host))));
}

/// Hosts with eight GPUs and ranks each in training, with histories.
pub(super) fn healthy(hosts: u32) -> DashboardFixture {
    let mut scene = fixtures::training_hosts(hosts);
    for round in 0..if hosts > 16 { 2 } else { 24_u16 } {
        train_round(&mut scene, hosts, round, None, None);
        (0..hosts).for_each(|host| scene.emit_machine(host, f32::from(20 + round * 3 % 17)));
        scene.advance(2_000);
    }
    (0..hosts).for_each(|host| scene.emit_host_metrics(host));
    scene
}

/// Rank 21 falls behind on a GPU that works less than the others.
pub(super) fn straggler(hosts: u32) -> DashboardFixture {
    let mut scene = healthy(hosts);
    for round in 24..34_u16 {
        train_round(&mut scene, hosts, round, (round >= 26).then_some(21), Some((2, (5, 41.0))));
        scene.advance(2_000);
        // That it is behind is seen over several frames.
        draw(&mut scene.app, 40, 10);
    }
    scene
}

/// A rank has died and the gang is stopped; of several hosts one is lost, one has broken memory, one idles.
pub(super) fn bad_day(hosts: u32) -> DashboardFixture {
    let mut scene = healthy(hosts);
    if hosts > 1 {
        let error = "connection reset by peer".to_owned();
        scene.emit(1, EventKind::HostLost { host: hosts - 1, error, hint: String::new(), will_retry: true });
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

/// What a plan runs.
fn plan_lines(hosts: u32) -> Vec<String> {
    let ranks = format!("hosts     {hosts}, {} ranks", hosts * 8);
    let command = format!(
        "command   gpu00: torchrun --nnodes={hosts} --node_rank=0 --nproc_per_node=8 --master_addr=10.0.0.1 --master_port=29500 train.py --steps 4000"
    );
    let lines = [
        ranks.as_str(),
        "image     registry/train:7",
        command.as_str(),
        "container gpu00: docker run -d --name wan22-gpu00 --network=host --ipc=host --gpus=all -v /data:/data:ro -v /home/li/out:/out registry/train:7",
    ];
    lines.map(str::to_owned).into()
}

/// A launch: a slow pull, and a step that is tried again.
fn launching(hosts: u32) -> DashboardFixture {
    let mut scene = fixtures::launching_hosts(hosts);
    scene.change_capabilities(|known| (known.role, known.plan_lines) = (DashboardRole::Owner, plan_lines(hosts)));
    scene
}

/// The plan waits for its start.
pub(super) fn planned(hosts: u32) -> DashboardFixture {
    let mut scene = fixtures::planned_hosts(hosts);
    scene.change_capabilities(|known| {
        (known.role, known.plan_lines) = (DashboardRole::Owner, plan_lines(hosts));
        known.start_summary = Some("no run exists: a new one would be launched".to_owned());
    });
    scene
}

fn write_picture(name: &str, buffer: &Buffer) {
    let Some(dir) = std::env::var_os("SCREENS") else { return };
    std::fs::create_dir_all(&dir).expect("a directory");
    std::fs::write(Path::new(&dir).join(format!("{name}.txt")), cell_text(buffer)).expect("written");
    std::fs::write(Path::new(&dir).join(format!("{name}.svg")), render_svg(buffer, name)).expect("written");
    std::fs::write(Path::new(&dir).join(format!("{name}.ansi")), terminal_bytes(buffer)).expect("written");
}

/// What a terminal of this size gets for the screen.
fn terminal_bytes(buffer: &Buffer) -> Vec<u8> {
    let mut bytes = Vec::new();
    let options = TerminalOptions { viewport: Viewport::Fixed(buffer.area) };
    let mut terminal = Terminal::with_options(CompactBackend::new(&mut bytes), options).expect("a terminal");
    terminal.draw(|frame| frame.buffer_mut().clone_from(buffer)).expect("drawn");
    drop(terminal);
    bytes
}

fn check_screens(kind: &str, hosts: u32, scene: &mut DashboardFixture) {
    for (width, height) in SIZES {
        for screen in Screen::ALL {
            let key = scene.app.model.bindings.key_hint(screen.command(), &[super::keymap::KeyContext::Global]);
            press_keys(&mut scene.app, &key);
            let name = format!("{}-{kind}-{hosts}-{width}x{height}", screen.name().to_lowercase());
            let buffer = draw(&mut scene.app, width, height);
            write_picture(&name, &buffer);
            frames(&buffer, &name);
            let text = cell_text(&buffer);
            let marks: &[&str] = match (kind, hosts, screen, width) {
                ("healthy", 128, Screen::Overview, 200) => &["╭ loss 2.331", "╭ GPUs, mean 94%"],
                ("healthy", 16, Screen::Gpus, 200) => &["POWER  MEAN over 51 s"],
                ("healthy", 2, Screen::Gpus, 120) => &["100, over 46 s, the newest at the right", " 648/700W      r0 ●"],
                ("launch", ..) if screen == Screen::Overview && hosts > 2 => &["pull (layers)"],
                _ => &[],
            };
            marks.iter().for_each(|mark| assert!(text.contains(mark), "{mark} in {name}\n{text}"));
            assert!(kind != "bad" || screen != Screen::Overview || text.contains("rank 3 on gpu00"), "{name}\n{text}");
        }
    }
}

#[test]
fn slow_rank_is_named_at_common_sizes() {
    for hosts in [4, 16] {
        let mut scene = straggler(hosts);
        for (width, height) in SIZES {
            let name = format!("overview-slow-{hosts}-{width}x{height}");
            let buffer = draw(&mut scene.app, width, height);
            write_picture(&name, &buffer);
            let text = cell_text(&buffer);
            assert!(text.contains("training step 114/400"), "the step of most ranks: {name}\n{text}");
            let silent = if width >= 100 { ", silent for 1" } else { ": press 3  hottest" };
            let marks = [&format!("slowest r21 on gpu02 step 106, 8 behind{silent}"), ": press 3  hottest "];
            marks.iter().for_each(|mark| assert!(text.contains(*mark), "{mark} in {name}\n{text}"));
        }
        scene.app.ui.screen = Screen::Ranks;
        let text = screen_text(&mut scene.app, 120, 36);
        assert!(text.lines().nth(4).is_some_and(|row| row.contains(" 21 gpu02 ")), "the first row: {text}");
    }
}

#[test]
fn every_screen_at_common_sizes() {
    std::thread::scope(|scope| {
        for hosts in [1, 2, 4, 16, 128] {
            scope.spawn(move || {
                check_screens("healthy", hosts, &mut healthy(hosts));
                check_screens("bad", hosts, &mut bad_day(hosts));
                check_screens("launch", hosts, &mut launching(hosts));
                check_screens("plan", hosts, &mut planned(hosts));
            });
        }
    });
}

/// Name, title, what is shown, the screen, and its size.
type ReadmeImage = (&'static str, &'static str, BuildFixture, Screen, (u16, u16));

/// The images in the README match the screens.
#[test]
fn readme_images_are_current() {
    let shown: [ReadmeImage; 6] = [
        ("overview", "The first screen: 4 hosts with 8 GPUs each in training", || healthy(4), Screen::Overview, (120, 36)),
        ("failure", "The first screen after a rank failed on one of 16 hosts", fixtures::bad_day, Screen::Overview, (120, 40)),
        ("many", "The first screen with 128 hosts", fixtures::many_hosts, Screen::Overview, (120, 36)),
        ("launch", "The overview during a launch: hosts and phases", fixtures::launching_six_hosts, Screen::Overview, (100, 24)),
        ("host", "One host with its GPUs, ranks and processes", fixtures::healthy, Screen::Host, (120, 40)),
        ("gpus", "1024 GPUs on one screen", fixtures::many_hosts, Screen::Gpus, (100, 24)),
    ];
    for (name, title, make, screen, (width, height)) in shown {
        let mut scene = make();
        scene.app.ui.screen = screen;
        assert_golden(&format!("assets/screens/{name}.svg"), &render_svg(&draw(&mut scene.app, width, height), title));
    }
}
