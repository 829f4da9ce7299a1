#![expect(clippy::disallowed_methods, reason = "reads the laptop's log copies")]
//! This laptop's log copies: finds a past run and prints its logs.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, Read as _, Seek as _};

use crate::cli::args::LogsArgs;
use crate::cli::exit::CliError;
use crate::cli::local_env::{LocalEnv, print_stderr, print_stdout};
use crate::event::{LogFile, Outcome};
use crate::lifecycle::error::worse_outcome;
use crate::lifecycle::log_copies::LogEnd;
use crate::report::log_store::LogStoreError;
use crate::report::log_tail::tail_offset;
use crate::report::past_runs::{RunDir, RunSummary, find_run, list_runs, open_logs};
use crate::report::style;
use crate::text::error_chain::error_chain;
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
        find_run(&self.runs, id).cloned().map_err(|candidates| {
            CliError::Usage(match &candidates[..] {
                [] => format!("--run {id}: no such run of {} on this laptop\n    help: `orchestrate runs` lists them", self.name),
                ids => format!("--run {id}: several runs begin with it: {}", ids.join(" ")),
            })
        })
    }

    /// The copy to use for a run that is no longer on the hosts: of the selected run, else of the last one that was on hosts. `Err`: there is
    /// none, or it has no logs.
    /// `up`: the command that launches.
    pub(super) fn local_copy(&self, selected: Option<RunSummary>, outcome: &Outcome, up: &str) -> Result<RunSummary, Outcome> {
        let has_node_list =
            |run: &&RunSummary| self.open_run_dir(run).is_ok_and(|dir| open_logs(dir.path()).is_ok_and(|logs| !logs.hosts().is_empty()));
        let location = searched_hosts(outcome);
        let message = match selected.or_else(|| self.runs.iter().rev().find(has_node_list).cloned()) {
            Some(run) if self.open_run_dir(&run).is_ok_and(|dir| dir.has_logs()) => return Ok(run),
            Some(run) => {
                let reason = missing_log_reason(&run);
                let about = format!("no run of {} is {location}, and this laptop has no logs of {}: {reason}", self.name, run.run);
                format!("{about}\n    help: `orchestrate replay {}` shows what happened, `orchestrate runs` lists other runs", run.run)
            }
            None => {
                let help = match (self.runs.is_empty(), outcome) {
                    (false, _) => "\n    help: `orchestrate runs` lists the runs that this laptop knows".to_owned(),
                    (true, Outcome::Ok) => format!("\n    help: `{up}` launches one"),
                    (true, _) => String::new(),
                };
                format!("no run of {} is {location}, and this laptop has no logs of it{help}", self.name)
            }
        };
        print_stderr(&message);
        Err(worse_outcome(outcome.clone(), Outcome::Failed))
    }

    pub(super) fn announce_copy(&self, run: &RunSummary, outcome: &Outcome) {
        let location = searched_hosts(outcome);
        print_stderr(&format!("no run of {} is {location}: reading this laptop's copy of {}", self.name, run.run));
    }

    /// What prints the copy of a run.
    pub(super) fn copy_printer(&self, run: &RunSummary, args: &LogsArgs) -> Result<LogPrinter, CliError> {
        let world_size = u32::try_from(run.ranks).ok().filter(|ranks| *ranks > 0);
        let missing_logs = MissingLogs::Unknown(missing_log_reason(run));
        let (dir, sanitizer) = (self.open_run_dir(run)?, self.sanitizer.clone());
        Ok(LogPrinter { dir, args: args.clone(), will_follow: false, sanitizer, world_size, missing_logs })
    }

    fn open_run_dir(&self, run: &RunSummary) -> Result<RunDir, CliError> {
        RunDir::open(&self.local_env.state_dir, &run.run)
            .map_err(|e| CliError::Usage(format!("{}: {e}", self.local_env.state_dir.display())))
    }
}

/// Why this laptop may have no log of a rank.
fn missing_log_reason(run: &RunSummary) -> &'static str {
    if run.run_end.is_none() { "it started no rank" } else { "not started, or not fetched by this laptop" }
}

/// Where the run is not; `outcome`: of the search.
fn searched_hosts(outcome: &Outcome) -> &'static str {
    if *outcome == Outcome::Ok { "on any host" } else { "on the hosts that answered" }
}

/// A longer line is printed in parts.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// What was printed.
#[derive(Debug, Default)]
pub(super) struct PrintedLogs {
    /// How far: a last line without an end is left to what follows.
    pub(super) ends: Vec<LogEnd>,
    /// Whether ranks were asked for and none of them has a log, nor runs without having written one.
    pub(super) lacks_all_ranks: bool,
}

/// Prints the selected logs of a run directory.
pub(super) struct LogPrinter {
    pub(super) dir: RunDir,
    pub(super) args: LogsArgs,
    /// Whether the run is followed afterwards, from the ends that `print` returns.
    pub(super) will_follow: bool,
    pub(super) sanitizer: Sanitizer,
    /// If known, `--rank` is checked against it.
    pub(super) world_size: Option<u32>,
    pub(super) missing_logs: MissingLogs,
}

/// Why a rank of the run may have no log.
pub(super) enum MissingLogs {
    /// The run is on hosts, and all of them have answered.
    OnHosts { started_ranks: BTreeSet<u32> },
    /// No more is known than this.
    Unknown(&'static str),
}

impl Default for MissingLogs {
    fn default() -> Self {
        MissingLogs::Unknown("not started, or nothing written yet")
    }
}

impl MissingLogs {
    fn has_started(&self, rank: u32) -> bool {
        matches!(self, MissingLogs::OnHosts { started_ranks } if started_ranks.contains(&rank))
    }

    /// `rank`: `None` where no rank of the run has a log.
    fn reason(&self, rank: Option<u32>) -> &'static str {
        match self {
            MissingLogs::Unknown(reason) => reason,
            MissingLogs::OnHosts { started_ranks } if rank.map_or(!started_ranks.is_empty(), |rank| started_ranks.contains(&rank)) => {
                "nothing written yet"
            }
            MissingLogs::OnHosts { started_ranks: _ } => "not started",
        }
    }
}

impl LogPrinter {
    /// # Errors
    /// A rank that the run does not have.
    pub(super) fn check_ranks(&self) -> Result<(), CliError> {
        let Some(size) = self.world_size else { return Ok(()) };
        let selection = self.args.ranks();
        let Some(rank) = selection.numbers().iter().find(|rank| **rank >= size) else { return Ok(()) };
        Err(CliError::Usage(match size {
            0 => format!("--rank {rank}: the latest run has no ranks: `prepare` ran its tasks alone; `--run RUN` chooses another"),
            size => format!("--rank {rank}: run {} has ranks 0-{}", self.dir.run_id(), size - 1),
        }))
    }

    /// Prints the logs. Blocks while a pipe holds it up.
    ///
    /// # Errors
    /// A selection that the run does not have, or logs that cannot be read.
    pub(super) fn print_logs(&self) -> Result<PrintedLogs, CliError> {
        let store_error = |e: LogStoreError| CliError::Usage(error_chain(&e));
        let mut store = open_logs(self.dir.path()).map_err(store_error)?;
        let hosts = store.hosts().to_vec();
        self.check_ranks()?;
        let selection = self.args.ranks();
        let filter = selection.resolve(&hosts, &self.args.hosts).map_err(CliError::Usage)?;
        let mut without_log = selection.numbers().clone();
        let (mut is_cut, mut ends) = (false, Vec::new());
        for (index, host) in (0..).zip(&hosts) {
            let mut files: Vec<LogFile> = store.log_lengths(host).map_err(store_error)?.into_iter().map(|(file, _)| file).collect();
            files.sort();
            for file in files {
                let prefix = match file {
                    LogFile::Launcher if filter.selects_launcher(index) => format!("[launcher {host}] "),
                    LogFile::Rank { rank, .. } if filter.selects_rank(index, rank) => {
                        without_log.remove(&rank);
                        format!("[rank {rank} {host}] ")
                    }
                    LogFile::Task { number } if filter.selects_launcher(index) => format!("[task {number} {host}] "),
                    LogFile::Launcher | LogFile::Rank { .. } | LogFile::Task { .. } => continue,
                };
                let Some(Ok(input)) = store.path(host, file).map(std::fs::File::open) else { continue };
                let start = self.start_offset(&input).map_err(anyhow::Error::from)?;
                is_cut |= start > 0;
                let offset = self.print_from(input, start, &self.sanitizer.sanitize_line(&prefix)).map_err(anyhow::Error::from)?;
                ends.push(LogEnd { host: host.clone(), file, offset });
            }
        }
        let place = if self.args.hosts.is_empty() { "" } else { " on these hosts" };
        let has_started = without_log.iter().any(|rank| self.missing_logs.has_started(*rank));
        let mut by_reason: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for rank in without_log {
            by_reason.entry(self.missing_logs.reason(Some(rank))).or_default().push(rank);
        }
        for (reason, ranks) in by_reason {
            print_stderr(&format!("no logs of {}{place}: {reason}", style::format_ranks(&ranks)));
        }
        if ends.is_empty() && selection.numbers().is_empty() && !self.will_follow {
            print_stderr(&format!("no logs{place}: {}", self.missing_logs.reason(None)));
            print_stderr(match self.args.run.is_none() && !self.args.follow {
                true => {
                    "    help: `-f` waits for the lines of a live run; `orchestrate runs` lists other runs, `--run RUN` prints their logs"
                }
                false => "    help: `orchestrate runs` lists other runs, `--run RUN` prints their logs",
            });
        }
        if is_cut && self.args.tail.is_none() {
            print_stderr("earlier log lines are not shown: `--tail all` prints all");
        }
        let lacks_all_ranks = ends.is_empty() && !selection.numbers().is_empty() && !has_started;
        Ok(PrintedLogs { ends, lacks_all_ranks })
    }

    fn start_offset(&self, input: &std::fs::File) -> std::io::Result<u64> {
        match self.args.tail_line_count() {
            None => Ok(0),
            Some(0) if self.will_follow => {
                // No line that is there, but all of the one that has no end yet.
                let last_line = tail_offset(input, 1, MAX_LINE_BYTES)?;
                let mut last = Vec::new();
                (&mut &*input).seek(std::io::SeekFrom::Start(last_line))?;
                input.take(MAX_LINE_BYTES).read_to_end(&mut last)?;
                Ok(if last.ends_with(b"\n") { last_line + last.len() as u64 } else { last_line })
            }
            Some(lines) => tail_offset(input, lines, u64::MAX),
        }
    }

    /// Prints a log from an offset; returns the offset after the last printed byte.
    fn print_from(&self, mut input: std::fs::File, start: u64, prefix: &str) -> std::io::Result<u64> {
        input.seek(std::io::SeekFrom::Start(start))?;
        let mut reader = std::io::BufReader::new(input);
        let mut end = start;
        let mut line = Vec::new();
        loop {
            line.clear();
            // A longer line is cut, so that memory is bounded.
            let count = reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? as u64;
            let is_unfinished = !line.ends_with(b"\n") && count < MAX_LINE_BYTES;
            if count == 0 || is_unfinished && self.will_follow {
                return Ok(end);
            }
            end += count;
            print_stdout(&format!("{prefix}{}\n", self.sanitizer.sanitize_line(&String::from_utf8_lossy(&line))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_logs_are_explained() {
        let some = MissingLogs::OnHosts { started_ranks: BTreeSet::from([0, 2]) };
        assert_eq!([Some(2), Some(1), None].map(|rank| some.reason(rank)), ["nothing written yet", "not started", "nothing written yet"]);
        let none = MissingLogs::OnHosts { started_ranks: BTreeSet::new() };
        assert_eq!(none.reason(None), "not started");
    }
}
