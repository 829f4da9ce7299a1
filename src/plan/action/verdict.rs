//! What an action sees, how it is carried out, and what its answer means.

use std::time::Duration;

use crate::shell::Command;

/// Whether there is anything to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// No: what is there is right, and why.
    Satisfied(String),
    /// Yes, and why.
    Needed(String),
    /// It cannot be done here; what is wrong and what to do about it, one entry a problem.
    Impossible(Vec<Trouble>),
}

/// Something wrong, and what to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// What is wrong.
    pub what: String,
    /// What to do next; may be empty.
    pub hint: String,
}

impl Trouble {
    /// Something wrong with its remedy.
    pub fn new(what: impl Into<String>, hint: impl Into<String>) -> Trouble {
        Trouble { what: what.into(), hint: hint.into() }
    }
}

/// How an action is carried out.
#[derive(Debug, Clone)]
pub enum Do {
    /// A script.
    Script(Command),
    /// A TCP connection from that host.
    Reach {
        /// To which address.
        address: String,
        /// To which port.
        port: u16,
        /// How long at most.
        within: Duration,
    },
    /// The log stream of a run, to its end.
    Fetch {
        /// Which run.
        run: String,
    },
    /// Nothing remote: the facts say it all.
    Nothing,
}

/// What an answer means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Done; a note for people, and whether something changed.
    Done {
        /// What was found or done.
        note: String,
        /// Whether the host is different now.
        changed: bool,
        /// What a person should know before it is too late; may be empty.
        warning: String,
    },
    /// Failed.
    Failed(Trouble),
    /// Another operator took the lock.
    LockLost,
}

impl Verdict {
    /// It changed something.
    pub fn changed(note: impl Into<String>) -> Verdict {
        Verdict::Done { note: note.into(), changed: true, warning: String::new() }
    }

    /// It found all in order.
    pub fn fine(note: impl Into<String>) -> Verdict {
        Verdict::Done { note: note.into(), changed: false, warning: String::new() }
    }

    /// It failed.
    pub fn failed(what: impl Into<String>, hint: impl Into<String>) -> Verdict {
        Verdict::Failed(Trouble::new(what, hint))
    }
}

/// The exit status of a changing script that found the lock in other hands.
pub const LOCK_LOST: i32 = 75;
