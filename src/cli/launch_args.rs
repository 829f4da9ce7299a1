//! Arguments of the commands that launch: `up`, `prepare`, `tui`.

use clap::Args;

use super::common_args::{CommonArgs, PreflightLevel};
use super::task_args::TaskArgs;
use super::value_parsers::{DEFAULT_TAIL, parse_duration, parse_tail};
use crate::lifecycle::launch_request::LaunchMode;
use crate::lifecycle::teardown::DEFAULT_LOCK_WAIT;

#[derive(Debug, Clone, Args)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// Return as soon as all ranks are running
    #[arg(short = 'd', long)]
    pub detach: bool,
    /// Keep containers and logs at the end (as `teardown: never`)
    #[arg(long)]
    pub keep: bool,
    /// Stop the run and recreate its containers
    #[arg(long)]
    pub recreate: bool,
    /// Print what would be done and change nothing
    #[arg(long, visible_alias = "check")]
    pub dry_run: bool,
    /// Show every difference from the live run, what changed in the tasks since they last ran, and with --dry-run the files that they would send
    #[arg(long)]
    pub diff: bool,
    /// Which checks run before anything is changed
    #[arg(long, value_enum, default_value_t = PreflightLevel::Fast)]
    pub preflight: PreflightLevel,
    /// How long to wait for another operator's lock
    #[arg(long, value_name = "TIME", default_value = "45s", value_parser = parse_duration)]
    pub lock_wait: std::time::Duration,
    #[command(flatten)]
    pub tasks: TaskArgs,
    /// The command whose options these are.
    #[arg(skip)]
    pub command: LaunchMode,
    /// If the run is already live: how many of the last lines of each log to show first
    #[arg(long, value_name = "N", default_value_t = DEFAULT_TAIL, value_parser = parse_tail)]
    pub tail: usize,
}

impl UpArgs {
    /// The defaults of `up`, for a command that launches as `up` does.
    pub(crate) fn for_command(command: LaunchMode, common: CommonArgs) -> UpArgs {
        UpArgs {
            common,
            command,
            detach: false,
            keep: false,
            recreate: false,
            dry_run: false,
            diff: false,
            preflight: PreflightLevel::Fast,
            lock_wait: DEFAULT_LOCK_WAIT,
            tasks: TaskArgs::default(),
            tail: DEFAULT_TAIL,
        }
    }
}

#[derive(Debug, Clone, Args)]
pub(crate) struct PrepareArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    #[command(flatten)]
    pub tasks: TaskArgs,
    /// Recreate the containers
    #[arg(long)]
    pub recreate: bool,
    /// Print what would be done and change nothing
    #[arg(long, visible_alias = "check")]
    pub dry_run: bool,
    /// Show what changed in the tasks since they last ran
    #[arg(long)]
    pub diff: bool,
    /// Which checks run before anything is changed
    #[arg(long, value_enum, default_value_t = PreflightLevel::Fast)]
    pub preflight: PreflightLevel,
    /// How long to wait for another operator's lock
    #[arg(long, value_name = "TIME", default_value = "45s", value_parser = parse_duration)]
    pub lock_wait: std::time::Duration,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct TuiArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// Keep containers and logs at the end (as `teardown: never`)
    #[arg(long)]
    pub keep: bool,
    /// Which checks run before anything is changed
    #[arg(long, value_enum, default_value_t = PreflightLevel::Fast)]
    pub preflight: PreflightLevel,
    /// How long to wait for another operator's lock
    #[arg(long, value_name = "TIME", default_value = "45s", value_parser = parse_duration)]
    pub lock_wait: std::time::Duration,
}
