//! Fixture runs as event streams with times. The two main ones, a healthy run of two hosts and
//! a bad day, are journals in `tests/data/journals`, built here and played like `replay` does; also a launch, many hosts,
//! and an empty run.

mod journals;
mod launches;
mod samples;

use self::journals::{build_bad_day, build_healthy};
pub(super) use self::launches::{launching_hosts, launching_six_hosts, planned_hosts, preparing_hosts};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::app::App;
use super::feed::{DashboardCapabilities, DashboardRole, FeedMessage};
use super::headless::LocalFold;
use crate::event::stop_orders::StopOrders;
use crate::event::{Event, EventKind, Exit, JOURNAL_FORMAT, LogFile, Outcome, Phase, RankInfo, RunGoal, RunInfo, StepInfo, UnixMillis};
use crate::report::journal::Journal;
use crate::report::past_runs::{RunDirLogs, open_logs};
use crate::report::replay_source::{self, LogTextLoader};
use crate::text::sanitize::Sanitizer;

/// 2026-11-21T12:00:00Z.
const START_MS: UnixMillis = 1_795_262_400_000;

pub(super) struct DashboardFixture {
    pub(super) app: App,
    fold: LocalFold,
    now: UnixMillis,
    seq: u64,
    /// All events, to write a journal.
    events: Vec<Event>,
    stop_orders: StopOrders,
}

/// Builds a fixture.
pub(super) type BuildFixture = fn() -> DashboardFixture;

/// The journals and their builders.
pub(super) const JOURNALS: [(&str, BuildFixture); 2] = [("healthy", build_healthy), ("bad-day", build_bad_day)];

/// Directory of a journal.
pub(super) fn journal_dir(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/journals").join(name)
}

/// Plays a journal from start to end.
fn replay_journal(name: &str) -> DashboardFixture {
    let dir = journal_dir(name);
    let events = replay_source::load_replay(&dir).expect("a journal; BLESS=1 makes it").events;
    let mut logs = LogTextLoader::new(Some(open_logs(&dir).expect("its logs")));
    let mut scene = DashboardFixture::at(0);
    for mut event in events.iter().flat_map(|event| logs.fill_log_text(event)) {
        (scene.now, scene.seq) = (event.at, event.seq);
        scene.stop_orders.stamp(&mut event.kind, event.at);
        scene.fold.handle_message(&mut scene.app, FeedMessage::Event(event));
    }
    scene.fold.update_snapshot(&mut scene.app);
    scene.change_capabilities(|known| (known.can_control, known.can_restart) = (true, true));
    scene.app.handle_message(FeedMessage::StoredLogs(Box::new(RunDirLogs(dir))));
    scene.advance(3_000);
    scene
}

/// Two hosts with eight ranks each, ten minutes in.
pub(super) fn healthy() -> DashboardFixture {
    replay_journal("healthy")
}

/// Sixteen hosts: one rank died of a CUDA error, a host is lost, another floods its logs with control sequences.
pub(super) fn bad_day() -> DashboardFixture {
    replay_journal("bad-day")
}

impl DashboardFixture {
    /// Writes the events as a run directory.
    pub(super) fn write_journal(&self, dir: &Path) {
        std::fs::create_dir_all(dir).expect("a folder");
        let mut journal = Journal::open(dir, Sanitizer::default()).expect("a journal");
        let mut logs = open_logs(dir).expect("a store");
        let names: Vec<String> = self.app.model.state.hosts.iter().map(|host| host.name.clone()).collect();
        logs.set_default_hosts(&names);
        for event in &self.events {
            if let EventKind::Log { host, file, offset, bytes, .. } = &event.kind {
                logs.write_at(&names[*host as usize], *file, *offset, bytes).expect("written");
            }
            journal.record_event(event).expect("written");
        }
        journal.flush().expect("written");
    }

    pub(super) fn new(hosts: u32, ranks: u32) -> DashboardFixture {
        let mut scene = DashboardFixture::at(START_MS);
        scene.emit(0, run_started(hosts, ranks, &[]));
        scene
    }

    fn at(now: UnixMillis) -> DashboardFixture {
        let app = App::new(DashboardRole::Observer, Sanitizer::default());
        DashboardFixture { app, fold: LocalFold::default(), now, seq: 0, events: Vec::new(), stop_orders: StopOrders::default() }
    }

    pub(super) fn change_capabilities(&mut self, change: impl FnOnce(&mut DashboardCapabilities)) {
        let mut capabilities = self.app.model.capabilities.clone();
        change(&mut capabilities);
        self.app.handle_message(FeedMessage::Capabilities(capabilities));
    }

    pub(super) fn emit(&mut self, after: i64, kind: EventKind) {
        self.now += after;
        self.seq += 1;
        let mut kind = kind;
        self.stop_orders.stamp(&mut kind, self.now);
        let event = Event { seq: self.seq, at: self.now, kind };
        self.events.push(event.clone());
        self.fold.handle_message(&mut self.app, FeedMessage::Event(event));
        self.fold.update_snapshot(&mut self.app);
    }

    pub(super) fn advance(&mut self, time: i64) {
        self.now += time;
        self.app.handle_message(FeedMessage::Tick(self.now));
    }

    fn emit_log(&mut self, host: u32, file: LogFile, text: &str) {
        let offset = self.app.model.state.recent_lines(host, file).expect("a known log").next_offset;
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        self.emit(1, EventKind::Log { host, file, offset, len: bytes.len() as u64, bytes });
    }

    pub(super) fn emit_rank_log(&mut self, rank: u32, text: &str) {
        let host = self.app.model.state.ranks[&rank].host;
        self.emit_log(host, LogFile::Rank { rank, restart: 0 }, text);
    }

    fn exit_rank(&mut self, after: i64, rank: u32, exit: Exit, uncertainty: i64) {
        let (host, ended_at) = (self.app.model.state.ranks[&rank].host, self.now);
        self.emit(after, EventKind::RankExited { host, rank, restart: 0, exit, ended_at, uncertainty, stopped: None });
    }

    fn connect_hosts(&mut self, hosts: u32) {
        for host in 0..hosts {
            self.emit(20, EventKind::HostConnecting { host });
        }
        for host in 0..hosts {
            self.emit(30, EventKind::HostConnected { host, clock_offset: 12, uncertainty: 4 });
        }
    }

    fn start_ranks(&mut self, hosts: u32, per: u32) {
        for host in 0..hosts {
            self.emit(1, EventKind::LauncherStarted { host });
            for local in 0..per {
                self.emit(1, EventKind::RankStarted { host, rank: host * per + local, restart: 0, started_at: self.now });
            }
        }
        self.emit(900, EventKind::Ready);
        self.change_capabilities(|known| (known.can_control, known.can_restart) = (true, true));
    }
}

fn run_started(hosts: u32, ranks: u32, steps: &[(Phase, &str)]) -> EventKind {
    let per = ranks.checked_div(hosts).unwrap_or(0).max(1);
    EventKind::RunStarted(RunInfo {
        format: JOURNAL_FORMAT.to_owned(),
        name: "wan22".to_owned(),
        run_id: if ranks > 0 { "20261121-120000-c455".to_owned() } else { String::new() },
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

pub(super) fn empty() -> DashboardFixture {
    DashboardFixture::new(0, 0)
}

/// Hosts with eight ranks and GPUs each that have trained for a while, one line a rank and step.
pub(super) fn training_hosts(hosts: u32) -> DashboardFixture {
    let mut scene = planned_hosts(hosts);
    scene.finish_launch(hosts);
    scene.start_ranks(hosts, 8);
    // Many hosts need fewer rounds to show the same.
    for step in if hosts > 16 { 78..=80 } else { 1..=80 } {
        for rank in 0..hosts * 8 {
            scene.emit_rank_log(rank, &format!("step {step}/400 loss 2.{:03}\n", 900 - step * 7));
        }
        scene.advance(1_000);
    }
    (0..hosts).for_each(|host| scene.emit_gpus(host, 8, 96.0));
    scene
}

impl DashboardFixture {
    /// Hosts with one process each.
    pub(super) fn training_processes(hosts: u32) -> DashboardFixture {
        let mut scene = DashboardFixture::new(hosts, hosts);
        scene.connect_hosts(hosts);
        scene.start_ranks(hosts, 1);
        scene
    }

    /// Rank 3 dies of an exception and the gang is stopped.
    pub(super) fn fail_rank(&mut self) {
        self.emit_rank_log(3, "Traceback (most recent call last):\n  File \"train.py\", line 88\nValueError: the batch is empty\n");
        self.exit_rank(90, 3, Exit::Code(1), 8);
        self.emit(1, EventKind::Culprit { ranks: vec![3], hosts: vec![0] });
        self.emit(5, EventKind::GoalChanged { goal: RunGoal::Stop, reason: "rank 3 on gpu00 failed: exit 1".to_owned() });
    }
}

/// 128 hosts with 8 GPUs each.
pub(super) fn many_hosts() -> DashboardFixture {
    let mut scene = DashboardFixture::new(128, 1024);
    scene.connect_hosts(128);
    scene.start_ranks(128, 8);
    for rank in 0..1024 {
        scene.emit_rank_log(rank, &format!("step 1180/4000 loss 2.31{} tokens/s {}\n", rank % 10, 12_000 + rank));
    }
    for host in 0..128 {
        scene.emit_gpus(host, 8, 60.0 + f32::from(u8::try_from(host % 40).expect("small")));
    }
    scene.emit(100, EventKind::HostLost { host: 90, error: "no route to host".to_owned(), hint: String::new(), will_retry: false });
    scene.advance(1_000);
    scene
}

/// A run that ended successfully.
pub(super) fn finished_run() -> DashboardFixture {
    let mut scene = healthy();
    (0..16).for_each(|rank| scene.exit_rank(5, rank, Exit::Code(0), 4));
    scene.emit(500, EventKind::RunFinished { outcome: Outcome::Ok, reason: String::new() });
    scene
}

/// Two hosts whose ranks are being stopped, one of them slowly.
pub(super) fn tearing_down() -> DashboardFixture {
    let mut scene = healthy();
    scene.app.handle_message(FeedMessage::Capabilities(DashboardCapabilities::view_only(DashboardRole::Owner)));
    scene.emit(10, EventKind::GoalChanged { goal: RunGoal::Down, reason: "asked for".to_owned() });
    let steps = [
        (Phase::Stop, "stop the ranks"),
        (Phase::Remove, "remove the container"),
        (Phase::Fetch, "fetch the logs"),
        (Phase::Clean, "remove the run directory"),
        (Phase::Verify, "verify that nothing is left"),
    ];
    scene.emit(1, run_started(2, 16, &steps));
    scene.emit(1, EventKind::PhaseStarted { phase: Phase::Stop });
    for step in 0..2 {
        scene.emit(1, EventKind::StepStarted { step });
    }
    for host in 0..2 {
        scene.emit(1, EventKind::RanksSignaled { host, signal: "TERM".to_owned() });
    }
    (0..13).for_each(|rank| scene.exit_rank(50, rank, Exit::Code(143), 4));
    scene.emit(10, EventKind::StepDone { step: 0, note: String::new() });
    scene.advance(12_000);
    scene
}
