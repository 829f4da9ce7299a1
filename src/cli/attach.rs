//! `attach`: follows what runs, from any laptop that has the inventory.

use std::time::Duration;

use crate::cli::args::HostArgs;
use crate::cli::desk::{Faces, ends};
use crate::cli::exit::Failure;
use crate::cli::hang;
use crate::cli::laptop::known_secrets;
use crate::cli::session::{Need, Session, answered, inventory, record};
use crate::cli::signals::{Part, Signals};
use crate::cli::undo::over;
use crate::cli::visit::Door;
use crate::engine::follow::{Finish, Run};
use crate::event::Outcome;
use crate::inventory::Teardown;
use crate::plan::facts::HostFacts;
use crate::plan::run::RunFile;
use crate::plan::situation::{Situation, situation};
use crate::report::loglines::Logs;
use crate::tui::feed::Offer;

/// How long a tear-down waits for another operator's lock.
const LOCK_WAIT: Duration = Duration::from_secs(45);

/// What one who follows may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Look, and nothing else.
    Looking,
    /// End the run.
    Attached,
    /// End it, and launch it again.
    Again,
}

/// How many lines of each log that this laptop has from before are shown.
const LAST: usize = 20;

/// Runs it.
///
/// # Errors
/// What must be said to the person.
pub async fn run(args: &HostArgs) -> Result<Outcome, Failure> {
    let (inventory, base) = inventory(args, Need::Connection)?;
    let secrets = known_secrets(&inventory);
    let faces = Faces { progress: args.progress, logs: Logs::Main, data: false };
    let mut session = Session::open("attach", args, inventory, base, faces, &secrets)?;
    let mut signals = Signals::listen(Part::Onlooker).map_err(anyhow::Error::from)?;
    let leave = signals.leave.clone();
    if let Some(asks) = session.desk.asks() {
        signals.obey(asks, Door::of(&session));
    }
    session.begin("", None);
    let ended = tokio::select! {
        ended = attach(&mut session, &mut signals) => ended,
        () = leave.cancelled() => return Ok(Outcome::Signal(signals.came().unwrap_or(2))),
    };
    let (outcome, why) = ended?;
    Ok(session.finish(outcome, &why, true).await.0)
}

async fn attach(session: &mut Session, signals: &mut Signals) -> Result<(Outcome, String), Failure> {
    let (facts, outcome) = answered(session, session.gather(None).await);
    let known: Vec<HostFacts> = facts.iter().flatten().cloned().collect();
    let names = session.names();
    let reached: Vec<String> = names.iter().zip(&facts).filter(|(_, f)| f.is_some()).map(|(n, _)| n.clone()).collect();
    let run = match situation(&known, &reached, &[]) {
        Situation::Nothing if outcome == Outcome::Ok => return Ok((Outcome::Ok, "nothing of this name runs".to_owned())),
        Situation::Nothing => return Ok((outcome, "nothing of this name runs on the hosts that answered".to_owned())),
        Situation::Live { run, .. } | Situation::Ended { run } => run,
        Situation::Partial { why } => {
            session.engine.emitter().notice(None, format!("not a whole gang: {why}; `orchestrate down` removes it"), true);
            known.iter().find_map(|f| f.current.clone()).unwrap_or_default()
        }
    };
    let facts: Vec<HostFacts> = facts.into_iter().map(Option::unwrap_or_default).collect();
    let (finish, file) = follow(session, &facts, &run, signals, Manner::Attached).await?;
    if finish == Finish::Teardown {
        return over(session, LOCK_WAIT, finish, Teardown::Always, Duration::from_secs(file.stop_grace), signals).await;
    }
    let ended = match (finish, signals.came()) {
        (Finish::Detached, Some(number)) => (Outcome::Signal(number), "detached: the run goes on".to_owned()),
        (Finish::Detached | Finish::Running | Finish::Teardown | Finish::Restart, _) => (Outcome::Detached, "the run goes on".to_owned()),
        (Finish::Stopped, _) => (Outcome::Stopped, "the run was stopped from elsewhere".to_owned()),
        (Finish::Ended { ok: true, .. }, _) => (Outcome::Ok, "the run has ended; `orchestrate down` removes it".to_owned()),
        (Finish::Ended { stopped, .. }, _) => {
            (Outcome::Failed, format!("{}; `orchestrate down` removes it", stopped.unwrap_or_else(|| "the run failed".to_owned())))
        }
    };
    tracing::debug!(teardown = file.teardown, "followed to its end");
    Ok(ended)
}

/// Follows a run that others launched, from the hosts' own account of it.
///
/// # Errors
/// What must be said to the person.
pub async fn follow(
    session: &mut Session,
    facts: &[HostFacts],
    run: &str,
    signals: &mut Signals,
    manner: Manner,
) -> Result<(Finish, RunFile), Failure> {
    let file = facts.iter().find_map(HostFacts::run_file).cloned().unwrap_or_default();
    let offsets = session.keep(run, record(facts.iter(), run)).await?;
    let known: Vec<Option<HostFacts>> = facts.iter().cloned().map(|f| Some(f).filter(|f| !f.run_dir.is_empty())).collect();
    let sites = session.sites(&known, None);
    let mut plan = crate::plan::Plan::empty(sites.clone());
    plan.run = Some(file.clone());
    session.begin(run, Some(&plan));
    session.tell_run_end(&known).await;
    if let Some(dir) = session.dir.as_ref().filter(|_| manner != Manner::Looking) {
        session.desk.recall(ends(dir, &session.names(), LAST));
    }
    let followed = Run {
        sites,
        workers: file.world_size as usize,
        ready_when: file.ready_when.as_ref().and_then(|r| regex::bytes::Regex::new(r).ok()),
        grace: Duration::from_secs(file.stop_grace),
        until_running: false,
        restarts: file.restarts,
        least: file.least,
        only_look: manner == Manner::Looking,
    };
    let act = manner != Manner::Looking;
    session.desk.offer(Offer { act, again: manner == Manner::Again, ..Offer::of(signals.role()) });
    let (mut terms, stop) = hang::terms_of(&file);
    // The line that marks it may have been read before: nobody looks for it in what is here already.
    terms.marked = false;
    let finish = hang::follow(session, &followed, &offsets, signals, (terms, stop)).await;
    session.desk.offer(Offer::of(signals.role()));
    Ok((finish, file))
}
