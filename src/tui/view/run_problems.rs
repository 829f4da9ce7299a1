//! What is wrong with the run, worst first: diagnosed causes, failed ranks and steps, lost hosts, warnings.
//!
//! A cause comes before its effects; one failure is one problem; equal problems of several hosts are merged.

use std::cmp::Reverse;

use crate::diagnose::DiagnosisFinding;
use crate::event::{LogFile, Phase, UnixMillis};
use crate::model::step_status::StepStatus;
use crate::report::{finding, style};
use crate::state::{ConnectionStatus, HostState, RankState, StepState};
use crate::text::translation::HELP_SEPARATOR;
use crate::tui::model::Model;
use crate::tui::theme::DisplayStatus;

use super::host_status;

/// How long a warning is shown.
const NOTICE_MS: i64 = 60_000;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RunProblem {
    pub status: DisplayStatus,
    /// Where it is, sanitized: `rank 37 on gpu04`; empty if it concerns the whole run.
    pub place: String,
    /// What is wrong, sanitized.
    pub text: String,
    /// Affected hosts; empty if it concerns the whole run.
    pub hosts: Vec<u32>,
    /// The related log.
    pub log: Option<(u32, LogFile)>,
    /// The lines that prove it, as the hosts wrote them; may be empty.
    pub evidence: Vec<String>,
    /// Next step, sanitized; may be empty.
    pub next_step: String,
    /// When it began, where that is known.
    pub since: Option<UnixMillis>,
}

impl RunProblem {
    fn new(status: DisplayStatus, text: String) -> RunProblem {
        RunProblem { status, text, ..RunProblem::default() }
    }

    /// Place and text on one line.
    pub(crate) fn line(&self) -> String {
        if self.place.is_empty() { self.text.clone() } else { format!("{}  {}", self.place, self.text) }
    }
}

#[derive(Default)]
struct ProblemList(Vec<RunProblem>);

impl ProblemList {
    /// Merges with an equal problem of another host.
    fn push_or_merge(&mut self, host: u32, problem: RunProblem) {
        match self.0.iter_mut().find(|known| known.status == problem.status && known.text == problem.text) {
            Some(known) => {
                known.hosts.push(host);
                known.since = known.since.into_iter().chain(problem.since).min();
            }
            None => self.0.push(RunProblem { hosts: vec![host], ..problem }),
        }
    }
}

pub(crate) fn collect_problems(model: &Model) -> Vec<RunProblem> {
    let mut found = ProblemList::default();
    let findings = &*model.findings;
    let mut causes: Vec<RunProblem> = findings.iter().map(|finding| cause_problem(model, finding)).collect();
    add_rank_problems(model, findings, &mut found);
    add_step_problems(model, findings, &mut found);
    add_host_problems(model, findings, &mut found);
    add_low_gpus(model, &mut found);
    let fresh =
        model.state.notices.iter().rev().filter(|note| note.warn && (model.now - note.at < NOTICE_MS || model.state.outcome.is_some()));
    for note in fresh.take(20) {
        let text = model.sanitize(&note.text);
        let (text, next_step) = text.split_once(HELP_SEPARATOR).unwrap_or((&text, ""));
        let problem =
            RunProblem { next_step: next_step.to_owned(), since: Some(note.at), ..RunProblem::new(DisplayStatus::Warn, text.to_owned()) };
        match note.host {
            Some(host) => found.push_or_merge(host, problem),
            None if found.0.iter().any(|known| known.text == text) => {}
            None => found.0.push(problem),
        }
    }
    let mut all = found.0;
    for problem in &mut all {
        problem.text = model.lang.message(&problem.text).into_owned();
        problem.next_step = model.lang.message(&problem.next_step).into_owned();
    }
    for problem in all.iter_mut().filter(|problem| !problem.hosts.is_empty()) {
        problem.hosts.sort_unstable();
        problem.hosts.dedup();
        problem.place = style::format_hosts(&model.state, &model.sanitizer, &problem.hosts);
    }
    all.sort_by_key(|problem| Reverse(problem.status));
    causes.extend(all);
    causes
}

/// A diagnosed cause: how its ranks ended, and why.
fn cause_problem(model: &Model, found: &DiagnosisFinding) -> RunProblem {
    let [what, why, next] = finding::finding_texts(found, model.lang, &model.sanitizer);
    let affected = if found.affected.is_empty() {
        String::new()
    } else {
        model.lang.tr_fill("; affects {}", &[&style::format_ranks(&found.affected)])
    };
    let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
    let log = found.ranks.first().and_then(|rank| model.state.ranks.get(rank)).map(RankState::log);
    RunProblem {
        status: DisplayStatus::Error,
        place: model.lang.message(&finding::format_location(found, &model.state, &model.sanitizer)).into_owned(),
        text: format!("{}{what}{why}{affected}", exit_of_ranks(model, &found.ranks)),
        hosts: found.hosts.clone(),
        log: log.or_else(|| found.hosts.first().map(|host| (*host, LogFile::Launcher))),
        evidence: found.evidence.clone(),
        next_step: next,
        since: found.ranks.iter().filter_map(|rank| ended_at(model.state.ranks.get(rank)?)).min(),
    }
}

fn ended_at(rank: &RankState) -> Option<UnixMillis> {
    (rank.ended_at > 0).then_some(rank.ended_at)
}

/// `exit 1, failed first: `, where all these ranks ended alike.
fn exit_of_ranks(model: &Model, ranks: &[u32]) -> String {
    let exit = |rank: &u32| model.state.ranks.get(rank).and_then(|rank| rank.exit);
    let Some(first) = ranks.first().and_then(exit).filter(|first| !first.is_success()) else { return String::new() };
    if ranks.iter().any(|rank| exit(rank) != Some(first)) {
        return String::new();
    }
    let culprits = model.state.culprit_ranks();
    let mark = if ranks.iter().any(|rank| culprits.contains(rank)) { model.lang.tr(", failed first") } else { "" };
    format!("{}{mark}{}", model.lang.message(&first.to_string()), model.lang.colon())
}

/// The ranks that no finding names.
fn add_rank_problems(model: &Model, findings: &[DiagnosisFinding], problems: &mut ProblemList) {
    let first = model.state.culprit_ranks();
    let is_reported =
        |rank: &RankState| findings.iter().any(|found| found.ranks.contains(&rank.rank) || found.affected.contains(&rank.rank));
    for rank in model.state.failed_ranks().into_iter().filter(|rank| !is_reported(rank)) {
        let exit = rank.exit.map(|exit| exit.to_string()).unwrap_or_default();
        if !first.is_empty() && !first.contains(&rank.rank) {
            // Its own launcher or a broken connection to the first failed rank ended it.
            let text = format!("ranks that ended after the first failure: {exit}");
            let (log, since) = (Some(rank.log()), ended_at(rank));
            problems.push_or_merge(rank.host, RunProblem { log, since, ..RunProblem::new(DisplayStatus::Warn, text) });
            continue;
        }
        let mark = if first.contains(&rank.rank) { model.lang.tr(", failed first") } else { "" };
        let last = rank.recent_lines.last_lines(1).pop().map_or_else(String::new, |line| format!(": {}", model.sanitize(&line)));
        let next = model.advice.format_run_command("logs", &format!("--rank {}", rank.rank));
        let text = format!("rank {} {}{mark}{last}", rank.rank, model.lang.message(&exit));
        let (log, since) = (Some(rank.log()), ended_at(rank));
        let problem = RunProblem { log, next_step: next, since, ..RunProblem::new(DisplayStatus::Error, text) };
        problems.push_or_merge(rank.host, problem);
    }
}

/// Whether a finding about this host quotes a line of the text.
fn is_explained(findings: &[DiagnosisFinding], host: u32, text: &str) -> bool {
    let quotes = |found: &DiagnosisFinding| found.evidence.iter().any(|line| text.lines().any(|own| own == line));
    findings.iter().any(|found| found.ranks.is_empty() && found.hosts.contains(&host) && quotes(found))
}

/// The log that shows why a step of this phase failed.
fn step_log(phase: Phase) -> LogFile {
    match phase {
        Phase::Task(number) => LogFile::Task { number },
        _ => LogFile::Launcher,
    }
}

fn add_step_problems(model: &Model, findings: &[DiagnosisFinding], problems: &mut ProblemList) {
    for step in model.state.failed_steps().filter(|step| !is_explained(findings, step.info.host, &step.note)) {
        let text = format!("{}: {}", step.info.phase.label(), model.sanitize(&step.note));
        let log = Some((step.info.host, step_log(step.info.phase)));
        let next_step = model.sanitize(&step.hint);
        let problem = RunProblem { log, next_step, since: step.ended_at, ..RunProblem::new(DisplayStatus::Error, text) };
        problems.push_or_merge(step.info.host, problem);
    }
    // Afterwards it is a step as any other.
    let was_retried =
        |step: &&StepState| step.status == StepStatus::Running && step.retried_at.is_some_and(|at| model.now - at < NOTICE_MS);
    let is_lost = |host: u32| model.state.hosts.get(host as usize).is_some_and(HostState::is_lost);
    let is_new = |step: &&StepState| !is_lost(step.info.host) && !is_explained(findings, step.info.host, &step.note);
    for step in model.state.step_tracker.steps().iter().filter(was_retried).filter(is_new) {
        let text = format!("{}: {}", step.info.phase.label(), model.sanitize(&step.note));
        let next_step = "it is tried again by itself".to_owned();
        let problem = RunProblem { next_step, since: step.retried_at, ..RunProblem::new(DisplayStatus::Warn, text) };
        problems.push_or_merge(step.info.host, problem);
    }
    // That a host is unreachable is a problem of its own.
    for left in model.state.leftovers.iter().filter(|left| !left.unchecked || !model.state.is_unreachable(left.host)) {
        let next_step = model.advice.format_command("down", "");
        let (status, prefix) = if left.unchecked { (DisplayStatus::Lost, "") } else { (DisplayStatus::Error, "leftover: ") };
        let text = format!("{prefix}{}", model.sanitize(&left.text));
        problems.push_or_merge(left.host, RunProblem { next_step, ..RunProblem::new(status, text) });
    }
}

fn add_host_problems(model: &Model, findings: &[DiagnosisFinding], problems: &mut ProblemList) {
    for ((at, host), standing) in (0_u32..).zip(&model.state.hosts).zip(&model.host_statuses) {
        let failing = !standing.ranks.failed.is_empty() || standing.ranks.stopped > 0;
        let node = Some((at, LogFile::Launcher));
        let since = (host.connection_since > 0).then_some(host.connection_since);
        match (host.connection_status, host.launcher_failure()) {
            (ConnectionStatus::Unreachable, _) if is_explained(findings, at, &host.connection_error) => {}
            (ConnectionStatus::Unreachable, _) => {
                let text = format!("unreachable: {}", model.sanitize(&host.connection_error));
                let hint = model.sanitize(&host.connection_hint);
                let next_step = if hint.is_empty() { "its ranks may still run: check its power and network".to_owned() } else { hint };
                problems.push_or_merge(at, RunProblem { next_step, since, ..RunProblem::new(DisplayStatus::Lost, text) });
            }
            (ConnectionStatus::Retrying, _) => {
                let next = "its ranks may still run; reconnecting automatically".to_owned();
                let text = format!("no connection, retrying: {}", model.sanitize(&host.connection_error));
                problems.push_or_merge(at, RunProblem { next_step: next, since, ..RunProblem::new(DisplayStatus::Lost, text) });
            }
            (_, Some(exit)) if !failing => {
                let text = format!("the launcher ended: {exit}");
                problems.push_or_merge(at, RunProblem { log: node, ..RunProblem::new(DisplayStatus::Error, text) });
            }
            _ => {}
        }
        for why in host_status::hardware_warnings(host) {
            problems.push_or_merge(at, RunProblem::new(DisplayStatus::Warn, model.sanitize(&why)));
        }
    }
}

/// GPUs that have worked much less than the others for a while hold up the whole run.
fn add_low_gpus(model: &Model, problems: &mut ProblemList) {
    for ((at, host), standing) in (0_u32..).zip(&model.state.hosts).zip(&model.host_statuses) {
        let Some(low) = standing.low_gpus.as_ref().filter(|low| low.is_warning) else { continue };
        let limit = format!("--limit {} -- nvidia-smi -q -d PERFORMANCE", model.sanitize(&host.name));
        let next_step = model.advice.format_command("exec", &limit);
        problems.push_or_merge(at, RunProblem { next_step, ..RunProblem::new(DisplayStatus::Warn, low.long_text()) });
    }
}
