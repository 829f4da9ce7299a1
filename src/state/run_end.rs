//! How the run ended: the one rule, read by the list of past runs, the recap, the exit code's word and the dashboard.
//!
//! A command's outcome (`Outcome`) says how the command ended; `RunOutcome` says how the run ended.

use crate::event::{Exit, Outcome, RunOutcome, UnixMillis};

use super::{RankState, RunState};

impl RunState {
    /// How the run ended, or that it runs; `None`: there was no run, or it did not begin.
    pub fn run_end(&self) -> Option<RunOutcome> {
        let outcome = self.outcome.as_ref().map(|(outcome, _)| outcome);
        let found = self.reported_end.map(|(end, _)| end);
        if self.info.run_id.is_empty() {
            return None;
        }
        if self.culprit.is_some() {
            return Some(RunOutcome::Failed);
        }
        let ended = !self.hosts.is_empty() && self.hosts.iter().all(|host| host.launcher_exit.is_some());
        let well = self.hosts.iter().all(|host| host.launcher_exit.is_some_and(|(exit, _)| exit.is_success()));
        let launched = self.hosts.iter().any(|host| host.launcher_started.is_some() || host.launcher_exit.is_some())
            || self.ranks.values().any(|rank| rank.started_at.is_some());
        match outcome {
            // Stopped because it hung: that is a failure.
            Some(Outcome::Failed) if launched => Some(RunOutcome::Failed),
            _ if matches!(found, Some(RunOutcome::Ok | RunOutcome::Failed | RunOutcome::Stopped)) => found,
            // An elastic gang may end well without all of its hosts.
            Some(Outcome::Ok) if ended && self.stopping_since.is_none() => Some(RunOutcome::Ok),
            _ if ended && well && self.stopping_since.is_none() => Some(RunOutcome::Ok),
            Some(Outcome::Refused | Outcome::Unreachable | Outcome::Locked) if found.is_none() => None,
            _ if self.stopping_since.is_some() && (launched || found.is_some()) => Some(RunOutcome::Stopped),
            _ if found == Some(RunOutcome::Running) => found,
            Some(Outcome::Signal(_) | Outcome::Stopped) if launched => Some(RunOutcome::Stopped),
            _ if ended => Some(RunOutcome::Failed),
            _ => None,
        }
    }

    /// A rank without an exit of its own does not run any more if its launcher was killed.
    pub(super) fn mark_lost_ranks_killed(&mut self) {
        let culprits = self.culprit.as_ref().map_or(&[][..], |culprit| &culprit.ranks);
        let is_culprit = |rank: u32| culprits.contains(&rank);
        for rank in self.ranks.values_mut_where(|rank| rank.is_running()) {
            let Some(host) = self.hosts.get(rank.host as usize) else { continue };
            if let Some((Exit::Killed, when)) = host.launcher_exit {
                (rank.exit, rank.ended_at) = (Some(Exit::Killed), when);
                rank.was_stopped = host.launcher_was_stopped && !is_culprit(rank.rank);
            }
        }
    }

    /// Once a rank of its own has failed, a launcher sends TERM to its others: on this host those that it ended no earlier. On SLURM the
    /// job's step does so on all nodes.
    pub(super) fn mark_ended_by_launcher(&mut self, host: u32) {
        let in_step = self.info.command.starts_with("slurm ");
        let culprits = self.culprit.as_ref().map_or(&[][..], |culprit| &culprit.ranks);
        let has_own_end = |rank: &&RankState| {
            (in_step || rank.host == host) && rank.exit.is_some_and(Exit::is_own_failure) && !rank.was_stopped && rank.ended_at > 0
        };
        let failed_at = self.ranks.values().filter(has_own_end).map(|rank| rank.ended_at).min();
        let was_ended = |rank: &RankState| {
            !culprits.contains(&rank.rank) && rank.exit.is_some_and(|exit| exit.is_by_launcher(rank.ended_at, failed_at))
        };
        for rank in self.ranks.values_mut_where(|rank| (in_step || rank.host == host) && rank.ended_by_launcher != was_ended(rank)) {
            rank.ended_by_launcher = !rank.ended_by_launcher;
        }
    }

    /// The hosts report that another command stopped the run: only the culprits failed by themselves.
    pub(super) fn mark_stopped_elsewhere(&mut self) {
        let culprits = self.culprit.as_ref().map_or(&[][..], |culprit| &culprit.ranks);
        for rank in self.ranks.values_mut_where(|rank| rank.has_failed() && !culprits.contains(&rank.rank)) {
            rank.was_stopped = true;
        }
        for host in self.hosts.iter_mut_where(|host| host.launcher_exit.is_some_and(|(exit, _)| !exit.is_success())) {
            host.launcher_was_stopped = true;
        }
    }

    /// When the first rank of the run started, as far as this operation knows.
    pub fn run_started_at(&self) -> Option<UnixMillis> {
        self.first_rank_started
    }

    /// When the run ended, as far as this operation knows; `None` while it runs.
    pub fn run_ended_at(&self) -> Option<UnixMillis> {
        if matches!(self.run_end(), None | Some(RunOutcome::Running)) {
            return None;
        }
        let ranks = self.ranks.values().filter(|rank| rank.exit.is_some()).map(|rank| rank.ended_at);
        let launchers = self.hosts.iter().filter_map(|host| host.launcher_exit.map(|(_, when)| when));
        let found = self.reported_end.map(|(_, when)| when);
        let last = ranks.chain(launchers).chain(found).filter(|when| *when > 0).max();
        Some(last.or(self.stopping_since).unwrap_or(self.last_event_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, EventKind, RunGoal, RunInfo};

    /// How the run stands after these events of a run on one host.
    fn run_end_after(kinds: &[EventKind]) -> Option<RunOutcome> {
        let mut state = RunState::new();
        let info = RunInfo { run_id: "r1".to_owned(), hosts: vec!["a".to_owned()], ..RunInfo::default() };
        let all = std::iter::once(EventKind::RunStarted(info)).chain(kinds.iter().cloned());
        (1..).zip(all).for_each(|(seq, kind)| state.apply(&Event { seq, at: 1000, kind }));
        state.run_end()
    }

    #[test]
    fn launcher_ends_its_own_ranks_after_one_failed() {
        let mut state = RunState::new();
        let info = RunInfo { run_id: "r1".to_owned(), hosts: ["a", "b", "c"].map(str::to_owned).to_vec(), ..RunInfo::default() };
        let started = |host, rank| EventKind::RankStarted { host, rank, restart: 0, started_at: 500 };
        let exited =
            |host, rank, exit, ended_at| EventKind::RankExited { host, rank, restart: 0, exit, ended_at, uncertainty: 1, stopped: None };
        let kinds = [
            EventKind::RunStarted(info),
            started(0, 0),
            started(0, 1),
            started(0, 2),
            started(1, 3),
            exited(0, 2, Exit::TERM, 700),
            exited(0, 0, Exit::Code(1), 900),
            exited(0, 1, Exit::TERM, 910),
            exited(1, 3, Exit::TERM, 920),
            started(2, 4),
            started(2, 5),
            exited(2, 4, Exit::Code(1), 930),
            exited(2, 5, Exit::TERM, 940),
        ];
        (1..).zip(kinds).for_each(|(seq, kind)| state.apply(&Event { seq, at: 1000, kind }));
        let ended = |state: &RunState| -> Vec<u32> { state.ranks.values().filter(|rank| rank.was_ended()).map(|rank| rank.rank).collect() };
        assert_eq!(ended(&state), [1, 5], "what ended before, or where no rank failed, ended by itself");
        assert_eq!((state.rank_counts().stopped, state.rank_counts().failed), (2, 4));
        assert_eq!(state.failed_ranks().len(), 6, "the diagnosis still reads them as failed");
        state.apply(&Event { seq: 20, at: 1000, kind: EventKind::Culprit { ranks: vec![1], hosts: vec![0] } });
        assert_eq!(ended(&state), [5], "what failed first ended by itself");
    }

    #[test]
    fn run_end_is_independent_of_command_outcome() {
        let started = EventKind::LauncherStarted { host: 0 };
        let exited = |code| EventKind::LauncherExited { host: 0, exit: Exit::Code(code), ended_at: 900, stopped: None };
        let found = |end| EventKind::RunEndReported { end, ended_at: 900 };
        let over = |outcome| EventKind::RunFinished { outcome, reason: String::new() };
        let goal = |goal| EventKind::GoalChanged { goal, reason: String::new() };
        let culprit = EventKind::Culprit { ranks: vec![0], hosts: vec![0] };
        let s = || started.clone();
        let cases: [(&str, Vec<EventKind>, Option<RunOutcome>); 16] = [
            ("nothing was launched", vec![over(Outcome::Refused)], None),
            ("ended well", vec![s(), exited(0), over(Outcome::Ok)], Some(RunOutcome::Ok)),
            ("ended well, something is left", vec![s(), exited(0), over(Outcome::Leftovers)], Some(RunOutcome::Ok)),
            ("failed", vec![s(), exited(1), culprit.clone(), over(Outcome::Failed)], Some(RunOutcome::Failed)),
            ("failed, something is left", vec![s(), exited(1), culprit, over(Outcome::Leftovers)], Some(RunOutcome::Failed)),
            ("hung, and was stopped for it", vec![s(), goal(RunGoal::Stop), exited(143), over(Outcome::Failed)], Some(RunOutcome::Failed)),
            ("Ctrl-C", vec![s(), goal(RunGoal::Stop), exited(143), over(Outcome::Signal(2))], Some(RunOutcome::Stopped)),
            (
                "Ctrl-C, and the ranks end well",
                vec![s(), goal(RunGoal::Stop), exited(0), over(Outcome::Signal(2))],
                Some(RunOutcome::Stopped),
            ),
            ("Ctrl-C during the launch", vec![s(), over(Outcome::Signal(2))], Some(RunOutcome::Stopped)),
            ("left", vec![s(), found(RunOutcome::Running), over(Outcome::Signal(1))], Some(RunOutcome::Running)),
            ("elsewhere", vec![s(), found(RunOutcome::Stopped), exited(143), over(Outcome::Stopped)], Some(RunOutcome::Stopped)),
            ("`down` of a live run", vec![found(RunOutcome::Running), goal(RunGoal::Down), over(Outcome::Ok)], Some(RunOutcome::Stopped)),
            ("`down` of a failed run", vec![found(RunOutcome::Failed), over(Outcome::Ok)], Some(RunOutcome::Failed)),
            ("`down` that may not", vec![found(RunOutcome::Running), over(Outcome::Locked)], Some(RunOutcome::Running)),
            ("an elastic gang", vec![s(), exited(1), over(Outcome::Ok)], Some(RunOutcome::Ok)),
            ("rolled back", vec![s(), goal(RunGoal::Down), over(Outcome::Unreachable)], None),
        ];
        for (case, kinds, expected) in cases {
            assert_eq!(run_end_after(&kinds), expected, "{case}");
        }
    }
}
