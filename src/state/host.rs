//! What is known of one host and of one rank.
//!
//! Uses `event`. Changed by `RunState::apply` alone.

use std::collections::{BTreeMap, VecDeque};

use crate::event::{Exit, GpuProcess, GpuSample, Millis, Vitals};

use super::hang::Load;
use super::lines::Tail;
use super::metrics::{Metrics, Progress, Reading};

/// Whether a host answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Liveness {
    /// Nothing was tried yet.
    #[default]
    Unknown,
    /// A connection is being made.
    Connecting,
    /// It answers.
    Connected,
    /// The connection was lost and is tried again.
    Retrying,
    /// It is given up.
    Unreachable,
}

/// Steps of one host counted over all plans of the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord, Hash)]
pub struct Tally {
    /// Steps that went well, those that changed something included.
    pub ok: u32,
    /// Steps that changed something on the host.
    pub changed: u32,
    /// Steps that failed.
    pub failed: u32,
}

/// Free and total bytes, with the time of the news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    /// Bytes.
    pub free: u64,
    /// Bytes.
    pub total: u64,
    /// When.
    pub at: Millis,
}

/// How many GPUs of a host are kept.
const GPUS: usize = 256;
/// How many values of a GPU are kept.
pub const TRACE: usize = 120;

/// One look at a GPU, in percent; for graphs.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Trace {
    /// When.
    pub at: Millis,
    /// Utilisation.
    pub utilization: Option<f32>,
    /// Memory in use, of all.
    pub memory: Option<f32>,
    /// Power, of the limit.
    pub power: Option<f32>,
    /// Degrees Celsius.
    pub temperature: Option<f32>,
}

impl Trace {
    fn of(gpu: &GpuSample, at: Millis) -> Self {
        let share = |part: Option<f32>, whole: Option<f32>| {
            part.zip(whole).filter(|(_, whole)| *whole > 0.0).map(|(part, whole)| part / whole * 100.0)
        };
        Trace {
            at,
            utilization: gpu.utilization,
            memory: share(gpu.memory_used, gpu.memory_total),
            power: share(gpu.power, gpu.power_limit),
            temperature: gpu.temperature,
        }
    }
}

/// What is known of a host.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostState {
    /// Its name in the inventory.
    pub name: String,
    /// Whether it answers.
    pub liveness: Liveness,
    /// When that was learned.
    pub since: Millis,
    /// Why it does not answer.
    pub error: String,
    /// Its clock minus ours, and how wrong that may be, milliseconds.
    pub clock: Option<(i64, i64)>,
    /// Space under the run directory.
    pub disk: Option<Disk>,
    /// GPU values.
    pub gpus: Vec<GpuSample>,
    /// When they were taken; 0: never.
    pub gpus_at: Millis,
    /// What nvidia-smi said instead of values, since it last gave some, and when.
    pub gpus_unread: Option<(String, Millis)>,
    /// The last values of each GPU, by its index, the oldest first.
    pub traces: BTreeMap<u32, VecDeque<Trace>>,
    /// How much power each GPU draws, by its index.
    pub loads: BTreeMap<u32, Load>,
    /// The processes on its GPUs.
    pub processes: Vec<GpuProcess>,
    /// When they were seen; 0: never.
    pub processes_at: Millis,
    /// What nvidia-smi prints, as it was last asked for.
    pub smi: String,
    /// Why it printed nothing, or ended with an error; empty: it did not.
    pub smi_error: String,
    /// When that was; 0: never.
    pub smi_at: Millis,
    /// What it does besides.
    pub vitals: Vitals,
    /// When that was seen; 0: never.
    pub vitals_at: Millis,
    /// When its launcher started.
    pub node_started: Option<Millis>,
    /// How its launcher ended, and when on our clock (0: unknown).
    pub node_exit: Option<(Exit, Millis)>,
    /// The last signal that was sent to its ranks, and when.
    pub signalled: Option<(String, Millis)>,
    /// The launcher's last lines.
    pub tail: Tail,
    /// Steps of earlier plans of this operation.
    pub(super) before: Tally,
}

impl HostState {
    /// Takes a round of GPU values.
    pub(super) fn look(&mut self, gpus: &[GpuSample], at: Millis) {
        self.gpus = gpus.iter().take(GPUS).cloned().collect();
        self.gpus_at = at;
        self.gpus_unread = None;
        for gpu in &self.gpus {
            if self.traces.len() >= GPUS && !self.traces.contains_key(&gpu.index) {
                continue;
            }
            let trace = self.traces.entry(gpu.index).or_default();
            if trace.len() >= TRACE {
                trace.pop_front();
            }
            let seen = Trace::of(gpu, at);
            self.loads.entry(gpu.index).or_default().look(seen.power);
            trace.push_back(seen);
        }
    }
}

/// What is known of a rank.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RankState {
    /// The global rank.
    pub rank: u32,
    /// The index of its host.
    pub host: u32,
    /// Its number on that host, if known.
    pub local_rank: Option<u32>,
    /// How often its launcher restarted it.
    pub restart: u32,
    /// When it started.
    pub started: Option<Millis>,
    /// How it ended.
    pub exit: Option<Exit>,
    /// When it ended, on our clock (0: unknown).
    pub when: Millis,
    /// How wrong that may be, milliseconds.
    pub uncertainty: i64,
    /// Its last lines.
    pub tail: Tail,
    /// When it wrote last; 0: it has not.
    pub spoke: Millis,
    /// What its lines told of the training.
    pub metrics: Metrics,
    /// Its progress bar, as it was drawn last.
    pub progress: Option<Progress>,
    /// How much of a flood is read for these.
    pub reading: Reading,
}

impl RankState {
    /// Whether it ended other than well.
    pub fn failed(&self) -> bool {
        self.exit.is_some_and(|exit| !exit.ok())
    }

    /// How long it ran, milliseconds; `None` where a time is not known.
    pub fn duration(&self) -> Option<i64> {
        let started = self.started?;
        (self.exit.is_some() && self.when > 0).then(|| (self.when - started).max(0))
    }
}
