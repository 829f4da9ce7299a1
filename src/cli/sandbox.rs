#![expect(clippy::disallowed_methods, reason = "reads a scenario and writes the inventory into the sandbox's directory")]
//! `sandbox`: an embedded cluster that runs until Ctrl-C.

use anyhow::Context as _;

use crate::cli::args::SandboxArgs;
use crate::cli::exit::CliError;
use crate::cli::local_env::print_stdout;
use crate::cli::open_session::listen;
use crate::event::Outcome;
use crate::lifecycle::stop_ladder::InterruptPolicy;
use crate::sandbox::{Sandbox, Scenario};

pub(crate) async fn run(args: &SandboxArgs) -> Result<Outcome, CliError> {
    let scenario = match &args.scenario {
        Some(file) => {
            let text = std::fs::read_to_string(file).map_err(|e| CliError::Usage(format!("{}: cannot be read: {e}", file.display())))?;
            Scenario::parse(&text).map_err(|e| CliError::Usage(format!("{}: {e}", file.display())))?
        }
        None => Scenario::with_hosts(args.hosts),
    };
    let mut signals = listen(InterruptPolicy::Detach)?;
    let sandbox = Sandbox::start(scenario).await.context("could not start the sandbox")?;
    let file = sandbox.dir().join("inventory.yaml");
    std::fs::write(&file, sandbox.inventory_yaml("sandbox", "")).context("could not write the inventory")?;
    print_stdout(&format!("{}\n", file.display()));
    signals.controls.recv().await;
    sandbox.stop().await.context("could not stop the sandbox cleanly")?;
    Ok(Outcome::Ok)
}
