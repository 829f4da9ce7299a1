//! `report.json`: how a run went, by host and by rank.

use serde::{Deserialize, Serialize};

use super::finding::FindingReport;
use crate::diagnose::DiagnosisFinding;
use crate::event::{Exit, JOURNAL_FORMAT, Outcome, RunOutcome, UnixMillis, follows_run};
use crate::state::{ConnectionStatus, RunState};

/// `report.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// The journal's format.
    pub format: String,
    pub run: String,
    pub name: String,
    /// The last operation that launched, followed or ended the run.
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
    /// Steps that went well and changed nothing.
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
        let counts = state.phase_counts(at);
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
        first_failed_ranks: state.culprit_ranks().to_vec(),
        leftovers: state.leftovers.iter().map(|leftover| format!("{}: {}", name(leftover.host), leftover.text)).collect(),
    }
}

/// Merges the report of an operation into that of earlier ones: `down` has seen less of the ranks than `up` did.
pub(super) fn merge_reports(before: Option<RunReport>, mut now: RunReport) -> RunReport {
    let Some(before) = before.filter(|before| before.run == now.run && before.attempt <= now.attempt) else { return now };
    now.began = before.began.or(now.began);
    now.run_began = before.run_began.or(now.run_began);
    let has_ended = |end: Option<RunOutcome>| end.is_some_and(|end| end != RunOutcome::Running);
    let ends_run = has_ended(now.run_end) && !has_ended(before.run_end);
    // A later operation does not change a known end of the run.
    if has_ended(before.run_end) || now.run_end.is_none() {
        (now.run_end, now.run_ended) = (before.run_end, before.run_ended);
    }
    let keeps_outcome = match (&before.outcome, &now.outcome) {
        // An operation that went on to another run, or was cut off, has none.
        (_, None) => true,
        (None, Some(_)) => false,
        // Reading the logs ends nothing.
        (Some(_), Some(_)) if now.command == "logs" => true,
        (Some(before), Some(_)) => !follows_run(&now.command) && !ends_run && *before != Outcome::Detached,
    };
    if keeps_outcome {
        (now.command, now.outcome, now.reason) = (before.command, before.outcome, before.reason);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_without_an_end_keeps_the_outcome_of_the_last() {
        let report = |command: &str, outcome| RunReport { command: command.to_owned(), outcome, ..build_report(&RunState::new(), &[]) };
        let merged = merge_reports(Some(report("prepare", Some(Outcome::Ok))), report("up", None));
        assert_eq!((merged.command.as_str(), merged.outcome), ("prepare", Some(Outcome::Ok)));
        let merged = merge_reports(Some(report("up", Some(Outcome::Detached))), report("logs", Some(Outcome::Ok)));
        assert_eq!((merged.command.as_str(), merged.outcome), ("up", Some(Outcome::Detached)));
        for command in ["attach", "slurm attach"] {
            let merged = merge_reports(Some(report(command, Some(Outcome::Unreachable))), report(command, Some(Outcome::Signal(2))));
            assert_eq!(merged.outcome, Some(Outcome::Signal(2)), "{command}");
        }
        let merged = merge_reports(Some(report("prepare", None)), report("up", Some(Outcome::Failed)));
        assert_eq!((merged.command.as_str(), merged.outcome), ("up", Some(Outcome::Failed)));
    }

    #[test]
    fn operation_that_ends_the_run_gives_its_outcome() {
        let report = |command: &str, outcome, run_end| RunReport {
            command: command.to_owned(),
            outcome: Some(outcome),
            run_end: Some(run_end),
            ..build_report(&RunState::new(), &[])
        };
        let attached = report("attach", Outcome::Signal(2), RunOutcome::Running);
        let ended = report("down", Outcome::Ok, RunOutcome::Stopped);
        assert_eq!(merge_reports(Some(attached), ended.clone()).command, "down");
        let failed = report("up", Outcome::Failed, RunOutcome::Failed);
        assert_eq!(merge_reports(Some(failed), ended).command, "up");
    }
}
