//! `plan`: every command that would run, and what each rank is given; nothing is changed. What `render` begins with as well.

use std::path::{Path, PathBuf};

use crate::cli::args::{HostArgs, PlanArgs, Progress};
use crate::cli::desk::Faces;
use crate::cli::exec::tell_unreached;
use crate::cli::exit::Failure;
use crate::cli::laptop::{Laptop, known_secrets, print, print_json, say};
use crate::cli::session::{Need, Session, inventory};
use crate::cli::{questions, ways};
use crate::event::Outcome;
use crate::inventory::{Inventory, Job, Known};
use crate::plan::Plan;
use crate::plan::build::{self, Ids, Terms};
use crate::plan::facts::HostFacts;
use crate::plan::text;
use crate::plan::world::given_gpus;
use crate::remote::SshFleet;
use crate::report::loglines::Logs;

/// Runs it.
///
/// # Errors
/// What must be said to the person.
pub async fn run(args: &PlanArgs) -> Result<Outcome, Failure> {
    let need = if args.suggest { Need::Connection } else { Need::Launch };
    let (inventory, base, facts) = match look("plan", &args.host, need, args.facts).await? {
        Ok(found) => found,
        Err(outcome) => return Ok(outcome),
    };
    if args.suggest {
        return suggest(&inventory, &facts, args);
    }
    let (job, plan) = planned(&inventory, &facts, "<run id>", "<run stamp>")?;
    let asked = questions::all(&inventory, &job, &facts);
    let ways = ways(&inventory, &base, args).await?;
    if args.json {
        let mut value = text::json(&plan);
        value["ssh"] = ways::json(&ways);
        value["checks"] = questions::json(&inventory, &asked);
        print_json(&format!("{value:#}\n"));
    } else {
        print(&ways::text(&ways));
        print(&questions::text(&inventory, &asked, args.host.verbose > 0));
        print(&text::plan(&plan, args.facts.then_some(&facts), args.host.verbose > 0));
    }
    Ok(Outcome::Ok)
}

/// An inventory, the folder that its paths are relative to, and what its hosts are.
pub(super) type Looked = (Inventory, PathBuf, Vec<HostFacts>);

/// The inventory and what its hosts are: asked, or with placeholders for what only they know. The outcome where one did not answer.
pub(super) async fn look(command: &'static str, args: &HostArgs, need: Need, ask: bool) -> Result<Result<Looked, Outcome>, Failure> {
    let (inventory, base) = inventory(args, need)?;
    let secrets = known_secrets(&inventory);
    if !ask {
        let facts: Vec<HostFacts> = inventory.hosts.iter().map(|h| unknown(&inventory, &h.name)).collect();
        return Ok(Ok((inventory, base, facts)));
    }
    let faces = Faces { progress: Progress::Quiet, logs: Logs::None, data: false };
    let unknown = Known { gpus: vec![None; inventory.hosts.len()], addresses: vec![None; inventory.hosts.len()], ..Known::default() };
    let draft = if need == Need::Launch { Some(inventory.job(&unknown)?) } else { None };
    let session = Session::open(command, args, inventory, base.clone(), faces, &secrets)?;
    let answers = session.gather(draft.as_ref()).await;
    session.engine.close().await;
    let (mut facts, mut lost) = (Vec::new(), Vec::new());
    for (name, answer) in session.names().into_iter().zip(answers) {
        match answer {
            Ok(found) => facts.push(found),
            Err(error) => lost.push((name, error.to_string(), error.hint().to_owned())),
        }
    }
    if !lost.is_empty() {
        tell_unreached(session.desk.cleaner(), session.desk.style(), lost);
        return Ok(Err(Outcome::Unreachable));
    }
    Ok(Ok((session.inventory, base, facts)))
}

/// How the hosts are reached, where that is to be told.
async fn ways(inventory: &Inventory, base: &Path, args: &PlanArgs) -> Result<Vec<ways::Way>, Failure> {
    if !args.json && args.host.verbose == 0 {
        return Ok(Vec::new());
    }
    let fleet = SshFleet::new(inventory.hosts.clone(), Laptop::read()?.settings(base, &args.host));
    let found = fleet.explain().await;
    let told = found.into_iter().map(|way| way.map_err(|e| if e.hint().is_empty() { e.to_string() } else { format!("{e}; {}", e.hint()) }));
    Ok(inventory.hosts.iter().map(|host| host.name.clone()).zip(told).collect())
}

/// What stands for a fact that nobody asked for.
fn unknown(inventory: &Inventory, host: &str) -> HostFacts {
    HostFacts {
        run_dir: inventory.run_dir.clone(),
        home: format!("<from {host}: home>"),
        arrived_at: Some(format!("<from {host}: address>")),
        writable: true,
        ..HostFacts::default()
    }
}

/// The job and the plan of its launch. Secrets stand in it by their names.
pub(super) fn planned(inventory: &Inventory, facts: &[HostFacts], run: &str, stamp: &str) -> Result<(Job, Plan), Failure> {
    let addresses = build::addresses(inventory, facts)
        .map_err(|t| Failure::Usage(t.iter().map(|(_, t)| t.what.as_str()).collect::<Vec<_>>().join("\n")))?;
    let values = Known {
        run_id: run.to_owned(),
        run_stamp: stamp.to_owned(),
        gpus: gpus(inventory, facts),
        addresses: addresses.into_iter().map(Some).collect(),
        master_port: facts.first().and_then(|f| f.free_port),
    };
    let job = inventory.job(&values)?;
    let texts: Vec<(String, String)> =
        (0..inventory.hosts.len()).map(|i| inventory.hash_text(i)).map(|t| (t.container, t.launch)).collect();
    let ids = Ids { run: run.to_owned(), token: None, owner: "<user@laptop>".to_owned(), started: String::new(), recreate: false };
    let secrets: Vec<(String, String)> = job.secrets.iter().map(|name| (name.clone(), format!("<secret {name}>"))).collect();
    let plan =
        build::launch(Terms { inventory, job: &job, facts, texts: &texts, ids: &ids, secrets: &secrets, passwords: &[], checks: &[] })
            .map_err(|t| Failure::Usage(t.iter().map(|(_, t)| format!("{}; help: {}", t.what, t.hint)).collect::<Vec<_>>().join("\n")))?;
    Ok((job, plan))
}

fn gpus(inventory: &Inventory, facts: &[HostFacts]) -> Vec<Option<u32>> {
    inventory.hosts.iter().zip(facts).map(|(h, f)| Some(given_gpus(h, f)).filter(|n| *n > 0)).collect()
}

/// Which numbers of processes satisfy all constraints.
fn suggest(inventory: &Inventory, facts: &[HostFacts], args: &PlanArgs) -> Result<Outcome, Failure> {
    let known = Known { gpus: gpus(inventory, facts), ..Known::default() };
    let (constraints, fits) = inventory.suggest(&known);
    if args.json {
        let fit = |fit: &crate::inventory::constraint::Fit| serde_json::json!({ "hosts": fit.hosts, "nproc_per_node": fit.nproc, "processes": fit.processes(), "idle_gpus": fit.idle });
        let all: Vec<serde_json::Value> = fits.iter().map(fit).collect();
        print_json(&format!("{:#}\n", serde_json::json!({ "constraints": constraints, "suggestions": all })));
    } else {
        let mut text = "hosts  nproc_per_node  processes  idle GPUs\n".to_owned();
        for fit in fits.iter().take(20) {
            let idle = fit.idle.map_or_else(|| "?".to_owned(), |idle| idle.to_string());
            text.push_str(&format!("{:>5}  {:>14}  {:>9}  {idle:>9}\n", fit.hosts, fit.nproc, fit.processes()));
        }
        if !fits.is_empty() {
            print(&text);
        }
    }
    match fits.first() {
        Some(best) if best.hosts == inventory.hosts.len() => say(&format!("help: --set launch.nproc_per_node={}", best.nproc)),
        Some(best) => say(&format!(
            "help: --set launch.nproc_per_node={} --limit {}",
            best.nproc,
            inventory.hosts.iter().take(best.hosts).map(|h| h.name.as_str()).collect::<Vec<_>>().join(",")
        )),
        None => {
            say(&format!("nothing satisfies all of: {}", constraints.join("; ")));
            return Ok(Outcome::Refused);
        }
    }
    Ok(Outcome::Ok)
}
