//! `logs`: fetches missing log bytes from the hosts and prints this laptop's copies; without a run on the hosts, prints the copies alone.

use crate::cli::args::{LogsArgs, ProgressMode};
use crate::cli::exit::CliError;
use crate::cli::local_env::{hide_known_secrets, print_stderr};
use crate::cli::local_logs::{LocalRuns, print_logs};
use crate::cli::open_session::{LoadMode, load_inventory, open_session};
use crate::cli::output::OutputOptions;
use crate::engine::follow::FollowOutcome;
use crate::event::{Outcome, RunOutcome};
use crate::lifecycle::error::worse_outcome;
use crate::lifecycle::follow::{FollowMode, follow_existing_run};
use crate::lifecycle::log_fetch::fetch_logs;
use crate::lifecycle::session::{Session, collect_facts, find_run_record};
use crate::lifecycle::stop_controller::StopController;
use crate::lifecycle::stop_ladder::InterruptPolicy;
use crate::plan::facts::HostFacts;
use crate::report::log_lines::LogSelection;

pub(crate) async fn run(args: &LogsArgs) -> Result<Outcome, CliError> {
    let (inventory, base) = load_inventory(&args.common, LoadMode::ConnectionOnly)?;
    for host in args.hosts.iter().filter(|_| args.run.is_none()) {
        if inventory.hosts.iter().all(|h| h.name != *host) {
            return Err(CliError::Usage(format!("--host {host}: no such host in the inventory")));
        }
    }
    let secrets = hide_known_secrets(&inventory);
    let past = LocalRuns::new(&inventory.name, &secrets)?;
    let selected = args.run.as_deref().map(|id| past.find(id)).transpose()?;
    if let Some(run) = selected.as_ref().filter(|run| !matches!(run.run_end, None | Some(RunOutcome::Running))) {
        return past.print_run_logs(run, args);
    }
    // Listen before the fetch: a Ctrl-C during it also ends the following.
    let signals =
        if args.follow { Some(StopController::listen(InterruptPolicy::Detach, print_stderr).map_err(anyhow::Error::from)?) } else { None };
    let output = OutputOptions::progress_only(ProgressMode::Plain);
    let mut session = open_session("logs", &args.common, (inventory.clone(), base.clone()), output)?;
    // Sends the host names first: errors while gathering facts are reported under them.
    session.emit_run_started("", None);
    let (facts, outcome) = collect_facts(&session, session.gather_facts(None).await);
    let current = facts.iter().flatten().find_map(|f| f.current_run.clone());
    let Some(run) = current.filter(|run| selected.as_ref().is_none_or(|selected| selected.run == *run)) else {
        let (outcome, _) = session.finish(outcome, "", false).await;
        return past.show_local_copy(selected, args, outcome);
    };
    let offsets = session.open_run_dir(&run, find_run_record(facts.iter().flatten(), &run)).await?;
    session.emit_run_started(&run, None);
    session.emit_run_found(&facts).await;
    let outcome = worse_outcome(fetch_logs(&session, &facts, offsets).await, outcome);
    if let Some(dir) = &session.run_dir {
        let world_size = find_run_record(facts.iter().flatten(), &run).map(|file| file.world_size);
        print_logs(dir, args, session.reporter.sanitizer(), world_size)?;
    }
    let (outcome, _) = session.finish(outcome, "", false).await;
    let Some(signals) = signals.filter(|_| outcome == Outcome::Ok) else { return Ok(outcome) };
    // The copies are printed; a second session prints what is written from now on.
    let ranks = args.ranks();
    let logs = if ranks.is_empty() { LogSelection::All } else { LogSelection::Ranks(ranks) };
    let output = OutputOptions { progress: ProgressMode::Plain, logs, logs_to_stdout: true };
    follow_logs(open_session("logs", &args.common, (inventory, base), output)?, signals, facts, &run).await
}

async fn follow_logs(
    mut session: Session,
    mut signals: StopController,
    facts: Vec<Option<HostFacts>>,
    run: &str,
) -> Result<Outcome, CliError> {
    let facts: Vec<HostFacts> = facts.into_iter().map(Option::unwrap_or_default).collect();
    let (finish, _) = follow_existing_run(&mut session, &facts, run, &mut signals, FollowMode::ReadOnly).await?;
    let outcome = match (finish, signals.first_signal()) {
        (FollowOutcome::Detached, Some(number)) => Outcome::Signal(number),
        _ => Outcome::Ok,
    };
    Ok(session.finish(outcome, "", false).await.0)
}
