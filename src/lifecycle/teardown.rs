//! Teardown, for the end of `up` and for `down`: planned from the facts alone, executed on each host, verified.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::engine::executor::ExecutionOptions;
use crate::engine::follow::FollowOutcome;
use crate::engine::lock::{LockError, LockRequest};
use crate::engine::scheduler::FailurePolicy;
use crate::engine::send_files::FileInputs;
use crate::event::{EventKind, Outcome, RunGoal};
use crate::inventory::Teardown;
use crate::lifecycle::error::{WorkflowEnd, WorkflowError, worse_outcome};
use crate::lifecycle::session::{Session, collect_facts, find_run_record};
use crate::plan::existing_run::{HostRunState, host_run_state};
use crate::plan::facts::HostFacts;
use crate::plan::teardown::{self, TeardownScope, TeardownSpec};

/// How long another operator's lock is waited for where no option says it: also the default of `--lock-wait`.
pub(crate) const DEFAULT_LOCK_WAIT: Duration = Duration::from_secs(45);

#[derive(Debug, Clone, Copy)]
pub(crate) struct TeardownOptions {
    pub(crate) scope: TeardownScope,
    /// Send KILL without TERM first.
    pub(crate) kill_at_once: bool,
    pub(crate) fetch_logs: bool,
    /// Time from TERM to KILL; `None`: that of the run's record, else 60 s.
    pub(crate) grace: Option<Duration>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct EndPolicy {
    pub(crate) lock_wait: Duration,
    pub(crate) teardown: Teardown,
    /// As that of [`TeardownOptions`].
    pub(crate) grace: Option<Duration>,
}

/// The result of a teardown.
#[derive(Debug, Clone)]
pub(crate) struct TeardownResult {
    pub(crate) outcome: Outcome,
    /// The result on the hosts that could be reached and locked.
    pub(crate) reached: Outcome,
}

/// Tears the run down at its end, as `teardown` says.
pub(crate) async fn finish_run(
    session: &mut Session,
    follow_outcome: FollowOutcome,
    policy: EndPolicy,
    signal: Option<i32>,
) -> Result<WorkflowEnd, WorkflowError> {
    let (outcome, reason) = match (&follow_outcome, signal) {
        (FollowOutcome::Detached, Some(number)) => return Ok(WorkflowEnd::new(Outcome::Signal(number), "detached: the run keeps running")),
        (FollowOutcome::Detached | FollowOutcome::Running, _) => return Ok(WorkflowEnd::new(Outcome::Detached, "the run keeps running")),
        (FollowOutcome::Ended { ok: true, .. }, _) => (Outcome::Ok, String::new()),
        (FollowOutcome::Ended { stop_reason, .. }, Some(number)) => {
            (Outcome::Signal(number), stop_reason.as_ref().map_or_else(|| "stopped".to_owned(), |s| format!("stopped: {s}")))
        }
        (FollowOutcome::Ended { stop_reason, .. }, None) => (Outcome::Failed, stop_reason.clone().unwrap_or_default()),
        (FollowOutcome::StoppedElsewhere, _) => (Outcome::Stopped, "stopped from elsewhere".to_owned()),
        (FollowOutcome::Teardown | FollowOutcome::Restart, _) => (Outcome::Stopped, "torn down".to_owned()),
    };
    let scope = match (policy.teardown, &follow_outcome) {
        (_, FollowOutcome::Teardown) | (Teardown::Always, _) => TeardownScope::Everything,
        (Teardown::OnSuccess, FollowOutcome::Ended { ok: true, .. }) => TeardownScope::Everything,
        (Teardown::OnSuccess | Teardown::Never, _) => TeardownScope::Ranks,
    };
    // The user confirmed by typing the name of the run, so the lock is taken over.
    let take_over_lock = follow_outcome == FollowOutcome::Teardown;
    let torn_down = lock_and_tear_down(
        session,
        TeardownOptions { scope, kill_at_once: false, fetch_logs: true, grace: policy.grace },
        policy.lock_wait,
        take_over_lock,
    )
    .await?;
    let reason = if scope == TeardownScope::Ranks { describe_kept(&reason, session.inventory.engine.is_some()) } else { reason };
    Ok(WorkflowEnd { outcome: worse_outcome(outcome, torn_down.outcome), reason })
}

/// What `teardown: never`, or `on-success` after a failure, leaves.
fn describe_kept(reason: &str, in_container: bool) -> String {
    let kept = if in_container {
        "containers and logs stay on the hosts: `orchestrate down` fetches what this laptop lacks of the logs, then removes both"
    } else {
        "the logs stay on the hosts: `orchestrate down` fetches what this laptop lacks of them, then removes them"
    };
    if reason.is_empty() { kept.to_owned() } else { format!("{reason}; {kept}") }
}

/// Takes the lock, gathers the facts, tears down, releases the lock. Unreachable hosts count as leftovers. If this session followed a run,
/// another run that was launched since then is left alone.
pub(crate) async fn lock_and_tear_down(
    session: &mut Session,
    options: TeardownOptions,
    lock_wait: Duration,
    take_over_lock: bool,
) -> Result<TeardownResult, WorkflowError> {
    let (mut found, outcome) = collect_facts(session.gather_facts(None).await);
    let mut leftover_outcome = Outcome::Ok;
    for (host, _) in found.iter().enumerate().filter(|(_, f)| f.is_none()) {
        report_unchecked(session, host);
        leftover_outcome = Outcome::Leftovers;
    }
    // Another user owns the run directory's path on this host, so nothing of this user can be there.
    for facts in found.iter_mut().filter(|f| f.as_ref().is_some_and(|f| f.orphans.foreign_dir.is_some() && !f.has_any_resource())) {
        *facts = None;
    }
    if found.iter().flatten().all(|f| !f.has_any_resource()) {
        return Ok(TeardownResult { outcome: leftover_outcome, reached: Outcome::Ok });
    }
    let request = LockRequest { wait: lock_wait, force: take_over_lock, skip_unavailable: true, give_up: CancellationToken::new() };
    let (held, not_locked) = match session.lock_hosts(&found, request).await {
        Ok(locked) => locked,
        Err(locked) => {
            let outcome = worse_outcome(locked.clone(), worse_outcome(outcome, leftover_outcome));
            return Ok(TeardownResult { outcome, reached: locked });
        }
    };
    for (host, error) in not_locked {
        let (reason, unchecked) = match error {
            LockError::AcquireFailed { message, .. } => (format!("could not take the lock: {message}"), false),
            LockError::Remote { error, .. } => (format!("could not take the lock: {error}"), true),
            LockError::Held { .. } | LockError::Cancelled => (error.to_string(), false),
        };
        send_leftover(session, host, reason, unchecked);
        leftover_outcome = Outcome::Leftovers;
        if let Some(facts) = found.get_mut(host) {
            *facts = None;
        }
    }
    // The previous holder of the lock may have changed the hosts.
    let mut facts = session.gather_facts_again(&found).await;
    for (host, _) in facts.iter().zip(&found).enumerate().filter(|(_, (current, before))| current.is_none() && before.is_some()) {
        report_unchecked(session, host);
        leftover_outcome = Outcome::Leftovers;
    }
    drop_hosts_of_other_runs(session, &mut facts);
    let result = if facts.iter().flatten().any(HostFacts::has_any_resource) {
        tear_down(session, &facts, options, &CancellationToken::new()).await
    } else {
        Ok(Outcome::Ok)
    };
    session.engine.unlock_hosts(held).await;
    let reached = result?;
    Ok(TeardownResult { outcome: worse_outcome(reached.clone(), leftover_outcome), reached })
}

/// Removes the facts of hosts whose current run is not the run of this session, and reports it.
fn drop_hosts_of_other_runs(session: &Session, facts: &mut [Option<HostFacts>]) {
    if session.run_id.is_empty() {
        return;
    }
    let other_run = |facts: &HostFacts| facts.current_run.clone().filter(|run| *run != session.run_id);
    let Some(run) = facts.iter().flatten().find_map(other_run) else { return };
    let text = format!("{run} was launched in the meantime: it is left alone");
    session.notice(text, true);
    for facts in facts.iter_mut().filter(|f| f.as_ref().is_none_or(|f| f.current_run.as_ref() != Some(&session.run_id))) {
        *facts = None;
    }
}

/// Tears down what the facts show. The lock must be held.
pub(crate) async fn tear_down(
    session: &mut Session,
    facts: &[Option<HostFacts>],
    options: TeardownOptions,
    cancel_token: &CancellationToken,
) -> Result<Outcome, WorkflowError> {
    let mut runs: BTreeSet<String> = facts.iter().flatten().filter_map(|f| f.current_run.clone()).collect();
    runs.pop_last();
    let mut facts = facts.to_vec();
    let mut worst = Outcome::Ok;
    if options.scope == TeardownScope::Everything && options.fetch_logs {
        worst = tear_down_earlier_runs(session, &mut facts, options, cancel_token).await?;
    }
    // Hosts that were not part of the last run still hold an earlier one. Each run has its own directory for logs.
    for run in &runs {
        let has_run = |f: &HostFacts| f.current_run.as_ref() == Some(run);
        let masked: Vec<Option<HostFacts>> = facts.iter().map(|f| f.clone().filter(has_run)).collect();
        let scope = if options.scope == TeardownScope::Ranks { TeardownScope::Ranks } else { TeardownScope::Run };
        let outcome = tear_down_run(session, &masked, TeardownOptions { scope, ..options }, cancel_token).await?;
        for facts in facts.iter_mut().filter(|f| f.as_ref().is_some_and(has_run)) {
            match facts {
                Some(facts) if outcome == Outcome::Ok && options.scope == TeardownScope::Everything => facts.current_run = None,
                _ => *facts = None,
            }
        }
        worst = worse_outcome(outcome, worst);
    }
    if worst != Outcome::Ok && facts.iter().all(Option::is_none) {
        return Ok(worst);
    }
    Ok(worse_outcome(tear_down_run(session, &facts, options, cancel_token).await?, worst))
}

/// Fetches and removes earlier runs beside the current one. If that fails on a host, everything on that host is kept.
async fn tear_down_earlier_runs(
    session: &mut Session,
    facts: &mut [Option<HostFacts>],
    options: TeardownOptions,
    cancel_token: &CancellationToken,
) -> Result<Outcome, WorkflowError> {
    let mut worst = Outcome::Ok;
    let runs: BTreeSet<String> = facts.iter().flatten().flat_map(HostFacts::earlier_runs).collect();
    for run in runs {
        let run_facts: Vec<Option<HostFacts>> = facts.iter().map(|f| f.as_ref()?.for_earlier_run(&run)).collect();
        let outcome = tear_down_run(session, &run_facts, TeardownOptions { scope: TeardownScope::Run, ..options }, cancel_token).await?;
        if outcome != Outcome::Ok {
            for (facts, _) in facts.iter_mut().zip(&run_facts).filter(|(_, run_facts)| run_facts.is_some()) {
                *facts = None;
            }
        }
        worst = worse_outcome(outcome, worst);
    }
    Ok(worst)
}

/// All hosts with facts must have the same run.
async fn tear_down_run(
    session: &mut Session,
    facts: &[Option<HostFacts>],
    options: TeardownOptions,
    cancel_token: &CancellationToken,
) -> Result<Outcome, WorkflowError> {
    let record = facts.iter().flatten().find_map(HostFacts::run_record).cloned();
    let run = facts.iter().flatten().find_map(|f| f.current_run.clone());
    let grace = options.grace.unwrap_or_else(|| Duration::from_secs(record.as_ref().map_or(60, |f| f.stop_grace_secs)));
    let spec = TeardownSpec { scope: options.scope, grace: (!options.kill_at_once).then_some(grace), fetch_logs: options.fetch_logs };
    let plan = Arc::new(teardown::plan_teardown(session.host_contexts(facts, Some(&session.local.identity.token)), facts, spec));
    let offsets = match &run {
        Some(run) if options.fetch_logs => session.open_run_dir(run, find_run_record(facts.iter().flatten(), run)).await?,
        _ => Arc::new(|_| Vec::new()),
    };
    // If another operator has cleared the run already, this is still the end of the run that was followed.
    let run_id = run.unwrap_or_else(|| session.run_id.clone());
    session.emit_run_started(&run_id, Some(&plan));
    session.emit_run_found(facts);
    let is_running = |facts: &Option<HostFacts>| facts.as_ref().is_some_and(|f| host_run_state(f) == HostRunState::Running);
    if facts.iter().any(is_running) {
        let reason = format!("requested by `{}`", session.command());
        session.engine.emitter().send(EventKind::GoalChanged { goal: RunGoal::Down, reason });
        // Ranks that end from now on were stopped by this teardown and have not failed.
        let signal = if options.kill_at_once { "KILL" } else { "TERM" };
        for (host, _) in (0_u32..).zip(facts).filter(|(_, facts)| is_running(facts)) {
            session.engine.emitter().send(EventKind::RanksSignaled { host, signal: signal.to_owned() });
        }
    }
    let execution =
        ExecutionOptions { offsets: &offsets, file_inputs: &FileInputs::default(), failure_policy: FailurePolicy::Teardown, cancel_token };
    let report = session.engine.execute(&plan, facts, execution).await;
    // Ranks that could not be stopped die with their container, so its verified removal leaves nothing.
    let removed = options.scope == TeardownScope::Everything && report.failed_steps.iter().all(|f| f.phase == crate::event::Phase::Stop);
    for step in report.failed_steps.iter().filter(|_| !removed) {
        send_leftover(session, step.host, step.issue.message.clone(), step.unreachable);
    }
    Ok(match (report.lock_lost, report.failed_steps.is_empty() || removed, report.interrupted) {
        (true, ..) => Outcome::Locked,
        (_, false, _) | (_, _, true) => Outcome::Leftovers,
        (false, true, false) => Outcome::Ok,
    })
}

/// Something of the run is still on the host.
pub(crate) fn report_leftover(session: &Session, host: usize, text: String) {
    send_leftover(session, host, text, false);
}

/// The host did not answer.
pub(crate) fn report_unchecked(session: &Session, host: usize) {
    send_leftover(session, host, "what is left there is unknown".to_owned(), true);
}

fn send_leftover(session: &Session, host: usize, text: String, unchecked: bool) {
    session.engine.emitter().send(EventKind::Leftover { host: u32::try_from(host).unwrap_or(u32::MAX), text, unchecked });
}
