//! Runs a launch until it ends, and launches again if the user asks for it.

use crate::event::Outcome;
use crate::lifecycle::confirm;
use crate::lifecycle::error::{WorkflowEnd, WorkflowError};
use crate::lifecycle::launch_request::{LaunchContext, LaunchMode, LaunchStep};
use crate::lifecycle::reconcile::reconcile;

/// How often the facts are gathered again because another operator changed the run first.
const MAX_RECONCILE_ATTEMPTS: usize = 5;

pub(crate) enum LaunchEnd {
    Ended(WorkflowEnd),
    /// The user left without waiting for the hosts.
    LeftNow(Outcome),
}

pub(crate) async fn run_launch(context: &mut LaunchContext<'_>) -> Result<LaunchEnd, WorkflowError> {
    let leave = context.signals.leave_token.clone();
    context.session.announce_hosts();
    loop {
        let Some(end) = leave.run_until_cancelled(reconcile_with_retries(context)).await.transpose()? else {
            return Ok(LaunchEnd::LeftNow(context.signals.signal_outcome()));
        };
        context.session.emit_run_finished(&end.outcome, &end.reason);
        if !stays_open(context, &end.outcome) {
            return Ok(LaunchEnd::Ended(end));
        }
        let (outcome, launch_again) = confirm::decide_after_run(context, end.outcome).await?;
        if !launch_again {
            return Ok(LaunchEnd::Ended(WorkflowEnd { outcome, reason: end.reason }));
        }
        context.state.reset();
        context.state.relaunch = false;
        context.signals.reset();
        context.session.attempt += 1;
        context.session.announce_hosts();
    }
}

/// Whether the dashboard stays open after the run: where the user started it there, for the demo, and after every failure.
fn stays_open(context: &LaunchContext<'_>, outcome: &Outcome) -> bool {
    let user_left = match outcome {
        Outcome::Detached => true,
        Outcome::Signal(_) => !context.signals.is_stopped_by_key(),
        _ => false,
    };
    let request = context.request;
    let has_failed = matches!(outcome, Outcome::Failed | Outcome::Refused | Outcome::Unreachable | Outcome::Leftovers);
    let has_dashboard = context.session.reporter.has_dashboard();
    let can_stay_open =
        request.command.confirms_first() && context.state.confirmed || (request.command == LaunchMode::Demo || has_failed) && has_dashboard;
    can_stay_open && !user_left
}

async fn reconcile_with_retries(context: &mut LaunchContext<'_>) -> Result<WorkflowEnd, WorkflowError> {
    // Another operator may change the run before we hold the lock. Then gather the facts and decide again.
    let mut attempts = 0;
    while attempts < MAX_RECONCILE_ATTEMPTS {
        let run = context.state.identity.run_id.clone();
        if let LaunchStep::Done(end) = reconcile(context).await? {
            return Ok(end);
        }
        // A new launch (with a new run id) starts counting from zero.
        attempts = if context.state.identity.run_id == run { attempts + 1 } else { 0 };
    }
    context.session.notice("other operators keep changing this run; try again later", true);
    Ok(WorkflowEnd::new(Outcome::Locked, "nothing was changed"))
}
