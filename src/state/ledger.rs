//! The status of every step, and the table of legal transitions.
//!
//! Uses `event` for the words. Knows no clock: what it is told comes with its time.

use std::collections::HashMap;

use crate::event::{Millis, Phase, StepInfo};

/// Where a step stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Status {
    /// Not begun.
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

impl Status {
    /// The table: a step ends once, and nothing leaves an end.
    pub fn may_become(self, next: Status) -> bool {
        use Status::{Done, Failed, Running, Satisfied, Waiting};
        match (self, next) {
            // A step may be found satisfied, or lost with its host, before it was begun.
            (Waiting, Running | Satisfied | Failed) | (Running, Done | Satisfied | Failed) => true,
            (Waiting | Running | Done | Satisfied | Failed, _) => false,
        }
    }

    /// Whether nothing more comes.
    pub fn ended(self) -> bool {
        match self {
            Status::Waiting | Status::Running => false,
            Status::Done | Status::Satisfied | Status::Failed => true,
        }
    }
}

/// A transition that the table does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Illegal {
    /// No such step.
    #[error("the plan has no step {0}")]
    Unknown(u32),
    /// The step cannot go there.
    #[error("step {step} cannot go from {from:?} to {to:?}")]
    Transition {
        /// Its number.
        step: u32,
        /// Where it stands.
        from: Status,
        /// Where it was sent.
        to: Status,
    },
}

/// One step with what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What the plan says.
    pub info: StepInfo,
    /// Where it stands.
    pub status: Status,
    /// What it found or did, or why it failed.
    pub note: String,
    /// What to do next, after a failure.
    pub hint: String,
    /// How often it was tried again.
    pub retries: u32,
    /// When it began.
    pub began: Option<Millis>,
    /// When it ended.
    pub ended: Option<Millis>,
}

/// The steps of the plan in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    steps: Vec<Step>,
    index: HashMap<u32, usize>,
}

impl Ledger {
    /// All waiting.
    pub fn new(steps: &[StepInfo]) -> Self {
        let index = steps.iter().enumerate().map(|(at, step)| (step.id, at)).collect();
        let steps = steps.iter().map(|info| Step {
            info: info.clone(),
            status: Status::Waiting,
            note: String::new(),
            hint: String::new(),
            retries: 0,
            began: None,
            ended: None,
        });
        Ledger { steps: steps.collect(), index }
    }

    /// Every step, in the plan's order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// One step.
    pub fn step(&self, id: u32) -> Option<&Step> {
        self.steps.get(*self.index.get(&id)?)
    }

    /// The steps of a phase.
    pub fn phase(&self, phase: Phase) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(move |step| step.info.phase == phase)
    }

    /// Moves a step.
    ///
    /// # Errors
    /// When there is no such step, or the table does not allow it; nothing is changed then.
    pub fn set(&mut self, id: u32, to: Status, at: Millis) -> Result<&mut Step, Illegal> {
        let step = self.index.get(&id).and_then(|&place| self.steps.get_mut(place)).ok_or(Illegal::Unknown(id))?;
        if !step.status.may_become(to) {
            return Err(Illegal::Transition { step: id, from: step.status, to });
        }
        step.status = to;
        if to == Status::Running {
            step.began = Some(at);
        } else {
            step.ended = Some(at);
        }
        Ok(step)
    }

    /// Notes that a running step is tried again.
    ///
    /// # Errors
    /// When there is no such step, or it is not running.
    pub fn retry(&mut self, id: u32, why: &str) -> Result<(), Illegal> {
        let step = self.index.get(&id).and_then(|&place| self.steps.get_mut(place)).ok_or(Illegal::Unknown(id))?;
        if step.status != Status::Running {
            return Err(Illegal::Transition { step: id, from: step.status, to: Status::Running });
        }
        step.retries += 1;
        why.clone_into(&mut step.note);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Status::{Done, Failed, Running, Satisfied, Waiting};

    #[test]
    fn the_table() {
        let all = [Waiting, Running, Done, Satisfied, Failed];
        let legal: Vec<(Status, Status)> =
            all.into_iter().flat_map(|from| all.map(|to| (from, to))).filter(|(from, to)| from.may_become(*to)).collect();
        let expected =
            [(Waiting, Running), (Waiting, Satisfied), (Waiting, Failed), (Running, Done), (Running, Satisfied), (Running, Failed)];
        assert_eq!(legal, expected);
        assert!(all.into_iter().filter(|from| from.ended()).all(|from| all.into_iter().all(|to| !from.may_become(to))));
    }

    #[test]
    fn an_illegal_step_changes_nothing() {
        let info = StepInfo { id: 7, host: 0, phase: Phase::Pull, title: "pull".to_owned() };
        let mut ledger = Ledger::new(&[info]);
        assert_eq!(ledger.set(1, Running, 0), Err(Illegal::Unknown(1)));
        assert_eq!(ledger.set(7, Done, 0), Err(Illegal::Transition { step: 7, from: Waiting, to: Done }));
        assert!(ledger.retry(7, "again").is_err());
        let before = ledger.clone();
        assert!(ledger.set(7, Waiting, 0).is_err());
        assert_eq!(ledger, before);
        assert!(ledger.set(7, Running, 5).is_ok());
        assert!(ledger.retry(7, "busy").is_ok());
        assert!(ledger.set(7, Done, 9).is_ok());
        let step = ledger.step(7).expect("it is there");
        assert_eq!((step.began, step.ended, step.retries), (Some(5), Some(9), 1));
    }
}
