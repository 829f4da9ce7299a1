//! The command line.

pub(crate) use super::follow_args::{AttachArgs, LogsArgs};
pub(crate) use super::launch_args::{PrepareArgs, TuiArgs, UpArgs};
pub(crate) use super::slurm_args::{SlurmArgs, SlurmCommand, SlurmRenderArgs, SlurmSubmitArgs};
use std::path::PathBuf;

use clap::{Args, CommandFactory as _, Parser, Subcommand};

use super::common_args::DASHBOARD_HEADING;
pub(crate) use super::common_args::{ColorChoice, CommonArgs, DashboardArgs, Language, PreflightLevel, ProgressMode};
use super::transfer_args::{PullArgs, PushArgs};
use super::value_parsers::{parse_duration, parse_rank, parse_ranks, parse_speed};
use crate::text::rank_selection::RankSelection;

/// Below the list of commands.
const FIRST_STEPS: &str = "First steps: `orchestrate demo` needs no other machine; for your own hosts `init`, `plan`, `check`, `up`. \
     The inventory is the first argument (push and pull take it by -i alone), -i FILE, $ORCHESTRATE_INVENTORY or ./inventory.yaml.";

/// Commands that can open the dashboard; `slurm` has two of the same names.
const DASHBOARD_COMMANDS: [&str; 6] = ["up", "prepare", "tui", "attach", "replay", "submit"];

/// Multi-node GPU training on bare machines: one inventory, one command, nothing left behind.
#[derive(Debug, Parser)]
#[command(name = "orchestrate", version, propagate_version = true, max_term_width = 100, after_help = FIRST_STEPS)]
pub(crate) struct Cli {
    /// Language of messages [default: from LC_ALL, LC_MESSAGES or LANG]
    #[arg(long, value_enum, global = true, help_heading = "Output")]
    pub lang: Option<Language>,
    #[command(subcommand)]
    pub command: Command,
}

/// The command line as it is read and explained: the flags of the dashboard are shown only where it can open.
pub(crate) fn command_line() -> clap::Command {
    hide_dashboard_flags(Cli::command())
}

fn hide_dashboard_flags(command: clap::Command) -> clap::Command {
    let opens_dashboard = DASHBOARD_COMMANDS.contains(&command.get_name());
    let is_hidden = |arg: &clap::Arg| !opens_dashboard && arg.get_help_heading() == Some(DASHBOARD_HEADING);
    command.mut_subcommands(hide_dashboard_flags).mut_args(|arg| if is_hidden(&arg) { arg.hide(true) } else { arg })
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Launch the run, follow it, and tear it down at the end
    Up(UpArgs),
    /// Open the dashboard: follow the live run, or show the plan and start it on request
    Tui(TuiArgs),
    /// Stop the run, remove its containers, fetch missing logs, remove its files, verify that nothing is left
    Down(DownArgs),
    /// List what runs on each host
    #[command(visible_alias = "status")]
    Ps(PsArgs),
    /// Show the logs of the ranks, from the hosts or from this laptop's copies
    Logs(LogsArgs),
    /// Run the set-up tasks (`prepare` in the inventory) alone, in containers that stay
    Prepare(PrepareArgs),
    /// Follow the live run; Ctrl-C detaches
    Attach(AttachArgs),
    /// Run the preflight checks and suggest fixes
    Check(CheckArgs),
    /// Show on one screen what would run where; `-v` every script
    Plan(PlanArgs),
    /// Write one standalone script per host
    Render(RenderArgs),
    /// Write a commented inventory
    Init(InitArgs),
    /// Run a command on every host (not in its container) and group equal outputs
    Exec(ExecArgs),
    /// Copy a file or a directory to every host
    Push(PushArgs),
    /// Copy a file or a directory of every host to DEST/HOST/
    Pull(PullArgs),
    /// Show every rank's stack, equal ones grouped
    Stacks(StacksArgs),
    /// Open a shell in the run's container, or on the host
    Shell(ShellArgs),
    /// Run the same job on a SLURM cluster
    Slurm(SlurmArgs),
    /// List past runs on this laptop
    Runs(RunsArgs),
    /// Play a past run on the dashboard
    Replay(ReplayArgs),
    /// Run a complete job on a cluster simulated on this machine
    Demo(DemoArgs),
    /// Start a cluster simulated on this machine and keep it running until Ctrl-C
    Sandbox(SandboxArgs),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct PsArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// List every run of every name and owner on the hosts, by labels and run directories
    #[arg(long)]
    pub all: bool,
    /// Print JSON, one line per host; with --all, per run and host
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct DownArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// Delete the logs on the hosts without fetching them
    #[arg(long)]
    pub discard_logs: bool,
    /// Send SIGKILL without waiting for the ranks to stop
    #[arg(long)]
    pub kill: bool,
    /// How long to wait for another operator's lock; `--yes` takes it over
    #[arg(long, value_name = "TIME", default_value = "45s", value_parser = parse_duration)]
    pub lock_wait: std::time::Duration,
    /// Print what would be done and change nothing
    #[arg(long, visible_alias = "check")]
    pub dry_run: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// Only these checks or areas (host, docker, env, gpu, files, network), separated by commas
    #[arg(long, value_name = "CHECK", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Skip these checks or areas
    #[arg(long, value_name = "CHECK", value_delimiter = ',')]
    pub skip: Vec<String>,
    /// Also run an all-reduce of about 30 s on all hosts, in the image; `--only smoke` runs nothing else
    #[arg(long)]
    pub smoke: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// List every check with its description
    #[arg(long)]
    pub list: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct StacksArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// Only these ranks: `3`, `r3`, `0-3,7`, `host:gpu02` (repeatable)
    #[arg(long, value_name = "RANKS", value_parser = parse_ranks)]
    pub rank: Vec<RankSelection>,
    /// Print JSON, one line per rank, with every thread
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Ask the hosts: no placeholders, and the differences from what runs
    #[arg(long)]
    pub facts: bool,
    /// Print the whole environment of one rank (`3` or `r3`), secrets masked
    #[arg(long, value_name = "N", value_parser = parse_rank, conflicts_with_all = ["json", "suggest"])]
    pub rank: Option<u32>,
    /// Only list the `nproc_per_node` values and host counts that satisfy all constraints
    #[arg(long)]
    pub suggest: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RenderArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// Write `<host>.sh` files into this directory instead of printing them
    #[arg(short = 'o', long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Gather from the hosts what the inventory leaves open
    #[arg(long)]
    pub facts: bool,
}

/// The name that `init` writes where none is given.
pub(crate) const DEFAULT_NAME: &str = "train";

#[derive(Debug, Clone, Args)]
pub(crate) struct InitArgs {
    /// Import the hosts from a DeepSpeed hostfile, an Ansible inventory (INI or YAML), an ssh_config, or a list of hosts
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Import only the hosts of this group of an Ansible inventory; may be given several times
    #[arg(long, value_name = "NAME", requires = "from")]
    pub group: Vec<String>,
    /// The file to write; `-` is standard output [default: inventory.yaml]
    #[arg(value_name = "FILE", conflicts_with = "output")]
    pub file: Option<PathBuf>,
    /// The same as FILE
    #[arg(short = 'o', long, value_name = "FILE", default_value = "inventory.yaml", hide_default_value = true)]
    pub output: PathBuf,
    /// Name of the runs
    #[arg(long, default_value = DEFAULT_NAME)]
    pub name: String,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// The same as --limit, as `logs` has it
    #[arg(long = "host", value_name = "HOST", hide = true, conflicts_with = "limit")]
    pub host: Option<String>,
    /// Time limit on each host
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    pub timeout: std::time::Duration,
    /// Print JSON, one line per host
    #[arg(long)]
    pub json: bool,
    /// The command; one argument is a shell line, several are an argument vector
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

#[derive(Debug, Clone, Args)]
#[command(override_usage = "orchestrate shell [OPTIONS] [INVENTORY] <HOST|RANK> [-- <CMD>...]")]
pub(crate) struct ShellArgs {
    /// A host, or a rank: its host, with the variables of the rank (RANK, WORLD_SIZE, …); the inventory may stand before it
    #[arg(value_name = "HOST|RANK", num_args = 1..=2, required = true)]
    words: Vec<String>,
    /// Inventory file (repeatable; later files override earlier ones) [default: $ORCHESTRATE_INVENTORY, or ./inventory.yaml]
    #[arg(short = 'i', value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Override one value, for example `--set launch.nproc_per_node=4`
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Use this ssh_config instead of ~/.ssh/config
    #[arg(short = 'F', long = "ssh-config", value_name = "FILE")]
    pub ssh_config: Option<PathBuf>,
    /// When to use colours (NO_COLOR is respected)
    #[arg(long, value_enum, default_value_t = ColorChoice::Auto)]
    pub color: ColorChoice,
    /// More detail; -vv adds library logs
    #[arg(short = 'v', action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// The command to run instead of a shell; one argument is a shell line, several are an argument vector
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<String>,
}

impl ShellArgs {
    /// The host or rank: the last word before `--`.
    pub(crate) fn target(&self) -> &str {
        self.words.last().map_or("", String::as_str)
    }

    /// Whether an inventory is named.
    pub(crate) fn names_inventory(&self) -> bool {
        self.words.len() > 1 || !self.files.is_empty()
    }

    /// As the options of every command that reaches hosts.
    pub(crate) fn common_args(&self) -> CommonArgs {
        let named_first = self.words.iter().rev().skip(1).map(PathBuf::from);
        CommonArgs {
            files: named_first.chain(self.files.iter().cloned()).collect(),
            set: self.set.clone(),
            ssh_config: self.ssh_config.clone(),
            verbose: self.verbose,
            ..CommonArgs::with_output(ProgressMode::Quiet, self.color)
        }
    }
}

#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct RunsArgs {
    #[command(subcommand)]
    pub verb: Option<RunsVerb>,
    /// Print JSON, one line per run
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum RunsVerb {
    /// Delete old runs from this laptop
    Prune {
        /// How many of the newest runs to keep
        #[arg(long, default_value_t = 20)]
        keep: usize,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ReplayArgs {
    /// The run's id as listed by `runs`; a unique prefix is enough
    #[arg(value_name = "RUN")]
    pub run: String,
    /// Playback speed: seconds of the run per second
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = parse_speed)]
    pub speed: f64,
    /// When to use colours
    #[arg(long, value_enum, default_value_t = ColorChoice::Auto)]
    pub color: ColorChoice,
    #[command(flatten)]
    pub dashboard: DashboardArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct DemoArgs {
    /// Let a rank run out of GPU memory: the gang is stopped, and the cause is reported (exit code 1)
    #[arg(long)]
    pub fail: bool,
    /// How to show progress; here `auto` opens the dashboard on a terminal
    #[arg(long, value_enum, default_value_t = ProgressMode::Auto)]
    pub progress: ProgressMode,
    /// When to use colours
    #[arg(long, value_enum, default_value_t = ColorChoice::Auto)]
    pub color: ColorChoice,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct SandboxArgs {
    /// Number of hosts
    #[arg(long, default_value_t = 4)]
    pub hosts: usize,
    /// A scenario file to use instead
    #[arg(long, value_name = "FILE")]
    pub scenario: Option<PathBuf>,
}
