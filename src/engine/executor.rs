//! Carries a plan out: one task a step, under its deadline.

use std::sync::Arc;

use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::engine::log_stream::LogOffsets;
use crate::engine::run_step::{StepResult, judge_task, record_sent_files, run_with_retries, send_task_files};
use crate::engine::run_task::run_task;
use crate::engine::scheduler::{FailurePolicy, next_steps};
use crate::engine::send_files::{FileInputs, SendPlace, SendTarget};
use crate::engine::task_logs::TaskLogs;
use crate::event::EventKind;
use crate::model::phase::Phase;
use crate::model::step_status::StepStatus;
use crate::plan::action::{Action, ActionResult, Issue, Observation};
use crate::plan::facts::HostFacts;
use crate::plan::{Plan, PlanStep};

/// A step that failed.
#[derive(Debug, Clone)]
pub(crate) struct FailedStep {
    pub host: usize,
    pub phase: Phase,
    pub issue: Issue,
    /// Whether the host could not be reached, or the one that its files come from.
    pub unreachable: bool,
}

/// How a plan is executed.
pub(crate) struct ExecutionOptions<'a> {
    /// What this laptop has of each log.
    pub offsets: &'a LogOffsets,
    /// What `sync` and `copy` tasks send.
    pub file_inputs: &'a FileInputs,
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
    /// What tasks have registered, by host.
    pub registered: Vec<Vec<(String, String)>>,
}

impl ExecutionReport {
    /// Whether everything was done.
    pub(crate) fn is_ok(&self) -> bool {
        self.failed_steps.is_empty() && !self.lock_lost && !self.interrupted
    }
}

/// A plan under way.
struct PlanExecution<'a> {
    engine: &'a Engine,
    plan: &'a Arc<Plan>,
    facts: &'a [Option<HostFacts>],
    options: ExecutionOptions<'a>,
    statuses: Vec<StepStatus>,
    report: ExecutionReport,
    running: JoinSet<(u32, StepResult)>,
    read_only_steps: Vec<AbortHandle>,
    phase: Option<Phase>,
    /// The logs of tasks, while tasks run.
    task_logs: Option<TaskLogs>,
    /// For the hosts of a `sync` or `copy` task that starts.
    send_place: Option<SendPlace>,
    /// Sends the files of tasks.
    senders: JoinSet<()>,
}

impl Engine {
    /// Runs every step of a plan. `facts`: one a host, what the steps observe.
    pub(crate) async fn execute(&self, plan: &Arc<Plan>, facts: &[Option<HostFacts>], options: ExecutionOptions<'_>) -> ExecutionReport {
        let ExecutionOptions { failure_policy, cancel_token, .. } = options;
        let mut execution = PlanExecution {
            engine: self,
            plan,
            facts,
            options,
            statuses: vec![StepStatus::Waiting; plan.steps.len()],
            report: ExecutionReport { registered: vec![Vec::new(); plan.hosts.len()], ..ExecutionReport::default() },
            running: JoinSet::new(),
            read_only_steps: Vec::new(),
            phase: None,
            task_logs: None,
            send_place: None,
            senders: JoinSet::new(),
        };
        let mut cancelled = false;
        loop {
            if !cancel_token.is_cancelled() && !execution.report.lock_lost {
                for id in next_steps(plan, &execution.statuses, failure_policy) {
                    execution.start_step(id).await;
                }
                execution.send_place = None;
            }
            let done = tokio::select! {
                done = execution.running.join_next() => done,
                () = cancel_token.cancelled(), if !cancelled => {
                    cancelled = true;
                    execution.read_only_steps.iter().for_each(AbortHandle::abort);
                    continue;
                }
            };
            let Some(done) = done else { break };
            let Ok((id, result)) = done else { continue };
            execution.record_result(id, result);
        }
        execution.finish(cancel_token.is_cancelled()).await
    }
}

impl PlanExecution<'_> {
    async fn start_step(&mut self, id: u32) {
        let Some(step) = self.plan.steps.get(id as usize) else { return };
        if self.phase != Some(step.phase) {
            self.phase = Some(step.phase);
            match (step.phase, self.task_logs.take()) {
                (Phase::Task(_), None) => self.task_logs = Some(TaskLogs::start(self.engine, &self.plan.hosts, self.options.offsets)),
                (Phase::Task(_), logs) => self.task_logs = logs,
                // A follower opens its own streams.
                (_, Some(logs)) => logs.stop().await,
                (_, None) => {}
            }
            self.engine.emitter().send(EventKind::PhaseStarted { phase: step.phase });
        }
        if let Some(status) = self.statuses.get_mut(id as usize) {
            *status = StepStatus::Running;
        }
        if let Action::SendFiles(task) = &step.action
            && self.send_place.is_none()
        {
            self.send_place = SendPlace::open(self.options.file_inputs, task.number, &self.engine.connections, &mut self.senders);
        }
        let Some(run) = self.step_work(step.clone()) else { return };
        let task = self.running.spawn(run);
        if step.action.is_read_only() {
            self.read_only_steps.push(task);
        }
    }

    /// The work of a step, with its id; `None` without a connection.
    fn step_work(&self, mut step: PlanStep) -> Option<impl Future<Output = (u32, StepResult)> + Send + 'static> {
        let link = self.engine.connections.get(step.host).cloned()?;
        let (emit, forks, offsets) = (self.engine.emitter.clone(), self.engine.forks.clone(), self.options.offsets.clone());
        let (facts, hosts) = (self.facts.get(step.host).cloned().flatten(), self.plan.hosts.len());
        let cancel_token = self.options.cancel_token.clone();
        step.action.set_registered(self.report.registered.get(step.host).map(Vec::as_slice).unwrap_or_default());
        let (place, context) = (self.send_place.clone(), self.plan.hosts.get(step.host).cloned());
        let log_end = match (step.phase, &self.task_logs) {
            (Phase::Task(number), Some(logs)) if matches!(step.action, Action::RunTask(_) | Action::WaitForTask(_)) => {
                Some(logs.wait_for_end(step.host, number))
            }
            _ => None,
        };
        Some(async move {
            let id = step.id;
            if let Some(facts) = &facts {
                match step.action.observe(facts) {
                    Observation::Satisfied(note) => return (id, StepResult::Satisfied(note)),
                    Observation::Impossible(troubles) => return (id, StepResult::Impossible(troubles)),
                    Observation::Needed(_) => {}
                }
            }
            let turn = forks.acquire_owned().await;
            emit.send(EventKind::StepStarted { step: id });
            let result = match &step.action {
                Action::RunTask(run) => match run_task(&link, id, run, &cancel_token).await {
                    Some(Ok(output)) => judge_task(&step, run, &output),
                    Some(Err(error)) => StepResult::Unreachable(error),
                    None => StepResult::BrokenOff,
                },
                Action::SendFiles(task) => {
                    let target = context.clone().map(|context| SendTarget { step: id, connection: link.clone(), context });
                    let sent = send_task_files(target, task, place, turn.ok()).await;
                    record_sent_files(&link, context.as_ref(), task.number, sent).await
                }
                _ => run_with_retries(&link, &step, &offsets, hosts).await,
            };
            if let (Some(log_end), StepResult::Executed(_) | StepResult::Registered(..)) = (log_end, &result) {
                log_end.await;
            }
            (id, result)
        })
    }

    /// Ends what is still under way, and sums up.
    async fn finish(mut self, cancelled: bool) -> ExecutionReport {
        if let Some(logs) = self.task_logs.take() {
            logs.stop().await;
        }
        while self.senders.join_next().await.is_some() {}
        for (step, _) in self.plan.steps.iter().zip(&self.statuses).filter(|(_, status)| **status == StepStatus::Running) {
            let error = "interrupted".to_owned();
            self.engine.emitter.send(EventKind::StepFailed { step: step.id, error, hint: String::new(), unreachable: false });
            self.report.may_have_leftovers |= step.action.can_leave_leftovers();
        }
        self.report.interrupted = cancelled && self.statuses.iter().any(|status| !status.has_ended());
        self.report
    }

    fn record_result(&mut self, id: u32, result: StepResult) {
        let Some(step) = self.plan.steps.get(id as usize) else { return };
        let executed = matches!(result, StepResult::Executed(_) | StepResult::Registered(..) | StepResult::Unreachable(_));
        self.report.may_have_leftovers |= executed && step.action.can_leave_leftovers();
        let status = match result {
            StepResult::BrokenOff => return,
            StepResult::Satisfied(note) => {
                self.engine.emitter.send(EventKind::StepSatisfied { step: id, note });
                StepStatus::Satisfied
            }
            StepResult::Executed(result) => self.record_action_result(step, result),
            StepResult::Registered(result, value) => {
                self.register(step, &value);
                self.record_action_result(step, result)
            }
            StepResult::Impossible(troubles) => self.record_failure(step, troubles, false),
            StepResult::NotSent(error) => {
                let status = self.record_failure(step, vec![Issue::new(error.what, error.hint)], error.unreachable && !error.of_source);
                // That the source was lost decides the outcome, but this host was reached.
                if let Some(failed) = self.report.failed_steps.last_mut() {
                    failed.unreachable = error.unreachable;
                }
                status
            }
            StepResult::Unreachable(error) => self.record_failure(step, vec![Issue::new(error.to_string(), error.hint())], true),
        };
        if let Some(known) = self.statuses.get_mut(id as usize) {
            *known = status;
        }
    }

    fn record_action_result(&mut self, step: &PlanStep, result: ActionResult) -> StepStatus {
        match result {
            ActionResult::Done { note, changed, warning } => {
                if !warning.is_empty() {
                    self.engine.emitter().send_notice(Some(step.host), warning, true);
                }
                self.report.changed_steps += u32::from(changed);
                if let Action::StartLauncher(_) = step.action {
                    self.report.launched_hosts.push(step.host);
                    self.engine.emitter.send(EventKind::LauncherStarted { host: u32::try_from(step.host).unwrap_or(u32::MAX) });
                }
                let (kind, status) = if changed {
                    (EventKind::StepDone { step: step.id, note }, StepStatus::Done)
                } else {
                    (EventKind::StepSatisfied { step: step.id, note }, StepStatus::Satisfied)
                };
                self.engine.emitter.send(kind);
                status
            }
            ActionResult::Skipped(note) => {
                self.engine.emitter.send(EventKind::StepSkipped { step: step.id, note });
                StepStatus::Skipped
            }
            ActionResult::Failed(trouble) => self.record_failure(step, vec![trouble], false),
            ActionResult::LockLost => {
                self.report.lock_lost = true;
                self.record_failure(step, vec![Issue::new("another operator took the lock", "")], false)
            }
        }
    }

    /// Keeps a registered value for the later steps of its host, or of every host.
    fn register(&mut self, step: &PlanStep, value: &(String, String)) {
        let shared = matches!(&step.action, Action::RunTask(run) if run.task.shares_value);
        for (_, values) in self.report.registered.iter_mut().enumerate().filter(|(host, _)| shared || *host == step.host) {
            values.retain(|(name, _)| *name != value.0);
            values.push(value.clone());
        }
    }

    fn record_failure(&mut self, step: &PlanStep, issues: Vec<Issue>, unreachable: bool) -> StepStatus {
        let error = issues.iter().map(|t| t.message.as_str()).collect::<Vec<_>>().join("; ");
        let mut hints: Vec<&str> = issues.iter().map(|t| t.hint.as_str()).filter(|h| !h.is_empty()).collect();
        hints.dedup();
        self.engine.emitter.send(EventKind::StepFailed { step: step.id, error, hint: hints.join("; "), unreachable });
        self.report.failed_steps.extend(issues.into_iter().map(|trouble| FailedStep {
            host: step.host,
            phase: step.phase,
            issue: trouble,
            unreachable,
        }));
        StepStatus::Failed
    }
}
