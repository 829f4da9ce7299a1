//! Follows tasks of `prepare` that another command has started, until none runs.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::engine::executor::{ExecutionOptions, ExecutionReport};
use crate::engine::scheduler::FailurePolicy;
use crate::event::RunControl;
use crate::lifecycle::error::WorkflowError;
use crate::lifecycle::session::{Session, find_run_record};
use crate::lifecycle::stop_controller::StopController;
use crate::model::phase::Phase;
use crate::plan::Plan;
use crate::plan::action::Action;
use crate::plan::action::task::WaitForTasks;
use crate::plan::existing_run::running_tasks;
use crate::plan::facts::HostFacts;

/// How the waiting ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TasksEnd {
    /// No task runs; whether all ended well.
    Ended { ok: bool },
    /// The user left, the tasks go on.
    Detached,
    /// The user wants everything removed.
    Teardown,
}

/// Shows the logs of the tasks that run, and waits for their end.
pub(crate) async fn follow_tasks(
    session: &mut Session,
    facts: &[HostFacts],
    run: &str,
    signals: &mut StopController,
) -> Result<TasksEnd, WorkflowError> {
    let record = find_run_record(facts.iter(), run).cloned();
    let offsets = session.open_run_dir(run, record.as_ref()).await?;
    let known: Vec<Option<HostFacts>> = facts.iter().cloned().map(|f| Some(f).filter(|f| !f.run_dir.is_empty())).collect();
    let plan = plan_waiting(session, &known, record.as_ref().map(|record| &record.tasks));
    session.emit_run_started(run, Some(&plan));
    let cancel_token = CancellationToken::new();
    let options = ExecutionOptions { offsets: &offsets, failure_policy: FailurePolicy::Teardown, cancel_token: &cancel_token };
    let engine = session.engine.clone();
    let waiting = engine.execute(&plan, &known, options);
    tokio::pin!(waiting);
    let mut end = None;
    let report: ExecutionReport = loop {
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
    Ok(end.unwrap_or(TasksEnd::Ended { ok: report.is_ok() }))
}

fn plan_waiting(session: &Session, facts: &[Option<HostFacts>], names: Option<&std::collections::BTreeMap<u32, String>>) -> Arc<Plan> {
    let mut plan = Plan::empty(session.host_contexts(facts, None));
    let running: Vec<Vec<u32>> = facts.iter().map(|facts| facts.as_ref().map(running_tasks).unwrap_or_default()).collect();
    let Some(first) = running.iter().flatten().min().copied() else { return Arc::new(plan) };
    for (host, numbers) in running.into_iter().enumerate().filter(|(_, numbers)| !numbers.is_empty()) {
        let name = |number: &u32| names.and_then(|names| names.get(number)).cloned().unwrap_or_else(|| format!("task {number}"));
        let title = numbers.iter().map(name).collect::<Vec<_>>().join(", ");
        let Some(context) = plan.hosts.get(host).cloned() else { continue };
        plan.push(host, Phase::Task(first), Action::WaitForTasks(WaitForTasks { context, numbers, title }));
    }
    Arc::new(plan)
}
