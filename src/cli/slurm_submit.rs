//! `slurm submit`: checks the cluster, then hands the job's script to sbatch.

use crate::cli::args::{PreflightLevel, ProgressMode, SlurmSubmitArgs};
use crate::cli::exit::CliError;
use crate::cli::inventory_files::read_secrets;
use crate::cli::local_env::{hide_known_secrets, print_stderr, print_stdout};
use crate::cli::open_session::{LoadMode, listen, load_slurm_inventory, open_slurm_session};
use crate::cli::progress_output::OutputOptions;
use crate::cli::slurm_reports::{finish, report_login_error, report_silence};
use crate::cli::slurm_tasks::{check_login_tasks, run_login_tasks};
use crate::event::Outcome;
use crate::inventory::SlurmSettings;
use crate::lifecycle::launch_request::new_run_id;
use crate::lifecycle::session::Session;
use crate::lifecycle::slurm_job::{LoginNode, SubmitEnd, record_submission};
use crate::lifecycle::stop_controller::StopController;
use crate::lifecycle::stop_ladder::InterruptPolicy;
use crate::model::level::Level;
use crate::plan::slurm;
use crate::plan::slurm::job_report::OrderFailure;
use crate::plan::slurm::job_state::explain_refusal;
use crate::plan::slurm::login_scripts::Submission;
use crate::preflight::slurm_cluster::judge_cluster;
use crate::remote::RemoteError;

pub(super) async fn submit(args: &SlurmSubmitArgs) -> Result<Outcome, CliError> {
    let (inventory, base) = load_slurm_inventory(&args.common, LoadMode::Full)?;
    hide_known_secrets(&inventory);
    let job = inventory.slurm_job()?;
    let mut script = slurm::render_batch_script(&inventory, &job, &[]).map_err(CliError::Usage)?;
    let secrets = read_secrets(&job.job.secret_names)?;
    let tasks = inventory.slurm_login_inventory();
    if let Some(tasks) = &tasks {
        check_login_tasks(tasks, &base)?;
    }
    let output = OutputOptions::progress_only(ProgressMode::Plain);
    let (mut session, login) = open_slurm_session("slurm submit", &args.common, (inventory.clone(), base.clone()), output)?;
    let mut signals = listen(InterruptPolicy::Cancel)?;
    // Tasks would change what a live job uses, and may take an hour: sbatch is asked before them.
    let asked = Some(script.as_str()).filter(|_| args.dry_run || tasks.is_some());
    let settings = Some(&job.settings).filter(|_| args.preflight != PreflightLevel::Off);
    let checked = match args.preflight {
        PreflightLevel::Off if asked.is_none() => Ok(Ok(Outcome::Ok)),
        _ => signals.run_until_stopped(check_cluster(&session, &login, settings, asked)).await,
    };
    match checked {
        Ok(Ok(Outcome::Ok)) => {}
        Ok(Ok(outcome)) => {
            print_stderr("nothing was submitted");
            return Ok(finish(session, login, outcome, "").await);
        }
        Ok(Err(error)) => {
            let outcome = report_login_error(&login, &error);
            return Ok(finish(session, login, outcome, &error.to_string()).await);
        }
        Err(outcome) => return Ok(session.disconnect(&signals, outcome).await),
    }
    if let Some(tasks) = tasks {
        match run_login_tasks(args, tasks, base, &mut signals).await? {
            Ok(registered) => script = slurm::render_batch_script(&inventory, &job, &registered).map_err(CliError::Usage)?,
            Err(outcome) => {
                print_stderr("nothing was submitted");
                return Ok(finish(session, login, outcome, "").await);
            }
        }
    }
    if args.dry_run {
        print_stderr("the cluster would take the job; nothing was submitted");
        return Ok(finish(session, login, Outcome::Ok, "").await);
    }
    let submission = Submission { script, run_id: new_run_id(&jiff::Zoned::now()), secrets };
    let (outcome, reason) = match hand_over(&mut session, &login, &submission, &signals).await {
        Ok(end) => end,
        Err(outcome) => return Ok(outcome),
    };
    Ok(finish(session, login, outcome, &reason).await)
}

/// Submits; the outcome and its reason. `Err`: interrupted.
async fn hand_over(
    session: &mut Session,
    login: &LoginNode,
    submission: &Submission,
    signals: &StopController,
) -> Result<(Outcome, String), Outcome> {
    let status = session.suggest_command("slurm status", "");
    match signals.run_until_stopped(login.submit(submission)).await {
        Ok(Ok(end)) => Ok(report_submission(session, &submission.run_id, end).await),
        Ok(Err(error)) => {
            let outcome = report_login_error(login, &error);
            print_stderr(&format!("    the job may have been submitted: {status}"));
            Ok((outcome, error.to_string()))
        }
        Err(outcome) => {
            print_stderr(&format!("interrupted; the job may have been submitted: {status}"));
            Err(outcome)
        }
    }
}

/// Prints what is wrong with the cluster for the job. `settings`: what it is compared with; `script`: sbatch is asked about it, too, and
/// whether a job lives.
async fn check_cluster(
    session: &Session,
    login: &LoginNode,
    settings: Option<&SlurmSettings>,
    script: Option<&str>,
) -> Result<Outcome, RemoteError> {
    let (cluster, report) = login.preflight(script).await?;
    if let Some(error) = report.queue_error {
        report_silence(session, &error);
        return Ok(Outcome::Unreachable);
    }
    let clean = |text: &str| session.reporter.sanitizer().sanitize_line(text);
    let mut fits = true;
    for finding in settings.map(|settings| judge_cluster(&cluster, settings)).unwrap_or_default() {
        let is_error = finding.level == Level::Fail;
        let kind = if is_error { "error" } else { "warning" };
        print_stderr(&format!("{kind}: {}\n    help: {}", clean(&finding.message), clean(&finding.hint)));
        fits &= !is_error;
    }
    if let Some(job) = report.live {
        print_stderr(&format!("error: job {job} of this name is live\n    help: end it: {}", session.suggest_command("slurm cancel", "")));
        fits = false;
    }
    // What is named above is the cause of a refusal, too.
    if let Some(failure) = report.failure.filter(|_| fits) {
        if failure.is_silence() {
            report_silence(session, &failure.text);
            return Ok(Outcome::Unreachable);
        }
        print_refusal(session, &failure);
        fits = false;
    }
    Ok(if fits { Outcome::Ok } else { Outcome::Refused })
}

fn print_refusal(session: &Session, failure: &OrderFailure) {
    let text = session.reporter.sanitizer().sanitize_line(&failure.text);
    print_stderr(&format!("{} refused the job: {text}\n    help: {}", failure.command, explain_refusal(&failure.text)));
}

/// Says how the submission ended; the outcome and its reason.
async fn report_submission(session: &mut Session, run: &str, end: SubmitEnd) -> (Outcome, String) {
    let suggest = |verb: &str, rest: &str| session.suggest_command(verb, rest);
    let (status, follow, cancel) = (suggest("slurm status", ""), suggest("slurm logs", "-f"), suggest("slurm cancel", ""));
    match end {
        SubmitEnd::Submitted(job) => {
            print_stdout(&format!("{job}\n"));
            if let Err(error) = record_submission(session, run, job).await {
                print_stderr(&format!("warning: job {job} is in the queue, but `runs` will not list it: {error}"));
            }
            print_stderr(&format!("next: {status}\n      {follow}\n      {cancel}"));
            (Outcome::Detached, format!("job {job} is in the queue"))
        }
        SubmitEnd::Live(job) => {
            print_stderr(&format!(
                "job {job} of this name is live: nothing was submitted\n    help: follow it: {follow}\n    help: or end it: {cancel}"
            ));
            (Outcome::Refused, format!("job {job} is live"))
        }
        SubmitEnd::Refused(failure) => {
            print_refusal(session, &failure);
            (Outcome::Refused, format!("{} refused the job", failure.command))
        }
        SubmitEnd::Unclear(failure) => {
            let text = session.reporter.sanitizer().sanitize_line(&failure.text);
            print_stderr(&format!("sbatch gave no clear answer: {text}\n    help: the job may have been submitted: {status}"));
            (Outcome::Unreachable, format!("the job may have been submitted: {text}"))
        }
        SubmitEnd::NoAnswer(error) => {
            report_silence(session, &error);
            (Outcome::Unreachable, "slurmctld does not answer".to_owned())
        }
    }
}
