//! Attaches to a run that another command launched.

use std::time::Duration;

use crate::engine::follow::FollowOutcome;
use crate::event::Outcome;
use crate::inventory::Teardown;
use crate::lifecycle::error::{WorkflowEnd, WorkflowError};
use crate::lifecycle::follow::{FollowMode, follow_existing_run};
use crate::lifecycle::follow_tasks::{TasksEnd, follow_tasks};
use crate::lifecycle::session::{Session, collect_facts};
use crate::lifecycle::stop_controller::StopController;
use crate::lifecycle::teardown::{EndPolicy, finish_run};
use crate::plan::existing_run::{ExistingRun, classify_existing_run, ended_tasks_ok};
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
        ExistingRun::Preparing { run_id } => return attach_to_tasks(session, facts, &run_id, signals).await,
        ExistingRun::Ended { .. } if ended_tasks_ok(&known).is_some() => {
            return Ok(tasks_end(session, ended_tasks_ok(&known) == Some(true)));
        }
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

/// Follows tasks of `prepare`; no rank was started.
async fn attach_to_tasks(
    session: &mut Session,
    facts: Vec<Option<HostFacts>>,
    run: &str,
    signals: &mut StopController,
) -> Result<WorkflowEnd, WorkflowError> {
    let facts: Vec<HostFacts> = facts.into_iter().map(Option::unwrap_or_default).collect();
    session.notice(format!("tasks of {run} are running: following them (Ctrl-C detaches)"), false);
    let end = follow_tasks(session, &facts, run, signals).await?;
    let left = "the tasks keep running".to_owned();
    let (outcome, reason) = match (end, signals.first_signal()) {
        (TasksEnd::Teardown, signal) => {
            let policy = EndPolicy { lock_wait: LOCK_WAIT, teardown: Teardown::Always, grace: Duration::from_secs(60) };
            return finish_run(session, FollowOutcome::Teardown, policy, signal).await;
        }
        (TasksEnd::Detached, Some(number)) => (Outcome::Signal(number), left),
        (TasksEnd::Detached, None) => (Outcome::Detached, left),
        (TasksEnd::Ended { ok }, _) => return Ok(tasks_end(session, ok)),
    };
    Ok(WorkflowEnd { outcome, reason })
}

fn tasks_end(session: &Session, ok: bool) -> WorkflowEnd {
    let next = session.suggest_command("up", "");
    if ok {
        WorkflowEnd::new(Outcome::Ok, format!("the tasks have ended and no rank was started; continue with `{next}`"))
    } else {
        WorkflowEnd::new(Outcome::Failed, format!("a task failed and no rank was started; try again with `{next}`"))
    }
}
