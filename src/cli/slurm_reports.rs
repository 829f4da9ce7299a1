//! Messages that the commands for SLURM share: a login node or slurmctld that does not answer, the end of an order to cancel.

use crate::cli::local_env::print_stderr;
use crate::event::Outcome;
use crate::lifecycle::session::Session;
use crate::lifecycle::slurm_job::{CancelEnd, LoginNode, record_end_without_start};
use crate::plan::slurm::job_report::JobReport;
use crate::plan::slurm::job_state::JobState;
use crate::remote::RemoteError;
use crate::report::job_status::headline;

/// Says how an order to cancel ended.
pub(super) fn report_cancel(session: &Session, end: CancelEnd) -> Outcome {
    let sanitizer = session.reporter.sanitizer();
    match end {
        CancelEnd::NoLiveJob(report) => {
            let last = report.job.map_or_else(String::new, |job| format!("; the last one, job {job}, is {}", headline(&report)));
            print_stderr(&sanitizer.sanitize_line(&format!("no live job{last}")));
            Outcome::Ok
        }
        CancelEnd::Ended(report) => {
            let job = report.job.unwrap_or_default();
            print_stderr(&sanitizer.sanitize_line(&format!("job {job}: {}", headline(&report))));
            Outcome::Ok
        }
        CancelEnd::StillThere(report) => {
            let job = report.job.unwrap_or_default();
            let help = match report.state {
                Some(JobState::Completing) => {
                    "its nodes may run an epilogue, or one is stuck: try again later; `sinfo -R` on the login node names a stuck node"
                }
                _ => "a node may be stuck: `sinfo -R` on the login node says which, and administrators set it down",
            };
            print_stderr(
                &sanitizer.sanitize_multiline(&format!("job {job} is still {} after two minutes\n    help: {help}", headline(&report))),
            );
            Outcome::Leftovers
        }
        CancelEnd::Refused(failure) => {
            print_stderr(&sanitizer.sanitize_line(&format!("{}: {}", failure.command, failure.text)));
            Outcome::Failed
        }
        CancelEnd::NoAnswer(error) => {
            report_silence(session, &error);
            Outcome::Unreachable
        }
    }
}

pub(super) fn report_silence(session: &Session, error: &str) {
    let error = session.reporter.sanitizer().sanitize_line(error);
    print_stderr(&format!(
        "slurmctld does not answer: {error}\n    help: nothing was changed; try again when `squeue` answers on the login node"
    ));
}

/// Says why the login node gave no answer.
pub(super) fn report_login_error(login: &LoginNode, error: &RemoteError) -> Outcome {
    let hint = if error.hint().is_empty() { String::new() } else { format!("\n    help: {}", error.hint()) };
    print_stderr(&format!("login node {}: {error}{hint}", login.host_name()));
    Outcome::Unreachable
}

/// Notes the end of a job that never started in this laptop's record of it.
pub(super) async fn save_end(session: &mut Session, report: &JobReport) {
    if let Err(error) = record_end_without_start(session, report).await {
        print_stderr(&format!("warning: `runs` will not show the end of the job: {error}"));
    }
}

pub(super) async fn finish(session: Session, login: LoginNode, outcome: Outcome, reason: &str) -> Outcome {
    login.close().await;
    session.finish(outcome, reason, false).await
}
