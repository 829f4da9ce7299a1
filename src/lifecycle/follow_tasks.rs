//! Follows tasks of `prepare` that another command runs, until the last one has ended.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::engine::executor::{ExecutionOptions, ExecutionReport};
use crate::engine::log_stream::LogOffsets;
use crate::engine::scheduler::FailurePolicy;
use crate::engine::sync_files::SyncInputs;
use crate::event::{Outcome, RunControl};
use crate::lifecycle::error::WorkflowError;
use crate::lifecycle::session::{Session, collect_facts, find_run_record};
use crate::lifecycle::stop_controller::StopController;
use crate::model::phase::Phase;
use crate::plan::Plan;
use crate::plan::action::Action;
use crate::plan::action::task::WaitForTask;
use crate::plan::existing_run::{ExistingRun, running_tasks};
use crate::plan::facts::HostFacts;
use crate::plan::preparation::{PreparationProgress, has_failed_task, is_lock_held, preparation_progress};

/// How long after a task its successor is looked for.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How following the tasks ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TasksEnd {
    /// No task is to come; whether all ended well.
    Ended { ok: bool },
    /// The command that ran them has ended before its end: what it has not started.
    Abandoned {
        /// The names of the tasks; empty: the ranks alone.
        remaining: Vec<String>,
        /// Whether it would have launched ranks.
        launch_follows: bool,
    },
    /// Ranks were started, another run is current, or the run was removed.
    Replaced,
    /// The user left, the tasks go on.
    Detached,
    /// The user wants everything removed.
    Teardown,
}

/// The run whose tasks another command is running on these hosts, though none may run at this moment.
pub(crate) fn find_tasks_in_progress(session: &Session, existing: &ExistingRun, facts: &[HostFacts]) -> Option<String> {
    match existing {
        ExistingRun::Preparing { run_id } => Some(run_id.clone()),
        ExistingRun::Ended { .. } | ExistingRun::Partial { .. } => {
            let run = facts.iter().find_map(|facts| facts.current_run.clone())?;
            let has_tasks = facts.iter().filter_map(HostFacts::run_record).any(|record| !record.tasks.is_empty());
            let between = matches!(preparation_progress(facts, &run), PreparationProgress::Between { .. });
            (has_tasks && between && is_driver_alive(session, facts)).then_some(run)
        }
        ExistingRun::NoRun | ExistingRun::Live { .. } => None,
    }
}

/// Whether a command that changes these hosts is at work.
pub(crate) fn is_driver_alive(session: &Session, facts: &[HostFacts]) -> bool {
    let identity = &session.local.identity;
    is_lock_held(facts, &identity.local_machine_id, identity.is_process_alive)
}

/// Shows the logs of the tasks that run, and waits for their end and for the tasks after them.
pub(crate) async fn follow_tasks(
    session: &mut Session,
    facts: &[HostFacts],
    run: &str,
    signals: &mut StopController,
) -> Result<TasksEnd, WorkflowError> {
    let mut facts = facts.to_vec();
    let mut followed = BTreeSet::new();
    let mut offsets = None;
    // The run of a failed task is removed; then nothing on the hosts tells of the failure any more.
    let mut has_failed = false;
    loop {
        has_failed |= has_failed_task(&facts, run);
        let known: Vec<Option<HostFacts>> = facts.iter().cloned().map(|f| Some(f).filter(|f| !f.run_dir.is_empty())).collect();
        let plan = plan_waiting(session, &known, &mut followed);
        if !plan.steps.is_empty() {
            let offsets = match &offsets {
                Some(offsets) => offsets,
                None => offsets.insert(session.open_run_dir(run, find_run_record(facts.iter(), run)).await?),
            };
            session.emit_run_started(run, Some(&plan));
            match execute_waiting(session, &plan, &known, offsets, signals).await {
                Ok(report) if report.is_ok() => {}
                Ok(_) => return Ok(TasksEnd::Ended { ok: false }),
                Err(end) => return Ok(end),
            }
            facts = match look_again(session, signals).await {
                Ok(facts) => facts,
                Err(end) => return Ok(end),
            };
            continue;
        }
        match preparation_progress(&facts, run) {
            PreparationProgress::Running => {}
            // A command that is removing the run takes its files one by one: a status may be gone before its pid.
            PreparationProgress::Failed if is_driver_alive(session, &facts) => {}
            PreparationProgress::Failed => return Ok(TasksEnd::Ended { ok: false }),
            PreparationProgress::Removed if has_failed => return Ok(TasksEnd::Ended { ok: false }),
            PreparationProgress::Replaced | PreparationProgress::Removed => return Ok(TasksEnd::Replaced),
            // `sync` tasks leave no status: the command that runs them may have some to do yet.
            PreparationProgress::Between { .. } if is_driver_alive(session, &facts) => {}
            PreparationProgress::Between { remaining, launch_follows: false } if remaining.is_empty() => {
                return Ok(TasksEnd::Ended { ok: true });
            }
            PreparationProgress::Between { remaining, launch_follows } => return Ok(TasksEnd::Abandoned { remaining, launch_follows }),
        }
        if let Some(end) = pause(signals).await {
            return Ok(end);
        }
        facts = match look_again(session, signals).await {
            Ok(facts) => facts,
            Err(end) => return Ok(end),
        };
    }
}

/// The facts of all hosts; a host that cannot be reached is waited for.
///
/// # Errors
/// The user left meanwhile.
async fn look_again(session: &Session, signals: &mut StopController) -> Result<Vec<HostFacts>, TasksEnd> {
    loop {
        let (facts, outcome) = collect_facts(session, session.gather_facts(None).await);
        if outcome == Outcome::Ok {
            return Ok(facts.into_iter().flatten().collect());
        }
        if let Some(end) = pause(signals).await {
            return Err(end);
        }
    }
}

/// Waits a moment; what the user wants if it comes first.
pub(crate) async fn pause(signals: &mut StopController) -> Option<TasksEnd> {
    tokio::select! {
        () = tokio::time::sleep(LOOK_INTERVAL) => None,
        control = signals.controls.recv() => match control {
            Some(RunControl::Teardown) => Some(TasksEnd::Teardown),
            Some(RunControl::Stop { .. } | RunControl::Kill { .. }) => None,
            Some(RunControl::Detach | RunControl::Restart) | None => Some(TasksEnd::Detached),
        },
    }
}

/// Waits for the tasks of a plan.
///
/// # Errors
/// The user left meanwhile.
async fn execute_waiting(
    session: &Session,
    plan: &Arc<Plan>,
    facts: &[Option<HostFacts>],
    offsets: &LogOffsets,
    signals: &mut StopController,
) -> Result<ExecutionReport, TasksEnd> {
    let cancel_token = CancellationToken::new();
    let sync_inputs = SyncInputs::default();
    let options =
        ExecutionOptions { offsets, sync_inputs: &sync_inputs, failure_policy: FailurePolicy::Teardown, cancel_token: &cancel_token };
    let engine = &session.engine;
    let waiting = engine.execute(plan, facts, options);
    tokio::pin!(waiting);
    let mut end = None;
    let report = loop {
        tokio::select! {
            report = &mut waiting => break report,
            control = signals.controls.recv(), if end.is_none() => match control {
                Some(RunControl::Stop { .. } | RunControl::Kill { .. }) => engine.kill_all_ranks(&plan.hosts).await,
                Some(RunControl::Teardown) => end = Some(TasksEnd::Teardown),
                Some(RunControl::Detach | RunControl::Restart) | None => end = Some(TasksEnd::Detached),
            },
        }
        if end.is_some() {
            cancel_token.cancel();
        }
    };
    end.map_or(Ok(report), Err)
}

/// A plan that waits for what was not followed yet: at first for the tasks that run, later for those too that have ended meanwhile.
fn plan_waiting(session: &Session, facts: &[Option<HostFacts>], followed: &mut BTreeSet<(u32, usize)>) -> Arc<Plan> {
    let mut plan = Plan::empty(session.host_contexts(facts, None));
    let is_first = followed.is_empty();
    let mut found = BTreeSet::new();
    for (host, facts) in facts.iter().enumerate().filter_map(|(host, facts)| Some((host, facts.as_ref()?))) {
        let numbers = if is_first { running_tasks(facts) } else { facts.tasks.keys().copied().collect() };
        found.extend(numbers.into_iter().map(|number| (number, host)));
    }
    if let (false, Some((first, _))) = (is_first, followed.first()) {
        found.retain(|(number, _)| number >= first);
    }
    for (number, host) in found.difference(followed) {
        let record = facts.get(*host).and_then(|facts| facts.as_ref()?.run_record());
        let title = record.and_then(|record| record.tasks.get(number).cloned()).unwrap_or_else(|| format!("task {number}"));
        let Some(context) = plan.hosts.get(*host).cloned() else { continue };
        plan.push(*host, Phase::Task(*number), Action::WaitForTask(WaitForTask { context, number: *number, title }));
    }
    followed.append(&mut found);
    Arc::new(plan)
}
