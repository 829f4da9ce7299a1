//! Arguments of `slurm`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::common_args::{CommonArgs, PreflightLevel};
use super::follow_args::{AttachArgs, LogsArgs};

#[derive(Debug, Clone, Args)]
pub(crate) struct SlurmArgs {
    #[command(subcommand)]
    pub command: SlurmCommand,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum SlurmCommand {
    /// Write the job as a script for sbatch
    Render(SlurmRenderArgs),
    /// Submit the job through the login node
    Submit(SlurmSubmitArgs),
    /// Show the job's state: why it waits, where it runs, how it ended
    Status(CommonArgs),
    /// Show the logs of the ranks
    Logs(LogsArgs),
    /// Follow the job, from the queue to its end; Ctrl-C detaches
    Attach(AttachArgs),
    /// Cancel the job and wait for its end
    Cancel(CommonArgs),
    /// Cancel the job, fetch its logs and remove its files
    Down(CommonArgs),
}

impl SlurmCommand {
    pub(crate) fn common_args(&self) -> &CommonArgs {
        match self {
            SlurmCommand::Render(args) => &args.common,
            SlurmCommand::Submit(args) => &args.common,
            SlurmCommand::Status(args) | SlurmCommand::Cancel(args) | SlurmCommand::Down(args) => args,
            SlurmCommand::Logs(args) => &args.common,
            SlurmCommand::Attach(args) => &args.common,
        }
    }
}

#[derive(Debug, Clone, Args)]
pub(crate) struct SlurmSubmitArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// Check the cluster, ask `sbatch --test-only`, and submit nothing
    #[arg(long, visible_alias = "check")]
    pub dry_run: bool,
    /// Whether the cluster is checked before the job is submitted (`full` is as `fast`)
    #[arg(long, value_enum, default_value_t = PreflightLevel::Fast)]
    pub preflight: PreflightLevel,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct SlurmRenderArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// Write the script into this file instead of printing it
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}
