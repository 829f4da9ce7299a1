//! Errors and ends of workflows.

use crate::event::Outcome;
use crate::inventory::InventoryProblem;

/// Ends a workflow early, with the text for the user.
#[derive(Debug)]
pub(crate) enum WorkflowError {
    /// The request cannot be fulfilled.
    Usage(String),
    /// Every problem of the inventory.
    Inventory(Vec<InventoryProblem>),
}

impl From<Vec<InventoryProblem>> for WorkflowError {
    fn from(problems: Vec<InventoryProblem>) -> WorkflowError {
        WorkflowError::Inventory(problems)
    }
}

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

/// The outcome that decides the exit code.
pub(crate) fn worse_outcome(a: Outcome, b: Outcome) -> Outcome {
    if severity(&a) >= severity(&b) { a } else { b }
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
