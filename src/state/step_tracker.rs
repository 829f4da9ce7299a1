//! The steps of the current plan with their status; a transition that `StepStatus` does not allow is an error.

use std::collections::HashMap;

use crate::event::{LayerCounts, Phase, StepInfo, UnixMillis};
use crate::model::step_status::StepStatus;

/// A status change that was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StepTransitionError {
    #[error("the plan has no step {0}")]
    UnknownStep(u32),
    #[error("step {step} cannot go from {from:?} to {to:?}")]
    NotAllowed { step: u32, from: StepStatus, to: StepStatus },
    #[error("step {0} cannot have these layers: {1:?}")]
    ImpossibleLayers(u32, LayerCounts),
}

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
}

impl StepTransfer {
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

    /// # Errors
    /// When there is no such step, or its status cannot become `to`; nothing is changed then.
    pub fn set_status(&mut self, id: u32, to: StepStatus, at: UnixMillis) -> Result<&mut StepState, StepTransitionError> {
        let step = self.index.get(&id).and_then(|&index| self.steps.get_mut(index)).ok_or(StepTransitionError::UnknownStep(id))?;
        if !step.status.can_become(to) {
            return Err(StepTransitionError::NotAllowed { step: id, from: step.status, to });
        }
        step.status = to;
        if to == StepStatus::Running {
            step.started_at = Some(at);
        } else {
            step.ended_at = Some(at);
        }
        Ok(step)
    }

    /// # Errors
    /// When there is no such step, or it is not running.
    pub fn record_retry(&mut self, id: u32, reason: &str, at: UnixMillis) -> Result<(), StepTransitionError> {
        let step = self.running_step(id)?;
        step.retries += 1;
        step.retried_at = Some(at);
        step.layers = None;
        reason.clone_into(&mut step.note);
        Ok(())
    }

    /// # Errors
    /// When there is no such step, it is not running, or no image can have these layers.
    pub fn record_pull_progress(&mut self, id: u32, counts: LayerCounts) -> Result<(), StepTransitionError> {
        let step = self.running_step(id)?;
        if !counts.is_valid() {
            return Err(StepTransitionError::ImpossibleLayers(id, counts));
        }
        step.layers = Some(counts);
        Ok(())
    }

    fn running_step(&mut self, id: u32) -> Result<&mut StepState, StepTransitionError> {
        let step = self.index.get(&id).and_then(|&index| self.steps.get_mut(index)).ok_or(StepTransitionError::UnknownStep(id))?;
        match step.status {
            StepStatus::Running => Ok(step),
            from => Err(StepTransitionError::NotAllowed { step: id, from, to: StepStatus::Running }),
        }
    }

    /// Bytes that a running step has sent and has to send.
    ///
    /// # Errors
    /// When there is no such step, or it is not running.
    pub fn record_progress(&mut self, id: u32, bytes: (u64, u64), at: UnixMillis) -> Result<(), StepTransitionError> {
        let step = self.running_step(id)?;
        step.transfer = Some(StepTransfer::new(step.transfer, bytes, at));
        Ok(())
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
        assert_eq!(steps.set_status(1, Running, 0), Err(StepTransitionError::UnknownStep(1)));
        assert_eq!(steps.set_status(7, Done, 0), Err(StepTransitionError::NotAllowed { step: 7, from: Waiting, to: Done }));
        assert!(steps.record_retry(7, "again", 3).is_err() && steps.record_progress(7, (1, 2), 3).is_err());
        let before = steps.clone();
        assert!(steps.set_status(7, Waiting, 0).is_err());
        assert_eq!(steps, before);
        let counts = |layers, downloaded, complete| LayerCounts { layers, downloaded, complete };
        assert!(steps.record_pull_progress(7, counts(3, 2, 1)).is_err(), "it does not run yet");
        assert!(steps.set_status(7, Running, 5).is_ok());
        assert!(steps.record_pull_progress(7, counts(3, 2, 1)).is_ok());
        for impossible in [counts(3, 4, 1), counts(3, 1, 2)] {
            assert_eq!(steps.record_pull_progress(7, impossible), Err(StepTransitionError::ImpossibleLayers(7, impossible)));
        }
        assert_eq!(steps.step(7).and_then(|step| step.layers), Some(counts(3, 2, 1)));
        assert!(steps.record_retry(7, "busy", 3).is_ok());
        assert_eq!(steps.step(7).and_then(|step| step.layers), None, "the next try counts again");
        for (done, at, rate) in [(1000, 1000, None), (5000, 3000, Some(2000)), (5000, 3000, None), (5000, 4000, Some(0))] {
            assert!(steps.record_progress(7, (done, 9000), at).is_ok());
            assert_eq!(
                steps.step(7).and_then(|step| step.transfer).map(|sent| (sent.done, sent.total, sent.rate)),
                Some((done, 9000, rate))
            );
        }
        assert!(steps.set_status(7, Done, 9).is_ok());
        let step = steps.step(7).expect("step 7");
        assert_eq!((step.started_at, step.ended_at, step.retries), (Some(5), Some(9), 1));
    }
}
