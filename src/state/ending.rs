//! How the run ended: the one rule, read by the list of past runs, the recap, the exit code's word and the dashboard.
//!
//! Uses `event` and the state. A command's own outcome (`Outcome`) says how the command ended; here is the run, whoever looked at it.

use crate::event::{Millis, Outcome, RunEnd};

use super::RunState;

impl RunState {
    /// How the run ended, or that it runs; `None`: there was no run, or it did not begin.
    pub fn run_end(&self) -> Option<RunEnd> {
        let outcome = self.outcome.as_ref().map(|(outcome, _)| outcome);
        let found = self.found.map(|(end, _)| end);
        if self.info.run.is_empty() {
            return None;
        }
        if self.culprit.is_some() {
            return Some(RunEnd::Failed);
        }
        let ended = !self.hosts.is_empty() && self.hosts.iter().all(|host| host.node_exit.is_some());
        let well = self.hosts.iter().all(|host| host.node_exit.is_some_and(|(exit, _)| exit.ok()));
        let launched = self.hosts.iter().any(|host| host.node_started.is_some() || host.node_exit.is_some())
            || self.ranks.values().any(|rank| rank.started.is_some());
        match outcome {
            // Stopped because it hung: that is a failure.
            Some(Outcome::Failed) if launched => Some(RunEnd::Failed),
            _ if matches!(found, Some(RunEnd::Ok | RunEnd::Failed | RunEnd::Stopped)) => found,
            // An elastic gang may end well without all of its hosts.
            Some(Outcome::Ok) if ended && self.stopping.is_none() => Some(RunEnd::Ok),
            _ if ended && well && self.stopping.is_none() => Some(RunEnd::Ok),
            Some(Outcome::Refused | Outcome::Unreachable | Outcome::Locked) if found.is_none() => None,
            _ if self.stopping.is_some() && (launched || found.is_some()) => Some(RunEnd::Stopped),
            _ if found == Some(RunEnd::Running) => found,
            Some(Outcome::Signal(_) | Outcome::Stopped) if launched => Some(RunEnd::Stopped),
            _ if ended => Some(RunEnd::Failed),
            _ => None,
        }
    }

    /// When the first rank of the run started, as far as this operation knows.
    pub fn run_began(&self) -> Option<Millis> {
        self.first_started
    }

    /// When the run ended, as far as this operation knows; `None` while it runs.
    pub fn run_ended(&self) -> Option<Millis> {
        if matches!(self.run_end(), None | Some(RunEnd::Running)) {
            return None;
        }
        let ranks = self.ranks.values().filter(|rank| rank.exit.is_some()).map(|rank| rank.when);
        let nodes = self.hosts.iter().filter_map(|host| host.node_exit.map(|(_, when)| when));
        let found = self.found.map(|(_, when)| when);
        let last = ranks.chain(nodes).chain(found).filter(|when| *when > 0).max();
        Some(last.or(self.stopping).unwrap_or(self.now))
    }
}
