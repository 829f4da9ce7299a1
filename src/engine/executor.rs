//! Carries a plan out: one task a step, under its deadline, tried again where the connection and not the host was at fault.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::engine::host_connection::HostConnection;
use crate::engine::log_stream::{self, LogOffsets};
use crate::engine::scheduler::{FailurePolicy, next_steps};
use crate::event::EventKind;
use crate::model::phase::Phase;
use crate::model::step_status::StepStatus;
use crate::plan::action::{Action, ActionResult, Execution, Issue, Observation};
use crate::plan::facts::HostFacts;
use crate::plan::{Plan, PlanStep};
use crate::remote::RemoteError;

/// How often a step is tried on a new connection.
const MAX_TRIES: u32 = 4;

/// A step that failed.
#[derive(Debug, Clone)]
pub(crate) struct FailedStep {
    pub host: usize,
    pub phase: Phase,
    pub issue: Issue,
    /// Whether the host could not be reached.
    pub unreachable: bool,
}

/// How a plan is executed.
pub(crate) struct ExecutionOptions<'a> {
    /// What this laptop has of each log.
    pub offsets: &'a LogOffsets,
    pub failure_policy: FailurePolicy,
    /// Ends the execution before the next step starts. Steps that only read are aborted, the others finish within their deadline.
    pub cancel_token: &'a CancellationToken,
}

/// The result of executing a plan.
#[derive(Debug, Default)]
pub(crate) struct ExecutionReport {
    pub failed_steps: Vec<FailedStep>,
    /// Steps that changed something.
    pub changed_steps: u32,
    /// Another operator took the lock.
    pub lock_lost: bool,
    /// The caller cancelled it.
    pub interrupted: bool,
    /// Hosts on which a launcher was started.
    pub launched_hosts: Vec<usize>,
    /// Whether a step was started that can leave something on its host, even if it failed.
    pub may_have_leftovers: bool,
}

impl ExecutionReport {
    /// Whether everything was done.
    pub(crate) fn is_ok(&self) -> bool {
        self.failed_steps.is_empty() && !self.lock_lost && !self.interrupted
    }
}

enum StepResult {
    Satisfied(String),
    Executed(ActionResult),
    Impossible(Vec<Issue>),
    Unreachable(RemoteError),
}

impl Engine {
    /// Runs every step of a plan. `facts`: one a host, what the steps observe.
    pub(crate) async fn execute(&self, plan: &Arc<Plan>, facts: &[Option<HostFacts>], options: ExecutionOptions<'_>) -> ExecutionReport {
        let ExecutionOptions { offsets, failure_policy, cancel_token } = options;
        let mut statuses = vec![StepStatus::Waiting; plan.steps.len()];
        let mut report = ExecutionReport::default();
        let mut tasks: JoinSet<(u32, StepResult)> = JoinSet::new();
        let mut phase = None;
        let mut read_only_tasks: Vec<AbortHandle> = Vec::new();
        let mut cancelled = false;
        loop {
            if !cancel_token.is_cancelled() && !report.lock_lost {
                for id in next_steps(plan, &statuses, failure_policy) {
                    let Some(step) = plan.steps.get(id as usize) else { continue };
                    if phase != Some(step.phase) {
                        phase = Some(step.phase);
                        self.emitter().send(EventKind::PhaseStarted { phase: step.phase });
                    }
                    if let Some(status) = statuses.get_mut(id as usize) {
                        *status = StepStatus::Running;
                    }
                    let facts = facts.get(step.host).cloned().flatten();
                    let Some(run) = self.run_step(step.clone(), facts, offsets, plan.hosts.len()) else { continue };
                    let task = tasks.spawn(run);
                    read_only_tasks.extend(Some(task).filter(|_| step.action.is_read_only()));
                }
            }
            let done = tokio::select! {
                done = tasks.join_next() => done,
                () = cancel_token.cancelled(), if !cancelled => {
                    cancelled = true;
                    read_only_tasks.iter().for_each(AbortHandle::abort);
                    continue;
                }
            };
            let Some(done) = done else { break };
            let Ok((id, result)) = done else { continue };
            let new_status = self.record_result(plan, id, result, &mut report);
            if let Some(status) = statuses.get_mut(id as usize) {
                *status = new_status;
            }
        }
        for (step, _) in plan.steps.iter().zip(&statuses).filter(|(_, status)| **status == StepStatus::Running) {
            self.emitter.send(EventKind::StepFailed { step: step.id, error: "broken off".to_owned(), hint: String::new() });
            report.may_have_leftovers |= step.action.can_leave_leftovers();
        }
        report.interrupted = cancel_token.is_cancelled() && statuses.iter().any(|status| !status.has_ended());
        report
    }

    /// The work of a step, with its id; `None` without a connection.
    fn run_step(
        &self,
        step: PlanStep,
        facts: Option<HostFacts>,
        offsets: &LogOffsets,
        hosts: usize,
    ) -> Option<impl Future<Output = (u32, StepResult)> + Send + 'static> {
        let link = self.connections.get(step.host).cloned()?;
        let (emit, forks, offsets) = (self.emitter.clone(), self.forks.clone(), offsets.clone());
        Some(async move {
            let id = step.id;
            if let Some(facts) = &facts {
                match step.action.observe(facts) {
                    Observation::Satisfied(note) => return (id, StepResult::Satisfied(note)),
                    Observation::Impossible(troubles) => return (id, StepResult::Impossible(troubles)),
                    Observation::Needed(_) => {}
                }
            }
            let _turn = forks.acquire_owned().await;
            emit.send(EventKind::StepStarted { step: id });
            (id, run_with_retries(&link, &step, &offsets, hosts).await)
        })
    }

    fn record_result(&self, plan: &Plan, id: u32, result: StepResult, report: &mut ExecutionReport) -> StepStatus {
        let Some(step) = plan.steps.get(id as usize) else { return StepStatus::Failed };
        report.may_have_leftovers |=
            matches!(result, StepResult::Executed(_) | StepResult::Unreachable(_)) && step.action.can_leave_leftovers();
        match result {
            StepResult::Satisfied(note) => {
                self.emitter.send(EventKind::StepSatisfied { step: id, note });
                StepStatus::Satisfied
            }
            StepResult::Executed(ActionResult::Done { note, changed, warning }) => {
                if !warning.is_empty() {
                    self.emitter.send_notice(Some(step.host), warning, true);
                }
                report.changed_steps += u32::from(changed);
                if let Action::StartLauncher(_) = step.action {
                    report.launched_hosts.push(step.host);
                    self.emitter.send(EventKind::LauncherStarted { host: u32::try_from(step.host).unwrap_or(u32::MAX) });
                }
                let (kind, status) = if changed {
                    (EventKind::StepDone { step: id, note }, StepStatus::Done)
                } else {
                    (EventKind::StepSatisfied { step: id, note }, StepStatus::Satisfied)
                };
                self.emitter.send(kind);
                status
            }
            StepResult::Executed(ActionResult::Failed(trouble)) => self.record_failure(step, vec![trouble], false, report),
            StepResult::Impossible(troubles) => self.record_failure(step, troubles, false, report),
            StepResult::Executed(ActionResult::LockLost) => {
                report.lock_lost = true;
                self.record_failure(step, vec![Issue::new("another operator took the lock", "")], false, report)
            }
            StepResult::Unreachable(error) => self.record_failure(step, vec![Issue::new(error.to_string(), error.hint())], true, report),
        }
    }

    fn record_failure(&self, step: &PlanStep, issues: Vec<Issue>, unreachable: bool, report: &mut ExecutionReport) -> StepStatus {
        let error = issues.iter().map(|t| t.message.as_str()).collect::<Vec<_>>().join("; ");
        let mut hints: Vec<&str> = issues.iter().map(|t| t.hint.as_str()).filter(|h| !h.is_empty()).collect();
        hints.dedup();
        self.emitter.send(EventKind::StepFailed { step: step.id, error, hint: hints.join("; ") });
        report.failed_steps.extend(issues.into_iter().map(|trouble| FailedStep {
            host: step.host,
            phase: step.phase,
            issue: trouble,
            unreachable,
        }));
        StepStatus::Failed
    }
}

async fn run_with_retries(connection: &Arc<HostConnection>, step: &PlanStep, offsets: &LogOffsets, hosts: usize) -> StepResult {
    let mut tries = 1;
    loop {
        let ended = run_step_once(connection, step, offsets, hosts).await;
        let StepResult::Unreachable(error) = &ended else { return ended };
        if !error.is_retryable() || tries >= MAX_TRIES || matches!(error, RemoteError::Timeout { .. }) {
            return ended;
        }
        connection.emit_step_retry(step.id, error);
        tokio::time::sleep(Duration::from_millis(500 << tries)).await;
        tries += 1;
    }
}

async fn run_step_once(connection: &Arc<HostConnection>, step: &PlanStep, offsets: &LogOffsets, hosts: usize) -> StepResult {
    match step.action.execution() {
        Execution::NoOp => StepResult::Satisfied(String::new()),
        Execution::Script(command) => match connection.exec(&command).await {
            Ok(output) => StepResult::Executed(step.action.judge(&output)),
            Err(error) => StepResult::Unreachable(error),
        },
        Execution::Connect { address, port, timeout: within } => match connection.probe_tcp(&address, port, within).await {
            Ok(found) => step.action.judge_connection(&found).map_or_else(StepResult::Satisfied, StepResult::Executed),
            Err(error) => StepResult::Unreachable(error),
        },
        Execution::FetchLogs { run_id: _ } => {
            let Action::FetchLogs(fetch) = &step.action else { return StepResult::Satisfied(String::new()) };
            match log_stream::fetch_and_sync_logs(connection, &fetch.context, offsets, hosts).await {
                Ok(fetched) => StepResult::Executed(ActionResult::unchanged(describe_fetched_logs(&fetched))),
                Err(log_stream::LogStreamError::Remote(error)) => StepResult::Unreachable(error),
                Err(log_stream::LogStreamError::NotStored) => StepResult::Executed(ActionResult::failed(
                    "the logs could not be written on this laptop",
                    "free space here then `orchestrate down`: the host keeps them",
                )),
                Err(log_stream::LogStreamError::NotSynced(why)) => StepResult::Executed(ActionResult::failed(
                    format!("this laptop's disk did not take the logs: {why}"),
                    "look at the disk then `orchestrate down`: the host keeps them",
                )),
            }
        }
    }
}

/// What a fetch brought, in words; a log that shrank is not complete.
fn describe_fetched_logs(fetched: &log_stream::FetchedLogs) -> String {
    let names: Vec<String> = fetched.truncated_files.iter().map(ToString::to_string).collect();
    if names.is_empty() {
        return format!("{} bytes", fetched.bytes);
    }
    format!("{} bytes; not complete, since shorter on the host than before: {}", fetched.bytes, names.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::LogFile;

    #[test]
    fn truncated_logs_are_not_reported_complete() {
        let whole = log_stream::FetchedLogs { bytes: 7, ..log_stream::FetchedLogs::default() };
        assert_eq!(describe_fetched_logs(&whole), "7 bytes");
        let shrunk =
            log_stream::FetchedLogs { truncated_files: [LogFile::Launcher, LogFile::Rank { rank: 3, restart: 0 }].into(), ..whole };
        assert_eq!(describe_fetched_logs(&shrunk), "7 bytes; not complete, since shorter on the host than before: node rank-3.0");
    }
}
