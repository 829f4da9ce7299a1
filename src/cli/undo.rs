//! The way back, for `up` at its end and for `down`: planned from what is found, carried out host by host, verified.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::cli::exit::{Failure, worse};
use crate::cli::session::{Session, answered, record};
use crate::cli::signals::Signals;
use crate::engine::decide::Temper;
use crate::engine::follow::Finish;
use crate::engine::lock::LockError;
use crate::event::{EventKind, Goal, Outcome};
use crate::inventory::Teardown;
use crate::plan::facts::HostFacts;
use crate::plan::situation::{Part, part};
use crate::plan::teardown::{self, Depth, Manner};

/// Why a host that cannot be looked at counts as a leftover.
pub const SILENT: &str = "unreachable: it may still hold something of ours";

/// What is to be left, and how.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    /// What it leaves.
    pub depth: Depth,
    /// Whether ranks are killed at once.
    pub kill: bool,
    /// Whether logs are fetched.
    pub fetch: bool,
    /// From TERM to KILL; `None`: what the run says, else 60 s.
    pub grace: Option<Duration>,
}

/// After the end: as `teardown` says.
///
/// # Errors
/// What must be said to the person.
pub async fn over(
    session: &mut Session,
    lock_wait: Duration,
    finish: Finish,
    teardown: Teardown,
    grace: Duration,
    signals: &Signals,
) -> Result<(Outcome, String), Failure> {
    let (outcome, why) = match (&finish, signals.came()) {
        (Finish::Detached, Some(number)) => return Ok((Outcome::Signal(number), "detached: the run goes on".to_owned())),
        (Finish::Detached | Finish::Running, _) => return Ok((Outcome::Detached, "the run goes on".to_owned())),
        (Finish::Ended { ok: true, .. }, _) => (Outcome::Ok, String::new()),
        (Finish::Ended { stopped, .. }, Some(number)) => {
            (Outcome::Signal(number), stopped.as_ref().map_or_else(|| "stopped".to_owned(), |s| format!("stopped: {s}")))
        }
        (Finish::Ended { stopped, .. }, None) => (Outcome::Failed, stopped.clone().unwrap_or_default()),
        (Finish::Stopped, _) => (Outcome::Stopped, "stopped from elsewhere".to_owned()),
        (Finish::Teardown | Finish::Restart, _) => (Outcome::Stopped, "torn down".to_owned()),
    };
    let depth = match (teardown, &finish) {
        (_, Finish::Teardown) | (Teardown::Always, _) => Depth::All,
        (Teardown::OnSuccess, Finish::Ended { ok: true, .. }) => Depth::All,
        (Teardown::OnSuccess | Teardown::Never, _) => Depth::Ranks,
    };
    // After the name of the run was typed, a lock that another operator holds is taken over.
    let force = finish == Finish::Teardown;
    let undone = locked(session, Way { depth, kill: false, fetch: true, grace: Some(grace) }, lock_wait, force).await?;
    Ok((worse(outcome, undone), why))
}

/// Takes the lock, looks what is there, undoes it, gives the lock back. A host that cannot be reached may still hold something of ours. Where
/// this operation had to do with a run, another one that was launched since then is left alone.
///
/// # Errors
/// What must be said to the person.
pub async fn locked(session: &mut Session, way: Way, wait: Duration, force: bool) -> Result<Outcome, Failure> {
    let (mut seen, outcome) = answered(session, session.gather(None).await);
    let mut worst = Outcome::Ok;
    let mut lost = |session: &Session, host: usize, why: String| {
        leftover(session, host, why);
        worst = Outcome::Leftovers;
    };
    for (host, _) in seen.iter().enumerate().filter(|(_, f)| f.is_none()) {
        lost(session, host, SILENT.to_owned());
    }
    // In the place of ours another user has something: nothing of ours can be there.
    for facts in seen.iter_mut().filter(|f| f.as_ref().is_some_and(|f| f.elsewhere.foreign.is_some() && !f.has_something())) {
        *facts = None;
    }
    if seen.iter().flatten().all(|f| !f.has_something()) {
        return Ok(worst);
    }
    let (held, without) = match session.lock_what_can_be(&seen, wait, force).await {
        Ok(locked) => locked,
        Err(locked) => return Ok(worse(locked, worse(outcome, worst))),
    };
    for (host, error) in without {
        let why = match error {
            LockError::Impossible { says, .. } => format!("could not take the lock: {says}"),
            LockError::Remote { error, .. } => format!("could not take the lock: {error}"),
            LockError::Held { .. } => error.to_string(),
        };
        lost(session, host, why);
        if let Some(facts) = seen.get_mut(host) {
            *facts = None;
        }
    }
    // Whoever held the lock until now has changed what was seen before.
    let mut facts = session.gather_again(&seen).await;
    for (host, _) in facts.iter().zip(&seen).enumerate().filter(|(_, (now, then))| now.is_none() && then.is_some()) {
        lost(session, host, SILENT.to_owned());
    }
    leave_others_alone(session, &mut facts);
    let undone = if facts.iter().flatten().any(HostFacts::has_something) {
        carry_out(session, &facts, way, &CancellationToken::new()).await
    } else {
        Ok(Outcome::Ok)
    };
    session.engine.unlock(held).await;
    Ok(worse(undone?, worst))
}

/// Takes those hosts out of the facts where a run is current that is not this operation's own, and tells it.
fn leave_others_alone(session: &Session, facts: &mut [Option<HostFacts>]) {
    if session.run.is_empty() {
        return;
    }
    let other = |facts: &HostFacts| facts.current.clone().filter(|run| *run != session.run);
    let Some(run) = facts.iter().flatten().find_map(other) else { return };
    let text = format!("{run} was launched in the meantime: it is left alone");
    session.engine.emitter().notice(None, text, true);
    for facts in facts.iter_mut().filter(|f| f.as_ref().is_none_or(|f| f.current.as_ref() != Some(&session.run))) {
        *facts = None;
    }
}

/// Undoes what the facts show, under a lock that is held.
///
/// # Errors
/// What must be said to the person.
pub async fn carry_out(
    session: &mut Session,
    facts: &[Option<HostFacts>],
    way: Way,
    breaking: &CancellationToken,
) -> Result<Outcome, Failure> {
    let mut runs: Vec<String> = facts.iter().flatten().filter_map(|f| f.current.clone()).collect();
    runs.sort();
    runs.dedup();
    runs.pop();
    let mut facts = facts.to_vec();
    let mut worst = Outcome::Ok;
    if way.depth == Depth::All && way.fetch {
        worst = earlier_runs(session, &mut facts, way, breaking).await?;
    }
    // Hosts that were left out of the last run still have an earlier one, whose logs are kept apart from the last one's.
    for run in &runs {
        let theirs = |f: &HostFacts| f.current.as_ref() == Some(run);
        let masked: Vec<Option<HostFacts>> = facts.iter().map(|f| f.clone().filter(theirs)).collect();
        let depth = if way.depth == Depth::Ranks { Depth::Ranks } else { Depth::Run };
        let outcome = one_run(session, &masked, Way { depth, ..way }, breaking).await?;
        for facts in facts.iter_mut().filter(|f| f.as_ref().is_some_and(theirs)) {
            match facts {
                Some(facts) if outcome == Outcome::Ok && way.depth == Depth::All => facts.current = None,
                _ => *facts = None,
            }
        }
        worst = worse(outcome, worst);
    }
    if worst != Outcome::Ok && facts.iter().all(Option::is_none) {
        return Ok(worst);
    }
    Ok(worse(one_run(session, &facts, way, breaking).await?, worst))
}

/// Fetches and removes the runs that hosts have beside the current ones; a host where that failed keeps all that it has.
async fn earlier_runs(
    session: &mut Session,
    facts: &mut [Option<HostFacts>],
    way: Way,
    breaking: &CancellationToken,
) -> Result<Outcome, Failure> {
    let mut worst = Outcome::Ok;
    let runs: BTreeSet<String> = facts.iter().flatten().flat_map(HostFacts::earlier_runs).collect();
    for run in runs {
        let alone: Vec<Option<HostFacts>> = facts.iter().map(|f| f.as_ref()?.as_of_earlier(&run)).collect();
        let outcome = one_run(session, &alone, Way { depth: Depth::Run, ..way }, breaking).await?;
        if outcome != Outcome::Ok {
            for (facts, _) in facts.iter_mut().zip(&alone).filter(|(_, alone)| alone.is_some()) {
                *facts = None;
            }
        }
        worst = worse(outcome, worst);
    }
    Ok(worst)
}

/// The same where no host has another run than the others.
async fn one_run(session: &mut Session, facts: &[Option<HostFacts>], way: Way, breaking: &CancellationToken) -> Result<Outcome, Failure> {
    let file = facts.iter().flatten().find_map(HostFacts::run_file).cloned();
    let run = facts.iter().flatten().find_map(|f| f.current.clone());
    let grace = way.grace.unwrap_or_else(|| Duration::from_secs(file.as_ref().map_or(60, |f| f.stop_grace)));
    let manner = Manner { depth: way.depth, grace: (!way.kill).then_some(grace), fetch: way.fetch };
    let plan = Arc::new(teardown::plan(session.sites(facts, Some(&session.identity.token)), facts, manner));
    let offsets = match &run {
        Some(run) if way.fetch => session.keep(run, record(facts.iter().flatten(), run)).await?,
        _ => Arc::new(|_| Vec::new()),
    };
    // Where another operator has cleared it away already, it is still the end of the run that was followed.
    let of = run.unwrap_or_else(|| session.run.clone());
    session.begin(&of, Some(&plan));
    session.tell_run_end(facts).await;
    if facts.iter().flatten().any(|f| part(f) == Part::Running) {
        let why = format!("`{}` ends the run", session.command());
        session.engine.emitter().send(EventKind::GoalChanged { goal: Goal::Down, why });
        // Who ends now ends by our order, and has not failed.
        let signal = if way.kill { "KILL" } else { "TERM" };
        for (host, _) in (0_u32..).zip(facts).filter(|(_, facts)| facts.as_ref().is_some_and(|f| part(f) == Part::Running)) {
            session.engine.emitter().send(EventKind::Signalled { host, signal: signal.to_owned() });
        }
    }
    let carried = session.engine.carry_out(&plan, facts, &offsets, Temper::Teardown, breaking).await;
    // Ranks that could not be stopped die with their container: where that was removed and verified, nothing is left of them.
    let removed = way.depth == Depth::All && carried.failed.iter().all(|f| f.phase == crate::event::Phase::Stop);
    for failed in carried.failed.iter().filter(|_| !removed) {
        leftover(session, failed.host, failed.trouble.what.clone());
    }
    Ok(match (carried.lock_lost, carried.failed.is_empty() || removed, carried.interrupted) {
        (true, ..) => Outcome::Locked,
        (_, false, _) | (_, _, true) => Outcome::Leftovers,
        (false, true, false) => Outcome::Ok,
    })
}

/// Says that a leftover is there.
pub fn leftover(session: &Session, host: usize, text: String) {
    session.engine.emitter().send(EventKind::Leftover { host: u32::try_from(host).unwrap_or(u32::MAX), text });
}
