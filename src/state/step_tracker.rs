//! The steps of the current plan with their status; a transition that `StepStatus` does not allow changes nothing.

use std::collections::HashMap;

use crate::event::{LayerCounts, Phase, StepInfo, UnixMillis};
use crate::model::step_status::StepStatus;

/// How far the files are that a step sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepTransfer {
    pub done: u64,
    pub total: u64,
    /// Bytes a second; `None` until there are two samples.
    pub rate: Option<u64>,
    at: UnixMillis,
}

impl StepTransfer {
    /// `previous`: the sample before this one.
    fn new(previous: Option<StepTransfer>, (done, total): (u64, u64), at: UnixMillis) -> StepTransfer {
        let rate = previous.filter(|previous| at > previous.at).map(|previous| {
            let now = done.saturating_sub(previous.done).saturating_mul(1000) / (at - previous.at).unsigned_abs();
            // The last samples weigh most.
            previous.rate.map_or(now, |before| before / 4 * 3 + now / 4)
        });
        StepTransfer { done, total, rate, at }
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: StepTransfer) -> StepTransfer {
        StepTransfer {
            done: self.done.saturating_add(other.done),
            total: self.total.saturating_add(other.total),
            rate: self.rate.into_iter().chain(other.rate).reduce(u64::saturating_add),
            at: self.at.max(other.at),
        }
    }
}

/// One step and its history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepState {
    pub info: StepInfo,
    pub status: StepStatus,
    /// What it found or did, the reason of its failure or of its last retry.
    pub note: String,
    /// What to do next, after a failure.
    pub hint: String,
    /// Whether it failed because its host could not be reached.
    pub unreachable: bool,
    /// How many times it was retried, and when last.
    pub retries: u32,
    pub retried_at: Option<UnixMillis>,
    /// How far a pull is; `None` until it is known.
    pub layers: Option<LayerCounts>,
    pub transfer: Option<StepTransfer>,
    pub started_at: Option<UnixMillis>,
    pub ended_at: Option<UnixMillis>,
}

/// The steps of the current plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepTracker {
    steps: Vec<StepState>,
    index: HashMap<u32, usize>,
}

impl StepTracker {
    pub fn new(steps: &[StepInfo]) -> Self {
        let index = steps.iter().enumerate().map(|(at, step)| (step.id, at)).collect();
        let steps = steps.iter().map(|info| StepState {
            info: info.clone(),
            status: StepStatus::Waiting,
            note: String::new(),
            hint: String::new(),
            unreachable: false,
            retries: 0,
            retried_at: None,
            layers: None,
            transfer: None,
            started_at: None,
            ended_at: None,
        });
        StepTracker { steps: steps.collect(), index }
    }

    /// Every step, in the plan's order.
    pub fn steps(&self) -> &[StepState] {
        &self.steps
    }

    pub fn step(&self, id: u32) -> Option<&StepState> {
        self.steps.get(*self.index.get(&id)?)
    }

    pub fn steps_in_phase(&self, phase: Phase) -> impl Iterator<Item = &StepState> + Clone {
        self.steps.iter().filter(move |step| step.info.phase == phase)
    }

    /// Returns the step; `None` where there is no such step, or its status cannot become `to`: nothing is changed then.
    pub fn set_status(&mut self, id: u32, to: StepStatus, at: UnixMillis) -> Option<&mut StepState> {
        let step = self.step_mut(id).filter(|step| step.status.can_become(to))?;
        step.status = to;
        if to == StepStatus::Running {
            step.started_at = Some(at);
        } else {
            step.ended_at = Some(at);
        }
        Some(step)
    }

    pub fn record_retry(&mut self, id: u32, reason: &str, at: UnixMillis) {
        let Some(step) = self.running_step(id) else { return };
        step.retries += 1;
        step.retried_at = Some(at);
        step.layers = None;
        reason.clone_into(&mut step.note);
    }

    /// Counts that no image can have are left out.
    pub fn record_pull_progress(&mut self, id: u32, counts: LayerCounts) {
        if let Some(step) = self.running_step(id).filter(|_| counts.is_valid()) {
            step.layers = Some(counts);
        }
    }

    /// Bytes that a running step has sent and has to send.
    pub fn record_progress(&mut self, id: u32, bytes: (u64, u64), at: UnixMillis) {
        if let Some(step) = self.running_step(id) {
            step.transfer = Some(StepTransfer::new(step.transfer, bytes, at));
        }
    }

    fn step_mut(&mut self, id: u32) -> Option<&mut StepState> {
        self.steps.get_mut(*self.index.get(&id)?)
    }

    fn running_step(&mut self, id: u32) -> Option<&mut StepState> {
        self.step_mut(id).filter(|step| step.status == StepStatus::Running)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use StepStatus::{Done, Running, Waiting};

    #[test]
    fn illegal_transition_changes_nothing() {
        let info = StepInfo { id: 7, host: 0, phase: Phase::Pull, title: "pull".to_owned() };
        let mut steps = StepTracker::new(&[info]);
        let before = steps.clone();
        assert!(steps.set_status(1, Running, 0).is_none(), "there is no such step");
        assert!(steps.set_status(7, Done, 0).is_none() && steps.set_status(7, Waiting, 0).is_none());
        let counts = |layers, downloaded, complete| LayerCounts { layers, downloaded, complete };
        steps.record_retry(7, "again", 3);
        steps.record_progress(7, (1, 2), 3);
        steps.record_pull_progress(7, counts(3, 2, 1));
        assert_eq!(steps, before, "it does not run yet");
        assert!(steps.set_status(7, Running, 5).is_some());
        for given in [counts(3, 2, 1), counts(3, 4, 1), counts(3, 1, 2)] {
            steps.record_pull_progress(7, given);
        }
        assert_eq!(steps.step(7).and_then(|step| step.layers), Some(counts(3, 2, 1)), "no image has the others");
        steps.record_retry(7, "busy", 3);
        assert_eq!(steps.step(7).and_then(|step| step.layers), None, "the next try counts again");
        for (done, at, rate) in [(1000, 1000, None), (5000, 3000, Some(2000)), (5000, 3000, None), (5000, 4000, Some(0))] {
            steps.record_progress(7, (done, 9000), at);
            assert_eq!(
                steps.step(7).and_then(|step| step.transfer).map(|sent| (sent.done, sent.total, sent.rate)),
                Some((done, 9000, rate))
            );
        }
        assert!(steps.set_status(7, Done, 9).is_some());
        let step = steps.step(7).expect("step 7");
        assert_eq!((step.started_at, step.ended_at, step.retries), (Some(5), Some(9), 1));
    }
}
