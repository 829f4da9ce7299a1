//! `up`: launches or attaches, follows the run, and tears it down as `teardown` says.

use std::path::PathBuf;

use crate::cli::args::{CommonArgs, UpArgs};
use crate::cli::exit::CliError;
use crate::cli::launch::{launch, limited};
use crate::cli::local_env::print_stderr;
use crate::cli::open_session::{LoadMode, load_inventory};
use crate::cli::task_listing::list_tasks;
use crate::event::Outcome;
use crate::inventory::Inventory;
use crate::lifecycle::launch::LaunchEnd;

pub(crate) async fn run(args: &UpArgs) -> Result<Outcome, CliError> {
    let unlimited = CommonArgs { limit: None, ..args.common.clone() };
    let (inventory, base) = load_inventory(&unlimited, LoadMode::Full)?;
    if args.tasks.list_tasks {
        return list_tasks(&limited(&inventory, args)?, &args.tasks.selection());
    }
    run_with_inventory(args, inventory, base).await
}

/// `demo` reads its own inventory.
pub(crate) async fn run_with_inventory(args: &UpArgs, full_inventory: Inventory, base: PathBuf) -> Result<Outcome, CliError> {
    let (session, end) = launch(args, full_inventory, base).await?;
    let end = match end {
        LaunchEnd::Ended(end) => end,
        LaunchEnd::LeftNow(outcome) => return Ok(outcome),
    };
    session.close(!args.dry_run).await;
    // After the warnings, which another task writes.
    if args.dry_run {
        print_stderr(&end.reason);
    }
    Ok(end.outcome)
}
