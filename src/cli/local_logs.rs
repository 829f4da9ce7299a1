#![expect(clippy::disallowed_methods, reason = "prints from the laptop's copies")]
//! This laptop's copies of logs: finds a past run, prints what its ranks wrote.

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

/// The runs of an inventory that this laptop knows.
pub(super) struct LocalRuns {
    local_env: LocalEnv,
    name: String,
    runs: Vec<RunSummary>,
    sanitizer: Sanitizer,
}

impl LocalRuns {
    pub(super) fn new(name: &str, secrets: &[String]) -> Result<LocalRuns, CliError> {
        let laptop = LocalEnv::read()?;
        let runs = list_runs(&laptop.state_dir).map_err(|e| CliError::Usage(format!("{}: {e}", laptop.state_dir.display())))?;
        let runs = runs.into_iter().filter(|run| run.name == name).collect();
        Ok(LocalRuns { local_env: laptop, name: name.to_owned(), runs, sanitizer: Sanitizer::new(secrets) })
    }

    /// The run that is named, or that alone begins so.
    pub(super) fn find(&self, id: &str) -> Result<RunSummary, CliError> {
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
    pub(super) fn show_local_copy(&self, wanted: Option<RunSummary>, args: &LogsArgs, outcome: Outcome) -> Result<Outcome, CliError> {
        let has_logs =
            |run: &&RunSummary| self.open_run_dir(run).is_ok_and(|dir| open_logs(dir.path()).is_ok_and(|logs| !logs.hosts().is_empty()));
        let place = if outcome == Outcome::Ok { "on any host" } else { "on the hosts that answered" };
        let Some(run) = wanted.or_else(|| self.runs.iter().rev().find(has_logs).cloned()) else {
            print_stderr(&format!("no run of {} is {place}, and this laptop has no logs of one", self.name));
            return Ok(worse_outcome(outcome, Outcome::Failed));
        };
        print_stderr(&format!("no run of {} is {place}: these are this laptop's copies of {}", self.name, run.run));
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

/// Prints this laptop's copies. `size`: how many ranks the run has, where that is known.
pub(super) fn print_logs(dir: &RunDir, args: &LogsArgs, sanitizer: &Sanitizer, size: Option<u32>) -> Result<(), CliError> {
    let cannot = |e: LogStoreError| CliError::Usage(error_chain(&e));
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
            print_log_file(&store, (host, file), &sanitizer.sanitize_line(&prefix), args.tail, sanitizer)?;
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
    sanitizer: &Sanitizer,
) -> Result<(), CliError> {
    let mut one = |line: &[u8]| print_stdout(&format!("{prefix}{}\n", sanitizer.sanitize_line(&String::from_utf8_lossy(line))));
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
