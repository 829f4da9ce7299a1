#![expect(clippy::disallowed_methods, reason = "reads the smoke's logs on this laptop")]
//! `check --smoke`: launches a separate run on the hosts, the same way as `up`, and evaluates the logs of its ranks.

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
use crate::plan::existing_run::{HostRunState, host_run_state};
use crate::plan::facts::HostFacts;
use crate::plan::facts_request::nearby_ports;
use crate::plan::rank_layout::RankLayout;
use crate::preflight::smoke::{CHECK, COMMAND_TEMPLATE, SmokeContext, evaluate_smoke};
use crate::preflight::smoke_rank_log::SmokeRankLog;
use crate::preflight::{CheckReport, CheckResult};
use crate::report::past_runs::RunDir;
use crate::state::RunState;
use crate::text::hostlist::fold_names;

/// Per rank; the rest of a log is not read.
const MAX_LOG_BYTES: u64 = 8 << 20;

/// What the smoke needs of the checks before it.
pub(crate) struct SmokeInputs<'a> {
    /// The job before facts are known.
    pub(crate) draft: &'a Job,
    pub(crate) runtime_values: &'a RuntimeValues,
    pub(crate) facts: &'a [Option<HostFacts>],
    /// `Some`: the smoke is not run.
    pub(crate) skip_reason: Option<&'a str>,
}

pub(crate) enum SmokeStart {
    Skipped(CheckReport),
    Launch(Box<SmokePlan>),
}

pub(crate) struct SmokePlan {
    pub(crate) inventory: Inventory,
    host_names: Vec<String>,
    ranks: Vec<RankInfo>,
    store_address: String,
    in_container: bool,
    uses_gpus: bool,
}

fn report(results: Vec<CheckResult>) -> CheckReport {
    CheckReport { check: CHECK, results: results.into_iter().enumerate().collect() }
}

impl SmokePlan {
    /// Decides after the checks whether to launch the smoke.
    pub(crate) fn after_checks(session: &Session, inputs: &SmokeInputs<'_>) -> SmokeStart {
        let names = session.host_names();
        let skip = |result: CheckResult| SmokeStart::Skipped(report(vec![result; names.len()]));
        if let Some(reason) = inputs.skip_reason {
            return skip(CheckResult::skipped(reason));
        }
        let live = inputs.facts.iter().flatten().find(|facts| host_run_state(facts) == HostRunState::Running);
        if let Some(run) = live.and_then(|facts| facts.current_run.as_deref()) {
            return skip(CheckResult::fail(
                format!("{run} is live and needs the hosts for itself"),
                "wait until it ends (`orchestrate attach`), or stop it: `orchestrate down`",
            ));
        }
        let (inventory, job, uses_gpus) = smoke_inventory(&session.inventory, inputs);
        let ranks = RankLayout::new(&job, vec![String::new(); names.len()]).ranks();
        if ranks.len() == 1 {
            return skip(CheckResult::skipped("needs at least two ranks"));
        }
        let address = inputs.runtime_values.fabric_addresses.first().cloned().flatten().unwrap_or_default();
        let store_address = job.launch.master_port.map_or_else(|| address.clone(), |port| format!("{address}:{port}"));
        session.local.console.print_stderr(&format!(
            "smoke: an all-reduce over {} ranks on {}, rendezvous at {store_address}: about half a minute",
            ranks.len(),
            fold_names(&names)
        ));
        let in_container = job.hosts.iter().any(|host| host.container.is_some());
        SmokeStart::Launch(Box::new(SmokePlan { inventory, host_names: names, ranks, store_address, in_container, uses_gpus }))
    }

    /// The check's report, and the outcome if the smoke did not simply end. `session`: the session that launched the smoke.
    pub(crate) async fn evaluate(&self, session: Session, end: LaunchEnd) -> (CheckReport, Outcome) {
        let interrupted = || report(vec![CheckResult::skipped("interrupted"); self.host_names.len()]);
        let WorkflowEnd { outcome, reason } = match end {
            LaunchEnd::Ended(end) => end,
            LaunchEnd::LeftNow(outcome) => return (interrupted(), outcome),
        };
        let (logs, console) = (session.run_dir.clone(), Arc::clone(&session.local.console));
        let state = session.close(false).await;
        if let Outcome::Signal(_) = outcome {
            return (interrupted(), outcome);
        }
        let results =
            launch_failures(&state, &self.host_names, &outcome, &reason).unwrap_or_else(|| self.evaluate_logs(logs.as_ref(), &reason));
        let report = report(results);
        if report.level() == Level::Fail
            && let Some(dir) = &logs
        {
            console.print_stderr(&format!("smoke: the ranks' logs are in {}", dir.logs_dir().display()));
        }
        // A failed rank is part of the report already.
        let outcome = if outcome == Outcome::Failed || outcome == Outcome::Detached { Outcome::Ok } else { outcome };
        (report, outcome)
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

/// The smoke's inventory and job, and whether it uses GPUs: one process per GPU, else one per host.
fn smoke_inventory(inventory: &Inventory, inputs: &SmokeInputs<'_>) -> (Inventory, Job, bool) {
    let is_busy = |port: &u16| inputs.facts.first().and_then(Option::as_ref).is_some_and(|facts| facts.busy_ports.contains(port));
    let port = inputs.draft.launch.master_port.and_then(|port| nearby_ports(port).into_iter().find(|port| !is_busy(port)));
    let smoke = SmokeTest { command: &COMMAND_TEMPLATE, port, nproc: None };
    let with_gpus = inventory.smoke_test_inventory(&smoke);
    match with_gpus.job(inputs.runtime_values) {
        Ok(job) => (with_gpus, job, true),
        Err(_) => {
            let without_gpus = inventory.smoke_test_inventory(&SmokeTest { nproc: Some(1), ..smoke });
            let job = without_gpus.job(inputs.runtime_values).unwrap_or_else(|_| inputs.draft.clone());
            (without_gpus, job, false)
        }
    }
}

/// Why the launch failed, per host; `None` if ranks were started.
fn launch_failures(state: &RunState, names: &[String], outcome: &Outcome, reason: &str) -> Option<Vec<CheckResult>> {
    if state.ranks.values().any(|rank| rank.started_at.is_some()) && *outcome != Outcome::Refused {
        return None;
    }
    if *outcome == Outcome::Ok || *outcome == Outcome::Detached {
        return None;
    }
    let failed: Vec<_> = state.failed_steps().collect();
    let note = state.notices.iter().rev().find(|note| note.warn).map_or(reason, |note| note.text.as_str());
    let failed_step = |host: usize| failed.iter().find(|step| step.info.host as usize == host);
    let result = |host: usize| match failed_step(host) {
        Some(step) => CheckResult::fail(format!("could not start: {}", step.note), step.hint.clone()),
        None if failed.is_empty() => CheckResult::fail(format!("could not start: {note}"), ""),
        None => CheckResult::skipped("could not start on other hosts"),
    };
    Some((0..names.len()).map(result).collect())
}

fn read_rank_logs(dir: &RunDir, ranks: &[RankInfo]) -> Vec<SmokeRankLog> {
    let read = |rank: &RankInfo| {
        let mut bytes = Vec::new();
        let file = std::fs::File::open(dir.logs_dir().join(format!("rank-{}.log", rank.rank)));
        if let Err(error) = file.and_then(|file| file.take(MAX_LOG_BYTES).read_to_end(&mut bytes)) {
            tracing::debug!(%error, rank = rank.rank, "no log of this rank on this laptop");
        }
        SmokeRankLog::parse(usize::try_from(rank.host).unwrap_or(usize::MAX), &String::from_utf8_lossy(&bytes))
    };
    ranks.iter().map(read).collect()
}
