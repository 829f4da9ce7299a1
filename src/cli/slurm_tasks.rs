//! The tasks of `prepare` that `slurm submit` does on the login node, once, before the job is submitted.

use std::path::{Path, PathBuf};

use crate::cli::args::{PreflightLevel, SlurmSubmitArgs, UpArgs};
use crate::cli::exit::CliError;
use crate::cli::launch::{EndedLaunch, launch_with_signals};
use crate::event::Outcome;
use crate::inventory::Inventory;
use crate::lifecycle::error::WorkflowEnd;
use crate::lifecycle::file_sources::find_file_sources;
use crate::lifecycle::launch::LaunchEnd;
use crate::lifecycle::launch_request::LaunchMode;
use crate::lifecycle::slurm_prepare::remove_task_files;
use crate::lifecycle::stop_controller::StopController;
use crate::lifecycle::stop_ladder::InterruptPolicy;

/// Reports what the tasks would send and this laptop lacks, before any host is contacted. `tasks`: the inventory of the login node.
pub(super) fn check_login_tasks(tasks: &Inventory, base: &Path) -> Result<(), CliError> {
    let job = tasks.draft()?;
    let names: Vec<&str> = tasks.hosts.iter().map(|host| host.name.as_str()).collect();
    find_file_sources(&job.tasks.iter().collect::<Vec<_>>(), &names, base)?;
    Ok(())
}

/// What the tasks have registered; `Err`: they did not succeed, or nothing was to be done but to show them. `tasks`: the inventory of the
/// login node.
pub(super) async fn run_login_tasks(
    args: &SlurmSubmitArgs,
    tasks: Inventory,
    base: PathBuf,
    signals: &mut StopController,
) -> Result<Result<Vec<(String, String)>, Outcome>, CliError> {
    let up = UpArgs {
        dry_run: args.dry_run,
        // The checks are for hosts of ranks.
        preflight: PreflightLevel::Off,
        ..UpArgs::for_command(LaunchMode::SlurmSubmit, args.common.clone())
    };
    signals.set_policy(InterruptPolicy::Stop);
    let EndedLaunch { mut session, end, registered } = launch_with_signals(&up, tasks, base, signals).await?;
    signals.set_policy(InterruptPolicy::Cancel);
    let WorkflowEnd { outcome, reason } = match end {
        LaunchEnd::Ended(end) => end,
        LaunchEnd::LeftNow(outcome) => return Ok(Err(outcome)),
    };
    if args.dry_run {
        session.close(false).await;
        return Ok(Err(outcome));
    }
    // A task that another command follows, or that may still run, keeps its files.
    let removed = match outcome {
        Outcome::Ok | Outcome::Failed => remove_task_files(&mut session, up.lock_wait).await?,
        _ => Outcome::Ok,
    };
    let outcome = if outcome == Outcome::Ok { removed } else { outcome };
    match session.finish(outcome, &reason, true).await {
        Outcome::Ok => Ok(Ok(registered)),
        outcome => Ok(Err(outcome)),
    }
}
