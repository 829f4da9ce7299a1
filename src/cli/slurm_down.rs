//! `down` for a job on SLURM: cancels it, fetches its logs, removes its files.

use std::collections::BTreeMap;

use crate::cli::args::{CommonArgs, ProgressMode};
use crate::cli::exit::CliError;
use crate::cli::local_env::print_stderr;
use crate::cli::open_session::{LoadMode, listen, load_slurm_inventory, open_slurm_session};
use crate::cli::progress_output::OutputOptions;
use crate::cli::slurm_reports::{finish, report_cancel, report_login_error, report_silence, save_end};
use crate::event::Outcome;
use crate::lifecycle::error::worse_outcome;
use crate::lifecycle::session::Session;
use crate::lifecycle::slurm_follow::{fetch_earlier_starts, open_nodes, report_end};
use crate::lifecycle::slurm_job::{CancelEnd, LoginNode};
use crate::lifecycle::slurm_prepare::remove_files_of_login_node;
use crate::lifecycle::stop_ladder::InterruptPolicy;
use crate::lifecycle::teardown::DEFAULT_LOCK_WAIT;
use crate::plan::slurm::job_report::JobReport;
use crate::report::past_runs::RunDir;

pub(super) async fn down(args: &CommonArgs) -> Result<Outcome, CliError> {
    let loaded = load_slurm_inventory(args, LoadMode::ConnectionOnly)?;
    let (mut session, login) = open_slurm_session("slurm down", args, loaded, OutputOptions::progress_only(ProgressMode::Plain))?;
    let signals = listen(InterruptPolicy::Leave)?;
    let retry = session.suggest_command("slurm down", "");
    let outcome = match signals.run_until_leaving(cancel_and_clean(&mut session, &login)).await {
        Ok(outcome) => outcome?,
        Err(outcome) => {
            print_stderr(&format!("interrupted; to finish:\n    {retry}"));
            return Ok(outcome);
        }
    };
    Ok(finish(session, login, outcome, "").await)
}

/// Fetches the logs of every start of the name's jobs; returns their jobs and runs. `Err`: nothing may be removed.
async fn fetch_starts(
    session: &mut Session,
    login: &LoginNode,
    report: &JobReport,
) -> Result<Result<Vec<(u64, String)>, Outcome>, CliError> {
    let starts = match report.job {
        Some(_) => login.starts().await,
        None => Ok(Vec::new()),
    };
    let (mut runs, mut outcome) = match starts {
        Ok(starts) => fetch_earlier_starts(session, report, starts).await?,
        Err(error) => return Ok(Err(report_login_error(login, &error))),
    };
    if let Some(job) = open_nodes(session, report, None).await? {
        outcome = worse_outcome(job.fetch(session).await, outcome);
        report_end(session, report, Some(&job.run_id), Outcome::Ok);
        runs.extend(report.job.map(|number| (number, job.run_id)));
    }
    if outcome != Outcome::Ok {
        print_stderr("the logs could not be fetched: nothing was removed");
        return Ok(Err(Outcome::Leftovers));
    }
    Ok(Ok(runs))
}

/// Keeps what the jobs' own scripts have said with the runs of this laptop: `clean` removes it on the cluster.
async fn keep_job_logs(session: &Session, login: &LoginNode, report: &JobReport, runs: &[(u64, String)]) -> Option<Outcome> {
    let last = report.job.zip(report.notes.run_id.clone().or_else(|| report.given_run.clone()));
    let jobs: BTreeMap<u64, String> = runs.iter().cloned().chain(last).collect();
    for (job, run) in jobs {
        let log = match login.job_log(job).await {
            Ok(log) => log,
            Err(error) => return Some(report_login_error(login, &error)),
        };
        // A job that never wrote, or whose log an earlier `down` has kept and removed.
        if log.is_empty() {
            continue;
        }
        let kept = RunDir::open(&session.local.state_dir, &run).and_then(|dir| dir.write_job_log(job, &log));
        if let Err(error) = kept {
            print_stderr(&format!("the log of job {job} cannot be kept on this laptop: {error}; nothing was removed"));
            return Some(Outcome::Leftovers);
        }
    }
    None
}

async fn cancel_and_clean(session: &mut Session, login: &LoginNode) -> Result<Outcome, CliError> {
    let report = match login.cancel().await {
        Err(error) => return Ok(report_login_error(login, &error)),
        Ok(end @ (CancelEnd::StillThere(_) | CancelEnd::Refused(_) | CancelEnd::NoAnswer(_))) => return Ok(report_cancel(session, end)),
        Ok(CancelEnd::NoLiveJob(report)) => report,
        Ok(CancelEnd::Ended(report)) => {
            report_cancel(session, CancelEnd::Ended(report.clone()));
            report
        }
    };
    save_end(session, &report).await;
    let runs = match fetch_starts(session, login, &report).await? {
        Ok(runs) => runs,
        Err(outcome) => return Ok(outcome),
    };
    if let Some(outcome) = keep_job_logs(session, login, &report, &runs).await {
        return Ok(outcome);
    }
    // What the tasks of a submission have left on the login node, and tasks that still run there.
    let tasks = remove_files_of_login_node(session, DEFAULT_LOCK_WAIT).await?;
    if tasks != Outcome::Ok {
        print_stderr("the files of the tasks on the login node could not be removed: nothing else was");
        return Ok(tasks);
    }
    let cleaned = match login.clean(&runs).await {
        Ok(cleaned) => cleaned,
        Err(error) => return Ok(report_login_error(login, &error)),
    };
    for left in &cleaned.leftovers {
        print_stderr(&session.reporter.sanitizer().sanitize_line(&format!("left on the cluster: {left}")));
    }
    match (cleaned.is_clean, cleaned.leftovers.is_empty(), cleaned.queue_error) {
        (_, _, Some(error)) => {
            report_silence(session, &error);
            Ok(Outcome::Unreachable)
        }
        (true, true, None) => {
            print_stderr("nothing of the job is left in the run directory");
            Ok(Outcome::Ok)
        }
        (is_clean, ..) => {
            let why = match cleaned.live {
                _ if is_clean => "the rest was removed".to_owned(),
                Some(job) => format!("nothing was removed: job {job} is live"),
                None => {
                    format!("nothing was removed: {}", cleaned.failure.map_or("the login node did not say why".to_owned(), |it| it.text))
                }
            };
            let why = session.reporter.sanitizer().sanitize_line(&why);
            print_stderr(&format!("{why}\n    help: look at it on the login node, then remove what is not needed"));
            Ok(Outcome::Leftovers)
        }
    }
}
