//! `down`: fetches missing logs, stops and removes a run, verifies that nothing is left.

use std::path::PathBuf;

use crate::cli::args::{DownArgs, ProgressMode};
use crate::cli::exit::CliError;
use crate::cli::local_env::print_stderr;
use crate::cli::open_session::{LoadMode, is_for_slurm_alone, listen, load_inventory, open_session};
use crate::cli::progress_output::OutputOptions;
use crate::cli::slurm_down;
use crate::event::Outcome;
use crate::inventory::Inventory;
use crate::inventory::smoke_test::SmokeTest;
use crate::lifecycle::down::{DownReport, DownRequest, tear_down_all};
use crate::lifecycle::error::worse_outcome;
use crate::lifecycle::stop_controller::StopController;
use crate::lifecycle::stop_ladder::InterruptPolicy;

pub(crate) async fn run(args: &DownArgs) -> Result<Outcome, CliError> {
    if args.common.progress == ProgressMode::Tui {
        return Err(CliError::Usage("--progress tui: only for `up` and `attach`; use `--progress bars` or `plain` with `down`".to_owned()));
    }
    if is_for_slurm_alone(&args.common)? {
        refuse_flags_of_hosts(args)?;
        return slurm_down::down(&args.common).await;
    }
    let (inventory, base) = load_inventory(&args.common, LoadMode::ConnectionOnly)?;
    let signals = listen(InterruptPolicy::Leave)?;
    let (outcome, has_smoke_run) = tear_down_inventory(args, (inventory.clone(), base.clone()), &signals).await?;
    if !has_smoke_run {
        return Ok(outcome);
    }
    // A `check --smoke` that was killed leaves a run under another name.
    let smoke_inventory = inventory.smoke_test_inventory(&SmokeTest { command: &[], port: None, nproc: None });
    Ok(worse_outcome(tear_down_inventory(args, (smoke_inventory, base), &signals).await?.0, outcome))
}

/// What `down` of a job on SLURM does not know: a flag that is not looked at must not pass.
fn refuse_flags_of_hosts(args: &DownArgs) -> Result<(), CliError> {
    let flags = [("--dry-run", args.dry_run), ("--discard-logs", args.discard_logs), ("--kill", args.kill)];
    flags.iter().find(|(_, given)| *given).map_or(Ok(()), |(flag, _)| {
        Err(CliError::Usage(format!("{flag}: not for a job on SLURM, nothing was changed; `orchestrate slurm status` shows what is there")))
    })
}

/// The outcome, and whether a run of `check --smoke` is on the hosts.
async fn tear_down_inventory(args: &DownArgs, loaded: (Inventory, PathBuf), signals: &StopController) -> Result<(Outcome, bool), CliError> {
    let output = OutputOptions::progress_only(args.common.progress).without_bars_if(args.dry_run);
    let mut session = open_session("down", &args.common, loaded, output)?;
    session.announce_hosts();
    let retry_command = session.suggest_command("down", "");
    let request = DownRequest {
        limited: args.common.limit.is_some(),
        discard_logs: args.discard_logs,
        kill_at_once: args.kill,
        lock_wait: args.lock_wait,
        take_over_lock: args.common.yes,
        dry_run: args.dry_run,
        show_scripts: args.common.verbose > 0,
    };
    let DownReport { end, has_smoke_run } = match signals.run_until_leaving(tear_down_all(&mut session, &request)).await {
        Ok(report) => report?,
        Err(outcome) => {
            print_stderr(&format!("interrupted; to finish:\n    {retry_command}"));
            return Ok((outcome, false));
        }
    };
    let outcome = session.finish(end.outcome, &end.reason, !args.dry_run).await;
    if args.dry_run {
        print_stderr(&end.reason);
    }
    Ok((outcome, has_smoke_run))
}
