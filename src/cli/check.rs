//! `check`: preflight alone. Asks the hosts, judges, shows the matrix; changes nothing.

use tokio::time::Instant;

use crate::cli::args::{CheckArgs, ProgressMode};
use crate::cli::exit::{CliError, worse_outcome};
use crate::cli::local_env::{hide_known_secrets, print_json, print_stderr, print_stdout};
use crate::cli::preflight::{cross_host_probes, emit_check_report, evaluate, fabric_addresses, gather_facts_and_probes};
use crate::cli::reporter_task::OutputOptions;
use crate::cli::session::{LoadMode, Session, load_inventory};
use crate::cli::smoke;
use crate::event::{EventKind, Outcome};
use crate::inventory::{Job, RuntimeValues};
use crate::model::level::Level;
use crate::model::phase::Phase;
use crate::plan::facts::HostFacts;
use crate::plan::rank_layout::usable_gpu_count;
use crate::preflight::smoke::{CHECK, CHECK_NAME};
use crate::preflight::{ALL_CHECKS, CheckReport, PreflightCheck, select_checks};
use crate::report::log_filter::LogSelection;
use crate::report::preflight_report::{self as page, PreflightPage};

/// Runs it.
///
/// # Errors
/// What must be said to the person.
pub async fn run(args: &CheckArgs) -> Result<Outcome, CliError> {
    if args.list {
        print_stdout(&page::list_checks(&[&ALL_CHECKS[..], &[CHECK]].concat()));
        return Ok(Outcome::Ok);
    }
    let wish = CheckSelection::from_args(args);
    // A word that names no check is told before anybody is asked anything.
    wish.resolve_checks(&[])?;
    let (inventory, base) = load_inventory(&args.common, LoadMode::Full)?;
    let unknown = RuntimeValues {
        gpu_counts: vec![None; inventory.hosts.len()],
        fabric_addresses: vec![None; inventory.hosts.len()],
        ..RuntimeValues::default()
    };
    let draft = inventory.job(&unknown)?;
    let checks = wish.resolve_checks(&draft.checks.skip)?;
    let progress = if args.common.progress == ProgressMode::Auto { ProgressMode::Quiet } else { args.common.progress };
    let secrets = hide_known_secrets(&inventory);
    let faces = OutputOptions { progress, logs: LogSelection::None, logs_to_stdout: false };
    let mut session = Session::open("check", &args.common, inventory, base.clone(), faces, &secrets)?;
    session.emit_run_started("", None);
    let began = Instant::now();
    let looked = async {
        let (mut facts, mut told, mut lost) = (Vec::new(), Vec::new(), Vec::new());
        for (name, (answer, answers)) in session.host_names().into_iter().zip(gather_facts_and_probes(&session, &draft, &checks).await) {
            match answer {
                Ok(found) => facts.push(Some(found)),
                Err(error) => {
                    lost.push((name, error.to_string(), error.hint().to_owned()));
                    facts.push(None);
                }
            }
            told.push(answers);
        }
        session.engine.emitter().send(EventKind::PhaseStarted { phase: Phase::Preflight });
        let known = runtime_values(&session, &facts);
        let (job, problems) = build_job_or_draft(&session, &draft, &known);
        cross_host_probes(&session, &job, &checks, &facts, &mut told).await;
        (evaluate(&session.inventory, &job, &facts, &told, &checks, false), lost, problems, facts, known)
    };
    let (mut answers, lost, problems, facts, known) = tokio::select! {
        looked = looked => looked,
        result = tokio::signal::ctrl_c() => {
            result.map_err(anyhow::Error::from)?;
            session.finish(Outcome::Signal(2), "stopped", false).await;
            return Ok(Outcome::Signal(2));
        }
    };
    for (_, cell) in answers.iter_mut().flat_map(|answer| &mut answer.results) {
        cell.hint = session.reporter.advice().complete_commands(&cell.hint);
    }
    for answer in &answers {
        emit_check_report(&session, answer);
    }
    let mut ended = Outcome::Ok;
    if wish.smoke {
        let failed = (!lost.is_empty()).then_some("a host is unreachable");
        let failed = failed.or(answers.iter().any(|a| a.level() == Level::Fail).then_some("a check failed"));
        let failed = failed.or((!problems.is_empty()).then_some("the inventory does not fit the hosts"));
        let before = smoke::SmokeInputs { draft: &draft, runtime_values: &known, facts: &facts, skip_reason: failed };
        let (answer, outcome) = smoke::run(&session, &args.common, &base, before).await?;
        emit_check_report(&session, &answer);
        answers.push(answer);
        ended = outcome;
    }
    let worst = answers.iter().map(CheckReport::level).max().unwrap_or(Level::Skipped);
    let mut outcome = if worst == Level::Fail || !problems.is_empty() { Outcome::Refused } else { Outcome::Ok };
    if !lost.is_empty() {
        outcome = worse_outcome(Outcome::Unreachable, outcome);
    }
    outcome = worse_outcome(ended, outcome);
    let context = PreflightPage {
        name: &session.inventory.name.clone(),
        hosts: &session.host_names(),
        unreachable: &lost,
        style: session.reporter.style(),
        sanitizer: session.reporter.sanitizer().clone(),
        elapsed: began.elapsed(),
    };
    if args.json {
        print_json(&format!("{:#}\n", page::render_json(&context, &answers, &outcome)));
    } else if args.common.progress != ProgressMode::Json {
        print_stdout(&page::render_text(&context, &answers));
    }
    for problem in problems {
        print_stderr(&problem);
    }
    let (outcome, _) = session.finish(outcome, "", false).await;
    Ok(outcome)
}

/// Which checks the person wants, and whether the smoke as well.
struct CheckSelection {
    only: Vec<String>,
    skip: Vec<String>,
    /// Nothing but the smoke.
    smoke_only: bool,
    smoke: bool,
}

impl CheckSelection {
    fn from_args(args: &CheckArgs) -> CheckSelection {
        let rest = |words: &[String]| words.iter().filter(|word| *word != CHECK_NAME).cloned().collect::<Vec<_>>();
        let names = |words: &[String]| words.iter().any(|word| word == CHECK_NAME);
        let (only, skip) = (rest(&args.only), rest(&args.skip));
        let smoke = (args.smoke || names(&args.only)) && !names(&args.skip);
        CheckSelection { smoke_only: names(&args.only) && only.is_empty(), only, skip, smoke }
    }

    fn resolve_checks(&self, skipped: &[String]) -> Result<Vec<PreflightCheck>, CliError> {
        let checks = select_checks(&self.only, &self.skip, skipped).map_err(CliError::Usage)?;
        Ok(if self.smoke_only { Vec::new() } else { checks })
    }
}

/// What the hosts told of what a job is made of.
fn runtime_values(session: &Session, facts: &[Option<HostFacts>]) -> RuntimeValues {
    let inventory = &session.inventory;
    let gpus = |(host, facts): (_, &Option<HostFacts>)| facts.as_ref().map(|f| usable_gpu_count(host, f)).filter(|n| *n > 0);
    RuntimeValues {
        gpu_counts: inventory.hosts.iter().zip(facts).map(gpus).collect(),
        fabric_addresses: fabric_addresses(inventory, facts).into_iter().map(|a| Some(a).filter(|a| !a.is_empty())).collect(),
        master_port: facts.first().and_then(Option::as_ref).and_then(|f| f.free_port),
        ..RuntimeValues::default()
    }
}

/// The job with what the hosts told; the draft where that does not fit, with what is wrong.
fn build_job_or_draft(session: &Session, draft: &Job, known: &RuntimeValues) -> (Job, Vec<String>) {
    match session.inventory.job(known) {
        Ok(job) => (job, Vec::new()),
        Err(problems) => (draft.clone(), problems.iter().map(ToString::to_string).collect()),
    }
}
