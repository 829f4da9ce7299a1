#![expect(clippy::disallowed_methods, reason = "writes the scripts where it is told to")]
//! `render`: the launch as scripts that a person can run by hand, one a host.

use std::path::Path;

use crate::cli::args::RenderArgs;
use crate::cli::exit::Failure;
use crate::cli::laptop::{advice, print_file, random, say};
use crate::cli::plan::{look, planned};
use crate::cli::session::Need;
use crate::diagnose::advice::Advice;
use crate::event::Outcome;
use crate::plan::render;

/// Runs it.
///
/// # Errors
/// What must be said to the person.
pub async fn run(args: &RenderArgs) -> Result<Outcome, Failure> {
    let (inventory, base, facts) = match look("render", &args.host, Need::Launch, args.facts).await? {
        Ok(found) => found,
        Err(outcome) => return Ok(outcome),
    };
    // One id and one stamp for all scripts: made on each host they would differ.
    let now = jiff::Zoned::now();
    let run = format!("{}-{}", now.strftime("%Y%m%d-%H%M%S"), random().chars().take(4).collect::<String>());
    let (job, plan) = planned(&inventory, &facts, &run, &now.strftime("%Y%m%d%H%M%S").to_string())?;
    let advice = advice(&args.host, &base, &inventory.hosts);
    let scripts = render::scripts(&plan, &job, &|host| advice.ssh(host));
    let open = render::open(&scripts);
    if !open.is_empty() {
        let hint = "ask the hosts with --facts, or write fabric_address, launch.nproc_per_node and launch.master_port";
        return Err(Failure::Usage(format!("not known without asking: {}\n    help: {hint}", open.join(", "))));
    }
    match &args.output {
        Some(dir) => write(dir, &scripts, &advice)?,
        None => {
            for (host, text) in &scripts {
                let head = if scripts.len() > 1 { format!("# ---- {host}.sh\n") } else { String::new() };
                print_file(&format!("{head}{text}"));
            }
        }
    }
    Ok(Outcome::Ok)
}

fn write(dir: &Path, scripts: &[(String, String)], advice: &Advice) -> Result<(), Failure> {
    let failed = |path: &Path, error: std::io::Error| Failure::Usage(format!("{}: cannot be written: {error}", path.display()));
    std::fs::create_dir_all(dir).map_err(|error| failed(dir, error))?;
    for (host, text) in scripts {
        let path = dir.join(format!("{}.sh", host.replace(':', "-")));
        std::fs::write(&path, text).map_err(|error| failed(&path, error))?;
        say(&format!("{}: ssh {} sh <{}", path.display(), advice.ssh(host), crate::shell::quote(&path.display().to_string())));
    }
    Ok(())
}
