//! `plan`: prints on one screen what a launch would do; with `-v` every command. `render` loads its inputs here as well.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use unicode_width::UnicodeWidthStr as _;

use crate::cli::args::{CommonArgs, PlanArgs, ProgressMode};
use crate::cli::exit::CliError;
use crate::cli::local_env::{
    LocalEnv, hide_known_secrets, print_json, print_stderr, print_stdout, terminal_columns, user_lang, write_in_thread,
};
use crate::cli::open_session::{LoadMode, listen, load_inventory, open_session};
use crate::cli::progress_output::OutputOptions;
use crate::cli::unreachable::print_unreachable;
use crate::cli::{probe_listing, ssh_report};
use crate::event::Outcome;
use crate::inventory::constraint::GangSize;
use crate::inventory::{Inventory, RuntimeValues};
use crate::lifecycle::plan_preview::{build_plan, gpu_counts, placeholder_facts};
use crate::lifecycle::session::split_answers;
use crate::lifecycle::stop_controller::StopController;
use crate::lifecycle::stop_ladder::InterruptPolicy;
use crate::plan::display;
use crate::plan::facts::HostFacts;
use crate::plan::overview::DEFAULT_COLUMNS;
use crate::plan::rank_environment::format_rank_environment;
use crate::remote::{RemoteError, SshFleet};
use crate::text::translation::Lang;
use crate::text::width::pad_start;

/// How many process counts `--suggest` lists.
const MAX_SIZES: usize = 20;

pub(crate) async fn run(args: &PlanArgs) -> Result<Outcome, CliError> {
    let mode = if args.suggest { LoadMode::ConnectionOnly } else { LoadMode::Full };
    let inputs = match load_with_facts("plan", &args.common, mode, args.facts).await? {
        Ok(inputs) => inputs,
        Err(outcome) => return Ok(outcome),
    };
    inputs.run_until_stopped(print_plan(&inputs, args)).await
}

async fn print_plan(inputs: &PlanInputs, args: &PlanArgs) -> Result<Outcome, CliError> {
    let PlanInputs { inventory, base, facts, .. } = inputs;
    if args.suggest {
        return suggest_process_counts(inventory, facts, args);
    }
    let preview = build_plan(inventory, facts, "<run id>", "<run stamp>")?;
    let asked = args.facts.then_some(facts.as_slice());
    if let Some(rank) = args.rank {
        let text = format_rank_environment(&preview.plan, &preview.job, rank).map_err(CliError::Usage)?;
        let more = if args.facts { "" } else { "# --facts: also the network interfaces of the host\n" };
        print_stdout(&format!("{text}{more}"));
    } else if args.json {
        let probes = probe_listing::launch_probes(inventory, &preview.job, facts);
        let mut value = display::plan_to_json(&preview.plan);
        value["ssh"] = ssh_report::to_json(&host_routes(inventory, base, args).await?);
        value["checks"] = probe_listing::to_json(inventory, &probes);
        write_in_thread(move || print_json(&format!("{value:#}\n"))).await?;
    } else if args.common.verbose > 0 {
        let is_whole = args.common.verbose > 1;
        let probes = probe_listing::launch_probes(inventory, &preview.job, facts);
        let routes = ssh_report::format_text(&host_routes(inventory, base, args).await?);
        let probes = probe_listing::format_text(inventory, &probes, is_whole);
        let plan = display::format_plan(&preview.plan, asked, is_whole);
        write_in_thread(move || print_stdout(&[routes, probes, plan].concat())).await?;
    } else {
        let columns = terminal_columns().map_or(DEFAULT_COLUMNS, usize::from);
        print_stdout(&preview.overview(inventory, asked, user_lang(), columns));
    }
    Ok(Outcome::Ok)
}

/// What `plan` and `render` are made from.
pub(super) struct PlanInputs {
    pub(super) inventory: Inventory,
    /// The relative paths of the inventory start from here.
    pub(super) base: PathBuf,
    pub(super) facts: Vec<HostFacts>,
    /// Present if hosts were asked: from then on Ctrl-C ends nothing by itself.
    signals: Option<StopController>,
}

impl PlanInputs {
    /// The rest of the command; a signal ends it.
    pub(super) async fn run_until_stopped(&self, work: impl Future<Output = Result<Outcome, CliError>>) -> Result<Outcome, CliError> {
        match &self.signals {
            Some(signals) => signals.run_until_stopped(work).await.unwrap_or_else(Ok),
            None => work.await,
        }
    }
}

/// Loads the inventory and gathers the facts of its hosts, or fills in placeholders. `Err` in `Ok`: a host did not answer, or a signal.
pub(super) async fn load_with_facts(
    command: &'static str,
    args: &CommonArgs,
    mode: LoadMode,
    gather: bool,
) -> Result<Result<PlanInputs, Outcome>, CliError> {
    let (inventory, base) = load_inventory(args, mode)?;
    hide_known_secrets(&inventory);
    if !gather {
        let facts: Vec<HostFacts> = inventory.hosts.iter().map(|h| placeholder_facts(&inventory, &h.name)).collect();
        return Ok(Ok(PlanInputs { inventory, base, facts, signals: None }));
    }
    let draft = if mode == LoadMode::Full { Some(Arc::clone(inventory.draft()?)) } else { None };
    let session = open_session(command, args, (inventory, base.clone()), OutputOptions::progress_only(ProgressMode::Quiet))?;
    let signals = listen(InterruptPolicy::Cancel)?;
    let answers = signals.run_until_stopped(session.gather_facts(draft.as_deref())).await;
    if let outcome @ Outcome::Signal(_) = session.disconnect(&signals, answers.as_ref().err().cloned().unwrap_or(Outcome::Ok)).await {
        return Ok(Err(outcome));
    }
    let (facts, unreachable) = split_answers(session.host_names(), answers.unwrap_or_default());
    if !unreachable.is_empty() {
        print_unreachable(&session, unreachable);
        return Ok(Err(Outcome::Unreachable));
    }
    let facts = facts.into_iter().flatten().collect();
    Ok(Ok(PlanInputs { inventory: session.inventory, base, facts, signals: Some(signals) }))
}

async fn host_routes(inventory: &Inventory, base: &Path, args: &PlanArgs) -> Result<Vec<ssh_report::HostRoute>, CliError> {
    let fleet = SshFleet::new(inventory.hosts.clone(), LocalEnv::read()?.connection_settings(base, &args.common));
    let describe = |e: RemoteError| if e.hint().is_empty() { e.to_string() } else { format!("{e}; {}", e.hint()) };
    let routes = fleet.describe_routes().await.into_iter().map(|route| route.map_err(describe));
    Ok(inventory.hosts.iter().map(|host| host.name.clone()).zip(routes).collect())
}

/// A row per process count that fits.
fn format_sizes(fits: &[GangSize], lang: Lang) -> String {
    let header = [lang.tr("hosts"), "nproc_per_node", lang.tr("processes"), lang.tr("idle GPUs")];
    let row = |cells: [&str; 4]| {
        let cells: Vec<String> = cells.iter().zip(header).map(|(cell, title)| pad_start(cell, title.width())).collect();
        cells.join("  ") + "\n"
    };
    fits.iter().take(MAX_SIZES).fold(row(header), |text, fit| {
        let idle = fit.idle_gpus.map_or_else(|| "?".to_owned(), |idle| idle.to_string());
        text + &row([&fit.hosts.to_string(), &fit.nproc.to_string(), &fit.world_size().to_string(), &idle])
    })
}

/// Prints the process counts that satisfy all constraints.
fn suggest_process_counts(inventory: &Inventory, facts: &[HostFacts], args: &PlanArgs) -> Result<Outcome, CliError> {
    let values = RuntimeValues { gpu_counts: gpu_counts(inventory, facts), ..RuntimeValues::default() };
    let (constraints, fits) = inventory.suggest_gang_sizes(&values);
    if args.json {
        let fit = |fit: &GangSize| serde_json::json!({ "hosts": fit.hosts, "nproc_per_node": fit.nproc, "processes": fit.world_size(), "idle_gpus": fit.idle_gpus });
        let suggestions: Vec<serde_json::Value> = fits.iter().map(fit).collect();
        print_json(&format!("{:#}\n", serde_json::json!({ "constraints": constraints, "suggestions": suggestions })));
    } else {
        if !fits.is_empty() {
            print_stdout(&format_sizes(&fits, user_lang()));
            if !args.facts && fits.iter().any(|fit| fit.idle_gpus.is_none()) {
                print_stderr("?: the GPUs are not known; --facts asks the hosts");
            }
        }
    }
    match fits.first() {
        Some(best) if best.hosts == inventory.hosts.len() => print_stderr(&format!("help: --set launch.nproc_per_node={}", best.nproc)),
        Some(best) => print_stderr(&format!(
            "help: --set launch.nproc_per_node={} --limit {}",
            best.nproc,
            inventory.hosts.iter().take(best.hosts).map(|h| h.name.as_str()).collect::<Vec<_>>().join(",")
        )),
        None => {
            print_stderr(&format!("no process count satisfies all constraints: {}", constraints.join("; ")));
            return Ok(Outcome::Refused);
        }
    }
    Ok(Outcome::Ok)
}
