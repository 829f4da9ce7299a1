//! Compares the hosts with the inventory and decides: attach, refuse, dry run, ask for confirmation, or launch.

use crate::engine::follow::FollowOutcome;
use crate::event::Outcome;
use crate::inventory::{Become, Inventory, Job, Teardown};
use crate::lifecycle::clear_recorded_hosts::confirm_and_clean_recorded_hosts;
use crate::lifecycle::confirm::{confirm_plan, describe_launch_effect};
use crate::lifecycle::error::{WorkflowEnd, WorkflowError};
use crate::lifecycle::execute_launch::launch_under_lock;
use crate::lifecycle::file_preview::preview_files;
use crate::lifecycle::follow::{FollowMode, follow_existing_run};
use crate::lifecycle::follow_prepare_tasks::{TasksEnd, find_tasks_in_progress, follow_prepare_tasks};
use crate::lifecycle::launch_request::{LaunchContext, LaunchMode, LaunchStep, LaunchTarget, misfit};
use crate::lifecycle::plan_preview::{ConfigTexts, evaluate_job};
use crate::lifecycle::preflight::{HostAnswers, gather_for_checks, report_failed_checks};
use crate::lifecycle::session::{Session, collect_facts, find_run_record, report_issues};
use crate::lifecycle::stop_ladder::InterruptPolicy;
use crate::lifecycle::task_preview::{changed_tasks, preview_tasks};
use crate::lifecycle::teardown::{EndPolicy, finish_run};
use crate::plan::Plan;
use crate::plan::action::Issue;
use crate::plan::build;
use crate::plan::display::format_plan;
use crate::plan::existing_run::{
    ExistingRun, HostRunState, classify_existing_run, find_host_without_docker_answer, host_run_state, running_ranks,
};
use crate::plan::fact_rules::docker_issue;
use crate::plan::facts::HostFacts;
use crate::plan::overview::{DEFAULT_COLUMNS, PlanOverview, format_overview};
use crate::text::hostlist::fold_names;
use crate::text::translation::with_help;

/// How many differences from the live run are shown without `--diff`.
const MAX_SHOWN_DIFFERENCES: usize = 3;

pub(crate) async fn reconcile(context: &mut LaunchContext<'_>) -> Result<LaunchStep, WorkflowError> {
    let target = match observe(context).await {
        Ok(target) => target,
        Err(end) => return Ok(LaunchStep::Done(end)),
    };
    let request = context.request;
    if !(request.recreate || request.dry_run)
        && let Some(run_id) = find_tasks_in_progress(context.session, &target.existing, &target.facts)
    {
        return wait_for_tasks(context, &target.facts, &run_id).await;
    }
    if request.command.is_tasks_only()
        && let Some(end) = refuse_beside_ranks(context.session, &target.facts)
    {
        return Ok(LaunchStep::Done(end));
    }
    if let ExistingRun::Live { run_id, differences } = &target.existing
        && !context.state.relaunch
    {
        if request.limit.is_some() {
            let text = format!("{run_id} is live: `--limit` would renumber its ranks; help: `orchestrate down` ends it");
            context.session.notice(text, true);
            return Ok(LaunchStep::done(Outcome::Refused, "a run is live"));
        }
        if (differences.is_empty() || request.command.confirms_first()) && !request.recreate {
            return attach_to_live_run(context, &target.facts, run_id, differences).await;
        }
        if !request.recreate {
            return Ok(LaunchStep::Done(refuse_different_run(context, run_id, differences)));
        }
    }
    if request.dry_run {
        return dry_run(context, &target).await.map(LaunchStep::Done);
    }
    if request.limit.is_none()
        && let Some(end) = confirm_and_clean_recorded_hosts(context.session, &mut context.state.cleared_hosts, &target.facts).await?
    {
        return Ok(LaunchStep::Done(end));
    }
    if request.show_all_differences {
        for line in changed_tasks(context.session, &target.facts, usize::MAX) {
            context.session.notice(format!("the tasks differ from those of the last run: {line}"), false);
        }
    }
    if !context.state.confirmed {
        return confirm_plan(context, &target).await;
    }
    launch_under_lock(context, target).await
}

/// `prepare` never stops ranks, and changes nothing beneath them: whether a whole gang runs or a part of one.
fn refuse_beside_ranks(session: &Session, facts: &[HostFacts]) -> Option<WorkflowEnd> {
    let running = running_ranks(facts, &session.host_names());
    let run = &running.first()?.1;
    let hosts: Vec<String> = running.iter().filter(|(_, other)| other == run).map(|(host, _)| host.clone()).collect();
    let on = fold_names(&hosts);
    session.notice(format!("{run} is live on {on}: `prepare` would change what its ranks use; help: `orchestrate down` ends it"), true);
    Some(WorkflowEnd::new(Outcome::Refused, "a run is live"))
}

/// Waits for tasks that another command has started, so that none is started twice; then the hosts are looked at again.
async fn wait_for_tasks(context: &mut LaunchContext<'_>, facts: &[HostFacts], run: &str) -> Result<LaunchStep, WorkflowError> {
    let known: Vec<Option<HostFacts>> = facts.iter().cloned().map(Some).collect();
    let before_submit = context.request.command == LaunchMode::SlurmSubmit;
    let stop = if before_submit { "`orchestrate down`" } else { "`--recreate`" };
    let text = format!("tasks of {run} are running: waiting for them (Ctrl-C leaves them running); {stop} stops them");
    context.session.notice(text, false);
    context.signals.set_policy(InterruptPolicy::Detach);
    let end = follow_prepare_tasks(context.session, &known, run, context.signals).await?;
    context.signals.set_policy(context.request.command.interrupt_policy());
    match (end, context.signals.first_signal()) {
        // The other `slurm submit` may submit its job now: tasks that run again would change what its ranks use.
        (TasksEnd::HostsLost(_), None) if before_submit => Ok(LaunchStep::done(Outcome::Unreachable, "the tasks may run on")),
        (TasksEnd::Ended { .. } | TasksEnd::Abandoned { .. } | TasksEnd::Replaced | TasksEnd::Stopped, None) if before_submit => {
            context
                .session
                .notice("help: `orchestrate slurm status` says whether its job was submitted; if it was not, submit again", true);
            Ok(LaunchStep::done(Outcome::Refused, format!("the tasks of {run} have ended: another `slurm submit` started them")))
        }
        // Hosts that are lost end the command when they are asked again.
        (TasksEnd::Ended { .. } | TasksEnd::Abandoned { .. } | TasksEnd::Replaced | TasksEnd::Stopped | TasksEnd::HostsLost(_), None) => {
            Ok(LaunchStep::Reconcile)
        }
        (TasksEnd::Teardown, signal) => {
            let policy = EndPolicy { lock_wait: context.request.lock_wait, teardown: Teardown::Always, grace: None };
            finish_run(context.session, FollowOutcome::Teardown, policy, signal).await.map(LaunchStep::Done)
        }
        (_, Some(number)) => Ok(LaunchStep::done(Outcome::Signal(number), "the tasks keep running")),
        (TasksEnd::Detached, None) => Ok(LaunchStep::done(Outcome::Detached, "the tasks keep running")),
    }
}

/// Gathers the facts; `Err` if no decision is possible.
async fn observe(context: &LaunchContext<'_>) -> Result<LaunchTarget, WorkflowEnd> {
    let (session, request) = (&*context.session, context.request);
    let answers = context.run_before_launch(gather_for_checks(session, &request.draft, &request.checks)).await?;
    let (facts, probes) = answers.into_iter().unzip();
    let (facts, outcome) = collect_facts(facts);
    let names = session.host_names();
    if outcome != Outcome::Ok {
        let unreachable: Vec<String> = names.into_iter().zip(&facts).filter(|(_, facts)| facts.is_none()).map(|(name, _)| name).collect();
        return Err(WorkflowEnd::new(outcome, format!("{} could not be reached: nothing was changed", fold_names(&unreachable))));
    }
    let facts: Vec<HostFacts> = facts.into_iter().flatten().collect();
    if let Some(number) = context.signals.first_signal() {
        return Err(WorkflowEnd::new(Outcome::Signal(number), "nothing was changed"));
    }
    if let Some(pattern) = &request.limit
        && let Some((run, hosts)) = find_live_run_elsewhere(session, &request.whole_inventory, &facts).await
    {
        session.notice(format!("--limit {pattern}: {run} is live, on {}", hosts.join(" ")), true);
        session.notice("help: `orchestrate down` ends it; `orchestrate attach` follows it", false);
        return Err(WorkflowEnd::new(Outcome::Refused, "a run of other hosts is live"));
    }
    let (job, config_texts) = resolve_job(context, &facts)?;
    if let Some((index, facts, error)) = find_host_without_docker_answer(&facts)
        && let Some(host) = session.inventory.hosts.get(index)
    {
        let issue = docker_issue(error, &host.name, &facts.user, host.ssh.r#become == Become::Sudo);
        report_issues(session, &[(index, issue)]);
        return Err(WorkflowEnd::new(Outcome::Refused, "cannot tell whether a run is live there: nothing was changed"));
    }
    let existing = classify_existing_run(&facts, &names, &config_texts);
    Ok(LaunchTarget { job, config_texts, facts, probes, existing })
}

/// A live run that also uses hosts outside `--limit`: its id and its hosts.
async fn find_live_run_elsewhere(session: &Session, full_inventory: &Inventory, facts: &[HostFacts]) -> Option<(String, Vec<String>)> {
    let names = session.host_names();
    let mut others = full_inventory.clone();
    others.hosts.retain(|host| !names.contains(&host.name));
    let other_facts = if others.hosts.is_empty() { Vec::new() } else { session.gather_facts_of_others(&others).await };
    let is_same_set = |facts: &HostFacts| facts.run_record().is_some_and(|f| f.hosts.iter().map(|h| &h.name).eq(&names));
    let selected = names.iter().zip(facts).filter(|(_, f)| !is_same_set(f));
    let live = selected.chain(other_facts.iter().map(|(name, f)| (name, f))).filter(|(_, f)| host_run_state(f) == HostRunState::Running);
    let live: Vec<(&String, &HostFacts)> = live.collect();
    let run = live.first()?.1.current_run.clone()?;
    Some((run, live.into_iter().map(|(name, _)| name.clone()).collect()))
}

/// The job with the facts of the hosts, and the texts by which runs are compared.
fn resolve_job(context: &LaunchContext<'_>, facts: &[HostFacts]) -> Result<(Job, ConfigTexts), WorkflowEnd> {
    let refuse = |issues: Vec<(Option<usize>, String)>| {
        for (host, text) in issues {
            context.session.engine.emitter().send_notice(host, text, true);
        }
        misfit()
    };
    let inventory = &context.session.inventory;
    let with_hint = |issue: &Issue| with_help(&issue.message, &issue.hint);
    let addresses = build::resolve_addresses(inventory, facts)
        .map_err(|issues| refuse(issues.iter().map(|(host, issue)| (Some(*host), with_hint(issue))).collect()))?;
    let (mut job, texts) = evaluate_job(inventory, facts, addresses, (&context.state.identity.run_id, &context.state.run_stamp))
        .map_err(|problems| refuse(problems.iter().map(|p| (None, p.to_string())).collect()))?;
    if context.request.keep || context.request.command.is_tasks_only() {
        job.teardown = Teardown::Never;
    }
    Ok((job, texts))
}

async fn dry_run(context: &LaunchContext<'_>, target: &LaunchTarget) -> Result<WorkflowEnd, WorkflowError> {
    let (plan, facts) = match target.preview(context.session, &context.state.identity, &[]) {
        Ok(preview) => preview,
        Err(end) => return Ok(end),
    };
    print_dry_run(context, target, (&plan, &facts));
    print_tasks(context, target, &plan).await?;
    let answers = HostAnswers { facts: facts.into_iter().map(Some).collect(), probes: target.probes.clone() };
    if report_failed_checks(context.session, &target.job, &answers, &context.request.checks) {
        let reason = format!("`{}` would refuse; nothing was changed", context.session.command());
        return Ok(WorkflowEnd::new(Outcome::Refused, reason));
    }
    Ok(WorkflowEnd::new(Outcome::Ok, "nothing was changed"))
}

/// What the tasks would do, and with `--diff` what is different in them since they last ran.
async fn print_tasks(context: &LaunchContext<'_>, target: &LaunchTarget, plan: &Plan) -> Result<(), WorkflowError> {
    let (session, console, request) = (&*context.session, &context.session.local.console, context.request);
    let files = preview_files(session, (plan, &target.facts), &request.file_sources, request.show_all_differences).await?;
    let rows = preview_tasks(session, plan, &target.facts, files).await;
    if rows.is_empty() {
        return Ok(());
    }
    let lang = session.reporter.lang();
    console.print_stdout(&format!("\n{}\n{rows}", lang.tr("tasks")));
    if !request.show_all_differences {
        return Ok(());
    }
    if !target.facts.iter().any(|facts| facts.run_record().is_some_and(|record| !record.tasks_text.is_empty())) {
        let text = lang.tr("the hosts have no record of earlier tasks: there is nothing to compare the inventory's tasks with");
        console.print_stdout(&format!("\n{text}\n"));
        return Ok(());
    }
    let differences = changed_tasks(session, &target.facts, usize::MAX);
    let lines: String = differences.iter().map(|line| format!("  {line}\n")).collect();
    let text = if lines.is_empty() { format!("  {}\n", lang.tr("nothing")) } else { lines };
    console.print_stdout(&format!("\n{}\n{text}", lang.tr("changed in the inventory's tasks since they last ran")));
    Ok(())
}

fn print_dry_run(context: &LaunchContext<'_>, target: &LaunchTarget, (plan, facts): (&Plan, &[HostFacts])) {
    let session = &*context.session;
    let console = &session.local.console;
    let mut effect = vec![describe_launch_effect(&target.existing, context.request.command.is_tasks_only())];
    if let ExistingRun::Live { differences, .. } = &target.existing {
        effect.extend(differences.iter().cloned());
    }
    if context.request.show_scripts {
        console.print_stdout(&format!("{}\n{}", effect[0], format_plan(plan, Some(facts), false)));
        return;
    }
    let (hosts, lang) = (&session.inventory.hosts, session.reporter.lang());
    let overview = PlanOverview { plan, job: &target.job, hosts, facts: Some(facts), effect: &effect, offers_rank_option: false, lang };
    console.print_stdout(&format_overview(&overview, console.columns().map_or(DEFAULT_COLUMNS, usize::from)));
}

fn refuse_different_run(context: &LaunchContext<'_>, run: &str, differences: &[String]) -> WorkflowEnd {
    let session = &context.session;
    let shown = if context.request.show_all_differences { differences.len() } else { MAX_SHOWN_DIFFERENCES };
    let more = if differences.len() > shown { format!(" (and {} more: --diff)", differences.len() - shown) } else { String::new() };
    session.notice(format!("run {run} is live and differs from what was asked for{more}"), true);
    for line in differences.iter().take(shown) {
        session.notice(format!("  {line}"), true);
    }
    let help = if context.request.detach {
        "help: `orchestrate up -d --recreate` replaces it, `orchestrate attach` follows it, `orchestrate down` ends it"
    } else {
        "help: `orchestrate up --recreate` replaces it, `orchestrate attach` follows it, `orchestrate down` ends it"
    };
    session.notice(help, false);
    WorkflowEnd::new(Outcome::Refused, "a different run is live: nothing was changed")
}

/// Follows a live run; at its end, tears it down as its record says.
async fn attach_to_live_run(
    context: &mut LaunchContext<'_>,
    facts: &[HostFacts],
    run: &str,
    differences: &[String],
) -> Result<LaunchStep, WorkflowError> {
    let (request, known) = (context.request, facts.iter().cloned().map(Some).collect::<Vec<_>>());
    for line in differences {
        context.session.notice(format!("the live run differs from the inventory: {line}"), true);
    }
    let max = if request.show_all_differences { usize::MAX } else { MAX_SHOWN_DIFFERENCES };
    for line in changed_tasks(context.session, facts, max) {
        context.session.notice(format!("the tasks of the live run differ from the inventory: {line}"), false);
    }
    context.state.confirmed = true;
    context.signals.set_policy(InterruptPolicy::Detach);
    let comparison = if differences.is_empty() { "matches the inventory" } else { "differs from the inventory" };
    if request.detach || request.dry_run {
        context.session.open_run_dir(run, find_run_record(facts.iter(), run)).await?;
        context.session.emit_run_started(run, None);
        context.session.emit_run_found(&known);
        return Ok(LaunchStep::done(Outcome::Detached, format!("{run} is already running and {comparison}")));
    }
    context.session.notice(format!("{run} is already running and {comparison}: attaching (Ctrl-C detaches)"), false);
    let may_restart = differences.is_empty() && context.state.launch_error.is_none();
    let mode = if may_restart { FollowMode::MayRestart } else { FollowMode::MayStop };
    let (outcome, record) = follow_existing_run(context.session, &known, run, context.signals, mode).await?;
    if outcome == FollowOutcome::Restart {
        context.state.reset();
        // Restarting a run makes this command its launcher.
        context.signals.set_policy(request.command.interrupt_policy());
        return Ok(LaunchStep::Reconcile);
    }
    let teardown = match record.teardown.as_str() {
        "always" => Teardown::Always,
        "on-success" => Teardown::OnSuccess,
        _ => Teardown::Never,
    };
    let policy = EndPolicy { lock_wait: request.lock_wait, teardown, grace: None };
    finish_run(context.session, outcome, policy, context.signals.first_signal()).await.map(LaunchStep::Done)
}
