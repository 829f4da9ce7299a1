//! `tui`: the dashboard. Follows a live run; without one, shows the plan and starts it on request.

use crate::cli::args::{CommonArgs, ProgressMode, TuiArgs, UpArgs};
use crate::cli::exit::CliError;
use crate::event::Outcome;
use crate::lifecycle::launch_request::LaunchMode;

pub(crate) async fn run(args: &TuiArgs) -> Result<Outcome, CliError> {
    let common = CommonArgs { progress: ProgressMode::Tui, ..args.common.clone() };
    let up = UpArgs {
        keep: args.keep,
        diff: true,
        preflight: args.preflight,
        lock_wait: args.lock_wait,
        ..UpArgs::for_command(LaunchMode::Tui, common)
    };
    super::up::run(&up).await
}
