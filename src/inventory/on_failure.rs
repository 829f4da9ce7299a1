//! `on_failure`: what a run that seems to hang leads to.
//!
//! Uses the tree and the table of keys. Knows nothing of how a hang is found; that is `diagnose/hang`.

use std::time::Duration;

use super::check::Check;
use super::schema;
use super::scope::Scope;
use super::tree::Kind;

/// `on_failure`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OnFailure {
    /// Whether a gang that seems to hang is stopped; else it is only warned of.
    pub stop_hung: bool,
    /// The longest time for which a healthy run may be silent; `None`: it is learned from the run.
    pub hang_after: Option<Duration>,
}

pub(super) fn on_failure(scope: &Scope<'_>, check: &mut Check) -> OnFailure {
    let Some(block) = scope.facts().tree.get("on_failure").filter(|node| matches!(node.kind, Kind::Map(_))) else {
        return OnFailure::default();
    };
    let mut said = OnFailure::default();
    if let Some(node) = block.get("hang") {
        said.stop_hung = check.word(&scope.eval(node, None), &[("warn", false), ("stop", true)]).unwrap_or_default();
    }
    if let Some(node) = block.get("hang_after") {
        let node = scope.eval(node, None);
        said.hang_after = check.duration(&node);
        if said.hang_after.is_some_and(|after| after < Duration::from_secs(1)) {
            check.wrong(&node.place, "a run is silent for so long all the time", "write the longest healthy silence, like 30m");
        }
    }
    said
}

/// Compares the block's keys with the known ones.
pub(super) fn keys(tree: &super::tree::Node, check: &mut Check) {
    if let Some(block) = tree.get("on_failure") {
        check.block(block, &schema::ON_FAILURE);
    }
}
