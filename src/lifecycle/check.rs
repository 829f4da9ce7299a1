//! Runs the preflight checks without launching; changes nothing on the hosts.

use crate::event::{EventKind, Outcome};
use crate::inventory::{Job, RuntimeValues};
use crate::lifecycle::error::worse_outcome;
use crate::lifecycle::preflight::{
    HostAnswers, cross_host_probes, emit_check_report, evaluate_preflight, fabric_addresses, gather_for_checks,
};
use crate::lifecycle::session::{Session, UnreachableHosts, split_answers};
use crate::lifecycle::smoke::SmokeInputs;
use crate::model::level::Level;
use crate::model::phase::Phase;
use crate::plan::facts::HostFacts;
use crate::plan::rank_layout::usable_gpu_count;
use crate::preflight::{CheckReport, PreflightCheck};

pub(crate) struct CheckedHosts {
    pub(crate) reports: Vec<CheckReport>,
    pub(crate) unreachable: UnreachableHosts,
    /// Why the inventory does not fit the hosts.
    pub(crate) problems: Vec<String>,
    facts: Vec<Option<HostFacts>>,
    runtime_values: RuntimeValues,
}

pub(crate) async fn check_hosts(session: &Session, draft: &Job, checks: &[PreflightCheck]) -> CheckedHosts {
    let (answers, probes) = gather_for_checks(session, draft, checks).await.into_iter().unzip();
    let (facts, unreachable) = split_answers(session.host_names(), answers);
    session.engine.emitter().send(EventKind::PhaseStarted { phase: Phase::Preflight });
    let runtime_values = runtime_values(session, &facts);
    let (job, problems) = build_job_or_draft(session, draft, &runtime_values);
    let mut answers = HostAnswers { facts, probes };
    cross_host_probes(session, &job, checks, &mut answers).await;
    let reports = evaluate_preflight(&session.inventory, &job, &answers, checks, false);
    let mut checked = CheckedHosts { reports: Vec::new(), unreachable, problems, facts: answers.facts, runtime_values };
    reports.into_iter().for_each(|report| checked.add_report(session, report));
    checked
}

impl CheckedHosts {
    /// Emits a report and keeps it; the commands in its hints become complete.
    pub(crate) fn add_report(&mut self, session: &Session, mut report: CheckReport) {
        for (_, result) in &mut report.results {
            result.hint = session.reporter.advice().complete_commands(&result.hint);
        }
        emit_check_report(session, &report);
        self.reports.push(report);
    }

    pub(crate) fn smoke_inputs<'a>(&'a self, draft: &'a Job) -> SmokeInputs<'a> {
        let skip_reason = (!self.unreachable.is_empty()).then_some("a host is unreachable");
        let skip_reason = skip_reason.or((self.worst_level() == Level::Fail).then_some("a check failed"));
        let skip_reason = skip_reason.or((!self.problems.is_empty()).then_some("the inventory does not fit the hosts"));
        SmokeInputs { draft, runtime_values: &self.runtime_values, facts: &self.facts, skip_reason }
    }

    fn worst_level(&self) -> Level {
        self.reports.iter().map(CheckReport::level).max().unwrap_or(Level::Skipped)
    }

    pub(crate) fn outcome(&self) -> Outcome {
        let failed = self.worst_level() == Level::Fail || !self.problems.is_empty();
        let outcome = if failed { Outcome::Refused } else { Outcome::Ok };
        if self.unreachable.is_empty() { outcome } else { worse_outcome(Outcome::Unreachable, outcome) }
    }
}

fn runtime_values(session: &Session, facts: &[Option<HostFacts>]) -> RuntimeValues {
    let inventory = &session.inventory;
    let gpus = |(host, facts): (_, &Option<HostFacts>)| facts.as_ref().map(|f| usable_gpu_count(host, f)).filter(|n| *n > 0);
    RuntimeValues {
        gpu_counts: inventory.hosts.iter().zip(facts).map(gpus).collect(),
        fabric_addresses: fabric_addresses(inventory, facts).into_iter().map(|a| Some(a).filter(|a| !a.is_empty())).collect(),
        master_port: facts.first().and_then(Option::as_ref).and_then(|f| f.free_port),
        ..RuntimeValues::default()
    }
}

/// The job with the facts of the hosts; if they do not fit, the draft and the problems.
fn build_job_or_draft(session: &Session, draft: &Job, values: &RuntimeValues) -> (Job, Vec<String>) {
    match session.inventory.job(values) {
        Ok(job) => (job, Vec::new()),
        Err(problems) => (draft.clone(), problems.iter().map(|problem| problem.text(session.reporter.lang())).collect()),
    }
}
