//! Feeds events to a sink in tests and folds them.

use std::collections::BTreeMap;

use super::ReportSink;
use super::recap::RecapContext;
use crate::diagnose::advice_formatter::AdviceFormatter;
use crate::event::stop_orders::StopOrders;
use crate::event::{Event, EventKind, Exit, LogFile, Outcome, Phase, RankInfo, RunGoal, RunInfo, StepInfo, UnixMillis};
use crate::state::RunState;

pub(super) struct SinkHarness<S> {
    pub(super) sink: S,
    pub(super) state: RunState,
    stop_orders: StopOrders,
    seq: u64,
    at: UnixMillis,
}

/// A plan with one step per host for each of these phases, and `per_host` ranks per host.
pub(super) fn run_started(hosts: u32, per_host: u32, phases: &[(Phase, &str)]) -> EventKind {
    let each = |(phase, title): &(Phase, &str)| (0..hosts).map(|host| (host, *phase, (*title).to_owned())).collect::<Vec<_>>();
    let steps = (0..).zip(phases.iter().flat_map(each)).map(|(id, (host, phase, title))| StepInfo { id, host, phase, title });
    EventKind::RunStarted(RunInfo {
        name: "wan22".to_owned(),
        run_id: "20261121-0915-7f3a".to_owned(),
        command: "up".to_owned(),
        attempt: 1,
        hosts: (1..=hosts).map(|n| format!("gpu{n:02}")).collect(),
        ranks: (0..hosts * per_host).map(|rank| RankInfo { rank, host: rank / per_host, local_rank: rank % per_host }).collect(),
        steps: steps.collect(),
        ..RunInfo::default()
    })
}

pub(super) fn recap_context() -> RecapContext {
    RecapContext {
        log_dir: Some("/state/runs/r/logs".to_owned()),
        advice: AdviceFormatter::new(&["wan22.yaml".to_owned()], &[], BTreeMap::new()),
        columns: Some(80),
        ..RecapContext::default()
    }
}

pub(super) fn rank_log(rank: u32, host: u32, offset: u64, text: &str) -> EventKind {
    EventKind::log(host, LogFile::Rank { rank, restart: 0 }, offset, text.to_owned())
}

pub(super) fn rank_exited(rank: u32, host: u32, exit: Exit, when: UnixMillis) -> EventKind {
    EventKind::RankExited { host, rank, restart: 0, exit, ended_at: when, uncertainty: 4, stopped: None }
}

impl<S: ReportSink> SinkHarness<S> {
    pub(super) fn new(sink: S) -> Self {
        SinkHarness { sink, state: RunState::new(), stop_orders: StopOrders::default(), seq: 0, at: 1_000_000 }
    }

    /// Emits an event `after` milliseconds later.
    pub(super) fn emit(&mut self, after: UnixMillis, kind: EventKind) {
        self.seq += 1;
        self.at += after;
        let mut kind = kind;
        self.stop_orders.stamp(&mut kind, self.at);
        let event = Event { seq: self.seq, at: self.at, kind };
        self.state.apply(&event);
        self.sink.on_event(&event, &self.state).expect("shown");
    }

    pub(super) fn finish(&mut self) {
        self.sink.finish(&self.state).expect("finished");
    }

    /// A run of 16 hosts with 2 ranks each: rank 3 fails, the run is torn down, and one container is left over.
    pub(super) fn emit_failing_run(&mut self) {
        let none = String::new;
        self.emit(
            0,
            run_started(16, 2, &[(Phase::Facts, "look around"), (Phase::Container, "start the container"), (Phase::Workers, "launch")]),
        );
        self.emit_phase(0, Phase::Facts, |_| false);
        self.emit_phase(16, Phase::Container, |host| host > 1);
        self.emit_phase(32, Phase::Workers, |_| false);
        for rank in 0..32 {
            self.emit(2, EventKind::RankStarted { host: rank / 2, rank, restart: 0, started_at: 0 });
        }
        self.emit(10, EventKind::Ready);
        self.emit(5000, rank_log(0, 0, 0, "step 1\nstep 2\n"));
        self.emit(0, rank_log(3, 1, 0, "step 1\nTraceback (most recent call last):\nRuntimeError: CUDA \u{1b}[31merror\u{1b}[0m\n"));
        self.emit(0, rank_exited(3, 1, Exit::Code(1), self.at));
        self.emit(0, EventKind::Culprit { ranks: vec![3], hosts: vec![1] });
        self.emit(5, EventKind::GoalChanged { goal: RunGoal::Stop, reason: "rank 3 failed".to_owned() });
        for host in 0..16 {
            self.emit(1, EventKind::RanksSignaled { host, signal: "TERM".to_owned() });
        }
        for rank in (0..32).filter(|rank| *rank != 3) {
            self.emit(1, rank_exited(rank, rank / 2, Exit::Signal(if rank == 7 { 9 } else { 15 }), self.at));
        }
        self.emit(400, run_started(16, 2, &[(Phase::Remove, "remove the container")]));
        for host in 0..15 {
            self.emit(0, EventKind::StepStarted { step: host });
            self.emit(10, EventKind::StepDone { step: host, note: none() });
        }
        let hint = "docker rm -f orchestrate-wan22".to_owned();
        self.emit(10, EventKind::StepFailed { step: 15, error: "docker: device or resource busy".to_owned(), hint, unreachable: false });
        self.emit(
            0,
            EventKind::Leftover { host: 15, text: "container orchestrate-wan22: device or resource busy".to_owned(), unchecked: false },
        );
        self.emit(900, EventKind::RunFinished { outcome: Outcome::Leftovers, reason: "rank 3 failed".to_owned() });
        self.finish();
    }

    fn emit_phase(&mut self, first: u32, phase: Phase, satisfied: fn(u32) -> bool) {
        self.emit(10, EventKind::PhaseStarted { phase });
        for host in 0..16 {
            self.emit(1, EventKind::StepStarted { step: first + host });
        }
        for host in 0..16 {
            let (step, note) = (first + host, String::new());
            self.emit(50, if satisfied(host) { EventKind::StepSatisfied { step, note } } else { EventKind::StepDone { step, note } });
        }
    }
}
