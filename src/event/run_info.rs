//! What a consumer must know of a run before its first step.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::phase::Phase;
use crate::model::rank::RankInfo;

/// A step of the plan, for consumers that draw the matrix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepInfo {
    /// The step's number in the plan.
    pub id: u32,
    /// The index of its host in [`RunInfo::hosts`].
    pub host: u32,
    pub phase: Phase,
    /// For example `start the container`.
    pub title: String,
}

/// Everything that a consumer needs to draw the run before its first step.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RunInfo {
    /// The journal's format, [`JOURNAL_FORMAT`](super::JOURNAL_FORMAT).
    pub format: String,
    pub name: String,
    /// Empty for an operation without a run (`exec`, `down` without leftovers).
    #[serde(rename = "run")]
    pub run_id: String,
    /// The operation: `up`, `down`, `attach`, `logs`.
    pub command: String,
    /// Counts from 1; a gang restart is a new attempt.
    pub attempt: u32,
    /// Host names in node-rank order, the master first.
    pub hosts: Vec<String>,
    /// Empty if the ranks are not known beforehand.
    pub ranks: Vec<RankInfo>,
    pub steps: Vec<StepInfo>,
    /// The inventory's `metrics`: name and pattern; the pattern's group is the value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, String>,
}

/// Whether this operation launches a run or follows it to its end: it gathers the evidence of a failure, and its outcome is the run's.
pub(crate) fn follows_run(command: &str) -> bool {
    matches!(command, "up" | "tui" | "attach" | "slurm attach")
}

impl RunInfo {
    /// Whether ranks and logs of the run or attempt before are not those of this one.
    pub(crate) fn is_other_run(&self, (run_id, attempt): (&str, u32)) -> bool {
        !run_id.is_empty() && run_id != self.run_id || attempt != self.attempt
    }
}
