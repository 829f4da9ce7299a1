//! The words of the command line.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::value_parsers::{RankList, parse_duration, parse_ranks, parse_speed, parse_theme};

/// Multi-node GPU training on bare machines: one inventory, one command, nothing left behind.
#[derive(Debug, Parser)]
#[command(name = "orchestrate", version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Converge and launch; stay attached; tear down at the end
    Up(UpArgs),
    /// The dashboard: follows what runs, or shows the plan and starts it on request
    Tui(TuiArgs),
    /// Fetch what this laptop lacks of the logs, then stop and remove everything of this name, and verify it
    Down(DownArgs),
    /// What runs where
    Ps(CommonArgs),
    /// Read the logs, from the hosts or from this laptop's copies where the hosts have none any more
    Logs(LogsArgs),
    /// Follow what runs; Ctrl-C detaches
    Attach(CommonArgs),
    /// Preflight only: find what would cost the night, and say what to do about it
    Check(CheckArgs),
    /// Show every command that would run, and the environment of each rank
    Plan(PlanArgs),
    /// The same as scripts that a person can run by hand, one a host
    Render(RenderArgs),
    /// Write a commented inventory
    Init(InitArgs),
    /// Run a command on every host; equal outputs are folded
    Exec(ExecArgs),
    /// Show where every rank stands; ranks at the same place are folded
    Stacks(StacksArgs),
    /// A shell where a run is on a host: in its container where there is one
    Shell(ShellArgs),
    /// Past runs on this laptop
    Runs(RunsArgs),
    /// Play a past run on the dashboard
    Replay(ReplayArgs),
    /// Run a whole job on an embedded cluster
    Demo(DemoArgs),
    /// Start an embedded cluster and leave it running until Ctrl-C
    Sandbox(SandboxArgs),
}

/// Which inventory, which hosts, and how to show it.
#[derive(Debug, Clone, Args)]
pub(crate) struct CommonArgs {
    /// The inventory file [default: $ORCHESTRATE_INVENTORY, or ./inventory.yaml]
    #[arg(value_name = "INVENTORY")]
    pub inventory: Option<PathBuf>,
    /// Inventory file; several are merged, later ones override
    #[arg(short = 'i', value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Override one value: `--set launch.nproc_per_node=4`
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Treat what this lint finds as an error; `warnings`: what any lint finds
    #[arg(long, value_name = "LINT")]
    pub deny: Vec<String>,
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
    #[arg(long, value_enum, default_value_t = ProgressMode::Auto)]
    pub progress: ProgressMode,
    /// When to use colours (NO_COLOR is respected)
    #[arg(long, value_enum, default_value_t = ColorChoice::Auto)]
    pub color: ColorChoice,
    /// How the dashboard is.
    #[command(flatten)]
    pub dashboard: DashboardArgs,
    /// The language of what is said of failures (else from LANG)
    #[arg(long, value_enum)]
    pub lang: Option<Language>,
    /// Answer every question with yes
    #[arg(long, short = 'y')]
    pub yes: bool,
    /// Say more; twice: what the libraries say
    #[arg(short = 'v', action = clap::ArgAction::Count)]
    pub verbose: u8,
}

impl CommonArgs {
    /// No flags but how it is shown.
    pub(crate) fn with_output(progress: ProgressMode, color: ColorChoice) -> CommonArgs {
        CommonArgs {
            inventory: None,
            files: Vec::new(),
            set: Vec::new(),
            deny: Vec::new(),
            limit: None,
            ssh_config: None,
            forks: 64,
            progress,
            color,
            dashboard: DashboardArgs::default(),
            lang: None,
            yes: false,
            verbose: 0,
        }
    }
}

/// How the dashboard is.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct DashboardArgs {
    /// Only look: the dashboard (of tui, attach, replay) has no key that changes something
    #[arg(long)]
    pub readonly: bool,
    /// Colours of the dashboard: auto, dark, light, high-contrast, ansi16, deuteranopia, tritanopia, mono
    #[arg(long, value_name = "NAME", value_parser = parse_theme)]
    pub theme: Option<String>,
    /// Draw the dashboard with ASCII only
    #[arg(long)]
    pub ascii: bool,
}

/// `--progress`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressMode {
    /// Bars on a terminal, lines else
    Auto,
    /// The dashboard
    Tui,
    /// Bars
    Bars,
    /// Lines
    Plain,
    /// JSON lines on standard output
    Json,
    /// Only the recap
    Quiet,
}

/// `--lang`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    /// English
    En,
    /// Chinese
    Zh,
}

/// `--color`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    /// On a terminal
    Auto,
    /// Yes
    Always,
    /// No
    Never,
}

/// `--preflight`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PreflightLevel {
    /// Only what a launch cannot do without
    Off,
    /// Everything but the inside of the image
    Fast,
    /// Everything that `check` looks at
    Full,
}

/// `up`.
#[derive(Debug, Clone, Args)]
pub(crate) struct UpArgs {
    /// Which hosts.
    #[command(flatten)]
    pub common: CommonArgs,
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
    /// How much is checked before anything is changed
    #[arg(long, value_enum, default_value_t = PreflightLevel::Fast)]
    pub preflight: PreflightLevel,
    /// How long to wait for another operator's lock
    #[arg(long, value_name = "TIME", default_value = "45s", value_parser = parse_duration)]
    pub lock_wait: std::time::Duration,
    /// `tui`: nothing is changed before it is asked for, and whatever runs is followed.
    #[arg(skip)]
    pub confirm_first: bool,
    /// `demo`: said on the dashboard when it opens; what happened can be looked at until the person leaves.
    #[arg(skip)]
    pub intro_text: Option<&'static str>,
}

impl UpArgs {
    /// `up` without flags of its own.
    pub(crate) fn with_common(common: CommonArgs) -> UpArgs {
        UpArgs {
            common,
            detach: false,
            keep: false,
            recreate: false,
            dry_run: false,
            diff: false,
            preflight: PreflightLevel::Fast,
            lock_wait: std::time::Duration::from_secs(45),
            confirm_first: false,
            intro_text: None,
        }
    }
}

/// `tui`.
#[derive(Debug, Clone, Args)]
pub(crate) struct TuiArgs {
    /// Which hosts.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Leave containers and logs at the end (teardown: never)
    #[arg(long)]
    pub keep: bool,
    /// How much is checked before anything is changed
    #[arg(long, value_enum, default_value_t = PreflightLevel::Fast)]
    pub preflight: PreflightLevel,
    /// How long to wait for another operator's lock
    #[arg(long, value_name = "TIME", default_value = "45s", value_parser = parse_duration)]
    pub lock_wait: std::time::Duration,
}

/// `down`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DownArgs {
    /// Which hosts.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Do not fetch the logs before they are deleted
    #[arg(long)]
    pub discard_logs: bool,
    /// Kill at once instead of stopping with grace
    #[arg(long)]
    pub kill: bool,
    /// How long to wait for another operator's lock; `--yes` takes it over
    #[arg(long, value_name = "TIME", default_value = "45s", value_parser = parse_duration)]
    pub lock_wait: std::time::Duration,
    /// Change nothing; say what would be done
    #[arg(long, visible_alias = "check")]
    pub dry_run: bool,
}

/// `logs`.
#[derive(Debug, Clone, Args)]
pub(crate) struct LogsArgs {
    /// Which hosts.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Go on as the logs grow
    #[arg(short = 'f', long)]
    pub follow: bool,
    /// A past run of this inventory, as `runs` lists it; a unique prefix is enough
    #[arg(long, value_name = "ID", conflicts_with = "follow")]
    pub run: Option<String>,
    /// Only these ranks: `3`, `r3`, `0-1`, `0,2-3` (repeatable)
    #[arg(long, value_name = "RANKS", value_parser = parse_ranks)]
    pub rank: Vec<RankList>,
    /// Only the ranks of this host (repeatable)
    #[arg(long = "host", value_name = "H")]
    pub hosts: Vec<String>,
    /// Only the last N lines of each
    #[arg(long, value_name = "N")]
    pub tail: Option<usize>,
}

impl LogsArgs {
    /// The ranks that are wanted; empty: all.
    pub(crate) fn ranks(&self) -> BTreeSet<u32> {
        self.rank.iter().flat_map(|list| list.0.iter().copied()).collect()
    }
}

/// `check`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CheckArgs {
    /// Which hosts.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Only these checks or areas (host, docker, image, gpu, files, network), separated by commas
    #[arg(long, value_name = "CHECK", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Leave these checks or areas out
    #[arg(long, value_name = "CHECK", value_delimiter = ',')]
    pub skip: Vec<String>,
    /// Then run an all-reduce of about 30 s on all hosts, in the image; `--only smoke`: that alone
    #[arg(long)]
    pub smoke: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
    /// Name every check and what it looks at
    #[arg(long)]
    pub list: bool,
}

/// `stacks`.
#[derive(Debug, Clone, Args)]
pub(crate) struct StacksArgs {
    /// Which hosts.
    #[command(flatten)]
    pub common: CommonArgs,
    /// As JSON, a line a rank, with every thread
    #[arg(long)]
    pub json: bool,
}

/// `plan`.
#[derive(Debug, Clone, Args)]
pub(crate) struct PlanArgs {
    /// Which hosts.
    #[command(flatten)]
    pub common: CommonArgs,
    /// As JSON
    #[arg(long)]
    pub json: bool,
    /// Ask the hosts, so that nothing is left open
    #[arg(long)]
    pub facts: bool,
    /// Only say which `nproc_per_node`, and how many of the hosts, satisfy all constraints
    #[arg(long)]
    pub suggest: bool,
}

/// `render`.
#[derive(Debug, Clone, Args)]
pub(crate) struct RenderArgs {
    /// Which hosts.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Write `<host>.sh` into this folder instead of all to standard output
    #[arg(short = 'o', long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Ask the hosts for what the inventory leaves open
    #[arg(long)]
    pub facts: bool,
}

/// `init`.
#[derive(Debug, Clone, Args)]
pub(crate) struct InitArgs {
    /// Take the hosts from a DeepSpeed hostfile, an Ansible inventory (INI or YAML), an ssh_config, or a list of hosts
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Where to write it; `-`: standard output
    #[arg(short = 'o', long, value_name = "FILE", default_value = "inventory.yaml")]
    pub output: PathBuf,
    /// What the runs are called
    #[arg(long, default_value = "train")]
    pub name: String,
}

/// `exec`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ExecArgs {
    /// Which hosts.
    #[command(flatten)]
    pub common: CommonArgs,
    /// How long it may take on a host
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    pub timeout: std::time::Duration,
    /// The command; one word is a shell line, several are an argument vector
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// `shell`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ShellArgs {
    /// The host, or the number of a rank: its host, and its variables (RANK, WORLD_SIZE, …) as well
    #[arg(value_name = "HOST|RANK")]
    pub target: String,
    /// Inventory file; several are merged, later ones override [default: $ORCHESTRATE_INVENTORY, or ./inventory.yaml]
    #[arg(short = 'i', value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Override one value: `--set launch.nproc_per_node=4`
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Use this ssh_config instead of ~/.ssh/config
    #[arg(short = 'F', long = "ssh-config", value_name = "FILE")]
    pub ssh_config: Option<PathBuf>,
    /// When to use colours (NO_COLOR is respected)
    #[arg(long, value_enum, default_value_t = ColorChoice::Auto)]
    pub color: ColorChoice,
    /// Say more; twice: what the libraries say
    #[arg(short = 'v', action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// A command instead of a shell; one word is a shell line, several are an argument vector
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<String>,
}

impl ShellArgs {
    /// The same for what every command begins with.
    pub(crate) fn common_args(&self) -> CommonArgs {
        CommonArgs {
            files: self.files.clone(),
            set: self.set.clone(),
            ssh_config: self.ssh_config.clone(),
            verbose: self.verbose,
            ..CommonArgs::with_output(ProgressMode::Quiet, self.color)
        }
    }
}

/// `runs`.
#[derive(Debug, Clone, Args)]
pub(crate) struct RunsArgs {
    /// What to do with them.
    #[command(subcommand)]
    pub verb: Option<RunsVerb>,
}

/// What to do with past runs.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum RunsVerb {
    /// Delete old runs from this laptop
    Prune {
        /// Keep this many of the newest
        #[arg(long, default_value_t = 20)]
        keep: usize,
    },
}

/// `replay`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ReplayArgs {
    /// The run's id as `runs` lists it; the beginning is enough where only one begins so
    #[arg(value_name = "RUN")]
    pub run: String,
    /// How many seconds of the run pass in one
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = parse_speed)]
    pub speed: f64,
    /// When to use colours
    #[arg(long, value_enum, default_value_t = ColorChoice::Auto)]
    pub color: ColorChoice,
    /// How the dashboard is.
    #[command(flatten)]
    pub dashboard: DashboardArgs,
}

/// `demo`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DemoArgs {
    /// How progress is shown
    #[arg(long, value_enum, default_value_t = ProgressMode::Auto)]
    pub progress: ProgressMode,
    /// When to use colours
    #[arg(long, value_enum, default_value_t = ColorChoice::Auto)]
    pub color: ColorChoice,
}

/// `sandbox`.
#[derive(Debug, Clone, Args)]
pub(crate) struct SandboxArgs {
    /// How many hosts
    #[arg(long, default_value_t = 4)]
    pub hosts: usize,
    /// A scenario file instead
    #[arg(long, value_name = "FILE")]
    pub scenario: Option<PathBuf>,
}
