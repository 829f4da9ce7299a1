//! Attaches to a run that another command launched.

use std::time::Duration;

use crate::engine::follow::FollowOutcome;
use crate::event::Outcome;
use crate::inventory::Teardown;
use crate::lifecycle::error::{WorkflowEnd, WorkflowError};
use crate::lifecycle::follow::{FollowMode, follow_existing_run};
use crate::lifecycle::session::{Session, collect_facts};
use crate::lifecycle::stop_controller::StopController;
use crate::lifecycle::teardown::{EndPolicy, finish_run};
use crate::plan::existing_run::{ExistingRun, classify_existing_run};
use crate::plan::facts::HostFacts;

/// How long a teardown waits for another operator's lock.
const LOCK_WAIT: Duration = Duration::from_secs(45);

/// Follows the live run, or reports how it ended.
pub(crate) async fn attach(session: &mut Session, signals: &mut StopController) -> Result<WorkflowEnd, WorkflowError> {
    let (facts, outcome) = collect_facts(session, session.gather_facts(None).await);
    let known: Vec<HostFacts> = facts.iter().flatten().cloned().collect();
    let names = session.host_names();
    let reached: Vec<String> = names.iter().zip(&facts).filter(|(_, f)| f.is_some()).map(|(n, _)| n.clone()).collect();
    let run = match classify_existing_run(&known, &reached, &[]) {
        ExistingRun::NoRun if outcome == Outcome::Ok => return Ok(WorkflowEnd::new(Outcome::Ok, "no run exists")),
        ExistingRun::NoRun => return Ok(WorkflowEnd::new(outcome, "no run exists on the hosts that answered")),
        ExistingRun::Live { run_id, .. } | ExistingRun::Ended { run_id } => run_id,
        ExistingRun::Partial { reason } => {
            session.notice(format!("partial gang: {reason}; `orchestrate down` removes it"), true);
            known.iter().find_map(|f| f.current_run.clone()).unwrap_or_default()
        }
    };
    let facts: Vec<HostFacts> = facts.into_iter().map(Option::unwrap_or_default).collect();
    let (follow_outcome, record) = follow_existing_run(session, &facts, &run, signals, FollowMode::MayStop).await?;
    if follow_outcome == FollowOutcome::Teardown {
        let policy = EndPolicy { lock_wait: LOCK_WAIT, teardown: Teardown::Always, grace: Duration::from_secs(record.stop_grace_secs) };
        return finish_run(session, follow_outcome, policy, signals.first_signal()).await;
    }
    let (outcome, reason) = match (follow_outcome, signals.first_signal()) {
        (FollowOutcome::Detached, Some(number)) => (Outcome::Signal(number), "detached: the run keeps running".to_owned()),
        (FollowOutcome::Detached | FollowOutcome::Running | FollowOutcome::Teardown | FollowOutcome::Restart, _) => {
            (Outcome::Detached, "the run keeps running".to_owned())
        }
        (FollowOutcome::StoppedElsewhere, _) => (Outcome::Stopped, "the run was stopped from elsewhere".to_owned()),
        (FollowOutcome::Ended { ok: true, .. }, _) => (Outcome::Ok, "the run has ended; `orchestrate down` removes it".to_owned()),
        (FollowOutcome::Ended { stop_reason, .. }, _) => {
            (Outcome::Failed, format!("{}; `orchestrate down` removes it", stop_reason.unwrap_or_else(|| "the run failed".to_owned())))
        }
    };
    tracing::debug!(teardown = record.teardown, "stopped following");
    Ok(WorkflowEnd { outcome, reason })
}
