//! `attach`: follows the live run, from any laptop that has the inventory.

use crate::cli::args::AttachArgs;
use crate::cli::dashboard_shell::spawn_action_handler;
use crate::cli::exit::CliError;
use crate::cli::open_session::{LoadMode, listen, load_inventory, open_session};
use crate::cli::progress_output::OutputOptions;
use crate::event::Outcome;
use crate::lifecycle::attach::attach;
use crate::lifecycle::stop_ladder::InterruptPolicy;

pub(crate) async fn run(args: &AttachArgs) -> Result<Outcome, CliError> {
    let loaded = load_inventory(&args.common, LoadMode::ConnectionOnly)?;
    let mut session = open_session("attach", &args.common, loaded, OutputOptions::with_main_rank(args.common.progress, args.tail))?;
    let mut signals = listen(InterruptPolicy::Detach)?;
    let leave = signals.leave_token.clone();
    spawn_action_handler(&mut session, &signals);
    session.announce_hosts();
    let Some(end) = leave.run_until_cancelled(attach(&mut session, &mut signals)).await.transpose()? else {
        return Ok(signals.signal_outcome());
    };
    Ok(session.finish(end.outcome, &end.reason, true).await)
}
