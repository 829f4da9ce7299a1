//! What all parts of the script are made of, and paths of the nodes.

use crate::inventory::{ContainerSettings, Inventory, SlurmContainer, SlurmJob};
use crate::plan::host_context::HostContext;
use crate::plan::launcher::{HostLaunchSpec, expand_home};
use crate::plan::rank_layout::RankLayout;
use crate::text::shell_template::{self, variable};

/// What the job's and the node's own lines of the environment set, and ranks get.
pub(super) const RUN_VARIABLES: [&str; 10] = [
    "ORCH_ADDRESS",
    "ORCH_HOST",
    "ORCH_HOSTS",
    "ORCH_MASTER_ADDR",
    "ORCH_MASTER_NAME",
    "ORCH_MASTER_PORT",
    "ORCH_NODE_RANK",
    "ORCH_RUN_DIR",
    "ORCH_RUN_ID",
    "ORCH_RUN_STAMP",
];

/// What of the task's environment is no rank's: it counts nodes where programs expect ranks.
pub(super) const SLURM_TASK_VARIABLES: &str = "SLURM_NTASKS SLURM_NPROCS SLURM_PROCID SLURM_LOCALID SLURM_NTASKS_PER_NODE SLURM_TASKS_PER_NODE \
                              SLURM_STEP_NUM_TASKS SLURM_STEP_TASKS_PER_NODE SLURM_GTIDS";

/// What every part of the script is made of.
pub(super) struct ScriptInputs<'a> {
    pub(super) inventory: &'a Inventory,
    pub(super) slurm: &'a SlurmJob,
    /// The directories of a node, with variables.
    pub(super) context: HostContext,
    pub(super) layout: RankLayout,
    pub(super) spec: HostLaunchSpec,
    /// What tasks on the login node have registered.
    pub(super) registered: &'a [(String, String)],
}

impl ScriptInputs<'_> {
    pub(super) fn container(&self) -> SlurmContainer {
        self.slurm.settings.container
    }

    /// `container` of the inventory, where the cluster runs one.
    pub(super) fn container_settings(&self) -> Option<&ContainerSettings> {
        let host = self.slurm.job.hosts.first().filter(|_| self.container() != SlurmContainer::None);
        host.and_then(|host| host.container.as_ref())
    }
}

/// A path of the nodes; `~/` is the home of the job's user.
pub(super) fn host_path(path: &str) -> String {
    expand_home(path, &variable("HOME"))
}

pub(super) fn quote_host_path(path: &str) -> String {
    shell_template::quote(&host_path(path))
}

/// A part of the script, with empty lines around it. Its first line is for shellcheck alone: here the settings precede it.
pub(super) fn without_first_line(body: &str) -> String {
    format!("\n{}\n", body.split_once('\n').map_or(body, |(_, rest)| rest).trim_end())
}
