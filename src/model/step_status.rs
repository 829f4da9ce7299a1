//! The status of a step, and the table of legal transitions.

/// The scheduler starts steps by it, the fold of the events shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StepStatus {
    Waiting,
    /// Also while it is retried.
    Running,
    /// It changed something, or verified it.
    Done,
    /// There was nothing to do.
    Satisfied,
    /// A task that need not run here.
    Skipped,
    /// It may have changed something.
    Failed,
}

impl StepStatus {
    /// A step ends once, and its end is final.
    pub(crate) fn can_become(self, next: StepStatus) -> bool {
        use StepStatus::{Done, Failed, Running, Satisfied, Skipped, Waiting};
        match (self, next) {
            // A step can be found satisfied, or fail with its host, before it starts.
            (Waiting, Running | Satisfied | Skipped | Failed) | (Running, Done | Satisfied | Skipped | Failed) => true,
            (Waiting | Running | Done | Satisfied | Skipped | Failed, _) => false,
        }
    }

    pub(crate) fn has_ended(self) -> bool {
        self.is_ok() || self == StepStatus::Failed
    }

    pub(crate) fn is_ok(self) -> bool {
        matches!(self, StepStatus::Done | StepStatus::Satisfied | StepStatus::Skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use StepStatus::{Done, Failed, Running, Satisfied, Skipped, Waiting};

    #[test]
    fn transition_table_is_exact() {
        let all = [Waiting, Running, Done, Satisfied, Skipped, Failed];
        let legal: Vec<(StepStatus, StepStatus)> =
            all.into_iter().flat_map(|from| all.map(|to| (from, to))).filter(|(from, to)| from.can_become(*to)).collect();
        let expected = [
            (Waiting, Running),
            (Waiting, Satisfied),
            (Waiting, Skipped),
            (Waiting, Failed),
            (Running, Done),
            (Running, Satisfied),
            (Running, Skipped),
            (Running, Failed),
        ];
        assert_eq!(legal, expected);
        assert!(all.into_iter().filter(|from| from.has_ended()).all(|from| all.into_iter().all(|to| !from.can_become(to))));
    }
}
