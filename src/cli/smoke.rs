#![expect(clippy::disallowed_methods, reason = "reads the logs that a smoke left on this laptop")]
//! `check --smoke`: a run of its own on the hosts of an inventory, through the same doors as `up`; its ranks' logs are the answer.

use std::io::Read as _;
use std::path::Path;

use clap::Parser as _;

use crate::cli::args::{Cli, Command, CommonArgs, PreflightLevel, ProgressMode, UpArgs};
use crate::cli::exit::CliError;
use crate::cli::local_env::print_stderr;
use crate::cli::session::Session;
use crate::cli::up::run_without_recap;
use crate::event::Outcome;
use crate::inventory::smoke_test::SmokeTest;
use crate::inventory::{Inventory, Job, RuntimeValues};
use crate::model::level::Level;
use crate::model::rank::RankInfo;
use crate::plan::build::nearby_ports;
use crate::plan::existing_run::{FoundRun, found_run};
use crate::plan::facts::HostFacts;
use crate::plan::rank_layout::RankLayout;
use crate::preflight::smoke::{CHECK, COMMAND_TEMPLATE, SmokeContext, SmokeRankLog, evaluate_smoke};
use crate::preflight::{CheckReport, CheckResult};
use crate::report::runs::RunDir;
use crate::state::RunState;
use crate::text::hostlist::fold_names;

/// The most bytes of one rank's log that are looked at.
const MAX_LOG_BYTES: u64 = 8 << 20;

/// What the checks before it found.
pub struct SmokeInputs<'a> {
    /// The inventory's job, as it is written.
    pub draft: &'a Job,
    /// What is known of the hosts.
    pub runtime_values: &'a RuntimeValues,
    /// What they are.
    pub facts: &'a [Option<HostFacts>],
    /// Why there is to be none; nothing: there is.
    pub skip_reason: Option<&'a str>,
}

/// Runs it after the checks; what it found, and how it ended where that is more than what it found.
///
/// # Errors
/// What must be said to the person.
pub async fn run(session: &Session, args: &CommonArgs, base: &Path, before: SmokeInputs<'_>) -> Result<(CheckReport, Outcome), CliError> {
    let names = session.host_names();
    let answer = |cells: Vec<CheckResult>| CheckReport { check: CHECK, results: cells.into_iter().enumerate().collect() };
    let all = |cell: CheckResult| answer(vec![cell; names.len()]);
    if let Some(why) = before.skip_reason {
        return Ok((all(CheckResult::skipped(why)), Outcome::Ok));
    }
    let live = before.facts.iter().flatten().find(|facts| found_run(facts) == FoundRun::Running);
    if let Some(run) = live.and_then(|facts| facts.current_run.as_deref()) {
        let cell = CheckResult::fail(
            format!("{run} is live and needs the hosts for itself"),
            "wait for its end (`orchestrate attach`), or end it: `orchestrate down`",
        );
        return Ok((all(cell), Outcome::Ok));
    }
    let (own, job, gpus) = smoke_inventory(&session.inventory, &before);
    let ranks = RankLayout::new(&job, vec![String::new(); names.len()]).ranks();
    if ranks.len() == 1 {
        return Ok((all(CheckResult::skipped("one rank alone has nobody to talk to")), Outcome::Ok));
    }
    let address = before.runtime_values.fabric_addresses.first().cloned().flatten().unwrap_or_default();
    let store = job.launch.master_port.map_or_else(|| address.clone(), |port| format!("{address}:{port}"));
    print_stderr(&format!(
        "smoke: an all-reduce over {} ranks on {}, meeting at {store}: about half a minute",
        ranks.len(),
        fold_names(&names)
    ));
    let (outcome, ended) = run_without_recap(&smoke_up_args(args)?, own, base.to_owned()).await?;
    let Some((session, why)) = ended else { return Ok((all(CheckResult::skipped("broken off")), outcome)) };
    let logs = session.run_dir.clone();
    let (outcome, state) = session.close(outcome, false).await;
    if let Outcome::Signal(_) = outcome {
        return Ok((all(CheckResult::skipped("broken off")), outcome));
    }
    let cells = match launch_failures(&state, &names, &outcome, &why) {
        Some(cells) => cells,
        None => {
            let heard = logs.as_ref().map_or(Vec::new(), |dir| read_rank_logs(dir, &ranks));
            let contained = job.hosts.iter().any(|host| host.container.is_some());
            let terms = SmokeContext {
                hosts: &names,
                store_address: &store,
                environment: if contained { "image" } else { "host" },
                uses_gpus: gpus,
                failure_reason: &why,
            };
            evaluate_smoke(&terms, &heard)
        }
    };
    let answer = answer(cells);
    if answer.level() == Level::Fail
        && let Some(dir) = &logs
    {
        print_stderr(&format!("smoke: the ranks' logs are in {}", dir.logs_dir().display()));
    }
    // That a rank failed is what the cells say.
    let outcome = if outcome == Outcome::Failed || outcome == Outcome::Detached { Outcome::Ok } else { outcome };
    Ok((answer, outcome))
}

/// The smoke's inventory and job, and whether GPUs are given: then it is one process a GPU, else one a host.
fn smoke_inventory(inventory: &Inventory, before: &SmokeInputs<'_>) -> (Inventory, Job, bool) {
    let busy = |port: &u16| before.facts.first().and_then(Option::as_ref).is_some_and(|facts| facts.busy_ports.contains(port));
    let port = before.draft.launch.master_port.and_then(|port| nearby_ports(port).into_iter().find(|port| !busy(port)));
    let smoke = SmokeTest { command: &COMMAND_TEMPLATE, port, nproc: None };
    let own = inventory.smoke_test_inventory(&smoke);
    match own.job(before.runtime_values) {
        Ok(job) => (own, job, true),
        Err(_) => {
            let own = inventory.smoke_test_inventory(&SmokeTest { nproc: Some(1), ..smoke });
            let job = own.job(before.runtime_values).unwrap_or_else(|_| before.draft.clone());
            (own, job, false)
        }
    }
}

/// `up` as a smoke is launched: nothing is checked anew, and it says little.
fn smoke_up_args(args: &CommonArgs) -> Result<UpArgs, CliError> {
    let Command::Up(mut up) = Cli::parse_from(["orchestrate", "up"]).command else {
        return Err(anyhow::anyhow!("`up` is no longer a command").into());
    };
    let progress = match args.progress {
        shown @ (ProgressMode::Plain | ProgressMode::Bars) => shown,
        _ => ProgressMode::Quiet,
    };
    up.common = CommonArgs { limit: None, progress, ..args.clone() };
    up.preflight = PreflightLevel::Off;
    Ok(up)
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
