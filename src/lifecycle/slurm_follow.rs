//! Follows a job on a SLURM cluster: waits in the queue with it, then reads its ranks' logs through the login node, and learns its end from
//! SLURM where the ranks cannot report it.

use std::cell::RefCell;
use std::time::Duration;

use crate::engine::follow::{FollowOutcome, FollowSpec};
use crate::engine::log_stream::LogOffsets;
use crate::event::{EventKind, Outcome, RunControl, RunOutcome};
use crate::inventory::InventoryHost;
use crate::lifecycle::error::{WorkflowEnd, WorkflowError, worse_outcome};
use crate::lifecycle::log_fetch::fetch_logs_of;
use crate::lifecycle::session::Session;
use crate::lifecycle::slurm_job::{LoginNode, MAX_POLL_PAUSE, PollPauses};
use crate::lifecycle::stop_controller::StopController;
use crate::model::rank::RankInfo;
use crate::plan::Plan;
use crate::plan::host_context::HostContext;
use crate::plan::slurm::job_notes::JobNotes;
use crate::plan::slurm::job_report::{JobReport, JobStart};
use crate::plan::slurm::job_state::JobState;
use crate::remote::RemoteError;
use crate::report::job_status::{end_lines, headline, job_outcome, pending_lines};

/// What a job's last words may take to arrive once SLURM says that it has ended: a shared file system shows them late.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(5);
/// A step of the job and a process on the login node for each.
const MAX_SAMPLED_NODES: usize = 32;
/// How long SLURM may take to report the end of a job, from the end of its ranks. Where a message to a node is lost, slurmctld repeats it after
/// KillWait and two times MessageTimeout, at its next look in a minute: 110 s with its defaults (`_list_find_job_old` in its job_mgr.c).
const END_TIMEOUT: Duration = Duration::from_secs(120);
/// The job's own note of its end counts from the first answer that has it this long after another. As with `sbatch --wait`, an epilogue is not
/// waited for.
const NOTED_END_TIMEOUT: Duration = Duration::from_secs(10);

/// A job whose ranks have started: its nodes are hosts of the session.
pub(crate) struct StartedJob {
    pub(crate) run_id: String,
    pub(crate) job: Option<u64>,
    spec: FollowSpec,
    offsets: LogOffsets,
}

/// How the following of a job ended.
pub(crate) enum FollowEnd {
    /// The person left before the job's end.
    Left,
    /// The last answer of the login node, where one came, and how the ranks ended, where they have reported it.
    JobEnd(Option<Box<JobReport>>, Outcome),
}

/// Waits until the ranks of the job have been started, or it has ended before. `known`: the last answer, where there is one; `earlier`: a start
/// of the job that has ended, the next one is waited for; the answer may be of a later job of the name.
///
/// # Errors
/// The login node does not answer the first question.
pub(crate) async fn wait_for_start(
    session: &Session,
    login: &LoginNode,
    known: Option<JobReport>,
    earlier: Option<&str>,
) -> Result<JobReport, RemoteError> {
    let mut report = match known {
        Some(report) => report,
        None => login.status().await?,
    };
    let mut pauses = PollPauses::new();
    let mut reported: Option<(String, Option<(u32, u32)>)> = None;
    loop {
        let waits = report.may_live();
        if !waits || is_started(&report, earlier) {
            return Ok(report);
        }
        let state = (headline(&report), report.place);
        if reported.as_ref() != Some(&state) {
            session.notice(format!("job {}: {}", report.job.unwrap_or_default(), state.0), false);
            // A line each: one would be cut on the dashboard before the expected start.
            pending_lines(&report).iter().for_each(|line| session.notice(line.trim().to_owned(), false));
            reported = Some(state);
        }
        pauses.wait().await;
        match login.status().await {
            Ok(next) => {
                if next.is_of_another_job(report.job) {
                    // Nothing of the first one was shown yet: the later one is waited for.
                    session.notice(replaced_text(report.job, &next), false);
                    if earlier.is_some() {
                        return Ok(next);
                    }
                }
                report = next;
            }
            Err(error) if error.is_retryable() => tracing::debug!(%error, "the login node is asked again"),
            Err(error) => return Err(error),
        }
    }
}

fn is_started(report: &JobReport, earlier: Option<&str>) -> bool {
    report.notes.run_id.as_deref().is_some_and(|run| Some(run) != earlier) && !report.nodes.is_empty()
}

/// Makes the job's nodes the hosts of the session. `None`: its ranks were not started, or not again after `earlier`.
///
/// # Errors
/// This laptop's run directory.
pub(crate) async fn open_nodes(
    session: &mut Session,
    report: &JobReport,
    earlier: Option<&str>,
) -> Result<Option<StartedJob>, WorkflowError> {
    let Some(run_id) = report.notes.run_id.clone().filter(|_| is_started(report, earlier)) else { return Ok(None) };
    let Some(login) = session.local.login.clone() else { return Ok(None) };
    let hosts: Vec<InventoryHost> = report.nodes.iter().map(|name| InventoryHost { name: name.clone(), ..login.clone() }).collect();
    let per_node = report.ranks_per_node;
    let count = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
    let world_size = per_node.saturating_mul(count);
    let name = session.inventory.name.clone();
    let context = |host: &InventoryHost| HostContext {
        run_id: run_id.clone(),
        world_size,
        cluster_job: report.job,
        ..HostContext::new(&name, &host.name, &report.root)
    };
    let contexts: Vec<HostContext> = hosts.iter().map(context).collect();
    session.replace_hosts(hosts).await;
    session.attempt = report.notes.start.saturating_add(1);
    let mut plan = Plan::empty(contexts.clone());
    plan.ranks = (0..world_size.min(1 << 16)).map(|rank| RankInfo { rank, host: rank / per_node, local_rank: rank % per_node }).collect();
    let offsets = session.open_run_dir(&run_id, None).await?;
    session.emit_run_started(&run_id, Some(&plan));
    let spec = FollowSpec { hosts: contexts, rank_count: world_size as usize, read_only: true, ..FollowSpec::default() };
    Ok(Some(StartedJob { run_id, job: report.job, spec, offsets }))
}

/// Fetches the logs of the starts before the last one, also those of earlier jobs; returns their jobs and runs, and how it went.
///
/// # Errors
/// This laptop's run directory.
pub(crate) async fn fetch_earlier_starts(
    session: &Session,
    report: &JobReport,
    starts: Vec<JobStart>,
) -> Result<(Vec<(u64, String)>, Outcome), WorkflowError> {
    let (mut runs, mut outcome) = (Vec::new(), Outcome::Ok);
    for start in starts.into_iter().filter(|start| report.notes.run_id.as_ref() != Some(&start.run_id)) {
        let mut own = session.open_silent("slurm down", session.inventory.clone());
        let notes = JobNotes { run_id: Some(start.run_id.clone()), ..JobNotes::default() };
        let of_start = JobReport { job: Some(start.job), nodes: start.nodes, notes, ..report.clone() };
        if let Some(job) = open_nodes(&mut own, &of_start, None).await? {
            let fetched = job.fetch(&own).await;
            // How an earlier job ended, SLURM may no longer know; an earlier start of this one was stopped.
            if report.job == Some(start.job) {
                own.engine.emitter().send(EventKind::RunEndReported { end: RunOutcome::Stopped, ended_at: 0 });
            }
            if fetched == Outcome::Ok { runs.push((start.job, start.run_id)) } else { outcome = fetched }
        }
        own.finish(Outcome::Ok, "", false).await;
    }
    Ok((runs, outcome))
}

impl StartedJob {
    /// GPUs and machines of the nodes are sampled while it is followed.
    pub(crate) fn with_samples(mut self, session: &Session) -> StartedJob {
        self.spec.sampled_hosts = MAX_SAMPLED_NODES;
        if self.spec.hosts.len() > MAX_SAMPLED_NODES {
            session.notice(format!("GPUs are shown for the first {MAX_SAMPLED_NODES} nodes: each needs a step of its own"), false);
        }
        self
    }

    /// Fetches what this laptop lacks of the logs.
    pub(crate) async fn fetch(&self, session: &Session) -> Outcome {
        let contexts = self.spec.hosts.iter().cloned().map(Some).collect();
        fetch_logs_of(session, contexts, self.offsets.clone()).await
    }

    /// Follows the ranks until the job has ended.
    pub(crate) async fn follow(&self, session: &Session, login: &LoginNode, signals: &mut StopController) -> FollowEnd {
        let end: RefCell<Option<JobReport>> = RefCell::default();
        let controls = signals.control_sender.clone();
        let poll = async {
            let report = self.wait_for_end(login, None).await;
            tokio::time::sleep(LAST_WORDS_TIMEOUT).await;
            end.replace(report);
            if let Some(controls) = controls.upgrade()
                && controls.send(RunControl::Detach).await.is_err()
            {
                tracing::debug!("the following has ended");
            }
            std::future::pending::<()>().await;
        };
        let outcome = tokio::select! {
            outcome = session.engine.follow_run(&self.spec, &self.offsets, &mut signals.controls) => outcome,
            () = poll => FollowOutcome::Detached,
        };
        let ranks = match outcome {
            FollowOutcome::Ended { is_host_lost: true, .. } => Outcome::Unreachable,
            FollowOutcome::Ended { ok: false, .. } => Outcome::Failed,
            FollowOutcome::StoppedElsewhere => Outcome::Stopped,
            _ => Outcome::Ok,
        };
        match (outcome, end.into_inner()) {
            (_, Some(report)) => {
                self.fetch(session).await;
                FollowEnd::JobEnd(Some(Box::new(report)), ranks)
            }
            (FollowOutcome::Ended { .. } | FollowOutcome::StoppedElsewhere, None) => {
                let waiting = self.wait_for_end(login, Some(END_TIMEOUT));
                signals.run_until_stopped(waiting).await.map_or(FollowEnd::Left, |report| FollowEnd::JobEnd(report.map(Box::new), ranks))
            }
            (_, None) => FollowEnd::Left,
        }
    }

    /// Asks until the job has ended, another start of it has begun, or a later job of the name is there. The last answer after `within`, where there is one.
    async fn wait_for_end(&self, login: &LoginNode, within: Option<Duration>) -> Option<JobReport> {
        let begun = tokio::time::Instant::now();
        let mut pauses = PollPauses::new();
        let (mut last, mut noted_since) = (None, None);
        loop {
            match within {
                Some(_) => pauses.wait().await,
                None => tokio::time::sleep(MAX_POLL_PAUSE).await,
            }
            match login.status().await {
                Ok(report) => {
                    let forgotten = report.state.is_none() && report.queue_error.is_none();
                    let is_over = report.has_ended() || report.is_of_another_job(self.job);
                    if is_over || report.was_requeued_after(&self.run_id) || forgotten {
                        return Some(report);
                    }
                    // Whether a job starts again, only SLURM knows.
                    if let Some(end) = report.noted_end().filter(|_| !login.may_requeue())
                        && noted_since.get_or_insert_with(tokio::time::Instant::now).elapsed() >= NOTED_END_TIMEOUT
                    {
                        return Some(end);
                    }
                    last = Some(report);
                }
                Err(error) => tracing::debug!(%error, "the job is asked for again"),
            }
            if within.is_some_and(|within| begun.elapsed() >= within) {
                return last;
            }
        }
    }
}

/// Reports that SLURM starts the job again: this start has ended.
pub(crate) fn report_requeue(session: &Session, report: &JobReport) {
    session.emit_run_end(RunOutcome::Stopped);
    let job = report.job.unwrap_or_default();
    session.notice(format!("job {job} was requeued: its next start is followed"), false);
}

fn replaced_text(job: Option<u64>, next: &JobReport) -> String {
    format!("job {} is over; job {} of this name came after it", job.unwrap_or_default(), next.job.unwrap_or_default())
}

/// Reports that a later job with this name was found instead of the followed one, whose end is unknown.
pub(crate) fn report_replaced(session: &Session, job: Option<u64>, next: &JobReport) -> WorkflowEnd {
    session.emit_run_end(RunOutcome::Stopped);
    WorkflowEnd::new(Outcome::Failed, replaced_text(job, next))
}

/// Reports that the login node did not say how a job ended.
pub(crate) fn report_unknown_end(session: &Session, job: Option<u64>, ranks: Outcome) -> WorkflowEnd {
    session.emit_run_end(run_end_of(&ranks));
    let why = format!("job {}: the login node did not say how it ended", job.unwrap_or_default());
    WorkflowEnd::new(worse_outcome(ranks, Outcome::Unreachable), why)
}

fn run_end_of(ranks: &Outcome) -> RunOutcome {
    match ranks {
        Outcome::Failed => RunOutcome::Failed,
        Outcome::Stopped => RunOutcome::Stopped,
        _ => RunOutcome::Running,
    }
}

/// Reports how the job ended, or that it continues. `ranks`: how those that were followed have ended; it counts where SLURM does not say.
pub(crate) fn report_end(session: &Session, report: &JobReport, run: Option<&str>, ranks: Outcome) -> WorkflowEnd {
    let job = report.job.unwrap_or_default();
    let (mut outcome, mut end) = job_outcome(report);
    let is_stopped = ranks == Outcome::Ok && report.state == Some(JobState::Completing) && report.was_cancelled();
    let ranks = if is_stopped { Outcome::Stopped } else { ranks };
    if report.may_live() && ranks != Outcome::Ok {
        end = run_end_of(&ranks);
        outcome = worse_outcome(ranks, outcome);
    }
    if run.is_some() {
        session.emit_run_end(end);
    }
    // The advice is for a line of its own: the recap cuts long reasons.
    let is_named_below = report.notes.first_failure.as_ref().is_some_and(|(rank, ..)| rank.is_some()) && !report.is_out_of_memory;
    if let Some((cause, advice)) = report.cause()
        && !(is_named_below && matches!(report.state, Some(JobState::Failed)))
    {
        session.notice(format!("job {job}: {cause}; help: {advice}"), true);
    }
    let has_ended = end != RunOutcome::Running || report.state == Some(JobState::Completing);
    let lines = if has_ended { end_lines(report) } else { Vec::new() };
    let lines = lines.iter().map(|line| line.split("\n    help: ").next().unwrap_or_default().to_owned());
    let lines: Vec<String> = std::iter::once(format!("job {job}: {}", headline(report))).chain(lines).collect();
    WorkflowEnd::new(outcome, lines.join("; "))
}
