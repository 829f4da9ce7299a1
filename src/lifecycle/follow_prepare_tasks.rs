//! Follows tasks of `prepare` that another command runs, until the last one has ended.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::engine::executor::{ExecutionOptions, ExecutionReport, FailedStep};
use crate::engine::log_stream::LogOffsets;
use crate::engine::scheduler::FailurePolicy;
use crate::engine::send_files::FileInputs;
use crate::event::RunControl;
use crate::lifecycle::error::WorkflowError;
use crate::lifecycle::session::{Session, find_run_record};
use crate::lifecycle::stop_controller::StopController;
use crate::model::phase::Phase;
use crate::plan::Plan;
use crate::plan::action::Action;
use crate::plan::action::task::{TASK_REMOVED, TASK_STOPPED, WaitForTask};
use crate::plan::existing_run::{ExistingRun, running_tasks};
use crate::plan::facts::HostFacts;
use crate::plan::preparation::{PreparationProgress, has_failed_task, has_tasks_alone, is_lock_held, is_stopped, preparation_progress};
use crate::text::duration::format_rounded;
use crate::text::hostlist::fold_names;

/// How long after a task its successor is looked for.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How often hosts are asked while one of them is lost; after an error that no retry mends, a tenth of the time in which it is given up, and
/// this at most.
const LOST_HOST_INTERVAL: Duration = Duration::from_secs(2);
const MAX_FATAL_INTERVAL: Duration = Duration::from_secs(60);

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
    /// An order of another command stopped the tasks.
    Stopped,
    /// These hosts do not answer. Nothing runs on the others, and no command is at work.
    HostsLost(Vec<String>),
    /// Ranks were started, another run is current, or the run was removed.
    Replaced,
    /// The user left, the tasks continue.
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
            (has_tasks_alone(facts, &run) && is_driver_alive(session, facts)).then_some(run)
        }
        ExistingRun::NoRun | ExistingRun::Live { .. } => None,
    }
}

/// Whether a command that changes these hosts is at work.
pub(crate) fn is_driver_alive(session: &Session, facts: &[HostFacts]) -> bool {
    let identity = &session.local.identity;
    is_lock_held(facts, &identity.local_machine_id, identity.is_process_alive)
}

/// The last answers of the hosts.
struct PolledHosts {
    /// One a host; of a host that did not answer nothing is known.
    facts: Vec<Option<HostFacts>>,
    /// Hosts that did not answer, and whether another try can mend why.
    silent: Vec<(usize, bool)>,
}

impl PolledHosts {
    fn known(&self) -> Vec<HostFacts> {
        self.facts.iter().flatten().cloned().collect()
    }

    /// Whether time mends nothing: a host refuses the connection for good, or others answer, so that the laptop's own network is not the reason.
    fn has_lost_host(&self) -> bool {
        self.silent.iter().any(|(_, retryable)| !retryable) || !self.silent.is_empty() && self.facts.iter().any(Option::is_some)
    }

    /// How long the hosts that did not answer are waited for.
    fn give_up_window(&self, session: &Session) -> Duration {
        let silent = self.silent.iter().filter_map(|(host, _)| session.engine.connections().get(*host));
        silent.map(|connection| connection.retry_window()).max().unwrap_or_default()
    }
}

/// Shows the logs of the tasks that run, and waits for their end and for the tasks after them.
pub(crate) async fn follow_prepare_tasks(
    session: &mut Session,
    facts: &[Option<HostFacts>],
    run: &str,
    signals: &mut StopController,
) -> Result<TasksEnd, WorkflowError> {
    let mut answers = PolledHosts { facts: facts.to_vec(), silent: Vec::new() };
    let mut followed = BTreeSet::new();
    let mut offsets = None;
    // The run of a failed task is removed; then nothing on the hosts shows the failure any more.
    let mut has_failed = false;
    let mut lost_since = None;
    loop {
        let known = answers.known();
        has_failed |= has_failed_task(&known, run);
        let plan = plan_waiting(session, &answers.facts, &mut followed);
        let end = if plan.steps.is_empty() {
            judge_preparation(session, &answers, (run, has_failed), &mut lost_since)
        } else {
            let is_first = offsets.is_none();
            let offsets = match &offsets {
                Some(offsets) => offsets,
                None => offsets.insert(session.open_run_dir(run, find_run_record(known.iter(), run)).await?),
            };
            session.emit_run_started(run, Some(&plan));
            if is_first {
                session.show_stored_logs(false);
            }
            let lost = watch_lost_hosts(session, run);
            match execute_waiting(session, (&plan, &answers.facts), offsets, lost, signals).await {
                Ok(report) => judge_waiting(&report),
                Err(end) => Some(end),
            }
        };
        if let Some(end) = end {
            return Ok(end);
        }
        if plan.steps.is_empty()
            && let Some(end) = pause(signals).await
        {
            return Ok(end);
        }
        answers = match unless_user_leaves(signals, ask_again(session)).await {
            Ok(answers) => answers,
            Err(end) => return Ok(end),
        };
    }
}

/// What the end of the waits means; `None`: the hosts are to be asked.
fn judge_waiting(report: &ExecutionReport) -> Option<TasksEnd> {
    let says = |message: &str| report.failed_steps.iter().any(|step| step.issue.message == message);
    let is_failure = |step: &FailedStep| !step.unreachable && ![TASK_STOPPED, TASK_REMOVED].contains(&step.issue.message.as_str());
    if report.failed_steps.iter().any(is_failure) {
        return Some(TasksEnd::Ended { ok: false });
    }
    says(TASK_STOPPED).then_some(TasksEnd::Stopped)
}

/// Whether there is nothing more to wait for, by the hosts' answers.
fn judge_preparation(
    session: &Session,
    answers: &PolledHosts,
    (run, has_failed): (&str, bool),
    lost_since: &mut Option<Instant>,
) -> Option<TasksEnd> {
    let facts = &answers.known();
    let progress = preparation_progress(facts, run);
    let is_undecided = matches!(progress, PreparationProgress::Between { .. }) && !is_driver_alive(session, facts) || facts.is_empty();
    if is_undecided && !answers.silent.is_empty() {
        return give_up_lost_hosts(session, answers, lost_since);
    }
    *lost_since = None;
    match progress {
        PreparationProgress::Running => None,
        PreparationProgress::Removed if has_failed => Some(TasksEnd::Ended { ok: false }),
        PreparationProgress::Replaced | PreparationProgress::Removed => Some(TasksEnd::Replaced),
        // A command that is removing the run takes its files one by one: a status may be gone before its pid.
        PreparationProgress::Failed | PreparationProgress::Between { .. } if is_driver_alive(session, facts) => None,
        PreparationProgress::Failed if is_stopped(facts, run) => Some(TasksEnd::Stopped),
        PreparationProgress::Failed => Some(TasksEnd::Ended { ok: false }),
        PreparationProgress::Between { remaining, launch_follows: false } if remaining.is_empty() => Some(TasksEnd::Ended { ok: true }),
        PreparationProgress::Between { remaining, launch_follows } => Some(TasksEnd::Abandoned { remaining, launch_follows }),
    }
}

/// The end, once lost hosts were waited for as long as `give_up` says. The network of a laptop that reaches no host is waited for without end.
fn give_up_lost_hosts(session: &Session, answers: &PolledHosts, lost_since: &mut Option<Instant>) -> Option<TasksEnd> {
    if !answers.has_lost_host() {
        *lost_since = None;
        return None;
    }
    let names = session.host_names();
    let hosts: Vec<String> = answers.silent.iter().filter_map(|(host, _)| names.get(*host).cloned()).collect();
    let window = answers.give_up_window(session);
    match lost_since {
        Some(since) => (since.elapsed() >= window).then_some(TasksEnd::HostsLost(hosts)),
        None => {
            *lost_since = Some(Instant::now());
            let time = format_rounded(i64::try_from(window.as_millis()).unwrap_or(i64::MAX));
            session.notice(format!("no task runs on the other hosts: {} is given up after {time}", fold_names(&hosts)), true);
            None
        }
    }
}

/// Ends when hosts are lost on which tasks are waited for, and there is nothing else to wait for.
async fn watch_lost_hosts(session: &Session, run: &str) -> TasksEnd {
    let mut lost_since = None;
    let mut pause = LOST_HOST_INTERVAL;
    loop {
        tokio::time::sleep(pause).await;
        if !session.engine.connections().iter().any(|connection| connection.is_lost()) {
            lost_since = None;
            continue;
        }
        let answers = ask_again(session).await;
        let end = judge_preparation(session, &answers, (run, false), &mut lost_since);
        if let Some(end @ TasksEnd::HostsLost(_)) = end {
            return end;
        }
        let is_fatal = answers.silent.iter().any(|(_, retryable)| !retryable);
        pause = if is_fatal { (answers.give_up_window(session) / 10).min(MAX_FATAL_INTERVAL) } else { LOST_HOST_INTERVAL };
    }
}

/// Asks every host for its facts.
async fn ask_again(session: &Session) -> PolledHosts {
    let mut silent = Vec::new();
    let mut facts = Vec::new();
    for (host, answer) in session.poll_facts().await.into_iter().enumerate() {
        if let Err(error) = &answer {
            silent.push((host, error.is_retryable()));
        }
        facts.push(answer.ok());
    }
    PolledHosts { facts, silent }
}

/// Waits for the interval; returns the request of the user if one comes first.
pub(crate) async fn pause(signals: &mut StopController) -> Option<TasksEnd> {
    unless_user_leaves(signals, tokio::time::sleep(LOOK_INTERVAL)).await.err()
}

/// Waits for something.
///
/// # Errors
/// The user left meanwhile.
async fn unless_user_leaves<T>(signals: &mut StopController, awaited: impl Future<Output = T>) -> Result<T, TasksEnd> {
    tokio::pin!(awaited);
    loop {
        tokio::select! {
            value = &mut awaited => return Ok(value),
            control = signals.controls.recv() => match control {
                Some(RunControl::Stop { .. } | RunControl::Kill { .. }) => {}
                Some(RunControl::Teardown) => return Err(TasksEnd::Teardown),
                Some(RunControl::Detach | RunControl::Restart) | None => return Err(TasksEnd::Detached),
            },
        }
    }
}

/// Waits for the tasks of a plan.
///
/// # Errors
/// The user left meanwhile, or hosts were lost.
async fn execute_waiting(
    session: &Session,
    (plan, facts): (&Arc<Plan>, &[Option<HostFacts>]),
    offsets: &LogOffsets,
    lost: impl Future<Output = TasksEnd>,
    signals: &mut StopController,
) -> Result<ExecutionReport, TasksEnd> {
    let cancel_token = CancellationToken::new();
    let file_inputs = FileInputs::default();
    let options =
        ExecutionOptions { offsets, file_inputs: &file_inputs, failure_policy: FailurePolicy::Teardown, cancel_token: &cancel_token };
    let engine = &session.engine;
    let waiting = engine.execute(plan, facts, options);
    tokio::pin!(waiting, lost);
    let mut end = None;
    let report = loop {
        tokio::select! {
            report = &mut waiting => break report,
            lost = &mut lost, if end.is_none() => end = Some(lost),
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
        // No process sends files.
        let sends_files = |number: &u32| facts.run_record().is_some_and(|record| record.file_tasks.contains_key(number));
        found.extend(numbers.into_iter().filter(|number| !sends_files(number)).map(|number| (number, host)));
    }
    if let (false, Some((first, _))) = (is_first, followed.first()) {
        found.retain(|(number, _)| number >= first);
    }
    for (number, host) in found.difference(followed) {
        let own = facts.get(*host).and_then(Option::as_ref);
        let record = own.and_then(HostFacts::run_record);
        let title = record.and_then(|record| record.tasks.get(number).cloned()).unwrap_or_else(|| format!("task {number}"));
        let Some(context) = plan.hosts.get(*host).cloned() else { continue };
        let is_host_task = own.is_some_and(|facts| facts.host_task_numbers.contains(number));
        let context = context.host_task_context().filter(|_| is_host_task).unwrap_or(context);
        plan.push(*host, Phase::Task(*number), Action::WaitForTask(WaitForTask { context, number: *number, title }));
    }
    followed.append(&mut found);
    Arc::new(plan)
}
