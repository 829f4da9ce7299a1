//! The log files of a run.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The most bytes that travel in one piece of a log.
pub const MAX_LOG_CHUNK_BYTES: usize = 256 << 10;

/// The longest number of a task.
const MAX_TASK_DIGITS: usize = 4;

/// A file that a run writes on a host and that is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFile {
    /// The launcher's own output on that host.
    #[serde(alias = "node")]
    Launcher,
    /// One worker's output; a restart begins a new file.
    Rank {
        rank: u32,
        /// How often its launcher had restarted it.
        restart: u32,
    },
    /// The output of a task of `prepare` on that host.
    Task {
        /// Counts from 1.
        number: u32,
    },
}

impl LogFile {
    /// Reads the name as the wrappers write it on a host: `node`, `rank-3.0`, `task-1`.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "node" {
            return Some(LogFile::Launcher);
        }
        if let Some(number) = text.strip_prefix("task-") {
            let plain = (1..=MAX_TASK_DIGITS).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit());
            return number.parse().ok().filter(|_| plain).map(|number| LogFile::Task { number });
        }
        let (rank, restart) = text.strip_prefix("rank-")?.split_once('.')?;
        Some(LogFile::Rank { rank: rank.parse().ok()?, restart: restart.parse().ok()? })
    }

    /// The rank whose output it is.
    pub fn rank(self) -> Option<u32> {
        match self {
            LogFile::Rank { rank, .. } => Some(rank),
            LogFile::Launcher | LogFile::Task { .. } => None,
        }
    }

    /// Who writes it, for people: `rank 3`, `rank 3 (restart 1)`.
    pub(crate) fn writer(self) -> String {
        match self {
            LogFile::Launcher => "the launcher".to_owned(),
            LogFile::Rank { rank, restart: 0 } => format!("rank {rank}"),
            LogFile::Rank { rank, restart } => format!("rank {rank} (restart {restart})"),
            LogFile::Task { number } => format!("task {number}"),
        }
    }
}

/// As the wrappers name it on a host.
impl fmt::Display for LogFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogFile::Launcher => f.write_str("node"),
            LogFile::Rank { rank, restart } => write!(f, "rank-{rank}.{restart}"),
            LogFile::Task { number } => write!(f, "task-{number}"),
        }
    }
}
