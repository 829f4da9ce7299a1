//! `on_failure`: what a run that seems to hang leads to.

use std::time::Duration;

use super::OnFailure;
use super::errors::InventoryErrors;
use super::eval::Evaluator;

pub(super) fn parse_on_failure(evaluator: &Evaluator<'_>, errors: &mut InventoryErrors) -> OnFailure {
    let Some(block) = evaluator.inputs().tree.get_map("on_failure") else {
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
