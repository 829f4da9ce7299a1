//! A launch from its request to its end: looks what is there, converges, follows, and begins again where the person asks for it.

use crate::event::Outcome;
use crate::lifecycle::confirm;
use crate::lifecycle::error::{WorkflowEnd, WorkflowError};
use crate::lifecycle::launch_request::{LaunchContext, LaunchStep};
use crate::lifecycle::reconcile::reconcile;

/// How often a launch is decided again because another operator was faster.
const MAX_RECONCILE_ATTEMPTS: usize = 5;

/// How a launch ended.
pub(crate) enum LaunchEnd {
    Ended(WorkflowEnd),
    /// The person did not wait for the hosts.
    LeftNow(Outcome),
}

/// Carries a launch to its end.
pub(crate) async fn run_launch(mut context: LaunchContext<'_>) -> Result<LaunchEnd, WorkflowError> {
    let leave = context.signals.leave_token.clone();
    context.session.emit_run_started("", None);
    loop {
        let end = tokio::select! {
            end = reconcile_with_retries(&mut context) => end?,
            () = leave.cancelled() => return Ok(LaunchEnd::LeftNow(Outcome::Signal(context.signals.first_signal().unwrap_or(2)))),
        };
        context.session.emit_run_finished(&end.outcome, &end.reason);
        if !stays_open(&context, &end.outcome) {
            return Ok(LaunchEnd::Ended(end));
        }
        let (outcome, again) = confirm::decide_after_run(&mut context, end.outcome).await?;
        if !again {
            return Ok(LaunchEnd::Ended(WorkflowEnd { outcome, reason: end.reason }));
        }
        context.state.reset();
        context.state.relaunch = false;
        context.signals.reset();
        context.session.attempt += 1;
        context.session.emit_run_started("", None);
    }
}

/// Whether the person can look at what happened, and launch again.
fn stays_open(context: &LaunchContext<'_>, outcome: &Outcome) -> bool {
    let over = match outcome {
        Outcome::Detached => true,
        Outcome::Signal(_) => !context.signals.is_stopped_by_key(),
        _ => false,
    };
    let request = context.request;
    let looked_at = request.confirm_first && context.state.confirmed || request.stay_open && context.session.reporter.has_dashboard();
    looked_at && !over
}

async fn reconcile_with_retries(context: &mut LaunchContext<'_>) -> Result<WorkflowEnd, WorkflowError> {
    // Another operator may change this name between our look and our lock: then all is looked at and decided again.
    let mut looks = 0;
    while looks < MAX_RECONCILE_ATTEMPTS {
        let run = context.state.identity.run_id.clone();
        if let LaunchStep::Done(end) = reconcile(context).await? {
            return Ok(end);
        }
        // Another launch begins to count from its first look.
        looks = if context.state.identity.run_id == run { looks + 1 } else { 0 };
    }
    context.session.notice("others change this name again and again", true);
    Ok(WorkflowEnd::new(Outcome::Locked, "nothing was changed"))
}
