#![expect(clippy::disallowed_methods, reason = "owns the folders of past runs on the laptop")]
//! Past runs on the laptop, one directory each: `report.json`, listing and pruning.
//!
//! Everything here is what this laptop has seen of a run; no host is contacted.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::diagnose::DiagnosisFinding;
use crate::event::{EventKind, Exit, JOURNAL_FORMAT, Outcome, RunOutcome, UnixMillis};
use crate::state::{ConnectionStatus, RunState};

use super::finding::FindingReport;
use super::journal::{JOURNAL_FILE, JournalReader};
use super::log_store::{LogStore, LogStoreError};
use super::private_files::{make_dir, private_options};
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

    pub fn logs_dir(&self) -> PathBuf {
        self.path.join("logs")
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

/// `report.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// The journal's format.
    pub format: String,
    pub run: String,
    pub name: String,
    /// The operation that ended last.
    pub command: String,
    pub attempt: u32,
    /// The outcome of that operation; `None` if it has not ended.
    pub outcome: Option<Outcome>,
    #[serde(alias = "why")]
    pub reason: String,
    /// How the run ended, or that it is running; `None` if it did not begin, or a version before 1.5 wrote this.
    #[serde(default)]
    pub run_end: Option<RunOutcome>,
    /// When the first rank started.
    #[serde(default)]
    pub run_began: Option<UnixMillis>,
    #[serde(default)]
    pub run_ended: Option<UnixMillis>,
    /// The time of this laptop's first event of the run.
    pub began: Option<UnixMillis>,
    /// When the last operation ended.
    pub ended: UnixMillis,
    pub hosts: Vec<HostReport>,
    pub ranks: Vec<RankReport>,
    /// The ranks that failed first.
    #[serde(alias = "culprit")]
    pub first_failed_ranks: Vec<u32>,
    /// The first cause comes first.
    #[serde(default)]
    pub findings: Vec<FindingReport>,
    /// What is left on hosts, as `host: text`.
    pub leftovers: Vec<String>,
}

/// A host in the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostReport {
    pub name: String,
    /// Steps that did not fail.
    pub ok: u32,
    /// Steps that changed something.
    pub changed: u32,
    pub failed: u32,
    pub unreachable: bool,
    /// The launcher's exit.
    pub exit: Option<Exit>,
}

/// A rank in the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankReport {
    pub rank: u32,
    pub host: String,
    /// The launcher's restart count.
    pub restart: u32,
    pub exit: Option<Exit>,
    /// In milliseconds.
    pub duration: Option<i64>,
    #[serde(alias = "bytes")]
    pub log_bytes: u64,
}

pub fn build_report(state: &RunState, findings: &[DiagnosisFinding]) -> RunReport {
    let name = |host: u32| state.host_name(host).to_owned();
    let hosts = state.hosts.iter().enumerate().map(|(at, host)| {
        let counts = state.step_counts(at);
        HostReport {
            name: host.name.clone(),
            ok: counts.ok,
            changed: counts.changed,
            failed: counts.failed,
            unreachable: host.connection_status == ConnectionStatus::Unreachable,
            exit: host.launcher_exit.map(|(exit, _)| exit),
        }
    });
    let ranks = state.ranks.values().map(|rank| RankReport {
        rank: rank.rank,
        host: name(rank.host),
        restart: rank.restart,
        exit: rank.exit,
        duration: rank.duration(),
        log_bytes: rank.recent_lines.next_offset,
    });
    RunReport {
        format: JOURNAL_FORMAT.to_owned(),
        run: state.info.run_id.clone(),
        name: state.info.name.clone(),
        command: state.info.command.clone(),
        attempt: state.info.attempt,
        outcome: state.outcome.as_ref().map(|(outcome, _)| outcome.clone()),
        reason: state.outcome.as_ref().map_or_else(String::new, |(_, reason)| reason.clone()),
        run_end: state.run_end(),
        run_began: state.run_started_at(),
        run_ended: state.run_ended_at(),
        began: state.first_event_at,
        ended: state.last_event_at,
        hosts: hosts.collect(),
        ranks: ranks.collect(),
        findings: findings.iter().map(|finding| FindingReport::new(finding, state)).collect(),
        first_failed_ranks: state.culprit.as_ref().map_or_else(Vec::new, |culprit| culprit.ranks.clone()),
        leftovers: state.leftovers.iter().map(|leftover| format!("{}: {}", name(leftover.host), leftover.text)).collect(),
    }
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

/// Merges the report of an operation into that of earlier ones: `down` has seen less of the ranks than `up` did.
fn merge_reports(before: Option<RunReport>, mut now: RunReport) -> RunReport {
    let Some(before) = before.filter(|before| before.run == now.run && before.attempt <= now.attempt) else { return now };
    now.began = before.began.or(now.began);
    now.run_began = before.run_began.or(now.run_began);
    // A later operation does not change a known end of the run.
    if before.run_end.is_some_and(|end| end != RunOutcome::Running) || now.run_end.is_none() {
        (now.run_end, now.run_ended) = (before.run_end, before.run_ended);
    }
    let launches = matches!(now.command.as_str(), "up" | "attach" | "tui");
    if !launches && before.outcome.as_ref().is_some_and(|outcome| *outcome != Outcome::Detached) {
        (now.outcome, now.reason) = (before.outcome, before.reason);
    }
    if before.attempt == now.attempt {
        for rank in before.ranks {
            match now.ranks.iter_mut().find(|known| known.rank == rank.rank) {
                Some(known) if known.exit.is_none() && rank.exit.is_some() => *known = rank,
                Some(_) => {}
                None => now.ranks.push(rank),
            }
        }
        now.ranks.sort_by_key(|rank| rank.rank);
        if now.first_failed_ranks.is_empty() {
            now.first_failed_ranks = before.first_failed_ranks;
        }
        // A teardown from another laptop has seen less.
        if now.findings.is_empty() {
            now.findings = before.findings;
        }
    }
    now
}

/// A row of `runs`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunSummary {
    pub run: String,
    pub name: String,
    /// The operation that ended last.
    pub command: String,
    pub began: Option<UnixMillis>,
    /// How long the run took, in milliseconds; `None` if unknown or still running.
    pub took: Option<i64>,
    pub hosts: usize,
    pub ranks: usize,
    /// The outcome of the last operation; `None` if it was cut off.
    pub outcome: Option<Outcome>,
    /// How the run ended, or that it was running when last seen.
    pub run_end: Option<RunOutcome>,
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

fn read_summary(dir: &Path, run: &str) -> RunSummary {
    let empty = RunSummary {
        run: run.to_owned(),
        name: String::new(),
        command: String::new(),
        began: None,
        took: None,
        hosts: 0,
        ranks: 0,
        outcome: None,
        run_end: None,
        damaged: None,
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
        summary.damaged = Some(format!(
            "{JOURNAL_FILE}: {} damaged",
            super::style::count_noun(usize::try_from(reader.damaged_lines).unwrap_or(0), "line")
        ));
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
