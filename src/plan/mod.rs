//! The plan: every remote command that may run, per host and phase, finished before anything changes.
//!
//! Pure: facts and inventory come in, steps go out; the engine decides when, never what.

pub mod action;
pub(crate) mod build;
pub(crate) mod display;
pub(crate) mod existing_run;
pub(crate) mod fact_rules;
pub mod facts;
pub mod facts_request;
pub mod host_context;
pub(crate) mod labeled_resources;
pub(crate) mod launcher;
pub mod logind;
pub(crate) mod overview;
pub mod postmortem;
pub(crate) mod preparation;
pub mod process_status;
pub mod protocol;
pub(crate) mod rank_environment;
pub(crate) mod rank_layout;
pub(crate) mod render;
pub(crate) mod shell_command;
pub(crate) mod slurm;
pub(crate) mod task;
pub(crate) mod task_preview;
pub(crate) mod teardown;
#[cfg(test)]
pub(crate) mod test_program;

use crate::model::phase::Phase;
use crate::model::rank::RankInfo;
use crate::plan::action::Action;
use crate::plan::host_context::HostContext;
use crate::plan::protocol::run_record::RunRecord;

/// A cell of the matrix hosts × phases: one action on one host.
#[derive(Debug, Clone)]
pub struct PlanStep {
    /// Its number in the plan, dense from 0.
    pub id: u32,
    /// The index of its host in [`Plan::hosts`].
    pub host: usize,
    /// Its column; a barrier.
    pub phase: Phase,
    pub action: Action,
}

/// What will be done, on which hosts, in which order.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The hosts, in node-rank order.
    pub hosts: Vec<HostContext>,
    /// Phase by phase, within a phase host by host.
    pub steps: Vec<PlanStep>,
    /// Every rank whose place is known.
    pub ranks: Vec<RankInfo>,
    /// How many worker processes the gang has.
    pub world_size: u32,
    /// What the run says of itself (the first host's copy); `None` for a plan without a run.
    pub run_record: Option<RunRecord>,
}

impl Plan {
    /// A plan without steps.
    pub fn empty(contexts: Vec<HostContext>) -> Plan {
        Plan { hosts: contexts, steps: Vec::new(), ranks: Vec::new(), world_size: 0, run_record: None }
    }

    /// Adds a step at the end; the phases must come in their order.
    pub fn push(&mut self, host: usize, phase: Phase, action: Action) {
        let id = u32::try_from(self.steps.len()).unwrap_or(u32::MAX);
        self.steps.push(PlanStep { id, host, phase, action });
    }

    /// The phases that have steps, in their order.
    pub fn phases(&self) -> Vec<Phase> {
        let mut phases: Vec<Phase> = self.steps.iter().map(|s| s.phase).collect();
        phases.dedup();
        phases
    }
}
