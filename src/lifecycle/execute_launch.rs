//! Executes a launch under its lock, then follows the run or rolls a failed launch back.

use std::sync::Arc;

use crate::engine::executor::ExecutionOptions;
use crate::engine::executor::{ExecutionReport, FailedStep};
use crate::engine::follow::FollowOutcome;
use crate::engine::lock::{HeldLock, LockRequest};
use crate::engine::log_stream::LogOffsets;
use crate::engine::scheduler::FailurePolicy;
use crate::engine::send_files::FileInputs;
use crate::event::controls::DashboardCapabilities;
use crate::event::{EventKind, Outcome, RunControl, RunGoal};
use crate::inventory::{Job, Teardown};
use crate::lifecycle::error::{WorkflowEnd, WorkflowError, worse_outcome};
use crate::lifecycle::file_sources::read_file_inputs;
use crate::lifecycle::follow::{follow_launched_run, follow_spec};
use crate::lifecycle::launch_request::{LaunchContext, LaunchStep, LaunchTarget};
use crate::lifecycle::launch_summary::describe_plan;
use crate::lifecycle::preflight::emit_check_report;
use crate::lifecycle::prepare_launch::{PreparedLaunch, prepare_launch};
use crate::lifecycle::random::random_hex;
use crate::lifecycle::stop_ladder::InterruptPolicy;
use crate::lifecycle::teardown::{self, EndPolicy, TeardownOptions};
use crate::model::phase::Phase;
use crate::plan::Plan;
use crate::plan::existing_run::ExistingRun;
use crate::plan::teardown::TeardownScope;
use crate::text::host_patterns::compress_to_pattern;
use crate::text::plural::count_noun;
use crate::text::width::truncate_text;
use crate::transfer::NONCE_DIGITS;

/// Launches under the lock, gives the lock back, then follows the run or rolls the launch back.
pub(crate) async fn launch_under_lock(context: &mut LaunchContext<'_>, target: LaunchTarget) -> Result<LaunchStep, WorkflowError> {
    let known: Vec<_> = target.facts.iter().cloned().map(Some).collect();
    let stop = &context.signals.stop_token;
    let request = LockRequest { wait: context.request.lock_wait, force: false, skip_unavailable: false, give_up: stop.clone() };
    context.signals.set_policy(InterruptPolicy::Abort);
    let locked = context.session.lock_hosts(&known, request).await;
    context.signals.set_policy(context.request.command.interrupt_policy());
    let held = match locked {
        Ok((held, _)) if stop.is_cancelled() => {
            context.session.engine.unlock_hosts(held).await;
            return Ok(LaunchStep::done(context.signals.signal_outcome(), context.nothing_done()));
        }
        Ok((held, _)) => held,
        Err(outcome) => {
            let outcome = if stop.is_cancelled() { context.signals.signal_outcome() } else { outcome };
            return Ok(LaunchStep::done(outcome, context.nothing_done()));
        }
    };
    let result = prepare_and_execute(context, &target, &held).await;
    // An error gives the lock back too: otherwise every other operator waits until it is stale.
    context.session.engine.unlock_hosts(held).await;
    let (plan, offsets, report) = match result? {
        Ok(executed) => executed,
        Err(step) => return Ok(step),
    };
    if !report.is_ok() {
        return roll_back(context, &target.job, &plan, &report).await.map(LaunchStep::Done);
    }
    if context.request.command.is_tasks_only() {
        context.state.registered = report.registered.into_iter().next().unwrap_or_default();
        let kept = if context.session.inventory.engine.is_some() {
            "containers stay on the hosts: `orchestrate up` launches in them, `orchestrate down` removes them"
        } else {
            "the tasks' logs stay on the hosts: `orchestrate up` or `orchestrate down` fetches what this laptop lacks of them, then removes them"
        };
        return Ok(LaunchStep::done(Outcome::Ok, kept));
    }
    follow(context, &target.job, &plan, &offsets).await
}

type ExecutedLaunch = (Arc<Plan>, LogOffsets, ExecutionReport);

/// What is done while the lock is held. `Err`: nothing was executed.
async fn prepare_and_execute(
    context: &mut LaunchContext<'_>,
    target: &LaunchTarget,
    held: &HeldLock,
) -> Result<Result<ExecutedLaunch, LaunchStep>, WorkflowError> {
    let PreparedLaunch { plan, facts, reports } = match prepare_launch(context, target, held).await? {
        Ok(prepared) => prepared,
        Err(step) => return Ok(Err(step)),
    };
    let file_inputs = FileInputs { sources: read_file_inputs(&context.request.file_sources)?, nonce: random_hex(NONCE_DIGITS) };
    let session = &mut *context.session;
    let run_id = &context.state.identity.run_id;
    let offsets = session.open_run_dir(run_id, plan.run_record.as_ref()).await?;
    if context.state.relaunch {
        session.attempt += 1;
        context.state.relaunch = false;
    }
    session.emit_run_started(run_id, Some(&plan));
    if target.existing != ExistingRun::NoRun || session.attempt > 1 {
        // The previous run is gone; its goal (stop or tear down) no longer applies.
        session.engine.emitter().send(EventKind::GoalChanged { goal: RunGoal::Up, reason: String::new() });
    }
    if let Some(pattern) = &context.request.limit {
        let hosts = count_noun(plan.hosts.len(), "host");
        let text = match plan.world_size {
            // `prepare` runs its tasks alone.
            0 => format!("--limit {pattern}: {hosts}"),
            world_size => format!("--limit {pattern}: {hosts}, world size {world_size}; ranks are numbered over these hosts"),
        };
        session.notice(text, false);
    }
    reports.iter().for_each(|report| emit_check_report(session, report));
    let options = ExecutionOptions {
        offsets: &offsets,
        file_inputs: &file_inputs,
        failure_policy: FailurePolicy::FailFast,
        cancel_token: &context.signals.stop_token,
    };
    // The dashboard shows what is launched until the plan has been executed.
    let view_only = DashboardCapabilities::view_only(context.signals.dashboard_role());
    let plan_lines = match context.request.command.is_tasks_only() {
        true => Vec::new(),
        // A live run that differed is gone.
        false => describe_plan(target, &session.inventory.hosts, &plan, &[], session.reporter.lang()),
    };
    session.reporter.set_capabilities(DashboardCapabilities { plan_lines, ..view_only.clone() });
    let report = session.engine.execute(&plan, &facts, options).await;
    session.reporter.set_capabilities(view_only);
    Ok(Ok((plan, offsets, report)))
}

/// Undoes everything that a failed launch started.
async fn roll_back(
    context: &mut LaunchContext<'_>,
    job: &Job,
    plan: &Plan,
    report: &ExecutionReport,
) -> Result<WorkflowEnd, WorkflowError> {
    let signal = context.signals.first_signal();
    let outcome = match (signal, report.lock_lost) {
        (Some(number), _) => Outcome::Signal(number),
        (None, true) => Outcome::Locked,
        (None, false) if report.failed_steps.iter().any(|f| f.unreachable) => Outcome::Unreachable,
        (None, false) if report.failed_steps.iter().any(|f| matches!(f.phase, Phase::Task(_))) => Outcome::Failed,
        // No rank was started: the hosts are not fit for the job, whichever phase found out.
        (None, false) if report.launched_hosts.is_empty() => Outcome::Refused,
        (None, false) => Outcome::Failed,
    };
    if report.lock_lost {
        return Ok(WorkflowEnd::new(outcome, "another operator took over the lock"));
    }
    let reason = match signal {
        Some(_) => "stopped during the launch".to_owned(),
        None => failure_reason(plan, report, &context.session.host_names()),
    };
    if !report.may_have_leftovers {
        return Ok(WorkflowEnd { outcome, reason });
    }
    let scope = if job.teardown == Teardown::Always { TeardownScope::Everything } else { TeardownScope::Ranks };
    let options = TeardownOptions { scope, kill_at_once: false, fetch_logs: true, grace: Some(job.launch.stop_grace) };
    let engine = context.session.engine.clone();
    // `prepare` keeps its containers also where a task failed.
    let keeps_containers = context.request.command.is_tasks_only() && context.session.inventory.engine.is_some();
    let rollback = teardown::lock_and_tear_down(context.session, options, context.request.lock_wait, false);
    tokio::pin!(rollback);
    let torn_down = loop {
        tokio::select! {
            result = &mut rollback => break result?,
            Some(control) = context.signals.controls.recv() => if matches!(control, RunControl::Kill { .. }) {
                engine.kill_all_ranks(&plan.hosts).await;
            },
        }
    };
    let reason = match keeps_containers {
        true => format!("{reason}; containers that were started stay on the hosts: `orchestrate down` removes them"),
        false => reason,
    };
    Ok(WorkflowEnd { outcome: worse_outcome(outcome, torn_down.outcome), reason })
}

/// The recap has the whole message below its reason.
const MAX_REASON_COLUMNS: usize = 160;

/// The step that failed first, with every host on which it failed: which of equal hosts answered first has no meaning.
fn failure_reason(plan: &Plan, report: &ExecutionReport, host_names: &[String]) -> String {
    let Some(first) = report.failed_steps.first() else { return "the launch was interrupted".to_owned() };
    let is_task = matches!(first.phase, Phase::Task(_));
    let failed_alike = |host: usize| {
        let is_alike = |step: &FailedStep| step.phase == first.phase && (is_task || step.issue.message == first.issue.message);
        report.failed_steps.iter().any(|step| step.host == host && is_alike(step))
    };
    let has_failed = |host: usize| report.failed_steps.iter().any(|step| step.host == host);
    let pattern = |is_chosen: &dyn Fn(usize) -> bool| {
        let chosen = host_names.iter().enumerate().filter(|(host, _)| is_chosen(*host));
        compress_to_pattern(&chosen.map(|(_, name)| name.clone()).collect::<Vec<_>>())
    };
    let hosts = pattern(&failed_alike);
    if is_task {
        let title = plan.steps.iter().find(|step| step.phase == first.phase).map_or("", |step| step.action.title());
        return format!("task `{title}` failed on {hosts}");
    }
    let others = pattern(&|host| has_failed(host) && !failed_alike(host));
    let first = truncate_text(&first.issue.message, MAX_REASON_COLUMNS);
    if others.is_empty() { format!("{hosts}: {first}") } else { format!("{hosts}: {first}; another failure on {others}") }
}

/// What a person must know who leaves a run alone.
const DETACHED_NOTICES: [&str; 3] = [
    "all ranks are running, and no laptop follows the run now; `orchestrate attach` follows it again",
    "if a rank fails, only the ranks of its own host are stopped; those of other hosts run until their communication fails or times out",
    "when the run has ended, `orchestrate down` fetches its logs and removes what it created; before that, it stops the run",
];

async fn follow(context: &mut LaunchContext<'_>, job: &Job, plan: &Plan, offsets: &LogOffsets) -> Result<LaunchStep, WorkflowError> {
    let mut run = follow_spec(plan, job, context.request.detach);
    let follower = context.session.local.identity.follower_text();
    run.hosts.iter_mut().for_each(|host| host.follower.clone_from(&follower));
    match follow_launched_run(context.session, &run, plan, offsets, context.signals).await {
        FollowOutcome::Running => {
            for text in DETACHED_NOTICES {
                context.session.notice(text, false);
            }
            Ok(LaunchStep::done(Outcome::Detached, "all ranks are running"))
        }
        FollowOutcome::Restart => {
            context.state.reset();
            Ok(LaunchStep::Reconcile)
        }
        outcome => {
            let policy = EndPolicy { lock_wait: context.request.lock_wait, teardown: job.teardown, grace: Some(job.launch.stop_grace) };
            teardown::finish_run(context.session, outcome, policy, context.signals.first_signal()).await.map(LaunchStep::Done)
        }
    }
}
