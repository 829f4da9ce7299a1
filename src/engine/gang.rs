//! The gang as the follower sees it: who runs, who ended, who failed first. Pure, though it lives here.

use std::collections::BTreeMap;

use crate::engine::log_event::Report;
use crate::event::Millis;
use crate::plan::words::{Exit, LogFile};

/// One end that was no success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Where.
    pub host: usize,
    /// Which rank; `None`: the launcher itself.
    pub rank: Option<u32>,
    /// How.
    pub exit: Exit,
    /// When on our clock; 0: unknown.
    pub when: Millis,
    /// How wrong that may be.
    pub uncertainty: i64,
}

/// The fold of all reports.
#[derive(Debug, Default)]
pub struct Gang {
    nodes: Vec<Option<Exit>>,
    ranks: BTreeMap<u32, Option<Exit>>,
    failures: Vec<Failure>,
    /// Whether launchers start workers again: then only a launcher's own end is a failure.
    restarts: bool,
    /// Workers that died where theirs may start them again.
    deaths: Vec<Failure>,
    /// How many hosts the gang can lose: 0 unless it is elastic.
    spare: usize,
    /// Launchers that failed while enough hosts were left.
    lost: Vec<Failure>,
    /// How many failures were known when the gang was told to end, and when that was.
    told: Option<(usize, Millis)>,
    /// Hosts that can be followed no more, and why.
    given_up: BTreeMap<usize, String>,
}

impl Gang {
    /// A gang of which nothing is known.
    pub fn new(hosts: usize, restarts: bool) -> Gang {
        Gang { nodes: vec![None; hosts], restarts, ..Gang::default() }
    }

    /// The same, needing only so many of its hosts (0: all).
    pub fn needing(self, least: usize) -> Gang {
        let spare = if least == 0 { 0 } else { self.nodes.len().saturating_sub(least) };
        Gang { spare, ..self }
    }

    /// A launcher failed: while an elastic gang has hosts enough, the others go on without this one. Not without the first host, where the
    /// rendezvous lives.
    fn fail(&mut self, failure: Failure) {
        if failure.host > 0 && self.failures.is_empty() && self.lost.len() < self.spare {
            self.lost.push(failure);
            // Its workers died with it.
            self.deaths.clear();
            return;
        }
        // The launchers have given up: now their workers' last deaths count, and who was given up for lost before.
        self.failures.append(&mut self.deaths);
        self.failures.append(&mut self.lost);
        self.failures.push(failure);
    }

    /// Takes a report in.
    pub fn apply(&mut self, report: &Report) {
        match *report {
            Report::Started(_, LogFile::Rank { rank, .. }, _) => {
                self.ranks.insert(rank, None);
            }
            Report::Ended(host, file, exit, when, uncertainty) => {
                let rank = match file {
                    LogFile::Node => {
                        if let Some(node) = self.nodes.get_mut(host) {
                            *node = Some(exit);
                        }
                        None
                    }
                    LogFile::Rank { rank, .. } => {
                        self.ranks.insert(rank, Some(exit));
                        Some(rank)
                    }
                };
                if !exit.ok() && rank.is_some() && self.restarts {
                    self.deaths.push(Failure { host, rank, exit, when, uncertainty });
                } else if !exit.ok() {
                    self.fail(Failure { host, rank, exit, when, uncertainty });
                }
            }
            // How it ended may be known already: then its directory was removed since.
            Report::Nothing(host) if self.ended(host) => {}
            Report::Nothing(host) => {
                if let Some(node) = self.nodes.get_mut(host) {
                    *node = Some(Exit::Killed);
                }
                self.fail(Failure { host, rank: None, exit: Exit::Killed, when: 0, uncertainty: 0 });
            }
            Report::GivenUp(host, _) if self.ended(host) => {}
            Report::GivenUp(host, ref why) => {
                self.give_up(host);
                self.given_up.insert(host, why.clone());
                self.fail(Failure { host, rank: None, exit: Exit::Killed, when: 0, uncertainty: 0 });
            }
            Report::Started(_, LogFile::Node, _) | Report::Log(..) => {}
        }
    }

    /// Notes that a host's launcher cannot run any more, whatever its status was.
    pub fn give_up(&mut self, host: usize) {
        if let Some(node) = self.nodes.get_mut(host) {
            node.get_or_insert(Exit::Killed);
        }
    }

    /// Why a host was given up, if it was.
    pub fn given_up(&self, host: usize) -> Option<&str> {
        self.given_up.get(&host).map(String::as_str)
    }

    /// Notes that the gang is told to end: what dies of that has not failed first, however little the clocks can tell.
    pub fn told_to_end(&mut self, now: Millis) {
        self.told.get_or_insert((self.failures.len(), now));
    }

    /// The failures that the order to end can not have caused.
    fn own_failures(&self) -> Vec<&Failure> {
        let (known, told) = self.told.unwrap_or((self.failures.len(), Millis::MAX));
        let ours = |f: &Failure| {
            let surely_before = f.when > 0 && f.when + f.uncertainty < told;
            let surely_after = f.when == 0 || f.when - f.uncertainty >= told;
            !surely_before && (surely_after || matches!(f.exit, Exit::Signal(9 | 15) | Exit::Killed))
        };
        self.failures.iter().enumerate().filter(|(i, f)| *i < known || !ours(f)).map(|(_, f)| f).collect()
    }

    /// Launchers that failed while an elastic gang had hosts enough.
    pub fn lost(&self) -> &[Failure] {
        &self.lost
    }

    /// How many workers have been seen.
    pub fn started(&self) -> usize {
        self.ranks.len()
    }

    /// Whether a host's launcher has ended.
    pub fn ended(&self, host: usize) -> bool {
        self.nodes.get(host).is_some_and(Option::is_some)
    }

    /// Whether every launcher has ended.
    pub fn all_ended(&self) -> bool {
        self.nodes.iter().all(Option::is_some)
    }

    /// Whether all went well.
    pub fn ok(&self) -> bool {
        self.failures.is_empty() && self.all_ended()
    }

    /// The first failure that was reported: enough to stop the gang.
    pub fn first(&self) -> Option<&Failure> {
        self.failures.first()
    }

    /// Those who failed first on corrected clocks: one, or several closer together than the clocks can tell. A launcher is named only where no
    /// worker failed, since it merely passes on what its workers did.
    pub fn culprits(&self) -> Vec<&Failure> {
        let own = self.own_failures();
        let workers: Vec<&Failure> = own.iter().copied().filter(|f| f.rank.is_some()).collect();
        let candidates = if workers.is_empty() { own } else { workers };
        let timed = |f: &&Failure| f.when > 0;
        let Some(first) = candidates.iter().copied().filter(timed).min_by_key(|f| f.when) else {
            return candidates.into_iter().take(1).collect();
        };
        // Ranks of one host share a clock: there the earlier one is told for sure.
        let mut found: Vec<&Failure> = candidates
            .into_iter()
            .filter(timed)
            .filter(|f| f.host != first.host && f.when - first.when <= f.uncertainty + first.uncertainty || f.when == first.when)
            .collect();
        found.sort_by_key(|f| (f.when, f.rank));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn died(host: usize, rank: u32, code: i32, when: Millis) -> Report {
        Report::Ended(host, LogFile::Rank { rank, restart: 0 }, Exit::Code(code), when, 10)
    }

    #[test]
    fn the_first_is_found_whatever_came_first() {
        let mut gang = Gang::new(2, false);
        for report in
            [died(1, 9, 1, 5000), died(0, 3, 7, 4000), died(0, 2, 1, 4001), Report::Ended(0, LogFile::Node, Exit::Code(1), 100, 10)]
        {
            gang.apply(&report);
        }
        assert_eq!(gang.culprits().iter().map(|f| f.rank).collect::<Vec<_>>(), [Some(3)]);
        assert_eq!(gang.first().and_then(|f| f.rank), Some(9));
        assert!(!gang.all_ended());
    }

    #[test]
    fn two_hosts_within_their_clocks_are_both_named() {
        let mut gang = Gang::new(2, false);
        gang.apply(&died(1, 9, 1, 4015));
        gang.apply(&died(0, 3, 7, 4000));
        assert_eq!(gang.culprits().iter().map(|f| f.rank).collect::<Vec<_>>(), [Some(3), Some(9)]);
    }

    #[test]
    fn who_dies_of_the_order_to_end_has_not_failed_first() {
        let mut gang = Gang::new(3, false);
        let died = |host: usize, exit, when| Report::Ended(host, LogFile::Rank { rank: host as u32, restart: 0 }, exit, when, 3000);
        gang.apply(&died(1, Exit::Code(7), 10_000));
        gang.told_to_end(10_500);
        gang.apply(&died(0, Exit::Signal(15), 9_900));
        assert_eq!(gang.culprits().iter().map(|f| f.rank).collect::<Vec<_>>(), [Some(1)]);
        // What ended otherwise may have been first all the same.
        gang.apply(&died(2, Exit::Code(1), 9_800));
        assert_eq!(gang.culprits().iter().map(|f| f.rank).collect::<Vec<_>>(), [Some(2), Some(1)]);
    }

    #[test]
    fn a_worker_that_may_be_started_again_fails_nobody() {
        let mut gang = Gang::new(1, true);
        gang.apply(&died(0, 1, 7, 4000));
        assert_eq!(gang.first(), None);
        gang.apply(&Report::Ended(0, LogFile::Node, Exit::Code(0), 9000, 10));
        assert!(gang.ok());
        let mut gang = Gang::new(1, true);
        gang.apply(&died(0, 1, 7, 4000));
        gang.apply(&Report::Ended(0, LogFile::Node, Exit::Code(1), 9000, 10));
        assert_eq!(gang.culprits().iter().map(|f| f.rank).collect::<Vec<_>>(), [Some(1)]);
        assert!(!gang.ok());
    }

    #[test]
    fn an_elastic_gang_lives_while_it_has_hosts_enough() {
        let node = |host: usize, exit| Report::Ended(host, LogFile::Node, exit, 5000, 10);
        let mut gang = Gang::new(3, true).needing(2);
        gang.apply(&died(2, 5, 9, 4000));
        gang.apply(&node(2, Exit::Code(1)));
        assert_eq!(gang.first(), None, "two of three are left");
        gang.apply(&node(0, Exit::Code(0)));
        gang.apply(&node(1, Exit::Code(0)));
        assert!(gang.ok());

        let mut gang = Gang::new(3, true).needing(2);
        gang.apply(&node(2, Exit::Code(1)));
        gang.apply(&node(1, Exit::Signal(9)));
        assert_eq!(gang.culprits().iter().map(|f| f.host).collect::<Vec<_>>(), [2, 1], "one is too few");

        let mut gang = Gang::new(3, true).needing(2);
        gang.apply(&node(0, Exit::Code(1)));
        assert!(gang.first().is_some(), "the rendezvous lives on the first");
        assert!(Gang::new(2, true).needing(0).spare == 0 && Gang::new(2, true).needing(2).spare == 0);
    }

    #[test]
    fn a_directory_that_vanishes_changes_no_end_that_is_known() {
        let mut gang = Gang::new(2, false);
        gang.apply(&Report::Ended(0, LogFile::Node, Exit::Code(0), 100, 1));
        gang.apply(&Report::Nothing(0));
        assert_eq!(gang.first(), None);
        gang.apply(&Report::Nothing(1));
        assert_eq!(gang.first().map(|f| (f.host, f.exit)), Some((1, Exit::Killed)));
        assert!(gang.all_ended());
    }

    #[test]
    fn a_host_that_is_given_up_fails_the_gang_unless_it_had_ended() {
        let mut gang = Gang::new(2, false);
        gang.apply(&Report::Ended(0, LogFile::Node, Exit::Code(0), 100, 1));
        gang.apply(&Report::GivenUp(0, "the key changed".to_owned()));
        assert_eq!((gang.first(), gang.given_up(0)), (None, None));
        gang.apply(&Report::GivenUp(1, "the key changed".to_owned()));
        assert_eq!((gang.first().map(|f| f.host), gang.given_up(1)), (Some(1), Some("the key changed")));
        assert!(gang.all_ended() && !gang.ok());
    }

    #[test]
    fn a_launcher_alone_is_named() {
        let mut gang = Gang::new(1, false);
        gang.apply(&Report::Ended(0, LogFile::Node, Exit::Code(2), 100, 1));
        assert_eq!(gang.culprits().iter().map(|f| f.rank).collect::<Vec<_>>(), [None]);
        assert!(gang.all_ended() && !gang.ok());
    }
}
