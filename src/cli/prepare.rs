//! `prepare`: runs the tasks of the inventory alone, in containers that stay.

use crate::cli::args::{PrepareArgs, UpArgs};
use crate::cli::exit::CliError;
use crate::event::Outcome;

pub(crate) async fn run(args: &PrepareArgs) -> Result<Outcome, CliError> {
    let up = UpArgs {
        tasks: args.tasks.clone(),
        tasks_only: true,
        recreate: args.recreate,
        dry_run: args.dry_run,
        diff: args.diff,
        preflight: args.preflight,
        lock_wait: args.lock_wait,
        ..UpArgs::with_common(args.common.clone())
    };
    super::up::run(&up).await
}
