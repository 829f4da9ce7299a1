#![expect(clippy::disallowed_methods, reason = "prints from the laptop's copies")]
//! `logs`: what the ranks wrote, read from the hosts; this laptop's copies spare what is here already, and are shown where the hosts have no run
//! any more.

use std::io::BufRead;

use crate::cli::args::{LogsArgs, ProgressMode};
use crate::cli::exit::CliError;
use crate::cli::local_env::{LocalEnv, hide_known_secrets, print_stderr, print_stdout};
use crate::cli::open_session::{LoadMode, load_inventory, open_session};
use crate::cli::output::OutputOptions;
use crate::engine::follow::FollowOutcome;
use crate::event::{LogFile, Outcome, RunOutcome};
use crate::lifecycle::error::worse_outcome;
use crate::lifecycle::follow::{FollowMode, follow_existing_run};
use crate::lifecycle::log_fetch::fetch_logs;
use crate::lifecycle::reporter_task::error_chain;
use crate::lifecycle::session::{Session, collect_facts, find_run_record};
use crate::lifecycle::stop_controller::StopController;
use crate::lifecycle::stop_ladder::InterruptPolicy;
use crate::plan::facts::HostFacts;
use crate::report::log_filter::LogSelection;
use crate::report::log_store::{LogError, LogStore};
use crate::report::runs::{RunDir, RunSummary, list_runs, open_logs};
use crate::report::style;
use crate::text::sanitize::Sanitizer;

/// Runs it.
///
/// # Errors
/// What must be said to the person.
pub async fn run(args: &LogsArgs) -> Result<Outcome, CliError> {
    let (inventory, base) = load_inventory(&args.common, LoadMode::ConnectionOnly)?;
    for host in args.hosts.iter().filter(|_| args.run.is_none()) {
        if inventory.hosts.iter().all(|h| h.name != *host) {
            return Err(CliError::Usage(format!("--host {host}: no such host in the inventory")));
        }
    }
    let secrets = hide_known_secrets(&inventory);
    let past = LocalRuns::new(&inventory.name, &secrets)?;
    let wanted = args.run.as_deref().map(|id| past.find(id)).transpose()?;
    if let Some(run) = wanted.as_ref().filter(|run| !matches!(run.run_end, None | Some(RunOutcome::Running))) {
        return past.print_run(run, args);
    }
    // From now on, so that a Ctrl-C meanwhile ends the following before it begins.
    let signals =
        if args.follow { Some(StopController::listen(InterruptPolicy::Detach, print_stderr).map_err(anyhow::Error::from)?) } else { None };
    let output = OutputOptions::progress_only(ProgressMode::Plain);
    let mut session = open_session("logs", &args.common, (inventory.clone(), base.clone()), output)?;
    // The names of the hosts come first: what goes wrong meanwhile is reported under them.
    session.emit_run_started("", None);
    let (facts, outcome) = collect_facts(&session, session.gather_facts(None).await);
    let current = facts.iter().flatten().find_map(|f| f.current_run.clone());
    let Some(run) = current.filter(|run| wanted.as_ref().is_none_or(|wanted| wanted.run == *run)) else {
        let (unreached, _) = session.finish(outcome, "", false).await;
        return past.show_local_copy(wanted, args, unreached);
    };
    let offsets = session.open_run_dir(&run, find_run_record(facts.iter().flatten(), &run)).await?;
    session.emit_run_started(&run, None);
    session.emit_run_found(&facts).await;
    let outcome = worse_outcome(fetch_logs(&session, &facts, offsets).await, outcome);
    if let Some(dir) = &session.run_dir {
        let size = find_run_record(facts.iter().flatten(), &run).map(|file| file.world_size);
        print_logs(dir, args, session.reporter.sanitizer(), size)?;
    }
    let (outcome, _) = session.finish(outcome, "", false).await;
    let Some(signals) = signals.filter(|_| outcome == Outcome::Ok) else { return Ok(outcome) };
    // What is there was shown from this laptop's copies: a second session shows what comes after it.
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

/// The runs of an inventory that this laptop knows.
struct LocalRuns {
    local_env: LocalEnv,
    name: String,
    runs: Vec<RunSummary>,
    sanitizer: Sanitizer,
}

impl LocalRuns {
    fn new(name: &str, secrets: &[String]) -> Result<LocalRuns, CliError> {
        let laptop = LocalEnv::read()?;
        let runs = list_runs(&laptop.state_dir).map_err(|e| CliError::Usage(format!("{}: {e}", laptop.state_dir.display())))?;
        let runs = runs.into_iter().filter(|run| run.name == name).collect();
        Ok(LocalRuns { local_env: laptop, name: name.to_owned(), runs, sanitizer: Sanitizer::new(secrets) })
    }

    /// The run that is named, or that alone begins so.
    fn find(&self, id: &str) -> Result<RunSummary, CliError> {
        let begin: Vec<&RunSummary> = self.runs.iter().filter(|run| run.run.starts_with(id)).collect();
        match (self.runs.iter().find(|run| run.run == id), &begin[..]) {
            (Some(run), _) => Ok(run.clone()),
            (None, [one]) => Ok((*one).clone()),
            (None, []) => Err(CliError::Usage(format!(
                "--run {id}: no such run of {} on this laptop\n    help: `orchestrate runs` lists them",
                self.name
            ))),
            (None, several) => {
                let all: Vec<&str> = several.iter().map(|run| run.run.as_str()).collect();
                Err(CliError::Usage(format!("--run {id}: several runs begin with it: {}", all.join(" "))))
            }
        }
    }

    /// The hosts have no such run any more: this laptop's copy is shown, of the last run where none is named.
    fn show_local_copy(&self, wanted: Option<RunSummary>, args: &LogsArgs, outcome: Outcome) -> Result<Outcome, CliError> {
        let has_logs =
            |run: &&RunSummary| self.open_run_dir(run).is_ok_and(|dir| open_logs(dir.path()).is_ok_and(|logs| !logs.hosts().is_empty()));
        let place = if outcome == Outcome::Ok { "on any host" } else { "on the hosts that answered" };
        let Some(run) = wanted.or_else(|| self.runs.iter().rev().find(has_logs).cloned()) else {
            print_stderr(&format!("no run of {} is {place}, and this laptop has no logs of one", self.name));
            return Ok(worse_outcome(outcome, Outcome::Failed));
        };
        print_stderr(&format!("no run of {} is {place}: these are this laptop's copies of {}", self.name, run.run));
        Ok(worse_outcome(self.print_run(&run, args)?, outcome))
    }

    fn open_run_dir(&self, run: &RunSummary) -> Result<RunDir, CliError> {
        RunDir::open(&self.local_env.state_dir, &run.run)
            .map_err(|e| CliError::Usage(format!("{}: {e}", self.local_env.state_dir.display())))
    }

    fn print_run(&self, run: &RunSummary, args: &LogsArgs) -> Result<Outcome, CliError> {
        let size = u32::try_from(run.ranks).ok().filter(|ranks| *ranks > 0);
        print_logs(&self.open_run_dir(run)?, args, &self.sanitizer, size)?;
        Ok(Outcome::Ok)
    }
}

/// Prints this laptop's copies. `size`: how many ranks the run has, where that is known.
fn print_logs(dir: &RunDir, args: &LogsArgs, cleaner: &Sanitizer, size: Option<u32>) -> Result<(), CliError> {
    let cannot = |e: LogError| CliError::Usage(error_chain(&e));
    let mut store = open_logs(dir.path()).map_err(cannot)?;
    let (hosts, wanted) = (store.hosts().to_vec(), args.ranks());
    if let Some(rank) = wanted.iter().find(|rank| size.is_some_and(|size| **rank >= size)) {
        let last = size.unwrap_or_default().saturating_sub(1);
        return Err(CliError::Usage(format!("--rank {rank}: the run has ranks 0-{last}")));
    }
    if let Some(host) = args.hosts.iter().find(|host| !hosts.contains(host)) {
        return Err(CliError::Usage(format!("--host {host}: the run was on {}", hosts.join(" "))));
    }
    let mut silent = wanted.clone();
    for host in hosts.iter().filter(|host| args.hosts.is_empty() || args.hosts.contains(host)) {
        let mut files: Vec<LogFile> = store.log_lengths(host).map_err(cannot)?.into_iter().map(|(file, _)| file).collect();
        files.sort();
        for file in files {
            let prefix = match file {
                LogFile::Launcher if wanted.is_empty() => format!("[node {host}] "),
                LogFile::Rank { rank, .. } if wanted.is_empty() || wanted.contains(&rank) => {
                    silent.remove(&rank);
                    format!("[rank {rank} {host}] ")
                }
                LogFile::Launcher | LogFile::Rank { .. } => continue,
            };
            print_log_file(&store, (host, file), &cleaner.sanitize_line(&prefix), args.tail, cleaner)?;
        }
    }
    if !silent.is_empty() {
        let ranks: Vec<u32> = silent.into_iter().collect();
        print_stderr(&format!(
            "{} wrote nothing{}",
            style::format_ranks(&ranks),
            if args.hosts.is_empty() { "" } else { " on these hosts" }
        ));
    }
    Ok(())
}

fn print_log_file(
    store: &LogStore,
    (host, file): (&str, LogFile),
    prefix: &str,
    tail: Option<usize>,
    cleaner: &Sanitizer,
) -> Result<(), CliError> {
    let mut one = |line: &[u8]| print_stdout(&format!("{prefix}{}\n", cleaner.sanitize_line(&String::from_utf8_lossy(line))));
    if let Some(lines) = tail {
        let bytes = store.tail(host, file, lines).map_err(|e| CliError::Usage(e.to_string()))?;
        bytes.strip_suffix(b"\n").unwrap_or(&bytes).split(|b| *b == b'\n').filter(|_| !bytes.is_empty()).for_each(&mut one);
        return Ok(());
    }
    let Some(Ok(open)) = store.path(host, file).map(std::fs::File::open) else { return Ok(()) };
    let mut reader = std::io::BufReader::new(open);
    let mut line = Vec::new();
    loop {
        line.clear();
        // A line without an end is cut at 1 MiB: memory is bounded.
        let read = std::io::Read::take(&mut reader, 1 << 20).read_until(b'\n', &mut line).map_err(anyhow::Error::from)?;
        if read == 0 {
            return Ok(());
        }
        one(&line);
    }
}
