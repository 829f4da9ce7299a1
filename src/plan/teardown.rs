//! The way back, planned from what is found: containers by label, run directories by path, processes by the run's mark.

use std::time::Duration;

use crate::model::exit::RunOutcome;
use crate::model::phase::Phase;
use crate::plan::Plan;
use crate::plan::action::cleanup::CleanupTarget;
use crate::plan::action::{Action, cleanup, launch};
use crate::plan::existing_run::{run_outcome, running_tasks};
use crate::plan::facts::HostFacts;
use crate::plan::host_context::HostContext;

/// What a teardown is to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TeardownScope {
    /// Every rank ends; container, logs and directories stay.
    Ranks,
    /// Every rank ends, the logs are fetched and the ended run's directory goes; the container stays for the next run.
    Run,
    /// Nothing of this name is left.
    Everything,
}

/// How a teardown is done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TeardownSpec {
    pub scope: TeardownScope,
    /// From TERM to KILL; `None`: KILL at once.
    pub grace: Option<Duration>,
    /// Whether logs are fetched before they are deleted.
    pub fetch_logs: bool,
}

/// Plans the teardown for the hosts that answered; a host whose facts are `None` has no steps. `contexts` carry the lock's token and, where the host has a
/// current run, that run's id.
pub(crate) fn plan_teardown(contexts: Vec<HostContext>, facts: &[Option<HostFacts>], spec: TeardownSpec) -> Plan {
    let mut plan = Plan::empty(contexts);
    plan.run_record = facts.iter().flatten().find_map(|f| f.run_record().cloned());
    let known: Vec<&HostFacts> = facts.iter().flatten().collect();
    let runs = matches!(run_outcome(&known), Some((RunOutcome::Running, _))) || known.iter().any(|facts| !running_tasks(facts).is_empty());
    let all = spec.scope == TeardownScope::Everything;
    for phase in [Phase::Stop, Phase::Remove, Phase::Fetch, Phase::Clean, Phase::Verify] {
        for (host, facts) in facts.iter().enumerate().filter_map(|(i, f)| f.as_ref().map(|f| (i, f))) {
            let Some(host_context) = plan.hosts.get(host).cloned() else { continue };
            if all && phase == Phase::Stop {
                for run in facts.orphaned_runs() {
                    let host_context = HostContext { run_id: run, in_container: false, ..host_context.clone() };
                    plan.push(
                        host,
                        phase,
                        Action::StopRanks(launch::StopRanks {
                            context: host_context,
                            grace: spec.grace,
                            by_request: false,
                            restore_scripts: true,
                        }),
                    );
                }
            }
            if let Some(action) = teardown_action(phase, host_context, facts, (spec, runs)) {
                plan.push(host, phase, action);
            }
        }
    }
    plan
}

fn teardown_action(phase: Phase, context: HostContext, facts: &HostFacts, (manner, runs): (TeardownSpec, bool)) -> Option<Action> {
    let all = manner.scope == TeardownScope::Everything;
    match phase {
        Phase::Stop => facts
            .current_run
            .as_ref()
            .map(|_| Action::StopRanks(launch::StopRanks { context, grace: manner.grace, by_request: runs, restore_scripts: false })),
        Phase::Remove if all => (!facts.containers.is_empty() || !facts.orphans.check_containers.is_empty() || facts.keeper_pid.is_some())
            .then_some(Action::RemoveContainer(cleanup::RemoveContainer { context })),
        Phase::Fetch if manner.fetch_logs && manner.scope != TeardownScope::Ranks => {
            facts.current_run.as_ref().map(|_| Action::FetchLogs(cleanup::FetchLogs { context }))
        }
        Phase::Clean => {
            let target = match manner.scope {
                TeardownScope::Everything if facts.has_any_resource() => Some(CleanupTarget::Everything),
                TeardownScope::Run => facts.current_run.as_ref().filter(|run| **run == context.run_id).map(|_| CleanupTarget::Run),
                _ => facts.has_leftover_login.then_some(CleanupTarget::Login),
            };
            target.map(|target| Action::RemoveFiles(cleanup::RemoveFiles { context, target }))
        }
        Phase::Verify if all => Some(Action::VerifyRemoved(cleanup::VerifyRemoved { context, run_ids: facts.run_ids.clone() })),
        _ => None,
    }
}
