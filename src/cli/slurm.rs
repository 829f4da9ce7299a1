#![expect(clippy::disallowed_methods, reason = "writes the script into --output")]
//! `slurm`: the same job on a SLURM cluster. `render` writes it as a script for sbatch; the others reach the login node.

use crate::cli::args::{ProgressMode, SlurmCommand, SlurmJobArgs, SlurmRenderArgs};
use crate::cli::exit::CliError;
use crate::cli::local_env::{hide_known_secrets, print_raw_unless_tty, print_stderr, print_stdout, read_secrets};
use crate::cli::open_session::{LoadMode, load_slurm_inventory, open_slurm_session};
use crate::cli::output::OutputOptions;
use crate::cli::slurm_reports::{finish, report_cancel, report_login_error, report_silence};
use crate::cli::{slurm_down, slurm_logs};
use crate::event::Outcome;
use crate::lifecycle::launch_request::new_run_id;
use crate::lifecycle::slurm_job::{SubmitEnd, record_submission};
use crate::lifecycle::stop_controller::StopController;
use crate::lifecycle::stop_ladder::InterruptPolicy;
use crate::plan::slurm;
use crate::plan::slurm::job_state::explain_refusal;
use crate::plan::slurm::login_scripts::Submission;
use crate::report::job_status::{job_outcome, status_lines};
use crate::text::shell_quote::quote;

pub(crate) async fn run(command: &SlurmCommand) -> Result<Outcome, CliError> {
    match command {
        SlurmCommand::Render(args) => render(args),
        SlurmCommand::Submit(args) => submit(args).await,
        SlurmCommand::Status(args) => status(args).await,
        SlurmCommand::Logs(args) => slurm_logs::logs(args).await,
        SlurmCommand::Attach(args) => slurm_logs::attach(args).await,
        SlurmCommand::Cancel(args) => cancel(args).await,
        SlurmCommand::Down(args) => slurm_down::down(&args.common).await,
    }
}

fn render(args: &SlurmRenderArgs) -> Result<Outcome, CliError> {
    let (inventory, _) = load_slurm_inventory(&args.common, LoadMode::Full)?;
    hide_known_secrets(&inventory);
    let job = inventory.slurm_job()?;
    let script = slurm::render_batch_script(&inventory, &job).map_err(CliError::Usage)?;
    match &args.output {
        None => print_raw_unless_tty(&script),
        Some(path) => {
            std::fs::write(path, &script).map_err(|error| CliError::Usage(format!("{}: cannot be written: {error}", path.display())))?;
            print_stderr(&format!("{0}: sbatch {1}", path.display(), quote(&path.display().to_string())));
        }
    }
    Ok(Outcome::Ok)
}

async fn submit(args: &SlurmJobArgs) -> Result<Outcome, CliError> {
    let (inventory, base) = load_slurm_inventory(&args.common, LoadMode::Full)?;
    hide_known_secrets(&inventory);
    let job = inventory.slurm_job()?;
    let script = slurm::render_batch_script(&inventory, &job).map_err(CliError::Usage)?;
    let secrets = read_secrets(&job.job.secret_names)?;
    let output = OutputOptions::progress_only(ProgressMode::Plain);
    let (mut session, login) = open_slurm_session("slurm submit", &args.common, (inventory, base), output)?;
    let signals = StopController::listen(InterruptPolicy::Cancel, print_stderr).map_err(anyhow::Error::from)?;
    let submission = Submission { script, run_id: new_run_id(&jiff::Zoned::now()), secrets };
    let suggest = |verb: &str, rest: &str| session.suggest_command(verb, rest);
    let (status, follow, cancel) = (suggest("slurm status", ""), suggest("slurm logs", "-f"), suggest("slurm cancel", ""));
    let end = match signals.run_until_stopped(login.submit(&submission)).await {
        Ok(Ok(end)) => end,
        Ok(Err(error)) => {
            let outcome = report_login_error(&error);
            print_stderr(&format!("    the job may have been submitted: {status}"));
            return Ok(finish(session, login, outcome, &error.to_string()).await);
        }
        Err(outcome) => {
            print_stderr(&format!("interrupted; the job may have been submitted: {status}"));
            return Ok(outcome);
        }
    };
    let (outcome, reason) = match end {
        SubmitEnd::Submitted(job) => {
            print_stdout(&format!("{job}\n"));
            if let Err(error) = record_submission(&mut session, &submission.run_id, job).await {
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
            let text = session.reporter.sanitizer().sanitize_line(&failure.text);
            print_stderr(&format!("{} refused the job: {text}\n    help: {}", failure.command, explain_refusal(&failure.text)));
            (Outcome::Refused, format!("{}: {text}", failure.command))
        }
        SubmitEnd::Unclear(failure) => {
            let text = session.reporter.sanitizer().sanitize_line(&failure.text);
            print_stderr(&format!("sbatch gave no clear answer: {text}\n    help: the job may have been submitted: {status}"));
            (Outcome::Unreachable, format!("the job may have been submitted: {text}"))
        }
        SubmitEnd::NoAnswer(error) => {
            report_silence(&session, &error);
            (Outcome::Unreachable, "slurmctld does not answer".to_owned())
        }
    };
    Ok(finish(session, login, outcome, &reason).await)
}

async fn status(args: &SlurmJobArgs) -> Result<Outcome, CliError> {
    let loaded = load_slurm_inventory(&args.common, LoadMode::ConnectionOnly)?;
    let (session, login) = open_slurm_session("slurm status", &args.common, loaded, OutputOptions::progress_only(ProgressMode::Quiet))?;
    let signals = StopController::listen(InterruptPolicy::Cancel, print_stderr).map_err(anyhow::Error::from)?;
    let outcome = match signals.run_until_stopped(login.status()).await {
        Err(outcome) => outcome,
        Ok(Err(error)) => report_login_error(&error),
        Ok(Ok(report)) => {
            let lines = status_lines(&login.place.name, &report);
            print_stdout(&(session.reporter.sanitizer().sanitize_multiline(&lines.join("\n")) + "\n"));
            if report.job.is_none() { Outcome::Ok } else { job_outcome(&report).0 }
        }
    };
    login.close().await;
    Ok(session.disconnect(&signals, outcome).await)
}

async fn cancel(args: &SlurmJobArgs) -> Result<Outcome, CliError> {
    let loaded = load_slurm_inventory(&args.common, LoadMode::ConnectionOnly)?;
    let (session, login) = open_slurm_session("slurm cancel", &args.common, loaded, OutputOptions::progress_only(ProgressMode::Quiet))?;
    let signals = StopController::listen(InterruptPolicy::Leave, print_stderr).map_err(anyhow::Error::from)?;
    let outcome = match signals.run_until_leaving(login.cancel()).await {
        Err(outcome) => outcome,
        Ok(Err(error)) => report_login_error(&error),
        Ok(Ok(end)) => report_cancel(&session, end),
    };
    login.close().await;
    Ok(session.disconnect(&signals, outcome).await)
}
