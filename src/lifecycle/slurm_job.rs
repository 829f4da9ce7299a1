//! A job on a SLURM cluster, through its login node: asked for, submitted, cancelled, its files removed.

use std::time::Duration;

use tokio::time::Instant;

use crate::event::{EventKind, RunOutcome};
use crate::inventory::InventoryHost;
use crate::lifecycle::session::Session;
use crate::model::ADDRESS_NOT_FOUND_HINT;
use crate::model::remote_command::RemoteCommand;
use crate::plan::slurm::cluster_report::ClusterReport;
use crate::plan::slurm::job_report::{JobReport, JobStart, OrderFailure};
use crate::plan::slurm::login_scripts::{JobPlace, Submission};
use crate::remote::RemoteError;
use crate::report::job_status::job_outcome;
use crate::report::past_runs::{RunDir, list_runs};

/// How long a cancelled job is waited for: the cluster's KillWait, and what its epilogue takes.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(120);
/// slurmctld is asked more often at first, and at most every 15 s then: it serves the whole cluster.
const FIRST_POLL_PAUSE: Duration = Duration::from_secs(1);
pub(crate) const MAX_POLL_PAUSE: Duration = Duration::from_secs(15);

/// The pauses between two questions about a job.
pub(crate) struct PollPauses(Duration);

impl PollPauses {
    pub(crate) fn new() -> PollPauses {
        PollPauses(FIRST_POLL_PAUSE)
    }

    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(MAX_POLL_PAUSE);
    }
}

/// The login node, connected when first asked.
pub(crate) struct LoginNode {
    session: Session,
    pub(crate) place: JobPlace,
}

/// How a submission ended.
pub(crate) enum SubmitEnd {
    Submitted(u64),
    /// A job of the name lives; nothing was submitted.
    Live(u64),
    Refused(OrderFailure),
    /// sbatch failed without a refusal: the job may be in the queue.
    Unclear(OrderFailure),
    /// The queue could not be asked, and why.
    NoAnswer(String),
}

/// How an order to cancel ended.
pub(crate) enum CancelEnd {
    /// There was none.
    NoLiveJob(JobReport),
    Ended(JobReport),
    /// After two minutes.
    StillThere(JobReport),
    Refused(OrderFailure),
    NoAnswer(String),
}

/// The login node's name stands in `slurm.login`, not in `hosts`.
fn name_login_setting(error: RemoteError) -> RemoteError {
    match error {
        RemoteError::Lost { what, hint, retry } if hint == ADDRESS_NOT_FOUND_HINT => {
            RemoteError::Lost { what, hint: "correct `slurm.login`, or set `HostName` for it in ssh_config".to_owned(), retry }
        }
        error => error,
    }
}

impl LoginNode {
    /// A session of its own, without output.
    pub(crate) fn open(session: &Session, login: InventoryHost) -> LoginNode {
        let place = JobPlace { name: session.inventory.name.clone(), run_dir: session.inventory.run_dir.clone() };
        let mut inventory = session.inventory.clone();
        inventory.hosts = vec![login];
        LoginNode { session: session.open_silent("slurm", inventory), place }
    }

    /// `slurm.login`, as the inventory writes it.
    pub(crate) fn host_name(&self) -> &str {
        self.session.inventory.hosts.first().map_or("", |host| host.name.as_str())
    }

    /// Runs a script on the login node and reads its answer.
    ///
    /// # Errors
    /// The connection, or an answer that is not whole.
    async fn ask(&self, command: &RemoteCommand) -> Result<JobReport, RemoteError> {
        Ok(self.ask_for_text(command).await?.1)
    }

    /// As [`LoginNode::ask`], with the answer's text.
    async fn ask_for_text(&self, command: &RemoteCommand) -> Result<(String, JobReport), RemoteError> {
        let Some(connection) = self.session.engine.connections().first() else {
            return Err(RemoteError::InvalidConfig { what: "no login node".to_owned(), hint: "set slurm.login".to_owned() });
        };
        let output = connection.exec(command).await.map_err(name_login_setting)?;
        let text = output.stdout_text();
        let mut report = JobReport::parse(&text);
        if self.may_requeue() {
            report = report.doubt_end_of_one_start();
        }
        if report.root.is_empty() {
            return Err(RemoteError::Truncated { title: command.title.clone(), what: output.error_line() });
        }
        if let Some(program) = &report.missing {
            let what = format!("{program} is not on the PATH of a login shell there");
            let hint = "set slurm.login to a node where sbatch works after a login".to_owned();
            return Err(RemoteError::InvalidConfig { what, hint });
        }
        Ok((text, report))
    }

    /// Whether SLURM may start the job again after an end.
    pub(crate) fn may_requeue(&self) -> bool {
        self.session.inventory.slurm.as_ref().is_some_and(|slurm| slurm.requeue)
    }

    /// What the cluster has for a job. With its script also whether one lives, and what `sbatch --test-only` says.
    ///
    /// # Errors
    /// As [`LoginNode::ask`].
    pub(crate) async fn preflight(&self, script: Option<&str>) -> Result<(ClusterReport, JobReport), RemoteError> {
        let slurm = self.session.inventory.slurm.as_ref();
        let (partition, image) = (slurm.and_then(|slurm| slurm.partition.as_deref()), slurm.and_then(|slurm| slurm.image.as_deref()));
        let (text, report) = self.ask_for_text(&self.place.preflight_command(partition, image, script)).await?;
        Ok((ClusterReport::parse(&text), report))
    }

    /// Every start of every job of the name: its job, its run and its nodes.
    ///
    /// # Errors
    /// As [`LoginNode::ask`].
    pub(crate) async fn starts(&self) -> Result<Vec<JobStart>, RemoteError> {
        Ok(self.ask(&self.place.starts_command()).await?.starts)
    }

    /// # Errors
    /// As [`LoginNode::ask`].
    pub(crate) async fn status(&self) -> Result<JobReport, RemoteError> {
        self.ask(&self.place.status_command()).await
    }

    /// # Errors
    /// As [`LoginNode::ask`]. The job may have been submitted then.
    pub(crate) async fn submit(&self, submission: &Submission) -> Result<SubmitEnd, RemoteError> {
        let report = self.ask(&self.place.submit_command(submission)).await?;
        Ok(match (report.submitted, report.live, report.failure, report.queue_error) {
            (Some(job), ..) => SubmitEnd::Submitted(job),
            (None, Some(job), ..) => SubmitEnd::Live(job),
            (None, None, Some(failure), _) if report.is_unclear => SubmitEnd::Unclear(failure),
            (None, None, Some(failure), _) if failure.is_silence() => SubmitEnd::NoAnswer(failure.text),
            (None, None, Some(failure), _) => SubmitEnd::Refused(failure),
            (None, None, None, error) => SubmitEnd::NoAnswer(error.unwrap_or_else(|| "no job id".to_owned())),
        })
    }

    /// Cancels the live job and waits for its end.
    ///
    /// # Errors
    /// As [`LoginNode::ask`].
    pub(crate) async fn cancel(&self) -> Result<CancelEnd, RemoteError> {
        let ordered = self.ask(&self.place.cancel_command()).await?;
        if let Some(error) = ordered.queue_error {
            return Ok(CancelEnd::NoAnswer(error));
        }
        if let Some(failure) = ordered.failure {
            return Ok(CancelEnd::Refused(failure));
        }
        let deadline = Instant::now() + CANCEL_TIMEOUT;
        let mut pauses = PollPauses::new();
        loop {
            let report = self.status().await?;
            // Another job of the name may be the last one now: its end is not this one's.
            match (ordered.live, !report.may_live() && report.job == ordered.live) {
                (None, _) => return Ok(CancelEnd::NoLiveJob(report)),
                (Some(_), true) => return Ok(CancelEnd::Ended(report)),
                (Some(_), false) if Instant::now() >= deadline => return Ok(CancelEnd::StillThere(report)),
                (Some(_), false) => pauses.wait().await,
            }
        }
    }

    /// The end of a job's own log; empty where there is none.
    ///
    /// # Errors
    /// The connection, or a file that cannot be read.
    pub(crate) async fn job_log(&self, job: u64) -> Result<Vec<u8>, RemoteError> {
        let Some(connection) = self.session.engine.connections().first() else { return Ok(Vec::new()) };
        let command = self.place.job_log_command(job);
        let output = connection.exec(&command).await?;
        if output.is_success() {
            Ok(output.stdout)
        } else {
            Err(RemoteError::Truncated { title: command.title, what: output.error_line() })
        }
    }

    /// Removes the files of jobs that have ended.
    ///
    /// # Errors
    /// As [`LoginNode::ask`].
    pub(crate) async fn clean(&self, fetched: &[(u64, String)]) -> Result<JobReport, RemoteError> {
        self.ask(&self.place.clean_command(fetched)).await
    }

    pub(crate) async fn close(self) {
        self.session.engine.close().await;
    }
}

/// Writes the record of a run that waits in the queue: `runs` lists it from now on.
///
/// # Errors
/// The run directory of this laptop cannot be written.
pub(crate) async fn record_submission(session: &mut Session, run: &str, job: u64) -> Result<(), String> {
    let dir = RunDir::open(&session.local.state_dir, run)
        .map_err(|e| format!("{}: cannot create the run directory: {e}", session.local.state_dir.display()))?;
    session.run_dir = Some(dir.clone());
    session.reporter.open_run_dir(dir, Vec::new(), Vec::new()).await?;
    session.emit_run_started(run, None);
    session.notice(format!("job {job} submitted"), false);
    session.engine.emitter().send(EventKind::RunEndReported { end: RunOutcome::Running, ended_at: 0 });
    Ok(())
}

/// Writes the end of a job that never started a rank into this laptop's record of its submission, where there is one.
///
/// # Errors
/// The record cannot be read or written.
pub(crate) async fn record_end_without_start(session: &mut Session, report: &JobReport) -> Result<(), String> {
    let (_, end) = job_outcome(report);
    let Some(run) = report.given_run.clone().filter(|_| end != RunOutcome::Running && report.notes.run_id.is_none()) else { return Ok(()) };
    let state_dir = session.local.state_dir.clone();
    let unreadable = |error: std::io::Error| format!("{}: {error}", state_dir.display());
    let runs = list_runs(&state_dir).map_err(unreadable)?;
    if !runs.iter().any(|known| known.run == run && known.run_end == Some(RunOutcome::Running)) {
        return Ok(());
    }
    let dir = RunDir::open(&state_dir, &run).map_err(unreadable)?;
    session.run_dir = Some(dir.clone());
    session.reporter.open_run_dir(dir, Vec::new(), Vec::new()).await?;
    session.emit_run_started(&run, None);
    session.emit_run_end(end);
    Ok(())
}
