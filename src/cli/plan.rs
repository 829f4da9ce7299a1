//! `plan`: every command that would run, and what each rank is given; nothing is changed. What `render` begins with as well.

use std::path::{Path, PathBuf};

use crate::cli::args::{CommonArgs, PlanArgs, ProgressMode};
use crate::cli::exit::CliError;
use crate::cli::local_env::{LocalEnv, hide_known_secrets, print_json, print_stderr, print_stdout};
use crate::cli::open_session::{LoadMode, load_inventory, open_session};
use crate::cli::output::OutputOptions;
use crate::cli::unreachable::print_unreachable;
use crate::cli::{probe_listing, ssh_report};
use crate::event::Outcome;
use crate::inventory::{Inventory, Job, RuntimeValues};
use crate::plan::Plan;
use crate::plan::build::{self, LaunchInputs, RunIdentity};
use crate::plan::display;
use crate::plan::facts::HostFacts;
use crate::plan::rank_layout::usable_gpu_count;
use crate::remote::SshFleet;

pub(crate) async fn run(args: &PlanArgs) -> Result<Outcome, CliError> {
    let need = if args.suggest { LoadMode::ConnectionOnly } else { LoadMode::Full };
    let (inventory, base, facts) = match load_with_facts("plan", &args.common, need, args.facts).await? {
        Ok(found) => found,
        Err(outcome) => return Ok(outcome),
    };
    if args.suggest {
        return suggest_process_counts(&inventory, &facts, args);
    }
    let (job, plan) = build_plan(&inventory, &facts, "<run id>", "<run stamp>")?;
    let asked = probe_listing::launch_probes(&inventory, &job, &facts);
    let ways = host_routes(&inventory, &base, args).await?;
    if args.json {
        let mut value = display::plan_to_json(&plan);
        value["ssh"] = ssh_report::to_json(&ways);
        value["checks"] = probe_listing::to_json(&inventory, &asked);
        print_json(&format!("{value:#}\n"));
    } else {
        print_stdout(&ssh_report::format_text(&ways));
        print_stdout(&probe_listing::format_text(&inventory, &asked, args.common.verbose > 0));
        print_stdout(&display::format_plan(&plan, args.facts.then_some(&facts), args.common.verbose > 0));
    }
    Ok(Outcome::Ok)
}

/// An inventory, the folder that its paths are relative to, and what its hosts are.
pub(super) type InventoryWithFacts = (Inventory, PathBuf, Vec<HostFacts>);

/// The inventory and what its hosts are: asked, or with placeholders for what only they know. The outcome where one did not answer.
pub(super) async fn load_with_facts(
    command: &'static str,
    args: &CommonArgs,
    mode: LoadMode,
    ask: bool,
) -> Result<Result<InventoryWithFacts, Outcome>, CliError> {
    let (inventory, base) = load_inventory(args, mode)?;
    hide_known_secrets(&inventory);
    if !ask {
        let facts: Vec<HostFacts> = inventory.hosts.iter().map(|h| placeholder_facts(&inventory, &h.name)).collect();
        return Ok(Ok((inventory, base, facts)));
    }
    let unknown = RuntimeValues::unknown(inventory.hosts.len());
    let draft = if mode == LoadMode::Full { Some(inventory.job(&unknown)?) } else { None };
    let session = open_session(command, args, (inventory, base.clone()), OutputOptions::progress_only(ProgressMode::Quiet))?;
    let answers = session.gather_facts(draft.as_ref()).await;
    session.engine.close().await;
    let (mut facts, mut lost) = (Vec::new(), Vec::new());
    for (name, answer) in session.host_names().into_iter().zip(answers) {
        match answer {
            Ok(found) => facts.push(found),
            Err(error) => lost.push((name, error.to_string(), error.hint().to_owned())),
        }
    }
    if !lost.is_empty() {
        print_unreachable(session.reporter.sanitizer(), session.reporter.style(), lost);
        return Ok(Err(Outcome::Unreachable));
    }
    Ok(Ok((session.inventory, base, facts)))
}

/// How the hosts are reached, where that is to be told.
async fn host_routes(inventory: &Inventory, base: &Path, args: &PlanArgs) -> Result<Vec<ssh_report::HostRoute>, CliError> {
    if !args.json && args.common.verbose == 0 {
        return Ok(Vec::new());
    }
    let fleet = SshFleet::new(inventory.hosts.clone(), LocalEnv::read()?.connection_settings(base, &args.common));
    let found = fleet.describe_routes().await;
    let told = found.into_iter().map(|way| way.map_err(|e| if e.hint().is_empty() { e.to_string() } else { format!("{e}; {}", e.hint()) }));
    Ok(inventory.hosts.iter().map(|host| host.name.clone()).zip(told).collect())
}

/// What stands for a fact that nobody asked for.
fn placeholder_facts(inventory: &Inventory, host: &str) -> HostFacts {
    HostFacts {
        run_dir: inventory.run_dir.clone(),
        home: format!("<from {host}: home>"),
        ssh_address: Some(format!("<from {host}: address>")),
        is_writable: true,
        ..HostFacts::default()
    }
}

/// The job and the plan of its launch. Secrets stand in it by their names.
pub(super) fn build_plan(inventory: &Inventory, facts: &[HostFacts], run: &str, stamp: &str) -> Result<(Job, Plan), CliError> {
    let addresses = build::resolve_addresses(inventory, facts)
        .map_err(|t| CliError::Usage(t.iter().map(|(_, t)| t.message.as_str()).collect::<Vec<_>>().join("\n")))?;
    let values = RuntimeValues {
        run_id: run.to_owned(),
        run_stamp: stamp.to_owned(),
        gpu_counts: gpu_counts(inventory, facts),
        fabric_addresses: addresses.into_iter().map(Some).collect(),
        master_port: facts.first().and_then(|f| f.free_port),
    };
    let job = inventory.job(&values)?;
    let texts: Vec<(String, String)> =
        (0..inventory.hosts.len()).map(|i| inventory.fingerprint_text(i)).map(|t| (t.container, t.launch)).collect();
    let ids = RunIdentity {
        run_id: run.to_owned(),
        lock_token: None,
        owner: "<user@laptop>".to_owned(),
        started_at: String::new(),
        recreate_containers: false,
    };
    let secrets: Vec<(String, String)> = job.secret_names.iter().map(|name| (name.clone(), format!("<secret {name}>"))).collect();
    let plan = build::plan_launch(LaunchInputs {
        inventory,
        job: &job,
        facts,
        config_texts: &texts,
        identity: &ids,
        secrets: &secrets,
        registry_passwords: &[],
        check_summaries: &[],
    })
    .map_err(|t| CliError::Usage(t.iter().map(|(_, t)| format!("{}; help: {}", t.message, t.hint)).collect::<Vec<_>>().join("\n")))?;
    Ok((job, plan))
}

fn gpu_counts(inventory: &Inventory, facts: &[HostFacts]) -> Vec<Option<u32>> {
    inventory.hosts.iter().zip(facts).map(|(h, f)| Some(usable_gpu_count(h, f)).filter(|n| *n > 0)).collect()
}

/// Which numbers of processes satisfy all constraints.
fn suggest_process_counts(inventory: &Inventory, facts: &[HostFacts], args: &PlanArgs) -> Result<Outcome, CliError> {
    let known = RuntimeValues { gpu_counts: gpu_counts(inventory, facts), ..RuntimeValues::default() };
    let (constraints, fits) = inventory.suggest_gang_sizes(&known);
    if args.json {
        let fit = |fit: &crate::inventory::constraint::GangSize| serde_json::json!({ "hosts": fit.hosts, "nproc_per_node": fit.nproc, "processes": fit.world_size(), "idle_gpus": fit.idle_gpus });
        let all: Vec<serde_json::Value> = fits.iter().map(fit).collect();
        print_json(&format!("{:#}\n", serde_json::json!({ "constraints": constraints, "suggestions": all })));
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
            print_stderr(&format!("nothing satisfies all of: {}", constraints.join("; ")));
            return Ok(Outcome::Refused);
        }
    }
    Ok(Outcome::Ok)
}
