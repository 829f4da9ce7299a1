//! A run as tests tell it: events with times, folded as they come.

use bytes::Bytes;

use super::Sink;
use crate::event::{Event, EventKind, Exit, Goal, LogFile, Millis, Outcome, Phase, RankInfo, RunInfo, StepInfo};
use crate::state::RunState;

/// Tells events to a face.
pub(super) struct Scene<S> {
    pub(super) face: S,
    pub(super) state: RunState,
    seq: u64,
    at: Millis,
}

/// A plan with one step a host for each of these phases, and `per_host` ranks on each host.
pub(super) fn plan(hosts: u32, per_host: u32, phases: &[(Phase, &str)]) -> EventKind {
    let each = |(phase, title): &(Phase, &str)| (0..hosts).map(|host| (host, *phase, (*title).to_owned())).collect::<Vec<_>>();
    let steps = (0..).zip(phases.iter().flat_map(each)).map(|(id, (host, phase, title))| StepInfo { id, host, phase, title });
    EventKind::RunStarted(RunInfo {
        name: "wan22".to_owned(),
        run: "20261121-0915-7f3a".to_owned(),
        command: "up".to_owned(),
        attempt: 1,
        hosts: (1..=hosts).map(|n| format!("gpu{n:02}")).collect(),
        ranks: (0..hosts * per_host).map(|rank| RankInfo { rank, host: rank / per_host, local_rank: rank % per_host }).collect(),
        steps: steps.collect(),
        ..RunInfo::default()
    })
}

pub(super) fn log(rank: u32, host: u32, offset: u64, text: &str) -> EventKind {
    let bytes = Bytes::copy_from_slice(text.as_bytes());
    EventKind::Log { host, file: LogFile::Rank { rank, restart: 0 }, offset, len: bytes.len() as u64, bytes }
}

pub(super) fn exited(rank: u32, host: u32, exit: Exit, when: Millis) -> EventKind {
    EventKind::RankExited { host, rank, restart: 0, exit, when, uncertainty: 4 }
}

impl<S: Sink> Scene<S> {
    pub(super) fn new(face: S) -> Self {
        Scene { face, state: RunState::new(), seq: 0, at: 1_000_000 }
    }

    /// Tells an event `after` milliseconds.
    pub(super) fn tell(&mut self, after: Millis, kind: EventKind) {
        self.seq += 1;
        self.at += after;
        let event = Event { seq: self.seq, at: self.at, kind };
        self.state.apply(&event);
        self.face.on(&event, &self.state).expect("shown");
    }

    pub(super) fn finish(&mut self) {
        self.face.finish(&self.state).expect("finished");
    }

    /// A run of 16 hosts with 2 ranks each; rank 3 fails, all is torn down, and one container stays behind.
    pub(super) fn failing_run(&mut self) {
        let none = String::new;
        self.tell(0, plan(16, 2, &[(Phase::Facts, "look around"), (Phase::Container, "start the container"), (Phase::Workers, "launch")]));
        self.phase(0, Phase::Facts, |_| false);
        self.phase(16, Phase::Container, |host| host > 1);
        self.phase(32, Phase::Workers, |_| false);
        for rank in 0..32 {
            self.tell(2, EventKind::RankStarted { host: rank / 2, rank, restart: 0, when: 0 });
        }
        self.tell(10, EventKind::Ready);
        self.tell(5000, log(0, 0, 0, "step 1\nstep 2\n"));
        self.tell(0, log(3, 1, 0, "step 1\nTraceback (most recent call last):\nRuntimeError: CUDA \u{1b}[31merror\u{1b}[0m\n"));
        self.tell(0, exited(3, 1, Exit::Code(1), self.at));
        self.tell(0, EventKind::Culprit { ranks: vec![3], hosts: vec![1] });
        self.tell(5, EventKind::GoalChanged { goal: Goal::Stop, why: "rank 3 failed".to_owned() });
        for host in 0..16 {
            self.tell(1, EventKind::Signalled { host, signal: "TERM".to_owned() });
        }
        for rank in (0..32).filter(|rank| *rank != 3) {
            self.tell(1, exited(rank, rank / 2, Exit::Signal(if rank == 7 { 9 } else { 15 }), self.at));
        }
        self.tell(400, plan(16, 2, &[(Phase::Remove, "remove the container")]));
        for host in 0..15 {
            self.tell(0, EventKind::StepStarted { step: host });
            self.tell(10, EventKind::StepDone { step: host, note: none() });
        }
        let hint = "docker rm -f orchestrate-wan22".to_owned();
        self.tell(10, EventKind::StepFailed { step: 15, error: "docker: device or resource busy".to_owned(), hint });
        self.tell(0, EventKind::Leftover { host: 15, text: "container orchestrate-wan22: device or resource busy".to_owned() });
        self.tell(900, EventKind::RunFinished { outcome: Outcome::Leftovers, why: "rank 3 failed".to_owned() });
        self.finish();
    }

    fn phase(&mut self, first: u32, phase: Phase, satisfied: fn(u32) -> bool) {
        self.tell(10, EventKind::PhaseStarted { phase });
        for host in 0..16 {
            self.tell(1, EventKind::StepStarted { step: first + host });
        }
        for host in 0..16 {
            let (step, note) = (first + host, String::new());
            self.tell(50, if satisfied(host) { EventKind::StepSatisfied { step, note } } else { EventKind::StepDone { step, note } });
        }
    }
}
