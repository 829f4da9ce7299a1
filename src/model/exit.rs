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

/// The names of signals without SIG, as SSH has them (RFC 4254, 6.10); it has none for BUS.
pub(crate) const SIGNAL_NAMES: [(&str, i32); 11] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("SEGV", 11),
    ("PIPE", 13),
    ("TERM", 15),
];

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
    /// What a stop sends first, and a launcher to its other processes once one has failed.
    pub const TERM: Exit = Exit::Signal(15);
    /// What a stop sends at last.
    pub const KILL: Exit = Exit::Signal(9);

    /// Reads a shell's exit status: 128 + n means signal n.
    pub fn from_status(status: i32) -> Self {
        if (129..=192).contains(&status) { Exit::Signal(status - 128) } else { Exit::Code(status) }
    }

    /// Whether the process failed, and not by TERM.
    pub(crate) fn is_own_failure(self) -> bool {
        !self.is_success() && self != Exit::TERM
    }

    /// Whether a process that ended so, at `ended_at`, was ended by its launcher. `first_failure`: when the first of the launcher's processes
    /// failed by itself.
    pub(crate) fn is_by_launcher<T: PartialOrd>(self, ended_at: T, first_failure: Option<T>) -> bool {
        self == Exit::TERM && first_failure.is_some_and(|failed_at| ended_at >= failed_at)
    }

    /// Whether it is a success.
    pub fn is_success(self) -> bool {
        self == Exit::Code(0)
    }
}

/// `exit 1`, `signal 9 (KILL)`, `killed, no exit code`.
impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            // A Python launcher that exits with its child's negative code: the shell sees 256 minus the signal (deepspeed/launcher/launch.py).
            Exit::Code(code @ 241..=250) => write!(f, "exit {code} (-{0} in Python: signal {0})", 256 - code),
            Exit::Code(code) => write!(f, "exit {code}"),
            Exit::Signal(n) => match SIGNAL_NAMES.iter().find(|(_, number)| *number == n) {
                Some((name, _)) => write!(f, "signal {n} ({name})"),
                None => write!(f, "signal {n}"),
            },
            Exit::Killed => f.write_str("killed, no exit code"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exits_name_their_signal() {
        let texts =
            [Exit::Code(1), Exit::Code(247), Exit::Code(251), Exit::Signal(9), Exit::Signal(64), Exit::Killed].map(|exit| exit.to_string());
        let shown = ["exit 1", "exit 247 (-9 in Python: signal 9)", "exit 251", "signal 9 (KILL)", "signal 64", "killed, no exit code"];
        assert_eq!(texts, shown);
    }
}
