//! The gang as the follower sees it: who runs, who ended, who failed first. Pure, though it lives here.

use std::collections::BTreeMap;

use crate::engine::log_stream_event::LogStreamEvent;
use crate::event::UnixMillis;
use crate::event::stop_orders::surely_ended_before;
use crate::model::exit::Exit;
use crate::model::log_file::LogFile;

/// One end that was no success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessFailure {
    pub host: usize,
    /// Which rank; `None`: the launcher itself.
    pub rank: Option<u32>,
    pub exit: Exit,
    /// When on our clock; 0: unknown.
    pub ended_at: UnixMillis,
    /// How wrong that may be.
    pub ended_at_uncertainty: i64,
}

/// The fold of all reports.
#[derive(Debug, Default)]
pub(crate) struct Gang {
    launcher_exits: Vec<Option<Exit>>,
    rank_exits: BTreeMap<u32, Option<Exit>>,
    failures: Vec<ProcessFailure>,
    /// Whether launchers start workers again: then only a launcher's own end is a failure.
    launcher_restarts_ranks: bool,
    /// Workers that died where theirs may start them again.
    restartable_failures: Vec<ProcessFailure>,
    /// How many hosts the gang can lose: 0 unless it is elastic.
    spare_hosts: usize,
    /// Launchers that failed while enough hosts were left.
    tolerated_launcher_failures: Vec<ProcessFailure>,
    /// How many failures were known when the gang was told to end, and when that was.
    stop_ordered: Option<(usize, UnixMillis)>,
    /// Hosts that can be followed no more, and why.
    give_up_reasons: BTreeMap<usize, String>,
}

impl Gang {
    /// A gang of which nothing is known.
    pub(crate) fn new(hosts: usize, restarts: bool) -> Gang {
        Gang { launcher_exits: vec![None; hosts], launcher_restarts_ranks: restarts, ..Gang::default() }
    }

    /// The same, needing only so many of its hosts (0: all).
    pub(crate) fn with_min_hosts(self, least: usize) -> Gang {
        let spare = if least == 0 { 0 } else { self.launcher_exits.len().saturating_sub(least) };
        Gang { spare_hosts: spare, ..self }
    }

    /// A launcher failed: while an elastic gang has hosts enough, the others go on without this one. Not without the first host, where the
    /// rendezvous lives.
    fn record_failure(&mut self, failure: ProcessFailure) {
        if failure.host > 0 && self.failures.is_empty() && self.tolerated_launcher_failures.len() < self.spare_hosts {
            self.tolerated_launcher_failures.push(failure);
            // Its workers died with it.
            self.restartable_failures.clear();
            return;
        }
        // The launchers have given up: now their workers' last deaths count, and who was given up for lost before.
        self.failures.append(&mut self.restartable_failures);
        self.failures.append(&mut self.tolerated_launcher_failures);
        self.failures.push(failure);
    }

    /// Takes a report in.
    pub(crate) fn apply_event(&mut self, event: &LogStreamEvent) {
        match *event {
            LogStreamEvent::ProcessStarted(_, LogFile::Rank { rank, .. }, _) => {
                self.rank_exits.insert(rank, None);
            }
            LogStreamEvent::ProcessEnded(host, file, exit, when, uncertainty) => {
                let rank = match file {
                    LogFile::Launcher => {
                        if let Some(node) = self.launcher_exits.get_mut(host) {
                            *node = Some(exit);
                        }
                        None
                    }
                    LogFile::Rank { rank, .. } => {
                        self.rank_exits.insert(rank, Some(exit));
                        Some(rank)
                    }
                };
                if !exit.is_success() && rank.is_some() && self.launcher_restarts_ranks {
                    self.restartable_failures.push(ProcessFailure { host, rank, exit, ended_at: when, ended_at_uncertainty: uncertainty });
                } else if !exit.is_success() {
                    self.record_failure(ProcessFailure { host, rank, exit, ended_at: when, ended_at_uncertainty: uncertainty });
                }
            }
            // How it ended may be known already: then its directory was removed since.
            LogStreamEvent::RunMissing(host) if self.has_launcher_ended(host) => {}
            LogStreamEvent::RunMissing(host) => {
                if let Some(node) = self.launcher_exits.get_mut(host) {
                    *node = Some(Exit::Killed);
                }
                self.record_failure(ProcessFailure { host, rank: None, exit: Exit::Killed, ended_at: 0, ended_at_uncertainty: 0 });
            }
            LogStreamEvent::HostGivenUp(host, _) if self.has_launcher_ended(host) => {}
            LogStreamEvent::HostGivenUp(host, ref why) => {
                self.mark_launcher_killed(host);
                self.give_up_reasons.insert(host, why.clone());
                self.record_failure(ProcessFailure { host, rank: None, exit: Exit::Killed, ended_at: 0, ended_at_uncertainty: 0 });
            }
            LogStreamEvent::ProcessStarted(_, LogFile::Launcher, _) | LogStreamEvent::Log(..) => {}
        }
    }

    /// Notes that a host's launcher cannot run any more, whatever its status was.
    pub(crate) fn mark_launcher_killed(&mut self, host: usize) {
        if let Some(node) = self.launcher_exits.get_mut(host) {
            node.get_or_insert(Exit::Killed);
        }
    }

    /// Why a host was given up, if it was.
    pub(crate) fn give_up_reason(&self, host: usize) -> Option<&str> {
        self.give_up_reasons.get(&host).map(String::as_str)
    }

    /// Notes that the gang is told to end: what dies of that has not failed first, however little the clocks can tell.
    pub(crate) fn record_stop_order(&mut self, now: UnixMillis) {
        self.stop_ordered.get_or_insert((self.failures.len(), now));
    }

    /// The failures that the order to end can not have caused.
    fn failures_not_caused_by_stop(&self) -> Vec<&ProcessFailure> {
        let (known, told) = self.stop_ordered.unwrap_or((self.failures.len(), UnixMillis::MAX));
        let ours = |f: &ProcessFailure| {
            let surely_before = surely_ended_before(told, f.ended_at, f.ended_at_uncertainty);
            let surely_after = f.ended_at == 0 || f.ended_at - f.ended_at_uncertainty >= told;
            !surely_before && (surely_after || matches!(f.exit, Exit::Signal(9 | 15) | Exit::Killed))
        };
        self.failures.iter().enumerate().filter(|(i, f)| *i < known || !ours(f)).map(|(_, f)| f).collect()
    }

    /// Launchers that failed while an elastic gang had hosts enough.
    pub(crate) fn tolerated_launcher_failures(&self) -> &[ProcessFailure] {
        &self.tolerated_launcher_failures
    }

    /// How many workers have been seen.
    pub(crate) fn started_rank_count(&self) -> usize {
        self.rank_exits.len()
    }

    /// Whether a host's launcher has ended.
    pub(crate) fn has_launcher_ended(&self, host: usize) -> bool {
        self.launcher_exits.get(host).is_some_and(Option::is_some)
    }

    /// Whether every launcher has ended.
    pub(crate) fn have_all_launchers_ended(&self) -> bool {
        self.launcher_exits.iter().all(Option::is_some)
    }

    /// Whether all went well.
    pub(crate) fn has_succeeded(&self) -> bool {
        self.failures.is_empty() && self.have_all_launchers_ended()
    }

    /// The first failure that was reported: enough to stop the gang.
    pub(crate) fn first_reported_failure(&self) -> Option<&ProcessFailure> {
        self.failures.first()
    }

    /// Those who failed first on corrected clocks: one, or several closer together than the clocks can tell. A launcher is named only where no
    /// worker failed, since it merely passes on what its workers did.
    pub(crate) fn culprits(&self) -> Vec<&ProcessFailure> {
        let own = self.failures_not_caused_by_stop();
        let workers: Vec<&ProcessFailure> = own.iter().copied().filter(|f| f.rank.is_some()).collect();
        let candidates = if workers.is_empty() { own } else { workers };
        let timed = |f: &&ProcessFailure| f.ended_at > 0;
        let Some(first) = candidates.iter().copied().filter(timed).min_by_key(|f| f.ended_at) else {
            return candidates.into_iter().take(1).collect();
        };
        // Ranks of one host share a clock: there the earlier one is told for sure.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank_ended(host: usize, rank: u32, code: i32, when: UnixMillis) -> LogStreamEvent {
        LogStreamEvent::ProcessEnded(host, LogFile::Rank { rank, restart: 0 }, Exit::Code(code), when, 10)
    }

    #[test]
    fn culprit_is_earliest_not_first_reported() {
        let mut gang = Gang::new(2, false);
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
        let mut gang = Gang::new(2, false);
        gang.apply_event(&rank_ended(1, 9, 1, 4015));
        gang.apply_event(&rank_ended(0, 3, 7, 4000));
        assert_eq!(gang.culprits().iter().map(|f| f.rank).collect::<Vec<_>>(), [Some(3), Some(9)]);
    }

    #[test]
    fn ranks_killed_by_stop_are_not_the_cause() {
        let mut gang = Gang::new(3, false);
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
        let mut gang = Gang::new(1, true);
        gang.apply_event(&rank_ended(0, 1, 7, 4000));
        assert_eq!(gang.first_reported_failure(), None);
        gang.apply_event(&LogStreamEvent::ProcessEnded(0, LogFile::Launcher, Exit::Code(0), 9000, 10));
        assert!(gang.has_succeeded());
        let mut gang = Gang::new(1, true);
        gang.apply_event(&rank_ended(0, 1, 7, 4000));
        gang.apply_event(&LogStreamEvent::ProcessEnded(0, LogFile::Launcher, Exit::Code(1), 9000, 10));
        assert_eq!(gang.culprits().iter().map(|f| f.rank).collect::<Vec<_>>(), [Some(1)]);
        assert!(!gang.has_succeeded());
    }

    #[test]
    fn elastic_gang_survives_losing_spare_hosts() {
        let node = |host: usize, exit| LogStreamEvent::ProcessEnded(host, LogFile::Launcher, exit, 5000, 10);
        let mut gang = Gang::new(3, true).with_min_hosts(2);
        gang.apply_event(&rank_ended(2, 5, 9, 4000));
        gang.apply_event(&node(2, Exit::Code(1)));
        assert_eq!(gang.first_reported_failure(), None, "two of three are left");
        gang.apply_event(&node(0, Exit::Code(0)));
        gang.apply_event(&node(1, Exit::Code(0)));
        assert!(gang.has_succeeded());

        let mut gang = Gang::new(3, true).with_min_hosts(2);
        gang.apply_event(&node(2, Exit::Code(1)));
        gang.apply_event(&node(1, Exit::Signal(9)));
        assert_eq!(gang.culprits().iter().map(|f| f.host).collect::<Vec<_>>(), [2, 1], "one is too few");

        let mut gang = Gang::new(3, true).with_min_hosts(2);
        gang.apply_event(&node(0, Exit::Code(1)));
        assert!(gang.first_reported_failure().is_some(), "the rendezvous lives on the first");
        assert!(Gang::new(2, true).with_min_hosts(0).spare_hosts == 0 && Gang::new(2, true).with_min_hosts(2).spare_hosts == 0);
    }

    #[test]
    fn missing_run_directory_keeps_known_exit() {
        let mut gang = Gang::new(2, false);
        gang.apply_event(&LogStreamEvent::ProcessEnded(0, LogFile::Launcher, Exit::Code(0), 100, 1));
        gang.apply_event(&LogStreamEvent::RunMissing(0));
        assert_eq!(gang.first_reported_failure(), None);
        gang.apply_event(&LogStreamEvent::RunMissing(1));
        assert_eq!(gang.first_reported_failure().map(|f| (f.host, f.exit)), Some((1, Exit::Killed)));
        assert!(gang.have_all_launchers_ended());
    }

    #[test]
    fn given_up_host_fails_gang_unless_already_ended() {
        let mut gang = Gang::new(2, false);
        gang.apply_event(&LogStreamEvent::ProcessEnded(0, LogFile::Launcher, Exit::Code(0), 100, 1));
        gang.apply_event(&LogStreamEvent::HostGivenUp(0, "the key changed".to_owned()));
        assert_eq!((gang.first_reported_failure(), gang.give_up_reason(0)), (None, None));
        gang.apply_event(&LogStreamEvent::HostGivenUp(1, "the key changed".to_owned()));
        assert_eq!((gang.first_reported_failure().map(|f| f.host), gang.give_up_reason(1)), (Some(1), Some("the key changed")));
        assert!(gang.have_all_launchers_ended() && !gang.has_succeeded());
    }

    #[test]
    fn lone_launcher_failure_is_the_culprit() {
        let mut gang = Gang::new(1, false);
        gang.apply_event(&LogStreamEvent::ProcessEnded(0, LogFile::Launcher, Exit::Code(2), 100, 1));
        assert_eq!(gang.culprits().iter().map(|f| f.rank).collect::<Vec<_>>(), [None]);
        assert!(gang.have_all_launchers_ended() && !gang.has_succeeded());
    }
}
