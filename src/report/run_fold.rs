//! The one fold of a run's events: its state and the facts for its diagnosis. Outputs get snapshots of it.

use std::sync::{Arc, OnceLock};

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
    /// What went wrong, once it is asked for; until the next event.
    findings: OnceLock<Arc<[DiagnosisFinding]>>,
}

impl Default for RunFold {
    fn default() -> Self {
        RunFold { state: RunState::new(), evidence: Evidence::with_built_in_rules(), findings: OnceLock::new() }
    }
}

impl RunFold {
    pub fn apply(&mut self, event: &Event) {
        self.state.apply(event);
        self.apply_evidence(event);
    }

    /// Logs of the same names belong to another run from now on.
    pub(crate) fn clear_evidence(&mut self) {
        self.evidence.clear();
        self.findings.take();
    }

    /// Takes what an earlier command saw: it explains a failure, and changes no state.
    pub(crate) fn apply_evidence(&mut self, event: &Event) {
        self.evidence.apply(event);
        self.findings.take();
    }

    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// Explains by these rules from now on.
    pub(crate) fn set_evidence(&mut self, evidence: Evidence) {
        self.evidence = evidence;
        self.findings.take();
    }

    pub(crate) fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// What went wrong, the first cause first.
    pub fn findings(&self) -> Arc<[DiagnosisFinding]> {
        Arc::clone(self.findings.get_or_init(|| diagnose_run(&self.evidence, &self.state).into()))
    }

    pub fn snapshot(&self) -> RunSnapshot {
        RunSnapshot { state: Arc::new(self.state.clone()), findings: self.findings() }
    }
}
