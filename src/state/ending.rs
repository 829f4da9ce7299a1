//! How the run ended: the one rule, read by the list of past runs, the recap, the exit code's word and the dashboard.
//!
//! Uses `event` and the state. A command's outcome (`Outcome`) says how the command ended; `RunEnd` says how the run ended.

use crate::event::{Exit, Millis, Outcome, RunEnd};

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

    /// A rank whose launcher is gone without a status and that told of no end itself does not run any more.
    pub(super) fn end_lost_ranks(&mut self) {
        for rank in self.ranks.values_mut().filter(|rank| rank.started.is_some() && rank.exit.is_none()) {
            if let Some((Exit::Killed, when)) = self.hosts.get(rank.host as usize).and_then(|host| host.node_exit) {
                (rank.exit, rank.when) = (Some(Exit::Killed), when);
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, EventKind, Goal, RunInfo};

    /// How the run stands after these events of a run on one host.
    fn end(kinds: &[EventKind]) -> Option<RunEnd> {
        let mut state = RunState::new();
        let info = RunInfo { run: "r1".to_owned(), hosts: vec!["a".to_owned()], ..RunInfo::default() };
        let all = std::iter::once(EventKind::RunStarted(info)).chain(kinds.iter().cloned());
        (1..).zip(all).for_each(|(seq, kind)| state.apply(&Event { seq, at: 1000, kind }));
        state.run_end()
    }

    #[test]
    fn the_run_ended_as_it_did_whatever_the_command_was() {
        let started = EventKind::NodeStarted { host: 0 };
        let exited = |code| EventKind::NodeExited { host: 0, exit: Exit::Code(code), when: 900 };
        let found = |end| EventKind::RunFound { end, when: 900 };
        let over = |outcome| EventKind::RunFinished { outcome, why: String::new() };
        let goal = |goal| EventKind::GoalChanged { goal, why: String::new() };
        let culprit = EventKind::Culprit { ranks: vec![0], hosts: vec![0] };
        let s = || started.clone();
        let cases: [(&str, Vec<EventKind>, Option<RunEnd>); 16] = [
            ("nothing was launched", vec![over(Outcome::Refused)], None),
            ("ended well", vec![s(), exited(0), over(Outcome::Ok)], Some(RunEnd::Ok)),
            ("ended well, something is left", vec![s(), exited(0), over(Outcome::Leftovers)], Some(RunEnd::Ok)),
            ("failed", vec![s(), exited(1), culprit.clone(), over(Outcome::Failed)], Some(RunEnd::Failed)),
            ("failed, something is left", vec![s(), exited(1), culprit, over(Outcome::Leftovers)], Some(RunEnd::Failed)),
            ("hung, and was stopped for it", vec![s(), goal(Goal::Stop), exited(143), over(Outcome::Failed)], Some(RunEnd::Failed)),
            ("Ctrl-C", vec![s(), goal(Goal::Stop), exited(143), over(Outcome::Signal(2))], Some(RunEnd::Stopped)),
            ("Ctrl-C, and the ranks end well", vec![s(), goal(Goal::Stop), exited(0), over(Outcome::Signal(2))], Some(RunEnd::Stopped)),
            ("Ctrl-C during the launch", vec![s(), over(Outcome::Signal(2))], Some(RunEnd::Stopped)),
            ("left", vec![s(), found(RunEnd::Running), over(Outcome::Signal(1))], Some(RunEnd::Running)),
            ("elsewhere", vec![s(), found(RunEnd::Stopped), exited(143), over(Outcome::Stopped)], Some(RunEnd::Stopped)),
            ("`down` of a live run", vec![found(RunEnd::Running), goal(Goal::Down), over(Outcome::Ok)], Some(RunEnd::Stopped)),
            ("`down` of a failed run", vec![found(RunEnd::Failed), over(Outcome::Ok)], Some(RunEnd::Failed)),
            ("`down` that may not", vec![found(RunEnd::Running), over(Outcome::Locked)], Some(RunEnd::Running)),
            ("an elastic gang", vec![s(), exited(1), over(Outcome::Ok)], Some(RunEnd::Ok)),
            ("rolled back", vec![s(), goal(Goal::Down), over(Outcome::Unreachable)], None),
        ];
        for (case, kinds, expected) in cases {
            assert_eq!(end(&kinds), expected, "{case}");
        }
    }
}
