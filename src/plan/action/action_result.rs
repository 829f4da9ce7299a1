//! What an action sees, how it is carried out, and what its answer means.

use std::time::Duration;

use crate::model::remote_command::RemoteCommand;

/// Whether there is anything to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observation {
    /// No: what is there is right, and why.
    Satisfied(String),
    Needed(String),
    /// It cannot be done here; what is wrong and what to do about it, one entry a problem.
    Impossible(Vec<Issue>),
}

/// Something wrong, and what to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    pub message: String,
    /// What to do next; may be empty.
    pub hint: String,
}

impl Issue {
    /// Something wrong with its remedy.
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Issue {
        Issue { message: message.into(), hint: hint.into() }
    }
}

/// How an action is carried out.
#[derive(Debug, Clone)]
pub enum Execution {
    Script(RemoteCommand),
    /// A script that pulls an image: its standard output has a line for each state of a layer (`protocol/pull_output`).
    PullImage(RemoteCommand),
    /// A TCP connection from that host.
    Connect {
        address: String,
        port: u16,
        /// How long at most.
        timeout: Duration,
    },
    /// The log stream of a run, to its end.
    FetchLogs,
    /// Files of the laptop or of another host, to a directory of the host.
    SendFiles {
        from: String,
        to: String,
    },
    /// Nothing remote: the facts are sufficient.
    NoOp,
}

/// What an answer means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ActionResult {
    /// Done; a note for people, and whether something changed.
    Done {
        /// What was found or done.
        note: String,
        /// Whether the host is different now.
        changed: bool,
        /// What a person should know before it is too late; may be empty.
        warning: String,
    },
    /// A task that need not run here, and why.
    Skipped(String),
    Failed(Issue),
    /// Another operator took the lock.
    LockLost,
}

impl ActionResult {
    pub fn changed(note: impl Into<String>) -> ActionResult {
        ActionResult::Done { note: note.into(), changed: true, warning: String::new() }
    }

    /// It found all in order.
    pub fn unchanged(note: impl Into<String>) -> ActionResult {
        ActionResult::Done { note: note.into(), changed: false, warning: String::new() }
    }

    pub fn failed(message: impl Into<String>, hint: impl Into<String>) -> ActionResult {
        ActionResult::Failed(Issue::new(message, hint))
    }
}

/// The exit status of a changing script that found the lock in other hands.
pub(crate) const EXIT_LOCK_LOST: i32 = 75;
