//! Waits for the decision of the user at the dashboard, before a launch and after a run.

use crate::event::controls::DashboardCapabilities;
use crate::event::{Outcome, RunControl};
use crate::lifecycle::error::{WorkflowError, worse_outcome};
use crate::lifecycle::launch_request::{LaunchContext, LaunchStep, LaunchTarget};
use crate::lifecycle::launch_summary::describe_plan;
use crate::lifecycle::stop_controller::StopController;
use crate::lifecycle::teardown::{self, TeardownOptions};
use crate::plan::existing_run::ExistingRun;
use crate::plan::teardown::TeardownScope;

enum DashboardDecision {
    Start,
    TearDown,
    Leave,
}

/// Offers the actions and waits for the decision.
async fn ask(
    context: &mut LaunchContext<'_>,
    start_summary: Option<String>,
    plan_lines: Vec<String>,
    can_tear_down: bool,
) -> DashboardDecision {
    let view_only = DashboardCapabilities::view_only(context.signals.dashboard_role());
    let capabilities = DashboardCapabilities { start_summary, plan_lines, can_tear_down, ..view_only.clone() };
    context.session.reporter.set_capabilities(capabilities);
    let decision = wait_for_decision(context.signals).await;
    context.session.reporter.set_capabilities(view_only);
    decision
}

async fn wait_for_decision(signals: &mut StopController) -> DashboardDecision {
    let (start, leave) = (signals.start_requested.clone(), signals.leave_token.clone());
    tokio::select! {
        () = start.notified() => DashboardDecision::Start,
        () = leave.cancelled() => DashboardDecision::Leave,
        control = signals.controls.recv() => if control == Some(RunControl::Teardown) { DashboardDecision::TearDown } else { DashboardDecision::Leave },
    }
}

/// Shows the plan and waits until the user starts it; then the facts are gathered again.
pub(crate) async fn confirm_plan(context: &mut LaunchContext<'_>, target: &LaunchTarget) -> Result<LaunchStep, WorkflowError> {
    let plan = match target.preview(context.session, &context.state.identity, &context.request.secrets) {
        Ok((plan, _)) => plan,
        Err(end) => {
            context.state.confirmed = true;
            return Ok(LaunchStep::Done(end));
        }
    };
    context.session.emit_run_started("", Some(&plan));
    let effect = describe_launch_effect(&target.existing, context.request.command.is_tasks_only());
    let differences = match &target.existing {
        ExistingRun::Live { differences, .. } => &differences[..],
        _ => &[],
    };
    let plan_lines = describe_plan(target, &context.session.inventory.hosts, &plan, differences, context.session.reporter.lang());
    match ask(context, Some(effect), plan_lines, target.existing != ExistingRun::NoRun).await {
        DashboardDecision::Start => {
            if let Some(error) = context.state.launch_error.take() {
                return Err(error);
            }
            context.state.confirmed = true;
            context.session.announce_hosts();
            Ok(LaunchStep::Reconcile)
        }
        DashboardDecision::TearDown => {
            context.state.confirmed = true;
            Ok(LaunchStep::done(tear_down(context).await?, "torn down"))
        }
        DashboardDecision::Leave => {
            let outcome = context.signals.first_signal().map_or(Outcome::Ok, Outcome::Signal);
            Ok(LaunchStep::done(outcome, "nothing was changed"))
        }
    }
}

/// Keeps the dashboard open until the user leaves, launches again or tears down. Returns the outcome, and whether to launch again.
pub(crate) async fn decide_after_run(context: &mut LaunchContext<'_>, mut outcome: Outcome) -> Result<(Outcome, bool), WorkflowError> {
    loop {
        let can_launch = context.state.launch_error.is_none();
        let start = can_launch.then(|| "the run has ended: this launches a new run with the same inventory".to_owned());
        match ask(context, start, Vec::new(), true).await {
            DashboardDecision::Start => return Ok((outcome, true)),
            DashboardDecision::Leave => return Ok((outcome, false)),
            DashboardDecision::TearDown => {
                outcome = worse_outcome(outcome, tear_down(context).await?);
                context.session.emit_run_finished(&outcome, "torn down");
            }
        }
    }
}

/// The user has confirmed by typing the run's name, so the lock is taken over.
async fn tear_down(context: &mut LaunchContext<'_>) -> Result<Outcome, WorkflowError> {
    let options = TeardownOptions { scope: TeardownScope::Everything, kill_at_once: false, fetch_logs: true, grace: None };
    Ok(teardown::lock_and_tear_down(context.session, options, context.request.lock_wait, true).await?.outcome)
}

/// What the command would do to what it found. `tasks_only`: it launches no ranks.
pub(crate) fn describe_launch_effect(existing_run: &ExistingRun, tasks_only: bool) -> String {
    let then = if tasks_only { "then the tasks would run" } else { "then a new run launched" };
    match existing_run {
        ExistingRun::NoRun if tasks_only => "no run exists: the tasks would run".to_owned(),
        ExistingRun::NoRun => "no run exists: a new one would be launched".to_owned(),
        ExistingRun::Preparing { run_id } => format!("tasks of {run_id} run: they would be waited for, {then}"),
        ExistingRun::Ended { run_id } => format!("{run_id} has ended: its logs would be fetched and its files removed, {then}"),
        ExistingRun::Partial { reason } => format!("a partial gang ({reason}): it would be stopped, {then}"),
        ExistingRun::Live { run_id, .. } => format!("{run_id} is live: it would be stopped, {then}"),
    }
}
