//! Decides what to start next. Pure, though it lives here: same plan, same ledger, same answer.

use crate::model::phase::Phase;
use crate::plan::{Plan, PlanStep};

/// Where a step stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepProgress {
    Waiting,
    Running,
    Done,
    Failed,
}

/// Which failures end what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailurePolicy {
    /// A failure ends everything: no further step is begun (a launch).
    FailFast,
    /// A failure ends nothing, but a log that could not be fetched is not deleted, nor the directory by which a run is found again that may
    /// still go on (a teardown).
    Teardown,
}

/// The steps to begin now. A phase is a barrier; within it each host goes through its steps in order, side by side with the others.
pub(crate) fn next_steps(plan: &Plan, progress: &[StepProgress], failure_policy: FailurePolicy) -> Vec<u32> {
    let standing = |id: u32| progress.get(id as usize).copied().unwrap_or(StepProgress::Failed);
    let failed: Vec<&PlanStep> = plan.steps.iter().filter(|s| standing(s.id) == StepProgress::Failed).collect();
    if failure_policy == FailurePolicy::FailFast && !failed.is_empty() {
        return Vec::new();
    }
    let has_failed = |host: usize, phase: Phase| failed.iter().any(|f| f.host == host && f.phase == phase);
    // Ranks that could not be stopped have ended with their container.
    let boxed = |host: usize| plan.hosts.get(host).is_some_and(|site| site.in_container);
    let removed = |host: usize| {
        boxed(host) && plan.steps.iter().any(|s| s.host == host && s.phase == Phase::Remove && standing(s.id) == StepProgress::Done)
    };
    let runs = |host: usize| has_failed(host, Phase::Remove) || has_failed(host, Phase::Stop) && !removed(host);
    let open = |step: &PlanStep| step.phase != Phase::Clean || !has_failed(step.host, Phase::Fetch) && !runs(step.host);
    let unfinished = |s: &&PlanStep| match standing(s.id) {
        StepProgress::Waiting => open(s),
        StepProgress::Running => true,
        StepProgress::Done | StepProgress::Failed => false,
    };
    let Some(phase): Option<Phase> = plan.steps.iter().find(unfinished).map(|s| s.phase) else { return Vec::new() };
    let mut begin: Vec<u32> = Vec::new();
    let mut busy: Vec<usize> = Vec::new();
    for step in plan.steps.iter().filter(|s| s.phase == phase) {
        match standing(step.id) {
            StepProgress::Running => busy.push(step.host),
            StepProgress::Waiting if open(step) && !busy.contains(&step.host) => {
                busy.push(step.host);
                begin.push(step.id);
            }
            StepProgress::Waiting | StepProgress::Done | StepProgress::Failed => {}
        }
    }
    begin
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::action::{Action, reach_master::ReachMaster};
    use crate::plan::host_context::HostContext;
    use StepProgress::{Done, Failed, Running, Waiting};

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
        assert_eq!(next_steps(&plan, &[Done, Done, Done, Waiting, Waiting], FailurePolicy::FailFast), [3]);
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
        let site = |contained| HostContext { run_id: "r".to_owned(), in_container: contained, ..HostContext::new("n", "h", "/b") };
        let mut plan = Plan::empty(vec![site(true), site(false)]);
        for (host, phase) in
            [(0, Phase::Stop), (1, Phase::Stop), (0, Phase::Remove), (1, Phase::Remove), (0, Phase::Clean), (1, Phase::Clean)]
        {
            plan.push(host, phase, Action::ReachMaster(ReachMaster { address: String::new(), port: 1 }));
        }
        let clean = |ledger: [StepProgress; 4]| next_steps(&plan, &[&ledger[..], &[Waiting, Waiting]].concat(), FailurePolicy::Teardown);
        assert_eq!(clean([Done, Done, Done, Done]), [4, 5]);
        assert_eq!(clean([Failed, Failed, Done, Done]), [4], "with its container all of it has ended, without one nothing is known");
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
