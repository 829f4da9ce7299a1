//! The inventory as every command uses it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::host_settings::{ContainerEngine, InventoryHost};
use super::hosts::host_node_name;
use super::slurm::SlurmSettings;
use super::yaml_tree::{SourceLocation, YamlEntry, YamlNode};
use super::{InventoryProblem, Job};

/// The validated half that every command needs. Made by [`Inventory::load`].
#[derive(Debug, Clone)]
pub struct Inventory {
    /// `[a-z0-9][a-z0-9-]{0,39}`: names containers, labels and run directories.
    pub name: String,
    /// In node-rank order: the master is first. Empty only in an inventory for SLURM alone.
    pub hosts: Vec<InventoryHost>,
    /// Where runs live on the hosts; may begin with `~`.
    pub run_dir: String,
    /// Where the container engine is, also for commands without a launch; `None`: the inventory has no container.
    pub engine: Option<ContainerEngine>,
    /// Its own metrics by name: patterns whose one group is the value in a log line.
    pub metrics: BTreeMap<String, String>,
    /// The same job on a SLURM cluster.
    pub slurm: Option<SlurmSettings>,
    /// What [`Inventory::job`] evaluates later.
    pub(super) merged: MergedInventory,
}

impl Inventory {
    /// Whether it has tasks of `prepare`, evaluated or not.
    pub(crate) fn has_tasks(&self) -> bool {
        self.merged.tree.get("prepare").is_some()
    }

    /// The same inventory with other settings and hosts; of the hosts it has the names alone in the files.
    pub(super) fn with_hosts(&self, tree: YamlNode, hosts: Vec<InventoryHost>, location: &SourceLocation) -> Inventory {
        let node = |host: &InventoryHost| {
            let name = YamlNode::scalar(location.clone(), &host.name, false);
            YamlNode::map(location.clone(), vec![YamlEntry::new("name", location.clone(), name)])
        };
        let host_nodes = hosts.iter().map(node).collect();
        Inventory { hosts, merged: MergedInventory::new(tree, host_nodes), ..self.clone() }
    }
}

/// The files, laid over each other and not yet evaluated.
#[derive(Debug, Clone)]
pub(super) struct MergedInventory {
    pub(super) tree: YamlNode,
    /// One mapping a host, in rank order.
    pub(super) host_nodes: Vec<YamlNode>,
    /// The names of all hosts, also of those that `--limit` leaves out.
    pub(super) all_host_names: Vec<String>,
    pub(super) evaluated: EvaluatedOnce,
}

impl MergedInventory {
    pub(super) fn new(tree: YamlNode, host_nodes: Vec<YamlNode>) -> Self {
        let all_host_names = host_nodes.iter().map(|node| host_node_name(node).to_owned()).collect();
        MergedInventory { tree, host_nodes, all_host_names, evaluated: EvaluatedOnce::default() }
    }

    /// The variables of the ranks as they are written: those of all hosts and of single ones, their containers' too.
    pub(super) fn env_entries(&self) -> impl Iterator<Item = &YamlEntry> {
        let blocks =
            std::iter::once(&self.tree).chain(&self.host_nodes).flat_map(|node| [node.get("env"), node.get_path(&["container", "env"])]);
        blocks.flatten().flat_map(YamlNode::entries)
    }
}

/// What follows from the files and hosts alone, made when it is first asked for.
#[derive(Debug, Clone, Default)]
pub(super) struct EvaluatedOnce {
    /// The job before any host has answered.
    pub(super) draft: OnceLock<Result<Arc<Job>, Vec<InventoryProblem>>>,
    /// What decides "equal", for every host.
    pub(super) fingerprints: OnceLock<Vec<FingerprintText>>,
}

/// Canonical texts, one `key value` a line, so that two of them can be compared line by line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FingerprintText {
    /// What the container is made of; empty on a bare host.
    pub container: String,
    /// What the ranks are started with.
    pub launch: String,
    /// The tasks of `prepare`. No part of what decides "equal": tasks have run when a launch is compared.
    pub tasks: String,
}
