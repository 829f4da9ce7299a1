//! Which GPUs work much less than most: one at 31 % among others at 99 %.
//!
//! Each GPU counts by the mean of its last samples, so that a short dip makes none of them one.

use crate::event::{RunGoal, UnixMillis};
use crate::state::{ConnectionStatus, HostState, RunState};

use super::formatting;

/// So many points of utilization below the median make a GPU low.
const MIN_GAP: f32 = 25.0;
/// The samples of the mean.
const SAMPLES: usize = 3;
/// So many samples in a row below the limit make it a warning.
const WARNING_SAMPLES: usize = 5;
/// Values that are older than this are ignored, in milliseconds.
const MAX_AGE_MS: i64 = 60_000;

/// The low GPUs of a host.
#[derive(Debug, Clone, PartialEq)]
pub struct LowGpus {
    /// Indexes on the host.
    pub gpus: Vec<u32>,
    /// Their mean utilization, and the median of all GPUs of the run.
    pub mean: f32,
    pub median: f32,
    /// They have been low for a while in a run that trains.
    pub is_warning: bool,
}

impl LowGpus {
    /// `8 GPUs at 31%, median 99%`.
    pub(crate) fn text(&self) -> String {
        format!("{} at {:.0}%, median {:.0}%", self.gpus_text(), self.mean, self.median)
    }

    /// The same where there is more room.
    pub(super) fn long_text(&self) -> String {
        format!("{} at {:.0}% utilization; the median of the run is {:.0}%", self.gpus_text(), self.mean, self.median)
    }

    fn gpus_text(&self) -> String {
        match self.gpus[..] {
            [one] => format!("GPU {one}"),
            _ => crate::text::plural::count_noun(self.gpus.len(), "GPU"),
        }
    }
}

/// The last utilizations of a GPU, the newest first. What came after the stop began says nothing.
fn samples<'a>(state: &RunState, host: &'a HostState, gpu: u32, most: usize) -> impl Iterator<Item = f32> + 'a {
    let until = state.stopping_since.unwrap_or(UnixMillis::MAX);
    host.gpu_trace(gpu).rev().filter(move |point| point.at <= until).filter_map(|point| point.utilization).take(most)
}

fn recent_mean(state: &RunState, host: &HostState, gpu: u32) -> Option<f32> {
    formatting::mean(samples(state, host, gpu, SAMPLES))
}

/// The low GPUs of every host, by index; `None`: it has none.
pub(super) fn low_gpus(state: &RunState) -> Vec<Option<LowGpus>> {
    let is_known =
        |host: &HostState| host.connection_status == ConnectionStatus::Connected && state.last_event_at - host.gpus_at < MAX_AGE_MS;
    let means: Vec<Vec<(u32, f32)>> = state
        .hosts
        .iter()
        .map(|host| match is_known(host) && host.gpus_error.is_none() {
            true => host.gpus.iter().filter_map(|gpu| Some((gpu.index, recent_mean(state, host, gpu.index)?))).collect(),
            false => Vec::new(),
        })
        .collect();
    let mut all: Vec<f32> = means.iter().flatten().map(|(_, mean)| *mean).collect();
    all.sort_by(f32::total_cmp);
    let Some(median) = all.get(all.len() / 2).copied() else { return vec![None; state.hosts.len()] };
    let trains = state.ready_at.is_some() && state.goal.0 == RunGoal::Up && state.outcome.is_none();
    let limit = median - MIN_GAP;
    let is_long_low = |host: &HostState, gpu: u32| {
        samples(state, host, gpu, WARNING_SAMPLES).count() == WARNING_SAMPLES
            && samples(state, host, gpu, WARNING_SAMPLES).all(|value| value <= limit)
    };
    let of_host = |(host, means): (&HostState, &Vec<(u32, f32)>)| {
        let low: Vec<(u32, f32)> = means.iter().copied().filter(|(_, mean)| *mean <= limit).collect();
        Some(LowGpus {
            mean: formatting::mean(low.iter().map(|(_, mean)| *mean))?,
            median,
            is_warning: trains && low.iter().any(|(gpu, _)| is_long_low(host, *gpu)),
            gpus: low.into_iter().map(|(gpu, _)| gpu).collect(),
        })
    };
    state.hosts.iter().zip(&means).map(of_host).collect()
}
