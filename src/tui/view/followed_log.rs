//! Which log is shown beside events that have none of their own.

use crate::state::RankState;
use crate::tui::model::Model;

/// The rank whose log says most: the one that failed first, else the last that an event names, else the first that was started.
pub(super) fn followed_rank(model: &Model) -> Option<&RankState> {
    let known = |rank: u32| model.state.ranks.get(&rank);
    let culprit = || model.state.culprit_ranks().iter().find_map(|rank| known(*rank));
    let named = || model.timeline.items().iter().rev().find_map(|item| known(item.log?.1.rank()?));
    let first = || model.state.ranks.values().find(|rank| rank.started_at.is_some());
    culprit().or_else(named).or_else(first)
}
