//! `tui`: the dashboard. Follows what runs; where nothing runs, shows the plan and starts it when asked to.

use crate::cli::args::{ProgressMode, TuiArgs, UpArgs};
use crate::cli::exit::CliError;
use crate::event::Outcome;

/// Runs it.
///
/// # Errors
/// What must be said to the person.
pub async fn run(args: &TuiArgs) -> Result<Outcome, CliError> {
    let mut host = args.common.clone();
    host.progress = ProgressMode::Tui;
    let up = UpArgs {
        common: host,
        detach: false,
        keep: args.keep,
        recreate: false,
        dry_run: false,
        diff: true,
        preflight: args.preflight,
        lock_wait: args.lock_wait,
        confirm_first: true,
        intro_text: None,
    };
    super::up::run(&up).await
}
