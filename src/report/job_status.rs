//! What a person reads of a SLURM job: its state, why it waits, how it ended and what to do.

use crate::event::{Outcome, RunOutcome};
use crate::plan::slurm::job_report::JobReport;
use crate::plan::slurm::job_state::{JobPhase, JobState, explain_pending};
use crate::report::style::format_duration;
use crate::text::hostlist::fold_names;

/// The lines of `slurm status`.
pub(crate) fn status_lines(name: &str, report: &JobReport) -> Vec<String> {
    let Some(job) = report.job else {
        return match &report.queue_error {
            Some(error) => vec![silent_line(error), format!("nothing of {name} is in the run directory")],
            None => vec![format!("no job of {name}")],
        };
    };
    let mut lines = vec![format!("job {job}  {name}  {}", headline(report))];
    if report.phase() == Some(JobPhase::Waiting) {
        lines.extend(pending_lines(report));
    }
    lines.extend(report.notes.run_id.iter().map(|run| format!("  run {run}")));
    let running = report.phase() == Some(JobPhase::Running);
    lines.extend(report.notes.task.iter().filter(|_| running).map(|task| format!("  task {task}")));
    if let Some(why) = report.notes.stopping.as_ref().filter(|_| running) {
        lines.push(format!("  stopping the ranks: {why}"));
    }
    if report.has_ended() || matches!(report.state, None | Some(JobState::Completing)) {
        lines.extend(end_lines(report).into_iter().map(|line| format!("  {line}")));
    }
    if let Some(error) = &report.queue_error {
        lines.push(silent_line(error));
    }
    lines
}

fn silent_line(error: &str) -> String {
    format!("slurmctld does not answer: {error}\n    help: the state is that of the job's own files; ask again later")
}

/// `RUNNING on n[0-1]`.
pub(crate) fn headline(report: &JobReport) -> String {
    let Some(state) = &report.state else { return "unknown".to_owned() };
    let nodes = if report.nodes.is_empty() { String::new() } else { format!(" on {}", fold_names(&report.nodes)) };
    let reason =
        if state.phase() == JobPhase::Waiting && !report.reason.is_empty() { format!(" ({})", report.reason) } else { String::new() };
    let source = if report.is_by_status_file { ", by its status file" } else { "" };
    let since = match (state.phase(), report.starts_at) {
        // How long it has been COMPLETING is not known.
        (JobPhase::Running, Some(start)) if start <= report.now && *state != JobState::Completing => {
            format!(" for {}", format_duration((report.now - start) * 1000))
        }
        _ => String::new(),
    };
    format!("{}{reason}{nodes}{since}{source}", state.as_str())
}

/// Why it waits, its place, and when it is expected to start.
pub(crate) fn pending_lines(report: &JobReport) -> Vec<String> {
    let mut lines: Vec<String> = explain_pending(&report.reason).map(|text| format!("  {text}")).into_iter().collect();
    let place = report.place.map(|(place, count)| format!("place {place} of {count} that wait in partition {}", report.partition));
    let start = report.starts_at.filter(|start| *start > report.now);
    let start = start.map(|start| format!("expected to start in {}", format_duration((start - report.now) * 1000)));
    let both: Vec<String> = place.into_iter().chain(start).collect();
    if !both.is_empty() {
        lines.push(format!("  {}", both.join("; ")));
    }
    lines
}

/// How it ended: the rank that failed first, the cause, and what to do.
pub(crate) fn end_lines(report: &JobReport) -> Vec<String> {
    let notes = &report.notes;
    let mut lines = Vec::new();
    if let Some((rank, node, code)) = &notes.first_failure {
        lines.push(match rank {
            Some(rank) => format!("rank {rank} on {node} failed first, with exit code {code}"),
            None => format!("the launcher on {node} failed first, with exit code {code}"),
        });
    }
    lines.extend(notes.failure.iter().map(|why| format!("the job's script gave up: {why}")));
    if matches!(report.state, Some(JobState::Failed)) && notes.noted_at == 0 {
        let cause = "it wrote nothing into run_dir: the first node may not see it";
        lines.push(format!("{cause}\n    help: set run_dir to a directory that all nodes share"));
    }
    // Where SLURM names the cause itself, it knows better than the script, which saw only a signal.
    let by_script = matches!(report.state, None | Some(JobState::Completed | JobState::Failed | JobState::Timeout));
    lines.extend(notes.stopping.iter().filter(|_| by_script).map(|why| format!("its ranks were stopped: {why}")));
    match &report.state {
        None if report.queue_error.is_some() => {}
        None => lines.push(
            "SLURM no longer knows it, and it wrote no end: it was killed, or its node was lost\n    help: with accounting `sacct` knows more; look at the logs".to_owned(),
        ),
        Some(_) => lines.extend(report.cause().map(|(cause, advice)| format!("cause: {cause}\n    help: {advice}"))),
    }
    lines
}

/// How a job ended: for the exit code, and for the run's record.
pub(crate) fn job_outcome(report: &JobReport) -> (Outcome, RunOutcome) {
    match &report.state {
        Some(JobState::Completed) => (Outcome::Ok, RunOutcome::Ok),
        Some(JobState::Cancelled) => (Outcome::Stopped, RunOutcome::Stopped),
        Some(state) if state.phase() != JobPhase::Ended => (Outcome::Ok, RunOutcome::Running),
        None if report.queue_error.is_some() => (Outcome::Unreachable, RunOutcome::Running),
        Some(_) | None => (Outcome::Failed, RunOutcome::Failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::slurm::job_notes::JobNotes;
    use crate::text::translation::Lang;

    fn report(state: JobState) -> JobReport {
        JobReport { job: Some(12), now: 10_000, state: Some(state), ..JobReport::default() }
    }

    #[test]
    fn pending_job_says_reason_place_and_start() {
        let pending = JobReport {
            reason: "Priority".to_owned(),
            place: Some((3, 17)),
            partition: "gpu".to_owned(),
            starts_at: Some(10_600),
            ..report(JobState::Pending)
        };
        let lines = status_lines("t5", &pending);
        assert_eq!(lines[0], "job 12  t5  PENDING (Priority)");
        assert_eq!(lines[1], "  jobs of higher priority are before it");
        assert!(lines[2].starts_with("  place 3 of 17 that wait in partition gpu; expected to start in 10m"), "{}", lines[2]);
        assert_eq!(job_outcome(&pending), (Outcome::Ok, RunOutcome::Running));
    }

    #[test]
    fn failed_job_names_the_first_rank_and_the_next_step() {
        let notes = JobNotes { noted_at: 9_000, first_failure: Some((Some(2), "n1".to_owned(), 7)), ..JobNotes::default() };
        let failed = JobReport { notes, nodes: vec!["n0".to_owned(), "n1".to_owned()], ..report(JobState::Failed) };
        let silent = end_lines(&report(JobState::Failed)).join("\n");
        assert!(silent.starts_with("it wrote nothing into run_dir: the first node may not see it\n    help: set run_dir"), "{silent}");
        let text = status_lines("t5", &failed).join("\n");
        assert!(text.starts_with("job 12  t5  FAILED on n[0-1]\n  rank 2 on n1 failed first, with exit code 7\n  cause: "), "{text}");
        assert_eq!(job_outcome(&failed).0, Outcome::Failed);
        assert_eq!(job_outcome(&report(JobState::Cancelled)).0, Outcome::Stopped);
    }

    #[test]
    fn completing_job_names_its_first_rank_and_no_duration() {
        let notes = JobNotes { noted_at: 9_000, first_failure: Some((Some(2), "n1".to_owned(), 7)), ..JobNotes::default() };
        let completing = JobReport { notes, starts_at: Some(9_000), ..report(JobState::Completing) };
        let lines = status_lines("t5", &completing);
        assert_eq!(lines, ["job 12  t5  COMPLETING", "  rank 2 on n1 failed first, with exit code 7"]);
    }

    #[test]
    fn status_is_translated_line_by_line() {
        let notes = JobNotes { noted_at: 9_000, first_failure: Some((Some(2), "n1".to_owned(), 7)), ..JobNotes::default() };
        let failed = JobReport { notes, nodes: vec!["n0".to_owned(), "n1".to_owned()], ..report(JobState::Failed) };
        let pending =
            JobReport { reason: "Priority".to_owned(), place: Some((3, 17)), partition: "gpu".to_owned(), ..report(JobState::Pending) };
        let chinese = |report| Lang::Zh.lines(&status_lines("t5", report).join("\n")).into_owned();
        let (failed, pending) = (chinese(&failed), chinese(&pending));
        assert!(failed.contains("\n  n1 上的 rank 2 最先失败，退出码 7\n  原因：") && failed.contains("\n    建议："), "{failed}");
        assert!(pending.ends_with("\n  前面有更高优先级的作业\n  在分区 gpu 的 17 个等待作业中排第 3"), "{pending}");
    }

    #[test]
    fn silent_controller_is_reported_and_ends_nothing() {
        let silent = JobReport {
            state: Some(JobState::Running),
            is_by_status_file: true,
            queue_error: Some("Unable to contact slurm controller".to_owned()),
            ..report(JobState::Running)
        };
        let text = status_lines("t5", &silent).join("\n");
        assert!(text.contains("RUNNING, by its status file") && text.contains("slurmctld does not answer: Unable"), "{text}");
        assert_eq!(job_outcome(&silent).0, Outcome::Ok);
        let unknown = JobReport { state: None, ..silent };
        let text = status_lines("t5", &unknown).join("\n");
        assert!(text.contains("slurmctld does not answer") && !text.contains("no longer knows"), "{text}");
        assert_eq!(job_outcome(&unknown), (Outcome::Unreachable, RunOutcome::Running));
    }
}
