//! The gang as the follower sees it: who runs, who ended, who failed first. Pure, though it lives here.

use std::collections::BTreeMap;

use crate::engine::watch::Report;
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
    /// How many failures were known when the gang was told to end, and when that was.
    told: Option<(usize, Millis)>,
}

impl Gang {
    /// A gang of which nothing is known.
    pub fn new(hosts: usize) -> Gang {
        Gang { nodes: vec![None; hosts], ..Gang::default() }
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
                if !exit.ok() {
                    self.failures.push(Failure { host, rank, exit, when, uncertainty });
                }
            }
            Report::Nothing(host) => {
                if let Some(node) = self.nodes.get_mut(host) {
                    *node = Some(Exit::Killed);
                }
                self.failures.push(Failure { host, rank: None, exit: Exit::Killed, when: 0, uncertainty: 0 });
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
        let mut gang = Gang::new(2);
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
        let mut gang = Gang::new(2);
        gang.apply(&died(1, 9, 1, 4015));
        gang.apply(&died(0, 3, 7, 4000));
        assert_eq!(gang.culprits().iter().map(|f| f.rank).collect::<Vec<_>>(), [Some(3), Some(9)]);
    }

    #[test]
    fn who_dies_of_the_order_to_end_has_not_failed_first() {
        let mut gang = Gang::new(3);
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
    fn a_launcher_alone_is_named() {
        let mut gang = Gang::new(1);
        gang.apply(&Report::Ended(0, LogFile::Node, Exit::Code(2), 100, 1));
        assert_eq!(gang.culprits().iter().map(|f| f.rank).collect::<Vec<_>>(), [None]);
        assert!(gang.all_ended() && !gang.ok());
    }
}
