//! The launch as one script for sbatch, pure: header, main part (`assets/slurm/batch.sh`), and the files that the job writes for its nodes.
//!
//! One task a node. The task starts the same wrappers as on a bare host, with the launcher's own flags; what only the running job knows
//! (nodes, addresses, port, run id) are variables of the shell.

pub(crate) mod cluster_report;
pub(crate) mod header;
mod inputs;
pub(crate) mod job_notes;
pub(crate) mod job_report;
pub(crate) mod job_state;
pub(crate) mod login_scripts;
mod node_files;
pub(crate) mod node_metrics;
mod step_tasks;
mod task;

#[cfg(test)]
mod tests;

use self::inputs::{ScriptInputs, without_first_line};
use crate::inventory::{Inventory, SlurmContainer, SlurmJob};
use crate::plan::host_context::HostContext;
use crate::plan::launcher::{HostLaunchSpec, LaunchSpecBuilder, build_launch_spec};
use crate::plan::rank_layout::RankLayout;
use crate::text::shell_template::variable;

/// SLURM's default for the longest script, `max_script_size`.
const SCRIPT_SIZE_LIMIT: usize = 4 << 20;

/// The script of a job. `registered`: what tasks on the login node have registered.
///
/// # Errors
/// It would be longer than SLURM takes.
pub(crate) fn render_batch_script(inventory: &Inventory, slurm: &SlurmJob, registered: &[(String, String)]) -> Result<String, String> {
    let context = HostContext {
        run_id: variable("ORCH_RUN_ID"),
        in_container: slurm.settings.container == SlurmContainer::Docker,
        ..HostContext::new(&inventory.name, variable("ORCH_HOST"), variable("ORCH_ROOT"))
    };
    let layout = RankLayout::symbolic(&slurm.job);
    let builder = LaunchSpecBuilder { job: &slurm.job, layout: &layout, context: &context, node_rank: 0, hosts: &slurm.hosts, facts: None };
    let spec = shorten_run_dir(build_launch_spec(&builder), &context.run_dir());
    let inputs = ScriptInputs { inventory, slurm, context, layout, spec, registered };
    let text = format!("{}{}{}", header::header_text(&inputs), main_text(), node_files::write_files_text(&inputs));
    let text = format!("{text}{}\nmain \"$@\"\n", step_tasks::main_text(&inputs));
    if text.len() > SCRIPT_SIZE_LIMIT {
        return Err(format!("the script has {} bytes, SLURM takes at most {SCRIPT_SIZE_LIMIT}", text.len()));
    }
    Ok(text)
}

fn main_text() -> String {
    without_first_line(include_str!("../../../assets/slurm/batch.sh"))
}

/// Writes the run's directory as the variable that every rank has.
fn shorten_run_dir(mut spec: HostLaunchSpec, run_dir: &str) -> HostLaunchSpec {
    let short = |text: &mut String| *text = text.replace(run_dir, &variable("ORCH_RUN_DIR"));
    spec.argv.iter_mut().for_each(short);
    spec.worker_argv.iter_mut().for_each(short);
    spec.env.values_mut().for_each(short);
    spec
}
