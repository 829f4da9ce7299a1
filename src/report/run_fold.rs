//! The one fold of a run's events: its state and the facts for its diagnosis. Outputs get snapshots of it.

use std::sync::Arc;

use crate::diagnose::{DiagnosisFinding, Evidence, diagnose_run};
use crate::event::Event;
use crate::state::RunState;

/// What is known of a run at one time.
#[derive(Debug, Clone, Default)]
pub struct RunSnapshot {
    pub state: Arc<RunState>,
    /// What went wrong, the first cause first.
    pub findings: Arc<[DiagnosisFinding]>,
}

/// State and evidence, folded together.
#[derive(Debug, Clone)]
pub struct RunFold {
    state: RunState,
    evidence: Evidence,
}

impl Default for RunFold {
    fn default() -> Self {
        RunFold { state: RunState::new(), evidence: Evidence::with_built_in_rules() }
    }
}

impl RunFold {
    pub fn apply(&mut self, event: &Event) {
        self.state.apply(event);
        self.evidence.apply(event);
    }

    /// Takes what an earlier command saw: it explains a failure, and changes no state.
    pub(crate) fn apply_evidence(&mut self, event: &Event) {
        self.evidence.apply(event);
    }

    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// Explains by these rules from now on.
    pub(crate) fn set_evidence(&mut self, evidence: Evidence) {
        self.evidence = evidence;
    }

    pub(crate) fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// What went wrong, the first cause first.
    pub fn findings(&self) -> Vec<DiagnosisFinding> {
        diagnose_run(&self.evidence, &self.state)
    }

    pub fn snapshot(&self) -> RunSnapshot {
        RunSnapshot { state: Arc::new(self.state.clone()), findings: self.findings().into() }
    }
}
