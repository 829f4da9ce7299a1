//! The way back, planned from what is found: containers by label, run directories by path, processes by the run's mark.

use std::time::Duration;

use crate::plan::Plan;
use crate::plan::action::remove::Cleaned;
use crate::plan::action::{Action, launch, remove};
use crate::plan::facts::HostFacts;
use crate::plan::site::Site;
use crate::plan::situation::run_end;
use crate::plan::words::{Phase, RunEnd};

/// What a teardown is to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Every rank ends; container, logs and directories stay.
    Ranks,
    /// Every rank ends, the logs are fetched and the ended run's directory goes; the container stays for the next run.
    Run,
    /// Nothing of this name is left.
    All,
}

/// How a teardown is done.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// What it leaves.
    pub depth: Depth,
    /// From TERM to KILL; `None`: KILL at once.
    pub grace: Option<Duration>,
    /// Whether logs are fetched before they are deleted.
    pub fetch: bool,
}

/// Plans it for the hosts that answered; a host whose facts are `None` has no steps. `sites` carry the lock's token and, where the host has a
/// current run, that run's id.
pub fn plan(sites: Vec<Site>, facts: &[Option<HostFacts>], manner: Manner) -> Plan {
    let mut plan = Plan::empty(sites);
    plan.run = facts.iter().flatten().find_map(|f| f.run_file().cloned());
    let known: Vec<&HostFacts> = facts.iter().flatten().collect();
    let runs = matches!(run_end(&known), Some((RunEnd::Running, _)));
    let all = manner.depth == Depth::All;
    for phase in [Phase::Stop, Phase::Remove, Phase::Fetch, Phase::Clean, Phase::Verify] {
        for (host, facts) in facts.iter().enumerate().filter_map(|(i, f)| f.as_ref().map(|f| (i, f))) {
            let Some(site) = plan.sites.get(host).cloned() else { continue };
            if all && phase == Phase::Stop {
                for run in facts.marked_runs() {
                    let site = Site { run, contained: false, old: false, ..site.clone() };
                    plan.push(host, phase, Action::Stop(launch::Stop { site, grace: manner.grace, ordered: false, lost: true }));
                }
            }
            if let Some(action) = action(phase, site, facts, (manner, runs)) {
                plan.push(host, phase, action);
            }
        }
    }
    plan
}

fn action(phase: Phase, site: Site, facts: &HostFacts, (manner, runs): (Manner, bool)) -> Option<Action> {
    let all = manner.depth == Depth::All;
    match phase {
        Phase::Stop => facts.current.as_ref().map(|_| Action::Stop(launch::Stop { site, grace: manner.grace, ordered: runs, lost: false })),
        Phase::Remove if all => (!facts.containers.is_empty() || !facts.elsewhere.checks.is_empty() || facts.keeper.is_some())
            .then_some(Action::Remove(remove::Remove { site })),
        Phase::Fetch if manner.fetch && manner.depth != Depth::Ranks => {
            facts.current.clone().map(|run| Action::Fetch(remove::Fetch { site, run }))
        }
        Phase::Clean if all && facts.has_something() => Some(Action::Clean(remove::Clean { site, what: Cleaned::Everything })),
        Phase::Clean if manner.depth == Depth::Run => {
            facts.current.clone().map(|run| Action::Clean(remove::Clean { site, what: Cleaned::Run(run) }))
        }
        Phase::Clean if facts.login => Some(Action::Clean(remove::Clean { site, what: Cleaned::Login })),
        Phase::Verify if all => Some(Action::Verify(remove::Verify { site, runs: facts.runs.clone() })),
        _ => None,
    }
}
