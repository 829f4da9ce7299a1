//! `down`: fetches what this laptop lacks, then stops and removes everything of a name, and verifies it.

use std::path::PathBuf;

use crate::cli::args::{DownArgs, Progress};
use crate::cli::beside::{self, Others};
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
    let (facts, left_out) = if args.host.limit.is_none() { wherever_it_is(session, facts).await } else { (facts, Vec::new()) };
    *smoke = facts.iter().flatten().any(|facts| facts.smoke);
    let others = beside::others(session, &facts);
    let found = facts.iter().flatten().any(HostFacts::has_something);
    if !found {
        let mut blind = beside::unseen(session, &facts);
        for (host, _) in facts.iter().enumerate().filter(|(_, f)| f.is_none()) {
            undo::leftover(session, host, undo::SILENT.to_owned());
            blind = true;
        }
        return Ok(match (blind, others) {
            (true, _) => (Outcome::Leftovers, "some hosts could not be looked at".to_owned()),
            (false, Others::Ours) => (Outcome::Leftovers, String::new()),
            (false, Others::Theirs) => {
                (Outcome::Ok, format!("nothing of {} is on any host but what belongs to others", session.inventory.name))
            }
            (false, Others::None) => (Outcome::Ok, format!("nothing of {} is on any host", session.inventory.name)),
        });
    }
    if args.dry_run {
        let manner = Manner { depth: Depth::All, grace: None, fetch: !args.discard_logs };
        let plan = teardown::plan(session.sites(&facts, None), &facts, manner);
        print(&crate::plan::text::plan(&plan, None, false));
        return Ok((Outcome::Ok, "nothing was changed".to_owned()));
    }
    let way = Way { depth: Depth::All, kill: args.kill, fetch: !args.discard_logs, grace: None };
    let mut outcome = undo::locked(session, way, args.lock_wait, args.host.yes).await?;
    if others == Others::Ours {
        outcome = worse(Outcome::Leftovers, outcome);
    }
    if !left_out.is_empty() {
        let names = left_out.iter().map(RecordedHost::place).collect::<Vec<_>>().join(", ");
        let text = format!(
            "not reached, since only the run's record named them: {names}; put them into the inventory then `orchestrate down`; `orchestrate down --yes` reaches them at once"
        );
        session.engine.emitter().notice(None, text, true);
        return Ok((worse(Outcome::Leftovers, outcome), "hosts that only the run's record names were not reached".to_owned()));
    }
    let why = match (&outcome, others) {
        (Outcome::Ok, Others::Theirs) => "nothing is left but what belongs to others",
        (Outcome::Ok, _) => "nothing is left",
        _ => "",
    };
    Ok((outcome, why.to_owned()))
}

/// Makes those hosts part of this operation on which the name is, though the inventory does not name them: under another name of a host of the
/// inventory, or, where the person lets them be reached, at another place. With the facts of all, and the hosts that were not to be reached.
async fn wherever_it_is(session: &mut Session, facts: Vec<Option<HostFacts>>) -> (Vec<Option<HostFacts>>, Vec<RecordedHost>) {
    let (mut facts, mut left_out) = (facts, Vec::<RecordedHost>::new());
    // What is found at one place may name another.
    for _ in 0..3 {
        let mut recorded = session.recorded_hosts(&facts);
        recorded.retain(|host| !left_out.iter().any(|left| left.host.name == host.host.name));
        let (mut more, others): (Vec<_>, Vec<_>) = recorded.into_iter().partition(|host| session.is_renamed(host));
        let shown = session.renamed_hosts(&facts);
        more.extend(shown.into_iter().filter(|host| !others.iter().any(|other| other.host.name == host.host.name)));
        more.dedup_by(|a, b| a.host.name == b.host.name);
        if !more.is_empty() {
            let names = more.iter().map(RecordedHost::place).collect::<Vec<_>>().join(", ");
            session.engine.emitter().notice(None, format!("also under names that are not in the inventory: {names}"), false);
        }
        if !others.is_empty() && session.may_reach(&others) {
            more.extend(others);
        } else {
            left_out.extend(others);
        }
        if more.is_empty() {
            break;
        }
        session.add_hosts(more);
        session.begin("", None);
        facts = answered(session, session.gather(None).await).0;
    }
    (facts, left_out)
}
