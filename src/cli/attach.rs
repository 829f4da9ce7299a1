//! `attach`: follows what runs, from any laptop that has the inventory.

use std::time::Duration;

use crate::cli::args::HostArgs;
use crate::cli::desk::Faces;
use crate::cli::exit::Failure;
use crate::cli::session::{Need, Session, answered, inventory};
use crate::cli::signals::{Part, Signals};
use crate::engine::follow::{Finish, Run};
use crate::event::Outcome;
use crate::plan::facts::HostFacts;
use crate::plan::run::RunFile;
use crate::plan::situation::{Situation, situation};
use crate::report::loglines::Logs;

/// Runs it.
///
/// # Errors
/// What must be said to the person.
pub async fn run(args: &HostArgs) -> Result<Outcome, Failure> {
    let (inventory, base) = inventory(args, Need::Connection)?;
    let faces = Faces { progress: args.progress, logs: Logs::Main, data: false };
    let mut session = Session::open("attach", args, inventory, base, faces, &[])?;
    let mut signals = Signals::listen(Part::Onlooker).map_err(anyhow::Error::from)?;
    let leave = signals.leave.clone();
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
            session.engine.emitter().notice(None, format!("not a whole gang: {why}; `down` clears it away"), true);
            known.iter().find_map(|f| f.current.clone()).unwrap_or_default()
        }
    };
    let facts: Vec<HostFacts> = facts.into_iter().map(Option::unwrap_or_default).collect();
    let (finish, file) = follow(session, &facts, &run, signals, false).await?;
    let ended = match (finish, signals.came()) {
        (Finish::Detached, Some(number)) => (Outcome::Signal(number), "detached: the run goes on".to_owned()),
        (Finish::Detached | Finish::Running | Finish::Teardown, _) => (Outcome::Detached, "the run goes on".to_owned()),
        (Finish::Ended { ok: true, .. }, _) => (Outcome::Ok, "the run has ended; `down` clears it away".to_owned()),
        (Finish::Ended { stopped, .. }, _) => {
            (Outcome::Failed, format!("{}; `down` clears it away", stopped.unwrap_or_else(|| "the run failed".to_owned())))
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
    only_look: bool,
) -> Result<(Finish, RunFile), Failure> {
    let file = facts.iter().find_map(HostFacts::run_file).cloned().unwrap_or_default();
    let offsets = session.keep(run).await?;
    let known: Vec<Option<HostFacts>> = facts.iter().cloned().map(|f| Some(f).filter(|f| !f.run_dir.is_empty())).collect();
    let sites = session.sites(&known, None);
    let mut plan = crate::plan::Plan::empty(sites.clone());
    plan.run = Some(file.clone());
    session.begin(run, Some(&plan));
    let followed = Run {
        sites,
        workers: file.world_size as usize,
        ready_when: file.ready_when.as_ref().and_then(|r| regex::bytes::Regex::new(r).ok()),
        grace: Duration::from_secs(file.stop_grace),
        until_running: false,
        only_look,
    };
    let finish = session.engine.follow(&followed, &offsets, &mut signals.controls).await;
    Ok((finish, file))
}
