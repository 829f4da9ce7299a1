#![expect(clippy::disallowed_methods, reason = "owns the folders of past runs on the laptop")]
//! Past runs on the laptop, one directory each: `report.json`, listing and pruning.
//!
//! Everything here is what this laptop has seen of a run; no host is contacted.

use std::borrow::Cow;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::diagnose::DiagnosisFinding;
use crate::event::{EventKind, LogFile, Outcome, RunOutcome, UnixMillis};
use crate::state::RunState;

use super::journal::{JOURNAL_FILE, JournalReader, SAMPLES_FILE};
use super::log_store::{LogStore, LogStoreError};
use super::private_files::{make_dir, private_options};
use super::run_report::{RunReport, build_report, merge_reports};
use crate::text::plural::count_noun;
use crate::text::sanitize::Sanitizer;

pub const REPORT_FILE: &str = "report.json";
/// How many events of a journal are read to identify the run.
const MAX_HEAD_EVENTS: usize = 1000;

/// The directory of one run: `<state dir>/runs/<run id>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunDir {
    path: PathBuf,
}

impl RunDir {
    /// Opens the directory of `run`; a missing one is created for this user only.
    ///
    /// # Errors
    /// If the run id is invalid (it may come from a host), or the directory cannot be created.
    pub fn open(state_dir: &Path, run: &str) -> io::Result<Self> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if run.is_empty() || run.len() > 128 || run.starts_with('.') || !run.chars().all(is_allowed) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{run:?} is not a valid run id")));
        }
        let path = state_dir.join("runs").join(run);
        make_dir(&path)?;
        Ok(RunDir { path })
    }

    /// Whether this is the directory of `run`.
    pub fn belongs_to(&self, run: &str) -> bool {
        !run.is_empty() && self.path.file_name().is_some_and(|name| name == run)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn run_id(&self) -> Cow<'_, str> {
        self.path.file_name().unwrap_or_default().to_string_lossy()
    }

    /// Keeps the log of a job on SLURM beside those of its ranks.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub(crate) fn write_job_log(&self, job: u64, bytes: &[u8]) -> io::Result<()> {
        let path = self.path.join(format!("job-{job}.log"));
        private_options(OpenOptions::new().write(true).create(true).truncate(true)).open(path)?.write_all(bytes)
    }

    pub fn logs_dir(&self) -> PathBuf {
        self.path.join("logs")
    }

    /// Whether the copy of any log is there.
    pub fn has_logs(&self) -> bool {
        let is_log = |entry: io::Result<fs::DirEntry>| entry.is_ok_and(|entry| entry.file_name().as_encoded_bytes().ends_with(b".log"));
        fs::read_dir(self.logs_dir()).is_ok_and(|mut entries| entries.any(is_log))
    }

    /// Opens the logs for writing. Files are named after the node list in the directory; if there is none, `hosts` (the hosts of the run's
    /// record, in node-rank order) becomes that list.
    ///
    /// # Errors
    /// When the directory cannot be read or written.
    pub fn open_logs_for_writing(&self, hosts: &[String]) -> Result<LogStore, LogStoreError> {
        let mut logs = open_logs(&self.path)?;
        logs.set_default_hosts(hosts);
        logs.save_node_list()?;
        Ok(logs)
    }
}

/// Opens the logs of the run in this directory. A missing node list is derived, not written.
///
/// # Errors
/// When the directory cannot be read.
pub fn open_logs(run_dir: &Path) -> Result<LogStore, LogStoreError> {
    let mut logs = LogStore::open(&run_dir.join("logs"))?;
    // Earlier versions numbered logs by the hosts of the inventory of the run's first command.
    if !logs.has_node_list() && !logs.list_files()?.is_empty() {
        logs.set_default_hosts(&read_first_command_hosts(run_dir));
    }
    Ok(logs)
}

/// Reads stored logs.
pub trait StoredLogs: Send {
    /// Length of the log in bytes.
    ///
    /// # Errors
    /// If the file exists and cannot be read.
    fn len(&self, host: &str, file: LogFile) -> io::Result<u64>;

    /// Up to `most` bytes starting at `from`.
    ///
    /// # Errors
    /// If the file cannot be read.
    fn read(&self, host: &str, file: LogFile, from: u64, most: usize) -> io::Result<Vec<u8>>;
}

/// The laptop's log copies in a run directory.
pub struct RunDirLogs(pub PathBuf);

impl StoredLogs for RunDirLogs {
    fn len(&self, host: &str, file: LogFile) -> io::Result<u64> {
        open_logs(&self.0).and_then(|mut logs| logs.log_len(host, file)).map_err(io::Error::other)
    }

    fn read(&self, host: &str, file: LogFile, from: u64, most: usize) -> io::Result<Vec<u8>> {
        open_logs(&self.0).and_then(|logs| logs.read_at(host, file, from, most)).map_err(io::Error::other)
    }
}

/// The hosts of the first operation in a journal; empty if there is no journal.
fn read_first_command_hosts(run_dir: &Path) -> Vec<String> {
    let Ok(mut reader) = JournalReader::open(&run_dir.join(JOURNAL_FILE)) else { return Vec::new() };
    for _ in 0..MAX_HEAD_EVENTS {
        match reader.next_event() {
            Ok(Some(event)) => {
                if let EventKind::RunStarted(info) = event.kind
                    && !info.hosts.is_empty()
                {
                    return info.hosts;
                }
            }
            Ok(None) | Err(_) => break,
        }
    }
    Vec::new()
}

/// Writes `report.json` atomically.
///
/// # Errors
/// When the disk does not take it.
pub fn write_report(dir: &RunDir, state: &RunState, findings: &[DiagnosisFinding], sanitizer: &Sanitizer) -> io::Result<()> {
    let before = fs::read_to_string(dir.path.join(REPORT_FILE)).ok().and_then(|text| serde_json::from_str::<RunReport>(&text).ok());
    let merged = merge_reports(before, build_report(state, findings));
    let text = sanitizer.mask_json(serde_json::to_string_pretty(&merged)?);
    let draft = dir.path.join(".report.json");
    let mut file = private_options(OpenOptions::new().write(true).create(true).truncate(true)).open(&draft)?;
    file.write_all(text.as_bytes())?;
    file.write_all(b"\n")?;
    fs::rename(&draft, dir.path.join(REPORT_FILE))
}

/// A row of `runs`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RunSummary {
    pub run: String,
    pub name: String,
    /// The last operation that launched, followed or ended the run.
    pub command: String,
    pub began: Option<UnixMillis>,
    /// How long the run took, in milliseconds; `None` if unknown or still running.
    pub took: Option<i64>,
    pub hosts: usize,
    pub ranks: usize,
    /// The outcome of that operation; `None` if it was cut off.
    pub outcome: Option<Outcome>,
    /// How the run ended, or that it was running when last seen.
    pub run_end: Option<RunOutcome>,
    /// When a command last wrote the run's journal; while one follows the run, at most some seconds ago.
    pub seen: Option<UnixMillis>,
    /// What is wrong with the run's files.
    pub damaged: Option<String>,
}

/// All runs that this laptop knows, the latest last. A damaged run is reported in its row, not as an error.
///
/// # Errors
/// When the directory exists and cannot be read.
pub fn list_runs(state_dir: &Path) -> io::Result<Vec<RunSummary>> {
    let entries = match fs::read_dir(state_dir.join("runs")) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut runs = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            runs.push(read_summary(&entry.path(), &entry.file_name().to_string_lossy()));
        }
    }
    runs.sort_by(|a, b| (a.began, &a.run).cmp(&(b.began, &b.run)));
    Ok(runs)
}

/// The run with this id, or the only one whose id begins so.
///
/// # Errors
/// The ids of several that begin so; empty: there is none.
pub fn find_run<'a>(runs: &'a [RunSummary], id: &str) -> Result<&'a RunSummary, Vec<&'a str>> {
    let matches: Vec<&RunSummary> = runs.iter().filter(|run| run.run.starts_with(id)).collect();
    match (matches.iter().find(|run| run.run == id), &matches[..]) {
        (Some(run), _) | (None, [run]) => Ok(run),
        (None, _) => Err(matches.into_iter().map(|run| run.run.as_str()).collect()),
    }
}

fn read_summary(dir: &Path, run: &str) -> RunSummary {
    let empty = RunSummary {
        run: run.to_owned(),
        seen: [JOURNAL_FILE, SAMPLES_FILE].iter().filter_map(|name| modified_at(&dir.join(name))).max(),
        ..RunSummary::default()
    };
    let text = match fs::read_to_string(dir.join(REPORT_FILE)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return summary_from_journal(dir, empty),
        Err(error) => return RunSummary { damaged: Some(format!("{REPORT_FILE}: {error}")), ..empty },
    };
    match serde_json::from_str::<RunReport>(&text) {
        Ok(report) => RunSummary {
            name: report.name,
            command: report.command,
            began: report.began,
            took: report.run_began.zip(report.run_ended).map(|(from, to)| (to - from).max(0)),
            hosts: report.hosts.len(),
            ranks: report.ranks.len(),
            outcome: report.outcome,
            run_end: report.run_end,
            ..empty
        },
        Err(error) => RunSummary { damaged: Some(format!("{REPORT_FILE}: {error}")), ..summary_from_journal(dir, empty) },
    }
}

fn modified_at(path: &Path) -> Option<UnixMillis> {
    let modified = fs::metadata(path).and_then(|meta| meta.modified()).ok()?;
    i64::try_from(modified.duration_since(std::time::UNIX_EPOCH).ok()?.as_millis()).ok()
}

/// Identifies a run without a report by the beginning of its journal.
fn summary_from_journal(dir: &Path, mut summary: RunSummary) -> RunSummary {
    let mut reader = match JournalReader::open(&dir.join(JOURNAL_FILE)) {
        Ok(reader) => reader,
        Err(error) => return RunSummary { damaged: Some(error.to_string()), ..summary },
    };
    for _ in 0..MAX_HEAD_EVENTS {
        match reader.next_event() {
            Ok(Some(event)) => {
                summary.began.get_or_insert(event.at);
                if let EventKind::RunStarted(info) = event.kind {
                    (summary.name, summary.command) = (info.name, info.command);
                    (summary.hosts, summary.ranks) = (info.hosts.len(), info.ranks.len());
                }
            }
            Ok(None) => break,
            Err(error) => return RunSummary { damaged: Some(error.to_string()), ..summary },
        }
    }
    if reader.damaged_lines > 0 {
        let lines = count_noun(usize::try_from(reader.damaged_lines).unwrap_or(0), "line");
        summary.damaged = Some(format!("{JOURNAL_FILE}: {lines} damaged"));
    }
    summary
}

/// Removes the directories of ended runs that began before `before`, and of damaged runs, except the `keep` latest.
/// Returns the removed run ids.
///
/// # Errors
/// When a directory cannot be removed.
pub fn prune_runs(state_dir: &Path, before: UnixMillis, keep: usize) -> io::Result<Vec<String>> {
    let runs = list_runs(state_dir)?;
    let candidates = runs.len().saturating_sub(keep);
    let mut removed = Vec::new();
    // A run whose end this laptop has not seen may be live: `down` does not fetch again what is here.
    let may_be_live =
        |run: &RunSummary| matches!((run.run_end, &run.outcome), (Some(RunOutcome::Running), _) | (None, None | Some(Outcome::Detached)));
    let has_ended = |run: &RunSummary| run.damaged.is_some() || !may_be_live(run);
    for run in runs.into_iter().take(candidates).filter(|run| has_ended(run) && run.began.is_none_or(|began| began < before)) {
        fs::remove_dir_all(state_dir.join("runs").join(&run.run))?;
        removed.push(run.run);
    }
    Ok(removed)
}
