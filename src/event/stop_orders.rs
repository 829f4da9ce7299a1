//! Whether a process ended because its run was stopped. The engine stamps each exit event with the answer, everything else reads it.

use std::collections::BTreeSet;

use super::{EventKind, RunGoal, RunOutcome, UnixMillis};

/// The stop orders of a run, folded from its events.
#[derive(Debug, Clone, Default)]
pub(crate) struct StopOrders {
    run: (String, u32),
    hosts: Vec<String>,
    ordered_at: Option<UnixMillis>,
    /// Hosts whose ranks got a signal.
    signaled_hosts: BTreeSet<String>,
    /// The hosts report a stop by another command.
    stopped_elsewhere: bool,
}

impl StopOrders {
    /// Takes the next event; stamps it if it is an exit without a stamp.
    pub(crate) fn stamp(&mut self, kind: &mut EventKind, at: UnixMillis) {
        match kind {
            EventKind::RunStarted(info) => {
                if info.is_other_run((&self.run.0, self.run.1)) {
                    *self = StopOrders { hosts: std::mem::take(&mut self.hosts), ..StopOrders::default() };
                }
                self.run = (info.run_id.clone(), info.attempt);
                if !info.hosts.is_empty() {
                    self.hosts.clone_from(&info.hosts);
                }
            }
            EventKind::GoalChanged { goal: RunGoal::Up, .. } => self.ordered_at = None,
            EventKind::GoalChanged { .. } => {
                self.ordered_at.get_or_insert(at);
            }
            EventKind::RanksSignaled { host, .. } => self.signaled_hosts.extend(self.hosts.get(*host as usize).cloned()),
            EventKind::RunEndReported { end, .. } => self.stopped_elsewhere = *end == RunOutcome::Stopped,
            EventKind::RankExited { host, exit, ended_at, uncertainty, stopped, .. } => {
                stopped.get_or_insert(!exit.is_success() && self.explain_exit(*host, *ended_at, *uncertainty));
            }
            EventKind::LauncherExited { host, exit, ended_at, stopped } => {
                stopped.get_or_insert(!exit.is_success() && self.explain_exit(*host, *ended_at, 0));
            }
            _ => {}
        }
    }

    fn explain_exit(&self, host: u32, ended_at: UnixMillis, uncertainty: i64) -> bool {
        let signaled = self.hosts.get(host as usize).is_some_and(|name| self.signaled_hosts.contains(name));
        let in_time = self.ordered_at.is_some_and(|ordered_at| !surely_ended_before(ordered_at, ended_at, uncertainty));
        self.stopped_elsewhere || signaled && in_time
    }
}

/// Whether a process ended before `time` for any clock error up to `uncertainty`. An unknown end (0) is not surely before.
pub(crate) fn surely_ended_before(time: UnixMillis, ended_at: UnixMillis, uncertainty: i64) -> bool {
    ended_at > 0 && ended_at + uncertainty < time
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Exit, RunInfo};

    fn stamps(kinds: &[EventKind]) -> Vec<bool> {
        let mut orders = StopOrders::default();
        let mut stamps = Vec::new();
        for (second, kind) in (1..).zip(kinds) {
            let mut kind = kind.clone();
            orders.stamp(&mut kind, second * 1000);
            if let EventKind::RankExited { stopped, .. } | EventKind::LauncherExited { stopped, .. } = kind {
                stamps.push(stopped.expect("stamped"));
            }
        }
        stamps
    }

    fn run_started(attempt: u32, hosts: [&str; 2]) -> EventKind {
        EventKind::RunStarted(RunInfo { attempt, hosts: hosts.map(str::to_owned).to_vec(), ..RunInfo::default() })
    }

    fn rank_exited(host: u32, exit: Exit, ended_at: UnixMillis) -> EventKind {
        EventKind::RankExited { host, rank: host, restart: 0, exit, ended_at, uncertainty: 5, stopped: None }
    }

    #[test]
    fn exits_after_a_stop_order_are_stamped() {
        let stop = EventKind::GoalChanged { goal: RunGoal::Stop, reason: String::new() };
        let term = |host| EventKind::RanksSignaled { host, signal: "TERM".to_owned() };
        let launcher = EventKind::LauncherExited { host: 0, exit: Exit::Code(1), ended_at: 0, stopped: None };
        let order = [run_started(1, ["a", "b"]), rank_exited(0, Exit::Code(1), 1900), stop, term(0)];
        let cases: [(&str, Vec<EventKind>, Vec<bool>); 7] = [
            ("before the order", vec![], vec![false]),
            ("after it", vec![rank_exited(0, Exit::Signal(15), 3100), launcher], vec![false, true, true]),
            ("surely before it", vec![rank_exited(0, Exit::Signal(15), 2990)], vec![false, false]),
            ("it ended well", vec![rank_exited(0, Exit::Code(0), 3100)], vec![false, false]),
            ("its host got no signal", vec![rank_exited(1, Exit::Signal(15), 3100)], vec![false, false]),
            ("hosts are renumbered", vec![run_started(1, ["b", "a"]), rank_exited(1, Exit::Signal(15), 3100)], vec![false, true]),
            ("another attempt", vec![run_started(2, ["a", "b"]), rank_exited(0, Exit::Signal(15), 9000)], vec![false, false]),
        ];
        for (case, more, expected) in cases {
            assert_eq!(stamps(&[&order[..], &more[..]].concat()), expected, "{case}");
        }
        let elsewhere = EventKind::RunEndReported { end: RunOutcome::Stopped, ended_at: 0 };
        assert_eq!(stamps(&[elsewhere, rank_exited(0, Exit::Code(143), 0)]), [true]);
    }
}
