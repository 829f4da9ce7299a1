//! Attaches to a run that another command launched.

use crate::engine::follow::FollowOutcome;
use crate::event::Outcome;
use crate::inventory::Teardown;
use crate::lifecycle::error::{WorkflowEnd, WorkflowError};
use crate::lifecycle::follow::{FollowMode, follow_existing_run};
use crate::lifecycle::follow_prepare_tasks::{TasksEnd, find_tasks_in_progress, follow_prepare_tasks, is_driver_alive, pause};
use crate::lifecycle::session::{Session, collect_facts};
use crate::lifecycle::stop_controller::StopController;
use crate::lifecycle::teardown::{DEFAULT_LOCK_WAIT, EndPolicy, finish_run};
use crate::plan::existing_run::{ExistingRun, classify_existing_run, ended_tasks_ok};
use crate::plan::facts::HostFacts;
use crate::plan::preparation::{PreparationProgress, has_tasks_alone, is_stopped, preparation_progress};
use crate::text::hostlist::fold_names;

/// How many tasks that did not run are named.
const MAX_NAMED_TASKS: usize = 3;

/// What there is to attach to.
enum AttachTarget {
    Run { run_id: String, facts: Vec<Option<HostFacts>> },
    Nothing(WorkflowEnd),
}

/// Follows the live run, or reports how it ended.
pub(crate) async fn attach(session: &mut Session, signals: &mut StopController) -> Result<WorkflowEnd, WorkflowError> {
    let (run, facts) = match find_target(session, signals).await? {
        AttachTarget::Run { run_id, facts } => (run_id, facts),
        AttachTarget::Nothing(end) => return Ok(end),
    };
    let (follow_outcome, record) = follow_existing_run(session, &facts, &run, signals, FollowMode::MayStop).await?;
    if follow_outcome == FollowOutcome::Teardown {
        let policy = EndPolicy { lock_wait: DEFAULT_LOCK_WAIT, teardown: Teardown::Always, grace: None };
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

/// Looks for a run with ranks. Tasks that another command runs are followed first, and the launch after them is waited for.
async fn find_target(session: &mut Session, signals: &mut StopController) -> Result<AttachTarget, WorkflowError> {
    let mut followed_tasks = false;
    loop {
        let (facts, outcome) = collect_facts(session.gather_facts(None).await);
        let known: Vec<HostFacts> = facts.iter().flatten().cloned().collect();
        let names = session.host_names();
        let reached: Vec<String> = names.iter().zip(&facts).filter(|(_, f)| f.is_some()).map(|(n, _)| n.clone()).collect();
        let existing = classify_existing_run(&known, &reached, &[]);
        if let Some(run) = find_tasks_in_progress(session, &existing, &known) {
            if let Some(end) = attach_to_tasks(session, &facts, &run, signals).await? {
                return Ok(AttachTarget::Nothing(end));
            }
            followed_tasks = true;
            continue;
        }
        // The command that launches is between two steps: some launchers run, or it clears the previous run.
        let unfinished = match existing {
            ExistingRun::Partial { .. } | ExistingRun::NoRun => true,
            ExistingRun::Ended { .. } => ended_tasks_ok(&known).is_some(),
            ExistingRun::Live { .. } | ExistingRun::Preparing { .. } => false,
        };
        if followed_tasks && unfinished && is_driver_alive(session, &known) {
            match pause(signals).await {
                None => continue,
                Some(end) => return end_following(session, end, signals).await.map(AttachTarget::Nothing),
            }
        }
        let nothing = |end| Ok(AttachTarget::Nothing(end));
        let run_id = match existing {
            ExistingRun::NoRun if followed_tasks && outcome == Outcome::Ok => {
                return nothing(WorkflowEnd::new(Outcome::Stopped, "the run was removed before its end was seen"));
            }
            ExistingRun::NoRun if outcome == Outcome::Ok => {
                let up = session.suggest_command("up", "");
                return nothing(WorkflowEnd::new(
                    Outcome::Refused,
                    format!("no run exists on the hosts: `{up}` launches one; `orchestrate runs` lists those that have ended"),
                ));
            }
            ExistingRun::NoRun => return nothing(WorkflowEnd::new(outcome, "no run exists on the hosts that answered")),
            ExistingRun::Ended { .. } | ExistingRun::Partial { .. } if is_preparation(&known) => {
                let silent: Vec<String> = names.iter().zip(&facts).filter(|(_, f)| f.is_none()).map(|(name, _)| name.clone()).collect();
                return nothing(describe_ended_tasks(session, &known, &silent));
            }
            ExistingRun::Live { run_id, .. } | ExistingRun::Ended { run_id } | ExistingRun::Preparing { run_id } => run_id,
            ExistingRun::Partial { reason } => {
                session.notice(format!("partial gang: {reason}; `orchestrate down` removes it"), true);
                known.iter().find_map(|f| f.current_run.clone()).unwrap_or_default()
            }
        };
        return Ok(AttachTarget::Run { run_id, facts });
    }
}

/// Follows tasks of `prepare`; `None`: something else is there now.
async fn attach_to_tasks(
    session: &mut Session,
    facts: &[Option<HostFacts>],
    run: &str,
    signals: &mut StopController,
) -> Result<Option<WorkflowEnd>, WorkflowError> {
    session.notice(format!("tasks of {run} are running: following them (Ctrl-C detaches)"), false);
    match follow_prepare_tasks(session, facts, run, signals).await? {
        TasksEnd::Replaced => Ok(None),
        end => end_following(session, end, signals).await.map(Some),
    }
}

async fn end_following(session: &mut Session, end: TasksEnd, signals: &StopController) -> Result<WorkflowEnd, WorkflowError> {
    let left = "the tasks keep running";
    match (end, signals.first_signal()) {
        (TasksEnd::Teardown, signal) => {
            let policy = EndPolicy { lock_wait: DEFAULT_LOCK_WAIT, teardown: Teardown::Always, grace: None };
            finish_run(session, FollowOutcome::Teardown, policy, signal).await
        }
        (TasksEnd::Detached, Some(number)) => Ok(WorkflowEnd::new(Outcome::Signal(number), left)),
        (TasksEnd::Detached | TasksEnd::Replaced, _) => Ok(WorkflowEnd::new(Outcome::Detached, left)),
        (TasksEnd::Stopped, _) => Ok(WorkflowEnd::new(Outcome::Stopped, "the tasks were stopped by another command")),
        (TasksEnd::HostsLost(hosts), _) => Ok(lost_hosts_end(session, &hosts)),
        (TasksEnd::Ended { ok }, _) => Ok(preparation_end(session, ok)),
        (TasksEnd::Abandoned { remaining, launch_follows }, _) => Ok(abandoned_tasks_end(session, &remaining, launch_follows)),
    }
}

/// Whether no rank was started after the tasks of `prepare`, none of which runs.
fn is_preparation(facts: &[HostFacts]) -> bool {
    let run = facts.iter().find_map(|facts| facts.current_run.clone()).unwrap_or_default();
    ended_tasks_ok(facts).is_some() || has_tasks_alone(facts, &run)
}

/// How a run of tasks ended that no command drives any more. `silent`: hosts that did not answer.
fn describe_ended_tasks(session: &Session, facts: &[HostFacts], silent: &[String]) -> WorkflowEnd {
    let run = facts.iter().find_map(|facts| facts.current_run.clone()).unwrap_or_default();
    match preparation_progress(facts, &run) {
        _ if is_stopped(facts, &run) => WorkflowEnd::new(Outcome::Stopped, "the tasks were stopped by another command"),
        _ if !silent.is_empty() => lost_hosts_end(session, silent),
        PreparationProgress::Between { remaining, launch_follows } => abandoned_tasks_end(session, &remaining, launch_follows),
        _ => preparation_end(session, ended_tasks_ok(facts) == Some(true)),
    }
}

/// Hosts do not answer, and nothing runs on the others.
fn lost_hosts_end(session: &Session, hosts: &[String]) -> WorkflowEnd {
    let (names, next) = (fold_names(hosts), session.suggest_command("attach", ""));
    let whose = if hosts.len() == 1 { "its task has" } else { "their tasks have" };
    let reason = format!("{names} could not be reached: whether {whose} ended is not known; try again with `{next}`");
    WorkflowEnd::new(Outcome::Unreachable, reason)
}

fn preparation_end(session: &Session, ok: bool) -> WorkflowEnd {
    let next = session.suggest_command("up", "");
    if ok {
        WorkflowEnd::new(Outcome::Ok, format!("the tasks have ended and no rank was started; continue with `{next}`"))
    } else {
        WorkflowEnd::new(Outcome::Failed, format!("a task failed and no rank was started; try again with `{next}`"))
    }
}

/// The command that ran the tasks has ended, or was killed, before the last one.
fn abandoned_tasks_end(session: &Session, remaining: &[String], launch_follows: bool) -> WorkflowEnd {
    if remaining.is_empty() {
        return preparation_end(session, true);
    }
    let next = session.suggest_command(if launch_follows { "up" } else { "prepare" }, "");
    let more = remaining.len().saturating_sub(MAX_NAMED_TASKS);
    let mut names = remaining.iter().take(MAX_NAMED_TASKS).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if more > 0 {
        names.push_str(&format!(" and {more} more"));
    }
    let reason = format!("the command that ran the tasks has ended before its last task: {names} did not run; continue with `{next}`");
    WorkflowEnd::new(Outcome::Failed, reason)
}
