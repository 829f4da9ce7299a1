//! Ranks that hold up the others: those that have been steps behind for a while.
//!
//! A single look says little, since the lines of the hosts arrive one after the other.

use std::collections::BTreeMap;

use crate::event::{RunGoal, UnixMillis};
use crate::state::metric_scanner::STEP_INDEX;
use crate::state::{ConnectionStatus, RankState, RunState};

/// A rank this many steps behind the first one is behind; fewer are the same round.
const MIN_STEPS_BEHIND: f64 = 2.0;
/// So long a rank is behind before it is named, in milliseconds: longer than a host's lines are on their way, or than a journal merges them.
const MIN_BEHIND_MS: i64 = 10_000;
/// More time than this between two frames, in milliseconds, was not observed: a live run has a frame each second.
const MAX_GAP_MS: i64 = 3_000;

/// Since when each rank that is behind has been so.
#[derive(Debug, Clone, Default)]
pub(crate) struct SlowRanks {
    since: BTreeMap<u32, UnixMillis>,
    looked_at: UnixMillis,
}

impl SlowRanks {
    /// Looks at the steps of all ranks that run; called before each frame.
    pub(crate) fn update(&mut self, state: &RunState, now: UnixMillis) {
        // What was not observed does not count: a replay jumps, a terminal is suspended.
        if !(0..=MAX_GAP_MS).contains(&(now - self.looked_at)) {
            self.since.clear();
        }
        self.looked_at = now;
        // A run has a thousand ranks: they are read once.
        let steps: Vec<(u32, f64)> = running_ranks(state).filter_map(|rank| Some((rank.rank, last_step(rank)?))).collect();
        let furthest = steps.iter().map(|(_, step)| *step).fold(f64::MIN, f64::max);
        let is_behind = |step: f64| furthest - step >= MIN_STEPS_BEHIND;
        // Where most are behind the first one only prints more often.
        let is_usual = steps.iter().filter(|(_, step)| is_behind(*step)).count() * 2 > steps.len();
        let behind = steps.iter().filter(|(_, step)| !is_usual && is_behind(*step)).map(|(rank, _)| *rank);
        self.since = behind.map(|rank| (rank, self.since.get(&rank).copied().unwrap_or(now))).collect();
    }

    /// Whether this rank has been behind long enough to be named.
    pub(crate) fn is_slow(&self, rank: u32, now: UnixMillis) -> bool {
        self.since.get(&rank).is_some_and(|since| now - since >= MIN_BEHIND_MS)
    }

    /// The one that is furthest behind, its step, and how many steps the first rank is ahead.
    pub(crate) fn slowest<'a>(&self, state: &'a RunState, now: UnixMillis) -> Option<(&'a RankState, f64, f64)> {
        if self.since.is_empty() {
            return None;
        }
        let furthest = running_ranks(state).filter_map(last_step).fold(f64::MIN, f64::max);
        let slow = running_ranks(state).filter(|rank| self.is_slow(rank.rank, now));
        let (rank, step) = slow.filter_map(|rank| Some((rank, last_step(rank)?))).min_by(|a, b| a.1.total_cmp(&b.1))?;
        Some((rank, step, furthest - step))
    }
}

fn last_step(rank: &RankState) -> Option<f64> {
    rank.metrics.get(STEP_INDEX).map(|series| series.last).filter(|step| step.is_finite())
}

/// The ranks that train on hosts whose connection is up: what a lost host's rank did last says nothing about its speed. None while the run ends.
pub(crate) fn running_ranks(state: &RunState) -> impl Iterator<Item = &RankState> + Clone {
    let trains = state.goal.0 == RunGoal::Up && state.outcome.is_none();
    let is_connected = |host: u32| state.hosts.get(host as usize).is_some_and(|host| host.connection_status == ConnectionStatus::Connected);
    state.ranks.values().filter(move |rank| trains && rank.is_running() && is_connected(rank.host))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::fixtures;

    #[test]
    fn only_a_lasting_lag_counts() {
        let mut scene = fixtures::training_hosts(2);
        let mut slow = SlowRanks::default();
        let mut look = |scene: &fixtures::DashboardFixture, now: UnixMillis| {
            slow.update(&scene.app.model.state, now);
            slow.slowest(&scene.app.model.state, now).map(|(rank, step, behind)| (rank.rank, step, behind))
        };
        let print_step = |scene: &mut fixtures::DashboardFixture, ranks: &mut dyn Iterator<Item = u32>, step: u32| {
            ranks.for_each(|rank| scene.emit_rank_log(rank, &format!("step {step}/400 loss 2.1\n")));
        };
        print_step(&mut scene, &mut (0..8), 90);
        assert_eq!(look(&scene, 0), None, "the lines of the other host are on their way");
        print_step(&mut scene, &mut (8..16).filter(|rank| *rank != 11), 90);
        let found: Vec<_> = (1..=5).map(|second| look(&scene, second * 2_000)).collect();
        assert_eq!(found, [None, None, None, None, Some((11, 80.0, 10.0))]);
        assert_eq!(look(&scene, 60_000), None, "the time between two distant frames does not count");
        (31..=35).for_each(|second| assert_eq!(look(&scene, second * 2_000).is_some(), second == 35));
        print_step(&mut scene, &mut (11..12), 89);
        assert_eq!(look(&scene, 72_000), None, "one step behind is the same round");
        print_step(&mut scene, &mut (0..1), 100);
        (37..=45).for_each(|second| assert_eq!(look(&scene, second * 2_000), None, "rank 0 prints more often"));
    }
}
