//! Decides which steps to start next. A pure function of the plan and the status of its steps.

use crate::model::phase::Phase;
use crate::model::step_status::StepStatus;
use crate::plan::{Plan, PlanStep};

/// What a failed step ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailurePolicy {
    /// A launch: no further step is started.
    FailFast,
    /// A teardown: the other steps still run. But a log that could not be fetched is not deleted, nor the directory of a run that may still
    /// run: the run is found by it.
    Teardown,
}

/// The steps to start now, by id. A phase is a barrier; within it each host runs its steps in order, in parallel with the other hosts.
pub(crate) fn next_steps(plan: &Plan, statuses: &[StepStatus], failure_policy: FailurePolicy) -> Vec<u32> {
    let status = |id: u32| statuses.get(id as usize).copied().unwrap_or(StepStatus::Failed);
    let failed: Vec<&PlanStep> = plan.steps.iter().filter(|step| status(step.id) == StepStatus::Failed).collect();
    if failure_policy == FailurePolicy::FailFast && !failed.is_empty() {
        return Vec::new();
    }
    let has_failed = |host: usize, phase: Phase| failed.iter().any(|step| step.host == host && step.phase == phase);
    // Ranks that could not be stopped end with their container.
    let in_container = |host: usize| plan.hosts.get(host).is_some_and(|context| context.in_container);
    let container_removed = |host: usize| {
        in_container(host) && plan.steps.iter().any(|step| step.host == host && step.phase == Phase::Remove && status(step.id).is_ok())
    };
    let may_still_run = |host: usize| has_failed(host, Phase::Remove) || has_failed(host, Phase::Stop) && !container_removed(host);
    let may_start = |step: &PlanStep| step.phase != Phase::Clean || !has_failed(step.host, Phase::Fetch) && !may_still_run(step.host);
    let unfinished = |step: &&PlanStep| match status(step.id) {
        StepStatus::Waiting => may_start(step),
        StepStatus::Running => true,
        StepStatus::Done | StepStatus::Satisfied | StepStatus::Skipped | StepStatus::Failed => false,
    };
    let Some(phase): Option<Phase> = plan.steps.iter().find(unfinished).map(|step| step.phase) else { return Vec::new() };
    let mut starting: Vec<u32> = Vec::new();
    let mut busy_hosts: Vec<usize> = Vec::new();
    for step in plan.steps.iter().filter(|step| step.phase == phase) {
        match status(step.id) {
            StepStatus::Running => busy_hosts.push(step.host),
            StepStatus::Waiting if may_start(step) && !busy_hosts.contains(&step.host) => {
                busy_hosts.push(step.host);
                starting.push(step.id);
            }
            StepStatus::Waiting | StepStatus::Done | StepStatus::Satisfied | StepStatus::Skipped | StepStatus::Failed => {}
        }
    }
    starting
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::action::{Action, reach_master::ReachMaster};
    use crate::plan::host_context::HostContext;
    use StepStatus::{Done, Failed, Running, Satisfied, Waiting};

    fn plan() -> Plan {
        let mut plan = Plan::empty(Vec::new());
        let action = || Action::ReachMaster(ReachMaster { address: String::new(), port: 1 });
        for (host, phase) in [(0, Phase::Pull), (0, Phase::Pull), (1, Phase::Pull), (0, Phase::Master), (1, Phase::Workers)] {
            plan.push(host, phase, action());
        }
        plan
    }

    #[test]
    fn phases_are_barriers_and_hosts_run_in_order() {
        let plan = plan();
        assert_eq!(next_steps(&plan, &[Waiting; 5], FailurePolicy::FailFast), [0, 2]);
        assert_eq!(next_steps(&plan, &[Done, Waiting, Running, Waiting, Waiting], FailurePolicy::FailFast), [1]);
        assert_eq!(next_steps(&plan, &[Done, Done, Running, Waiting, Waiting], FailurePolicy::FailFast), Vec::<u32>::new());
        assert_eq!(next_steps(&plan, &[Done, Satisfied, Done, Waiting, Waiting], FailurePolicy::FailFast), [3]);
        assert_eq!(next_steps(&plan, &[Done, Done, Done, Running, Waiting], FailurePolicy::FailFast), Vec::<u32>::new());
        assert_eq!(next_steps(&plan, &[Done, Done, Done, Done, Waiting], FailurePolicy::FailFast), [4]);
    }

    #[test]
    fn failure_stops_launch_but_not_teardown() {
        let plan = plan();
        let ledger = [Failed, Waiting, Done, Waiting, Waiting];
        assert_eq!(next_steps(&plan, &ledger, FailurePolicy::FailFast), Vec::<u32>::new());
        assert_eq!(next_steps(&plan, &ledger, FailurePolicy::Teardown), [1]);
    }

    #[test]
    fn possibly_live_run_keeps_its_directory() {
        let context = |contained| HostContext { run_id: "r".to_owned(), in_container: contained, ..HostContext::new("n", "h", "/b") };
        let mut plan = Plan::empty(vec![context(true), context(false)]);
        for (host, phase) in
            [(0, Phase::Stop), (1, Phase::Stop), (0, Phase::Remove), (1, Phase::Remove), (0, Phase::Clean), (1, Phase::Clean)]
        {
            plan.push(host, phase, Action::ReachMaster(ReachMaster { address: String::new(), port: 1 }));
        }
        let clean = |ledger: [StepStatus; 4]| next_steps(&plan, &[&ledger[..], &[Waiting, Waiting]].concat(), FailurePolicy::Teardown);
        assert_eq!(clean([Done, Done, Done, Done]), [4, 5]);
        assert_eq!(clean([Failed, Failed, Satisfied, Done]), [4], "with its container all of it has ended, without one nothing is known");
        assert_eq!(clean([Done, Done, Failed, Failed]), Vec::<u32>::new());
        assert_eq!(clean([Failed, Done, Failed, Done]), [5]);
    }

    #[test]
    fn unfetched_logs_are_not_deleted() {
        let mut plan = Plan::empty(Vec::new());
        for (host, phase) in [(0, Phase::Fetch), (1, Phase::Fetch), (0, Phase::Clean), (1, Phase::Clean), (0, Phase::Verify)] {
            plan.push(host, phase, Action::ReachMaster(ReachMaster { address: String::new(), port: 1 }));
        }
        assert_eq!(next_steps(&plan, &[Failed, Done, Waiting, Waiting, Waiting], FailurePolicy::Teardown), [3]);
        assert_eq!(next_steps(&plan, &[Failed, Done, Waiting, Done, Waiting], FailurePolicy::Teardown), [4]);
    }
}
