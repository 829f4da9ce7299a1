//! The status of every step, and the table of legal transitions.
//!
//! Uses `event` for the words. Knows no clock: what it is told comes with its time.

use std::collections::HashMap;

use crate::event::{Phase, StepInfo, UnixMillis};

/// Where a step stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StepStatus {
    Waiting,
    /// Under way; also while it is tried again.
    Running,
    /// It changed something, or proved it.
    Done,
    /// There was nothing to do.
    Satisfied,
    /// It failed; it may have changed something.
    Failed,
}

impl StepStatus {
    /// The table: a step ends once, and nothing leaves an end.
    pub fn can_become(self, next: StepStatus) -> bool {
        use StepStatus::{Done, Failed, Running, Satisfied, Waiting};
        match (self, next) {
            // A step may be found satisfied, or lost with its host, before it was begun.
            (Waiting, Running | Satisfied | Failed) | (Running, Done | Satisfied | Failed) => true,
            (Waiting | Running | Done | Satisfied | Failed, _) => false,
        }
    }

    /// Whether nothing more comes.
    pub fn has_ended(self) -> bool {
        match self {
            StepStatus::Waiting | StepStatus::Running => false,
            StepStatus::Done | StepStatus::Satisfied | StepStatus::Failed => true,
        }
    }
}

/// A transition that the table does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StepTransitionError {
    #[error("the plan has no step {0}")]
    UnknownStep(u32),
    /// The step cannot go there.
    #[error("step {step} cannot go from {from:?} to {to:?}")]
    NotAllowed {
        step: u32,
        from: StepStatus,
        /// Where it was sent.
        to: StepStatus,
    },
}

/// One step with what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepState {
    /// What the plan says.
    pub info: StepInfo,
    pub status: StepStatus,
    /// What it found or did, or why it failed.
    pub note: String,
    /// What to do next, after a failure.
    pub hint: String,
    /// How often it was tried again.
    pub retries: u32,
    pub started_at: Option<UnixMillis>,
    pub ended_at: Option<UnixMillis>,
}

/// The steps of the plan in force.
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
            retries: 0,
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

    /// The steps of a phase.
    pub fn steps_in_phase(&self, phase: Phase) -> impl Iterator<Item = &StepState> {
        self.steps.iter().filter(move |step| step.info.phase == phase)
    }

    /// Moves a step.
    ///
    /// # Errors
    /// When there is no such step, or the table does not allow it; nothing is changed then.
    pub fn set_status(&mut self, id: u32, to: StepStatus, at: UnixMillis) -> Result<&mut StepState, StepTransitionError> {
        let step = self.index.get(&id).and_then(|&place| self.steps.get_mut(place)).ok_or(StepTransitionError::UnknownStep(id))?;
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

    /// Notes that a running step is tried again.
    ///
    /// # Errors
    /// When there is no such step, or it is not running.
    pub fn record_retry(&mut self, id: u32, reason: &str) -> Result<(), StepTransitionError> {
        let step = self.index.get(&id).and_then(|&place| self.steps.get_mut(place)).ok_or(StepTransitionError::UnknownStep(id))?;
        if step.status != StepStatus::Running {
            return Err(StepTransitionError::NotAllowed { step: id, from: step.status, to: StepStatus::Running });
        }
        step.retries += 1;
        reason.clone_into(&mut step.note);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use StepStatus::{Done, Failed, Running, Satisfied, Waiting};

    #[test]
    fn transition_table_is_exact() {
        let all = [Waiting, Running, Done, Satisfied, Failed];
        let legal: Vec<(StepStatus, StepStatus)> =
            all.into_iter().flat_map(|from| all.map(|to| (from, to))).filter(|(from, to)| from.can_become(*to)).collect();
        let expected =
            [(Waiting, Running), (Waiting, Satisfied), (Waiting, Failed), (Running, Done), (Running, Satisfied), (Running, Failed)];
        assert_eq!(legal, expected);
        assert!(all.into_iter().filter(|from| from.has_ended()).all(|from| all.into_iter().all(|to| !from.can_become(to))));
    }

    #[test]
    fn illegal_transition_changes_nothing() {
        let info = StepInfo { id: 7, host: 0, phase: Phase::Pull, title: "pull".to_owned() };
        let mut ledger = StepTracker::new(&[info]);
        assert_eq!(ledger.set_status(1, Running, 0), Err(StepTransitionError::UnknownStep(1)));
        assert_eq!(ledger.set_status(7, Done, 0), Err(StepTransitionError::NotAllowed { step: 7, from: Waiting, to: Done }));
        assert!(ledger.record_retry(7, "again").is_err());
        let before = ledger.clone();
        assert!(ledger.set_status(7, Waiting, 0).is_err());
        assert_eq!(ledger, before);
        assert!(ledger.set_status(7, Running, 5).is_ok());
        assert!(ledger.record_retry(7, "busy").is_ok());
        assert!(ledger.set_status(7, Done, 9).is_ok());
        let step = ledger.step(7).expect("it is there");
        assert_eq!((step.started_at, step.ended_at, step.retries), (Some(5), Some(9), 1));
    }
}
