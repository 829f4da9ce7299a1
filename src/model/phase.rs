//! The columns of the plan.

use serde::{Deserialize, Serialize};

/// The title of the step of [`Phase::Container`] on a bare host.
pub(crate) const START_KEEPER: &str = "start the keeper";

/// The columns of the plan's matrix, in their order; each is a barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    Connect,
    /// One read-only script a host.
    Facts,
    /// What must hold before anything changes.
    Preflight,
    /// Taking the name's lock.
    Lock,
    Pull,
    /// The container that stays, or the keeper of a bare host.
    Container,
    /// What only the inside of the container can show.
    // The name in journals of format 1.
    #[serde(alias = "prove")]
    Environment,
    /// The task of `prepare` with this number; its steps have its name as title.
    Task(u32),
    /// What the ranks need, where tasks may have made it.
    Requirements,
    /// Node rank 0.
    Master,
    Workers,
    Stop,
    Remove,
    /// Fetching what the laptop lacks of every log.
    Fetch,
    /// Removing the run directory.
    Clean,
    /// Looking whether anything is left.
    Verify,
}

impl Phase {
    /// The phase's name as people read it.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Connect => "connect",
            Phase::Facts => "facts",
            Phase::Lock => "lock",
            Phase::Preflight => "preflight",
            Phase::Pull => "pull",
            Phase::Container => "container",
            Phase::Environment => "environment",
            Phase::Task(_) => "task",
            Phase::Requirements => "requirements",
            Phase::Master => "master",
            Phase::Workers => "workers",
            Phase::Stop => "stop",
            Phase::Remove => "remove",
            Phase::Fetch => "fetch",
            Phase::Clean => "clean",
            Phase::Verify => "verify",
        }
    }

    /// The head of its column: its name, with its number where there are several.
    pub(crate) fn label(self) -> String {
        match self {
            Phase::Task(number) => format!("task {number}"),
            other => other.name().to_owned(),
        }
    }

    /// Whether a step of this phase changes something that stays on the host. The others only read, or hold a lock for a while.
    pub(crate) fn changes_host(self) -> bool {
        match self {
            Phase::Connect
            | Phase::Facts
            | Phase::Lock
            | Phase::Preflight
            | Phase::Environment
            | Phase::Requirements
            | Phase::Fetch
            | Phase::Verify => false,
            Phase::Pull
            | Phase::Container
            | Phase::Task(_)
            | Phase::Master
            | Phase::Workers
            | Phase::Stop
            | Phase::Remove
            | Phase::Clean => true,
        }
    }
}
