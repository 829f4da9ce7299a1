#![expect(clippy::disallowed_methods, reason = "reads the logs that a smoke left on this laptop")]
//! `check --smoke`: a run of its own on the hosts of an inventory, through the same doors as `up`; its ranks' logs are the answer.

use std::io::Read as _;
use std::sync::Arc;

use crate::event::Outcome;
use crate::inventory::smoke_test::SmokeTest;
use crate::inventory::{Inventory, Job, RuntimeValues};
use crate::lifecycle::error::WorkflowEnd;
use crate::lifecycle::launch::LaunchEnd;
use crate::lifecycle::session::Session;
use crate::model::level::Level;
use crate::model::rank::RankInfo;
use crate::plan::build::nearby_ports;
use crate::plan::existing_run::{HostRunState, host_run_state};
use crate::plan::facts::HostFacts;
use crate::plan::rank_layout::RankLayout;
use crate::preflight::smoke::{CHECK, COMMAND_TEMPLATE, SmokeContext, SmokeRankLog, evaluate_smoke};
use crate::preflight::{CheckReport, CheckResult};
use crate::report::past_runs::RunDir;
use crate::state::RunState;
use crate::text::hostlist::fold_names;

/// The most bytes of one rank's log that are looked at.
const MAX_LOG_BYTES: u64 = 8 << 20;

/// What the checks before it found.
pub(crate) struct SmokeInputs<'a> {
    /// The inventory's job, as it is written.
    pub(crate) draft: &'a Job,
    /// What is known of the hosts.
    pub(crate) runtime_values: &'a RuntimeValues,
    pub(crate) facts: &'a [Option<HostFacts>],
    /// Why there is to be none; nothing: there is.
    pub(crate) skip_reason: Option<&'a str>,
}

/// Whether a smoke is launched.
pub(crate) enum SmokeStart {
    /// There is none, or it cannot be.
    Skipped(CheckReport),
    Launch(Box<SmokePlan>),
}

/// A smoke that is to be launched.
pub(crate) struct SmokePlan {
    pub(crate) inventory: Inventory,
    host_names: Vec<String>,
    ranks: Vec<RankInfo>,
    store_address: String,
    in_container: bool,
    uses_gpus: bool,
}

fn report(cells: Vec<CheckResult>) -> CheckReport {
    CheckReport { check: CHECK, results: cells.into_iter().enumerate().collect() }
}

impl SmokePlan {
    /// Decides after the checks whether there is a smoke, and of what.
    pub(crate) fn after_checks(session: &Session, before: &SmokeInputs<'_>) -> SmokeStart {
        let names = session.host_names();
        let all = |cell: CheckResult| SmokeStart::Skipped(report(vec![cell; names.len()]));
        if let Some(why) = before.skip_reason {
            return all(CheckResult::skipped(why));
        }
        let live = before.facts.iter().flatten().find(|facts| host_run_state(facts) == HostRunState::Running);
        if let Some(run) = live.and_then(|facts| facts.current_run.as_deref()) {
            return all(CheckResult::fail(
                format!("{run} is live and needs the hosts for itself"),
                "wait for its end (`orchestrate attach`), or end it: `orchestrate down`",
            ));
        }
        let (own, job, uses_gpus) = smoke_inventory(&session.inventory, before);
        let ranks = RankLayout::new(&job, vec![String::new(); names.len()]).ranks();
        if ranks.len() == 1 {
            return all(CheckResult::skipped("one rank alone has nobody to talk to"));
        }
        let address = before.runtime_values.fabric_addresses.first().cloned().flatten().unwrap_or_default();
        let store_address = job.launch.master_port.map_or_else(|| address.clone(), |port| format!("{address}:{port}"));
        session.local.console.print_stderr(&format!(
            "smoke: an all-reduce over {} ranks on {}, meeting at {store_address}: about half a minute",
            ranks.len(),
            fold_names(&names)
        ));
        let in_container = job.hosts.iter().any(|host| host.container.is_some());
        SmokeStart::Launch(Box::new(SmokePlan { inventory: own, host_names: names, ranks, store_address, in_container, uses_gpus }))
    }

    /// What it found, and how it ended where that is more than what it found. `session`: that of its launch.
    pub(crate) async fn evaluate(&self, session: Session, end: LaunchEnd) -> (CheckReport, Outcome) {
        let broken_off = || report(vec![CheckResult::skipped("broken off"); self.host_names.len()]);
        let WorkflowEnd { outcome, reason } = match end {
            LaunchEnd::Ended(end) => end,
            LaunchEnd::LeftNow(outcome) => return (broken_off(), outcome),
        };
        let (logs, console) = (session.run_dir.clone(), Arc::clone(&session.local.console));
        let (outcome, state) = session.close(outcome, false).await;
        if let Outcome::Signal(_) = outcome {
            return (broken_off(), outcome);
        }
        let cells =
            launch_failures(&state, &self.host_names, &outcome, &reason).unwrap_or_else(|| self.evaluate_logs(logs.as_ref(), &reason));
        let answer = report(cells);
        if answer.level() == Level::Fail
            && let Some(dir) = &logs
        {
            console.print_stderr(&format!("smoke: the ranks' logs are in {}", dir.logs_dir().display()));
        }
        // That a rank failed is what the cells say.
        let outcome = if outcome == Outcome::Failed || outcome == Outcome::Detached { Outcome::Ok } else { outcome };
        (answer, outcome)
    }

    fn evaluate_logs(&self, logs: Option<&RunDir>, reason: &str) -> Vec<CheckResult> {
        let context = SmokeContext {
            hosts: &self.host_names,
            store_address: &self.store_address,
            environment: if self.in_container { "image" } else { "host" },
            uses_gpus: self.uses_gpus,
            failure_reason: reason,
        };
        evaluate_smoke(&context, &logs.map_or(Vec::new(), |dir| read_rank_logs(dir, &self.ranks)))
    }
}

/// The smoke's inventory and job, and whether GPUs are given: then it is one process a GPU, else one a host.
fn smoke_inventory(inventory: &Inventory, inputs: &SmokeInputs<'_>) -> (Inventory, Job, bool) {
    let busy = |port: &u16| inputs.facts.first().and_then(Option::as_ref).is_some_and(|facts| facts.busy_ports.contains(port));
    let port = inputs.draft.launch.master_port.and_then(|port| nearby_ports(port).into_iter().find(|port| !busy(port)));
    let smoke = SmokeTest { command: &COMMAND_TEMPLATE, port, nproc: None };
    let own = inventory.smoke_test_inventory(&smoke);
    match own.job(inputs.runtime_values) {
        Ok(job) => (own, job, true),
        Err(_) => {
            let own = inventory.smoke_test_inventory(&SmokeTest { nproc: Some(1), ..smoke });
            let job = own.job(inputs.runtime_values).unwrap_or_else(|_| inputs.draft.clone());
            (own, job, false)
        }
    }
}

/// What stood in the way of the launch, for each host; none: the ranks were begun.
fn launch_failures(state: &RunState, names: &[String], outcome: &Outcome, why: &str) -> Option<Vec<CheckResult>> {
    if state.ranks.values().any(|rank| rank.started_at.is_some()) && *outcome != Outcome::Refused {
        return None;
    }
    if *outcome == Outcome::Ok || *outcome == Outcome::Detached {
        return None;
    }
    let failed: Vec<_> = state.failed_steps().collect();
    let note = state.notices.iter().rev().find(|note| note.warn).map_or(why, |note| note.text.as_str());
    let told = |host: usize| failed.iter().find(|step| step.info.host as usize == host);
    let cell = |host: usize| match told(host) {
        Some(step) => CheckResult::fail(format!("it could not begin: {}", step.note), step.hint.clone()),
        None if failed.is_empty() => CheckResult::fail(format!("it could not begin: {note}"), ""),
        None => CheckResult::skipped("it could not begin on other hosts"),
    };
    Some((0..names.len()).map(cell).collect())
}

/// What the ranks wrote.
fn read_rank_logs(dir: &RunDir, ranks: &[RankInfo]) -> Vec<SmokeRankLog> {
    let read = |rank: &RankInfo| {
        let mut bytes = Vec::new();
        let file = std::fs::File::open(dir.logs_dir().join(format!("rank-{}.log", rank.rank)));
        if let Err(error) = file.and_then(|file| file.take(MAX_LOG_BYTES).read_to_end(&mut bytes)) {
            tracing::debug!(%error, rank = rank.rank, "its log is not here");
        }
        SmokeRankLog::parse(usize::try_from(rank.host).unwrap_or(usize::MAX), &String::from_utf8_lossy(&bytes))
    };
    ranks.iter().map(read).collect()
}
