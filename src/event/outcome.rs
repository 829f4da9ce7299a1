//! What an operation works towards, and how it ended.

use serde::{Deserialize, Serialize};

/// How an operation ended, in ascending precedence of the exit codes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Ok,
    /// The run continues without this command.
    Detached,
    Failed,
    /// The run was stopped by something other than a signal to this command.
    Stopped,
    /// Preflight or a different live run refused it.
    Refused,
    /// A host could not be reached.
    Unreachable,
    /// A signal ended it.
    Signal(i32),
    /// Something of the run is left on a host.
    Leftovers,
    /// Another operator holds the lock.
    Locked,
}

/// The state that the engine works towards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunGoal {
    #[default]
    Up,
    /// TERM, then KILL after `stop_grace`.
    Stop,
    /// KILL.
    Kill,
    /// Nothing of the run is left on any host.
    Down,
}
