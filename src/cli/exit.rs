//! Errors of commands, and the exit code of each outcome.

use crate::event::Outcome;
use crate::inventory::InventoryProblem;
use crate::lifecycle::error::WorkflowError;

/// What ssh exits with when it failed itself.
const SSH_FAILURE: u8 = 255;

/// Ends a command early, with the text for the user.
#[derive(Debug)]
pub(crate) enum CliError {
    /// Exit code 2.
    Usage(String),
    /// Every problem of the inventory. Exit code 2.
    Inventory(Vec<InventoryProblem>),
    /// The remote command's exit code becomes the program's.
    RemoteExit(u8),
    /// A bug, or a failure of the laptop. Exit code 70.
    Bug(anyhow::Error),
}

impl From<anyhow::Error> for CliError {
    fn from(error: anyhow::Error) -> CliError {
        CliError::Bug(error)
    }
}

impl From<WorkflowError> for CliError {
    fn from(error: WorkflowError) -> CliError {
        match error {
            WorkflowError::Usage(text) => CliError::Usage(text),
            WorkflowError::Inventory(problems) => CliError::Inventory(problems),
        }
    }
}

impl From<Vec<InventoryProblem>> for CliError {
    fn from(problems: Vec<InventoryProblem>) -> CliError {
        CliError::Inventory(problems)
    }
}

pub(crate) fn exit_code(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Ok | Outcome::Detached => 0,
        Outcome::Failed | Outcome::Stopped => 1,
        Outcome::Refused => 3,
        Outcome::Unreachable => 4,
        Outcome::Leftovers => 5,
        Outcome::Locked => 6,
        Outcome::Signal(n) => u8::try_from(128 + n).unwrap_or(255),
    }
}

/// As ssh does, `shell` and `exec` on one host exit with 255 where we failed, so that every other status is the remote command's.
pub(crate) fn as_ssh_exit(outcome: Outcome) -> Result<Outcome, CliError> {
    match outcome {
        Outcome::Failed | Outcome::Refused | Outcome::Unreachable | Outcome::Locked | Outcome::Leftovers => {
            Err(CliError::RemoteExit(SSH_FAILURE))
        }
        Outcome::Ok | Outcome::Detached | Outcome::Stopped | Outcome::Signal(_) => Ok(outcome),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::error::worse_outcome;

    #[test]
    fn worse_outcome_decides_exit_code() {
        let order =
            [Outcome::Locked, Outcome::Leftovers, Outcome::Signal(2), Outcome::Unreachable, Outcome::Refused, Outcome::Failed, Outcome::Ok];
        for pair in order.windows(2) {
            assert_eq!(worse_outcome(pair[1].clone(), pair[0].clone()), pair[0]);
            assert_eq!(worse_outcome(pair[0].clone(), pair[1].clone()), pair[0]);
        }
        assert_eq!(order.map(|o| exit_code(&o)), [6, 5, 130, 4, 3, 1, 0]);
    }
}
