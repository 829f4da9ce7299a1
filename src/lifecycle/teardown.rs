//! The way back, for `up` at its end and for `down`: planned from what is found, carried out host by host, verified.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::engine::follow::FollowOutcome;
use crate::engine::lock::LockError;
use crate::engine::scheduler::FailurePolicy;
use crate::event::{EventKind, Outcome, RunGoal};
use crate::inventory::Teardown;
use crate::lifecycle::error::{WorkflowEnd, WorkflowError, worse_outcome};
use crate::lifecycle::session::{Session, collect_facts, find_run_record};
use crate::plan::existing_run::{HostRunState, host_run_state};
use crate::plan::facts::HostFacts;
use crate::plan::teardown::{self, TeardownScope, TeardownSpec};

/// Why a host that cannot be looked at counts as a leftover.
pub(crate) const UNREACHABLE_LEFTOVER: &str = "unreachable: it may still hold something of ours";

/// What is to be left, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TeardownOptions {
    pub(crate) scope: TeardownScope,
    /// Whether ranks are killed at once.
    pub(crate) kill_at_once: bool,
    /// Whether logs are fetched.
    pub(crate) fetch_logs: bool,
    /// From TERM to KILL; `None`: what the run says, else 60 s.
    pub(crate) grace: Option<Duration>,
}

/// What becomes of a run at its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndPolicy {
    /// How long to wait for another operator's lock.
    pub(crate) lock_wait: Duration,
    pub(crate) teardown: Teardown,
    /// From TERM to KILL.
    pub(crate) grace: Duration,
}

/// After the end: as `teardown` says.
pub(crate) async fn finish_run(
    session: &mut Session,
    follow_outcome: FollowOutcome,
    policy: EndPolicy,
    signal: Option<i32>,
) -> Result<WorkflowEnd, WorkflowError> {
    let (outcome, reason) = match (&follow_outcome, signal) {
        (FollowOutcome::Detached, Some(number)) => return Ok(WorkflowEnd::new(Outcome::Signal(number), "detached: the run goes on")),
        (FollowOutcome::Detached | FollowOutcome::Running, _) => return Ok(WorkflowEnd::new(Outcome::Detached, "the run goes on")),
        (FollowOutcome::Ended { ok: true, .. }, _) => (Outcome::Ok, String::new()),
        (FollowOutcome::Ended { stop_reason: stopped, .. }, Some(number)) => {
            (Outcome::Signal(number), stopped.as_ref().map_or_else(|| "stopped".to_owned(), |s| format!("stopped: {s}")))
        }
        (FollowOutcome::Ended { stop_reason: stopped, .. }, None) => (Outcome::Failed, stopped.clone().unwrap_or_default()),
        (FollowOutcome::StoppedElsewhere, _) => (Outcome::Stopped, "stopped from elsewhere".to_owned()),
        (FollowOutcome::Teardown | FollowOutcome::Restart, _) => (Outcome::Stopped, "torn down".to_owned()),
    };
    let depth = match (policy.teardown, &follow_outcome) {
        (_, FollowOutcome::Teardown) | (Teardown::Always, _) => TeardownScope::Everything,
        (Teardown::OnSuccess, FollowOutcome::Ended { ok: true, .. }) => TeardownScope::Everything,
        (Teardown::OnSuccess | Teardown::Never, _) => TeardownScope::Ranks,
    };
    // After the name of the run was typed, a lock that another operator holds is taken over.
    let force = follow_outcome == FollowOutcome::Teardown;
    let undone = lock_and_tear_down(
        session,
        TeardownOptions { scope: depth, kill_at_once: false, fetch_logs: true, grace: Some(policy.grace) },
        policy.lock_wait,
        force,
    )
    .await?;
    Ok(WorkflowEnd { outcome: worse_outcome(outcome, undone), reason })
}

/// Takes the lock, looks what is there, undoes it, gives the lock back. A host that cannot be reached may still hold something of ours. Where
/// this operation had to do with a run, another one that was launched since then is left alone.
pub(crate) async fn lock_and_tear_down(
    session: &mut Session,
    options: TeardownOptions,
    wait: Duration,
    force: bool,
) -> Result<Outcome, WorkflowError> {
    let (mut seen, outcome) = collect_facts(session, session.gather_facts(None).await);
    let mut worst = Outcome::Ok;
    let mut lost = |session: &Session, host: usize, why: String| {
        report_leftover(session, host, why);
        worst = Outcome::Leftovers;
    };
    for (host, _) in seen.iter().enumerate().filter(|(_, f)| f.is_none()) {
        lost(session, host, UNREACHABLE_LEFTOVER.to_owned());
    }
    // In the place of ours another user has something: nothing of ours can be there.
    for facts in seen.iter_mut().filter(|f| f.as_ref().is_some_and(|f| f.orphans.foreign_dir.is_some() && !f.has_any_resource())) {
        *facts = None;
    }
    if seen.iter().flatten().all(|f| !f.has_any_resource()) {
        return Ok(worst);
    }
    let (held, without) = match session.lock_available_hosts(&seen, wait, force).await {
        Ok(locked) => locked,
        Err(locked) => return Ok(worse_outcome(locked, worse_outcome(outcome, worst))),
    };
    for (host, error) in without {
        let why = match error {
            LockError::AcquireFailed { message: says, .. } => format!("could not take the lock: {says}"),
            LockError::Remote { error, .. } => format!("could not take the lock: {error}"),
            LockError::Held { .. } => error.to_string(),
        };
        lost(session, host, why);
        if let Some(facts) = seen.get_mut(host) {
            *facts = None;
        }
    }
    // Whoever held the lock until now has changed what was seen before.
    let mut facts = session.gather_facts_again(&seen).await;
    for (host, _) in facts.iter().zip(&seen).enumerate().filter(|(_, (now, then))| now.is_none() && then.is_some()) {
        lost(session, host, UNREACHABLE_LEFTOVER.to_owned());
    }
    drop_hosts_of_other_runs(session, &mut facts);
    let undone = if facts.iter().flatten().any(HostFacts::has_any_resource) {
        tear_down(session, &facts, options, &CancellationToken::new()).await
    } else {
        Ok(Outcome::Ok)
    };
    session.engine.unlock_hosts(held).await;
    Ok(worse_outcome(undone?, worst))
}

/// Takes those hosts out of the facts where a run is current that is not this operation's own, and tells it.
fn drop_hosts_of_other_runs(session: &Session, facts: &mut [Option<HostFacts>]) {
    if session.run_id.is_empty() {
        return;
    }
    let other = |facts: &HostFacts| facts.current_run.clone().filter(|run| *run != session.run_id);
    let Some(run) = facts.iter().flatten().find_map(other) else { return };
    let text = format!("{run} was launched in the meantime: it is left alone");
    session.notice(text, true);
    for facts in facts.iter_mut().filter(|f| f.as_ref().is_none_or(|f| f.current_run.as_ref() != Some(&session.run_id))) {
        *facts = None;
    }
}

/// Undoes what the facts show, under a lock that is held.
pub(crate) async fn tear_down(
    session: &mut Session,
    facts: &[Option<HostFacts>],
    options: TeardownOptions,
    cancel_token: &CancellationToken,
) -> Result<Outcome, WorkflowError> {
    let mut runs: Vec<String> = facts.iter().flatten().filter_map(|f| f.current_run.clone()).collect();
    runs.sort();
    runs.dedup();
    runs.pop();
    let mut facts = facts.to_vec();
    let mut worst = Outcome::Ok;
    if options.scope == TeardownScope::Everything && options.fetch_logs {
        worst = tear_down_earlier_runs(session, &mut facts, options, cancel_token).await?;
    }
    // Hosts that were left out of the last run still have an earlier one, whose logs are kept apart from the last one's.
    for run in &runs {
        let theirs = |f: &HostFacts| f.current_run.as_ref() == Some(run);
        let masked: Vec<Option<HostFacts>> = facts.iter().map(|f| f.clone().filter(theirs)).collect();
        let depth = if options.scope == TeardownScope::Ranks { TeardownScope::Ranks } else { TeardownScope::Run };
        let outcome = tear_down_run(session, &masked, TeardownOptions { scope: depth, ..options }, cancel_token).await?;
        for facts in facts.iter_mut().filter(|f| f.as_ref().is_some_and(theirs)) {
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

/// Fetches and removes the runs that hosts have beside the current ones; a host where that failed keeps all that it has.
async fn tear_down_earlier_runs(
    session: &mut Session,
    facts: &mut [Option<HostFacts>],
    options: TeardownOptions,
    cancel_token: &CancellationToken,
) -> Result<Outcome, WorkflowError> {
    let mut worst = Outcome::Ok;
    let runs: BTreeSet<String> = facts.iter().flatten().flat_map(HostFacts::earlier_runs).collect();
    for run in runs {
        let alone: Vec<Option<HostFacts>> = facts.iter().map(|f| f.as_ref()?.for_earlier_run(&run)).collect();
        let outcome = tear_down_run(session, &alone, TeardownOptions { scope: TeardownScope::Run, ..options }, cancel_token).await?;
        if outcome != Outcome::Ok {
            for (facts, _) in facts.iter_mut().zip(&alone).filter(|(_, alone)| alone.is_some()) {
                *facts = None;
            }
        }
        worst = worse_outcome(outcome, worst);
    }
    Ok(worst)
}

/// The same where no host has another run than the others.
async fn tear_down_run(
    session: &mut Session,
    facts: &[Option<HostFacts>],
    options: TeardownOptions,
    cancel_token: &CancellationToken,
) -> Result<Outcome, WorkflowError> {
    let file = facts.iter().flatten().find_map(HostFacts::run_record).cloned();
    let run = facts.iter().flatten().find_map(|f| f.current_run.clone());
    let grace = options.grace.unwrap_or_else(|| Duration::from_secs(file.as_ref().map_or(60, |f| f.stop_grace_secs)));
    let manner = TeardownSpec { scope: options.scope, grace: (!options.kill_at_once).then_some(grace), fetch_logs: options.fetch_logs };
    let plan = Arc::new(teardown::plan_teardown(session.host_contexts(facts, Some(&session.local.identity.token)), facts, manner));
    let offsets = match &run {
        Some(run) if options.fetch_logs => session.open_run_dir(run, find_run_record(facts.iter().flatten(), run)).await?,
        _ => Arc::new(|_| Vec::new()),
    };
    // Where another operator has cleared it away already, it is still the end of the run that was followed.
    let of = run.unwrap_or_else(|| session.run_id.clone());
    session.emit_run_started(&of, Some(&plan));
    session.emit_run_found(facts).await;
    if facts.iter().flatten().any(|f| host_run_state(f) == HostRunState::Running) {
        let why = format!("`{}` ends the run", session.command());
        session.engine.emitter().send(EventKind::GoalChanged { goal: RunGoal::Down, reason: why });
        // Who ends now ends by our order, and has not failed.
        let signal = if options.kill_at_once { "KILL" } else { "TERM" };
        for (host, _) in
            (0_u32..).zip(facts).filter(|(_, facts)| facts.as_ref().is_some_and(|f| host_run_state(f) == HostRunState::Running))
        {
            session.engine.emitter().send(EventKind::RanksSignaled { host, signal: signal.to_owned() });
        }
    }
    let carried = session.engine.execute(&plan, facts, &offsets, FailurePolicy::Teardown, cancel_token).await;
    // Ranks that could not be stopped die with their container: where that was removed and verified, nothing is left of them.
    let removed = options.scope == TeardownScope::Everything && carried.failed_steps.iter().all(|f| f.phase == crate::event::Phase::Stop);
    for failed in carried.failed_steps.iter().filter(|_| !removed) {
        report_leftover(session, failed.host, failed.issue.message.clone());
    }
    Ok(match (carried.lock_lost, carried.failed_steps.is_empty() || removed, carried.interrupted) {
        (true, ..) => Outcome::Locked,
        (_, false, _) | (_, _, true) => Outcome::Leftovers,
        (false, true, false) => Outcome::Ok,
    })
}

/// Says that a leftover is there.
pub(crate) fn report_leftover(session: &Session, host: usize, text: String) {
    session.engine.emitter().send(EventKind::Leftover { host: u32::try_from(host).unwrap_or(u32::MAX), text });
}
