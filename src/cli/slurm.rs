#![expect(clippy::disallowed_methods, reason = "writes the script into --output")]
//! `slurm`: the same job on a SLURM cluster. `render` writes it as a script for sbatch.

use crate::cli::args::{SlurmCommand, SlurmRenderArgs};
use crate::cli::exit::CliError;
use crate::cli::local_env::{hide_known_secrets, print_raw_unless_tty, print_stderr};
use crate::cli::open_session::load_slurm_inventory;
use crate::event::Outcome;
use crate::plan::slurm;
use crate::text::shell_quote::quote;

pub(crate) fn run(command: &SlurmCommand) -> Result<Outcome, CliError> {
    match command {
        SlurmCommand::Render(args) => render(args),
    }
}

fn render(args: &SlurmRenderArgs) -> Result<Outcome, CliError> {
    let inventory = load_slurm_inventory(&args.common)?;
    hide_known_secrets(&inventory);
    let job = inventory.slurm_job()?;
    let script = slurm::render_batch_script(&inventory, &job).map_err(CliError::Usage)?;
    match &args.output {
        None => print_raw_unless_tty(&script),
        Some(path) => {
            std::fs::write(path, &script).map_err(|error| CliError::Usage(format!("{}: cannot be written: {error}", path.display())))?;
            print_stderr(&format!("{0}: sbatch {1}", path.display(), quote(&path.display().to_string())));
        }
    }
    Ok(Outcome::Ok)
}
