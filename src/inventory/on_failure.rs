//! `on_failure`: what a run that seems to hang leads to.

use std::time::Duration;

use super::OnFailure;
use super::errors::InventoryErrors;
use super::eval::Evaluator;
use super::schema;
use super::yaml_tree::YamlKind;

pub(super) fn parse_on_failure(evaluator: &Evaluator<'_>, errors: &mut InventoryErrors) -> OnFailure {
    let Some(block) = evaluator.inputs().tree.get("on_failure").filter(|node| matches!(node.kind, YamlKind::Map(_))) else {
        return OnFailure::default();
    };
    let mut settings = OnFailure::default();
    if let Some(node) = block.get("hang") {
        settings.stop_on_hang = errors.read_choice(&evaluator.evaluate(node, None), &[("warn", false), ("stop", true)]).unwrap_or_default();
    }
    if let Some(node) = block.get("hang_after") {
        let node = evaluator.evaluate(node, None);
        settings.hang_after = errors.read_duration(&node);
        if settings.hang_after.is_some_and(|after| after < Duration::from_secs(1)) {
            errors.report(&node.location, "a healthy run may be silent for that long", "use the longest healthy silence, for example 30m");
        }
    }
    settings
}

/// Compares the block's keys with the known ones.
pub(super) fn check_keys(tree: &super::yaml_tree::YamlNode, errors: &mut InventoryErrors) {
    if let Some(block) = tree.get("on_failure") {
        errors.check_keys(block, &schema::ON_FAILURE_SCHEMA);
    }
}
