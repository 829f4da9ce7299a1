//! `slurm logs` and `slurm attach`: the job's ranks, read through the login node.

use crate::cli::args::{AttachArgs, LogsArgs, ProgressMode};
use crate::cli::dashboard_shell::spawn_action_handler;
use crate::cli::exit::CliError;
use crate::cli::local_env::{hide_known_secrets, print_stderr, wait_for_closed_stdout, write_in_thread};
use crate::cli::local_logs::{LocalRuns, LogPrinter, MissingLogs, PrintedLogs};
use crate::cli::open_session::{LoadMode, listen, load_slurm_inventory, open_slurm_session};
use crate::cli::progress_output::OutputOptions;
use crate::cli::slurm_reports::{finish, report_login_error, save_end};
use crate::event::Outcome;
use crate::lifecycle::error::{WorkflowEnd, worse_outcome};
use crate::lifecycle::session::Session;
use crate::lifecycle::slurm_follow::{
    FollowEnd, open_nodes, report_end, report_replaced, report_requeue, report_unknown_end, wait_for_start,
};
use crate::lifecycle::slurm_job::LoginNode;
use crate::lifecycle::stop_controller::StopController;
use crate::lifecycle::stop_ladder::InterruptPolicy;
use crate::plan::slurm::job_report::JobReport;
use crate::report::job_status::status_lines;
use crate::report::log_lines::LogSelection;

const DETACHED: &str = "detached: the job goes on";

pub(super) async fn logs(args: &LogsArgs) -> Result<Outcome, CliError> {
    let (inventory, base) = load_slurm_inventory(&args.common, LoadMode::ConnectionOnly)?;
    let secrets = hide_known_secrets(&inventory);
    if let Some(id) = &args.run {
        let past = LocalRuns::new(&inventory.name, &secrets)?;
        past.copy_printer(&past.find(id)?, args)?.print_logs()?;
        return Ok(Outcome::Ok);
    }
    let policy = if args.follow { InterruptPolicy::Detach } else { InterruptPolicy::Cancel };
    let mut signals = listen(policy)?;
    let output = OutputOptions::progress_only(ProgressMode::Plain);
    let (mut session, login) = open_slurm_session("slurm logs", &args.common, (inventory.clone(), base.clone()), output)?;
    let asked = async { if args.follow { wait_for_start(&session, &login, None, None).await } else { login.status().await } };
    let report = match signals.run_until_stopped(asked).await {
        Ok(Ok(report)) => report,
        Ok(Err(error)) => {
            let outcome = report_login_error(&login, &error);
            return Ok(finish(session, login, outcome, &error.to_string()).await);
        }
        Err(outcome) => return Ok(session.disconnect(&signals, outcome).await),
    };
    let Some(job) = open_nodes(&mut session, &report, None).await? else {
        let lines = status_lines(&inventory.name, &report).join("\n");
        print_stderr(&session.reporter.sanitizer().sanitize_multiline(&format!("no logs yet: {lines}")));
        return Ok(finish(session, login, Outcome::Ok, "").await);
    };
    let outcome = match signals.run_until_stopped(job.fetch(&session)).await {
        Ok(outcome) => outcome,
        Err(outcome) => return Ok(session.disconnect(&signals, outcome).await),
    };
    let filter = args.ranks().resolve(&report.nodes, &args.hosts).map_err(CliError::Usage)?;
    let world_size = Some(report.ranks_per_node.saturating_mul(u32::try_from(report.nodes.len()).unwrap_or(0))).filter(|size| *size > 0);
    let (will_follow, sanitizer) = (args.follow && outcome == Outcome::Ok, session.reporter.sanitizer().clone());
    let missing_logs = MissingLogs::default();
    let new_printer = |dir| LogPrinter { dir, args: args.clone(), will_follow, sanitizer, world_size, missing_logs };
    let printer = session.run_dir.clone().map(new_printer);
    let outcome = finish(session, login, outcome, "").await;
    let print = move || printer.map_or(Ok(PrintedLogs::default()), |printer| printer.print_logs());
    let PrintedLogs { ends, lacks_all_ranks } = match signals.run_until_stopped(write_in_thread(print)).await {
        Ok(printed) => printed??,
        Err(outcome) => return Ok(outcome),
    };
    if lacks_all_ranks && !args.follow {
        return Ok(worse_outcome(Outcome::Failed, outcome));
    }
    if !args.follow || outcome != Outcome::Ok {
        return Ok(outcome);
    }
    // The copies are printed; a second session prints what is written from now on.
    let output = OutputOptions { progress: ProgressMode::Plain, logs: LogSelection::Filtered(filter), history_lines: None };
    let (mut session, login) = open_slurm_session("slurm logs", &args.common, (inventory, base), output)?;
    session.printed_logs = ends;
    let end = tokio::select! {
        end = follow(&mut session, &login, &mut signals, FollowStart { is_log_printer: true, known: Some(report) }) => end?,
        () = wait_for_closed_stdout() => WorkflowEnd::new(Outcome::Detached, DETACHED),
    };
    let outcome = if matches!(end.outcome, Outcome::Signal(_) | Outcome::Unreachable) { end.outcome } else { Outcome::Ok };
    print_stderr(&session.reporter.sanitizer().sanitize_multiline(&end.reason));
    Ok(finish(session, login, outcome, "").await)
}

pub(super) async fn attach(args: &AttachArgs) -> Result<Outcome, CliError> {
    let loaded = load_slurm_inventory(&args.common, LoadMode::ConnectionOnly)?;
    let output = OutputOptions::with_main_rank(args.common.progress, args.tail);
    let (mut session, login) = open_slurm_session("slurm attach", &args.common, loaded, output)?;
    let mut signals = listen(InterruptPolicy::Detach)?;
    let leave = signals.leave_token.clone();
    spawn_action_handler(&mut session, &signals);
    session.announce_hosts();
    let following = follow(&mut session, &login, &mut signals, FollowStart { is_log_printer: false, known: None });
    let Some(end) = leave.run_until_cancelled(following).await.transpose()? else { return Ok(signals.signal_outcome()) };
    login.close().await;
    Ok(session.finish(end.outcome, &end.reason, true).await)
}

/// Where following begins.
struct FollowStart {
    /// Prints the logs alone, after what was printed of them; else their last lines come first, and the nodes are sampled.
    is_log_printer: bool,
    /// The last answer of the login node, where there is one.
    known: Option<JobReport>,
}

/// Waits for the start, follows the ranks, and says how the job ended.
async fn follow(
    session: &mut Session,
    login: &LoginNode,
    signals: &mut StopController,
    FollowStart { is_log_printer, mut known }: FollowStart,
) -> Result<WorkflowEnd, CliError> {
    let left = |signals: &StopController| {
        let outcome = signals.first_signal().map_or(Outcome::Detached, Outcome::Signal);
        WorkflowEnd::new(outcome, DETACHED)
    };
    let mut earlier: Option<String> = None;
    let mut followed = None;
    loop {
        let report = match signals.run_until_stopped(wait_for_start(session, login, known.take(), earlier.as_deref())).await {
            Ok(Ok(report)) => report,
            Ok(Err(error)) => return Ok(WorkflowEnd::new(report_login_error(login, &error), error.to_string())),
            Err(_) => return Ok(left(signals)),
        };
        if report.is_of_another_job(followed) {
            return Ok(report_replaced(session, followed, &report));
        }
        let Some(job) = open_nodes(session, &report, earlier.as_deref()).await? else {
            save_end(session, &report).await;
            return Ok(match report.job {
                Some(_) => report_end(session, &report, earlier.as_deref(), Outcome::Ok),
                None => WorkflowEnd::new(Outcome::Ok, "no job exists"),
            });
        };
        session.show_stored_logs(is_log_printer);
        let job = if is_log_printer { job } else { job.with_samples(session) };
        match job.follow(session, login, signals).await {
            FollowEnd::Left => return Ok(left(signals)),
            FollowEnd::JobEnd(None, ranks) => return Ok(report_unknown_end(session, job.job, ranks)),
            FollowEnd::JobEnd(Some(report), _) if report.is_of_another_job(job.job) => {
                return Ok(report_replaced(session, job.job, &report));
            }
            FollowEnd::JobEnd(Some(report), _) if report.was_requeued_after(&job.run_id) => {
                report_requeue(session, &report);
                known = Some(*report);
            }
            FollowEnd::JobEnd(Some(report), ranks) => return Ok(report_end(session, &report, Some(&job.run_id), ranks)),
        }
        followed = job.job;
        earlier = Some(job.run_id);
        session.printed_logs.clear();
    }
}
