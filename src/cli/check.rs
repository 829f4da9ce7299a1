//! `check`: preflight alone. Asks the hosts, judges, shows the matrix; changes nothing.

use std::path::PathBuf;

use tokio::time::Instant;

use crate::cli::args::{CheckArgs, CommonArgs, PreflightLevel, ProgressMode, UpArgs};
use crate::cli::exit::CliError;
use crate::cli::launch::launch;
use crate::cli::local_env::{print_json, print_stderr, print_stdout};
use crate::cli::open_session::{LoadMode, load_inventory, open_session};
use crate::cli::output::OutputOptions;
use crate::event::Outcome;
use crate::inventory::{Job, RuntimeValues};
use crate::lifecycle::check::{CheckedHosts, check_hosts};
use crate::lifecycle::error::worse_outcome;
use crate::lifecycle::session::Session;
use crate::lifecycle::smoke::{SmokePlan, SmokeStart};
use crate::preflight::smoke::{CHECK, CHECK_NAME};
use crate::preflight::{ALL_CHECKS, CheckReport, PreflightCheck, select_checks};
use crate::report::preflight_report::{self as page, PreflightReportContext};

pub(crate) async fn run(args: &CheckArgs) -> Result<Outcome, CliError> {
    if args.list {
        print_stdout(&page::list_checks(&[&ALL_CHECKS[..], &[CHECK]].concat()));
        return Ok(Outcome::Ok);
    }
    let selection = CheckSelection::from_args(args);
    // A word that names no check is told before anybody is asked anything.
    selection.resolve_checks(&[])?;
    let (inventory, base) = load_inventory(&args.common, LoadMode::Full)?;
    let draft = inventory.job(&RuntimeValues::unknown(inventory.hosts.len()))?;
    let checks = selection.resolve_checks(&draft.checks.skip)?;
    let progress = if args.common.progress == ProgressMode::Auto { ProgressMode::Quiet } else { args.common.progress };
    let mut session = open_session("check", &args.common, (inventory, base.clone()), OutputOptions::progress_only(progress))?;
    session.emit_run_started("", None);
    let began = Instant::now();
    let mut checked = tokio::select! {
        checked = check_hosts(&session, &draft, &checks) => checked,
        result = tokio::signal::ctrl_c() => {
            result.map_err(anyhow::Error::from)?;
            session.finish(Outcome::Signal(2), "stopped", false).await;
            return Ok(Outcome::Signal(2));
        }
    };
    checked.emit_reports(&session);
    let mut outcome = Outcome::Ok;
    if selection.smoke {
        let (report, ended) = run_smoke(&session, &args.common, base, &draft, &checked).await?;
        outcome = ended;
        checked.add_report(&session, report);
    }
    outcome = worse_outcome(outcome, checked.outcome());
    print_page(args, &session, &checked, began, &outcome);
    let (outcome, _) = session.finish(outcome, "", false).await;
    Ok(outcome)
}

fn print_page(args: &CheckArgs, session: &Session, checked: &CheckedHosts, began: Instant, outcome: &Outcome) {
    let context = PreflightReportContext {
        name: &session.inventory.name.clone(),
        hosts: &session.host_names(),
        unreachable: &checked.unreachable,
        style: session.reporter.style(),
        sanitizer: session.reporter.sanitizer().clone(),
        elapsed: began.elapsed(),
    };
    if args.json {
        print_json(&format!("{:#}\n", page::render_json(&context, &checked.reports, outcome)));
    } else if args.common.progress != ProgressMode::Json {
        print_stdout(&page::render_text(&context, &checked.reports));
    }
    checked.problems.iter().for_each(|problem| print_stderr(problem));
}

/// A run of its own on the hosts, after the checks.
async fn run_smoke(
    session: &Session,
    args: &CommonArgs,
    base: PathBuf,
    draft: &Job,
    checked: &CheckedHosts,
) -> Result<(CheckReport, Outcome), CliError> {
    let plan = match SmokePlan::after_checks(session, &checked.smoke_inputs(draft)) {
        SmokeStart::Skipped(report) => return Ok((report, Outcome::Ok)),
        SmokeStart::Launch(plan) => plan,
    };
    let progress = match args.progress {
        shown @ (ProgressMode::Plain | ProgressMode::Bars) => shown,
        _ => ProgressMode::Quiet,
    };
    let common = CommonArgs { limit: None, progress, ..args.clone() };
    // Nothing is checked again.
    let up = UpArgs { preflight: PreflightLevel::Off, ..UpArgs::with_common(common) };
    let (session, end) = launch(&up, plan.inventory.clone(), base).await?;
    Ok(plan.evaluate(session, end).await)
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
