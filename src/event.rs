//! The words between the engine and everything that faces a person, a file or a pipe: events go up, controls go down.
//!
//! Uses `plan` for the names of phases and steps, `gpu` for what a GPU is. Holds words only: who stamps them is `engine/emitter`, who folds them is `state`.

pub mod controls;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::model::exit::{Exit, RunOutcome};
pub use crate::model::gpu::{GpuProcess, GpuSample};
pub use crate::model::level::Level;
pub use crate::model::log_file::{LogFile, MAX_LOG_CHUNK_BYTES};
pub use crate::model::phase::Phase;
pub use crate::model::rank::RankInfo;
pub use crate::plan::protocol::host_metrics::{HostMetrics, NetSample};

/// The format of a journal, `major.minor`. A reader accepts this major and the ones before it, and skips kinds that it does not know. The
/// `alias` attributes below are the names of format 1.
pub const JOURNAL_FORMAT: &str = "2.0";

/// Milliseconds since 1970-01-01T00:00:00Z on the laptop's clock.
pub type UnixMillis = i64;

/// Something that happened, with its place in the order of things.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Counts from 1 without gaps within one `orchestrate`.
    pub seq: u64,
    /// When the engine learned of it.
    pub at: UnixMillis,
    #[serde(flatten)]
    pub kind: EventKind,
}

/// A step of the plan, for those who draw the matrix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepInfo {
    /// Its number in the plan.
    pub id: u32,
    /// The index of its host in [`RunInfo::hosts`].
    pub host: u32,
    pub phase: Phase,
    /// What it does: `start the container`.
    pub title: String,
}

/// What a consumer needs to draw the run before anything has happened.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RunInfo {
    /// The journal's format, [`JOURNAL_FORMAT`].
    pub format: String,
    pub name: String,
    /// The run's id; empty for an operation without a run (`exec`, `down` of nothing).
    #[serde(rename = "run")]
    pub run_id: String,
    /// The operation: `up`, `down`, `attach`, `logs`.
    pub command: String,
    /// Counts from 1; a gang restart is a new attempt.
    pub attempt: u32,
    /// Host names in node-rank order, the master first.
    pub hosts: Vec<String>,
    /// Every rank, if known beforehand.
    pub ranks: Vec<RankInfo>,
    pub steps: Vec<StepInfo>,
    /// The inventory's own metrics: names, and patterns whose group is the value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, String>,
}

/// How a whole operation ended, in the order in which exit codes win (`product.md` section 2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Ok,
    /// The run goes on without us.
    Detached,
    Failed,
    /// The run was stopped, and no signal to this command did it.
    Stopped,
    /// Preflight or a different live run refused it.
    Refused,
    /// A host could not be reached.
    Unreachable,
    /// A signal ended it.
    Signal(i32),
    /// Something of ours is left on a host.
    Leftovers,
    /// Another operator holds the lock.
    Locked,
}

/// What should be the case in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunGoal {
    Up,
    /// Every rank ends with time to save.
    Stop,
    /// Every rank ends now.
    Kill,
    /// Nothing of ours is on any host.
    Down,
}

/// What a run that seems to hang is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HangSymptom {
    /// Ranks did not come where the others wait for them.
    #[serde(alias = "missing")]
    RankMissing,
    /// Ranks ended, and the others wait.
    #[serde(alias = "gone")]
    RankExited,
    /// No rank writes, and the GPUs are busy without drawing the power of work.
    Spinning,
    /// No rank writes; what the GPUs do is not known, or they do nothing.
    Silent,
    /// The run is not ready, though it has had time enough.
    #[serde(alias = "late")]
    NotReady,
}

/// A run seems to hang.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hang {
    /// What it is known by.
    #[serde(alias = "sign")]
    pub symptom: HangSymptom,
    /// Indexes of the hosts that it is about; empty: all.
    pub hosts: Vec<u32>,
    /// Global ranks that it is about; empty: all, or those hosts'.
    pub ranks: Vec<u32>,
    pub since: UnixMillis,
    /// What says so, a line each.
    pub evidence: Vec<String>,
}

/// The kinds of event. Log bytes and samples are chatter: they may be thinned or recorded elsewhere; all others are the run's life.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum EventKind {
    /// The first event, and again when a plan is known or replaced (attempt, teardown).
    RunStarted(RunInfo),
    /// A connection is being made.
    HostConnecting {
        /// Index of the host.
        host: u32,
    },
    HostConnected {
        /// Index of the host.
        host: u32,
        /// The host's clock minus ours, milliseconds.
        clock_offset: i64,
        /// How wrong that may be (half the round trip), milliseconds.
        uncertainty: i64,
    },
    /// A connection was lost, or none could be made; it is tried again while `retrying`.
    HostLost {
        /// Index of the host.
        host: u32,
        error: String,
        /// Whether it is tried again.
        #[serde(rename = "retrying")]
        will_retry: bool,
    },
    /// A phase begins on all hosts.
    PhaseStarted {
        phase: Phase,
    },
    StepStarted {
        step: u32,
    },
    /// There was nothing to do.
    StepSatisfied {
        step: u32,
        note: String,
    },
    /// A step changed something, or proved it.
    StepDone {
        step: u32,
        /// What it found or did.
        note: String,
    },
    /// A step is tried again.
    StepRetrying {
        step: u32,
        error: String,
    },
    StepFailed {
        step: u32,
        error: String,
        /// What to do next; may be empty.
        hint: String,
    },
    /// A check of preflight ended the same on these hosts.
    #[serde(alias = "checked")]
    CheckFinished {
        check: String,
        level: Level,
        /// Indexes of the hosts.
        hosts: Vec<u32>,
        /// What was found, or why it was not looked at.
        #[serde(alias = "what")]
        message: String,
        /// What to do next; may be empty.
        hint: String,
    },
    /// The launcher of a host runs.
    #[serde(alias = "node-started")]
    LauncherStarted {
        /// Index of the host.
        host: u32,
    },
    /// The launcher of a host ended.
    #[serde(alias = "node-exited")]
    LauncherExited {
        /// Index of the host.
        host: u32,
        exit: Exit,
        /// When, on our clock (0: unknown).
        #[serde(alias = "when")]
        ended_at: UnixMillis,
    },
    /// A worker process runs.
    RankStarted {
        /// Index of the host.
        host: u32,
        rank: u32,
        /// Its launcher's restart count.
        restart: u32,
        /// When, on our clock (0: unknown).
        #[serde(default, alias = "when")]
        started_at: UnixMillis,
    },
    /// A worker process ended.
    RankExited {
        /// Index of the host.
        host: u32,
        rank: u32,
        /// Its launcher's restart count.
        restart: u32,
        exit: Exit,
        /// When, on our clock corrected for the host's (0: unknown).
        #[serde(alias = "when")]
        ended_at: UnixMillis,
        /// How wrong that may be, milliseconds.
        uncertainty: i64,
    },
    /// `launch.ready_when` was seen, or every rank runs where it is not set.
    Ready,
    /// The ranks that failed first: one, or several closer together than the clocks can tell.
    Culprit {
        /// Global ranks; empty when a launcher failed before any rank.
        ranks: Vec<u32>,
        /// The hosts, same order.
        hosts: Vec<u32>,
    },
    /// The run seems to hang; once for each thing that is known of it.
    Hang(Hang),
    /// It does not hang any more: what was waited for has come.
    #[serde(alias = "hang-over")]
    HangEnded,
    /// How the hosts say that the run ended, or that it runs: read from its record, statuses and marks.
    #[serde(alias = "run-found")]
    RunEndReported {
        end: RunOutcome,
        /// When it ended, on our clock (0: unknown, or it runs).
        #[serde(alias = "when")]
        ended_at: UnixMillis,
    },
    /// A signal was sent to the ranks of a host.
    #[serde(alias = "signalled")]
    RanksSignaled {
        /// Index of the host.
        host: u32,
        /// `TERM` or `KILL`.
        signal: String,
    },
    /// Bytes of a log, in order, without gaps within (host, file).
    Log {
        /// Index of the host.
        host: u32,
        file: LogFile,
        /// The place of the first byte in the host's file.
        offset: u64,
        /// The bytes: at most [`MAX_LOG_CHUNK_BYTES`]; never serialised, the journal records ranges.
        #[serde(skip)]
        bytes: bytes::Bytes,
        /// How many bytes; what the journal keeps of them.
        len: u64,
    },
    /// A log is shorter on its host than what came of it: it was cut or written anew, and comes again from its first byte.
    #[serde(alias = "log-shrunk")]
    LogTruncated {
        /// Index of the host.
        host: u32,
        file: LogFile,
        /// How many bytes it has there now.
        size: u64,
    },
    /// GPU values of a host.
    Gpus {
        /// Index of the host.
        host: u32,
        gpus: Vec<GpuSample>,
    },
    /// nvidia-smi gives no values; it is asked again.
    #[serde(alias = "gpus-unread")]
    GpusUnavailable {
        /// Index of the host.
        host: u32,
        error: String,
    },
    /// The processes on the GPUs of a host.
    GpuProcesses {
        /// Index of the host.
        host: u32,
        /// One a process and GPU.
        processes: Vec<GpuProcess>,
    },
    /// What `nvidia-smi` prints on a host: a person asked for it.
    NvidiaSmi {
        /// Index of the host.
        host: u32,
        /// The text, as the host gave it; empty where it gave none.
        text: String,
        /// Why it gave none, or that it ended with an error; empty where it did not.
        #[serde(default)]
        error: String,
    },
    /// What a host does besides its GPUs.
    #[serde(alias = "vitals")]
    HostMetrics {
        /// Index of the host.
        host: u32,
        #[serde(alias = "vitals")]
        metrics: HostMetrics,
    },
    /// Free bytes under the run directory.
    #[serde(alias = "disk")]
    DiskSpace {
        /// Index of the host.
        host: u32,
        free: u64,
        total: u64,
    },
    /// What a host knows of a run that failed there: docker, the kernel, its disks.
    #[serde(alias = "aftermath")]
    Postmortem {
        /// Index of the host.
        host: u32,
        /// Lines, each beginning with who says it (`assets/aftermath.sh`).
        lines: Vec<String>,
    },
    /// Something a person should know.
    Notice {
        /// Index of the host it is about.
        host: Option<u32>,
        text: String,
        /// Whether it is a warning.
        warn: bool,
    },
    /// What should be the case changed.
    GoalChanged {
        goal: RunGoal,
        /// Why: `rank 3 failed`, `Ctrl-C`.
        #[serde(alias = "why")]
        reason: String,
    },
    /// Something of ours could not be removed.
    Leftover {
        /// Index of the host.
        host: u32,
        /// What, and why it is still there.
        text: String,
    },
    /// The last event, always, exactly once.
    RunFinished {
        outcome: Outcome,
        /// Whether the run's ranks succeeded, where there was a run.
        #[serde(alias = "why")]
        reason: String,
    },
}

impl EventKind {
    /// Whether it is a sample: one of many that may be thinned, since the next one replaces it.
    pub fn is_sample(&self) -> bool {
        matches!(
            self,
            EventKind::Gpus { .. } | EventKind::GpuProcesses { .. } | EventKind::NvidiaSmi { .. } | EventKind::HostMetrics { .. }
        )
    }
}

/// What a person, a finding or a signal asks of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunControl {
    /// End every rank with `stop_grace`, then tear down as `teardown` says.
    Stop {
        /// Why, for the journal.
        reason: String,
    },
    /// End every rank now.
    Kill { reason: String },
    /// Stop the gang and launch it again.
    Restart,
    /// Stop and remove everything whatever `teardown` says.
    Teardown,
    /// Leave the run alone and end.
    Detach,
}
