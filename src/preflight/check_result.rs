//! What a check found on one host.

use crate::model::level::Level;
use crate::plan::fact_rules::FactProblem;

/// What a check found on one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CheckResult {
    pub level: Level,
    /// What was found; for [`Level::Skipped`] why it was not looked at. Names no host.
    pub message: String,
    /// What to do next; may be empty.
    pub hint: String,
    /// Lines of the host that show it.
    pub evidence: Vec<String>,
    /// How many hosts agree on something else, where hosts are compared; 0: they are not.
    pub majority_size: usize,
}

impl CheckResult {
    pub(crate) fn new(level: Level, message: impl Into<String>, hint: impl Into<String>) -> CheckResult {
        CheckResult { level, message: message.into(), hint: hint.into(), evidence: Vec::new(), majority_size: 0 }
    }

    pub(crate) fn pass(message: impl Into<String>) -> CheckResult {
        CheckResult::new(Level::Pass, message, "")
    }

    pub(crate) fn skipped(reason: impl Into<String>) -> CheckResult {
        CheckResult::new(Level::Skipped, reason, "")
    }

    pub(crate) fn warn(message: impl Into<String>, hint: impl Into<String>) -> CheckResult {
        CheckResult::new(Level::Warn, message, hint)
    }

    pub(crate) fn fail(message: impl Into<String>, hint: impl Into<String>) -> CheckResult {
        CheckResult::new(Level::Fail, message, hint)
    }

    /// Becomes the worse of both; what was skipped replaces only a pass.
    pub(crate) fn keep_worse(&mut self, found: CheckResult) {
        if found.level > Level::Pass && found.level > self.level || found.level == Level::Skipped && self.level == Level::Pass {
            *self = found;
        }
    }

    /// With the lines that show it.
    #[must_use]
    pub(crate) fn with_evidence(mut self, lines: impl IntoIterator<Item = String>) -> CheckResult {
        self.evidence.extend(lines.into_iter().take(8));
        self
    }
}

impl From<FactProblem> for CheckResult {
    fn from(problem: FactProblem) -> CheckResult {
        CheckResult::fail(problem.finding, problem.hint)
    }
}
