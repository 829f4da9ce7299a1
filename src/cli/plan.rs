//! `plan`: prints every command that a launch would run, and the environment of each rank. `render` loads its inputs here as well.

use std::path::{Path, PathBuf};

use crate::cli::args::{CommonArgs, PlanArgs, ProgressMode};
use crate::cli::exit::CliError;
use crate::cli::local_env::{LocalEnv, hide_known_secrets, print_json, print_stderr, print_stdout};
use crate::cli::open_session::{LoadMode, load_inventory, open_session};
use crate::cli::output::OutputOptions;
use crate::cli::unreachable::print_unreachable;
use crate::cli::{probe_listing, ssh_report};
use crate::event::Outcome;
use crate::inventory::{Inventory, RuntimeValues};
use crate::lifecycle::plan_preview::{build_plan, gpu_counts, placeholder_facts};
use crate::lifecycle::stop_controller::StopController;
use crate::lifecycle::stop_ladder::InterruptPolicy;
use crate::plan::display;
use crate::plan::facts::HostFacts;
use crate::remote::{RemoteError, SshFleet};

pub(crate) async fn run(args: &PlanArgs) -> Result<Outcome, CliError> {
    let mode = if args.suggest { LoadMode::ConnectionOnly } else { LoadMode::Full };
    let (inventory, base, facts) = match load_with_facts("plan", &args.common, mode, args.facts).await? {
        Ok(found) => found,
        Err(outcome) => return Ok(outcome),
    };
    if args.suggest {
        return suggest_process_counts(&inventory, &facts, args);
    }
    let (job, plan) = build_plan(&inventory, &facts, "<run id>", "<run stamp>")?;
    let probes = probe_listing::launch_probes(&inventory, &job, &facts);
    let routes = host_routes(&inventory, &base, args).await?;
    if args.json {
        let mut value = display::plan_to_json(&plan);
        value["ssh"] = ssh_report::to_json(&routes);
        value["checks"] = probe_listing::to_json(&inventory, &probes);
        print_json(&format!("{value:#}\n"));
    } else {
        print_stdout(&ssh_report::format_text(&routes));
        print_stdout(&probe_listing::format_text(&inventory, &probes, args.common.verbose > 0));
        print_stdout(&display::format_plan(&plan, args.facts.then_some(&facts), args.common.verbose > 0));
    }
    Ok(Outcome::Ok)
}

/// An inventory, the directory that its relative paths start from, and the facts of its hosts.
pub(super) type InventoryWithFacts = (Inventory, PathBuf, Vec<HostFacts>);

/// Loads the inventory and gathers the facts of its hosts, or fills in placeholders. `Err` in `Ok`: a host did not answer, or a signal.
pub(super) async fn load_with_facts(
    command: &'static str,
    args: &CommonArgs,
    mode: LoadMode,
    gather: bool,
) -> Result<Result<InventoryWithFacts, Outcome>, CliError> {
    let (inventory, base) = load_inventory(args, mode)?;
    hide_known_secrets(&inventory);
    if !gather {
        let facts: Vec<HostFacts> = inventory.hosts.iter().map(|h| placeholder_facts(&inventory, &h.name)).collect();
        return Ok(Ok((inventory, base, facts)));
    }
    let unknown = RuntimeValues::unknown(inventory.hosts.len());
    let draft = if mode == LoadMode::Full { Some(inventory.job(&unknown)?) } else { None };
    let session = open_session(command, args, (inventory, base.clone()), OutputOptions::progress_only(ProgressMode::Quiet))?;
    let signals = StopController::listen(InterruptPolicy::Cancel, print_stderr).map_err(anyhow::Error::from)?;
    let answers = signals.run_until_stopped(session.gather_facts(draft.as_ref())).await;
    if let outcome @ Outcome::Signal(_) = session.disconnect(&signals, answers.as_ref().err().cloned().unwrap_or(Outcome::Ok)).await {
        return Ok(Err(outcome));
    }
    let answers = answers.unwrap_or_default();
    let (mut facts, mut unreachable) = (Vec::new(), Vec::new());
    for (name, answer) in session.host_names().into_iter().zip(answers) {
        match answer {
            Ok(found) => facts.push(found),
            Err(error) => unreachable.push((name, error.to_string(), error.hint().to_owned())),
        }
    }
    if !unreachable.is_empty() {
        print_unreachable(session.reporter.sanitizer(), session.reporter.style(), unreachable);
        return Ok(Err(Outcome::Unreachable));
    }
    Ok(Ok((session.inventory, base, facts)))
}

/// Empty unless `-v` or `--json` shows them.
async fn host_routes(inventory: &Inventory, base: &Path, args: &PlanArgs) -> Result<Vec<ssh_report::HostRoute>, CliError> {
    if !args.json && args.common.verbose == 0 {
        return Ok(Vec::new());
    }
    let fleet = SshFleet::new(inventory.hosts.clone(), LocalEnv::read()?.connection_settings(base, &args.common));
    let describe = |e: RemoteError| if e.hint().is_empty() { e.to_string() } else { format!("{e}; {}", e.hint()) };
    let routes = fleet.describe_routes().await.into_iter().map(|route| route.map_err(describe));
    Ok(inventory.hosts.iter().map(|host| host.name.clone()).zip(routes).collect())
}

/// Prints the process counts that satisfy all constraints.
fn suggest_process_counts(inventory: &Inventory, facts: &[HostFacts], args: &PlanArgs) -> Result<Outcome, CliError> {
    let values = RuntimeValues { gpu_counts: gpu_counts(inventory, facts), ..RuntimeValues::default() };
    let (constraints, fits) = inventory.suggest_gang_sizes(&values);
    if args.json {
        let fit = |fit: &crate::inventory::constraint::GangSize| serde_json::json!({ "hosts": fit.hosts, "nproc_per_node": fit.nproc, "processes": fit.world_size(), "idle_gpus": fit.idle_gpus });
        let suggestions: Vec<serde_json::Value> = fits.iter().map(fit).collect();
        print_json(&format!("{:#}\n", serde_json::json!({ "constraints": constraints, "suggestions": suggestions })));
    } else {
        let mut text = "hosts  nproc_per_node  processes  idle GPUs\n".to_owned();
        for fit in fits.iter().take(20) {
            let idle = fit.idle_gpus.map_or_else(|| "?".to_owned(), |idle| idle.to_string());
            text.push_str(&format!("{:>5}  {:>14}  {:>9}  {idle:>9}\n", fit.hosts, fit.nproc, fit.world_size()));
        }
        if !fits.is_empty() {
            print_stdout(&text);
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
