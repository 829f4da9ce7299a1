//! `checks`: what the user adds to the built-in preflight, and what is left out of it.
//!
//! Uses the tree and the table of keys. Knows the checks' names only; what they look at is the plan's (`plan/check`).

use std::time::Duration;

use super::check::Check;
use super::schema::{self, nearest};
use super::scope::Scope;
use super::tree::{Kind, shorten};

/// Every check by its stable name, in the order in which they are told.
pub const NAMES: [&str; 45] = [
    "clock",
    "arch",
    "cpus",
    "memory",
    "disk",
    "inodes",
    "limits",
    "shm",
    "logout-kills",
    "leftovers",
    "docker",
    "userns-remap",
    "container-name",
    "docker-disk",
    "run-dir",
    "cgroup",
    "image",
    "image-versions",
    "nvidia-runtime",
    "gpu-count",
    "gpu-model",
    "gpu-capability",
    "driver",
    "mig",
    "ecc",
    "row-remap",
    "persistence",
    "xid",
    "fabric-manager",
    "gpu-idle",
    "mounts",
    "mount-system",
    "mount-content",
    "mount-write",
    "paths",
    "same",
    "master-address",
    "hostname",
    "nic",
    "mtu",
    "infiniband",
    "nccl-conf",
    "master-port",
    "reach-master",
    "reach-ephemeral",
];

/// `checks`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checks {
    /// Commands whose output must be equal on all hosts.
    pub same: Vec<String>,
    /// Host paths that must exist with the same content on all hosts; absolute, or `~/…`.
    pub paths: Vec<String>,
    /// How far apart the clocks may be; `None`: the user said nothing.
    pub max_clock_skew: Option<Duration>,
    /// Names of [`NAMES`] that are left out.
    pub skip: Vec<String>,
}

/// What was probably meant by a word that names no check.
pub fn meant(word: &str) -> String {
    match nearest(word, NAMES) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`orchestrate check --list` names them all".to_owned(),
    }
}

pub(super) fn checks(scope: &Scope<'_>, check: &mut Check) -> Checks {
    let Some(block) = scope.facts().tree.get("checks").filter(|node| matches!(node.kind, Kind::Map(_))) else { return Checks::default() };
    let mut checks = Checks::default();
    if let Some(node) = block.get("same") {
        checks.same = check.texts(&scope.eval(node, None));
        if checks.same.iter().any(|command| command.trim().is_empty()) {
            check.wrong(&node.place, "an empty command", "write what each host shall run, like: nvcc --version");
        }
    }
    if let Some(node) = block.get("paths") {
        let node = scope.eval(node, None);
        let items = if let Kind::List(items) = &node.kind { items.as_slice() } else { std::slice::from_ref(&node) };
        let valid = |text: &str| match text.starts_with('/') || text == "~" || text.starts_with("~/") {
            true => Ok(()),
            false => Err((format!("the path `{}` is relative", shorten(text)), "write it from / or from ~/".to_owned())),
        };
        checks.paths = items.iter().filter_map(|item| check.text_that(item, valid)).collect();
    }
    if let Some(node) = block.get("max_clock_skew") {
        checks.max_clock_skew = check.duration(&scope.eval(node, None));
    }
    if let Some(node) = block.get("skip") {
        let node = scope.eval(node, None);
        let items = if let Kind::List(items) = &node.kind { items.as_slice() } else { std::slice::from_ref(&node) };
        let valid = |text: &str| match NAMES.contains(&text) {
            true => Ok(()),
            false => Err((format!("there is no check `{}`", shorten(text)), meant(text))),
        };
        checks.skip = items.iter().filter_map(|item| check.text_that(item, valid)).collect();
    }
    checks
}

/// Compares the block's keys with the known ones.
pub(super) fn keys(tree: &super::tree::Node, check: &mut Check) {
    if let Some(block) = tree.get("checks") {
        check.block(block, &schema::CHECKS);
    }
}
