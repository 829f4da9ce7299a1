//! The words of the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Multi-node GPU training on bare machines: one inventory, one command, nothing left behind.
#[derive(Debug, Parser)]
#[command(name = "orchestrate", version, propagate_version = true, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Converge and launch; stay attached; tear down at the end
    Up(UpArgs),
    /// Fetch what this laptop lacks of the logs, then stop and remove everything of this name, and verify it
    Down(DownArgs),
    /// What runs where
    Ps(HostArgs),
    /// Read the logs from the hosts
    Logs(LogsArgs),
    /// Follow what runs; Ctrl-C detaches
    Attach(HostArgs),
    /// Show every command that would run, and the environment of each rank
    Plan(PlanArgs),
    /// Run a command on every host; equal outputs are folded
    Exec(ExecArgs),
    /// Past runs on this laptop
    Runs(RunsArgs),
    /// Run a whole job on an embedded cluster
    Demo(DemoArgs),
    /// Start an embedded cluster and leave it running until Ctrl-C
    Sandbox(SandboxArgs),
}

/// Which inventory, which hosts, and how to show it.
#[derive(Debug, Clone, Args)]
pub struct HostArgs {
    /// The inventory file [default: $ORCHESTRATE_INVENTORY, or ./inventory.yaml]
    #[arg(value_name = "INVENTORY")]
    pub inventory: Option<PathBuf>,
    /// Inventory file; several are merged, later ones override
    #[arg(short = 'i', value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Override one value: `--set launch.nproc_per_node=4`
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Only these hosts: names, `gpu[01-04]`, `gpu*`, `!gpu03`, separated by commas
    #[arg(long, value_name = "PATTERN")]
    pub limit: Option<String>,
    /// Use this ssh_config instead of ~/.ssh/config
    #[arg(short = 'F', long = "ssh-config", value_name = "FILE")]
    pub ssh_config: Option<PathBuf>,
    /// How many remote commands run at once
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub forks: usize,
    /// How progress is shown
    #[arg(long, value_enum, default_value_t = Progress::Auto)]
    pub progress: Progress,
    /// When to use colours (NO_COLOR is respected)
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    pub color: Color,
    /// Answer every question with yes
    #[arg(long, short = 'y')]
    pub yes: bool,
    /// Say more; twice: what the libraries say
    #[arg(short = 'v', action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// `--progress`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Progress {
    /// Bars on a terminal, lines else
    Auto,
    /// Bars
    Bars,
    /// Lines
    Plain,
    /// JSON lines on standard output
    Json,
    /// Only the recap
    Quiet,
}

/// `--color`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal
    Auto,
    /// Yes
    Always,
    /// No
    Never,
}

/// `up`.
#[derive(Debug, Clone, Args)]
pub struct UpArgs {
    /// Which hosts.
    #[command(flatten)]
    pub host: HostArgs,
    /// Return once every rank runs
    #[arg(short = 'd', long)]
    pub detach: bool,
    /// Leave containers and logs at the end (teardown: never)
    #[arg(long)]
    pub keep: bool,
    /// Stop what runs and make every container anew
    #[arg(long)]
    pub recreate: bool,
    /// Change nothing; say what would be done
    #[arg(long, visible_alias = "check")]
    pub dry_run: bool,
    /// Show what differs from the live run
    #[arg(long)]
    pub diff: bool,
    /// How long to wait for another operator's lock
    #[arg(long, value_name = "TIME", default_value = "45s", value_parser = duration)]
    pub lock_wait: std::time::Duration,
}

/// `down`.
#[derive(Debug, Clone, Args)]
pub struct DownArgs {
    /// Which hosts.
    #[command(flatten)]
    pub host: HostArgs,
    /// Do not fetch the logs before they are deleted
    #[arg(long)]
    pub discard_logs: bool,
    /// Kill at once instead of stopping with grace
    #[arg(long)]
    pub kill: bool,
    /// How long to wait for another operator's lock; `--yes` takes it over
    #[arg(long, value_name = "TIME", default_value = "45s", value_parser = duration)]
    pub lock_wait: std::time::Duration,
    /// Change nothing; say what would be done
    #[arg(long, visible_alias = "check")]
    pub dry_run: bool,
}

/// `logs`.
#[derive(Debug, Clone, Args)]
pub struct LogsArgs {
    /// Which hosts.
    #[command(flatten)]
    pub host: HostArgs,
    /// Go on as the logs grow
    #[arg(short = 'f', long)]
    pub follow: bool,
    /// Only this rank (repeatable)
    #[arg(long, value_name = "N")]
    pub rank: Vec<u32>,
    /// Only the ranks of this host (repeatable)
    #[arg(long = "host", value_name = "H")]
    pub hosts: Vec<String>,
    /// Only the last N lines of each
    #[arg(long, value_name = "N")]
    pub tail: Option<usize>,
}

/// `plan`.
#[derive(Debug, Clone, Args)]
pub struct PlanArgs {
    /// Which hosts.
    #[command(flatten)]
    pub host: HostArgs,
    /// As JSON
    #[arg(long)]
    pub json: bool,
    /// Ask the hosts, so that nothing is left open
    #[arg(long)]
    pub facts: bool,
}

/// `exec`.
#[derive(Debug, Clone, Args)]
pub struct ExecArgs {
    /// Which hosts.
    #[command(flatten)]
    pub host: HostArgs,
    /// How long it may take on a host
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    pub timeout: std::time::Duration,
    /// The command; one word is a shell line, several are an argument vector
    #[arg(last = true, required = true, value_name = "CMD")]
    pub words: Vec<String>,
}

/// `runs`.
#[derive(Debug, Clone, Args)]
pub struct RunsArgs {
    /// What to do with them.
    #[command(subcommand)]
    pub verb: Option<RunsVerb>,
}

/// What to do with past runs.
#[derive(Debug, Clone, Subcommand)]
pub enum RunsVerb {
    /// Delete old runs from this laptop
    Prune {
        /// Keep this many of the newest
        #[arg(long, default_value_t = 20)]
        keep: usize,
    },
}

/// `demo`.
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// How progress is shown
    #[arg(long, value_enum, default_value_t = Progress::Auto)]
    pub progress: Progress,
    /// When to use colours
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    pub color: Color,
}

/// `sandbox`.
#[derive(Debug, Clone, Args)]
pub struct SandboxArgs {
    /// How many hosts
    #[arg(long, default_value_t = 4)]
    pub hosts: usize,
    /// A scenario file instead
    #[arg(long, value_name = "FILE")]
    pub scenario: Option<PathBuf>,
}

/// Reads `45s`, `5m`, `1h`, `500ms`.
fn duration(text: &str) -> Result<std::time::Duration, String> {
    text.parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|d| std::time::Duration::try_from(d).ok())
        .ok_or_else(|| format!("`{text}` is no time: write 45s, 5m, 500ms"))
}
