//! What the login node says of a job: the reader of the answers of `assets/slurm/status.sh` and its siblings. Every line passes a grammar;
//! what does not is dropped.

use super::job_notes::{JobNotes, short};
use super::job_state::{JobPhase, JobState};
use crate::inventory::is_valid_host_name;

/// Who said the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StateSource {
    Squeue,
    Sacct,
    Scontrol,
    /// The job's own status file: SLURM did not answer, or knows the job no more.
    StatusFile,
}

/// Everything that is known of a name's last job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct JobReport {
    /// `run_dir`, absolute.
    pub(crate) root: String,
    /// The login node's clock.
    pub(crate) now: i64,
    pub(crate) job: Option<u64>,
    pub(crate) state: Option<(JobState, StateSource)>,
    /// What squeue said instead of an answer.
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
    /// The live job that an order met.
    pub(crate) live: Option<u64>,
    /// The job that was submitted.
    pub(crate) submitted: Option<u64>,
    /// Why an order was not carried out.
    pub(crate) failure: Option<OrderFailure>,
    /// Whether the order may have been carried out although its command failed.
    pub(crate) is_unclear: bool,
    /// Whether everything was removed that can be.
    pub(crate) is_clean: bool,
    /// What could not be removed.
    pub(crate) leftovers: Vec<String>,
}

/// The command of an order that failed, and what it said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OrderFailure {
    pub(crate) command: &'static str,
    pub(crate) exit_code: i32,
    pub(crate) text: String,
}

/// The most nodes of a job that are believed.
const MAX_NODES: usize = 4096;

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
        self.state.as_ref().map(|(state, _)| state.phase())
    }

    /// Whether the job may still be there: a slurmctld that does not answer says nothing of its end.
    pub(crate) fn may_live(&self) -> bool {
        self.job.is_some() && !self.has_ended() && (self.state.is_some() || self.queue_error.is_some())
    }

    /// A job that may be requeued ends no earlier than SLURM says so: its own note of an end is that of one start.
    pub(crate) fn doubt_end_of_one_start(mut self) -> JobReport {
        let by_notes = matches!(self.state, Some((_, StateSource::StatusFile)));
        if by_notes && self.queue_error.is_some() && self.has_ended() {
            self.state = None;
        }
        self
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
            "submitted" => report.submitted = job_id(value),
            "squeue" if code == 0 => self.queue.extend(body.iter().filter_map(|line| QueueLine::parse(line))),
            "squeue" => report.queue_error = Some(last_line(body, code)),
            "sacct" if code == 0 => self.accounting = body.iter().find_map(|line| parse_accounting(line)),
            "scontrol" if code == 0 => self.control = body.iter().find_map(|line| parse_control(line)),
            "place" => {
                let mut numbers = value.split(' ').map(|word| word.parse::<u32>().ok());
                report.place = numbers.next().flatten().zip(numbers.next().flatten());
            }
            "notes" => body.iter().for_each(|line| report.notes.apply_line(line)),
            "nodes" if code == 0 => {
                report.nodes = body.iter().filter(|name| is_valid_host_name(name)).take(MAX_NODES).map(|name| (*name).to_owned()).collect();
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
            report.state = Some((line.state, StateSource::Squeue));
        }
        let by_others = [(self.accounting, StateSource::Sacct), (self.control, StateSource::Scontrol)];
        for (known, source) in by_others {
            let Some((_, state, exit_code)) = known.filter(|(id, ..)| *id == job) else { continue };
            self.report.notes.exit_code = self.report.notes.exit_code.or(exit_code);
            self.report.state.get_or_insert((state, source));
        }
        if self.report.state.is_none() {
            self.report.state = self.report.state_by_notes().map(|state| (state, StateSource::StatusFile));
        }
        self.report
    }
}

impl JobReport {
    /// What the status file says. A job that wrote no end and that SLURM has forgotten was killed: nothing is made up for it.
    fn state_by_notes(&self) -> Option<JobState> {
        match self.notes.exit_code {
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

/// `7:0`; `0:9` is a signal, which a shell would tell as 137.
fn parse_exit_code(text: &str) -> Option<u8> {
    let (code, signal) = text.split_once(':')?;
    let (code, signal): (u8, u8) = (code.parse().ok()?, signal.parse().ok()?);
    Some(if signal == 0 { code } else { signal.saturating_add(128) })
}

/// Digits alone: parts of arrays and heterogeneous jobs are not ours.
fn job_id(text: &str) -> Option<u64> {
    let plain = (1..=9).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    if plain { text.parse().ok() } else { None }
}

fn last_line(body: &[&str], code: i32) -> String {
    let said = body.iter().rev().find(|line| !line.trim().is_empty()).map(|line| short(line));
    match (code, said) {
        (124 | 137, None) => "no answer within 20 s".to_owned(),
        (_, Some(said)) => said,
        (_, None) => format!("exit status {code}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(sections: &str) -> JobReport {
        JobReport::parse(&format!("@root /shared/run\n@clock 1000\n{sections}"))
    }

    const RUNNING: &str = "@notes 0\n 900 0 running 20261123-200000-000c\n@nodes 0\n n0\n n1\n@ranks 2\n";

    #[test]
    fn squeue_decides_first() {
        let text = "@squeue 0\n 11|RUNNING|n[0-1]|1|gpu|/elsewhere|None\n 12|PENDING||1600|gpu|/shared/run/t5|ReqNodeNotAvail, May be | reserved\n@job 12\n@place 3 17\n";
        let pending = report(text);
        assert_eq!(pending.state, Some((JobState::Pending, StateSource::Squeue)));
        assert_eq!((pending.place, pending.starts_at, pending.job), (Some((3, 17)), Some(1600), Some(12)));
        assert_eq!(pending.reason, "ReqNodeNotAvail, May be | reserved");
        let gone = report("@squeue 0\n@job 12\n@sacct 0\n 12|CANCELLED by 7|0:15|n0\n");
        assert_eq!((gone.state, gone.notes.exit_code), (Some((JobState::Cancelled, StateSource::Sacct)), Some(143)));
        let control = report(
            "@squeue 0\n@job 12\n@sacct 1\n Slurm accounting storage is disabled\n@scontrol 0\n JobId=12 JobName=t5 JobState=FAILED ExitCode=7:0 X=1\n",
        );
        assert_eq!((control.state, control.notes.exit_code), (Some((JobState::Failed, StateSource::Scontrol)), Some(7)));
    }

    #[test]
    fn silent_controller_ends_no_job() {
        let silent = "@squeue 1\n slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n@job 12\n";
        let running = report(&format!("{silent}{RUNNING}"));
        assert_eq!(running.state, Some((JobState::Running, StateSource::StatusFile)));
        assert!(running.queue_error.as_ref().is_some_and(|text| text.contains("Unable to contact")));
        assert_eq!((running.nodes.len(), running.ranks_per_node), (2, 2));
        assert_eq!(report(silent).state, None, "nothing is known, so nothing is said");
        let ended = report(&format!("{silent}{RUNNING}@notes 0\n 950 0 first 2 n1 7\n 951 0 ended 7\n"));
        assert_eq!(ended.state, Some((JobState::Failed, StateSource::StatusFile)));
        assert_eq!(ended.notes.first_failure, Some((2, "n1".to_owned(), 7)));
        let requeued = ended.clone().doubt_end_of_one_start();
        assert!(requeued.state.is_none() && requeued.may_live(), "the end of one start is not the job's");
        assert!(running.doubt_end_of_one_start().state.is_some() && report(silent).may_live() && !ended.may_live());
        assert_eq!(report(&format!("@squeue 0\n@job 12\n{RUNNING}")).state, None, "SLURM has forgotten it, and it wrote no end");
    }

    #[test]
    fn later_start_forgets_the_earlier_one() {
        let text = "@notes 0\n 1 0 running 20261123-200000-000c\n 2 0 ended 1\n 3 1 running 20261123-200500-000c\n 2 0 ended 9\n";
        let notes = report(text).notes;
        assert_eq!((notes.start, notes.exit_code, notes.run_id.as_deref()), (1, None, Some("20261123-200500-000c")));
    }

    #[test]
    fn hostile_lines_are_dropped() {
        let text = "@root relative\n@job 12\n@squeue 0\n 12|run; rm|n0|1|gpu|/x|None\n@notes 0\n 1 0 running ../../etc\n 1 0 first 1 $(id) 7\n 1 0 ended 9999\n x\n\
                    @nodes 0\n n0;id\n ../x\n -n1\n n1\n";
        let report = JobReport::parse(text);
        assert_eq!((report.root.as_str(), report.state, report.notes.run_id, report.notes.first_failure), ("", None, None, None));
        assert_eq!(report.nodes, ["n1"]);
        for wrong in ["", "0", "012", "1_2", "1+0", "-1", "1234567890", "１"] {
            assert_eq!(job_id(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn orders_say_what_refused_them() {
        let refused = report("@test 1\n noise\n allocation failure: Requested node configuration is not available\n");
        let failure = refused.failure.expect("refused");
        assert_eq!((failure.command, failure.exit_code), ("sbatch --test-only", 1));
        assert!(failure.text.starts_with("allocation failure"), "{}", failure.text);
        assert!(!failure.is_silence() && !report("@test 1\n refused\n").is_unclear);
        let silent = report("@test 1\n allocation failure: Unable to contact slurm controller (connect failure)\n");
        assert!(silent.failure.is_some_and(|failure| failure.is_silence()));
        let unclear = report("@unclear 1\n sbatch: error: Socket timed out on send/recv operation\n");
        assert!(unclear.is_unclear && unclear.submitted.is_none());
        assert_eq!(report("@test 0\n fine\n@submitted 14\n").submitted, Some(14));
    }
}
