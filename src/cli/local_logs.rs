#![expect(clippy::disallowed_methods, reason = "reads the laptop's log copies")]
//! This laptop's log copies: finds a past run and prints its logs.

use std::io::BufRead;

use crate::cli::args::LogsArgs;
use crate::cli::exit::CliError;
use crate::cli::local_env::{LocalEnv, print_stderr, print_stdout};
use crate::event::{LogFile, Outcome};
use crate::lifecycle::error::worse_outcome;
use crate::lifecycle::reporter_task::error_chain;
use crate::report::log_store::{LogStore, LogStoreError};
use crate::report::past_runs::{RunDir, RunSummary, list_runs, open_logs};
use crate::report::style;
use crate::text::sanitize::Sanitizer;

/// The past runs of an inventory on this laptop.
pub(super) struct LocalRuns {
    local_env: LocalEnv,
    name: String,
    runs: Vec<RunSummary>,
    sanitizer: Sanitizer,
}

impl LocalRuns {
    pub(super) fn new(name: &str, secrets: &[String]) -> Result<LocalRuns, CliError> {
        let local_env = LocalEnv::read()?;
        let runs = list_runs(&local_env.state_dir).map_err(|e| CliError::Usage(format!("{}: {e}", local_env.state_dir.display())))?;
        let runs = runs.into_iter().filter(|run| run.name == name).collect();
        Ok(LocalRuns { local_env, name: name.to_owned(), runs, sanitizer: Sanitizer::new(secrets) })
    }

    /// Finds a run by its id or a unique prefix.
    pub(super) fn find(&self, id: &str) -> Result<RunSummary, CliError> {
        let matches: Vec<&RunSummary> = self.runs.iter().filter(|run| run.run.starts_with(id)).collect();
        match (self.runs.iter().find(|run| run.run == id), &matches[..]) {
            (Some(run), _) => Ok(run.clone()),
            (None, [one]) => Ok((*one).clone()),
            (None, []) => Err(CliError::Usage(format!(
                "--run {id}: no such run of {} on this laptop\n    help: `orchestrate runs` lists them",
                self.name
            ))),
            (None, candidates) => {
                let ids: Vec<&str> = candidates.iter().map(|run| run.run.as_str()).collect();
                Err(CliError::Usage(format!("--run {id}: several runs begin with it: {}", ids.join(" "))))
            }
        }
    }

    /// Prints this laptop's copy for a run that is no longer on the hosts; without a selected run, the last one that has logs.
    pub(super) fn show_local_copy(&self, selected: Option<RunSummary>, args: &LogsArgs, outcome: Outcome) -> Result<Outcome, CliError> {
        let has_logs =
            |run: &&RunSummary| self.open_run_dir(run).is_ok_and(|dir| open_logs(dir.path()).is_ok_and(|logs| !logs.hosts().is_empty()));
        let location = if outcome == Outcome::Ok { "on any host" } else { "on the hosts that answered" };
        let Some(run) = selected.or_else(|| self.runs.iter().rev().find(has_logs).cloned()) else {
            print_stderr(&format!("no run of {} is {location}, and this laptop has no logs of it", self.name));
            return Ok(worse_outcome(outcome, Outcome::Failed));
        };
        print_stderr(&format!("no run of {} is {location}: printing this laptop's copy of {}", self.name, run.run));
        Ok(worse_outcome(self.print_run_logs(&run, args)?, outcome))
    }

    fn open_run_dir(&self, run: &RunSummary) -> Result<RunDir, CliError> {
        RunDir::open(&self.local_env.state_dir, &run.run)
            .map_err(|e| CliError::Usage(format!("{}: {e}", self.local_env.state_dir.display())))
    }

    pub(super) fn print_run_logs(&self, run: &RunSummary, args: &LogsArgs) -> Result<Outcome, CliError> {
        let size = u32::try_from(run.ranks).ok().filter(|ranks| *ranks > 0);
        print_logs(&self.open_run_dir(run)?, args, &self.sanitizer, size)?;
        Ok(Outcome::Ok)
    }
}

/// `world_size`: if known, `--rank` is checked against it.
pub(super) fn print_logs(dir: &RunDir, args: &LogsArgs, sanitizer: &Sanitizer, world_size: Option<u32>) -> Result<(), CliError> {
    let store_error = |e: LogStoreError| CliError::Usage(error_chain(&e));
    let mut store = open_logs(dir.path()).map_err(store_error)?;
    let (hosts, ranks) = (store.hosts().to_vec(), args.ranks());
    if let Some(rank) = ranks.iter().find(|rank| world_size.is_some_and(|size| **rank >= size)) {
        let last = world_size.unwrap_or_default().saturating_sub(1);
        return Err(CliError::Usage(format!("--rank {rank}: the run has ranks 0-{last}")));
    }
    if let Some(host) = args.hosts.iter().find(|host| !hosts.contains(host)) {
        return Err(CliError::Usage(format!("--host {host}: the run used {}", hosts.join(" "))));
    }
    let mut without_log = ranks.clone();
    for host in hosts.iter().filter(|host| args.hosts.is_empty() || args.hosts.contains(host)) {
        let mut files: Vec<LogFile> = store.log_lengths(host).map_err(store_error)?.into_iter().map(|(file, _)| file).collect();
        files.sort();
        for file in files {
            let prefix = match file {
                LogFile::Launcher if ranks.is_empty() => format!("[node {host}] "),
                LogFile::Rank { rank, .. } if ranks.is_empty() || ranks.contains(&rank) => {
                    without_log.remove(&rank);
                    format!("[rank {rank} {host}] ")
                }
                LogFile::Launcher | LogFile::Rank { .. } => continue,
            };
            print_log_file(&store, (host, file), &sanitizer.sanitize_line(&prefix), args.tail, sanitizer)?;
        }
    }
    if !without_log.is_empty() {
        let ranks: Vec<u32> = without_log.into_iter().collect();
        print_stderr(&format!("no logs of {}{}", style::format_ranks(&ranks), if args.hosts.is_empty() { "" } else { " on these hosts" }));
    }
    Ok(())
}

fn print_log_file(
    store: &LogStore,
    (host, file): (&str, LogFile),
    prefix: &str,
    tail: Option<usize>,
    sanitizer: &Sanitizer,
) -> Result<(), CliError> {
    let mut print_line = |line: &[u8]| print_stdout(&format!("{prefix}{}\n", sanitizer.sanitize_line(&String::from_utf8_lossy(line))));
    if let Some(lines) = tail {
        let bytes = store.tail(host, file, lines).map_err(|e| CliError::Usage(e.to_string()))?;
        bytes.strip_suffix(b"\n").unwrap_or(&bytes).split(|b| *b == b'\n').filter(|_| !bytes.is_empty()).for_each(&mut print_line);
        return Ok(());
    }
    let Some(Ok(file)) = store.path(host, file).map(std::fs::File::open) else { return Ok(()) };
    let mut reader = std::io::BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        // A longer line is cut at 1 MiB, so that memory is bounded.
        let count = std::io::Read::take(&mut reader, 1 << 20).read_until(b'\n', &mut line).map_err(anyhow::Error::from)?;
        if count == 0 {
            return Ok(());
        }
        print_line(&line);
    }
}
