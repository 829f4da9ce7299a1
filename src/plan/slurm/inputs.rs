//! What all parts of the script are made of, and paths of the nodes.

use crate::inventory::{ContainerSettings, Inventory, SlurmContainer, SlurmJob};
use crate::plan::host_context::HostContext;
use crate::plan::launcher::HostLaunchSpec;
use crate::plan::rank_layout::RankLayout;
use crate::text::shell_template::{self, variable};

/// What every part of the script is made of.
pub(super) struct ScriptInputs<'a> {
    pub(super) inventory: &'a Inventory,
    pub(super) slurm: &'a SlurmJob,
    /// The directories of a node, with variables.
    pub(super) context: HostContext,
    pub(super) layout: RankLayout,
    pub(super) spec: HostLaunchSpec,
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
    match path.strip_prefix("~/") {
        Some(rest) => format!("{}/{rest}", variable("HOME")),
        None if path == "~" => variable("HOME"),
        None => path.to_owned(),
    }
}

pub(super) fn quote_host_path(path: &str) -> String {
    shell_template::quote(&host_path(path))
}
