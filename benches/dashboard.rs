//! The cost of the dashboard.
//!
//! `cargo bench --bench dashboard` draws every screen of a run of 128 hosts with 8 GPUs at three sizes, with new data before each frame,
//! and prints the drawing thread's CPU time per frame and the bytes for the terminal.
//! `… flood quiet|tui SECONDS DIR` (for `benches/dashboard.py`, which gives it a terminal) feeds 100,000 lines a second of 64 ranks through
//! the reporter, which stores them in DIR, with or without the dashboard, and prints the time.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::disallowed_methods, reason = "a failed benchmark panics")]

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use orchestrate::event::{Event, EventKind, GpuSample, HostMetrics, JOURNAL_FORMAT, LogFile, NetSample, RankInfo, RunInfo, UnixMillis};
use orchestrate::report::past_runs::RunDir;
use orchestrate::report::{ReportSink, Reporter};
use orchestrate::text::sanitize::Sanitizer;
use orchestrate::tui::feed::{DashboardRole, FeedMessage};
use orchestrate::tui::headless::HeadlessDashboard;
use orchestrate::tui::settings::DashboardSettings;
use orchestrate::tui::ui::Screen;

const FRAMES: usize = 2_000;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["flood", output, seconds, dir] => bench_flood(output, seconds.parse().expect("seconds"), Path::new(dir)),
        _ => bench_frames(),
    }
}

/// The CPU time of this thread.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).expect("positive"), u32::try_from(time.tv_nsec).expect("less than a second"))
}

/// The events of a run, with numbers and times.
struct EventGenerator {
    seq: u64,
    at: UnixMillis,
    offsets: Vec<u64>,
}

impl EventGenerator {
    fn new(ranks: u32) -> EventGenerator {
        EventGenerator { seq: 0, at: 1_795_262_400_000, offsets: vec![0; ranks as usize] }
    }

    fn event(&mut self, kind: EventKind) -> Event {
        self.seq += 1;
        Event { seq: self.seq, at: self.at, kind }
    }

    /// A run of this many hosts with this many ranks each, all running.
    fn start_run(&mut self, hosts: u32, per: u32) -> Vec<Event> {
        let info = RunInfo {
            format: JOURNAL_FORMAT.to_owned(),
            name: "bench".to_owned(),
            run_id: "20261121-120000-0000".to_owned(),
            command: "bench".to_owned(),
            attempt: 1,
            hosts: (0..hosts).map(|host| format!("gpu{host:03}")).collect(),
            ranks: (0..hosts * per).map(|rank| RankInfo { rank, host: rank / per, local_rank: rank % per }).collect(),
            ..RunInfo::default()
        };
        let mut all = vec![self.event(EventKind::RunStarted(info))];
        for host in 0..hosts {
            all.push(self.event(EventKind::HostConnected { host, clock_offset: 3, uncertainty: 1 }));
        }
        for rank in 0..hosts * per {
            let when = self.at;
            all.push(self.event(EventKind::RankStarted { host: rank / per, rank, restart: 0, started_at: when }));
        }
        all.push(self.event(EventKind::Ready));
        all
    }

    fn gpu_samples(&mut self, host: u32, round: u32) -> Event {
        let gpu = |index: u32| {
            let wave = ((host * 7 + index * 13 + round * 5) % 40) as f32;
            GpuSample {
                index,
                uuid: format!("GPU-{host}-{index}"),
                name: "NVIDIA H100 80GB HBM3".to_owned(),
                utilization: Some(60.0 + wave),
                memory_used: Some(60_000.0 + wave * 100.0),
                memory_total: Some(81_559.0),
                power: Some(500.0 + wave * 5.0),
                power_limit: Some(700.0),
                temperature: Some(50.0 + wave / 2.0),
                sm_clock: Some(1_900.0 - wave),
                sm_clock_max: Some(1_980.0),
                throttle_reasons: Some(0),
                ..GpuSample::default()
            }
        };
        let gpus = (0..8).map(gpu).collect();
        self.event(EventKind::Gpus { host, gpus })
    }

    fn host_metrics(&mut self, host: u32, round: u32) -> Event {
        let rate = f64::from(host * 31 + round * 17) * 1e6;
        let networks = vec![NetSample {
            name: "mlx5_0/1".to_owned(),
            infiniband_port_state: "ACTIVE".to_owned(),
            received_bytes_per_sec: rate,
            sent_bytes_per_sec: rate,
        }];
        let metrics =
            HostMetrics { load_average: Some(12.0), cpu_percent: Some(40.0), memory_total: 2 << 40, memory_available: 1 << 40, networks };
        self.event(EventKind::HostMetrics { host, metrics })
    }

    fn rank_log(&mut self, host: u32, rank: u32, text: String) -> Event {
        let bytes = Bytes::from(text);
        let len = bytes.len() as u64;
        let offset = self.offsets[rank as usize];
        self.offsets[rank as usize] += len;
        self.event(EventKind::Log { host, file: LogFile::Rank { rank, restart: 0 }, offset, bytes, len })
    }
}

/// 128 hosts with 8 GPUs and 8 ranks each, two minutes of samples, one line per rank, and a lost host.
fn busy_dashboard(story: &mut EventGenerator, (width, height): (u16, u16)) -> HeadlessDashboard {
    let mut dry = HeadlessDashboard::new(width, height).expect("a dashboard");
    for event in story.start_run(128, 8) {
        dry.handle_message(FeedMessage::Event(event));
    }
    for round in 0..60 {
        for host in 0..128 {
            dry.handle_message(FeedMessage::Event(story.gpu_samples(host, round)));
        }
        story.at += 2_000;
    }
    for host in 0..128 {
        dry.handle_message(FeedMessage::Event(story.host_metrics(host, 0)));
    }
    for rank in 0..1024 {
        let line = format!("step 1 loss 2.3{rank} tokens/s 51000 lr 3.0e-4 grad_norm 0.31\n");
        dry.handle_message(FeedMessage::Event(story.rank_log(rank / 8, rank, line)));
    }
    let lost = EventKind::HostLost { host: 90, error: "no route to host".to_owned(), hint: String::new(), will_retry: true };
    dry.handle_message(FeedMessage::Event(story.event(lost)));
    dry
}

fn bench_frames() {
    println!("| screen | size | median | p99 | p99.9 | worst | bytes, median | bytes, most |\n|---|---|---|---|---|---|---|---|");
    for (width, height) in [(80, 24), (120, 40), (200, 60)] {
        for screen in Screen::ALL {
            let mut story = EventGenerator::new(1024);
            let mut dry = busy_dashboard(&mut story, (width, height));
            dry.show_screen(screen);
            dry.draw_frame().expect("drawn");
            let (mut times, mut bytes) = (Vec::new(), Vec::new());
            for frame in 0..FRAMES {
                // A tenth of a second: six hosts report their values, and a tenth of the ranks print a line.
                story.at += 100;
                let round = u32::try_from(frame).expect("few");
                for n in 0..6 {
                    let host = (round * 6 + n) % 128;
                    dry.handle_message(FeedMessage::Event(story.gpu_samples(host, round)));
                    dry.handle_message(FeedMessage::Event(story.host_metrics(host, round)));
                }
                for n in 0..102 {
                    let rank = (round * 102 + n) % 1024;
                    let line = format!("step {round} loss 2.3{rank} tokens/s {} lr 3.0e-4 grad_norm 0.31\n", 51_000 + n);
                    dry.handle_message(FeedMessage::Event(story.rank_log(rank / 8, rank, line)));
                }
                dry.handle_message(FeedMessage::Tick(story.at));
                let begun = thread_time();
                bytes.push(dry.draw_frame().expect("drawn"));
                times.push(thread_time() - begun);
            }
            times.sort();
            bytes.sort_unstable();
            let ms = |at: usize| format!("{:.2} ms", times[at.min(FRAMES - 1)].as_secs_f64() * 1e3);
            println!(
                "| {} | {width}x{height} | {} | {} | {} | {} | {} | {} |",
                screen.name(),
                ms(FRAMES / 2),
                ms(FRAMES * 99 / 100),
                ms(FRAMES * 999 / 1000),
                ms(FRAMES - 1),
                bytes[FRAMES / 2],
                bytes[FRAMES - 1]
            );
        }
    }
}

fn bench_flood(output: &str, seconds: u64, dir: &Path) {
    const RANKS: u32 = 64;
    const LINES_PER_SECOND: u64 = 100_000;
    const TICK: Duration = Duration::from_millis(50);
    let mut ended = None;
    let mut asks = None;
    let sinks: Vec<Box<dyn ReportSink>> = if output == "tui" {
        let board = orchestrate::tui::open_dashboard(DashboardRole::Observer, Sanitizer::default(), DashboardSettings::default())
            .expect("a terminal");
        (ended, asks) = (Some(board.ended), Some(board.actions));
        vec![Box::new(board.sender)]
    } else {
        Vec::new()
    };
    let mut reporter = Reporter::new(Sanitizer::default(), sinks);
    reporter.set_run_dir(RunDir::open(dir, "20261121-120000-0000").expect("a folder"), &[]).expect("kept");
    let mut story = EventGenerator::new(RANKS);
    for event in story.start_run(8, 8) {
        reporter.handle_event(&event).expect("taken");
    }
    let begun = Instant::now();
    let cpu = process_time();
    let mut sent = 0;
    let each = LINES_PER_SECOND / u64::from(RANKS) * u64::try_from(TICK.as_millis()).expect("short") / 1000;
    for tick in 1..=seconds * 1000 / u64::try_from(TICK.as_millis()).expect("short") {
        story.at += 50;
        for rank in 0..RANKS {
            let line =
                |n: u64| format!("step {tick} loss 2.318 lr 3.0e-4 tokens/s 12874 grad_norm 0.31 rank {rank} line {n} of this tick\n");
            let text: String = (0..each).map(line).collect();
            sent += each;
            let event = story.rank_log(rank / 8, rank, text);
            reporter.handle_event(&event).expect("stored");
        }
        reporter.tick(story.at);
        let due = TICK * u32::try_from(tick).expect("few");
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
    }
    let wall = begun.elapsed().as_secs_f64();
    let cpu = (process_time() - cpu).as_secs_f64();
    let lost = reporter.finish();
    if let Some(ended) = ended {
        ended.blocking_recv().expect("the dashboard ends");
    }
    drop(asks);
    let names: Vec<String> = reporter.state().hosts.iter().map(|host| host.name.clone()).collect();
    let logs = reporter.logs().expect("logs");
    let kept: u64 =
        (0..RANKS).map(|rank| logs.log_len(&names[rank as usize / 8], LogFile::Rank { rank, restart: 0 }).expect("there")).sum();
    let whole = kept == story.offsets.iter().sum::<u64>() && lost.is_empty();
    let report = format!("{{\"output\":\"{output}\",\"lines\":{sent},\"wall\":{wall},\"cpu\":{cpu},\"whole\":{whole}}}");
    std::fs::write(dir.join("flood.json"), report).expect("written");
}

/// The CPU time of this process.
fn process_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).expect("positive"), u32::try_from(time.tv_nsec).expect("less than a second"))
}
