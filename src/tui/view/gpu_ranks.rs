//! Which rank uses which GPU.

use crate::state::RankState;
use crate::tui::model::Model;

/// The rank that uses each GPU: the one whose local rank is the GPU's index. If a run uses only some of a host's GPUs the indexes do not
/// show which, so no rank is shown.
pub(super) struct RanksByGpu<'a> {
    /// The ranks of every host, by local rank.
    ranks: Vec<Vec<(u32, &'a RankState)>>,
}

impl<'a> RanksByGpu<'a> {
    pub(super) fn new(model: &'a Model) -> RanksByGpu<'a> {
        let is_paired = |rank: &&RankState| {
            let gpus = model.state.hosts.get(rank.host as usize).map_or(0, |host| host.gpus.len());
            model.host_statuses.get(rank.host as usize).is_some_and(|standing| standing.ranks.total == gpus)
        };
        let mut ranks = vec![Vec::new(); model.state.hosts.len()];
        for rank in model.state.ranks.values().filter(is_paired) {
            if let (Some(own), Some(local)) = (ranks.get_mut(rank.host as usize), rank.local_rank) {
                own.push((local, rank));
            }
        }
        RanksByGpu { ranks }
    }

    /// The rank on the GPU with this index of this host.
    pub(super) fn of_gpu(&self, host: u32, gpu: u32) -> Option<&'a RankState> {
        self.ranks.get(host as usize)?.iter().find(|(local, _)| *local == gpu).map(|(_, rank)| *rank)
    }
}
