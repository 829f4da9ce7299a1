//! From the lock to the plan of a launch: what was there is cleared away, the checks are judged, the plan is built.

use std::sync::Arc;

use crate::engine::lock::HeldLock;
use crate::event::Outcome;
use crate::lifecycle::error::WorkflowError;
use crate::lifecycle::launch_request::{LaunchContext, LaunchStep, LaunchTarget};
use crate::lifecycle::preflight::{HostAnswers, cross_host_probes, evaluate_preflight, gather_facts_and_probes};
use crate::lifecycle::session::{collect_facts, report_issues};
use crate::lifecycle::teardown::{self, TeardownOptions};
use crate::plan::Plan;
use crate::plan::build::{self, LaunchInputs};
use crate::plan::existing_run::{ExistingRun, classify_existing_run};
use crate::plan::facts::HostFacts;
use crate::plan::teardown::TeardownScope;
use crate::preflight::{CheckReport, summarize_host};

/// Everything that a launch needs once it is locked.
pub(crate) struct PreparedLaunch {
    pub(crate) plan: Arc<Plan>,
    pub(crate) facts: Vec<Option<HostFacts>>,
    pub(crate) reports: Vec<CheckReport>,
}

/// Whether a launch can go on.
pub(crate) enum Preparation {
    Ready(PreparedLaunch),
    Stopped(LaunchStep),
}

/// Prepares a launch under its lock.
pub(crate) async fn prepare_launch(
    context: &mut LaunchContext<'_>,
    target: &LaunchTarget,
    held: &HeldLock,
) -> Result<Preparation, WorkflowError> {
    let Some(seen) = look_again(context, target, held).await else { return Ok(Preparation::Stopped(LaunchStep::Reconcile)) };
    let stopped = |outcome, reason: &str| Ok(Preparation::Stopped(LaunchStep::done(outcome, reason)));
    let (facts, probes) = if target.existing == ExistingRun::NoRun {
        (seen, target.probes.clone())
    } else {
        let outcome = clear_previous_run(context, &seen).await?;
        if outcome != Outcome::Ok {
            return stopped(outcome, "what was there before could not be cleared away");
        }
        let answers = gather_facts_and_probes(context.session, &target.job, &context.request.checks).await;
        let (facts, probes) = answers.into_iter().unzip();
        (collect_facts(context.session, facts).0, probes)
    };
    let session = &*context.session;
    let fresh: Vec<HostFacts> = facts.iter().flatten().cloned().collect();
    if fresh.len() != session.inventory.hosts.len() {
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
        ..target.inputs(session, &fresh, &context.state.identity)
    };
    match build::plan_launch(inputs) {
        Ok(plan) => Ok(Preparation::Ready(PreparedLaunch { plan: Arc::new(plan), facts: answers.facts, reports })),
        Err(issues) => stopped(report_issues(session, &issues), "nothing was launched"),
    }
}

/// The facts under the lock; `None`: another operator was faster, and what was decided is no longer right.
async fn look_again(context: &LaunchContext<'_>, target: &LaunchTarget, held: &HeldLock) -> Option<Vec<Option<HostFacts>>> {
    let expected = |host: usize| target.facts.get(host).and_then(|f| f.current_run.as_deref()).unwrap_or_default();
    if held.current_runs.iter().any(|(host, run)| run != expected(*host)) {
        return None;
    }
    if target.existing == ExistingRun::NoRun {
        return Some(target.facts.iter().cloned().map(Some).collect());
    }
    // What looked like a part of a gang may have been a launch under way: whatever is to be cleared away is looked at under the lock.
    let session = &*context.session;
    let seen = collect_facts(session, session.gather_facts(Some(&target.job)).await).0;
    let now: Vec<HostFacts> = seen.iter().flatten().cloned().collect();
    let same = now.len() == seen.len() && classify_existing_run(&now, &session.host_names(), &target.config_texts) == target.existing;
    same.then_some(seen)
}

/// An ended run's logs are fetched first; a partial or unwanted gang is stopped first.
async fn clear_previous_run(context: &mut LaunchContext<'_>, seen: &[Option<HostFacts>]) -> Result<Outcome, WorkflowError> {
    let scope = if context.request.recreate { TeardownScope::Everything } else { TeardownScope::Run };
    let options = TeardownOptions { scope, kill_at_once: false, fetch_logs: true, grace: None };
    teardown::tear_down(context.session, seen, options, &context.signals.stop_token).await
}
