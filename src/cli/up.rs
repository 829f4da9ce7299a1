//! `up`: finds what is there, converges, launches, follows, and leaves as `teardown` says.

use std::sync::Arc;
use std::time::Duration;

use crate::cli::args::{HostArgs, Preflight, UpArgs};
use crate::cli::attach::Manner;
use crate::cli::board;
use crate::cli::checks::{deepen, judged, survey};
use crate::cli::desk::Faces;
use crate::cli::exit::{Failure, worse};
use crate::cli::hang;
use crate::cli::laptop::{known_secrets, print, random, say, secrets};
use crate::cli::recorded;
use crate::cli::session::{Need, Session, answered, inventory};
use crate::cli::signals::{Part, Signals};
use crate::cli::undo::{self, Way};
use crate::cli::visit::Door;
use crate::engine::decide::Temper;
use crate::engine::follow::{Finish, Run};
use crate::engine::watch::Offsets;
use crate::event::{EventKind, Goal, Outcome};
use crate::inventory::{Become, Inventory, Job, Known, Teardown};
use crate::plan::Plan;
use crate::plan::action::Trouble;
use crate::plan::action::preflight::docker_trouble;
use crate::plan::build::{self, Ids, Terms};
use crate::plan::check::told::Told;
use crate::plan::check::{Check, chosen, fast};
use crate::plan::facts::HostFacts;
use crate::plan::situation::{Part as LivePart, Situation, part, situation, unseen, when_stopped};
use crate::plan::teardown::Depth;
use crate::plan::world::given_gpus;
use crate::report::fold::fold;
use crate::report::loglines::Logs;
use crate::tui::feed::Offer;

/// How often `up` decides anew because another operator was faster.
const LOOKS: usize = 5;

/// What is decided before anything is asked.
pub(super) struct Wish {
    pub(super) ids: Ids,
    stamp: String,
    pub(super) secrets: Vec<(String, String)>,
    /// Of registries, by the name of their variable.
    passwords: Vec<(String, String)>,
    /// Why it cannot be launched from here, which is told when it is asked for: what runs can be followed without.
    pub(super) lacks: Option<Failure>,
    /// The person has asked for it.
    pub(super) asked: bool,
    /// What runs is to be stopped and launched again.
    again: bool,
    /// Hosts that only the record of an earlier run names, and that were cleared.
    cleared: Vec<String>,
}

impl Wish {
    /// Another launch of the same: with a run of its own.
    fn anew(&mut self) {
        let now = jiff::Zoned::now();
        self.ids.run = run_id(&now);
        self.ids.started = now.timestamp().to_string();
        self.stamp = now.strftime("%Y%m%d%H%M%S").to_string();
        (self.asked, self.again) = (true, true);
    }
}

fn run_id(now: &jiff::Zoned) -> String {
    format!("{}-{}", now.strftime("%Y%m%d-%H%M%S"), random().chars().take(4).collect::<String>())
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
    let (outcome, ended) = operate(args, whole, base).await?;
    let Some((session, _)) = ended else { return Ok(outcome) };
    let recap = outcome != Outcome::Refused || session.dir.is_some();
    Ok(session.close(outcome, recap && !args.dry_run).await.0)
}

/// All of it but the last words, with why it ended so; no session: it was left at once.
pub(super) async fn operate(
    args: &UpArgs,
    whole: Inventory,
    base: std::path::PathBuf,
) -> Result<(Outcome, Option<(Session, String)>), Failure> {
    let mut inventory = whole.clone();
    if let Some(pattern) = &args.host.limit {
        inventory.limit(pattern).map_err(|problem| Failure::Inventory(vec![problem]))?;
    }
    let draft = inventory.job(&Known {
        gpus: vec![None; inventory.hosts.len()],
        addresses: vec![None; inventory.hosts.len()],
        ..Known::default()
    })?;
    let (secrets, lacks) = match secrets(&draft.secrets) {
        Ok(secrets) => (secrets, None),
        Err(lacks) if args.ask => (Vec::new(), Some(lacks)),
        Err(lacks) => return Err(lacks),
    };
    let (passwords, lacks) = match secrets_of_registries(&draft) {
        Ok(passwords) => (passwords, lacks),
        Err(also) if args.ask => (Vec::new(), lacks.or(Some(also))),
        Err(also) => return Err(also),
    };
    let hidden = known_secrets(&inventory);
    let faces = Faces { progress: args.host.progress, logs: Logs::Main, data: false };
    let (command, part) = if args.ask { ("tui", Part::Onlooker) } else { ("up", Part::Launcher) };
    let mut session = Session::open(command, &args.host, inventory, base, faces, &hidden)?;
    let mut signals = Signals::listen(part).map_err(anyhow::Error::from)?;
    let leave = signals.leave.clone();
    if let Some(asks) = session.desk.asks() {
        signals.obey(asks, Door::of(&session));
    }
    session.desk.offer(Offer::of(signals.role()));
    if let Some(guide) = args.guide {
        session.desk.say(guide);
    }
    let stamp = jiff::Zoned::now();
    let mut wish = Wish {
        ids: Ids {
            run: run_id(&stamp),
            token: Some(session.identity.token.clone()),
            owner: session.identity.owner.clone(),
            started: stamp.timestamp().to_string(),
            recreate: args.recreate,
        },
        stamp: stamp.strftime("%Y%m%d%H%M%S").to_string(),
        secrets,
        passwords,
        lacks,
        asked: !args.ask,
        again: false,
        cleared: Vec::new(),
    };
    session.begin("", None);
    let down = session.advise("down", "");
    let ended = loop {
        let ended = tokio::select! {
            ended = converge(&mut session, args, &whole, &mut wish, &draft, &mut signals) => ended,
            () = leave.cancelled() => {
                // What a dashboard that broke had to say has been said.
                if !crate::tui::screen::broken() {
                    say(&format!("left at once: the hosts may still hold something; clean up with\n    {down}"));
                }
                return Ok((Outcome::Signal(signals.came().unwrap_or(2)), None));
            }
        };
        let (outcome, why) = ended?;
        session.conclude(&outcome, &why);
        let over = match outcome {
            Outcome::Detached => true,
            Outcome::Signal(_) => !signals.by_key(),
            _ => false,
        };
        let looked_at = args.ask && wish.asked || args.guide.is_some() && session.desk.has_dashboard();
        if !looked_at || over {
            break (outcome, why);
        }
        let (outcome, again) = board::afterwards(&mut session, args, &mut wish, &mut signals, outcome).await?;
        if !again {
            break (outcome, why);
        }
        wish.anew();
        wish.again = false;
        signals.anew();
        session.attempt += 1;
        session.begin("", None);
    };
    Ok((ended.0, Some((session, ended.1))))
}

/// The passwords that the registries of a job name.
fn secrets_of_registries(job: &Job) -> Result<Vec<(String, String)>, Failure> {
    let registries = job.hosts.iter().filter_map(|h| h.container.as_ref()).filter_map(|c| c.registry.as_ref());
    let mut names: Vec<String> = registries.map(|registry| registry.password.clone()).collect();
    names.sort();
    names.dedup();
    secrets(&names)
}

type Ended = Result<(Outcome, String), Failure>;

async fn converge(session: &mut Session, args: &UpArgs, whole: &Inventory, wish: &mut Wish, draft: &Job, signals: &mut Signals) -> Ended {
    // Another operator may change this name between our look and our lock: then all is looked at and decided anew.
    let mut looks = 0;
    while looks < LOOKS {
        let run = wish.ids.run.clone();
        if let Some(ended) = look_and_change(session, args, whole, wish, draft, signals).await? {
            return Ok(ended);
        }
        // Who asks for another launch begins to count anew.
        looks = if wish.ids.run == run { looks + 1 } else { 0 };
    }
    session.engine.emitter().notice(None, "others change this name again and again", true);
    Ok((Outcome::Locked, "nothing was changed".to_owned()))
}

async fn look_and_change(
    session: &mut Session,
    args: &UpArgs,
    whole: &Inventory,
    wish: &mut Wish,
    draft: &Job,
    signals: &mut Signals,
) -> Result<Option<(Outcome, String)>, Failure> {
    let checks = fit(args.preflight, draft);
    let (facts, told) = survey(session, draft, &checks).await.into_iter().unzip();
    let (facts, outcome) = answered(session, facts);
    if outcome != Outcome::Ok {
        let away = session.names().into_iter().zip(&facts).filter(|(_, facts)| facts.is_none()).map(|(name, _)| name);
        let away = fold(&away.collect::<Vec<_>>());
        return Ok(Some((outcome, format!("{away} could not be reached: nothing was changed"))));
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
        session.engine.emitter().notice(None, "help: `orchestrate down` ends it; `orchestrate attach` follows it", false);
        return Ok(Some((Outcome::Refused, "a run of other hosts is live".to_owned())));
    }
    let (job, texts) = match job(session, args, wish, &facts) {
        Ok(found) => found,
        Err(outcome) => return Ok(Some((outcome, "nothing was changed".to_owned()))),
    };
    if let Some((at, facts, says)) = unseen(&facts)
        && let Some(host) = session.inventory.hosts.get(at)
    {
        let trouble = docker_trouble(says, &host.name, &facts.user, host.ssh.r#become == Become::Sudo);
        let outcome = tell(session, &[(at, trouble)]);
        return Ok(Some((outcome, "whether a run goes on there cannot be seen: nothing was changed".to_owned())));
    }
    let names = session.names();
    let found = situation(&facts, &names, &texts);
    match &found {
        Situation::Live { .. } if wish.again => {}
        Situation::Live { run, .. } if args.host.limit.is_some() => {
            session.engine.emitter().notice(
                None,
                format!("{run} runs: `--limit` would renumber its ranks; help: `orchestrate down` ends it"),
                true,
            );
            return Ok(Some((Outcome::Refused, "a run is live".to_owned())));
        }
        Situation::Live { run, differs } if (differs.is_empty() || args.ask) && !args.recreate => {
            for line in differs {
                session.engine.emitter().notice(None, format!("what runs differs from the inventory: {line}"), true);
            }
            wish.asked = true;
            let (run, same) = (run.clone(), differs.is_empty());
            return attach(session, args, wish, &facts, &run, same, signals).await;
        }
        Situation::Live { run, differs } if !args.recreate => {
            let shown = if args.diff { differs.len() } else { 3 };
            let more = if differs.len() > shown { format!(" (and {} more: --diff)", differs.len() - shown) } else { String::new() };
            let text = format!("{run} runs and differs from what is asked for{more}");
            session.engine.emitter().notice(None, text, true);
            for line in differs.iter().take(shown) {
                session.engine.emitter().notice(None, format!("  {line}"), true);
            }
            session.engine.emitter().notice(
                None,
                "help: `orchestrate up --recreate` replaces it, `orchestrate attach` follows it, `orchestrate down` ends it",
                false,
            );
            return Ok(Some((Outcome::Refused, "a different run is live".to_owned())));
        }
        _ => {}
    }
    if args.dry_run {
        return dry_run(session, &job, &texts, &facts, wish, &found).map(Some);
    }
    if args.host.limit.is_none()
        && let Some(ended) = recorded::clear(session, args, &mut wish.cleared, &facts).await?
    {
        return Ok(Some(ended));
    }
    if !wish.asked {
        return board::asked(session, args, &job, &texts, &facts, wish, &found, signals).await;
    }
    change(session, args, wish, &job, &texts, (facts, told), found, &checks, signals).await
}

/// The checks of this `--preflight`: the fast ones are all but those that need a container of the image.
fn fit(preflight: Preflight, job: &Job) -> Vec<Check> {
    match preflight {
        Preflight::Off => Vec::new(),
        Preflight::Full => chosen(&[], &[], &job.checks.skip).unwrap_or_default(),
        Preflight::Fast => fast(job),
    }
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
        master_port: facts.first().and_then(|f| f.free_port),
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
    let facts = &when_stopped(facts);
    let terms = Terms { inventory: &session.inventory, job, facts, texts, ids: &ids, secrets: &[], passwords: &[], checks: &[] };
    match build::launch(terms) {
        Ok(plan) => {
            let first = board::would(found);
            print(&format!("{first}\n{}", crate::plan::text::plan(&plan, Some(facts), false)));
            Ok((Outcome::Ok, "nothing was changed".to_owned()))
        }
        Err(troubles) => Ok((tell(session, &troubles), "nothing was changed".to_owned())),
    }
}

pub(super) fn tell(session: &Session, troubles: &[(usize, Trouble)]) -> Outcome {
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
    wish: &mut Wish,
    job: &Job,
    texts: &[(String, String)],
    (facts, told): (Vec<HostFacts>, Vec<Told>),
    found: Situation,
    checks: &[Check],
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
    let (fresh, mut told) = if found == Situation::Nothing {
        (seen, told)
    } else {
        let (facts, told) = survey(session, job, checks).await.into_iter().unzip();
        (answered(session, facts).0, told)
    };
    let fresh: Vec<HostFacts> = fresh.into_iter().flatten().collect();
    if fresh.len() != session.inventory.hosts.len() {
        session.engine.unlock(held).await;
        return Ok(Some((Outcome::Unreachable, "nothing was launched".to_owned())));
    }
    let facts: Vec<Option<HostFacts>> = fresh.iter().cloned().map(Some).collect();
    deepen(session, job, checks, &facts, &mut told).await;
    let answers = judged(&session.inventory, job, &facts, &told, checks, true);
    let terms = Terms {
        inventory: &session.inventory,
        job,
        facts: &fresh,
        texts,
        ids: &wish.ids,
        secrets: &wish.secrets,
        passwords: &wish.passwords,
        checks: &answers,
    };
    let plan = match build::launch(terms) {
        Ok(plan) => Arc::new(plan),
        Err(troubles) => {
            let outcome = tell(session, &troubles);
            session.engine.unlock(held).await;
            return Ok(Some((outcome, "nothing was launched".to_owned())));
        }
    };
    let offsets = session.keep(&wish.ids.run, plan.run.as_ref()).await?;
    if wish.again {
        session.attempt += 1;
        wish.again = false;
    }
    session.begin(&wish.ids.run, Some(&plan));
    if found != Situation::Nothing || session.attempt > 1 {
        // What was there before is gone: from now on the gang is to run.
        session.engine.emitter().send(EventKind::GoalChanged { goal: Goal::Up, why: String::new() });
    }
    if let Some(pattern) = &args.host.limit {
        let text = format!("--limit {pattern}: {} hosts, ranks numbered anew, world size {}", plan.sites.len(), plan.world_size);
        session.engine.emitter().notice(None, text, false);
    }
    answers.iter().for_each(|answer| crate::cli::check::tell(session, answer));
    let carried = session.engine.carry_out(&plan, &facts, &offsets, Temper::Strict, &signals.breaking).await;
    session.engine.unlock(held).await;
    if !carried.ok() {
        return broken_off(session, args, job, &plan, &carried, signals).await.map(Some);
    }
    followed(session, args, wish, job, &plan, &offsets, signals).await
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
    if !carried.touched {
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
        // An elastic gang may begin with fewer hosts.
        workers: job.launch.min_nodes.map_or(plan.world_size, |least| least * job.nproc_per_node.unwrap_or(1)) as usize,
        // The inventory has proved it.
        ready_when: job.launch.ready_when.as_ref().and_then(|r| regex::bytes::Regex::new(r).ok()),
        grace: job.launch.stop_grace,
        until_running: detach,
        restarts: job.forgives(),
        least: job.least(),
        only_look: false,
    }
}

async fn followed(
    session: &mut Session,
    args: &UpArgs,
    wish: &mut Wish,
    job: &Job,
    plan: &Plan,
    offsets: &Offsets,
    signals: &mut Signals,
) -> Result<Option<(Outcome, String)>, Failure> {
    let run = run_of(plan, job, args.detach);
    session.desk.offer(Offer { act: true, again: true, ..Offer::of(signals.role()) });
    let finish = hang::follow(session, &run, offsets, signals, plan.run.as_ref().map(hang::terms_of).unwrap_or_default()).await;
    session.desk.offer(Offer::of(signals.role()));
    if finish == Finish::Running {
        let text = "every rank runs; while nobody is attached each host stops its own ranks when one of them fails";
        session.engine.emitter().notice(None, text, false);
        return Ok(Some((Outcome::Detached, "every rank runs".to_owned())));
    }
    if finish == Finish::Restart {
        wish.anew();
        return Ok(None);
    }
    undo::over(session, args.lock_wait, finish, job.teardown, job.launch.stop_grace, signals).await.map(Some)
}

/// An equal run is live: follow it as one who merely looks; at its end it is torn down as it was launched to be.
async fn attach(
    session: &mut Session,
    args: &UpArgs,
    wish: &mut Wish,
    facts: &[HostFacts],
    run: &str,
    same: bool,
    signals: &mut Signals,
) -> Result<Option<(Outcome, String)>, Failure> {
    signals.become_part(Part::Onlooker);
    session.engine.emitter().notice(None, format!("{run} runs and is what is asked for: attaching (Ctrl-C detaches)"), false);
    if args.detach || args.dry_run {
        return Ok(Some((Outcome::Detached, "it runs already".to_owned())));
    }
    let manner = if same && wish.lacks.is_none() { Manner::Again } else { Manner::Attached };
    let (finish, file) = crate::cli::attach::follow(session, facts, run, signals, manner).await?;
    if finish == Finish::Restart {
        wish.anew();
        // Who restarts a run has launched it.
        signals.become_part(if args.ask { Part::Onlooker } else { Part::Launcher });
        return Ok(None);
    }
    let teardown = match file.teardown.as_str() {
        "always" => Teardown::Always,
        "on-success" => Teardown::OnSuccess,
        _ => Teardown::Never,
    };
    undo::over(session, args.lock_wait, finish, teardown, Duration::from_secs(file.stop_grace), signals).await.map(Some)
}
