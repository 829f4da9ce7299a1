#![expect(clippy::disallowed_methods, reason = "reads a scenario, writes the inventory beside the sandbox")]
//! `sandbox`: an embedded cluster that stays until Ctrl-C.

use anyhow::Context as _;

use crate::cli::args::SandboxArgs;
use crate::cli::exit::CliError;
use crate::cli::local_env::{print_stderr, print_stdout};
use crate::event::Outcome;
use crate::lifecycle::stop_controller::StopController;
use crate::lifecycle::stop_ladder::InterruptPolicy;
use crate::sandbox::{Sandbox, Scenario};

/// Runs it.
///
/// # Errors
/// Where the sandbox cannot be made.
pub(crate) async fn run(args: &SandboxArgs) -> Result<Outcome, CliError> {
    let scenario = match &args.scenario {
        Some(file) => {
            let text = std::fs::read_to_string(file).map_err(|e| CliError::Usage(format!("{}: cannot be read: {e}", file.display())))?;
            Scenario::parse(&text).map_err(|e| CliError::Usage(format!("{}: {e}", file.display())))?
        }
        None => Scenario::with_hosts(args.hosts),
    };
    let mut signals = StopController::listen(InterruptPolicy::Detach, print_stderr).map_err(anyhow::Error::from)?;
    let sandbox = Sandbox::start(scenario).await.context("the sandbox could not be started")?;
    let file = sandbox.dir().join("inventory.yaml");
    std::fs::write(&file, sandbox.inventory_yaml("sandbox", "")).context("the inventory could not be written")?;
    print_stdout(&format!("{}\n", file.display()));
    signals.controls.recv().await;
    sandbox.stop().await.context("the sandbox did not end cleanly")?;
    Ok(Outcome::Ok)
}
