//! What every lint reads, and where it reports.

use crate::inventory::eval::Evaluator;
use crate::inventory::yaml_tree::{SourceLocation, YamlNode};
use crate::inventory::{InventoryProblem, Job, Launcher};

/// What the lints look at.
pub(super) struct LintContext<'a> {
    pub(super) evaluator: &'a Evaluator<'a>,
    pub(super) job: &'a Job,
    pub(super) tree: &'a YamlNode,
    pub(super) host_nodes: &'a [YamlNode],
    pub(super) run_dir: &'a str,
    pub(super) host_count: usize,
    /// GPUs that a node of the SLURM job has; `None`: no such job.
    pub(super) slurm_gpus: Option<u32>,
    pub(super) findings: Vec<(&'static str, InventoryProblem)>,
}

impl LintContext<'_> {
    pub(super) fn report(&mut self, lint: &'static str, location: &SourceLocation, message: impl Into<String>, hint: impl Into<String>) {
        let message = format!("{} [{lint}]", message.into());
        self.findings.push((lint, location.problem(message, hint)));
    }

    /// Whether several launchers of torch's kind wait for each other.
    pub(super) fn needs_rendezvous(&self) -> bool {
        self.host_count > 1 && self.job.launch.launcher != Launcher::Script
    }
}
