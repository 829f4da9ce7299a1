//! Decides what to start next. Pure, though it lives here: same plan, same ledger, same answer.

use crate::plan::words::Phase;
use crate::plan::{Plan, Step};

/// Where a step stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Not begun.
    Waiting,
    /// Under way.
    Running,
    /// It ended well.
    Done,
    /// It failed.
    Failed,
}

/// Which failures end what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Temper {
    /// A failure ends everything: no further step is begun (a launch).
    Strict,
    /// A failure ends nothing, but a log that could not be fetched is not deleted, nor the directory by which a run is found again that may
    /// still go on (a teardown).
    Teardown,
}

/// The steps to begin now. A phase is a barrier; within it each host goes through its steps in order, side by side with the others.
pub fn next(plan: &Plan, ledger: &[Standing], temper: Temper) -> Vec<u32> {
    let standing = |id: u32| ledger.get(id as usize).copied().unwrap_or(Standing::Failed);
    let failed: Vec<&Step> = plan.steps.iter().filter(|s| standing(s.id) == Standing::Failed).collect();
    if temper == Temper::Strict && !failed.is_empty() {
        return Vec::new();
    }
    let has_failed = |host: usize, phase: Phase| failed.iter().any(|f| f.host == host && f.phase == phase);
    // Ranks that could not be stopped have ended with their container.
    let boxed = |host: usize| plan.sites.get(host).is_some_and(|site| site.contained);
    let removed = |host: usize| {
        boxed(host) && plan.steps.iter().any(|s| s.host == host && s.phase == Phase::Remove && standing(s.id) == Standing::Done)
    };
    let runs = |host: usize| has_failed(host, Phase::Remove) || has_failed(host, Phase::Stop) && !removed(host);
    let open = |step: &Step| step.phase != Phase::Clean || !has_failed(step.host, Phase::Fetch) && !runs(step.host);
    let unfinished = |s: &&Step| match standing(s.id) {
        Standing::Waiting => open(s),
        Standing::Running => true,
        Standing::Done | Standing::Failed => false,
    };
    let Some(phase): Option<Phase> = plan.steps.iter().find(unfinished).map(|s| s.phase) else { return Vec::new() };
    let mut begin: Vec<u32> = Vec::new();
    let mut busy: Vec<usize> = Vec::new();
    for step in plan.steps.iter().filter(|s| s.phase == phase) {
        match standing(step.id) {
            Standing::Running => busy.push(step.host),
            Standing::Waiting if open(step) && !busy.contains(&step.host) => {
                busy.push(step.host);
                begin.push(step.id);
            }
            Standing::Waiting | Standing::Done | Standing::Failed => {}
        }
    }
    begin
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::action::{Action, preflight::Reach};
    use crate::plan::site::Site;
    use Standing::{Done, Failed, Running, Waiting};

    fn plan() -> Plan {
        let mut plan = Plan::empty(Vec::new());
        let action = || Action::Reach(Reach { address: String::new(), port: 1 });
        for (host, phase) in [(0, Phase::Pull), (0, Phase::Pull), (1, Phase::Pull), (0, Phase::Master), (1, Phase::Workers)] {
            plan.push(host, phase, action());
        }
        plan
    }

    #[test]
    fn a_phase_is_a_barrier_and_a_host_a_queue() {
        let plan = plan();
        assert_eq!(next(&plan, &[Waiting; 5], Temper::Strict), [0, 2]);
        assert_eq!(next(&plan, &[Done, Waiting, Running, Waiting, Waiting], Temper::Strict), [1]);
        assert_eq!(next(&plan, &[Done, Done, Running, Waiting, Waiting], Temper::Strict), Vec::<u32>::new());
        assert_eq!(next(&plan, &[Done, Done, Done, Waiting, Waiting], Temper::Strict), [3]);
        assert_eq!(next(&plan, &[Done, Done, Done, Running, Waiting], Temper::Strict), Vec::<u32>::new());
        assert_eq!(next(&plan, &[Done, Done, Done, Done, Waiting], Temper::Strict), [4]);
    }

    #[test]
    fn a_failed_launch_begins_nothing_more_and_a_teardown_goes_on() {
        let plan = plan();
        let ledger = [Failed, Waiting, Done, Waiting, Waiting];
        assert_eq!(next(&plan, &ledger, Temper::Strict), Vec::<u32>::new());
        assert_eq!(next(&plan, &ledger, Temper::Teardown), [1]);
    }

    #[test]
    fn a_run_that_may_still_go_on_keeps_its_directory() {
        let site = |contained| Site {
            name: "n".to_owned(),
            host: "h".to_owned(),
            run: "r".to_owned(),
            base: "/b".to_owned(),
            sudo: false,
            engine: None,
            contained,
            token: None,
            old: false,
            log_max: 0,
            ranks: 0,
        };
        let mut plan = Plan::empty(vec![site(true), site(false)]);
        for (host, phase) in
            [(0, Phase::Stop), (1, Phase::Stop), (0, Phase::Remove), (1, Phase::Remove), (0, Phase::Clean), (1, Phase::Clean)]
        {
            plan.push(host, phase, Action::Reach(Reach { address: String::new(), port: 1 }));
        }
        let clean = |ledger: [Standing; 4]| next(&plan, &[&ledger[..], &[Waiting, Waiting]].concat(), Temper::Teardown);
        assert_eq!(clean([Done, Done, Done, Done]), [4, 5]);
        assert_eq!(clean([Failed, Failed, Done, Done]), [4], "with its container all of it has ended, without one nothing is known");
        assert_eq!(clean([Done, Done, Failed, Failed]), Vec::<u32>::new());
        assert_eq!(clean([Failed, Done, Failed, Done]), [5]);
    }

    #[test]
    fn a_log_that_was_not_fetched_is_not_deleted() {
        let mut plan = Plan::empty(Vec::new());
        for (host, phase) in [(0, Phase::Fetch), (1, Phase::Fetch), (0, Phase::Clean), (1, Phase::Clean), (0, Phase::Verify)] {
            plan.push(host, phase, Action::Reach(Reach { address: String::new(), port: 1 }));
        }
        assert_eq!(next(&plan, &[Failed, Done, Waiting, Waiting, Waiting], Temper::Teardown), [3]);
        assert_eq!(next(&plan, &[Failed, Done, Waiting, Done, Waiting], Temper::Teardown), [4]);
    }
}
