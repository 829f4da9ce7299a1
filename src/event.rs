//! The interface between the engine and its consumers (dashboard, reports, journal): events go up, controls go down.
//!
//! `engine/emitter` stamps the events, `state` folds them.

pub mod controls;
mod hang;
mod outcome;
mod run_info;
pub(crate) mod stop_orders;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use self::controls::RunControl;
pub use self::hang::{Hang, HangSymptom};
pub use self::outcome::{Outcome, RunGoal};
pub(crate) use self::run_info::follows_run;
pub use self::run_info::{RunInfo, StepInfo};
pub use crate::model::UnixMillis;
pub use crate::model::exit::{Exit, RunOutcome};
pub use crate::model::gpu::{GpuProcess, GpuSample};
pub use crate::model::layer_counts::LayerCounts;
pub use crate::model::level::Level;
pub use crate::model::log_file::{LogFile, MAX_LOG_CHUNK_BYTES};
pub use crate::model::phase::Phase;
pub use crate::model::rank::RankInfo;
pub use crate::plan::protocol::host_metrics::{HostMetrics, NetSample};

/// The format of a journal, `major.minor`. A reader accepts this major and the ones before it, and skips kinds that it does not know. The
/// `alias` attributes below are the names of format 1.
pub const JOURNAL_FORMAT: &str = "2.1";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Counts from 1 without gaps within one process.
    pub seq: u64,
    /// When the engine emitted it.
    pub at: UnixMillis,
    #[serde(flatten)]
    pub kind: EventKind,
}

/// Log bytes and samples may be thinned or recorded elsewhere; consumers see every other event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum EventKind {
    /// The first event; emitted again when a plan is made or replaced (attempt, teardown).
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
        /// The error bound of `clock_offset` (half the round trip), milliseconds.
        uncertainty: i64,
    },
    /// A connection was lost or could not be made.
    HostLost {
        /// Index of the host.
        host: u32,
        error: String,
        /// What to do about it; may be empty.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        hint: String,
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
    /// There was nothing to do: `ok` in reports.
    StepSatisfied {
        step: u32,
        note: String,
    },
    /// A step changed something, or checked something that only it could: `changed` or `ok` in reports.
    StepDone {
        step: u32,
        /// What it found or did.
        note: String,
    },
    /// A task of `prepare` need not run on this host.
    StepSkipped {
        step: u32,
        /// Why.
        note: String,
    },
    StepRetrying {
        step: u32,
        error: String,
    },
    /// How far a pull is; at most twice a second per host, and once more when it has succeeded.
    PullProgress {
        step: u32,
        #[serde(flatten)]
        counts: LayerCounts,
    },
    /// How far the files of a `sync` or `copy` task are on a host: bytes of what it lacked.
    StepProgress {
        /// Index of the host.
        host: u32,
        step: u32,
        done: u64,
        total: u64,
    },
    StepFailed {
        step: u32,
        error: String,
        /// What to do next; may be empty.
        hint: String,
        /// Whether the host could not be reached.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unreachable: bool,
    },
    /// A preflight check had the same result on these hosts.
    #[serde(alias = "checked")]
    CheckFinished {
        check: String,
        level: Level,
        /// Indexes of the hosts.
        hosts: Vec<u32>,
        /// The result, or why the check was skipped.
        #[serde(alias = "what")]
        message: String,
        /// What to do next; may be empty.
        hint: String,
    },
    #[serde(alias = "node-started")]
    LauncherStarted {
        /// Index of the host.
        host: u32,
    },
    #[serde(alias = "node-exited")]
    LauncherExited {
        /// Index of the host.
        host: u32,
        exit: Exit,
        /// When, on our clock (0: unknown).
        #[serde(alias = "when")]
        ended_at: UnixMillis,
        /// Whether it ended because the run was stopped; `None` before the engine stamps it, and in journals before format 1.6.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stopped: Option<bool>,
    },
    RankStarted {
        /// Index of the host.
        host: u32,
        rank: u32,
        /// The launcher's restart count.
        restart: u32,
        /// When, on our clock (0: unknown).
        #[serde(default, alias = "when")]
        started_at: UnixMillis,
    },
    RankExited {
        /// Index of the host.
        host: u32,
        rank: u32,
        /// The launcher's restart count.
        restart: u32,
        exit: Exit,
        /// When, on our clock corrected for the host's (0: unknown).
        #[serde(alias = "when")]
        ended_at: UnixMillis,
        /// The error bound of `ended_at`, milliseconds.
        uncertainty: i64,
        /// Whether it ended because the run was stopped, unless it is among the ranks of [`EventKind::Culprit`]; `None` as in
        /// [`EventKind::LauncherExited`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stopped: Option<bool>,
    },
    /// `launch.ready_when` has matched; without it, every rank runs.
    Ready,
    /// The ranks that failed first; several if their times differ by less than the clock error.
    Culprit {
        /// Global ranks; empty when a launcher failed before any rank.
        ranks: Vec<u32>,
        /// Indexes of their hosts, in the same order.
        hosts: Vec<u32>,
    },
    /// The run seems to hang; emitted once per symptom.
    Hang(Hang),
    /// The run is making progress again.
    #[serde(alias = "hang-over")]
    HangEnded,
    /// How the run ended, or that it is running, according to its record and status files on the hosts.
    #[serde(alias = "run-found")]
    RunEndReported {
        end: RunOutcome,
        /// When it ended, on our clock (0: unknown or running).
        #[serde(alias = "when")]
        ended_at: UnixMillis,
    },
    /// A signal is being sent to the processes of the run on a host.
    #[serde(alias = "signalled")]
    RanksSignaled {
        /// Index of the host.
        host: u32,
        /// `TERM` or `KILL`.
        signal: String,
    },
    /// Bytes of a log, in order and without gaps per (host, file).
    Log {
        /// Index of the host.
        host: u32,
        file: LogFile,
        /// Offset of the first byte in the host's file.
        offset: u64,
        /// At most [`MAX_LOG_CHUNK_BYTES`]; not serialised, the journal records ranges.
        #[serde(skip)]
        bytes: bytes::Bytes,
        /// The number of bytes.
        len: u64,
    },
    /// The copy of a log has reached the log's end on its host: what follows is new. Once per log and
    /// stream of its host.
    LogCurrent {
        /// Index of the host.
        host: u32,
        file: LogFile,
    },
    /// A log is shorter on its host than its copy: it was truncated or rewritten, and is sent again from offset 0.
    #[serde(alias = "log-shrunk")]
    LogTruncated {
        /// Index of the host.
        host: u32,
        file: LogFile,
        /// The file's length on the host now.
        size: u64,
    },
    Gpus {
        /// Index of the host.
        host: u32,
        /// Shared with the states that show them.
        gpus: Arc<[GpuSample]>,
    },
    /// nvidia-smi returns no values; it is retried.
    #[serde(alias = "gpus-unread")]
    GpusUnavailable {
        /// Index of the host.
        host: u32,
        error: String,
    },
    GpuProcesses {
        /// Index of the host.
        host: u32,
        /// One entry per process and GPU.
        processes: Vec<GpuProcess>,
    },
    /// The output of `nvidia-smi` on a host, at the user's request.
    NvidiaSmi {
        /// Index of the host.
        host: u32,
        /// The unmodified output; may be empty.
        text: String,
        /// The error; empty on success.
        #[serde(default)]
        error: String,
    },
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
    /// Evidence from a host after a failure there: docker, kernel log, disks.
    #[serde(alias = "aftermath")]
    Postmortem {
        /// Index of the host.
        host: u32,
        /// Each line begins with its source (`assets/postmortem.sh`).
        lines: Vec<String>,
    },
    /// A message for the user.
    Notice {
        /// Index of the host concerned.
        host: Option<u32>,
        text: String,
        warn: bool,
    },
    GoalChanged {
        goal: RunGoal,
        /// For example `rank 3 failed`, `Ctrl-C`.
        #[serde(alias = "why")]
        reason: String,
    },
    /// Something of the run could not be removed, or a host could not be looked at.
    Leftover {
        /// Index of the host.
        host: u32,
        /// What, and why it is still there.
        text: String,
        /// The host did not answer: it is not known whether anything is left there.
        #[serde(default)]
        unchecked: bool,
    },
    /// The last event, exactly once per operation.
    RunFinished {
        outcome: Outcome,
        #[serde(alias = "why")]
        reason: String,
    },
}

impl EventKind {
    /// The bytes of a log at this offset.
    pub(crate) fn log(host: u32, file: LogFile, offset: u64, bytes: impl Into<bytes::Bytes>) -> EventKind {
        let bytes = bytes.into();
        EventKind::Log { host, file, offset, len: bytes.len() as u64, bytes }
    }

    /// Whether the event is a sample, which may be dropped since the next one replaces it.
    pub fn is_sample(&self) -> bool {
        matches!(
            self,
            EventKind::Gpus { .. }
                | EventKind::GpuProcesses { .. }
                | EventKind::NvidiaSmi { .. }
                | EventKind::HostMetrics { .. }
                | EventKind::PullProgress { .. }
                | EventKind::StepProgress { .. }
        )
    }
}
