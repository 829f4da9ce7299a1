//! `down`: fetches what this laptop lacks, then stops and removes everything of a name, and verifies it.

use std::path::PathBuf;

use crate::cli::args::{DownArgs, ProgressMode};
use crate::cli::exit::CliError;
use crate::cli::local_env::print_stderr;
use crate::cli::open_session::{LoadMode, load_inventory, open_session};
use crate::cli::output::OutputOptions;
use crate::event::Outcome;
use crate::inventory::Inventory;
use crate::inventory::smoke_test::SmokeTest;
use crate::lifecycle::down::{DownReport, DownRequest, tear_down_all};
use crate::lifecycle::error::worse_outcome;

pub(crate) async fn run(args: &DownArgs) -> Result<Outcome, CliError> {
    if args.common.progress == ProgressMode::Tui {
        return Err(CliError::Usage("--progress tui: for `up` and `attach`; `down` shows bars or lines".to_owned()));
    }
    let (inventory, base) = load_inventory(&args.common, LoadMode::ConnectionOnly)?;
    let (outcome, smoke) = tear_down_inventory(args, inventory.clone(), base.clone()).await?;
    if !smoke {
        return Ok(outcome);
    }
    // A `check --smoke` that was killed leaves a run of its own.
    let own = inventory.smoke_test_inventory(&SmokeTest { command: &[], port: None, nproc: None });
    Ok(worse_outcome(tear_down_inventory(args, own, base).await?.0, outcome))
}

/// Clears one name away; whether a smoke of it is there.
async fn tear_down_inventory(args: &DownArgs, inventory: Inventory, base: PathBuf) -> Result<(Outcome, bool), CliError> {
    let output = OutputOptions::progress_only(args.common.progress);
    let mut session = open_session("down", &args.common, (inventory, base), output)?;
    session.emit_run_started("", None);
    let again = session.suggest_command("down", "");
    // A terminal that goes away does not break a teardown off.
    let _hangup = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).map_err(anyhow::Error::from)?;
    let request = DownRequest {
        limited: args.common.limit.is_some(),
        discard_logs: args.discard_logs,
        kill_at_once: args.kill,
        lock_wait: args.lock_wait,
        take_over_lock: args.common.yes,
        dry_run: args.dry_run,
    };
    let DownReport { end, has_smoke_run } = tokio::select! {
        report = tear_down_all(&mut session, &request) => report?,
        number = wait_for_interrupt() => {
            print_stderr(&format!("interrupted; to finish:\n    {again}"));
            return Ok((Outcome::Signal(number), false));
        }
    };
    if args.dry_run {
        print_stderr(&end.reason);
    }
    Ok((session.finish(end.outcome, &end.reason, !args.dry_run).await.0, has_smoke_run))
}

/// The number of the first signal that asks this process to end.
async fn wait_for_interrupt() -> i32 {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => 2,
        _ = terminate.recv() => 15,
    }
}
