//! Whether a GPU of the run is well.

use crate::event::{GpuSample, RunGoal};
use crate::state::{HostState, RankState};
use crate::tui::model::Model;
use crate::tui::theme::DisplayStatus;

/// So many samples in a row without work make a GPU idle.
const IDLE_SAMPLES: usize = 5;

/// What a GPU's colour says: calm while it works, a warning where its memory is faulty, or where it is slowed down or idle in a run.
pub(super) fn gpu_status(
    model: &Model,
    (at, host): (u32, &HostState),
    gpu: &GpuSample,
    rank: Option<&RankState>,
    stale: bool,
) -> DisplayStatus {
    if stale {
        return DisplayStatus::Pending;
    }
    let is_low = model.host_statuses.get(at as usize).is_some_and(|standing| standing.has_low_gpu(gpu.index));
    if gpu.memory_errors().is_some() || gpu.slowdown_reason().is_some() || is_low || is_idle_at_work(model, host, gpu, rank) {
        return DisplayStatus::Warn;
    }
    DisplayStatus::Ok
}

/// Whether it does nothing while the run trains on it. Most GPUs work, and there may be a thousand: what costs least is asked first.
pub(super) fn is_idle_at_work(model: &Model, host: &HostState, gpu: &GpuSample, rank: Option<&RankState>) -> bool {
    let is_idle = |utilization: Option<f32>| utilization.is_some_and(|percent| percent < 1.0);
    let has_been_idle = || {
        let mut newest = host.gpu_trace(gpu.index).rev();
        (0..IDLE_SAMPLES).all(|_| newest.next().is_some_and(|point| is_idle(point.utilization)))
    };
    let is_used = || match rank {
        Some(rank) => rank.is_running(),
        // One process may use several GPUs of a host, or the run only some of them.
        None => host.gpu_processes.iter().any(|process| process.belongs_to_run && process.gpu == gpu.uuid),
    };
    let is_training = model.state.outcome.is_none() && model.state.goal.0 == RunGoal::Up && model.state.ready_at.is_some();
    is_training && is_idle(gpu.utilization) && has_been_idle() && is_used()
}
