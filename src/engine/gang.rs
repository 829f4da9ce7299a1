//! The state of the gang: which ranks run, which ended, which failed first. Pure.

use std::collections::BTreeMap;

use crate::engine::log_stream_event::LogStreamEvent;
use crate::event::UnixMillis;
use crate::event::stop_orders::surely_ended_before;
use crate::model::exit::Exit;
use crate::model::log_file::LogFile;

/// How many of several first failures a reason names.
const MAX_NAMED_FAILURES: usize = 3;

/// An exit that was no success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessFailure {
    pub host: usize,
    /// `None`: the launcher itself.
    pub rank: Option<u32>,
    pub exit: Exit,
    /// When on our clock; 0: unknown.
    pub ended_at: UnixMillis,
    /// How wrong that may be.
    pub ended_at_uncertainty: i64,
}

/// The fold of the log stream events of all hosts.
#[derive(Debug, Default)]
pub(crate) struct Gang {
    launcher_exits: Vec<Option<Exit>>,
    /// The host of each rank, and its exit.
    rank_exits: BTreeMap<u32, (usize, Option<Exit>)>,
    failures: Vec<ProcessFailure>,
    /// Whether launchers restart ranks: then only a launcher's own exit is a failure.
    launcher_restarts_ranks: bool,
    /// Ranks that died and that their launcher may restart.
    restartable_failures: Vec<ProcessFailure>,
    /// How many hosts the gang can lose: 0 unless it is elastic.
    spare_hosts: usize,
    /// Launchers that failed while enough hosts were left.
    tolerated_launcher_failures: Vec<ProcessFailure>,
    /// How many failures were known when the gang was ordered to stop, and the time of the order.
    stop_ordered: Option<(usize, UnixMillis)>,
    /// Hosts that can no longer be followed, with the reason.
    give_up_reasons: BTreeMap<usize, String>,
}

impl Gang {
    /// `min_hosts`: how many of its hosts it needs; 0: all.
    pub(crate) fn new(hosts: usize, restarts: bool, min_hosts: usize) -> Gang {
        let spare_hosts = if min_hosts == 0 { 0 } else { hosts.saturating_sub(min_hosts) };
        Gang { launcher_exits: vec![None; hosts], launcher_restarts_ranks: restarts, spare_hosts, ..Gang::default() }
    }

    /// While an elastic gang has enough hosts, it continues without the failed one. It never continues without the first host, which has the
    /// rendezvous.
    fn record_failure(&mut self, failure: ProcessFailure) {
        if failure.host > 0 && self.failures.is_empty() && self.tolerated_launcher_failures.len() < self.spare_hosts {
            self.tolerated_launcher_failures.push(failure);
            // Its ranks died with it.
            self.restartable_failures.clear();
            return;
        }
        // The launchers gave up: now the last exits of their ranks count, and the failures that were tolerated before.
        self.failures.append(&mut self.restartable_failures);
        self.failures.append(&mut self.tolerated_launcher_failures);
        self.failures.push(failure);
    }

    pub(crate) fn apply_event(&mut self, event: &LogStreamEvent) {
        match *event {
            LogStreamEvent::ProcessStarted(host, LogFile::Rank { rank, .. }, _) => {
                self.rank_exits.insert(rank, (host, None));
            }
            // A task has ended before the gang starts.
            LogStreamEvent::ProcessEnded(_, LogFile::Task { .. }, ..) => {}
            LogStreamEvent::ProcessEnded(host, file, exit, when, uncertainty) => {
                let rank = match file {
                    LogFile::Launcher | LogFile::Task { .. } => {
                        if let Some(node) = self.launcher_exits.get_mut(host) {
                            *node = Some(exit);
                        }
                        None
                    }
                    LogFile::Rank { rank, .. } => {
                        self.rank_exits.insert(rank, (host, Some(exit)));
                        Some(rank)
                    }
                };
                if !exit.is_success() && rank.is_some() && self.launcher_restarts_ranks {
                    self.restartable_failures.push(ProcessFailure { host, rank, exit, ended_at: when, ended_at_uncertainty: uncertainty });
                } else if !exit.is_success() {
                    self.record_failure(ProcessFailure { host, rank, exit, ended_at: when, ended_at_uncertainty: uncertainty });
                }
            }
            // Its exit is known already.
            LogStreamEvent::RunMissing(host) | LogStreamEvent::HostGivenUp(host, _) if self.has_launcher_ended(host) => {}
            LogStreamEvent::RunMissing(host) => self.record_lost_host(host),
            LogStreamEvent::HostGivenUp(host, ref why) => {
                self.give_up_reasons.insert(host, why.clone());
                self.record_lost_host(host);
            }
            LogStreamEvent::ProcessStarted(_, LogFile::Launcher | LogFile::Task { .. }, _) | LogStreamEvent::Log(..) => {}
        }
    }

    fn record_lost_host(&mut self, host: usize) {
        self.mark_launcher_killed(host);
        self.record_failure(ProcessFailure { host, rank: None, exit: Exit::Killed, ended_at: 0, ended_at_uncertainty: 0 });
    }

    /// The launcher of a host no longer runs; its status may be missing.
    pub(crate) fn mark_launcher_killed(&mut self, host: usize) {
        if let Some(node) = self.launcher_exits.get_mut(host) {
            node.get_or_insert(Exit::Killed);
        }
    }

    pub(crate) fn give_up_reason(&self, host: usize) -> Option<&str> {
        self.give_up_reasons.get(&host).map(String::as_str)
    }

    pub(crate) fn has_given_up_host(&self) -> bool {
        !self.give_up_reasons.is_empty()
    }

    /// Records the order to stop: a process that it ended did not fail first, however uncertain the clocks are.
    pub(crate) fn record_stop_order(&mut self, now: UnixMillis) {
        self.stop_ordered.get_or_insert((self.failures.len(), now));
    }

    /// The failures that the order to stop cannot have caused.
    fn failures_not_caused_by_stop(&self) -> Vec<&ProcessFailure> {
        let (known, ordered_at) = self.stop_ordered.unwrap_or((self.failures.len(), UnixMillis::MAX));
        let ours = |f: &ProcessFailure| {
            let surely_before = surely_ended_before(ordered_at, f.ended_at, f.ended_at_uncertainty);
            let surely_after = f.ended_at == 0 || f.ended_at - f.ended_at_uncertainty >= ordered_at;
            !surely_before && (surely_after || matches!(f.exit, Exit::KILL | Exit::TERM | Exit::Killed))
        };
        self.failures.iter().enumerate().filter(|(i, f)| *i < known || !ours(f)).map(|(_, f)| f).collect()
    }

    /// Launchers that failed while an elastic gang had hosts enough.
    pub(crate) fn tolerated_launcher_failures(&self) -> &[ProcessFailure] {
        &self.tolerated_launcher_failures
    }

    pub(crate) fn started_rank_count(&self) -> usize {
        self.rank_exits.len()
    }

    pub(crate) fn has_launcher_ended(&self, host: usize) -> bool {
        self.launcher_exits.get(host).is_some_and(Option::is_some)
    }

    /// Whether the launcher and every rank that was seen there have ended.
    pub(crate) fn has_host_ended(&self, host: usize) -> bool {
        self.has_launcher_ended(host) && self.rank_exits.values().all(|(at, exit)| *at != host || exit.is_some())
    }

    pub(crate) fn have_all_launchers_ended(&self) -> bool {
        self.launcher_exits.iter().all(Option::is_some)
    }

    pub(crate) fn has_succeeded(&self) -> bool {
        self.failures.is_empty() && self.have_all_launchers_ended()
    }

    /// The failure that was reported first, which is reason enough to stop the gang. See [`Gang::culprits`].
    pub(crate) fn first_reported_failure(&self) -> Option<&ProcessFailure> {
        self.failures.first()
    }

    /// The processes that failed first on corrected clocks: one, or several that are closer together than the clocks can resolve. A launcher is named only
    /// where no rank failed, since it exits because of its ranks.
    pub(crate) fn culprits(&self) -> Vec<&ProcessFailure> {
        let own = self.failures_not_caused_by_stop();
        let workers: Vec<&ProcessFailure> = own.iter().copied().filter(|f| f.rank.is_some()).collect();
        let candidates = if workers.is_empty() { own } else { workers };
        let timed = |f: &&ProcessFailure| f.ended_at > 0;
        let Some(first) = candidates.iter().copied().filter(timed).min_by_key(|f| f.ended_at) else {
            return candidates.into_iter().take(1).collect();
        };
        // Ranks of one host share a clock: there the earlier one is certain.
        let mut found: Vec<&ProcessFailure> = candidates
            .into_iter()
            .filter(timed)
            .filter(|f| {
                f.host != first.host && f.ended_at - first.ended_at <= f.ended_at_uncertainty + first.ended_at_uncertainty
                    || f.ended_at == first.ended_at
            })
            .collect();
        found.sort_by_key(|f| (f.ended_at, f.rank));
        found
    }

    /// `rank 3 on gpu01 failed: exit 1`. If the clocks cannot order several failures, all are named.
    pub(crate) fn failure_reason(&self, host_name: impl Fn(usize) -> String) -> Option<String> {
        let place = |failure: &ProcessFailure| match failure.rank {
            Some(rank) => format!("rank {rank} on {} ({})", host_name(failure.host), failure.exit),
            None => format!("the launcher on {} ({})", host_name(failure.host), failure.exit),
        };
        match self.culprits().as_slice() {
            [] => None,
            [failure] => Some(self.describe_failure(failure, host_name)),
            several => {
                let (named, more) = several.split_at(several.len().min(MAX_NAMED_FAILURES));
                let names = named.iter().map(|failure| place(failure)).reduce(|before, next| format!("{before} or {next}"));
                let more = if more.is_empty() { String::new() } else { format!(" or {} more", more.len()) };
                Some(format!("{}{more} failed first", names.unwrap_or_default()))
            }
        }
    }

    pub(crate) fn describe_failure(&self, failure: &ProcessFailure, host_name: impl Fn(usize) -> String) -> String {
        let host = host_name(failure.host);
        match failure.rank {
            None if let Some(why) = self.give_up_reason(failure.host) => format!("{host} was given up: {why}"),
            Some(rank) => format!("rank {rank} on {host} failed: {}", failure.exit),
            None => format!("the launcher on {host} failed: {}", failure.exit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank_ended(host: usize, rank: u32, code: i32, when: UnixMillis) -> LogStreamEvent {
        LogStreamEvent::ProcessEnded(host, LogFile::Rank { rank, restart: 0 }, Exit::Code(code), when, 10)
    }

    #[test]
    fn culprit_is_earliest_not_first_reported() {
        let mut gang = Gang::new(2, false, 0);
        for report in [
            rank_ended(1, 9, 1, 5000),
            rank_ended(0, 3, 7, 4000),
            rank_ended(0, 2, 1, 4001),
            LogStreamEvent::ProcessEnded(0, LogFile::Launcher, Exit::Code(1), 100, 10),
        ] {
            gang.apply_event(&report);
        }
        assert_eq!(gang.culprits().iter().map(|f| f.rank).collect::<Vec<_>>(), [Some(3)]);
        assert_eq!(gang.first_reported_failure().and_then(|f| f.rank), Some(9));
        assert!(!gang.have_all_launchers_ended());
    }

    #[test]
    fn failures_within_clock_uncertainty_are_both_culprits() {
        let mut gang = Gang::new(2, false, 0);
        gang.apply_event(&rank_ended(1, 9, 1, 4015));
        gang.apply_event(&rank_ended(0, 3, 7, 4000));
        assert_eq!(gang.culprits().iter().map(|f| f.rank).collect::<Vec<_>>(), [Some(3), Some(9)]);
        let reason = |gang: &Gang| gang.failure_reason(|host| format!("gpu0{host}"));
        assert_eq!(reason(&gang).as_deref(), Some("rank 3 on gpu00 (exit 7) or rank 9 on gpu01 (exit 1) failed first"));
        // An earlier failure replaces the one that seemed to be the first.
        gang.apply_event(&rank_ended(1, 8, 5, 3900));
        assert_eq!(reason(&gang).as_deref(), Some("rank 8 on gpu01 failed: exit 5"));
    }

    #[test]
    fn ranks_killed_by_stop_are_not_the_cause() {
        let mut gang = Gang::new(3, false, 0);
        let died =
            |host: usize, exit, when| LogStreamEvent::ProcessEnded(host, LogFile::Rank { rank: host as u32, restart: 0 }, exit, when, 3000);
        gang.apply_event(&died(1, Exit::Code(7), 10_000));
        gang.record_stop_order(10_500);
        gang.apply_event(&died(0, Exit::Signal(15), 9_900));
        assert_eq!(gang.culprits().iter().map(|f| f.rank).collect::<Vec<_>>(), [Some(1)]);
        // What ended otherwise may have been first all the same.
        gang.apply_event(&died(2, Exit::Code(1), 9_800));
        assert_eq!(gang.culprits().iter().map(|f| f.rank).collect::<Vec<_>>(), [Some(2), Some(1)]);
    }

    #[test]
    fn restartable_rank_death_does_not_fail_gang() {
        let mut gang = Gang::new(1, true, 0);
        gang.apply_event(&rank_ended(0, 1, 7, 4000));
        assert_eq!(gang.first_reported_failure(), None);
        gang.apply_event(&LogStreamEvent::ProcessEnded(0, LogFile::Launcher, Exit::Code(0), 9000, 10));
        assert!(gang.has_succeeded());
        let mut gang = Gang::new(1, true, 0);
        gang.apply_event(&rank_ended(0, 1, 7, 4000));
        gang.apply_event(&LogStreamEvent::ProcessEnded(0, LogFile::Launcher, Exit::Code(1), 9000, 10));
        assert_eq!(gang.culprits().iter().map(|f| f.rank).collect::<Vec<_>>(), [Some(1)]);
        assert!(!gang.has_succeeded());
    }

    #[test]
    fn elastic_gang_survives_losing_spare_hosts() {
        let node = |host: usize, exit| LogStreamEvent::ProcessEnded(host, LogFile::Launcher, exit, 5000, 10);
        let mut gang = Gang::new(3, true, 2);
        gang.apply_event(&rank_ended(2, 5, 9, 4000));
        gang.apply_event(&node(2, Exit::Code(1)));
        assert_eq!(gang.first_reported_failure(), None, "two of three are left");
        gang.apply_event(&node(0, Exit::Code(0)));
        gang.apply_event(&node(1, Exit::Code(0)));
        assert!(gang.has_succeeded());

        let mut gang = Gang::new(3, true, 2);
        gang.apply_event(&node(2, Exit::Code(1)));
        gang.apply_event(&node(1, Exit::Signal(9)));
        assert_eq!(gang.culprits().iter().map(|f| f.host).collect::<Vec<_>>(), [2, 1], "one is too few");

        let mut gang = Gang::new(3, true, 2);
        gang.apply_event(&node(0, Exit::Code(1)));
        assert!(gang.first_reported_failure().is_some(), "the rendezvous lives on the first");
        assert!(Gang::new(2, true, 0).spare_hosts == 0 && Gang::new(2, true, 2).spare_hosts == 0);
    }

    #[test]
    fn missing_run_directory_keeps_known_exit() {
        let mut gang = Gang::new(2, false, 0);
        gang.apply_event(&LogStreamEvent::ProcessEnded(0, LogFile::Launcher, Exit::Code(0), 100, 1));
        gang.apply_event(&LogStreamEvent::RunMissing(0));
        assert_eq!(gang.first_reported_failure(), None);
        gang.apply_event(&LogStreamEvent::RunMissing(1));
        assert_eq!(gang.first_reported_failure().map(|f| (f.host, f.exit)), Some((1, Exit::Killed)));
        assert!(gang.have_all_launchers_ended());
    }

    #[test]
    fn given_up_host_fails_gang_unless_already_ended() {
        let mut gang = Gang::new(2, false, 0);
        gang.apply_event(&LogStreamEvent::ProcessEnded(0, LogFile::Launcher, Exit::Code(0), 100, 1));
        gang.apply_event(&LogStreamEvent::HostGivenUp(0, "the key changed".to_owned()));
        assert_eq!((gang.first_reported_failure(), gang.give_up_reason(0)), (None, None));
        gang.apply_event(&LogStreamEvent::HostGivenUp(1, "the key changed".to_owned()));
        assert_eq!((gang.first_reported_failure().map(|f| f.host), gang.give_up_reason(1)), (Some(1), Some("the key changed")));
        assert!(gang.have_all_launchers_ended() && !gang.has_succeeded());
    }

    #[test]
    fn lone_launcher_failure_is_the_culprit() {
        let mut gang = Gang::new(1, false, 0);
        gang.apply_event(&LogStreamEvent::ProcessEnded(0, LogFile::Launcher, Exit::Code(2), 100, 1));
        assert_eq!(gang.culprits().iter().map(|f| f.rank).collect::<Vec<_>>(), [None]);
        assert!(gang.have_all_launchers_ended() && !gang.has_succeeded());
    }
}
