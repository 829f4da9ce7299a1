//! The small words that a plan, its events and its consumers share: phases, log files, exits.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The most bytes that travel in one piece of a log.
pub const MAX_LOG_CHUNK_BYTES: usize = 256 << 10;

/// The columns of the plan's matrix, in their order; each is a barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The SSH connection.
    Connect,
    /// One read-only script a host.
    Facts,
    /// What must hold before anything changes.
    Preflight,
    /// Taking the name's lock.
    Lock,
    /// The image.
    Pull,
    /// The container that stays, or the keeper of a bare host.
    Container,
    /// What only the inside of the container can show.
    #[serde(rename = "prove")]
    Environment,
    /// Node rank 0.
    Master,
    /// All other nodes.
    Workers,
    /// Ending ranks.
    Stop,
    /// Removing the container.
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
            Phase::Environment => "prove",
            Phase::Master => "master",
            Phase::Workers => "workers",
            Phase::Stop => "stop",
            Phase::Remove => "remove",
            Phase::Fetch => "fetch",
            Phase::Clean => "clean",
            Phase::Verify => "verify",
        }
    }
}

/// How a check ended; the worse the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// It could not be looked at, or there is nothing to look at.
    Skipped,
    /// It was looked at and is in order.
    Pass,
    /// It may cost the night.
    Warn,
    /// The job cannot run like this.
    Fail,
}

impl Level {
    /// The level's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Pass => "pass",
            Level::Skipped => "skipped",
            Level::Warn => "warn",
            Level::Fail => "fail",
        }
    }
}

/// A file that a run writes on a host and that is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFile {
    /// The launcher's own output on that host.
    #[serde(rename = "node")]
    Launcher,
    /// One worker's output; a restart begins a new file.
    Rank {
        /// The global rank.
        rank: u32,
        /// How often its launcher had restarted it.
        restart: u32,
    },
}

/// How a run ended, whatever the command that saw it was.
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

/// One rank as planned; under a rendezvous that hands out ranks itself the host is where it was first seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankInfo {
    /// The global rank.
    pub rank: u32,
    /// The index of its host.
    pub host: u32,
    /// Its number on that host.
    pub local_rank: u32,
}

impl fmt::Display for LogFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogFile::Launcher => f.write_str("node"),
            LogFile::Rank { rank, restart } => write!(f, "rank-{rank}.{restart}"),
        }
    }
}

/// The text names no log file of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a log file of a run")]
pub struct ParseLogFileError;

impl FromStr for LogFile {
    type Err = ParseLogFileError;

    /// Reads the name as the wrappers write it on a host: `node`, `rank-3.0`.
    fn from_str(text: &str) -> Result<Self, ParseLogFileError> {
        if text == "node" {
            return Ok(LogFile::Launcher);
        }
        let (rank, restart) = text.strip_prefix("rank-").and_then(|t| t.split_once('.')).ok_or(ParseLogFileError)?;
        Ok(LogFile::Rank { rank: rank.parse().map_err(|_| ParseLogFileError)?, restart: restart.parse().map_err(|_| ParseLogFileError)? })
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
