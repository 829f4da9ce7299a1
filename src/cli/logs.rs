//! `logs`: fetches missing log bytes from the hosts and prints this laptop's copies; without a run on the hosts, prints the copies alone.

use crate::cli::args::{LogsArgs, ProgressMode};
use crate::cli::exit::CliError;
use crate::cli::local_env::{hide_known_secrets, print_stderr, wait_for_closed_stdout, write_in_thread};
use crate::cli::local_logs::{LocalRuns, LogPrinter, MissingLogs, PrintedLogs};
use crate::cli::open_session::{LoadMode, listen, load_inventory, open_session};
use crate::cli::progress_output::OutputOptions;
use crate::engine::follow::FollowOutcome;
use crate::event::{Outcome, RunControl, RunOutcome};
use crate::lifecycle::error::worse_outcome;
use crate::lifecycle::follow::{FollowMode, follow_existing_run};
use crate::lifecycle::log_fetch::fetch_logs;
use crate::lifecycle::session::{Session, collect_facts, find_run_record};
use crate::lifecycle::stop_controller::StopController;
use crate::lifecycle::stop_ladder::InterruptPolicy;
use crate::plan::existing_run::{HostRunState, host_run_state};
use crate::plan::facts::HostFacts;
use crate::report::log_lines::LogSelection;
use crate::report::past_runs::RunSummary;

pub(crate) async fn run(args: &LogsArgs) -> Result<Outcome, CliError> {
    let (inventory, base) = load_inventory(&args.common, LoadMode::ConnectionOnly)?;
    let hosts: Vec<String> = inventory.hosts.iter().map(|host| host.name.clone()).collect();
    // A past run may have used other hosts.
    let filter = args.ranks().resolve(&hosts, &args.hosts).map_err(CliError::Usage);
    let filter = if args.run.is_none() { Some(filter?) } else { None };
    let secrets = hide_known_secrets(&inventory);
    let past = LocalRuns::new(&inventory.name, &secrets)?;
    let selected = args.run.as_deref().map(|id| past.find(id)).transpose()?;
    if let Some(run) = selected.as_ref().filter(|run| !matches!(run.run_end, None | Some(RunOutcome::Running))) {
        let printer = past.copy_printer(run, args)?;
        return Ok(if printer.print_logs()?.lacks_all_ranks { Outcome::Failed } else { Outcome::Ok });
    }
    // Listen before the fetch: with -f, a Ctrl-C during it also ends the following.
    let policy = if args.follow { InterruptPolicy::Detach } else { InterruptPolicy::Cancel };
    let signals = listen(policy)?;
    let output = OutputOptions::progress_only(ProgressMode::Plain);
    let mut session = open_session("logs", &args.common, (inventory.clone(), base.clone()), output)?;
    let fetched = match signals.run_until_stopped(fetch_run(&mut session, selected.as_ref())).await {
        Ok(fetched) => fetched?,
        Err(outcome) => return Ok(session.disconnect(&signals, outcome).await),
    };
    let FetchedRun { facts, run, outcome } = fetched;
    let printer = match (&run, &session.run_dir) {
        (Some(run), Some(dir)) => {
            let world_size = find_run_record(facts.iter().flatten(), run).map(|file| file.world_size);
            let (sanitizer, will_follow) = (session.reporter.sanitizer().clone(), args.follow && outcome == Outcome::Ok);
            let missing_logs = explain_missing_logs(args, &facts, run, &outcome);
            Ok(LogPrinter { dir: dir.clone(), args: args.clone(), will_follow, sanitizer, world_size, missing_logs })
        }
        _ => Err(past.local_copy(selected, &outcome, &session.suggest_command("up", ""))),
    };
    let outcome = session.finish(outcome, "", false).await;
    let printer = match printer {
        Ok(printer) => printer,
        Err(Ok(copy)) => {
            let printer = past.copy_printer(&copy, args)?;
            printer.check_ranks()?;
            past.announce_copy(&copy, &outcome);
            printer
        }
        Err(Err(outcome)) => return Ok(outcome),
    };
    let PrintedLogs { ends, lacks_all_ranks } = match signals.run_until_stopped(write_in_thread(move || printer.print_logs())).await {
        Ok(printed) => printed??,
        Err(outcome) => return Ok(outcome),
    };
    if lacks_all_ranks && !args.follow {
        return Ok(worse_outcome(Outcome::Failed, outcome));
    }
    let Some(run) = run.filter(|_| args.follow && outcome == Outcome::Ok) else { return Ok(outcome) };
    // The copies are printed; a second session prints what is written from now on.
    let logs = filter.map_or(LogSelection::All, LogSelection::Filtered);
    let output = OutputOptions { progress: ProgressMode::Plain, logs, history_lines: None };
    let mut session = open_session("logs", &args.common, (inventory, base), output)?;
    session.printed_logs = ends;
    follow_logs(session, signals, facts, &run).await
}

fn explain_missing_logs(args: &LogsArgs, facts: &[Option<HostFacts>], run: &str, outcome: &Outcome) -> MissingLogs {
    match outcome {
        Outcome::Ok => {}
        Outcome::Failed => return MissingLogs::Unknown("not started, or not fetched by this laptop"),
        _ => return MissingLogs::Unknown("not started, nothing written yet, or its host did not answer"),
    }
    // A rank may be on another host than those that were asked.
    if args.common.limit.is_some() || !args.hosts.is_empty() {
        return MissingLogs::default();
    }
    let of_run = facts.iter().flatten().filter(|facts| facts.current_run.as_deref() == Some(run));
    MissingLogs::OnHosts { started_ranks: of_run.flat_map(|facts| facts.ranks.iter().map(|(rank, ..)| *rank)).collect() }
}

struct FetchedRun {
    facts: Vec<Option<HostFacts>>,
    /// `None`: the hosts do not have it.
    run: Option<String>,
    outcome: Outcome,
}

async fn fetch_run(session: &mut Session, selected: Option<&RunSummary>) -> Result<FetchedRun, CliError> {
    // Sends the host names first: errors while gathering facts are reported under them.
    session.announce_hosts();
    let (facts, outcome) = collect_facts(session.gather_facts(None).await);
    // Reading the lines by rules takes half of the fetch's time, and `logs` prints no cause: only the report of a failed run needs one.
    if !facts.iter().flatten().any(has_failure) {
        session.reporter.disable_diagnosis();
    }
    let current = facts.iter().flatten().find_map(|f| f.current_run.clone());
    let Some(run) = current.filter(|run| selected.is_none_or(|selected| selected.run == *run)) else {
        return Ok(FetchedRun { facts, run: None, outcome });
    };
    let offsets = session.open_run_dir(&run, find_run_record(facts.iter().flatten(), &run)).await?;
    session.emit_run_started(&run, None);
    session.emit_run_found(&facts);
    let outcome = worse_outcome(fetch_logs(session, &facts, offsets).await, outcome);
    Ok(FetchedRun { facts, run: Some(run), outcome })
}

/// Whether a process of the host's current run has failed.
fn has_failure(facts: &HostFacts) -> bool {
    facts.has_failed_rank() || matches!(host_run_state(facts), HostRunState::Ended(exit) if !exit.is_success())
}

async fn follow_logs(
    mut session: Session,
    mut signals: StopController,
    facts: Vec<Option<HostFacts>>,
    run: &str,
) -> Result<Outcome, CliError> {
    let controls = signals.control_sender.clone();
    let until_closed = async {
        wait_for_closed_stdout().await;
        if let Some(controls) = controls.upgrade()
            && controls.send(RunControl::Detach).await.is_err()
        {
            tracing::debug!("the following has ended");
        }
        std::future::pending::<()>().await;
    };
    let (finish, _) = tokio::select! {
        followed = follow_existing_run(&mut session, &facts, run, &mut signals, FollowMode::ReadOnly) => followed?,
        () = until_closed => return Ok(Outcome::Ok),
    };
    let outcome = match (finish, signals.first_signal()) {
        (FollowOutcome::Detached, Some(number)) => Outcome::Signal(number),
        _ => Outcome::Ok,
    };
    let is_detached = matches!(outcome, Outcome::Signal(_));
    let outcome = session.finish(outcome, "", false).await;
    if is_detached {
        print_stderr("the run keeps running");
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::exit::Exit;

    #[test]
    fn failed_rank_keeps_the_diagnosis() {
        let facts = |exit: Option<i32>| HostFacts { ranks: vec![(0, 0, exit.map(|code| (Exit::Code(code), 1.0)))], ..HostFacts::default() };
        assert_eq!([None, Some(0), Some(1)].map(|exit| has_failure(&facts(exit))), [false, false, true]);
    }
}
