//! `prepare`: runs the tasks of the inventory alone, in containers that stay.

use crate::cli::args::{PrepareArgs, UpArgs};
use crate::cli::exit::CliError;
use crate::event::Outcome;
use crate::lifecycle::launch_request::LaunchMode;

pub(crate) async fn run(args: &PrepareArgs) -> Result<Outcome, CliError> {
    let up = UpArgs {
        tasks: args.tasks.clone(),
        recreate: args.recreate,
        dry_run: args.dry_run,
        diff: args.diff,
        preflight: args.preflight,
        lock_wait: args.lock_wait,
        ..UpArgs::for_command(LaunchMode::Prepare, args.common.clone())
    };
    super::up::run(&up).await
}
