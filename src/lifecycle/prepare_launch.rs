//! Prepares a launch under the lock: clears the previous run, evaluates the checks, builds the plan.

use std::sync::Arc;

use crate::engine::lock::HeldLock;
use crate::event::Outcome;
use crate::lifecycle::error::WorkflowError;
use crate::lifecycle::launch_request::{LaunchContext, LaunchStep, LaunchTarget};
use crate::lifecycle::preflight::{HostAnswers, cross_host_probes, evaluate_preflight, gather_for_checks};
use crate::lifecycle::session::{collect_facts, report_issues};
use crate::lifecycle::teardown::{self, TeardownOptions};
use crate::plan::Plan;
use crate::plan::build::{self, LaunchInputs};
use crate::plan::existing_run::{ExistingRun, classify_existing_run};
use crate::plan::facts::HostFacts;
use crate::plan::teardown::TeardownScope;
use crate::preflight::{CheckReport, summarize_host};

pub(crate) struct PreparedLaunch {
    pub(crate) plan: Arc<Plan>,
    pub(crate) facts: Vec<Option<HostFacts>>,
    pub(crate) reports: Vec<CheckReport>,
}

/// `Err`: with what the launch stops.
pub(crate) async fn prepare_launch(
    context: &mut LaunchContext<'_>,
    target: &LaunchTarget,
    held: &HeldLock,
) -> Result<Result<PreparedLaunch, LaunchStep>, WorkflowError> {
    let Some(current) = verify_target(context, target, held).await else { return Ok(Err(LaunchStep::Reconcile)) };
    let stopped = |outcome, reason: &str| Ok(Err(LaunchStep::done(outcome, reason)));
    let (facts, probes) = if target.existing == ExistingRun::NoRun {
        (current, target.probes.clone())
    } else {
        let ended = if let ExistingRun::Ended { run_id } = &target.existing { Some(run_id.as_str()) } else { None };
        let outcome = clear_previous_run(context, &current, ended).await?;
        if outcome != Outcome::Ok {
            return stopped(outcome, "the previous run could not be cleared");
        }
        let results = gather_for_checks(context.session, &target.job, &context.request.checks).await;
        let (facts, probes) = results.into_iter().unzip();
        (collect_facts(facts).0, probes)
    };
    let session = &*context.session;
    let reached: Vec<HostFacts> = facts.iter().flatten().cloned().collect();
    if reached.len() != session.inventory.hosts.len() {
        return stopped(Outcome::Unreachable, "nothing was launched");
    }
    let request = context.request;
    let mut answers = HostAnswers { facts, probes };
    cross_host_probes(session, &target.job, &request.checks, &mut answers).await;
    let reports = evaluate_preflight(&session.inventory, &target.job, &answers, &request.checks, true);
    let summaries: Vec<_> = (0..session.inventory.hosts.len()).map(|host| summarize_host(&reports, host)).collect();
    let inputs = LaunchInputs {
        secrets: &request.secrets,
        registry_passwords: &request.registry_passwords,
        check_summaries: &summaries,
        ..target.inputs(session, &reached, &context.state.identity)
    };
    match build::plan_launch(inputs) {
        Ok(plan) => Ok(Ok(PreparedLaunch { plan: Arc::new(plan), facts: answers.facts, reports })),
        Err(issues) => {
            report_issues(session, &issues);
            stopped(Outcome::Refused, "the inventory does not fit the hosts: nothing was launched")
        }
    }
}

/// The current facts; `None`: another operator changed the run before the lock was held.
async fn verify_target(context: &LaunchContext<'_>, target: &LaunchTarget, held: &HeldLock) -> Option<Vec<Option<HostFacts>>> {
    let expected = |host: usize| target.facts.get(host).and_then(|f| f.current_run.as_deref()).unwrap_or_default();
    if held.current_runs.iter().any(|(host, run)| run != expected(*host)) {
        return None;
    }
    if target.existing == ExistingRun::NoRun {
        return Some(target.facts.iter().cloned().map(Some).collect());
    }
    // A partial gang may have been a launch in progress, so gather the facts again under the lock before clearing anything.
    let session = &*context.session;
    let current = collect_facts(session.gather_facts(Some(&target.job)).await).0;
    let reached: Vec<HostFacts> = current.iter().flatten().cloned().collect();
    let unchanged =
        reached.len() == current.len() && classify_existing_run(&reached, &session.host_names(), &target.config_texts) == target.existing;
    unchanged.then_some(current)
}

/// Stops a partial or replaced gang and fetches its logs first.
async fn clear_previous_run(
    context: &mut LaunchContext<'_>,
    facts: &[Option<HostFacts>],
    ended: Option<&str>,
) -> Result<Outcome, WorkflowError> {
    if let Some(run_id) = ended {
        context
            .session
            .notice(format!("the previous run {run_id} has ended: fetching its logs and removing its run directory first"), false);
    }
    let scope = if context.request.recreate { TeardownScope::Everything } else { TeardownScope::Run };
    let options = TeardownOptions { scope, kill_at_once: false, fetch_logs: true, grace: None };
    teardown::tear_down(context.session, facts, options, &context.signals.stop_token).await
}
