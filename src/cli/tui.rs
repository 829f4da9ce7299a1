//! `tui`: the dashboard. Follows what runs; where nothing runs, shows the plan and starts it when asked to.

use crate::cli::args::{Progress, TuiArgs, UpArgs};
use crate::cli::exit::Failure;
use crate::event::Outcome;

/// Runs it.
///
/// # Errors
/// What must be said to the person.
pub async fn run(args: &TuiArgs) -> Result<Outcome, Failure> {
    let mut host = args.host.clone();
    host.progress = Progress::Tui;
    let up = UpArgs {
        host,
        detach: false,
        keep: args.keep,
        recreate: false,
        dry_run: false,
        diff: true,
        preflight: args.preflight,
        lock_wait: args.lock_wait,
        ask: true,
        guide: None,
    };
    super::up::run(&up).await
}
