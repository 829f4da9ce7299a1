//! States and reasons of a SLURM job: what they mean, and what a person does about them.

/// A job's state, as squeue, sacct and scontrol spell it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JobState {
    Pending,
    Configuring,
    Running,
    Completing,
    Suspended,
    Completed,
    Cancelled,
    Failed,
    Timeout,
    NodeFail,
    Preempted,
    OutOfMemory,
    BootFail,
    Deadline,
    /// Another cluster of the federation started it.
    Revoked,
    /// One that this version does not know.
    Other(String),
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobPhase {
    Waiting,
    Running,
    Ended,
}

const NAMES: [(&str, JobState, JobPhase); 15] = [
    ("PENDING", JobState::Pending, JobPhase::Waiting),
    ("CONFIGURING", JobState::Configuring, JobPhase::Waiting),
    ("RUNNING", JobState::Running, JobPhase::Running),
    ("COMPLETING", JobState::Completing, JobPhase::Running),
    ("SUSPENDED", JobState::Suspended, JobPhase::Running),
    ("COMPLETED", JobState::Completed, JobPhase::Ended),
    ("CANCELLED", JobState::Cancelled, JobPhase::Ended),
    ("FAILED", JobState::Failed, JobPhase::Ended),
    ("TIMEOUT", JobState::Timeout, JobPhase::Ended),
    ("NODE_FAIL", JobState::NodeFail, JobPhase::Ended),
    ("PREEMPTED", JobState::Preempted, JobPhase::Ended),
    ("OUT_OF_MEMORY", JobState::OutOfMemory, JobPhase::Ended),
    ("BOOT_FAIL", JobState::BootFail, JobPhase::Ended),
    ("DEADLINE", JobState::Deadline, JobPhase::Ended),
    ("REVOKED", JobState::Revoked, JobPhase::Ended),
];

/// States that wait although this version gives them no name of their own.
const WAITING_STATES: [&str; 5] = ["REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"];

impl JobState {
    /// Reads `RUNNING`, `CANCELLED by 1000`; `None` where it is no state at all.
    pub(crate) fn parse(text: &str) -> Option<JobState> {
        let word = text.split(' ').next().unwrap_or_default();
        let plain = (1..=40).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
        if !plain {
            return None;
        }
        let known = NAMES.iter().find(|(name, ..)| *name == word).map(|(_, state, _)| state.clone());
        Some(known.unwrap_or_else(|| JobState::Other(word.to_owned())))
    }

    pub(crate) fn as_str(&self) -> &str {
        match self {
            JobState::Other(text) => text,
            known => NAMES.iter().find(|(_, state, _)| state == known).map_or("?", |(name, ..)| name),
        }
    }

    /// A state that this version does not know is no end.
    pub(crate) fn phase(&self) -> JobPhase {
        match self {
            JobState::Other(text) if WAITING_STATES.contains(&text.as_str()) => JobPhase::Waiting,
            JobState::Other(_) => JobPhase::Running,
            known => NAMES.iter().find(|(_, state, _)| state == known).map_or(JobPhase::Running, |(.., phase)| *phase),
        }
    }

    /// Why a job ended so, and what to do about it.
    pub(crate) fn cause(&self) -> Option<(&'static str, &'static str)> {
        Some(match self {
            JobState::Cancelled => {
                ("it was cancelled with scancel, by its owner or an administrator", "submit it again if that was not meant")
            }
            JobState::Failed => ("a rank or the job's script failed", "read the log of the rank or launcher that failed first"),
            JobState::Timeout => ("it reached its time limit", "raise slurm.time, or save checkpoints and continue from the last one"),
            JobState::NodeFail => (
                "a node was lost",
                "submit it again without that node, with args: [--exclude=NODE]; slurm.requeue: true starts the job again by itself",
            ),
            JobState::Preempted => {
                ("a job of higher priority took its nodes", "submit it again, or ask for a partition or QOS without preemption")
            }
            JobState::OutOfMemory => {
                ("it used more memory than it asked for", "ask for more, for example args: [--mem=0] for all of the node's")
            }
            JobState::BootFail => ("a node did not start", "submit it again; tell the administrators which node it was"),
            JobState::Deadline => ("it could not end before its --deadline", "remove --deadline from slurm.args, or lower slurm.time"),
            JobState::Revoked => (
                "another cluster of the federation started it",
                "set slurm.login to a login node of that cluster: `squeue --federation` names it",
            ),
            JobState::Pending
            | JobState::Configuring
            | JobState::Running
            | JobState::Completing
            | JobState::Suspended
            | JobState::Completed
            | JobState::Other(_) => return None,
        })
    }
}

/// What a job in the queue waits for, and what to do where waiting does not help.
pub(crate) fn explain_pending(reason: &str) -> Option<&'static str> {
    let word = reason.split([',', ' ']).next().unwrap_or_default();
    Some(match word {
        "Priority" => "jobs of higher priority are before it",
        "Resources" => "it is the next: it waits for free nodes, CPUs or GPUs",
        "Dependency" => "it waits for another job (--dependency in slurm.args)",
        "DependencyNeverSatisfied" => "the job that it depends on cannot end as asked: it never starts; cancel it",
        "BeginTime" => "its start time is not reached; a requeued job waits for two minutes",
        "JobHeldUser" => "it is held; `scontrol release` lets it go",
        "JobHeldAdmin" => "an administrator holds it; ask them",
        "JobArrayTaskLimit" => "the array's limit of running tasks is reached",
        "PartitionTimeLimit" => "slurm.time is longer than the partition allows: it never starts; cancel it and lower slurm.time",
        "PartitionNodeLimit" => "slurm.nodes is more than the partition allows: it never starts; cancel it and lower slurm.nodes",
        "PartitionDown" | "PartitionInactive" => "the partition takes no jobs now",
        "BadConstraints" => "no node fits the options any more: it never starts; cancel it and look at slurm.args",
        "ReqNodeNotAvail" => "a node that it asks for is down, drained or reserved, perhaps for maintenance before slurm.time is over",
        "Reservation" => "its reservation has not begun",
        "Licenses" => "no licence is free",
        "Nodes" => "nodes that it needs are down, drained or reserved",
        _ if word.starts_with("QOS") => "a limit of the QOS is reached",
        _ if word.starts_with("Assoc") => "a limit of the account is reached",
        _ => return None,
    })
}

/// What to do where sbatch refuses a job.
pub(crate) fn explain_refusal(text: &str) -> &'static str {
    const KNOWN: [(&str, &str); 10] = [
        (
            "node configuration is not available",
            "no node of the partition has so many GPUs or CPUs: `sinfo -o '%P %G %c %l'` on the login node lists them; lower slurm.gpus_per_node or slurm.cpus_per_task",
        ),
        (
            "generic resource",
            "this cluster names GPUs in another way: try args: [\"--gres=gpu:8\"], as `sinfo -o %G` on the login node names them",
        ),
        ("More processors requested", "lower slurm.cpus_per_task, or ask for more nodes"),
        ("ode count", "lower slurm.nodes, or take another slurm.partition"),
        // A limit, not a wrong account.
        (
            "accounting/QOS policy",
            "a limit of your account or QOS is reached: ask for fewer nodes or less time, or add a QOS that you may use: args: [--qos=NAME]",
        ),
        // Before `partition`: `Invalid account or account/partition combination specified`.
        ("account", "add the account that you may use: args: [--account=NAME]; `sacctmgr show assoc user=$USER` lists them"),
        ("partition", "`sinfo -o '%P %l'` on the login node lists the partitions: set slurm.partition"),
        ("qos", "add a QOS that you may use: args: [--qos=NAME]"),
        ("time limit", "lower slurm.time; `sinfo -o '%P %l'` on the login node lists the limits"),
        ("unrecognized option", "remove the option from slurm.args: this cluster's sbatch does not know it"),
    ];
    let known = KNOWN.iter().find(|(words, _)| text.contains(words));
    known.map_or("`orchestrate slurm render` prints the script that sbatch refused; nothing was submitted", |(_, advice)| advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_and_written_alike() {
        for (name, state, phase) in NAMES {
            assert_eq!(JobState::parse(name), Some(state.clone()));
            assert_eq!((state.as_str(), state.phase()), (name, phase));
        }
        assert_eq!(JobState::parse("CANCELLED by 2001"), Some(JobState::Cancelled));
        let unknown = JobState::parse("STAGE_OUT").expect("a state");
        assert_eq!((unknown.as_str(), unknown.phase()), ("STAGE_OUT", JobPhase::Running), "an unknown state is no end");
        assert_eq!(JobState::parse("REQUEUE_HOLD").map(|state| state.phase()), Some(JobPhase::Waiting));
        for wrong in ["", "running", "RUN NING\u{1b}", "A1", &"X".repeat(41)].into_iter().filter(|text| !text.starts_with("RUN")) {
            assert_eq!(JobState::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn ends_other_than_success_have_a_cause_and_advice() {
        for (name, state, phase) in NAMES {
            assert_eq!(state.cause().is_some(), phase == JobPhase::Ended && name != "COMPLETED", "{name}");
        }
    }

    #[test]
    fn scripts_know_the_same_ends() {
        let (login, docker) = (include_str!("../../../assets/slurm/login.sh"), include_str!("../../../assets/slurm/docker.sh"));
        let pyxis = include_str!("../../../assets/slurm/remove-pyxis.sh");
        let has = |script: &str, name: &str| script.contains(&format!(" {name} ")) || script.contains(&format!(" {name})"));
        for (name, _, phase) in NAMES {
            assert_eq!(has(login, name), phase == JobPhase::Ended, "{name}");
            assert!(phase != JobPhase::Ended || has(docker, name) && has(pyxis, name), "{name}");
        }
    }

    #[test]
    fn reasons_are_recognized_by_their_first_word() {
        assert!(explain_pending("ReqNodeNotAvail, UnavailableNodes:n1").is_some());
        assert!(explain_pending("Nodes required for job are DOWN, DRAINED or reserved").is_some());
        assert!(explain_pending("QOSMaxGRESPerUser").is_some_and(|text| text.contains("QOS")));
        assert_eq!(explain_pending("Something"), None);
    }

    #[test]
    fn refusals_get_the_advice_of_their_cause() {
        let advice = [
            ("Invalid account or account/partition combination specified", "--account="),
            ("Invalid partition name specified", "set slurm.partition"),
            ("Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", "a limit of your account"),
            ("Requested time limit is invalid (missing or exceeds some limit)", "lower slurm.time"),
        ];
        for (text, part) in advice {
            let text = format!("allocation failure: {text}");
            assert!(explain_refusal(&text).contains(part), "{text}: {}", explain_refusal(&text));
        }
    }
}
