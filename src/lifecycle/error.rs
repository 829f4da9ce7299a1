//! Why a workflow could not begin or go on, and how one ends.

use crate::event::Outcome;
use crate::inventory::InventoryProblem;

/// Ends a workflow early, with the text for the person.
#[derive(Debug)]
pub(crate) enum WorkflowError {
    /// What was asked for cannot be done.
    Usage(String),
    /// Every problem of the inventory.
    Inventory(Vec<InventoryProblem>),
    /// A bug of ours, or a laptop that cannot do its part.
    Internal(anyhow::Error),
}

impl From<anyhow::Error> for WorkflowError {
    fn from(error: anyhow::Error) -> WorkflowError {
        WorkflowError::Internal(error)
    }
}

impl From<Vec<InventoryProblem>> for WorkflowError {
    fn from(problems: Vec<InventoryProblem>) -> WorkflowError {
        WorkflowError::Inventory(problems)
    }
}

/// How a workflow ended, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkflowEnd {
    pub(crate) outcome: Outcome,
    pub(crate) reason: String,
}

impl WorkflowEnd {
    pub(crate) fn new(outcome: Outcome, reason: impl Into<String>) -> WorkflowEnd {
        WorkflowEnd { outcome, reason: reason.into() }
    }
}

/// Of two outcomes, the one that decides the exit code.
pub(crate) fn worse_outcome(one: Outcome, other: Outcome) -> Outcome {
    if severity(&one) >= severity(&other) { one } else { other }
}

fn severity(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Ok => 0,
        Outcome::Detached => 1,
        Outcome::Stopped => 2,
        Outcome::Failed => 3,
        Outcome::Refused => 4,
        Outcome::Unreachable => 5,
        Outcome::Signal(_) => 6,
        Outcome::Leftovers => 7,
        Outcome::Locked => 8,
    }
}
