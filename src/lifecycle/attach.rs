//! Follows a run that another operation has launched.

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

/// How long a tear-down waits for another operator's lock.
const LOCK_WAIT: Duration = Duration::from_secs(45);

/// Follows what runs, or shows how it ended.
pub(crate) async fn attach(session: &mut Session, signals: &mut StopController) -> Result<WorkflowEnd, WorkflowError> {
    let (facts, outcome) = collect_facts(session, session.gather_facts(None).await);
    let known: Vec<HostFacts> = facts.iter().flatten().cloned().collect();
    let names = session.host_names();
    let reached: Vec<String> = names.iter().zip(&facts).filter(|(_, f)| f.is_some()).map(|(n, _)| n.clone()).collect();
    let run = match classify_existing_run(&known, &reached, &[]) {
        ExistingRun::NoRun if outcome == Outcome::Ok => return Ok(WorkflowEnd::new(Outcome::Ok, "nothing of this name runs")),
        ExistingRun::NoRun => return Ok(WorkflowEnd::new(outcome, "nothing of this name runs on the hosts that answered")),
        ExistingRun::Live { run_id: run, .. } | ExistingRun::Ended { run_id: run } => run,
        ExistingRun::Partial { reason: why } => {
            session.notice(format!("not a whole gang: {why}; `orchestrate down` removes it"), true);
            known.iter().find_map(|f| f.current_run.clone()).unwrap_or_default()
        }
    };
    let facts: Vec<HostFacts> = facts.into_iter().map(Option::unwrap_or_default).collect();
    let (finish, file) = follow_existing_run(session, &facts, &run, signals, FollowMode::MayStop).await?;
    if finish == FollowOutcome::Teardown {
        let policy = EndPolicy { lock_wait: LOCK_WAIT, teardown: Teardown::Always, grace: Duration::from_secs(file.stop_grace_secs) };
        return finish_run(session, finish, policy, signals.first_signal()).await;
    }
    let (outcome, reason) = match (finish, signals.first_signal()) {
        (FollowOutcome::Detached, Some(number)) => (Outcome::Signal(number), "detached: the run goes on".to_owned()),
        (FollowOutcome::Detached | FollowOutcome::Running | FollowOutcome::Teardown | FollowOutcome::Restart, _) => {
            (Outcome::Detached, "the run goes on".to_owned())
        }
        (FollowOutcome::StoppedElsewhere, _) => (Outcome::Stopped, "the run was stopped from elsewhere".to_owned()),
        (FollowOutcome::Ended { ok: true, .. }, _) => (Outcome::Ok, "the run has ended; `orchestrate down` removes it".to_owned()),
        (FollowOutcome::Ended { stop_reason: stopped, .. }, _) => {
            (Outcome::Failed, format!("{}; `orchestrate down` removes it", stopped.unwrap_or_else(|| "the run failed".to_owned())))
        }
    };
    tracing::debug!(teardown = file.teardown, "followed to its end");
    Ok(WorkflowEnd { outcome, reason })
}
