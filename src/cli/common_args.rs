//! Options that commands share.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::value_parsers::parse_theme;

/// Where the help lists the flags of the dashboard.
pub(super) const DASHBOARD_HEADING: &str = "Dashboard";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressMode {
    /// Progress bars on a terminal, plain lines otherwise
    Auto,
    /// The dashboard
    Tui,
    /// Progress bars
    Bars,
    /// Plain lines
    Plain,
    /// JSON lines on standard output
    Json,
    /// Only the recap
    Quiet,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    /// English
    En,
    /// Chinese
    Zh,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    /// Only on a terminal
    Auto,
    Always,
    Never,
}

/// Options of every command that takes an inventory.
#[derive(Debug, Clone, Args)]
pub(crate) struct CommonArgs {
    /// The inventory file [default: $ORCHESTRATE_INVENTORY, or ./inventory.yaml]
    #[arg(value_name = "INVENTORY")]
    pub inventory: Option<PathBuf>,
    /// Inventory file (repeatable; later files override earlier ones)
    #[arg(short = 'i', value_name = "FILE", help_heading = "Inventory")]
    pub files: Vec<PathBuf>,
    /// Override one value, for example `--set launch.nproc_per_node=4`
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Inventory")]
    pub set: Vec<String>,
    /// Treat this lint as an error; `warnings` stands for every lint
    #[arg(long, value_name = "LINT", help_heading = "Inventory")]
    pub deny: Vec<String>,
    /// Only these hosts: names, `gpu[01-04]`, `gpu*`, `!gpu03`, separated by commas
    #[arg(long, value_name = "PATTERN", help_heading = "Inventory")]
    pub limit: Option<String>,
    /// Use this ssh_config instead of ~/.ssh/config
    #[arg(short = 'F', long = "ssh-config", value_name = "FILE", help_heading = "Connection")]
    pub ssh_config: Option<PathBuf>,
    /// How many remote commands may run at the same time
    #[arg(long, value_name = "N", default_value_t = 64, help_heading = "Connection")]
    pub forks: usize,
    /// How to show progress
    #[arg(long, value_enum, default_value_t = ProgressMode::Auto, help_heading = "Output")]
    pub progress: ProgressMode,
    /// When to use colours (NO_COLOR is respected)
    #[arg(long, value_enum, default_value_t = ColorChoice::Auto, help_heading = "Output")]
    pub color: ColorChoice,
    #[command(flatten)]
    pub dashboard: DashboardArgs,
    /// Answer yes to every question; `down` also takes over another operator's lock
    #[arg(long, short = 'y')]
    pub yes: bool,
    /// More detail; -vv adds library logs
    #[arg(short = 'v', action = clap::ArgAction::Count, help_heading = "Output")]
    pub verbose: u8,
    /// What a command with tasks was given to select them, for the commands that it suggests.
    #[arg(skip)]
    pub task_flags: Vec<String>,
}

impl CommonArgs {
    /// Whether a command whose `--json` is `json` prints JSON.
    pub(crate) fn wants_json(&self, json: bool) -> bool {
        json || self.progress == ProgressMode::Json
    }

    /// The defaults, with these output options.
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
            yes: false,
            verbose: 0,
            task_flags: Vec::new(),
        }
    }
}

/// Shown in the help of the commands that can open the dashboard, see `args::command_line`.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct DashboardArgs {
    /// Disable every key of the dashboard that changes something (tui, attach, replay)
    #[arg(long, help_heading = DASHBOARD_HEADING)]
    pub readonly: bool,
    /// Colour theme of the dashboard: auto, dark, light, high-contrast, ansi16, deuteranopia, tritanopia, mono
    #[arg(long, value_name = "NAME", value_parser = parse_theme, help_heading = DASHBOARD_HEADING)]
    pub theme: Option<String>,
    /// Draw the dashboard with ASCII only
    #[arg(long, help_heading = DASHBOARD_HEADING)]
    pub ascii: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PreflightLevel {
    /// Only the checks that every launch needs
    Off,
    /// Every check except those inside the image
    Fast,
    /// Every check that `check` runs
    Full,
}
