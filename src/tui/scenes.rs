#![expect(clippy::disallowed_methods, reason = "makes the journals in tests/data and reads them")]
//! Runs as tests tell them: events with times, as the feed would bring them. The two that every screen is looked at with, a healthy run of
//! two hosts and a bad day, are journals in `tests/data/journals`, made here and played as `replay` plays them; besides a launch, many hosts,
//! and nothing at all.

use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::app::App;
use super::feed::{Note, Offer, Role};
use super::theme::{Skin, Theme};
use crate::event::{
    Event, EventKind, Exit, FORMAT, Goal, GpuProcess, GpuSample, LogFile, Millis, NetSample, Outcome, Phase, RankInfo, RunInfo, StepInfo,
    Vitals,
};
use crate::report::journal::Journal;
use crate::report::past::{self, Recaller};
use crate::report::runs::open_logs;
use crate::report::sanitize::Cleaner;

/// 2026-11-21T12:00:00Z.
const NOON: Millis = 1_795_262_400_000;

pub(super) struct Scene {
    pub(super) app: App,
    at: Millis,
    seq: u64,
    /// All that was told, for a journal of it.
    told: Vec<Event>,
}

/// The laptop's copies of logs.
struct Copies(PathBuf);

impl super::feed::Stored for Copies {
    fn len(&self, host: &str, file: LogFile) -> std::io::Result<u64> {
        open_logs(&self.0).and_then(|mut logs| logs.len(host, file)).map_err(std::io::Error::other)
    }
    fn read(&self, host: &str, file: LogFile, from: u64, most: usize) -> std::io::Result<Vec<u8>> {
        open_logs(&self.0).and_then(|logs| logs.read_at(host, file, from, most)).map_err(std::io::Error::other)
    }
}

/// What makes a scene.
pub(super) type Make = fn() -> Scene;

/// The journals and what makes them.
pub(super) const JOURNALS: [(&str, Make); 2] = [("healthy", make_healthy), ("bad-day", make_bad_day)];

/// Where a journal is kept.
pub(super) fn kept(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/journals").join(name)
}

/// A run as its journal tells it, from its beginning to its end.
fn played(name: &str) -> Scene {
    let dir = kept(name);
    let events = past::read(&dir).expect("a journal; BLESS=1 makes it").events;
    let mut logs = Recaller::new(Some(open_logs(&dir).expect("its logs")));
    let app = App::new(Role::Onlooker, Cleaner::default(), Theme::new(Skin::Dark, false));
    let mut scene = Scene { app, at: 0, seq: 0, told: Vec::new() };
    for event in events.iter().flat_map(|event| logs.recall(event)) {
        (scene.at, scene.seq) = (event.at, event.seq);
        scene.app.hear(Note::Event(event));
    }
    scene.app.hear(Note::Offer(Offer { act: true, again: true, ..Offer::of(Role::Onlooker) }));
    scene.app.hear(Note::Stored(Box::new(Copies(dir))));
    scene.wait(3_000);
    scene
}

/// Two hosts with eight ranks each, ten minutes in.
pub(super) fn healthy() -> Scene {
    played("healthy")
}

/// Sixteen hosts: one rank died of CUDA, a host is lost, another's logs are a flood of what terminals must not be told.
pub(super) fn bad_day() -> Scene {
    played("bad-day")
}

impl Scene {
    /// Writes what was told as a run's folder has it.
    pub(super) fn keep(&self, dir: &Path) {
        std::fs::create_dir_all(dir).expect("a folder");
        let mut journal = Journal::open(dir, Cleaner::default()).expect("a journal");
        let mut logs = open_logs(dir).expect("a store");
        let names: Vec<String> = self.app.state.hosts.iter().map(|host| host.name.clone()).collect();
        logs.suppose(&names);
        for event in &self.told {
            if let EventKind::Log { host, file, offset, bytes, .. } = &event.kind {
                logs.write_at(&names[*host as usize], *file, *offset, bytes).expect("written");
            }
            journal.on(event).expect("written");
        }
        journal.flush().expect("written");
    }

    pub(super) fn new(hosts: u32, ranks: u32) -> Scene {
        let app = App::new(Role::Onlooker, Cleaner::default(), Theme::new(Skin::Dark, false));
        let mut scene = Scene { app, at: NOON, seq: 0, told: Vec::new() };
        scene.tell(0, plan(hosts, ranks, &[]));
        scene
    }

    pub(super) fn tell(&mut self, after: i64, kind: EventKind) {
        self.at += after;
        self.seq += 1;
        let event = Event { seq: self.seq, at: self.at, kind };
        self.told.push(event.clone());
        self.app.hear(Note::Event(event));
    }

    pub(super) fn wait(&mut self, time: i64) {
        self.at += time;
        self.app.hear(Note::Now(self.at));
    }

    fn log(&mut self, host: u32, file: LogFile, text: &str) {
        let offset = match file {
            LogFile::Node => self.app.state.hosts[host as usize].tail.next,
            LogFile::Rank { rank, .. } => self.app.state.ranks[&rank].tail.next,
        };
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        self.tell(1, EventKind::Log { host, file, offset, len: bytes.len() as u64, bytes });
    }

    fn say(&mut self, rank: u32, text: &str) {
        let host = self.app.state.ranks[&rank].host;
        self.log(host, LogFile::Rank { rank, restart: 0 }, text);
    }

    fn connect(&mut self, hosts: u32) {
        for host in 0..hosts {
            self.tell(20, EventKind::HostConnecting { host });
        }
        for host in 0..hosts {
            self.tell(30, EventKind::HostConnected { host, clock_offset: 12, uncertainty: 4 });
        }
    }

    fn start(&mut self, hosts: u32, per: u32) {
        for host in 0..hosts {
            self.tell(1, EventKind::NodeStarted { host });
            for local in 0..per {
                self.tell(1, EventKind::RankStarted { host, rank: host * per + local, restart: 0, when: self.at });
            }
        }
        self.tell(900, EventKind::Ready);
        self.app.hear(Note::Offer(Offer { act: true, again: true, ..Offer::of(Role::Onlooker) }));
    }

    fn gpus(&mut self, host: u32, count: u32, percent: f32) {
        let gpu = |index: u32| GpuSample {
            index,
            uuid: format!("GPU-{host}-{index}"),
            name: "NVIDIA H100 80GB HBM3".to_owned(),
            utilization: Some(percent),
            memory_used: Some(71_000.0),
            memory_total: Some(81_559.0),
            power: Some(640.0),
            power_limit: Some(700.0),
            temperature: Some(60.0 + f32::from(u8::try_from(index % 8).expect("small"))),
            ..GpuSample::default()
        };
        self.tell(1, EventKind::Gpus { host, gpus: (0..count).map(gpu).collect() });
    }
}

impl Scene {
    /// GPUs that do not tell all, are cut up, broken or held down, and an nvidia-smi that hangs.
    fn odd_gpus(&mut self) {
        let gpu = |index: u32| GpuSample {
            index,
            uuid: format!("GPU-7-{index}"),
            name: "NVIDIA A100-SXM4-40GB".to_owned(),
            utilization: Some(71.0),
            memory_used: Some(30_000.0),
            memory_total: Some(40_960.0),
            power: Some(390.0),
            power_limit: Some(400.0),
            temperature: Some(88.0),
            clock: Some(1_005.0),
            clock_max: Some(1_410.0),
            ..GpuSample::default()
        };
        let gpus = vec![
            gpu(0),
            GpuSample { reasons: Some(0x20), ..gpu(1) },
            GpuSample { reasons: Some(0x04), ..gpu(2) },
            GpuSample { ecc_errors: Some(3.0), ..gpu(3) },
            GpuSample { mig: Some(true), utilization: None, ..gpu(4) },
            GpuSample { utilization: None, power: None, temperature: None, clock: None, ..gpu(5) },
            GpuSample { utilization: Some(0.0), ..gpu(6) },
            gpu(7),
        ];
        // Later than the last look, so that the journal keeps it.
        self.tell(11_000, EventKind::Gpus { host: 7, gpus });
        self.watch(7);
        let text = "Unable to determine the device handle for GPU 0000:53:00.0: Unknown Error";
        self.tell(1, EventKind::GpusUnread { host: 12, error: text.to_owned() });
        let text = "+---+\n| NVIDIA-SMI 550.127.05 |\n| 3  NVIDIA A100-SXM4-40GB  ERR! \u{1b}[31m|\n+---+\n".to_owned();
        self.tell(1, EventKind::NvidiaSmi { host: 7, text, error: String::new() });
        for host in (0..16).filter(|host| ![7, 9, 12].contains(host)) {
            self.gpus(host, 8, if host == 13 { 31.0 } else { 99.0 });
        }
    }

    /// The machine and what runs on its GPUs, one process of someone else's among them.
    fn watch(&mut self, host: u32) {
        let net = |name: &str, port: &str, bytes: f64| NetSample {
            name: name.to_owned(),
            port: port.to_owned(),
            received: bytes,
            sent: bytes * 0.9,
        };
        let vitals = Vitals {
            load: Some(31.4),
            cpu: Some(28.0),
            memory_total: 2_014 << 30,
            memory_available: 1_500 << 30,
            networks: vec![net("bond0", "", 3.1e6), net("mlx5_0", "1", 21.7e9)],
        };
        self.tell(5, EventKind::Vitals { host, vitals });
        self.tell(5, EventKind::Disk { host, free: 700 << 30, total: 1_800 << 30 });
        let process = |n: u32| GpuProcess {
            pid: 41_000 + n,
            gpu: format!("GPU-{host}-{n}"),
            memory: Some(71_000.0),
            user: "li".to_owned(),
            name: "/usr/bin/python3".to_owned(),
            ours: true,
        };
        let mut processes: Vec<GpuProcess> = (0..8).map(process).collect();
        processes.push(GpuProcess { pid: 900, memory: Some(310.0), user: "wang\u{1b}]0;x\u{7}".to_owned(), ours: false, ..process(3) });
        self.tell(5, EventKind::GpuProcesses { host, processes });
    }
}

fn plan(hosts: u32, ranks: u32, steps: &[(Phase, &str)]) -> EventKind {
    let per = ranks.checked_div(hosts).unwrap_or(0).max(1);
    EventKind::RunStarted(RunInfo {
        format: FORMAT.to_owned(),
        name: "wan22".to_owned(),
        run: if ranks > 0 { "20261121-120000-c455".to_owned() } else { String::new() },
        command: "tui".to_owned(),
        attempt: 1,
        hosts: (0..hosts).map(|n| format!("gpu{n:02}")).collect(),
        ranks: (0..ranks).map(|rank| RankInfo { rank, host: rank / per, local_rank: rank % per }).collect(),
        steps: (0_u32..)
            .zip(steps.iter().flat_map(|(phase, title)| (0..hosts).map(move |host| (*phase, *title, host))))
            .map(|(id, (phase, title, host))| StepInfo { id, host, phase, title: title.to_owned() })
            .collect(),
        metrics: std::collections::BTreeMap::new(),
    })
}

/// Nothing is known.
pub(super) fn empty() -> Scene {
    Scene::new(0, 0)
}

fn make_healthy() -> Scene {
    let mut scene = Scene::new(2, 16);
    scene.connect(2);
    scene.start(2, 8);
    scene.log(0, LogFile::Node, "torchrun: starting 8 workers\n");
    for step in 1..=20_u8 {
        for rank in 0..16 {
            let loss = 9 - u32::from(step) / 4;
            let noise = 17 * (rank + u32::from(step)) % 1000;
            scene.say(rank, &format!("step {step}/400 loss {loss}.{noise:03} tokens/s {}\n", 51_000 + rank));
        }
        for host in 0..2 {
            scene.gpus(host, 8, 97.0 - f32::from(step % 7) * 9.0);
        }
        scene.wait(14_000);
    }
    for host in 0..2 {
        scene.watch(host);
        scene.gpus(host, 8, 96.0);
    }
    scene
}

fn make_bad_day() -> Scene {
    let mut scene = Scene::new(16, 128);
    scene.connect(16);
    scene.start(16, 8);
    for rank in 0..128 {
        scene.say(rank, &format!("step 1180/4000 loss 2.31{} tokens/s {}\n", rank % 10, 12_000 + rank));
    }
    for host in 0..16 {
        scene.gpus(host, 8, if host == 13 { 34.0 } else { 98.0 });
    }
    scene.wait(11_000);
    for host in (0..16).filter(|host| *host != 9) {
        scene.gpus(host, 8, if host == 13 { 31.0 } else { 99.0 });
    }
    scene.odd_gpus();
    let evil = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{1b}]52;c;ZXZpbA==\u{7}\u{202e}gnp.exe\tГ中\u{301}\u{301}\u{301}\u{301}\u{301}\r\n";
    scene.say(40, &evil.repeat(50));
    scene.say(41, &"x".repeat(20_000));
    scene.say(42, &(0..1000).map(|n| format!("\r{n:4}%|####| {n}/1000")).collect::<String>());
    scene.tell(10, EventKind::Notice { host: Some(3), text: "clock is 700 ms off \u{1b}[31m".to_owned(), warn: true });
    scene.tell(2_000, EventKind::HostLost { host: 9, error: "no answer for 30 s".to_owned(), retrying: true });
    scene.say(
        37,
        "Traceback (most recent call last):\n  File \"train.py\", line 212\nRuntimeError: CUDA error: unspecified launch failure\n",
    );
    let when = scene.at;
    scene.tell(90, EventKind::RankExited { host: 4, rank: 37, restart: 0, exit: Exit::Code(1), when, uncertainty: 8 });
    scene.tell(5, EventKind::GoalChanged { goal: Goal::Stop, why: "rank 37 on gpu04 failed: exit 1".to_owned() });
    for host in (0..16).filter(|host| *host != 9) {
        scene.tell(1, EventKind::Signalled { host, signal: "TERM".to_owned() });
    }
    for rank in (32..40).filter(|rank| *rank != 37) {
        let when = scene.at;
        scene.tell(30, EventKind::RankExited { host: 4, rank, restart: 0, exit: Exit::Signal(15), when, uncertainty: 8 });
    }
    scene.tell(1, EventKind::Culprit { ranks: vec![37], hosts: vec![4] });
    scene
}

/// A launch under way: a slow pull, a step that is tried again.
pub(super) fn launch() -> Scene {
    launching(6)
}

/// So many hosts on their way; two of them pull still.
pub(super) fn launching(hosts: u32) -> Scene {
    let mut scene = Scene::new(hosts, 0);
    scene.connect(hosts);
    let steps = [
        (Phase::Preflight, "look whether it fits"),
        (Phase::Pull, "pull the image"),
        (Phase::Container, "start the container"),
        (Phase::Master, "start the master"),
        (Phase::Workers, "start the workers"),
    ];
    scene.tell(5, plan(hosts, hosts * 8, &steps));
    scene.tell(1, EventKind::PhaseStarted { phase: Phase::Preflight });
    for step in 0..hosts {
        scene.tell(10, EventKind::StepStarted { step });
        scene.tell(250, EventKind::StepSatisfied { step, note: String::new() });
    }
    scene.tell(1, EventKind::PhaseStarted { phase: Phase::Pull });
    for step in hosts..hosts * 2 {
        scene.tell(1, EventKind::StepStarted { step });
    }
    for host in (0..hosts).filter(|host| ![2, 4].contains(host)) {
        scene.tell(4_000, EventKind::StepDone { step: hosts + host, note: "pulled".to_owned() });
    }
    scene.tell(500, EventKind::StepRetrying { step: hosts + 2, error: "registry: connection reset".to_owned() });
    scene.wait(12_000);
    scene
}

/// 128 hosts with 8 GPUs each.
pub(super) fn many() -> Scene {
    let mut scene = Scene::new(128, 1024);
    scene.connect(128);
    scene.start(128, 8);
    for rank in 0..1024 {
        scene.say(rank, &format!("step 1180/4000 loss 2.31{} tokens/s {}\n", rank % 10, 12_000 + rank));
    }
    for host in 0..128 {
        scene.gpus(host, 8, 60.0 + f32::from(u8::try_from(host % 40).expect("small")));
    }
    scene.tell(100, EventKind::HostLost { host: 90, error: "no route to host".to_owned(), retrying: false });
    scene.wait(1_000);
    scene
}

/// A run that has ended well.
pub(super) fn ended() -> Scene {
    let mut scene = healthy();
    for rank in 0..16 {
        let when = scene.at;
        scene.tell(5, EventKind::RankExited { host: rank / 8, rank, restart: 0, exit: Exit::Code(0), when, uncertainty: 4 });
    }
    scene.tell(500, EventKind::RunFinished { outcome: Outcome::Ok, why: String::new() });
    scene
}

/// Two hosts whose ranks are being stopped, one of them slowly.
pub(super) fn tearing_down() -> Scene {
    let mut scene = healthy();
    scene.app.hear(Note::Offer(Offer::of(Role::Launcher)));
    scene.tell(10, EventKind::GoalChanged { goal: Goal::Down, why: "asked for".to_owned() });
    let steps = [
        (Phase::Stop, "stop the ranks"),
        (Phase::Remove, "remove the container"),
        (Phase::Fetch, "fetch the logs"),
        (Phase::Clean, "remove the run directory"),
        (Phase::Verify, "verify that nothing is left"),
    ];
    scene.tell(1, plan(2, 16, &steps));
    scene.tell(1, EventKind::PhaseStarted { phase: Phase::Stop });
    for step in 0..2 {
        scene.tell(1, EventKind::StepStarted { step });
    }
    for host in 0..2 {
        scene.tell(1, EventKind::Signalled { host, signal: "TERM".to_owned() });
    }
    for rank in 0..13 {
        let when = scene.at;
        scene.tell(50, EventKind::RankExited { host: rank / 8, rank, restart: 0, exit: Exit::Code(143), when, uncertainty: 4 });
    }
    scene.tell(10, EventKind::StepDone { step: 0, note: String::new() });
    scene.wait(12_000);
    scene
}
