//! `down`: fetches what this laptop lacks, then stops and removes everything of a name, and verifies it.

use std::path::PathBuf;

use crate::cli::args::{DownArgs, Progress};
use crate::cli::desk::Faces;
use crate::cli::exit::{Failure, worse};
use crate::cli::laptop::{known_secrets, print, say};
use crate::cli::session::{Need, RecordedHost, Session, answered, inventory};
use crate::cli::undo::{self, Way};
use crate::event::Outcome;
use crate::inventory::Inventory;
use crate::inventory::smoke::Smoke;
use crate::plan::facts::HostFacts;
use crate::plan::teardown::{self, Depth, Manner};
use crate::report::loglines::Logs;

/// Runs it.
///
/// # Errors
/// What must be said to the person.
pub async fn run(args: &DownArgs) -> Result<Outcome, Failure> {
    if args.host.progress == Progress::Tui {
        return Err(Failure::Usage("--progress tui: for `up` and `attach`; `down` shows bars or lines".to_owned()));
    }
    let (inventory, base) = inventory(&args.host, Need::Connection)?;
    let (outcome, smoke) = one(args, inventory.clone(), base.clone()).await?;
    if !smoke {
        return Ok(outcome);
    }
    // A `check --smoke` that was killed leaves a run of its own.
    let own = inventory.smoke(&Smoke { words: &[], port: None, nproc: None });
    Ok(worse(one(args, own, base).await?.0, outcome))
}

/// Clears one name away; whether a smoke of it is there.
async fn one(args: &DownArgs, inventory: Inventory, base: PathBuf) -> Result<(Outcome, bool), Failure> {
    let secrets = known_secrets(&inventory);
    let faces = Faces { progress: args.host.progress, logs: Logs::None, data: false };
    let mut session = Session::open("down", &args.host, inventory, base, faces, &secrets)?;
    session.begin("", None);
    let again = session.advise("down", "");
    // A terminal that goes away does not break a teardown off.
    let _hangup = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).map_err(anyhow::Error::from)?;
    let mut smoke = false;
    let ended = tokio::select! {
        ended = down(&mut session, args, &mut smoke) => ended?,
        number = interrupted() => {
            say(&format!("interrupted; to finish:\n    {again}"));
            return Ok((Outcome::Signal(number), false));
        }
    };
    if args.dry_run {
        say(&ended.1);
    }
    Ok((session.finish(ended.0, &ended.1, !args.dry_run).await.0, smoke))
}

/// The number of the first signal that asks this process to end.
async fn interrupted() -> i32 {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => 2,
        _ = terminate.recv() => 15,
    }
}

pub(super) async fn down(session: &mut Session, args: &DownArgs, smoke: &mut bool) -> Result<(Outcome, String), Failure> {
    let (facts, _) = answered(session, session.gather(None).await);
    // Hosts that were taken out of the inventory since `up` are cleaned too.
    let recorded = if args.host.limit.is_none() { session.recorded_hosts(&facts) } else { Vec::new() };
    let mut facts = facts;
    let mut left_out = Vec::new();
    if !recorded.is_empty() && session.may_reach(&recorded) {
        session.add_hosts(recorded);
        session.begin("", None);
        facts = answered(session, session.gather(None).await).0;
    } else {
        left_out = recorded;
    }
    *smoke = facts.iter().flatten().any(|facts| facts.smoke);
    let found = facts.iter().flatten().any(HostFacts::has_something);
    let unreachable = facts.iter().any(Option::is_none);
    if !found {
        if unreachable {
            for (host, _) in facts.iter().enumerate().filter(|(_, f)| f.is_none()) {
                undo::leftover(session, host, undo::SILENT.to_owned());
            }
            return Ok((Outcome::Leftovers, "some hosts could not be looked at".to_owned()));
        }
        return Ok((Outcome::Ok, format!("nothing of {} is on any host", session.inventory.name)));
    }
    if args.dry_run {
        let manner = Manner { depth: Depth::All, grace: None, fetch: !args.discard_logs };
        let plan = teardown::plan(session.sites(&facts, None), &facts, manner);
        print(&crate::plan::text::plan(&plan, None, false));
        return Ok((Outcome::Ok, "nothing was changed".to_owned()));
    }
    let way = Way { depth: Depth::All, kill: args.kill, fetch: !args.discard_logs, grace: None };
    let outcome = undo::locked(session, way, args.lock_wait, args.host.yes).await?;
    if !left_out.is_empty() {
        let names = left_out.iter().map(RecordedHost::place).collect::<Vec<_>>().join(", ");
        let text = format!(
            "not reached, since only the run's record named them: {names}; put them into the inventory then `orchestrate down`; `orchestrate down --yes` reaches them at once"
        );
        session.engine.emitter().notice(None, text, true);
        return Ok((worse(Outcome::Leftovers, outcome), "hosts that only the run's record names were not reached".to_owned()));
    }
    let why = if outcome == Outcome::Ok { "nothing is left" } else { "" };
    Ok((outcome, why.to_owned()))
}
