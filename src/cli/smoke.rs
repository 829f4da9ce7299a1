#![expect(clippy::disallowed_methods, reason = "reads the logs that a smoke left on this laptop")]
//! `check --smoke`: a run of its own on the hosts of an inventory, through the same doors as `up`; its ranks' logs are the answer.

use std::io::Read as _;
use std::path::Path;

use clap::Parser as _;

use crate::cli::args::{Cli, Command, HostArgs, Preflight, Progress, UpArgs};
use crate::cli::exit::Failure;
use crate::cli::laptop::say;
use crate::cli::session::Session;
use crate::cli::up::operate;
use crate::event::Outcome;
use crate::inventory::smoke::Smoke;
use crate::inventory::{Inventory, Job, Known};
use crate::plan::check::smoke::{CHECK, Heard, Terms, WORDS, judged, near};
use crate::plan::check::{Answer, Cell};
use crate::plan::facts::HostFacts;
use crate::plan::situation::{Part, part};
use crate::plan::words::{Level, RankInfo};
use crate::plan::world::World;
use crate::report::fold::fold;
use crate::report::runs::RunDir;
use crate::state::RunState;

/// The most bytes of one rank's log that are looked at.
const LOOK: u64 = 8 << 20;

/// What the checks before it found.
pub struct Before<'a> {
    /// The inventory's job, as it is written.
    pub draft: &'a Job,
    /// What is known of the hosts.
    pub known: &'a Known,
    /// What they are.
    pub facts: &'a [Option<HostFacts>],
    /// Why there is to be none; nothing: there is.
    pub failed: Option<&'a str>,
}

/// Runs it after the checks; what it found, and how it ended where that is more than what it found.
///
/// # Errors
/// What must be said to the person.
pub async fn run(session: &Session, args: &HostArgs, base: &Path, before: Before<'_>) -> Result<(Answer, Outcome), Failure> {
    let names = session.names();
    let answer = |cells: Vec<Cell>| Answer { check: CHECK, cells: cells.into_iter().enumerate().collect() };
    let all = |cell: Cell| answer(vec![cell; names.len()]);
    if let Some(why) = before.failed {
        return Ok((all(Cell::skipped(why)), Outcome::Ok));
    }
    let live = before.facts.iter().flatten().find(|facts| part(facts) == Part::Running);
    if let Some(run) = live.and_then(|facts| facts.current.as_deref()) {
        let cell = Cell::fail(
            format!("{run} is live and needs the hosts for itself"),
            "wait for its end (`orchestrate attach`), or end it: `orchestrate down`",
        );
        return Ok((all(cell), Outcome::Ok));
    }
    let (own, job, gpus) = inventory(&session.inventory, &before);
    let ranks = World::new(&job, vec![String::new(); names.len()]).ranks();
    if ranks.len() == 1 {
        return Ok((all(Cell::skipped("one rank alone has nobody to talk to")), Outcome::Ok));
    }
    let address = before.known.addresses.first().cloned().flatten().unwrap_or_default();
    let store = job.launch.master_port.map_or_else(|| address.clone(), |port| format!("{address}:{port}"));
    say(&format!("smoke: an all-reduce over {} ranks on {}, meeting at {store}: about half a minute", ranks.len(), fold(&names)));
    let (outcome, ended) = operate(&up(args)?, own, base.to_owned()).await?;
    let Some((session, why)) = ended else { return Ok((all(Cell::skipped("broken off")), outcome)) };
    let logs = session.dir.clone();
    let (outcome, state) = session.close(outcome, false).await;
    if let Outcome::Signal(_) = outcome {
        return Ok((all(Cell::skipped("broken off")), outcome));
    }
    let cells = match begun(&state, &names, &outcome, &why) {
        Some(cells) => cells,
        None => {
            let heard = logs.as_ref().map_or(Vec::new(), |dir| heard(dir, &ranks));
            let contained = job.hosts.iter().any(|host| host.container.is_some());
            let terms = Terms { hosts: &names, store: &store, place: if contained { "image" } else { "host" }, gpus, why: &why };
            judged(&terms, &heard)
        }
    };
    let answer = answer(cells);
    if answer.level() == Level::Fail
        && let Some(dir) = &logs
    {
        say(&format!("smoke: the ranks' logs are in {}", dir.logs().display()));
    }
    // That a rank failed is what the cells say.
    let outcome = if outcome == Outcome::Failed || outcome == Outcome::Detached { Outcome::Ok } else { outcome };
    Ok((answer, outcome))
}

/// The smoke's inventory and job, and whether GPUs are given: then it is one process a GPU, else one a host.
fn inventory(inventory: &Inventory, before: &Before<'_>) -> (Inventory, Job, bool) {
    let busy = |port: &u16| before.facts.first().and_then(Option::as_ref).is_some_and(|facts| facts.busy.contains(port));
    let port = before.draft.launch.master_port.and_then(|port| near(port).into_iter().find(|port| !busy(port)));
    let smoke = Smoke { words: &WORDS, port, nproc: None };
    let own = inventory.smoke(&smoke);
    match own.job(before.known) {
        Ok(job) => (own, job, true),
        Err(_) => {
            let own = inventory.smoke(&Smoke { nproc: Some(1), ..smoke });
            let job = own.job(before.known).unwrap_or_else(|_| before.draft.clone());
            (own, job, false)
        }
    }
}

/// `up` as a smoke is launched: nothing is checked anew, and it says little.
fn up(args: &HostArgs) -> Result<UpArgs, Failure> {
    let Command::Up(mut up) = Cli::parse_from(["orchestrate", "up"]).command else {
        return Err(anyhow::anyhow!("`up` is no longer a command").into());
    };
    let progress = match args.progress {
        shown @ (Progress::Plain | Progress::Bars) => shown,
        _ => Progress::Quiet,
    };
    up.host = HostArgs { limit: None, progress, ..args.clone() };
    up.preflight = Preflight::Off;
    Ok(up)
}

/// What stood in the way of the launch, for each host; none: the ranks were begun.
fn begun(state: &RunState, names: &[String], outcome: &Outcome, why: &str) -> Option<Vec<Cell>> {
    if state.ranks.values().any(|rank| rank.started.is_some()) && *outcome != Outcome::Refused {
        return None;
    }
    if *outcome == Outcome::Ok || *outcome == Outcome::Detached {
        return None;
    }
    let failed: Vec<_> = state.failed_steps().collect();
    let note = state.notices.iter().rev().find(|note| note.warn).map_or(why, |note| note.text.as_str());
    let told = |host: usize| failed.iter().find(|step| step.info.host as usize == host);
    let cell = |host: usize| match told(host) {
        Some(step) => Cell::fail(format!("it could not begin: {}", step.note), step.hint.clone()),
        None if failed.is_empty() => Cell::fail(format!("it could not begin: {note}"), ""),
        None => Cell::skipped("it could not begin on other hosts"),
    };
    Some((0..names.len()).map(cell).collect())
}

/// What the ranks wrote.
fn heard(dir: &RunDir, ranks: &[RankInfo]) -> Vec<Heard> {
    let read = |rank: &RankInfo| {
        let mut bytes = Vec::new();
        let file = std::fs::File::open(dir.logs().join(format!("rank-{}.log", rank.rank)));
        if let Err(error) = file.and_then(|file| file.take(LOOK).read_to_end(&mut bytes)) {
            tracing::debug!(%error, rank = rank.rank, "its log is not here");
        }
        Heard::read(usize::try_from(rank.host).unwrap_or(usize::MAX), &String::from_utf8_lossy(&bytes))
    };
    ranks.iter().map(read).collect()
}
