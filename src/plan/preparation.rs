//! How far the tasks of `prepare` are that another command runs, from the facts of the hosts.

use std::collections::BTreeMap;

use crate::plan::action::lock::is_lock_stale;
use crate::plan::existing_run::{ended_tasks_ok, running_tasks};
use crate::plan::facts::HostFacts;
use crate::plan::process_status::{LauncherStatus, TaskStatus};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PreparationProgress {
    /// A task runs.
    Running,
    /// A task failed; nothing follows it.
    Failed,
    /// No task runs.
    Between {
        /// The names of the tasks that were not started, in their order.
        remaining: Vec<String>,
        /// Whether the command launches ranks after the tasks.
        launch_follows: bool,
    },
    /// Ranks were started, or another run is current.
    Replaced,
    /// No host has the run any more.
    Removed,
}

/// How far the tasks of a run are.
pub(crate) fn preparation_progress(facts: &[HostFacts], run: &str) -> PreparationProgress {
    let mut current = facts.iter().filter_map(|facts| facts.current_run.as_deref()).peekable();
    if current.peek().is_none() {
        return PreparationProgress::Removed;
    }
    if current.any(|other| other != run) || facts.iter().any(|facts| facts.launcher != LauncherStatus::NotStarted) {
        return PreparationProgress::Replaced;
    }
    if facts.iter().any(|facts| !running_tasks(facts).is_empty()) {
        return PreparationProgress::Running;
    }
    if ended_tasks_ok(facts) == Some(false) {
        return PreparationProgress::Failed;
    }
    let records = || facts.iter().filter_map(|facts| Some((facts, facts.run_record()?)));
    let remaining: BTreeMap<u32, String> = records()
        .flat_map(|(facts, record)| record.tasks.iter().chain(&record.file_tasks).filter(|(number, _)| !facts.tasks.contains_key(number)))
        .map(|(number, name)| (*number, name.clone()))
        .collect();
    let launch_follows = records().any(|(_, record)| !record.tasks_only);
    PreparationProgress::Between { remaining: remaining.into_values().collect(), launch_follows }
}

/// Whether tasks are all that there is of a run, ended or not started: no rank was started.
pub(crate) fn has_tasks_alone(facts: &[HostFacts], run: &str) -> bool {
    let has_tasks = facts.iter().filter_map(HostFacts::run_record).any(|record| !record.tasks.is_empty() || !record.file_tasks.is_empty());
    has_tasks && matches!(preparation_progress(facts, run), PreparationProgress::Between { .. })
}

/// Whether an order has stopped the run.
pub(crate) fn is_stopped(facts: &[HostFacts], run: &str) -> bool {
    facts.iter().any(|facts| facts.stop_requested && facts.current_run.as_deref() == Some(run))
}

/// Whether a task of the run ended with a failure. One that runs no more without a status is left out: its files may be removed just now. So is
/// one that an order has stopped.
pub(crate) fn has_failed_task(facts: &[HostFacts], run: &str) -> bool {
    let of_run = facts.iter().filter(|facts| facts.current_run.as_deref() == Some(run) && !facts.stop_requested);
    of_run.flat_map(|facts| facts.tasks.values()).any(|task| matches!(task, TaskStatus::Ended(exit) if !exit.is_success()))
}

/// Whether a command holds the lock of these hosts and shows that it lives.
pub(crate) fn is_lock_held(facts: &[HostFacts], laptop_id: &str, is_process_alive: fn(u32) -> bool) -> bool {
    facts.iter().filter_map(|facts| facts.lock.as_ref()).any(|lock| !is_lock_stale(lock, laptop_id, is_process_alive))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::exit::Exit;
    use crate::plan::protocol::lock_record::LockRecord;
    use crate::plan::protocol::run_record::RunRecord;

    fn host(tasks_only: bool, statuses: &[(u32, TaskStatus)]) -> HostFacts {
        let tasks = [(1, "first"), (2, "second"), (3, "third")].map(|(number, name)| (number, name.to_owned())).into();
        let record = RunRecord { run_id: "r1".to_owned(), tasks, tasks_only, ..RunRecord::default() };
        HostFacts {
            current_run: Some("r1".to_owned()),
            tasks: statuses.iter().copied().collect(),
            run_record: Some(Ok(record)),
            ..HostFacts::default()
        }
    }

    const OK: TaskStatus = TaskStatus::Ended(Exit::Code(0));
    const RUNS: TaskStatus = TaskStatus::Started { alive_on_host: true };

    #[test]
    fn tasks_that_were_not_started_remain() {
        let between = |remaining: &[&str], launch_follows| PreparationProgress::Between {
            remaining: remaining.iter().map(|name| (*name).to_owned()).collect(),
            launch_follows,
        };
        let progress = |facts: &[HostFacts]| preparation_progress(facts, "r1");
        let all = [(1, OK), (2, OK), (3, OK)];
        assert_eq!(progress(&[host(true, &[(1, OK)]), host(true, &[(1, OK), (2, OK)])]), between(&["second", "third"], false));
        assert_eq!(progress(&[host(true, &all), host(true, &all)]), between(&[], false));
        assert_eq!(progress(&[host(false, &all)]), between(&[], true));
        assert_eq!(progress(&[host(true, &[(1, OK)]), host(true, &[(1, RUNS)])]), PreparationProgress::Running);
        let sending = |done: &[(u32, TaskStatus)]| {
            let file_tasks = [(4, "files".to_owned())].into();
            let record = RunRecord { file_tasks, ..host(true, &[]).run_record().cloned().expect("a record") };
            [HostFacts { run_record: Some(Ok(record)), ..host(true, done) }]
        };
        assert_eq!(progress(&sending(&all)), between(&["files"], false), "files that were not sent remain");
        assert_eq!(progress(&sending(&[&all[..], &[(4, OK)]].concat())), between(&[], false));
        assert!(has_tasks_alone(&sending(&[]), "r1") && !has_tasks_alone(&[HostFacts::default()], "r1"));
        let failed = TaskStatus::Ended(Exit::Code(3));
        assert_eq!(progress(&[host(true, &[(1, failed)]), host(true, &[(1, OK)])]), PreparationProgress::Failed);
        assert!(has_failed_task(&[host(true, &[(1, OK)]), host(true, &[(1, failed)])], "r1"));
        let stopped = HostFacts { stop_requested: true, ..host(true, &[(1, failed)]) };
        assert!(!has_failed_task(std::slice::from_ref(&stopped), "r1") && is_stopped(&[host(true, &[]), stopped], "r1"));
        assert!(!has_failed_task(&[host(true, &[(1, failed)])], "r0") && !has_failed_task(&[host(true, &[(1, OK), (2, RUNS)])], "r1"));
        assert_eq!(preparation_progress(&[host(true, &[])], "r0"), PreparationProgress::Replaced);
        let launched = LauncherStatus::Started { alive_on_host: true };
        assert_eq!(progress(&[HostFacts { launcher: launched, ..host(false, &all) }]), PreparationProgress::Replaced);
        assert_eq!(progress(&[HostFacts::default()]), PreparationProgress::Removed);
    }

    #[test]
    fn lock_without_a_heartbeat_is_not_held() {
        let locked = |heartbeat_age, laptop: &str| HostFacts {
            lock: Some(LockRecord { token: "t".to_owned(), owner: "li@a".to_owned(), laptop_id: laptop.to_owned(), pid: 7, heartbeat_age }),
            ..HostFacts::default()
        };
        let is_held = |facts: HostFacts| is_lock_held(&[HostFacts::default(), facts], "here", |_| false);
        assert!(is_held(locked(4, "there")));
        assert!(!is_held(locked(31, "there")), "no sign of life");
        assert!(!is_held(locked(4, "here")), "its process has ended");
        assert!(!is_held(HostFacts::default()), "nobody holds it");
    }
}
