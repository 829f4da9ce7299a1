//! What is known of one host and of one rank.
//!
//! Uses `event`. Changed by `RunState::apply` alone.

use crate::event::{Exit, GpuSample, Millis};

use super::lines::Tail;

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
