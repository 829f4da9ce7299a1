//! Arguments of `push` and `pull`.

use std::path::PathBuf;

use clap::Args;

use crate::text::shell_quote::quote;

use super::common_args::{ColorChoice, CommonArgs, ProgressMode};
use super::exit::CliError;

#[derive(Debug, Clone, Args)]
pub(crate) struct PushArgs {
    /// A file or a directory of this laptop
    #[arg(value_name = "SRC")]
    pub source: PathBuf,
    /// Where it goes on every host: an absolute path or `~/…`. A directory's contents become the contents of DEST; a file becomes DEST, or a file
    /// in it if DEST ends with `/`
    #[arg(value_name = "DEST")]
    pub destination: String,
    /// One word too many
    #[arg(hide = true)]
    pub surplus: Option<String>,
    /// Leave out what this glob matches, as in .gitignore (repeatable)
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,
    /// Leave out .git and what .gitignore files name
    #[arg(long)]
    pub gitignore: bool,
    /// Delete what SRC does not have, in a directory that a push with --delete or a `sync` task has made; what --exclude and --gitignore leave out stays
    #[arg(long)]
    pub delete: bool,
    #[command(flatten)]
    pub transfer: TransferArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct PullArgs {
    /// A file or a directory of every host: an absolute path or `~/…`
    #[arg(value_name = "SRC")]
    pub source: String,
    /// A directory of this laptop; what comes from a host lands in DEST/HOST/
    #[arg(value_name = "DEST")]
    pub destination: PathBuf,
    /// One word too many
    #[arg(hide = true)]
    pub surplus: Option<String>,
    #[command(flatten)]
    pub transfer: TransferArgs,
}

/// Options of `push` and `pull`.
#[derive(Debug, Clone, Args)]
pub(crate) struct TransferArgs {
    /// Inventory file (repeatable; later files override earlier ones) [default: $ORCHESTRATE_INVENTORY, or ./inventory.yaml]
    #[arg(short = 'i', value_name = "FILE", help_heading = "Inventory")]
    pub files: Vec<PathBuf>,
    /// Override one value, for example `--set ssh.user=root`
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Inventory")]
    pub set: Vec<String>,
    /// Only these hosts: names, `gpu[01-04]`, `gpu*`, `!gpu03`, separated by commas
    #[arg(long, value_name = "PATTERN", help_heading = "Inventory")]
    pub limit: Option<String>,
    /// Use this ssh_config instead of ~/.ssh/config
    #[arg(short = 'F', long = "ssh-config", value_name = "FILE", help_heading = "Connection")]
    pub ssh_config: Option<PathBuf>,
    /// To how many hosts to connect at the same time
    #[arg(long, value_name = "N", default_value_t = 64, help_heading = "Connection")]
    pub forks: usize,
    /// Change nothing, say what would change
    #[arg(long, visible_alias = "check")]
    pub dry_run: bool,
    /// List the files that differ: `+` new, `~` changed, `m` another mode, `-` deleted
    #[arg(long)]
    pub diff: bool,
    /// How to show progress; `json` prints one line per host
    #[arg(long, value_enum, default_value_t = ProgressMode::Auto, help_heading = "Output")]
    pub progress: ProgressMode,
    /// When to use colours (NO_COLOR is respected)
    #[arg(long, value_enum, default_value_t = ColorChoice::Auto, help_heading = "Output")]
    pub color: ColorChoice,
    /// More detail; -vv adds library logs
    #[arg(short = 'v', action = clap::ArgAction::Count, help_heading = "Output")]
    pub verbose: u8,
}

impl TransferArgs {
    /// As the options of every command that reaches hosts.
    pub(crate) fn common_args(&self) -> CommonArgs {
        CommonArgs {
            files: self.files.clone(),
            set: self.set.clone(),
            limit: self.limit.clone(),
            ssh_config: self.ssh_config.clone(),
            forks: self.forks,
            verbose: self.verbose,
            ..CommonArgs::with_output(self.progress, self.color)
        }
    }
}

/// `push train.yaml SRC DEST`: the inventory has no place of its own here.
pub(super) fn refuse_surplus_word(command: &str, words: [&str; 2], surplus: Option<&str>, has_inventory: bool) -> Result<(), CliError> {
    let Some(surplus) = surplus else { return Ok(()) };
    if has_inventory {
        let help = "SRC is one file or one directory: name the directory of several files";
        return Err(CliError::Usage(format!("too many words: only SRC and DEST are expected\n    help: {help}")));
    }
    let [inventory, source] = words.map(quote);
    let command = ["orchestrate", command, "-i", &inventory, &source, &quote(surplus)].join(" ");
    Err(CliError::Usage(format!("too many words: only SRC and DEST are expected\n    help: name the inventory with -i: `{command}`")))
}
