#![expect(clippy::disallowed_methods, reason = "writes the script into --output")]
//! `slurm`: the same job on a SLURM cluster. `render` writes it as a script for sbatch; the others reach the login node.

use crate::cli::args::{CommonArgs, ProgressMode, SlurmCommand, SlurmRenderArgs};
use crate::cli::exit::CliError;
use crate::cli::local_env::{hide_known_secrets, print_raw_unless_tty, print_stderr, print_stdout, user_lang};
use crate::cli::open_session::{LoadMode, listen, load_slurm_inventory, open_slurm_session};
use crate::cli::progress_output::OutputOptions;
use crate::cli::slurm_reports::{finish, report_cancel, report_login_error, save_end};
use crate::cli::{slurm_down, slurm_logs, slurm_submit};
use crate::event::Outcome;
use crate::lifecycle::slurm_job::CancelEnd;
use crate::lifecycle::stop_ladder::InterruptPolicy;
use crate::plan::slurm;
use crate::report::job_status::{job_outcome, status_lines};
use crate::text::shell_quote::quote;

pub(crate) async fn run(command: &SlurmCommand) -> Result<Outcome, CliError> {
    match command {
        SlurmCommand::Render(args) => render(args),
        SlurmCommand::Submit(args) => slurm_submit::submit(args).await,
        SlurmCommand::Status(args) => status(args).await,
        SlurmCommand::Logs(args) => slurm_logs::logs(args).await,
        SlurmCommand::Attach(args) => slurm_logs::attach(args).await,
        SlurmCommand::Cancel(args) => cancel(args).await,
        SlurmCommand::Down(args) => slurm_down::down(args).await,
    }
}

fn render(args: &SlurmRenderArgs) -> Result<Outcome, CliError> {
    let (inventory, _) = load_slurm_inventory(&args.common, LoadMode::Full)?;
    hide_known_secrets(&inventory);
    let job = inventory.slurm_job()?;
    let script = slurm::render_batch_script(&inventory, &job, &[]).map_err(CliError::Usage)?;
    match &args.output {
        None => print_raw_unless_tty(&script),
        Some(path) => {
            std::fs::write(path, &script).map_err(|error| CliError::Usage(format!("{}: cannot be written: {error}", path.display())))?;
            print_stderr(&format!("{0}: sbatch {1}", path.display(), quote(&path.display().to_string())));
        }
    }
    Ok(Outcome::Ok)
}

async fn status(args: &CommonArgs) -> Result<Outcome, CliError> {
    let loaded = load_slurm_inventory(args, LoadMode::ConnectionOnly)?;
    let (mut session, login) = open_slurm_session("slurm status", args, loaded, OutputOptions::progress_only(ProgressMode::Quiet))?;
    let signals = listen(InterruptPolicy::Cancel)?;
    let outcome = match signals.run_until_stopped(login.status()).await {
        Err(outcome) => outcome,
        Ok(Err(error)) => report_login_error(&login, &error),
        Ok(Ok(report)) => {
            let lines = status_lines(&login.place.name, &report);
            let text = session.reporter.sanitizer().sanitize_multiline(&lines.join("\n"));
            print_stdout(&format!("{}\n", user_lang().lines(&text)));
            save_end(&mut session, &report).await;
            if report.job.is_none() { Outcome::Ok } else { job_outcome(&report).0 }
        }
    };
    Ok(finish(session, login, outcome, "").await)
}

async fn cancel(args: &CommonArgs) -> Result<Outcome, CliError> {
    let loaded = load_slurm_inventory(args, LoadMode::ConnectionOnly)?;
    let (mut session, login) = open_slurm_session("slurm cancel", args, loaded, OutputOptions::progress_only(ProgressMode::Quiet))?;
    let signals = listen(InterruptPolicy::Leave)?;
    let outcome = match signals.run_until_leaving(login.cancel()).await {
        Err(outcome) => outcome,
        Ok(Err(error)) => report_login_error(&login, &error),
        Ok(Ok(end)) => {
            if let CancelEnd::NoLiveJob(report) | CancelEnd::Ended(report) = &end {
                save_end(&mut session, report).await;
            }
            report_cancel(&session, end)
        }
    };
    Ok(finish(session, login, outcome, "").await)
}
