//! Lints of the block `slurm`: requests that a cluster takes, and that give another job than was meant.

use super::context::LintContext;
use crate::inventory::Launcher;
use crate::inventory::yaml_tree::{SourceLocation, YamlNode};

pub(super) fn lint_slurm(context: &mut LintContext<'_>) {
    let Some(block) = context.tree.get("slurm") else { return };
    for item in block.get("args").map(YamlNode::items).unwrap_or_default() {
        if let Some(text) = item.as_text() {
            lint_arg(context, text, &item.location);
        }
    }
    lint_process_count(context, block);
}

fn lint_arg(context: &mut LintContext<'_>, text: &str, location: &SourceLocation) {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    match name {
        "--gpus" | "-G" => {
            let message = "--gpus counts the GPUs of the whole job: SLURM may give the nodes unequal numbers, and sites take it for a job without GPUs";
            context.report("slurm-gpus-total", location, message, "remove it, and set slurm.gpus_per_node");
        }
        "--ntasks" | "-n" | "--ntasks-per-gpu" | "--ntasks-per-core" | "--ntasks-per-socket" | "--gpus-per-task" | "--tres-per-task" => {
            let message = format!("with {name} a node may get several tasks: each would be a launcher of its own, with a part of the GPUs");
            context.report(
                "slurm-ntasks",
                location,
                message,
                "remove it: the script asks for one task a node, whose launcher starts the ranks",
            );
        }
        "--export" if value != "ALL" && value != "NONE" => {
            let message = "values given to --export end at their first comma, and names without ALL take everything else from the job";
            context.report("slurm-export-list", location, message, "remove it, and set the variables under env");
        }
        _ => {}
    }
}

/// Fewer processes than GPUs leave some idle that the job pays for.
fn lint_process_count(context: &mut LintContext<'_>, block: &YamlNode) {
    let gpus = context.slurm_gpus;
    let nproc = context.tree.get_path(&["launch", "nproc_per_node"]).map(|node| (context.evaluator.evaluate(node, None), node));
    let (Some(gpus), Some((value, node))) = (gpus, nproc) else { return };
    let location = &block.get("gpus_per_node").unwrap_or(node).location;
    match value.as_text().and_then(|text| text.parse::<u32>().ok()) {
        Some(nproc) if nproc != gpus && gpus > 0 && context.job.launch.launcher != Launcher::Script => {
            let message = format!("{gpus} GPUs per node for {nproc} processes per node");
            context.report("slurm-nproc", location, message, "make slurm.gpus_per_node and launch.nproc_per_node equal");
        }
        _ => {}
    }
}
