//! `up`: finds what is there, converges, launches, follows, and leaves as `teardown` says.

use std::sync::Arc;
use std::time::Duration;

use crate::cli::args::{CommonArgs, PreflightLevel, UpArgs};
use crate::cli::attach::{FollowMode, follow_with_watchdog};
use crate::cli::confirm;
use crate::cli::dashboard_shell::spawn_action_handler;
use crate::cli::exit::{CliError, worse_outcome};
use crate::cli::hang_watchdog::hang_config;
use crate::cli::launch_request::{LaunchRequest, new_run_id};
use crate::cli::local_env::{hide_known_secrets, print_stderr, print_stdout, read_secrets};
use crate::cli::preflight::{cross_host_probes, emit_check_report, evaluate, gather_facts_and_probes};
use crate::cli::recorded_hosts;
use crate::cli::reporter_task::OutputOptions;
use crate::cli::session::{LoadMode, Session, collect_facts, load_inventory, report_issues};
use crate::cli::signals::{InterruptPolicy, StopController};
use crate::cli::teardown::{self, TeardownOptions};
use crate::engine::follow::{FollowOutcome, FollowedRun};
use crate::engine::log_stream::LogOffsets;
use crate::engine::scheduler::FailurePolicy;
use crate::event::{EventKind, Goal, Outcome};
use crate::inventory::{Become, Inventory, Job, RuntimeValues, Teardown};
use crate::plan::Plan;
use crate::plan::action::Issue;
use crate::plan::action::check_facts::docker_issue;
use crate::plan::build::{self, LaunchInputs, RunIdentity};
use crate::plan::existing_run::{
    ExistingRun, FoundRun as LivePart, classify_existing_run, facts_after_stop, find_host_without_docker_answer, found_run,
};
use crate::plan::facts::HostFacts;
use crate::plan::rank_layout::usable_gpu_count;
use crate::plan::teardown::TeardownScope;
use crate::preflight::probe_output::ProbeOutput;
use crate::preflight::{PreflightCheck, launch_checks, select_checks, summarize_host};
use crate::report::log_filter::LogSelection;
use crate::text::hostlist::fold_names;
use crate::tui::feed::Capabilities;

/// How often `up` decides anew because another operator was faster.
const MAX_RECONCILE_ATTEMPTS: usize = 5;

/// Runs it.
///
/// # Errors
/// What must be said to the person.
pub async fn run(args: &UpArgs) -> Result<Outcome, CliError> {
    let whole = CommonArgs { limit: None, ..args.common.clone() };
    let (inventory, base) = load_inventory(&whole, LoadMode::Full)?;
    run_with_inventory(args, inventory, base).await
}

/// Runs it with an inventory that was read elsewhere (`demo`).
///
/// # Errors
/// What must be said to the person.
pub async fn run_with_inventory(args: &UpArgs, whole: Inventory, base: std::path::PathBuf) -> Result<Outcome, CliError> {
    let (outcome, ended) = run_without_recap(args, whole, base).await?;
    let Some((session, _)) = ended else { return Ok(outcome) };
    let recap = outcome != Outcome::Refused || session.run_dir.is_some();
    Ok(session.close(outcome, recap && !args.dry_run).await.0)
}

/// All of it but the last words, with why it ended so; no session: it was left at once.
pub(super) async fn run_without_recap(
    args: &UpArgs,
    whole: Inventory,
    base: std::path::PathBuf,
) -> Result<(Outcome, Option<(Session, String)>), CliError> {
    let mut inventory = whole.clone();
    if let Some(pattern) = &args.common.limit {
        inventory.limit_hosts(pattern).map_err(|problem| CliError::Inventory(vec![problem]))?;
    }
    let draft = inventory.job(&RuntimeValues {
        gpu_counts: vec![None; inventory.hosts.len()],
        fabric_addresses: vec![None; inventory.hosts.len()],
        ..RuntimeValues::default()
    })?;
    let (secrets, lacks) = match read_secrets(&draft.secret_names) {
        Ok(secrets) => (secrets, None),
        Err(lacks) if args.confirm_first => (Vec::new(), Some(lacks)),
        Err(lacks) => return Err(lacks),
    };
    let (passwords, lacks) = match read_registry_passwords(&draft) {
        Ok(passwords) => (passwords, lacks),
        Err(also) if args.confirm_first => (Vec::new(), lacks.or(Some(also))),
        Err(also) => return Err(also),
    };
    let hidden = hide_known_secrets(&inventory);
    let faces = OutputOptions { progress: args.common.progress, logs: LogSelection::MainRank, logs_to_stdout: false };
    let (command, part) = if args.confirm_first { ("tui", InterruptPolicy::Detach) } else { ("up", InterruptPolicy::Stop) };
    let mut session = Session::open(command, &args.common, inventory, base, faces, &hidden)?;
    let mut signals = StopController::listen(part).map_err(anyhow::Error::from)?;
    let leave = signals.leave_token.clone();
    spawn_action_handler(&mut session, &signals);
    session.reporter.set_capabilities(Capabilities::view_only(signals.dashboard_role()));
    if let Some(guide) = args.intro_text {
        session.reporter.show_message(guide);
    }
    let stamp = jiff::Zoned::now();
    let mut wish = LaunchRequest {
        run_identity: RunIdentity {
            run_id: new_run_id(&stamp),
            lock_token: Some(session.identity.token.clone()),
            owner: session.identity.owner.clone(),
            started_at: stamp.timestamp().to_string(),
            recreate_containers: args.recreate,
        },
        run_stamp: stamp.strftime("%Y%m%d%H%M%S").to_string(),
        secrets,
        registry_passwords: passwords,
        launch_error: lacks,
        confirmed: !args.confirm_first,
        relaunch: false,
        cleared_hosts: Vec::new(),
    };
    session.emit_run_started("", None);
    let down = session.suggest_command("down", "");
    let ended = loop {
        let ended = tokio::select! {
            ended = converge(&mut session, args, &whole, &mut wish, &draft, &mut signals) => ended,
            () = leave.cancelled() => {
                // What a dashboard that broke had to say has been said.
                if !crate::tui::terminal::has_panicked() {
                    print_stderr(&format!("left at once: the hosts may still hold something; clean up with\n    {down}"));
                }
                return Ok((Outcome::Signal(signals.first_signal().unwrap_or(2)), None));
            }
        };
        let (outcome, why) = ended?;
        session.emit_run_finished(&outcome, &why);
        let over = match outcome {
            Outcome::Detached => true,
            Outcome::Signal(_) => !signals.is_stopped_by_key(),
            _ => false,
        };
        let looked_at = args.confirm_first && wish.confirmed || args.intro_text.is_some() && session.reporter.has_dashboard();
        if !looked_at || over {
            break (outcome, why);
        }
        let (outcome, again) = confirm::after_run(&mut session, args, &mut wish, &mut signals, outcome).await?;
        if !again {
            break (outcome, why);
        }
        wish.reset();
        wish.relaunch = false;
        signals.reset();
        session.attempt += 1;
        session.emit_run_started("", None);
    };
    Ok((ended.0, Some((session, ended.1))))
}

/// The passwords that the registries of a job name.
fn read_registry_passwords(job: &Job) -> Result<Vec<(String, String)>, CliError> {
    let registries = job.hosts.iter().filter_map(|h| h.container.as_ref()).filter_map(|c| c.registry.as_ref());
    let mut names: Vec<String> = registries.map(|registry| registry.password_variable.clone()).collect();
    names.sort();
    names.dedup();
    read_secrets(&names)
}

type UpResult = Result<(Outcome, String), CliError>;

async fn converge(
    session: &mut Session,
    args: &UpArgs,
    whole: &Inventory,
    wish: &mut LaunchRequest,
    draft: &Job,
    signals: &mut StopController,
) -> UpResult {
    // Another operator may change this name between our look and our lock: then all is looked at and decided anew.
    let mut looks = 0;
    while looks < MAX_RECONCILE_ATTEMPTS {
        let run = wish.run_identity.run_id.clone();
        if let Some(ended) = reconcile(session, args, whole, wish, draft, signals).await? {
            return Ok(ended);
        }
        // Who asks for another launch begins to count anew.
        looks = if wish.run_identity.run_id == run { looks + 1 } else { 0 };
    }
    session.engine.emitter().send_notice(None, "others change this name again and again", true);
    Ok((Outcome::Locked, "nothing was changed".to_owned()))
}

async fn reconcile(
    session: &mut Session,
    args: &UpArgs,
    whole: &Inventory,
    wish: &mut LaunchRequest,
    draft: &Job,
    signals: &mut StopController,
) -> Result<Option<(Outcome, String)>, CliError> {
    let checks = preflight_checks(args.preflight, draft);
    let (facts, told) = gather_facts_and_probes(session, draft, &checks).await.into_iter().unzip();
    let (facts, outcome) = collect_facts(session, facts);
    if outcome != Outcome::Ok {
        let away = session.host_names().into_iter().zip(&facts).filter(|(_, facts)| facts.is_none()).map(|(name, _)| name);
        let away = fold_names(&away.collect::<Vec<_>>());
        return Ok(Some((outcome, format!("{away} could not be reached: nothing was changed"))));
    }
    let facts: Vec<HostFacts> = facts.into_iter().flatten().collect();
    if let Some(number) = signals.first_signal() {
        return Ok(Some((Outcome::Signal(number), "nothing was changed".to_owned())));
    }
    if let Some(pattern) = &args.common.limit
        && let Some((run, hosts)) = find_live_run_elsewhere(session, whole, &facts).await
    {
        let text = format!("--limit {pattern}: {run} is live, on {}", hosts.join(" "));
        session.engine.emitter().send_notice(None, text, true);
        session.engine.emitter().send_notice(None, "help: `orchestrate down` ends it; `orchestrate attach` follows it", false);
        return Ok(Some((Outcome::Refused, "a run of other hosts is live".to_owned())));
    }
    let (job, texts) = match resolve_job(session, args, wish, &facts) {
        Ok(found) => found,
        Err(outcome) => return Ok(Some((outcome, "nothing was changed".to_owned()))),
    };
    if let Some((at, facts, says)) = find_host_without_docker_answer(&facts)
        && let Some(host) = session.inventory.hosts.get(at)
    {
        let trouble = docker_issue(says, &host.name, &facts.user, host.ssh.r#become == Become::Sudo);
        let outcome = report_issues(session, &[(at, trouble)]);
        return Ok(Some((outcome, "whether a run goes on there cannot be seen: nothing was changed".to_owned())));
    }
    let names = session.host_names();
    let found = classify_existing_run(&facts, &names, &texts);
    match &found {
        ExistingRun::Live { .. } if wish.relaunch => {}
        ExistingRun::Live { run_id: run, .. } if args.common.limit.is_some() => {
            session.engine.emitter().send_notice(
                None,
                format!("{run} runs: `--limit` would renumber its ranks; help: `orchestrate down` ends it"),
                true,
            );
            return Ok(Some((Outcome::Refused, "a run is live".to_owned())));
        }
        ExistingRun::Live { run_id: run, differences: differs } if (differs.is_empty() || args.confirm_first) && !args.recreate => {
            for line in differs {
                session.engine.emitter().send_notice(None, format!("what runs differs from the inventory: {line}"), true);
            }
            wish.confirmed = true;
            let (run, same) = (run.clone(), differs.is_empty());
            return attach_to_live_run(session, args, wish, &facts, &run, same, signals).await;
        }
        ExistingRun::Live { run_id: run, differences: differs } if !args.recreate => {
            let shown = if args.diff { differs.len() } else { 3 };
            let more = if differs.len() > shown { format!(" (and {} more: --diff)", differs.len() - shown) } else { String::new() };
            let text = format!("{run} runs and differs from what is asked for{more}");
            session.engine.emitter().send_notice(None, text, true);
            for line in differs.iter().take(shown) {
                session.engine.emitter().send_notice(None, format!("  {line}"), true);
            }
            session.engine.emitter().send_notice(
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
    if args.common.limit.is_none()
        && let Some(ended) = recorded_hosts::clear_recorded_hosts(session, args, &mut wish.cleared_hosts, &facts).await?
    {
        return Ok(Some(ended));
    }
    if !wish.confirmed {
        return confirm::confirm_plan(session, args, &job, &texts, &facts, wish, &found, signals).await;
    }
    launch(session, args, wish, &job, &texts, (facts, told), found, &checks, signals).await
}

/// The checks of this `--preflight`: the fast ones are all but those that need a container of the image.
fn preflight_checks(preflight: PreflightLevel, job: &Job) -> Vec<PreflightCheck> {
    match preflight {
        PreflightLevel::Off => Vec::new(),
        PreflightLevel::Full => select_checks(&[], &[], &job.checks.skip).unwrap_or_default(),
        PreflightLevel::Fast => launch_checks(job),
    }
}

/// A live run of this name that is not just the chosen hosts' own: which, and where.
async fn find_live_run_elsewhere(session: &Session, whole: &Inventory, facts: &[HostFacts]) -> Option<(String, Vec<String>)> {
    let names = session.host_names();
    let mut others = whole.clone();
    others.hosts.retain(|host| !names.contains(&host.name));
    let beyond = if others.hosts.is_empty() { Vec::new() } else { session.gather_others(&others).await };
    let own = |facts: &HostFacts| facts.run_record().is_some_and(|f| f.hosts.iter().map(|h| &h.name).eq(&names));
    let here = names.iter().zip(facts).filter(|(_, f)| !own(f));
    let live = here.chain(beyond.iter().map(|(name, f)| (name, f))).filter(|(_, f)| found_run(f) == LivePart::Running);
    let live: Vec<(&String, &HostFacts)> = live.collect();
    let run = live.first()?.1.current_run.clone()?;
    Some((run, live.into_iter().map(|(name, _)| name.clone()).collect()))
}

/// The job with all that the hosts told, and the texts that "equal" is decided by.
fn resolve_job(
    session: &Session,
    args: &UpArgs,
    wish: &LaunchRequest,
    facts: &[HostFacts],
) -> Result<(Job, Vec<(String, String)>), Outcome> {
    let refuse = |troubles: Vec<(Option<usize>, String)>| {
        for (host, text) in troubles {
            session.engine.emitter().send_notice(host, text, true);
        }
        Outcome::Refused
    };
    let inventory = &session.inventory;
    let with_hint = |t: &Issue| if t.hint.is_empty() { t.message.clone() } else { format!("{}; help: {}", t.message, t.hint) };
    let addresses = build::resolve_addresses(inventory, facts)
        .map_err(|troubles| refuse(troubles.iter().map(|(host, t)| (Some(*host), with_hint(t))).collect()))?;
    let known = RuntimeValues {
        run_id: wish.run_identity.run_id.clone(),
        run_stamp: wish.run_stamp.clone(),
        gpu_counts: inventory.hosts.iter().zip(facts).map(|(h, f)| Some(usable_gpu_count(h, f)).filter(|n| *n > 0)).collect(),
        fabric_addresses: addresses.into_iter().map(Some).collect(),
        master_port: facts.first().and_then(|f| f.free_port),
    };
    let mut job = inventory.job(&known).map_err(|problems| refuse(problems.iter().map(|p| (None, p.to_string())).collect()))?;
    if args.keep {
        job.teardown = Teardown::Never;
    }
    let texts = (0..inventory.hosts.len()).map(|i| inventory.fingerprint_text(i)).map(|t| (t.container, t.launch)).collect();
    Ok((job, texts))
}

fn dry_run(
    session: &Session,
    job: &Job,
    texts: &[(String, String)],
    facts: &[HostFacts],
    wish: &LaunchRequest,
    found: &ExistingRun,
) -> UpResult {
    let mut ids = wish.run_identity.clone();
    ids.lock_token = None;
    let facts = &facts_after_stop(facts);
    let terms = LaunchInputs {
        inventory: &session.inventory,
        job,
        facts,
        config_texts: texts,
        identity: &ids,
        secrets: &[],
        registry_passwords: &[],
        check_summaries: &[],
    };
    match build::plan_launch(terms) {
        Ok(plan) => {
            let first = confirm::describe(found);
            print_stdout(&format!("{first}\n{}", crate::plan::display::format_plan(&plan, Some(facts), false)));
            Ok((Outcome::Ok, "nothing was changed".to_owned()))
        }
        Err(troubles) => Ok((report_issues(session, &troubles), "nothing was changed".to_owned())),
    }
}

/// Changes what has to be changed; `None`: another operator was faster, and what was decided is no longer right.
#[expect(clippy::too_many_arguments, reason = "one call, and each is a thing of its own")]
async fn launch(
    session: &mut Session,
    args: &UpArgs,
    wish: &mut LaunchRequest,
    job: &Job,
    texts: &[(String, String)],
    (facts, told): (Vec<HostFacts>, Vec<ProbeOutput>),
    found: ExistingRun,
    checks: &[PreflightCheck],
    signals: &mut StopController,
) -> Result<Option<(Outcome, String)>, CliError> {
    let seen: Vec<Option<HostFacts>> = facts.into_iter().map(Some).collect();
    let held = match session.lock(&seen, args.lock_wait, false).await {
        Ok(held) => held,
        Err(outcome) => return Ok(Some((outcome, "nothing was changed".to_owned()))),
    };
    let expected = |host: usize| seen.get(host).and_then(Option::as_ref).and_then(|f| f.current_run.as_deref()).unwrap_or_default();
    let mut moved = held.current_runs.iter().any(|(host, run)| run != expected(*host));
    // What looked like a part of a gang may have been a launch under way: whatever is to be cleared away is looked at under the lock.
    let seen = if moved || found == ExistingRun::NoRun { seen } else { collect_facts(session, session.gather_facts(Some(job)).await).0 };
    if !moved && found != ExistingRun::NoRun {
        let now: Vec<HostFacts> = seen.iter().flatten().cloned().collect();
        moved = now.len() != seen.len() || classify_existing_run(&now, &session.host_names(), texts) != found;
    }
    if moved {
        session.engine.unlock_hosts(held).await;
        return Ok(None);
    }
    // What was there before: an ended run's logs are fetched first; a partial or unwanted gang is stopped first.
    if found != ExistingRun::NoRun {
        let way = TeardownOptions {
            scope: if args.recreate { TeardownScope::Everything } else { TeardownScope::Run },
            kill_at_once: false,
            fetch_logs: true,
            grace: None,
        };
        let outcome = teardown::tear_down(session, &seen, way, &signals.stop_token).await?;
        if outcome != Outcome::Ok {
            session.engine.unlock_hosts(held).await;
            return Ok(Some((outcome, "what was there before could not be cleared away".to_owned())));
        }
    }
    let (fresh, mut told) = if found == ExistingRun::NoRun {
        (seen, told)
    } else {
        let (facts, told) = gather_facts_and_probes(session, job, checks).await.into_iter().unzip();
        (collect_facts(session, facts).0, told)
    };
    let fresh: Vec<HostFacts> = fresh.into_iter().flatten().collect();
    if fresh.len() != session.inventory.hosts.len() {
        session.engine.unlock_hosts(held).await;
        return Ok(Some((Outcome::Unreachable, "nothing was launched".to_owned())));
    }
    let facts: Vec<Option<HostFacts>> = fresh.iter().cloned().map(Some).collect();
    cross_host_probes(session, job, checks, &facts, &mut told).await;
    let answers = evaluate(&session.inventory, job, &facts, &told, checks, true);
    let summaries: Vec<_> = (0..session.inventory.hosts.len()).map(|host| summarize_host(&answers, host)).collect();
    let terms = LaunchInputs {
        inventory: &session.inventory,
        job,
        facts: &fresh,
        config_texts: texts,
        identity: &wish.run_identity,
        secrets: &wish.secrets,
        registry_passwords: &wish.registry_passwords,
        check_summaries: &summaries,
    };
    let plan = match build::plan_launch(terms) {
        Ok(plan) => Arc::new(plan),
        Err(troubles) => {
            let outcome = report_issues(session, &troubles);
            session.engine.unlock_hosts(held).await;
            return Ok(Some((outcome, "nothing was launched".to_owned())));
        }
    };
    let offsets = session.open_run_dir(&wish.run_identity.run_id, plan.run_record.as_ref()).await?;
    if wish.relaunch {
        session.attempt += 1;
        wish.relaunch = false;
    }
    session.emit_run_started(&wish.run_identity.run_id, Some(&plan));
    if found != ExistingRun::NoRun || session.attempt > 1 {
        // What was there before is gone: from now on the gang is to run.
        session.engine.emitter().send(EventKind::GoalChanged { goal: Goal::Up, reason: String::new() });
    }
    if let Some(pattern) = &args.common.limit {
        let text = format!("--limit {pattern}: {} hosts, ranks numbered anew, world size {}", plan.hosts.len(), plan.world_size);
        session.engine.emitter().send_notice(None, text, false);
    }
    answers.iter().for_each(|answer| emit_check_report(session, answer));
    let carried = session.engine.execute(&plan, &facts, &offsets, FailurePolicy::FailFast, &signals.stop_token).await;
    session.engine.unlock_hosts(held).await;
    if !carried.is_ok() {
        return roll_back(session, args, job, &plan, &carried, signals).await.map(Some);
    }
    follow_launched_run(session, args, wish, job, &plan, &offsets, signals).await
}

/// A launch that did not come to its end: everything that it began is undone.
async fn roll_back(
    session: &mut Session,
    args: &UpArgs,
    job: &Job,
    plan: &Plan,
    carried: &crate::engine::executor::ExecutionReport,
    signals: &mut StopController,
) -> UpResult {
    let refused = carried.failed_steps.iter().all(|f| !f.unreachable);
    let outcome = match (signals.first_signal(), carried.lock_lost) {
        (Some(number), _) => Outcome::Signal(number),
        (None, true) => Outcome::Locked,
        (None, false) if !refused => Outcome::Unreachable,
        // No rank was begun: the hosts are not fit for it, whichever phase found out.
        (None, false) if carried.launched_hosts.is_empty() => Outcome::Refused,
        (None, false) => Outcome::Failed,
    };
    if carried.lock_lost {
        return Ok((outcome, "another operator took over".to_owned()));
    }
    let why = match (signals.first_signal(), carried.failed_steps.first()) {
        (Some(_), _) => "stopped during the launch".to_owned(),
        (None, Some(f)) => format!("{}: {}", session.host_names().get(f.host).map_or("?", String::as_str), f.issue.message),
        (None, None) => "the launch was broken off".to_owned(),
    };
    if !carried.may_have_leftovers {
        return Ok((outcome, why));
    }
    let depth = if job.teardown == Teardown::Always { TeardownScope::Everything } else { TeardownScope::Ranks };
    let way = TeardownOptions { scope: depth, kill_at_once: false, fetch_logs: true, grace: Some(job.launch.stop_grace) };
    let engine = session.engine.clone();
    let undoing = teardown::lock_and_tear_down(session, way, args.lock_wait, false);
    tokio::pin!(undoing);
    let undone = loop {
        tokio::select! {
            undone = &mut undoing => break undone?,
            Some(control) = signals.controls.recv() => if matches!(control, crate::event::RunControl::Kill { .. }) {
                engine.kill_all_ranks(&plan.hosts).await;
            },
        }
    };
    Ok((worse_outcome(outcome, undone), why))
}

fn follow_spec(plan: &Plan, job: &Job, detach: bool) -> FollowedRun {
    FollowedRun {
        hosts: plan.hosts.clone(),
        // An elastic gang may begin with fewer hosts.
        rank_count: job.launch.min_nodes.map_or(plan.world_size, |least| least * job.nproc_per_node.unwrap_or(1)) as usize,
        // The inventory has proved it.
        ready_when: job.launch.ready_pattern.as_ref().and_then(|r| regex::bytes::Regex::new(r).ok()),
        stop_grace: job.launch.stop_grace,
        return_when_running: detach,
        launcher_restarts_ranks: job.is_elastic(),
        min_hosts: job.min_hosts(),
        read_only: false,
    }
}

async fn follow_launched_run(
    session: &mut Session,
    args: &UpArgs,
    wish: &mut LaunchRequest,
    job: &Job,
    plan: &Plan,
    offsets: &LogOffsets,
    signals: &mut StopController,
) -> Result<Option<(Outcome, String)>, CliError> {
    let run = follow_spec(plan, job, args.detach);
    session.reporter.set_capabilities(Capabilities {
        can_control: true,
        can_restart: true,
        ..Capabilities::view_only(signals.dashboard_role())
    });
    let finish = follow_with_watchdog(session, &run, offsets, signals, plan.run_record.as_ref().map(hang_config).unwrap_or_default()).await;
    session.reporter.set_capabilities(Capabilities::view_only(signals.dashboard_role()));
    if finish == FollowOutcome::Running {
        let text = "every rank runs; while nobody is attached each host stops its own ranks when one of them fails";
        session.engine.emitter().send_notice(None, text, false);
        return Ok(Some((Outcome::Detached, "every rank runs".to_owned())));
    }
    if finish == FollowOutcome::Restart {
        wish.reset();
        return Ok(None);
    }
    teardown::finish_run(session, args.lock_wait, finish, job.teardown, job.launch.stop_grace, signals).await.map(Some)
}

/// An equal run is live: follow it as one who merely looks; at its end it is torn down as it was launched to be.
async fn attach_to_live_run(
    session: &mut Session,
    args: &UpArgs,
    wish: &mut LaunchRequest,
    facts: &[HostFacts],
    run: &str,
    same: bool,
    signals: &mut StopController,
) -> Result<Option<(Outcome, String)>, CliError> {
    signals.set_policy(InterruptPolicy::Detach);
    session.engine.emitter().send_notice(None, format!("{run} runs and is what is asked for: attaching (Ctrl-C detaches)"), false);
    if args.detach || args.dry_run {
        return Ok(Some((Outcome::Detached, "it runs already".to_owned())));
    }
    let manner = if same && wish.launch_error.is_none() { FollowMode::MayRestart } else { FollowMode::MayStop };
    let (finish, file) = crate::cli::attach::follow_existing_run(session, facts, run, signals, manner).await?;
    if finish == FollowOutcome::Restart {
        wish.reset();
        // Who restarts a run has launched it.
        signals.set_policy(if args.confirm_first { InterruptPolicy::Detach } else { InterruptPolicy::Stop });
        return Ok(None);
    }
    let teardown = match file.teardown.as_str() {
        "always" => Teardown::Always,
        "on-success" => Teardown::OnSuccess,
        _ => Teardown::Never,
    };
    teardown::finish_run(session, args.lock_wait, finish, teardown, Duration::from_secs(file.stop_grace_secs), signals).await.map(Some)
}
