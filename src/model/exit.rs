//! How a process and a run ended.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a run ended, independent of the command that observed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunOutcome {
    /// Every launcher ended well.
    Ok,
    /// A rank or a launcher failed.
    Failed,
    /// It was stopped: by a key, a signal, `down`, or a launch that replaced it.
    Stopped,
    /// It was running when it was last seen.
    Running,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exit {
    /// It ended by itself with this status.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// It is gone and left no status: something killed it and its wrapper, or the machine.
    Killed,
}

impl Exit {
    /// Reads a shell's exit status: 128 + n means signal n.
    pub fn from_status(status: i32) -> Self {
        if (129..=192).contains(&status) { Exit::Signal(status - 128) } else { Exit::Code(status) }
    }

    /// Whether it is a success.
    pub fn is_success(self) -> bool {
        self == Exit::Code(0)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exit {code}"),
            Exit::Signal(9) => f.write_str("SIGKILL"),
            Exit::Signal(15) => f.write_str("SIGTERM"),
            Exit::Signal(11) => f.write_str("SIGSEGV"),
            Exit::Signal(6) => f.write_str("SIGABRT"),
            Exit::Signal(2) => f.write_str("SIGINT"),
            Exit::Signal(n) => write!(f, "signal {n}"),
            Exit::Killed => f.write_str("killed"),
        }
    }
}
