//! Answers of the login node, whole, hostile and contradictory.

use super::*;

fn report(sections: &str) -> JobReport {
    JobReport::parse(&format!("@root /shared/run\n@clock 1000\n{sections}"))
}

const RUNNING: &str = "@notes 0\n 900 0 running 20261123-200000-000c\n@nodes 0\n n0\n n1\n@ranks 2\n";

#[test]
fn squeue_decides_first() {
    let text = "@squeue 0\n 11|RUNNING|n[0-1]|1|gpu|/elsewhere|None\n 12|PENDING||1600|gpu|/shared/run/t5|ReqNodeNotAvail, May be | reserved\n@job 12\n@place 3 17\n";
    let pending = report(text);
    assert_eq!(pending.state, Some(JobState::Pending));
    assert_eq!((pending.place, pending.starts_at, pending.job), (Some((3, 17)), Some(1600), Some(12)));
    assert_eq!(pending.reason, "ReqNodeNotAvail, May be | reserved");
    let gone = report("@squeue 0\n@job 12\n@sacct 0\n 12|CANCELLED by 7|0:15|n0\n");
    assert_eq!((gone.state, gone.notes.exit_code), (Some(JobState::Cancelled), Some(143)));
    let control = report(
        "@squeue 0\n@job 12\n@sacct 1\n Slurm accounting storage is disabled\n@scontrol 0\n JobId=12 JobName=t5 JobState=FAILED ExitCode=7:0 X=1\n",
    );
    assert_eq!((control.state, control.notes.exit_code), (Some(JobState::Failed), Some(7)));
}

#[test]
fn silent_controller_ends_no_job() {
    let silent = "@squeue 1\n slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n@job 12\n";
    let running = report(&format!("{silent}{RUNNING}"));
    assert_eq!((&running.state, running.is_by_status_file), (&Some(JobState::Running), true));
    assert!(running.queue_error.as_ref().is_some_and(|text| text.contains("Unable to contact")));
    assert_eq!((running.nodes.len(), running.ranks_per_node), (2, 2));
    assert_eq!(report(silent).state, None, "nothing is known, so nothing is said");
    let ended = report(&format!("{silent}{RUNNING}@notes 0\n 950 0 first 2 n1 7\n 951 0 ended 7\n"));
    assert_eq!(ended.state, Some(JobState::Failed));
    assert_eq!(ended.notes.first_failure, Some((Some(2), "n1".to_owned(), 7)));
    let launcher = report(&format!("{silent}{RUNNING}@notes 0\n 950 0 first launcher n1 9\n 951 0 ended 9\n"));
    assert_eq!(launcher.notes.first_failure, Some((None, "n1".to_owned(), 9)));
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
fn noted_end_counts_while_slurm_completes_the_job() {
    let noted = |state: &str, notes: &str| {
        let queue = format!("@squeue 0\n 12|{state}|n0|1|gpu|/shared/run/t5|None\n@job 12\n");
        report(&format!("{queue}{RUNNING}@notes 0\n{notes}")).noted_end().map(|end| (end.state, end.is_by_status_file))
    };
    let failed = " 950 0 first 2 n1 7\n 951 0 ended 7\n";
    assert_eq!(noted("COMPLETING", failed), Some((Some(JobState::Failed), true)));
    assert_eq!(noted("COMPLETING", " 951 0 ended 0\n"), Some((Some(JobState::Completed), true)));
    assert_eq!(noted("COMPLETING", ""), None, "nothing is made up");
    assert_eq!(noted("COMPLETING", " 950 0 stopping cancelled or preempted\n 951 0 ended 0\n"), None, "cancelled is no success");
    assert_eq!(noted("RUNNING", failed), None, "a start that has not noted itself yet");
    // Of a job that has not ended SLURM says 0:0.
    for running in ["@squeue 1\n refused\n@job 12\n@sacct 0\n 12|RUNNING|0:0|n0\n", "@squeue 0\n@job 12\n@sacct 0\n 12|COMPLETING|0:0|n0\n"]
    {
        let running = report(&format!("{running}{RUNNING}"));
        assert_eq!((running.notes.exit_code, running.noted_end()), (None, None));
    }
}

#[test]
fn starts_of_all_jobs_are_distinguished() {
    let starts = "@start 20261123-200000-000c 12\n n0\n n1\n@start 20261123-200500-000c 13\n n1\n n;id\n@start ../x 12\n n0\n";
    let known = report(starts).starts;
    let names: Vec<(&str, u64, usize)> = known.iter().map(|start| (start.run_id.as_str(), start.job, start.nodes.len())).collect();
    assert_eq!(names, [("20261123-200000-000c", 12, 2), ("20261123-200500-000c", 13, 1)]);
    let first = "20261123-200000-000c";
    let waits = report("@squeue 0\n 12|PENDING||1600|gpu|/shared/run/t5|BeginTime\n@job 12\n@given 20261123-200000-000c\n");
    assert!(waits.was_requeued_after(first) && waits.given_run.as_deref() == Some(first));
    let again = report("@squeue 0\n 12|RUNNING|n0|1|gpu|/x|None\n@job 12\n@notes 0\n 3 1 running 20261123-200500-000c\n");
    assert!(!again.is_of_another_job(again.job) && again.is_of_another_job(Some(11)), "a later submission is no requeue");
    assert!(!JobReport::default().is_of_another_job(Some(11)), "an answer without a job says nothing");
    assert!(again.was_requeued_after(first) && !again.was_requeued_after("20261123-200500-000c"));
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
fn refused_orders_name_the_reason() {
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

#[test]
fn step_out_of_memory_is_the_cause_of_a_failed_job() {
    let text = "@job 12\n@squeue 0\n@sacct 0\n 12|FAILED|9:0|n0\n@notes 0\n 1 0 running 20261123-200000-000c\n 2 0 first 2 n1 137\n 2 0 ended 137\n";
    let cause = |text: &str| report(text).cause().map(|(cause, _)| cause);
    assert_eq!(cause(text), Some("a rank or the job's script failed"));
    assert_eq!(cause(&format!("{text}@out-of-memory 0\n")), Some("it used more memory than it asked for"));
}

#[test]
fn cancelled_job_that_slurm_forgot_has_not_failed() {
    let ended = |stopping: &str, code: u8| {
        let text = format!("@job 12\n@squeue 0\n@notes 0\n 1 0 running 20261123-200000-000c\n 2 0 {stopping}\n 2 0 ended {code}\n");
        report(&text).state
    };
    assert_eq!(ended("stopping cancelled or preempted", 143), Some(JobState::Cancelled));
    assert_eq!(ended("stopping cancelled or preempted", 0), Some(JobState::Cancelled), "ranks may end well when they are stopped");
    assert_eq!(ended("first 1 n0 143", 143), Some(JobState::Failed));
}
