//! What is known of one host and of one rank.
//!
//! Changed by `RunState::apply` alone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::event::{Exit, GpuProcess, GpuSample, HostMetrics, LogFile, UnixMillis};

use super::bounded_text::keep_beginning;
use super::gpu_history::{GpuRound, GpuTracePoint};
use super::hang_baseline::PowerBaseline;
use super::host_trace::{HostTracePoint, MAX_TRACE_POINTS};
use super::log_lines::RecentLines;
use super::metric_scanner::{MetricScanner, MetricValues};
use super::training_metrics::{self, LineSampler, TrainingMetrics, TrainingProgress};

/// Whether a host answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ConnectionStatus {
    /// Nothing was tried yet.
    #[default]
    Unknown,
    /// A connection is being made.
    Connecting,
    Connected,
    /// The connection was lost and is tried again.
    Retrying,
    /// It is given up.
    Unreachable,
}

/// Phases of one host counted over all plans of the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord, Hash)]
pub struct PhaseCounts {
    /// Those that went well and changed nothing.
    pub ok: u32,
    /// Those that changed something on the host.
    pub changed: u32,
    pub failed: u32,
    /// Tasks of `prepare` that need not run.
    pub skipped: u32,
}

/// Ranks counted by how they stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RankCounts {
    pub ok: usize,
    /// Ended otherwise, by themselves.
    pub failed: usize,
    /// Ended because we ended them.
    pub stopped: usize,
    /// Started, no end known.
    pub running: usize,
    pub waiting: usize,
}

/// Free and total bytes, with the time of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpace {
    pub free: u64,
    pub total: u64,
    pub at: UnixMillis,
}

/// How many GPUs of a host are kept.
const MAX_GPUS: usize = 256;

/// What is known of a host.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostState {
    /// Its name in the inventory.
    pub name: String,
    pub connection_status: ConnectionStatus,
    /// When that was learned.
    pub connection_since: UnixMillis,
    /// Why it does not answer.
    pub connection_error: String,
    /// What to do about it; may be empty.
    pub connection_hint: String,
    /// Its clock minus ours, and how wrong that may be, milliseconds.
    pub clock_offset: Option<(i64, i64)>,
    /// Space under the run directory.
    pub disk: Option<DiskSpace>,
    pub gpus: Arc<[GpuSample]>,
    /// When they were taken; 0: never.
    pub gpus_at: UnixMillis,
    /// The output of nvidia-smi that is not values, since the last values, and its time.
    pub gpus_error: Option<(String, UnixMillis)>,
    /// The last rounds of its GPUs' values, the oldest first; shared with copies, since a dashboard copies every host that has new values.
    pub gpu_history: VecDeque<Arc<GpuRound>>,
    /// How much power each GPU draws, by its index.
    pub power_baselines: BTreeMap<u32, PowerBaseline>,
    /// The processes on its GPUs.
    pub gpu_processes: Vec<GpuProcess>,
    /// When they were seen; 0: never.
    pub gpu_processes_at: UnixMillis,
    /// The last requested output of nvidia-smi.
    pub nvidia_smi_output: String,
    /// Why it printed nothing, or ended with an error; empty: it did not.
    pub nvidia_smi_error: String,
    /// When that was; 0: never.
    pub nvidia_smi_at: UnixMillis,
    /// What it does besides.
    pub host_metrics: HostMetrics,
    /// When that was seen; 0: never.
    pub host_metrics_at: UnixMillis,
    /// The last of these and of the disk, the oldest first.
    pub machine_history: VecDeque<HostTracePoint>,
    /// When its launcher started.
    pub launcher_started: Option<UnixMillis>,
    /// How its launcher ended, and when on our clock (0: unknown).
    pub launcher_exit: Option<(Exit, UnixMillis)>,
    /// Whether its launcher failed because the run was stopped.
    pub launcher_was_stopped: bool,
    /// The launcher's last lines.
    pub launcher_recent_lines: RecentLines,
    /// The number of the last task of `prepare` that wrote, and its last lines.
    pub task_recent_lines: (u32, RecentLines),
    /// Steps of earlier plans of this operation.
    pub(super) earlier_phase_counts: PhaseCounts,
}

impl HostState {
    pub(super) fn set_connection_status(&mut self, status: ConnectionStatus, error: &str, at: UnixMillis) {
        self.connection_status = status;
        self.connection_since = at;
        self.connection_error = keep_beginning(error);
        self.connection_hint.clear();
    }

    /// Whether it does not answer: what its ranks do is not known.
    pub fn is_lost(&self) -> bool {
        matches!(self.connection_status, ConnectionStatus::Retrying | ConnectionStatus::Unreachable)
    }

    /// How its launcher ended, where it failed by itself.
    pub fn launcher_failure(&self) -> Option<Exit> {
        self.launcher_exit.map(|(exit, _)| exit).filter(|exit| !exit.is_success() && !self.launcher_was_stopped)
    }

    /// Takes a round of GPU values.
    pub(super) fn record_gpu_samples(&mut self, gpus: &Arc<[GpuSample]>, at: UnixMillis) {
        self.gpus = if gpus.len() <= MAX_GPUS { Arc::clone(gpus) } else { gpus[..MAX_GPUS].into() };
        self.gpus_at = at;
        self.gpus_error = None;
        let round = GpuRound::from_samples(&self.gpus, at);
        for point in round.iter() {
            if self.power_baselines.len() < MAX_GPUS || self.power_baselines.contains_key(&point.index) {
                self.power_baselines.entry(point.index).or_default().record_power(point.power);
            }
        }
        if self.gpu_history.len() >= MAX_TRACE_POINTS {
            self.gpu_history.pop_front();
        }
        self.gpu_history.push_back(Arc::new(round));
    }

    /// The last values of one GPU, the oldest first.
    pub(crate) fn gpu_trace(&self, gpu: u32) -> impl DoubleEndedIterator<Item = &GpuTracePoint> {
        self.gpu_rounds(gpu).flatten()
    }

    /// The values of one GPU in each of the last rounds, the oldest first; none where the host had lost it.
    pub(crate) fn gpu_rounds(&self, gpu: u32) -> impl DoubleEndedIterator<Item = Option<&GpuTracePoint>> {
        // Its place in most rounds.
        let place = gpu as usize;
        self.gpu_history.iter().map(move |round| match round.get(place).filter(|point| point.index == gpu) {
            Some(point) => Some(point),
            None => round.iter().find(|point| point.index == gpu),
        })
    }

    /// The indexes of the GPUs that have had values.
    pub(crate) fn traced_gpus(&self) -> BTreeSet<u32> {
        self.gpu_history.iter().flat_map(|round| round.iter()).map(|point| point.index).collect()
    }
}

/// What is known of a rank.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RankState {
    pub rank: u32,
    /// The index of its host.
    pub host: u32,
    /// Its number on that host, if known.
    pub local_rank: Option<u32>,
    /// How often its launcher restarted it.
    pub restart: u32,
    pub started_at: Option<UnixMillis>,
    pub exit: Option<Exit>,
    /// When it ended, on our clock (0: unknown).
    pub ended_at: UnixMillis,
    /// Whether it failed because the run was stopped, as the engine decided.
    pub was_stopped: bool,
    /// Whether TERM ended it after another rank of its launcher had failed: launchers send it to their other ranks then.
    pub ended_by_launcher: bool,
    pub recent_lines: RecentLines,
    /// When it wrote last; 0: it has not.
    pub last_output_at: UnixMillis,
    /// The training metrics in its lines.
    pub(crate) metrics: TrainingMetrics,
    /// Its latest progress bar.
    pub progress: Option<TrainingProgress>,
    /// How much of a flood is read for these.
    pub line_sampler: LineSampler,
}

impl RankState {
    /// Takes the `len` log bytes at `offset`; returns the metric values in their lines.
    pub(super) fn record_log(&mut self, scanner: &MetricScanner, (offset, len): (u64, u64), bytes: &[u8], at: UnixMillis) -> MetricValues {
        let (mut line_values, mut values) = (MetricValues::new(), MetricValues::new());
        let RankState { recent_lines, progress, line_sampler, started_at, .. } = self;
        self.last_output_at = at;
        recent_lines.push(offset, bytes, len, |line| {
            if !line_sampler.should_scan(at) {
                return;
            }
            scanner.scan_line(line.as_bytes(), &mut line_values);
            values.append(&mut line_values);
            let bar = || training_metrics::parse_progress(line.as_bytes(), at);
            // A bar that loads or evaluates does not hide how far the training is.
            let new = training_metrics::parse_step_of_total(line.as_bytes(), at)
                .or_else(|| bar().filter(|_| !progress.is_some_and(|known| known.is_step)));
            *progress = new.map(|new| new.after(progress.as_ref(), *started_at)).or(*progress);
        });
        values
    }

    /// Its log, after its host.
    pub fn log(&self) -> (u32, LogFile) {
        (self.host, LogFile::Rank { rank: self.rank, restart: self.restart })
    }

    /// Whether it has started and no end is known.
    pub fn is_running(&self) -> bool {
        self.started_at.is_some() && self.exit.is_none()
    }

    /// Whether it ended other than well.
    pub fn has_failed(&self) -> bool {
        self.exit.is_some_and(|exit| !exit.is_success())
    }

    /// Whether it failed, and neither the stop of the run nor its launcher ended it.
    pub fn failed_by_itself(&self) -> bool {
        self.has_failed() && !self.was_ended()
    }

    /// Whether the stop of the run or its launcher ended it.
    pub fn was_ended(&self) -> bool {
        self.was_stopped || self.ended_by_launcher
    }

    /// How long it ran, milliseconds; `None` where a time is not known.
    pub fn duration(&self) -> Option<i64> {
        let started = self.started_at?;
        (self.exit.is_some() && self.ended_at > 0).then(|| (self.ended_at - started).max(0))
    }
}
