//! `up`: finds what is there, converges, launches, follows, and leaves as `teardown` says.

use std::sync::Arc;
use std::time::Duration;

use crate::cli::args::{HostArgs, UpArgs};
use crate::cli::desk::Faces;
use crate::cli::exit::{Failure, worse};
use crate::cli::laptop::{print, random, say, secrets};
use crate::cli::session::{Need, Session, answered, inventory};
use crate::cli::signals::{Part, Signals};
use crate::cli::undo::{self, Way};
use crate::engine::decide::Temper;
use crate::engine::follow::{Finish, Run};
use crate::engine::watch::Offsets;
use crate::event::{EventKind, Outcome};
use crate::inventory::{Inventory, Job, Known, Teardown};
use crate::plan::Plan;
use crate::plan::action::Trouble;
use crate::plan::build::{self, Ids, Terms};
use crate::plan::facts::HostFacts;
use crate::plan::situation::{Part as LivePart, Situation, part, situation};
use crate::plan::teardown::Depth;
use crate::plan::world::given_gpus;
use crate::report::loglines::Logs;

/// How often `up` decides anew because another operator was faster.
const LOOKS: usize = 5;

/// What is decided before anything is asked.
struct Wish {
    ids: Ids,
    stamp: String,
    secrets: Vec<(String, String)>,
}

/// Runs it.
///
/// # Errors
/// What must be said to the person.
pub async fn run(args: &UpArgs) -> Result<Outcome, Failure> {
    let whole = HostArgs { limit: None, ..args.host.clone() };
    let (inventory, base) = inventory(&whole, Need::Launch)?;
    run_with(args, inventory, base).await
}

/// Runs it with an inventory that was read elsewhere (`demo`).
///
/// # Errors
/// What must be said to the person.
pub async fn run_with(args: &UpArgs, whole: Inventory, base: std::path::PathBuf) -> Result<Outcome, Failure> {
    let mut inventory = whole.clone();
    if let Some(pattern) = &args.host.limit {
        inventory.limit(pattern).map_err(|problem| Failure::Inventory(vec![problem]))?;
    }
    let draft = inventory.job(&Known {
        gpus: vec![None; inventory.hosts.len()],
        addresses: vec![None; inventory.hosts.len()],
        ..Known::default()
    })?;
    let secrets = secrets(&draft.secrets)?;
    let hidden: Vec<String> = secrets.iter().map(|(_, value)| value.clone()).collect();
    let faces = Faces { progress: args.host.progress, logs: Logs::Main, data: false };
    let mut session = Session::open("up", &args.host, inventory, base, faces, &hidden)?;
    let mut signals = Signals::listen(Part::Launcher).map_err(anyhow::Error::from)?;
    let leave = signals.leave.clone();
    let stamp = jiff::Zoned::now();
    let wish = Wish {
        ids: Ids {
            run: format!("{}-{}", stamp.strftime("%Y%m%d-%H%M%S"), random().chars().take(4).collect::<String>()),
            token: Some(session.identity.token.clone()),
            owner: session.identity.owner.clone(),
            started: stamp.timestamp().to_string(),
            recreate: args.recreate,
        },
        stamp: stamp.strftime("%Y%m%d%H%M%S").to_string(),
        secrets,
    };
    session.begin("", None);
    let words = session.inventory_words();
    let ended = tokio::select! {
        ended = converge(&mut session, args, &whole, &wish, &draft, &mut signals) => ended,
        () = leave.cancelled() => {
            say(&format!("left at once: the hosts may still hold something; clean up with\n    orchestrate down {words}"));
            return Ok(Outcome::Signal(signals.came().unwrap_or(2)));
        }
    };
    let (outcome, why) = ended?;
    let recap = outcome != Outcome::Refused || session.dir.is_some();
    let (outcome, _) = session.finish(outcome, &why, recap && !args.dry_run).await;
    Ok(outcome)
}

type Ended = Result<(Outcome, String), Failure>;

async fn converge(session: &mut Session, args: &UpArgs, whole: &Inventory, wish: &Wish, draft: &Job, signals: &mut Signals) -> Ended {
    // Another operator may change this name between our look and our lock: then all is looked at and decided anew.
    for _ in 0..LOOKS {
        if let Some(ended) = look_and_change(session, args, whole, wish, draft, signals).await? {
            return Ok(ended);
        }
    }
    session.engine.emitter().notice(None, "others change this name again and again", true);
    Ok((Outcome::Locked, "nothing was changed".to_owned()))
}

async fn look_and_change(
    session: &mut Session,
    args: &UpArgs,
    whole: &Inventory,
    wish: &Wish,
    draft: &Job,
    signals: &mut Signals,
) -> Result<Option<(Outcome, String)>, Failure> {
    let (facts, outcome) = answered(session, session.gather(Some(draft)).await);
    if outcome != Outcome::Ok {
        return Ok(Some((outcome, "nothing was changed".to_owned())));
    }
    let facts: Vec<HostFacts> = facts.into_iter().flatten().collect();
    if let Some(number) = signals.came() {
        return Ok(Some((Outcome::Signal(number), "nothing was changed".to_owned())));
    }
    if let Some(pattern) = &args.host.limit
        && let Some((run, hosts)) = live_beyond(session, whole, &facts).await
    {
        let text = format!("--limit {pattern}: {run} is live, on {}", hosts.join(" "));
        session.engine.emitter().notice(None, text, true);
        session.engine.emitter().notice(None, "help: `down` ends it; `attach` follows it", false);
        return Ok(Some((Outcome::Refused, "a run of other hosts is live".to_owned())));
    }
    let (job, texts) = match job(session, args, wish, &facts) {
        Ok(found) => found,
        Err(outcome) => return Ok(Some((outcome, "nothing was changed".to_owned()))),
    };
    let names = session.names();
    let found = situation(&facts, &names, &texts);
    match &found {
        Situation::Live { run, .. } if args.host.limit.is_some() => {
            session.engine.emitter().notice(None, format!("{run} runs: `--limit` would renumber its ranks; help: `down` ends it"), true);
            return Ok(Some((Outcome::Refused, "a run is live".to_owned())));
        }
        Situation::Live { run, differs } if differs.is_empty() && !args.recreate => {
            let run = run.clone();
            return attach(session, args, &facts, &run, signals).await.map(Some);
        }
        Situation::Live { run, differs } if !args.recreate => {
            let shown = if args.diff { differs.len() } else { 3 };
            let more = if differs.len() > shown { format!(" (and {} more: --diff)", differs.len() - shown) } else { String::new() };
            let text = format!("{run} runs and differs from what is asked for{more}");
            session.engine.emitter().notice(None, text, true);
            for line in differs.iter().take(shown) {
                session.engine.emitter().notice(None, format!("  {line}"), true);
            }
            session.engine.emitter().notice(None, "help: `up --recreate` replaces it, `attach` follows it, `down` ends it", false);
            return Ok(Some((Outcome::Refused, "a different run is live".to_owned())));
        }
        _ => {}
    }
    if args.dry_run {
        return dry_run(session, &job, &texts, &facts, wish, &found).map(Some);
    }
    change(session, args, wish, &job, &texts, facts, found, signals).await
}

/// A live run of this name that is not just the chosen hosts' own: which, and where.
async fn live_beyond(session: &Session, whole: &Inventory, facts: &[HostFacts]) -> Option<(String, Vec<String>)> {
    let names = session.names();
    let mut others = whole.clone();
    others.hosts.retain(|host| !names.contains(&host.name));
    let beyond = if others.hosts.is_empty() { Vec::new() } else { session.look_at(&others).await };
    let own = |facts: &HostFacts| facts.run_file().is_some_and(|f| f.hosts.iter().map(|h| &h.name).eq(&names));
    let here = names.iter().zip(facts).filter(|(_, f)| !own(f));
    let live = here.chain(beyond.iter().map(|(name, f)| (name, f))).filter(|(_, f)| part(f) == LivePart::Running);
    let live: Vec<(&String, &HostFacts)> = live.collect();
    let run = live.first()?.1.current.clone()?;
    Some((run, live.into_iter().map(|(name, _)| name.clone()).collect()))
}

/// The job with all that the hosts told, and the texts that "equal" is decided by.
fn job(session: &Session, args: &UpArgs, wish: &Wish, facts: &[HostFacts]) -> Result<(Job, Vec<(String, String)>), Outcome> {
    let refuse = |troubles: Vec<(Option<usize>, String)>| {
        for (host, text) in troubles {
            session.engine.emitter().notice(host, text, true);
        }
        Outcome::Refused
    };
    let inventory = &session.inventory;
    let with_hint = |t: &Trouble| if t.hint.is_empty() { t.what.clone() } else { format!("{}; help: {}", t.what, t.hint) };
    let addresses = build::addresses(inventory, facts)
        .map_err(|troubles| refuse(troubles.iter().map(|(host, t)| (Some(*host), with_hint(t))).collect()))?;
    let known = Known {
        run_id: wish.ids.run.clone(),
        run_stamp: wish.stamp.clone(),
        gpus: inventory.hosts.iter().zip(facts).map(|(h, f)| Some(given_gpus(h, f)).filter(|n| *n > 0)).collect(),
        addresses: addresses.into_iter().map(Some).collect(),
        master_port: None,
    };
    let mut job = inventory.job(&known).map_err(|problems| refuse(problems.iter().map(|p| (None, p.to_string())).collect()))?;
    if args.keep {
        job.teardown = Teardown::Never;
    }
    let texts = (0..inventory.hosts.len()).map(|i| inventory.hash_text(i)).map(|t| (t.container, t.launch)).collect();
    Ok((job, texts))
}

fn dry_run(session: &Session, job: &Job, texts: &[(String, String)], facts: &[HostFacts], wish: &Wish, found: &Situation) -> Ended {
    let mut ids = wish.ids.clone();
    ids.token = None;
    let terms = Terms { inventory: &session.inventory, job, facts, texts, ids: &ids, secrets: &[] };
    match build::launch(terms) {
        Ok(plan) => {
            let first = match found {
                Situation::Nothing => "nothing of this name is there: it would be launched".to_owned(),
                Situation::Ended { run } => format!("{run} has ended: its logs would be fetched, then a new run launched"),
                Situation::Partial { why } => format!("a partial gang ({why}): it would be stopped, then a new run launched"),
                Situation::Live { run, .. } => format!("{run} runs: it would be stopped, then a new run launched"),
            };
            print(&format!("{first}\n{}", crate::plan::text::plan(&plan, Some(facts), false)));
            Ok((Outcome::Ok, "nothing was changed".to_owned()))
        }
        Err(troubles) => Ok((tell(session, &troubles), "nothing was changed".to_owned())),
    }
}

fn tell(session: &Session, troubles: &[(usize, Trouble)]) -> Outcome {
    for (host, trouble) in troubles {
        session.engine.emitter().notice(Some(*host), format!("{}; help: {}", trouble.what, trouble.hint), true);
    }
    Outcome::Refused
}

/// Changes what has to be changed; `None`: another operator was faster, and what was decided is no longer right.
#[expect(clippy::too_many_arguments, reason = "one call, and each is a thing of its own")]
async fn change(
    session: &mut Session,
    args: &UpArgs,
    wish: &Wish,
    job: &Job,
    texts: &[(String, String)],
    facts: Vec<HostFacts>,
    found: Situation,
    signals: &mut Signals,
) -> Result<Option<(Outcome, String)>, Failure> {
    let seen: Vec<Option<HostFacts>> = facts.into_iter().map(Some).collect();
    let held = match session.lock(&seen, args.lock_wait, false).await {
        Ok(held) => held,
        Err(outcome) => return Ok(Some((outcome, "nothing was changed".to_owned()))),
    };
    let expected = |host: usize| seen.get(host).and_then(Option::as_ref).and_then(|f| f.current.as_deref()).unwrap_or_default();
    let mut moved = held.current.iter().any(|(host, run)| run != expected(*host));
    // What looked like a part of a gang may have been a launch under way: whatever is to be cleared away is looked at under the lock.
    let seen = if moved || found == Situation::Nothing { seen } else { answered(session, session.gather(Some(job)).await).0 };
    if !moved && found != Situation::Nothing {
        let now: Vec<HostFacts> = seen.iter().flatten().cloned().collect();
        moved = now.len() != seen.len() || situation(&now, &session.names(), texts) != found;
    }
    if moved {
        session.engine.unlock(held).await;
        return Ok(None);
    }
    // What was there before: an ended run's logs are fetched first; a partial or unwanted gang is stopped first.
    if found != Situation::Nothing {
        let way = Way { depth: if args.recreate { Depth::All } else { Depth::Run }, kill: false, fetch: true, grace: None };
        let outcome = undo::carry_out(session, &seen, way, &signals.breaking).await?;
        if outcome != Outcome::Ok {
            session.engine.unlock(held).await;
            return Ok(Some((outcome, "what was there before could not be cleared away".to_owned())));
        }
    }
    let fresh = if found == Situation::Nothing { seen } else { answered(session, session.gather(Some(job)).await).0 };
    let fresh: Vec<HostFacts> = fresh.into_iter().flatten().collect();
    if fresh.len() != session.inventory.hosts.len() {
        session.engine.unlock(held).await;
        return Ok(Some((Outcome::Unreachable, "nothing was launched".to_owned())));
    }
    let terms = Terms { inventory: &session.inventory, job, facts: &fresh, texts, ids: &wish.ids, secrets: &wish.secrets };
    let plan = match build::launch(terms) {
        Ok(plan) => Arc::new(plan),
        Err(troubles) => {
            let outcome = tell(session, &troubles);
            session.engine.unlock(held).await;
            return Ok(Some((outcome, "nothing was launched".to_owned())));
        }
    };
    let offsets = session.keep(&wish.ids.run).await?;
    session.begin(&wish.ids.run, Some(&plan));
    if let Some(pattern) = &args.host.limit {
        let text = format!("--limit {pattern}: {} hosts, ranks numbered anew, world size {}", plan.sites.len(), plan.world_size);
        session.engine.emitter().notice(None, text, false);
    }
    let facts: Vec<Option<HostFacts>> = fresh.into_iter().map(Some).collect();
    let carried = session.engine.carry_out(&plan, &facts, &offsets, Temper::Strict, &signals.breaking).await;
    session.engine.unlock(held).await;
    if !carried.ok() {
        return broken_off(session, args, job, &plan, &carried, signals).await.map(Some);
    }
    followed(session, args, job, &plan, &offsets, signals).await.map(Some)
}

/// A launch that did not come to its end: everything that it began is undone.
async fn broken_off(
    session: &mut Session,
    args: &UpArgs,
    job: &Job,
    plan: &Plan,
    carried: &crate::engine::worker::Carried,
    signals: &mut Signals,
) -> Ended {
    let refused = carried.failed.iter().all(|f| !f.unreachable);
    let outcome = match (signals.came(), carried.lock_lost) {
        (Some(number), _) => Outcome::Signal(number),
        (None, true) => Outcome::Locked,
        (None, false) if !refused => Outcome::Unreachable,
        // No rank was begun: the hosts are not fit for it, whichever phase found out.
        (None, false) if carried.launched.is_empty() => Outcome::Refused,
        (None, false) => Outcome::Failed,
    };
    if carried.lock_lost {
        return Ok((outcome, "another operator took over".to_owned()));
    }
    let why = match (signals.came(), carried.failed.first()) {
        (Some(_), _) => "stopped during the launch".to_owned(),
        (None, Some(f)) => format!("{}: {}", session.names().get(f.host).map_or("?", String::as_str), f.trouble.what),
        (None, None) => "the launch was broken off".to_owned(),
    };
    if carried.changed == 0 && carried.launched.is_empty() {
        return Ok((outcome, why));
    }
    let depth = if job.teardown == Teardown::Always { Depth::All } else { Depth::Ranks };
    let way = Way { depth, kill: false, fetch: true, grace: Some(job.launch.stop_grace) };
    let engine = session.engine.clone();
    let undoing = undo::locked(session, way, args.lock_wait, false);
    tokio::pin!(undoing);
    let undone = loop {
        tokio::select! {
            undone = &mut undoing => break undone?,
            Some(control) = signals.controls.recv() => if matches!(control, crate::event::Control::Kill { .. }) {
                engine.kill(&plan.sites).await;
            },
        }
    };
    Ok((worse(outcome, undone), why))
}

fn run_of(plan: &Plan, job: &Job, detach: bool) -> Run {
    Run {
        sites: plan.sites.clone(),
        workers: plan.world_size as usize,
        // The inventory has proved it.
        ready_when: job.launch.ready_when.as_ref().and_then(|r| regex::bytes::Regex::new(r).ok()),
        grace: job.launch.stop_grace,
        until_running: detach,
        only_look: false,
    }
}

async fn followed(session: &mut Session, args: &UpArgs, job: &Job, plan: &Plan, offsets: &Offsets, signals: &mut Signals) -> Ended {
    let run = run_of(plan, job, args.detach);
    let finish = session.engine.follow(&run, offsets, &mut signals.controls).await;
    if finish == Finish::Running {
        let text = "every rank runs; while nobody is attached each host stops its own ranks when one of them fails";
        session.engine.emitter().notice(None, text, false);
        return Ok((Outcome::Detached, "every rank runs".to_owned()));
    }
    over(session, args.lock_wait, finish, job.teardown, job.launch.stop_grace, signals).await
}

/// After the end: as `teardown` says.
pub async fn over(
    session: &mut Session,
    lock_wait: Duration,
    finish: Finish,
    teardown: Teardown,
    grace: Duration,
    signals: &Signals,
) -> Ended {
    let (outcome, why) = match (&finish, signals.came()) {
        (Finish::Detached, Some(number)) => return Ok((Outcome::Signal(number), "detached: the run goes on".to_owned())),
        (Finish::Detached | Finish::Running, _) => return Ok((Outcome::Detached, "the run goes on".to_owned())),
        (Finish::Ended { ok: true, .. }, _) => (Outcome::Ok, String::new()),
        (Finish::Ended { stopped, .. }, Some(number)) => {
            (Outcome::Signal(number), stopped.as_ref().map_or_else(|| "stopped".to_owned(), |s| format!("stopped: {s}")))
        }
        (Finish::Ended { stopped, .. }, None) => (Outcome::Failed, stopped.clone().unwrap_or_default()),
        (Finish::Teardown, _) => (Outcome::Ok, "torn down".to_owned()),
    };
    let depth = match (teardown, &finish) {
        (_, Finish::Teardown) | (Teardown::Always, _) => Depth::All,
        (Teardown::OnSuccess, Finish::Ended { ok: true, .. }) => Depth::All,
        (Teardown::OnSuccess | Teardown::Never, _) => Depth::Ranks,
    };
    let undone = undo::locked(session, Way { depth, kill: false, fetch: true, grace: Some(grace) }, lock_wait, false).await?;
    Ok((worse(outcome, undone), why))
}

/// An equal run is live: follow it as one who merely looks; at its end it is torn down as it was launched to be.
async fn attach(session: &mut Session, args: &UpArgs, facts: &[HostFacts], run: &str, signals: &mut Signals) -> Ended {
    signals.become_part(Part::Onlooker);
    session.engine.emitter().notice(None, format!("{run} runs and is what is asked for: attaching (Ctrl-C detaches)"), false);
    if args.detach || args.dry_run {
        return Ok((Outcome::Detached, "it runs already".to_owned()));
    }
    let (finish, file) = crate::cli::attach::follow(session, facts, run, signals, false).await?;
    let teardown = match file.teardown.as_str() {
        "always" => Teardown::Always,
        "on-success" => Teardown::OnSuccess,
        _ => Teardown::Never,
    };
    over(session, args.lock_wait, finish, teardown, Duration::from_secs(file.stop_grace), signals).await
}

/// Says that a leftover is there.
pub fn leftover(session: &Session, host: usize, text: String) {
    session.engine.emitter().send(EventKind::Leftover { host: u32::try_from(host).unwrap_or(u32::MAX), text });
}
