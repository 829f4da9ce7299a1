//! `plan`: every command that would run, and what each rank is given; nothing is changed.

use crate::cli::args::{PlanArgs, Progress};
use crate::cli::desk::Faces;
use crate::cli::exit::Failure;
use crate::cli::laptop::{print, say};
use crate::cli::session::{Need, Session, answered, inventory};
use crate::event::Outcome;
use crate::inventory::{Inventory, Known};
use crate::plan::build::{self, Ids, Terms};
use crate::plan::facts::HostFacts;
use crate::plan::text;
use crate::plan::world::given_gpus;
use crate::report::loglines::Logs;

/// Runs it.
///
/// # Errors
/// What must be said to the person.
pub async fn run(args: &PlanArgs) -> Result<Outcome, Failure> {
    let (inventory, base) = inventory(&args.host, Need::Launch)?;
    if !args.facts {
        let facts: Vec<HostFacts> = inventory.hosts.iter().map(|h| unknown(&inventory, &h.name)).collect();
        return show(&inventory, &facts, false, args);
    }
    let faces = Faces { progress: Progress::Quiet, logs: Logs::None, data: false };
    let draft = inventory.job(&Known {
        gpus: vec![None; inventory.hosts.len()],
        addresses: vec![None; inventory.hosts.len()],
        ..Known::default()
    })?;
    let session = Session::open("plan", &args.host, inventory, base, faces, &[])?;
    let (facts, outcome) = answered(&session, session.gather(Some(&draft)).await);
    session.engine.close().await;
    if outcome != Outcome::Ok {
        let silent: Vec<String> = session.names().into_iter().zip(&facts).filter(|(_, f)| f.is_none()).map(|(name, _)| name).collect();
        // The face is quiet: what the host said to our call is told by `ps` and `up`.
        say(&format!("no answer from {}: `orchestrate ps` says why", silent.join(", ")));
        return Ok(outcome);
    }
    let facts: Vec<HostFacts> = facts.into_iter().flatten().collect();
    show(&session.inventory, &facts, true, args)
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

fn show(inventory: &Inventory, facts: &[HostFacts], known: bool, args: &PlanArgs) -> Result<Outcome, Failure> {
    let addresses = build::addresses(inventory, facts)
        .map_err(|t| Failure::Usage(t.iter().map(|(_, t)| t.what.as_str()).collect::<Vec<_>>().join("\n")))?;
    let gpus = inventory.hosts.iter().zip(facts).map(|(h, f)| Some(given_gpus(h, f)).filter(|n| *n > 0)).collect();
    let values = Known {
        run_id: "<run id>".to_owned(),
        run_stamp: "<run stamp>".to_owned(),
        gpus,
        addresses: addresses.into_iter().map(Some).collect(),
        master_port: None,
    };
    let job = inventory.job(&values)?;
    let texts: Vec<(String, String)> =
        (0..inventory.hosts.len()).map(|i| inventory.hash_text(i)).map(|t| (t.container, t.launch)).collect();
    let ids = Ids { run: "<run id>".to_owned(), token: None, owner: "<user@laptop>".to_owned(), started: String::new(), recreate: false };
    let secrets: Vec<(String, String)> = job.secrets.iter().map(|name| (name.clone(), format!("<secret {name}>"))).collect();
    let plan = build::launch(Terms { inventory, job: &job, facts, texts: &texts, ids: &ids, secrets: &secrets })
        .map_err(|t| Failure::Usage(t.iter().map(|(_, t)| format!("{}; help: {}", t.what, t.hint)).collect::<Vec<_>>().join("\n")))?;
    if args.json {
        print(&format!("{:#}\n", text::json(&plan)));
    } else {
        print(&text::plan(&plan, known.then_some(facts), args.host.verbose > 0));
    }
    Ok(Outcome::Ok)
}
