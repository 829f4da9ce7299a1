//! What the login node says of a job: the reader of the answers of `assets/slurm/status.sh` and its siblings. Every line passes a grammar;
//! what does not is dropped.

use super::job_notes::{JobNotes, short};
use super::job_state::{JobPhase, JobState};
use crate::inventory::{is_valid_host_name, is_valid_run_id};

/// Everything that is known of a name's last job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct JobReport {
    /// `run_dir`, absolute.
    pub(crate) root: String,
    /// The login node's clock.
    pub(crate) now: i64,
    pub(crate) job: Option<u64>,
    pub(crate) state: Option<JobState>,
    /// Whether the state is that of the job's own status file: SLURM did not answer, knows the job no more, or still completes it.
    pub(crate) is_by_status_file: bool,
    /// The error of squeue, if it gave no answer.
    pub(crate) queue_error: Option<String>,
    /// A program that the login node lacks.
    pub(crate) missing: Option<String>,
    pub(crate) reason: String,
    /// Its place among those that wait for the same partitions, and how many wait.
    pub(crate) place: Option<(u32, u32)>,
    /// When it starts, as SLURM expects, or when it started.
    pub(crate) starts_at: Option<i64>,
    pub(crate) partition: String,
    pub(crate) nodes: Vec<String>,
    pub(crate) ranks_per_node: u32,
    pub(crate) notes: JobNotes,
    /// The run that `submit` gave the job's first start.
    pub(crate) given_run: Option<String>,
    /// The starts of this job and of earlier ones of the name, where they were asked for.
    pub(crate) starts: Vec<JobStart>,
    /// The live job that an order met.
    pub(crate) live: Option<u64>,
    /// The job that was submitted.
    pub(crate) submitted: Option<u64>,
    /// Why an order was not carried out.
    pub(crate) failure: Option<OrderFailure>,
    /// Whether the order may have been carried out although its command failed.
    pub(crate) is_unclear: bool,
    /// Whether SLURM ended one of its steps for its memory: it calls the job itself FAILED.
    pub(crate) is_out_of_memory: bool,
    /// Whether everything was removed that can be.
    pub(crate) is_clean: bool,
    /// What could not be removed.
    pub(crate) leftovers: Vec<String>,
}

/// One start of a job: a requeued job has several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobStart {
    pub(crate) job: u64,
    pub(crate) run_id: String,
    pub(crate) nodes: Vec<String>,
}

/// The command that failed, and its message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OrderFailure {
    pub(crate) command: &'static str,
    pub(crate) exit_code: i32,
    pub(crate) text: String,
}

/// The most nodes of a job that are believed.
const MAX_NODES: usize = 4096;
/// The most starts that are believed: of many jobs, each of which gives up after ten.
const MAX_STARTS: usize = 200;

impl JobReport {
    pub(crate) fn parse(answer: &str) -> JobReport {
        let mut reader = AnswerReader::default();
        let mut section: Option<(&str, &str)> = None;
        let mut body: Vec<&str> = Vec::new();
        for line in answer.lines().chain(std::iter::once("@end 0")) {
            if let Some(text) = line.strip_prefix(' ') {
                body.push(text);
            } else if let Some(head) = line.strip_prefix('@') {
                if let Some((label, value)) = section {
                    reader.apply_section(label, value, &body);
                }
                body.clear();
                section = Some(head.split_once(' ').unwrap_or((head, "")));
            }
        }
        reader.conclude()
    }

    /// `None`: no job, or nothing is known of it.
    pub(crate) fn phase(&self) -> Option<JobPhase> {
        self.state.as_ref().map(JobState::phase)
    }

    /// Why the job ended so, and what to do about it.
    pub(crate) fn cause(&self) -> Option<(&'static str, &'static str)> {
        match &self.state {
            Some(JobState::Failed) if self.is_out_of_memory => JobState::OutOfMemory.cause(),
            state => state.as_ref().and_then(JobState::cause),
        }
    }

    /// Whether the job may still be there: a slurmctld that does not answer says nothing of its end.
    pub(crate) fn may_live(&self) -> bool {
        self.job.is_some() && !self.has_ended() && (self.state.is_some() || self.queue_error.is_some())
    }

    /// Only SLURM decides when a job that may be requeued has ended: the job's own note of an end covers one start.
    pub(crate) fn doubt_end_of_one_start(mut self) -> JobReport {
        if self.is_by_status_file && self.queue_error.is_some() && self.has_ended() {
            self.state = None;
        }
        self
    }

    /// Whether this is another job than `followed`: a later submission of the name.
    pub(crate) fn is_of_another_job(&self, followed: Option<u64>) -> bool {
        self.job.is_some() && followed.is_some() && self.job != followed
    }

    /// Whether the job was started again, or will be, after `run`, one of its starts.
    pub(crate) fn was_requeued_after(&self, run: &str) -> bool {
        let other = self.notes.run_id.as_ref().is_some_and(|last| last != run);
        other || self.phase() == Some(JobPhase::Waiting)
    }

    /// The end that the job's script has noted, where SLURM completes the job: a node that runs an epilogue keeps it COMPLETING. Why a job was
    /// stopped, only SLURM knows.
    pub(crate) fn noted_end(&self) -> Option<JobReport> {
        let notes = &self.notes;
        let has_noted = self.state == Some(JobState::Completing) && notes.exit_code.is_some() && notes.stopping.is_none();
        has_noted.then(|| JobReport { state: self.state_by_notes(), is_by_status_file: true, ..self.clone() })
    }

    /// Whether its ranks were stopped for another reason than its time limit, as its script noted.
    pub(crate) fn was_cancelled(&self) -> bool {
        self.notes.stopping.as_ref().is_some_and(|why| why.starts_with("cancelled"))
    }

    /// Whether SLURM or the job itself says that it is over.
    pub(crate) fn has_ended(&self) -> bool {
        self.phase() == Some(JobPhase::Ended)
    }
}

/// The answers of a script, before they are weighed.
#[derive(Default)]
struct AnswerReader {
    report: JobReport,
    queue: Vec<QueueLine>,
    accounting: Option<(u64, JobState, Option<u8>)>,
    control: Option<(u64, JobState, Option<u8>)>,
}

impl AnswerReader {
    fn apply_section(&mut self, label: &str, value: &str, body: &[&str]) {
        let code = value.parse::<i32>().unwrap_or(-1);
        let report = &mut self.report;
        match label {
            "root" if value.starts_with('/') => value.clone_into(&mut report.root),
            "clock" => report.now = value.parse().unwrap_or_default(),
            "missing" => report.missing = Some(short(value)),
            "job" => report.job = job_id(value),
            "live" => report.live = job_id(value),
            "out-of-memory" => report.is_out_of_memory = true,
            "submitted" => report.submitted = job_id(value),
            "squeue" if code == 0 => self.queue.extend(body.iter().filter_map(|line| QueueLine::parse(line))),
            "squeue" => report.queue_error = Some(last_line(body, code)),
            "partitions" if code != 0 => {
                let failure = OrderFailure { command: "sinfo", exit_code: code, text: last_line(body, code) };
                report.queue_error =
                    Some(failure).filter(OrderFailure::is_silence).map(|failure| failure.text).or(report.queue_error.take());
            }
            "sacct" if code == 0 => self.accounting = body.iter().find_map(|line| parse_accounting(line)),
            "scontrol" if code == 0 => self.control = body.iter().find_map(|line| parse_control(line)),
            "place" => {
                let mut numbers = value.split(' ').map(|word| word.parse::<u32>().ok());
                report.place = numbers.next().flatten().zip(numbers.next().flatten());
            }
            "notes" => body.iter().for_each(|line| report.notes.apply_line(line)),
            "nodes" if code == 0 => report.nodes = node_names(body),
            "given" if is_valid_run_id(value) => report.given_run = Some(value.to_owned()),
            "start" if report.starts.len() < MAX_STARTS => {
                let start = value.split_once(' ').filter(|(run, _)| is_valid_run_id(run));
                let start =
                    start.and_then(|(run, job)| Some(JobStart { job: job_id(job)?, run_id: run.to_owned(), nodes: node_names(body) }));
                report.starts.extend(start);
            }
            "ranks" => report.ranks_per_node = value.parse().unwrap_or_default(),
            "test" | "sbatch" | "scancel" if code != 0 => {
                let command = OrderFailure::command_of(label);
                report.failure = Some(OrderFailure { command, exit_code: code, text: last_line(body, code) });
            }
            "unclear" => {
                report.is_unclear = true;
                report.failure = Some(OrderFailure { command: "sbatch", exit_code: code, text: last_line(body, code) });
            }
            "failed" => report.failure = Some(OrderFailure { command: "the run directory", exit_code: 1, text: short(value) }),
            "clean" => report.is_clean = true,
            "left" => report.leftovers.push(short(value)),
            _ => {}
        }
    }

    /// Weighs the answers: squeue before sacct before scontrol before the job's own file.
    fn conclude(mut self) -> JobReport {
        let Some(job) = self.report.job else { return self.report };
        if let Some(line) = self.queue.into_iter().find(|line| line.job == job) {
            let report = &mut self.report;
            (report.reason, report.starts_at, report.partition) = (line.reason, line.starts_at, line.partition);
            report.state = Some(line.state);
        }
        for known in [self.accounting, self.control] {
            let Some((_, state, exit_code)) = known.filter(|(id, ..)| *id == job) else { continue };
            // A job that has not ended has exit code 0 there.
            let exit_code = exit_code.filter(|_| state.phase() == JobPhase::Ended);
            self.report.notes.exit_code = self.report.notes.exit_code.or(exit_code);
            self.report.state.get_or_insert(state);
        }
        if self.report.state.is_none() {
            self.report.state = self.report.state_by_notes();
            self.report.is_by_status_file = self.report.state.is_some();
        }
        self.report
    }
}

impl JobReport {
    /// What the status file says. A job that wrote no end and that SLURM has forgotten was killed: nothing is made up for it.
    fn state_by_notes(&self) -> Option<JobState> {
        match self.notes.exit_code {
            Some(_) if self.was_cancelled() => Some(JobState::Cancelled),
            Some(0) => Some(JobState::Completed),
            Some(_) => Some(JobState::Failed),
            None if self.notes.failure.is_some() => Some(JobState::Failed),
            None if self.queue_error.is_some() && self.notes.run_id.is_some() => Some(JobState::Running),
            None => None,
        }
    }
}

impl OrderFailure {
    /// Whether slurmctld gave no answer: then nothing was refused.
    pub(crate) fn is_silence(&self) -> bool {
        const WORDS: [&str; 3] = ["Unable to contact slurm controller", "Socket timed out", "Zero Bytes"];
        matches!(self.exit_code, 124 | 137) || WORDS.iter().any(|words| self.text.contains(words))
    }

    fn command_of(label: &str) -> &'static str {
        match label {
            "test" => "sbatch --test-only",
            "sbatch" => "sbatch",
            _ => "scancel",
        }
    }
}

/// `<id>|<state>|<nodes>|<start>|<partition>|<directory>|<reason>`; the reason may have any sign in it.
struct QueueLine {
    job: u64,
    state: JobState,
    starts_at: Option<i64>,
    partition: String,
    reason: String,
}

impl QueueLine {
    fn parse(line: &str) -> Option<QueueLine> {
        let fields: Vec<&str> = line.splitn(7, '|').collect();
        let [job, state, _nodes, start, partition, _dir, reason] = fields[..] else { return None };
        Some(QueueLine {
            job: job_id(job)?,
            state: JobState::parse(state)?,
            starts_at: start.parse().ok(),
            partition: short(partition),
            reason: if reason == "None" { String::new() } else { short(reason) },
        })
    }
}

/// `<id>|<state>|<code>:<signal>|<nodes>` of sacct.
fn parse_accounting(line: &str) -> Option<(u64, JobState, Option<u8>)> {
    let mut fields = line.split('|');
    let (job, state, code) = (fields.next()?, fields.next()?, fields.next()?);
    Some((job_id(job)?, JobState::parse(state)?, parse_exit_code(code)))
}

/// `JobId=12 … JobState=FAILED … ExitCode=7:0 …` of `scontrol -o show job`.
fn parse_control(line: &str) -> Option<(u64, JobState, Option<u8>)> {
    let field = |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    Some((job_id(field("JobId")?)?, JobState::parse(field("JobState")?)?, field("ExitCode").and_then(parse_exit_code)))
}

/// `7:0`; `0:9` is a signal, which a shell would report as 137.
fn parse_exit_code(text: &str) -> Option<u8> {
    let (code, signal) = text.split_once(':')?;
    let (code, signal): (u8, u8) = (code.parse().ok()?, signal.parse().ok()?);
    Some(if signal == 0 { code } else { signal.saturating_add(128) })
}

fn node_names(body: &[&str]) -> Vec<String> {
    body.iter().filter(|name| is_valid_host_name(name)).take(MAX_NODES).map(|name| (*name).to_owned()).collect()
}

/// Digits alone: parts of arrays and heterogeneous jobs are not ours.
fn job_id(text: &str) -> Option<u64> {
    let plain = (1..=9).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    if plain { text.parse().ok() } else { None }
}

fn last_line(body: &[&str], code: i32) -> String {
    let last_line = body.iter().rev().find(|line| !line.trim().is_empty()).map(|line| short(line));
    match (code, last_line) {
        (124 | 137, None) => "no answer within 20 s".to_owned(),
        (_, Some(last_line)) => last_line,
        (_, None) => format!("exit status {code}"),
    }
}

#[cfg(test)]
#[path = "job_report_tests.rs"]
mod tests;
