//! Any bytes in a log, and any text as the name of a host, a process or a GPU or as an error: every screen is drawn at any size without a
//! panic, and no cell contains a terminal control character.
#![no_main]

use arbitrary::Arbitrary;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use orchestrate::event::{Event, EventKind, GpuProcess, GpuSample, LogFile, RankInfo, RunInfo};
use orchestrate::tui::ui::Screen;
use orchestrate::tui::headless::HeadlessDashboard;
use orchestrate::tui::feed::FeedMessage;

#[derive(Arbitrary, Debug)]
struct ScreenInput {
    width: u8,
    height: u8,
    names: [String; 2],
    gpu: String,
    error: String,
    process: String,
    utilization: Option<f32>,
    power: Option<f32>,
    log: Vec<Vec<u8>>,
}

fuzz_target!(|input: ScreenInput| {
    let (width, height) = (u16::from(input.width).max(1), u16::from(input.height % 80).max(1));
    let mut dry = HeadlessDashboard::new(width, height).expect("a dashboard");
    let info = RunInfo {
        hosts: input.names.to_vec(),
        ranks: (0..2).map(|rank| RankInfo { rank, host: rank, local_rank: 0 }).collect(),
        ..RunInfo::default()
    };
    let gpu = GpuSample { name: input.gpu.clone(), utilization: input.utilization, power: input.power, ..GpuSample::default() };
    let (user, name) = (input.process.clone(), input.process);
    let process = GpuProcess { pid: 7, gpu: String::new(), memory: None, user, name, belongs_to_run: false };
    let mut kinds = vec![
        EventKind::RunStarted(info),
        EventKind::RankStarted { host: 0, rank: 0, restart: 0, started_at: 1 },
        EventKind::Gpus { host: 0, gpus: vec![gpu].into() },
        EventKind::GpuProcesses { host: 0, processes: vec![process] },
        EventKind::GpusUnavailable { host: 1, error: input.error.clone() },
        EventKind::NvidiaSmi { host: 0, text: input.error.clone(), error: input.gpu },
        EventKind::HostLost { host: 1, error: input.error, will_retry: true },
    ];
    let (file, mut offset) = (LogFile::Rank { rank: 0, restart: 0 }, 0);
    for piece in input.log.into_iter().filter(|piece| !piece.is_empty()) {
        let (bytes, len) = (Bytes::from(piece.clone()), piece.len() as u64);
        kinds.push(EventKind::Log { host: 0, file, offset, bytes, len });
        offset += len;
    }
    for (seq, kind) in (1..).zip(kinds) {
        dry.handle_message(FeedMessage::Event(Event { seq, at: 1_795_262_400_000 + seq as i64, kind }));
    }
    for screen in Screen::ALL {
        dry.show_screen(screen);
        let cells = dry.draw_cells().expect("drawn");
        let steers = |c: char| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c);
        assert!(!cells.chars().any(steers), "{cells:?}");
    }
});
