#![expect(clippy::disallowed_methods, reason = "writes the scripts into --output")]
//! `render`: writes one standalone launch script per host.

use std::path::Path;

use crate::cli::args::RenderArgs;
use crate::cli::exit::CliError;
use crate::cli::launch::require_launch;
use crate::cli::local_env::{build_advice, print_raw_unless_tty, print_stderr, write_in_thread};
use crate::cli::open_session::LoadMode;
use crate::cli::plan::{PlanInputs, load_with_facts};
use crate::diagnose::advice_formatter::AdviceFormatter;
use crate::event::Outcome;
use crate::lifecycle::launch_request::new_run_id;
use crate::lifecycle::plan_preview::{PlanPreview, build_plan};
use crate::plan::render;
use crate::text::shell_quote::quote;

pub(crate) async fn run(args: &RenderArgs) -> Result<Outcome, CliError> {
    let inputs = match load_with_facts("render", &args.common, LoadMode::Full, args.facts).await? {
        Ok(inputs) => inputs,
        Err(outcome) => return Ok(outcome),
    };
    inputs.run_until_stopped(render_scripts(&inputs, args)).await
}

async fn render_scripts(inputs: &PlanInputs, args: &RenderArgs) -> Result<Outcome, CliError> {
    let PlanInputs { inventory, base, facts, .. } = inputs;
    // All scripts share one run id and timestamp.
    let now = jiff::Zoned::now();
    let run = new_run_id(&now);
    let PlanPreview { job, plan, .. } = build_plan(inventory, facts, &run, &now.strftime("%Y%m%d%H%M%S").to_string())?;
    require_launch(&job)?;
    let advice = build_advice(&args.common, base, &inventory.hosts);
    let scripts = render::render_scripts(&plan, &job, &|host| advice.ssh_args(host));
    let placeholders = render::find_placeholders(&scripts);
    if !placeholders.is_empty() {
        let settings = [("address", "hosts[].fabric_address"), ("GPU", "launch.nproc_per_node"), ("port", "launch.master_port")];
        let needed = settings.iter().filter(|(part, _)| placeholders.iter().any(|unknown| unknown.contains(part)));
        let needed: Vec<&str> = needed.map(|(_, setting)| *setting).collect();
        let set = if needed.is_empty() { String::new() } else { format!(", or set {}", needed.join(", ")) };
        let mut flags = vec!["--facts".to_owned()];
        flags.extend(args.output.iter().flat_map(|dir| ["--output".to_owned(), quote(&dir.display().to_string())]));
        let hint = format!("`{}` asks the hosts{set}", advice.format_command("render", &flags.join(" ")));
        let what = placeholders.join(", ");
        return Err(CliError::Usage(format!("the scripts need what only the hosts know: {what}\n    help: {hint}")));
    }
    match &args.output {
        Some(dir) => write_scripts(dir, &scripts, &advice)?,
        None => {
            let header = |host: &str| if scripts.len() > 1 { format!("# ---- {host}.sh\n") } else { String::new() };
            let text: String = scripts.iter().map(|(host, text)| header(host) + text).collect();
            write_in_thread(move || print_raw_unless_tty(&text)).await?;
        }
    }
    Ok(Outcome::Ok)
}

fn write_scripts(dir: &Path, scripts: &[(String, String)], advice: &AdviceFormatter) -> Result<(), CliError> {
    let write_error = |path: &Path, error: std::io::Error| CliError::Usage(format!("{}: cannot be written: {error}", path.display()));
    std::fs::create_dir_all(dir).map_err(|error| write_error(dir, error))?;
    for (host, text) in scripts {
        let path = dir.join(format!("{}.sh", host.replace(':', "-")));
        std::fs::write(&path, text).map_err(|error| write_error(&path, error))?;
        print_stderr(&format!("{}: ssh {} sh <{}", path.display(), advice.ssh_args(host), quote(&path.display().to_string())));
    }
    Ok(())
}
