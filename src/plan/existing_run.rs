//! What `up` finds, as `product.md` names the cases, from the facts of all hosts.

use crate::model::exit::{Exit, RunOutcome};
use crate::plan::facts::{DockerStatus, HostFacts};
use crate::plan::process_status::{LauncherStatus, TaskStatus};
use crate::plan::protocol::run_record::diff_config_texts;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ExistingRun {
    /// Nothing of this name is anywhere, or only kept containers without a run.
    NoRun,
    /// A whole gang runs; what differs from what was asked for (nothing: equal).
    Live {
        run_id: String,
        /// `launch.nproc_per_node: 4 → 8`.
        differences: Vec<String>,
    },
    /// Tasks of `prepare` run, and no rank was started.
    Preparing { run_id: String },
    /// A run has ended on every host where it was.
    Ended { run_id: String },
    /// Some of a gang runs, some does not.
    Partial {
        /// Why it is no gang.
        reason: String,
    },
}

/// One host's part in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostRunState {
    None,
    /// Its directory is there and nothing was started.
    NotStarted,
    Running,
    Ended(Exit),
}

/// One host's part in its current run.
pub(crate) fn host_run_state(facts: &HostFacts) -> HostRunState {
    if facts.current_run.is_none() {
        return HostRunState::None;
    }
    match &facts.launcher {
        LauncherStatus::NotStarted => HostRunState::NotStarted,
        LauncherStatus::Ended { exit, .. } => HostRunState::Ended(*exit),
        // Inside a container the host does not see the pid: the container's own state decides, and the keeper writes the status of a dead one.
        LauncherStatus::Started { alive_on_host: seen } => {
            let runs = if facts.runs_in_container(true) { container_may_run(facts) } else { *seen };
            if runs { HostRunState::Running } else { HostRunState::Ended(Exit::Killed) }
        }
    }
}

/// The tasks of `prepare` that run on a host.
pub(crate) fn running_tasks(facts: &HostFacts) -> Vec<u32> {
    if facts.current_run.is_none() || facts.launcher != LauncherStatus::NotStarted {
        return Vec::new();
    }
    let in_container = facts.runs_in_container(true);
    let container_runs = container_may_run(facts);
    let runs = |number: &u32, status: &TaskStatus| {
        let is_contained = in_container && !facts.host_task_numbers.contains(number);
        matches!(status, TaskStatus::Started { alive_on_host } if if is_contained { container_runs } else { *alive_on_host })
    };
    facts.tasks.iter().filter(|(number, status)| runs(number, status)).map(|(number, _)| *number).collect()
}

/// Whether the tasks of a run without ranks ended well; `None`: there are no tasks, some run, or ranks were started.
pub(crate) fn ended_tasks_ok(facts: &[HostFacts]) -> Option<bool> {
    let launched = facts.iter().any(|facts| facts.launcher != LauncherStatus::NotStarted);
    let ended: Vec<Exit> = facts
        .iter()
        .flat_map(|facts| facts.tasks.values())
        .map(|status| if let TaskStatus::Ended(exit) = status { *exit } else { Exit::Killed })
        .collect();
    let runs = facts.iter().any(|facts| !running_tasks(facts).is_empty());
    (!launched && !runs && !ended.is_empty()).then(|| ended.iter().all(|exit| exit.is_success()))
}

/// The hosts on which ranks run, each with its run: the gang need not be whole, nor of these hosts.
pub(crate) fn running_ranks(facts: &[HostFacts], names: &[String]) -> Vec<(String, String)> {
    let running = names.iter().zip(facts).filter(|(_, facts)| host_run_state(facts) == HostRunState::Running);
    running.filter_map(|(name, facts)| Some((name.clone(), facts.current_run.clone()?))).collect()
}

/// Whether the container runs; where docker does not answer, nothing says that it has ended.
fn container_may_run(facts: &HostFacts) -> bool {
    is_docker_state_unknown(facts) || facts.container().is_some_and(|c| c.status == "running" || c.status == "paused")
}

/// Whether docker does not report what is on the host.
pub(crate) fn is_docker_state_unknown(facts: &HostFacts) -> bool {
    matches!(facts.docker, DockerStatus::Unusable(_)) && facts.containers.is_empty()
}

/// Whether the gang has all hosts that it needs, and whether a rank failed that it cannot do without.
fn gang_health<'a>(mut facts: impl Iterator<Item = &'a HostFacts> + Clone, states: &[HostRunState]) -> (bool, bool) {
    let record = facts.clone().find_map(HostFacts::run_record);
    // A launcher that ended successfully just before the others still belongs to a complete gang.
    let fine = states.iter().filter(|state| matches!(state, HostRunState::Running | HostRunState::Ended(Exit::Code(0)))).count();
    // An elastic gang may lose hosts; a launcher that starts workers again may lose those.
    let least = record.map(|record| record.min_hosts).filter(|least| *least > 0).unwrap_or(states.len());
    let restarts = record.is_some_and(|record| record.tolerates_rank_loss);
    (fine >= least.min(states.len()), !restarts && facts.any(HostFacts::has_failed_rank))
}

/// How the current run of these hosts ended, or that it runs, and the second of its end on the hosts' clocks; `None`: nothing was started.
pub(crate) fn run_outcome(facts: &[&HostFacts]) -> Option<(RunOutcome, f64)> {
    let facts: Vec<&HostFacts> = facts.iter().copied().filter(|f| f.current_run.is_some()).collect();
    let parts: Vec<HostRunState> = facts.iter().map(|f| host_run_state(f)).collect();
    let ranks = || facts.iter().flat_map(|f| &f.ranks);
    let (is_whole, has_failed_rank) = gang_health(facts.iter().copied(), &parts);
    let at = |node: &LauncherStatus| if let LauncherStatus::Ended { ended_at: at, .. } = node { *at } else { 0.0 };
    let last = facts.iter().map(|f| at(&f.launcher)).chain(ranks().filter_map(|(_, _, exit)| exit.map(|(_, at)| at))).fold(0.0, f64::max);
    match parts {
        _ if facts.iter().any(|f| f.stop_requested) => Some((RunOutcome::Stopped, last)),
        parts if !parts.iter().any(|p| matches!(p, HostRunState::Running | HostRunState::Ended(_))) => None,
        _ if !is_whole || has_failed_rank => Some((RunOutcome::Failed, last)),
        parts if parts.contains(&HostRunState::Running) => Some((RunOutcome::Running, 0.0)),
        _ => Some((RunOutcome::Ok, last)),
    }
}

/// A host with a current run in a container whose state docker does not report, with docker's message.
pub(crate) fn find_host_without_docker_answer(facts: &[HostFacts]) -> Option<(usize, &HostFacts, &str)> {
    facts.iter().enumerate().find_map(|(host, facts)| match &facts.docker {
        DockerStatus::Unusable(message) if facts.current_run.is_some() && facts.runs_in_container(true) => {
            Some((host, facts, message.as_str()))
        }
        _ => None,
    })
}

/// Decides the case. `wanted`: container and launch text of each host in the inventory; empty if only the run matters.
pub(crate) fn classify_existing_run(facts: &[HostFacts], names: &[String], wanted: &[(String, String)]) -> ExistingRun {
    let parts: Vec<HostRunState> = facts.iter().map(host_run_state).collect();
    let runs: Vec<&String> = facts.iter().filter_map(|f| f.current_run.as_ref()).collect();
    let Some(run) = runs.first().map(|r| (*r).clone()) else { return ExistingRun::NoRun };
    if runs.iter().any(|r| **r != run) {
        return ExistingRun::Partial { reason: "the hosts have different runs".to_owned() };
    }
    let running = parts.iter().filter(|p| **p == HostRunState::Running).count();
    if running == 0 {
        if facts.iter().any(|facts| !running_tasks(facts).is_empty()) {
            return ExistingRun::Preparing { run_id: run };
        }
        return if parts.iter().any(|p| matches!(p, HostRunState::Ended(_))) || facts.iter().any(|facts| !facts.tasks.is_empty()) {
            ExistingRun::Ended { run_id: run }
        } else {
            ExistingRun::Partial { reason: "a launch was interrupted before anything ran".to_owned() }
        };
    }
    let (is_whole, has_failed_rank) = gang_health(facts.iter(), &parts);
    let file = facts.iter().find_map(HostFacts::run_record);
    let differs = file.map(|f| config_differences(f.hosts.iter().map(|h| &h.name), facts, names, wanted)).unwrap_or_default();
    if differs.is_empty() && (!is_whole || has_failed_rank) {
        let lacking: Vec<&str> = names.iter().zip(&parts).filter(|(_, p)| **p != HostRunState::Running).map(|(n, _)| n.as_str()).collect();
        let why = if has_failed_rank { "a rank has failed".to_owned() } else { format!("not running on {}", lacking.join(", ")) };
        return ExistingRun::Partial { reason: why };
    }
    ExistingRun::Live { run_id: run, differences: differs }
}

/// The facts as they will be when the run that is live has been stopped: what it holds is free then.
pub(crate) fn facts_after_stop(facts: &[HostFacts]) -> Vec<HostFacts> {
    let stopped = |facts: &HostFacts| {
        let mut facts = facts.clone();
        if host_run_state(&facts) == HostRunState::Running {
            facts.busy_ports.clear();
            facts.busy_gpus.clear();
        }
        facts
    };
    facts.iter().map(stopped).collect()
}

fn config_differences<'a>(
    old_texts: impl Iterator<Item = &'a String>,
    facts: &[HostFacts],
    names: &[String],
    wanted: &[(String, String)],
) -> Vec<String> {
    let mut found = Vec::new();
    let then: Vec<&String> = old_texts.collect();
    if then != names.iter().collect::<Vec<_>>() && !wanted.is_empty() {
        let list = |names: &[&String]| names.iter().map(|n| n.as_str()).collect::<Vec<_>>().join(" ");
        found.push(format!("hosts: {} → {}", list(&then), list(&names.iter().collect::<Vec<_>>())));
        return found;
    }
    for (facts, (container, launch)) in facts.iter().zip(wanted) {
        let Some(file) = facts.run_record() else { continue };
        for line in diff_config_texts(&file.container_text, container).into_iter().chain(diff_config_texts(&file.launch_text, launch)) {
            if !found.contains(&line) {
                found.push(line);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::facts::ContainerFacts;
    use crate::plan::protocol::run_record::{RunRecord, RunRecordHost};

    fn facts_with_run(node: LauncherStatus, text: &str) -> HostFacts {
        let run_file = RunRecord {
            run_id: "r1".to_owned(),
            in_container: true,
            launch_text: text.to_owned(),
            hosts: ["a", "b"].map(|n| RunRecordHost { name: n.to_owned(), ..RunRecordHost::default() }).to_vec(),
            ..RunRecord::default()
        };
        let container = ContainerFacts { id: "1".to_owned(), status: "running".to_owned(), ..ContainerFacts::default() };
        HostFacts {
            current_run: Some("r1".to_owned()),
            launcher: node,
            containers: vec![container],
            run_record: Some(Ok(run_file)),
            ..HostFacts::default()
        }
    }

    fn classify_two_hosts(nodes: [LauncherStatus; 2], wanted: &str) -> ExistingRun {
        let names = ["a".to_owned(), "b".to_owned()];
        let wanted = vec![(String::new(), wanted.to_owned()); 2];
        classify_existing_run(&nodes.map(|n| facts_with_run(n, "nproc \"4\"")), &names, &wanted)
    }

    const RUNNING: LauncherStatus = LauncherStatus::Started { alive_on_host: false };
    const SUCCEEDED: LauncherStatus = LauncherStatus::Ended { exit: Exit::Code(0), ended_at: 1.0 };
    const FAILED: LauncherStatus = LauncherStatus::Ended { exit: Exit::Code(1), ended_at: 1.0 };

    #[test]
    fn tasks_without_ranks_are_a_preparation_or_ended() {
        let names = ["a".to_owned(), "b".to_owned()];
        let with_task = |status| HostFacts { tasks: [(1, status)].into(), ..facts_with_run(LauncherStatus::NotStarted, "") };
        let classify = |first, second| classify_existing_run(&[with_task(first), with_task(second)], &names, &[]);
        let (runs, ended) = (TaskStatus::Started { alive_on_host: false }, TaskStatus::Ended(Exit::Code(0)));
        assert_eq!(classify(runs, ended), ExistingRun::Preparing { run_id: "r1".to_owned() });
        assert_eq!(classify(ended, TaskStatus::Ended(Exit::Code(1))), ExistingRun::Ended { run_id: "r1".to_owned() });
        // A container that has stopped runs no task; on a bare host the process itself counts.
        let stopped = HostFacts { containers: Vec::new(), docker: DockerStatus::Usable("27".to_owned()), ..with_task(runs) };
        assert!(running_tasks(&stopped).is_empty());
    }

    #[test]
    fn ranks_run_wherever_one_host_has_them() {
        let names = ["a".to_owned(), "b".to_owned()];
        let other = HostFacts { current_run: Some("r2".to_owned()), ..facts_with_run(RUNNING, "") };
        let ended = facts_with_run(SUCCEEDED, "");
        assert_eq!(running_ranks(&[other, ended.clone()], &names), [("a".to_owned(), "r2".to_owned())], "the hosts have different runs");
        let failed = facts_with_run(RUNNING, "");
        let with_failed_rank = HostFacts { ranks: vec![(0, 0, Some((Exit::Code(1), 1.0)))], ..failed.clone() };
        assert_eq!(running_ranks(&[with_failed_rank, failed], &names).len(), 2, "a rank has failed");
        assert!(running_ranks(&[ended.clone(), ended], &names).is_empty());
    }

    #[test]
    fn existing_runs_are_classified() {
        let run = "r1".to_owned();
        assert_eq!(classify_two_hosts([RUNNING, RUNNING], "nproc \"4\""), ExistingRun::Live { run_id: run.clone(), differences: vec![] });
        assert_eq!(classify_two_hosts([RUNNING, SUCCEEDED], "nproc \"4\""), ExistingRun::Live { run_id: run.clone(), differences: vec![] });
        assert_eq!(
            classify_two_hosts([RUNNING, RUNNING], "nproc \"8\""),
            ExistingRun::Live { run_id: run.clone(), differences: vec!["nproc: \"4\" → \"8\"".to_owned()] }
        );
        assert_eq!(classify_two_hosts([SUCCEEDED, FAILED], "nproc \"4\""), ExistingRun::Ended { run_id: run });
        assert!(matches!(classify_two_hosts([RUNNING, FAILED], "nproc \"4\""), ExistingRun::Partial { .. }));
        assert!(matches!(classify_two_hosts([RUNNING, LauncherStatus::NotStarted], "nproc \"4\""), ExistingRun::Partial { .. }));
        assert!(matches!(
            classify_two_hosts([LauncherStatus::NotStarted, LauncherStatus::NotStarted], "nproc \"4\""),
            ExistingRun::Partial { .. }
        ));
        assert_eq!(classify_existing_run(&[HostFacts::default()], &["a".to_owned()], &[]), ExistingRun::NoRun);
        let silent = HostFacts { docker: DockerStatus::Unusable("no".to_owned()), ..facts_with_run(RUNNING, "") };
        assert_eq!(find_host_without_docker_answer(&[facts_with_run(RUNNING, ""), silent.clone()]), Some((1, &silent, "no")));
        let hidden = HostFacts { containers: Vec::new(), ..silent.clone() };
        assert_eq!(host_run_state(&hidden), HostRunState::Running, "without a report it has not happened");
        assert_eq!(
            host_run_state(&HostFacts { docker: DockerStatus::Usable("27".to_owned()), ..hidden }),
            HostRunState::Ended(Exit::Killed)
        );
        assert_eq!(find_host_without_docker_answer(&[HostFacts { current_run: None, ..silent }]), None, "nothing is known to run");
    }
}
