//! `check`: runs the preflight checks and prints their results; changes nothing on the hosts.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::time::Instant;

use crate::cli::args::{CheckArgs, CommonArgs, PreflightLevel, ProgressMode, UpArgs};
use crate::cli::exit::CliError;
use crate::cli::launch::launch;
use crate::cli::local_env::{print_json, print_stderr, print_stdout, terminal_columns, user_lang};
use crate::cli::open_session::{LoadMode, listen, load_inventory, open_session};
use crate::cli::progress_output::OutputOptions;
use crate::event::Outcome;
use crate::inventory::Job;
use crate::lifecycle::check::{CheckedHosts, check_hosts};
use crate::lifecycle::error::worse_outcome;
use crate::lifecycle::launch_request::LaunchMode;
use crate::lifecycle::session::Session;
use crate::lifecycle::smoke::{SmokePlan, SmokeStart};
use crate::lifecycle::stop_ladder::InterruptPolicy;
use crate::preflight::smoke::{CHECK, CHECK_NAME};
use crate::preflight::{ALL_CHECKS, CheckReport, PreflightCheck, select_checks};
use crate::report::preflight_report::{self as page, PreflightReportContext};

pub(crate) async fn run(args: &CheckArgs) -> Result<Outcome, CliError> {
    if args.list {
        print_stdout(&page::list_checks(&[&ALL_CHECKS[..], &[CHECK]].concat(), user_lang(), terminal_columns()));
        return Ok(Outcome::Ok);
    }
    let selection = CheckSelection::from_args(args);
    let (inventory, base) = load_inventory(&args.common, LoadMode::Full)?;
    let draft = Arc::clone(inventory.draft()?);
    let checks = selection.resolve_checks(&draft.checks.skip)?;
    let progress = if args.common.progress == ProgressMode::Auto { ProgressMode::Quiet } else { args.common.progress };
    let mut session = open_session("check", &args.common, (inventory, base.clone()), OutputOptions::progress_only(progress))?;
    session.announce_hosts();
    let started_at = Instant::now();
    let signals = listen(InterruptPolicy::Cancel)?;
    let mut checked = match signals.run_until_stopped(check_hosts(&session, &draft, &checks)).await {
        Ok(checked) => checked,
        Err(outcome) => {
            let finished = signals.run_until_leaving(session.finish(outcome, "cancelled", false)).await;
            return Ok(finished.unwrap_or_else(|signal| signal));
        }
    };
    let mut outcome = Outcome::Ok;
    if selection.smoke {
        let (report, ended) = run_smoke(&session, &args.common, base, &draft, &checked).await?;
        outcome = ended;
        checked.add_report(&session, report);
    }
    outcome = worse_outcome(outcome, checked.outcome());
    print_results(args, &session, &checked, started_at, &outcome);
    Ok(session.finish(outcome, "", false).await)
}

fn print_results(args: &CheckArgs, session: &Session, checked: &CheckedHosts, started_at: Instant, outcome: &Outcome) {
    let context = PreflightReportContext {
        name: &session.inventory.name.clone(),
        hosts: &session.host_names(),
        unreachable: &checked.unreachable,
        style: session.reporter.style(),
        sanitizer: session.reporter.sanitizer().clone(),
        elapsed: started_at.elapsed(),
        lang: session.reporter.lang(),
        columns: terminal_columns(),
    };
    if args.json {
        print_json(&format!("{:#}\n", page::render_json(&context, &checked.reports, outcome)));
    } else if args.common.progress != ProgressMode::Json {
        print_stdout(&page::render_text(&context, &checked.reports));
    }
    checked.problems.iter().for_each(|problem| print_stderr(problem));
    if !args.common.wants_json(args.json) && *outcome == Outcome::Ok && checked.problems.is_empty() {
        // What --only and --limit choose proves little.
        let is_whole = args.only.is_empty() && args.common.limit.is_none();
        let next = if is_whole { "up" } else { "check" };
        print_stderr(&format!("next: {}", session.suggest_command(next, "")));
    }
}

/// A separate run on the hosts, after the checks.
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
        chosen @ (ProgressMode::Plain | ProgressMode::Bars) => chosen,
        _ => ProgressMode::Quiet,
    };
    let common = CommonArgs { limit: None, progress, ..args.clone() };
    // The checks have run already.
    let up = UpArgs { preflight: PreflightLevel::Off, ..UpArgs::for_command(LaunchMode::Up, common) };
    let (session, end) = launch(&up, plan.inventory.clone(), base).await?;
    Ok(plan.evaluate(session, end).await)
}

struct CheckSelection {
    only: Vec<String>,
    skip: Vec<String>,
    smoke_only: bool,
    smoke: bool,
}

impl CheckSelection {
    fn from_args(args: &CheckArgs) -> CheckSelection {
        let without_smoke = |names: &[String]| names.iter().filter(|name| *name != CHECK_NAME).cloned().collect::<Vec<_>>();
        let has_smoke = |names: &[String]| names.iter().any(|name| name == CHECK_NAME);
        let (only, skip) = (without_smoke(&args.only), without_smoke(&args.skip));
        let smoke = (args.smoke || has_smoke(&args.only)) && !has_smoke(&args.skip);
        CheckSelection { smoke_only: has_smoke(&args.only) && only.is_empty(), only, skip, smoke }
    }

    fn resolve_checks(&self, skipped_by_inventory: &[String]) -> Result<Vec<PreflightCheck>, CliError> {
        let checks = select_checks(&self.only, &self.skip, skipped_by_inventory).map_err(CliError::Usage)?;
        Ok(if self.smoke_only { Vec::new() } else { checks })
    }
}
