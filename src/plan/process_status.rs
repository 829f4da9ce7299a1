//! How far a launcher or a task is, as its wrapper wrote it and the host read it.

use crate::model::exit::Exit;

/// The launcher of the current run on this host.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum LauncherStatus {
    /// No current run, or it was not started.
    #[default]
    NotStarted,
    /// Its wrapper was recorded and left no status.
    Started {
        /// Alive in the host's own view.
        alive_on_host: bool,
    },
    Ended {
        exit: Exit,
        /// Seconds on the host's clock, as written.
        ended_at: f64,
    },
}

/// A task of `prepare` on this host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TaskStatus {
    /// Its wrapper was recorded and left no status. In a container the host may not see its pid.
    Started {
        alive_on_host: bool,
    },
    Ended(Exit),
}

/// How a process ended, and the second on the host's clock.
pub type TimedExit = (Exit, f64);

/// Reads a status as a wrapper wrote it: `0 1795251815.3`, `killed 1795251815`.
pub fn parse_exit(text: &str) -> Option<TimedExit> {
    let mut words = text.split_whitespace();
    let exit = match words.next()? {
        "killed" | "gone" => Exit::Killed,
        status => Exit::from_status(status.parse().ok()?),
    };
    Some((exit, words.next().and_then(|t| t.parse().ok()).unwrap_or(0.0)))
}

impl TaskStatus {
    pub(crate) fn parse(value: &str) -> TaskStatus {
        match value.strip_prefix("running") {
            Some(seen) => TaskStatus::Started { alive_on_host: seen.trim() == "alive" },
            None => TaskStatus::Ended(parse_exit(value).map_or(Exit::Killed, |(exit, _)| exit)),
        }
    }
}

impl LauncherStatus {
    pub(crate) fn parse(value: &str) -> LauncherStatus {
        let mut words = value.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some("ended"), Some(_), _) => match parse_exit(value.trim_start_matches("ended ")) {
                Some((exit, at)) => LauncherStatus::Ended { exit, ended_at: at },
                None => LauncherStatus::Ended { exit: Exit::Killed, ended_at: 0.0 },
            },
            (Some("pid"), Some(_), seen) => LauncherStatus::Started { alive_on_host: seen == Some("alive") },
            _ => LauncherStatus::NotStarted,
        }
    }
}
