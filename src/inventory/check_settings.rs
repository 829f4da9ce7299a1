//! `checks`: what the user adds to the built-in preflight, and what is left out of it.
//!
//! Knows the checks' names only; what they ask the hosts is in `preflight`.

use super::CheckSettings;
use super::errors::{InventoryErrors, is_absolute_or_home};
use super::eval::Evaluator;
use super::problem::require;
use super::schema::suggest;
use super::yaml_tree::shorten;

/// Every check by its stable name, in the order in which reports list them: an area after the other.
pub(crate) const CHECK_NAMES: [&str; 45] = [
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
    "run-dir",
    "docker",
    "userns-remap",
    "container-name",
    "docker-disk",
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

/// What was probably meant by a word that names no check.
pub(crate) fn suggest_check_name(word: &str) -> String {
    suggest(word, CHECK_NAMES, "see `orchestrate check --list`")
}

pub(super) fn parse_checks(evaluator: &Evaluator<'_>, errors: &mut InventoryErrors) -> CheckSettings {
    let Some(block) = evaluator.inputs().tree.get_map("checks") else {
        return CheckSettings::default();
    };
    let mut checks = CheckSettings::default();
    if let Some(node) = block.get("same") {
        checks.same_output_commands = errors.read_text_list(&evaluator.evaluate(node, None));
        if checks.same_output_commands.iter().any(|command| command.trim().is_empty()) {
            errors.report(&node.location, "empty command", "write the command that each host runs, for example: nvcc --version");
        }
    }
    if let Some(node) = block.get("paths") {
        let node = evaluator.evaluate(node, None);
        let valid = |text: &str| {
            let message = format!("the path `{}` is relative", shorten(text));
            require(is_absolute_or_home(text), message, "write an absolute path, or one that begins with ~/")
        };
        checks.same_content_paths = node.items_or_self().iter().filter_map(|item| errors.validated_text(item, valid)).collect();
    }
    if let Some(node) = block.get("max_clock_skew") {
        checks.max_clock_skew = errors.read_duration(&evaluator.evaluate(node, None));
    }
    if let Some(node) = block.get("skip") {
        let node = evaluator.evaluate(node, None);
        let valid =
            |text: &str| require(CHECK_NAMES.contains(&text), format!("unknown check `{}`", shorten(text)), &suggest_check_name(text));
        checks.skip = node.items_or_self().iter().filter_map(|item| errors.validated_text(item, valid)).collect();
    }
    checks
}
