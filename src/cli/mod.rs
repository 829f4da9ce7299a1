//! The command line: parses arguments, hands the terminal and the dashboard to the workflows, turns outcomes and errors into text and exit
//! codes. One file per command.

pub(crate) mod args;
pub(crate) mod attach;
pub(crate) mod check;
pub(crate) mod clipboard;
pub(crate) mod common_args;
mod dashboard;
pub(crate) mod dashboard_config;
pub(crate) mod dashboard_shell;
pub(crate) mod demo;
pub(crate) mod down;
pub(crate) mod exec;
mod exec_single_host;
pub(crate) mod exit;
#[cfg(debug_assertions)]
mod fault_injection;
mod follow_args;
pub(crate) mod init;
pub(crate) mod interactive;
mod interactive_end;
mod inventory_files;
mod journal_player;
mod laptop_id;
mod launch;
mod launch_args;
pub(crate) mod local_env;
mod local_logs;
pub(crate) mod logs;
mod open_session;
pub(crate) mod passthrough;
pub(crate) mod plan;
pub(crate) mod prepare;
mod printing;
pub(crate) mod probe_listing;
mod progress_output;
pub(crate) mod ps;
mod ps_all;
mod ps_ranks;
pub(crate) mod pull;
pub(crate) mod push;
pub(crate) mod render;
pub(crate) mod replay;
pub(crate) mod runs;
pub(crate) mod sandbox;
pub(crate) mod shell;
mod shell_target;
pub(crate) mod slurm;
mod slurm_args;
mod slurm_down;
mod slurm_logs;
mod slurm_reports;
mod slurm_submit;
mod slurm_tasks;
pub(crate) mod ssh_report;
pub(crate) mod stacks;
pub(crate) mod task_args;
mod task_listing;
mod text_table;
mod transfer_args;
mod transfer_output;
pub(crate) mod tui;
mod unreachable;
pub(crate) mod up;
mod value_parsers;

use std::path::Path;
use std::process::ExitCode;

use clap::FromArgMatches as _;

use crate::cli::args::{Cli, Command, CommonArgs, SlurmCommand, command_line};
use crate::cli::exit::{CliError, exit_code};
use crate::cli::local_env::print_stderr;
use crate::diagnose::advice_formatter::AdviceFormatter;
use crate::event::Outcome;
use crate::text::translation::Lang;

/// Without the tip to write `-- --flag`, which would make a flag that does not exist the inventory, and with the usage as `--help` has it.
fn correct_usage_error(mut error: clap::Error) -> clap::Error {
    use clap::error::{ContextKind, ContextValue};
    if let Some(ContextValue::StyledStrs(tips)) = error.remove(ContextKind::Suggested) {
        let useful: Vec<_> = tips.into_iter().filter(|tip| !tip.to_string().contains("as a value")).collect();
        if !useful.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(useful));
        }
    }
    // clap shows the arguments of the faulty line as those that are required.
    if let Some(ContextValue::StyledStr(usage)) = error.remove(ContextKind::Usage) {
        let takes_command = usage.to_string().contains("-- <CMD>");
        let usage = usage.ansi().to_string().replace("<INVENTORY>", "[OPTIONS] [INVENTORY]");
        let is_word = matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(word)) if !word.starts_with('-'));
        if is_word && takes_command {
            let tip = "put `--` before the command: everything after it runs on the hosts";
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        }
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage.into()));
    }
    error
}

pub fn main() -> ExitCode {
    local_env::disable_core_dumps();
    let matches = command_line().try_get_matches().unwrap_or_else(|error| correct_usage_error(error).exit());
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    // A panic message may quote text from a host, so it is sanitized like any other.
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = std::backtrace::Backtrace::capture();
        let more = if backtrace.status() == std::backtrace::BacktraceStatus::Captured { format!("\n{backtrace}") } else { String::new() };
        local_env::print_untranslated(&format!("{panic}{more}"));
    }));
    let common = common_args(&cli.command);
    init_tracing(common.as_ref().map_or(0, |common| common.verbose));
    let lang = local_env::resolve_lang(cli.lang);
    local_env::set_user_lang(lang);
    let advice = common.map_or_else(AdviceFormatter::default, |common| local_env::build_advice(&common, Path::new("."), &[]));
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            print_stderr(&format!("could not start the async runtime: {error}"));
            return ExitCode::from(70);
        }
    };
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runtime.block_on(run(cli.command))))
        .unwrap_or_else(|_| Err(CliError::Bug(anyhow::anyhow!("orchestrate panicked; the panic message is printed above"))));
    // Restore the terminal before printing anything.
    crate::tui::terminal::restore();
    crate::report::progress_bars::release_terminal();
    runtime.shutdown_timeout(std::time::Duration::from_millis(500));
    if crate::tui::terminal::has_panicked() {
        return ExitCode::from(70);
    }
    ExitCode::from(match ended {
        Ok(outcome) => exit_code(&outcome),
        Err(error) => report_error(error, &advice, lang),
    })
}

/// `--readonly` is an error for commands that change hosts.
fn reject_readonly_changes(command: &Command) -> Result<(), CliError> {
    let name = match command {
        Command::Up(_) => "up",
        Command::Prepare(_) => "prepare",
        Command::Down(_) => "down",
        Command::Exec(_) => "exec",
        Command::Slurm(args) => match &args.command {
            SlurmCommand::Submit(_) => "slurm submit",
            SlurmCommand::Cancel(_) => "slurm cancel",
            SlurmCommand::Down(_) => "slurm down",
            SlurmCommand::Render(_) | SlurmCommand::Status(_) | SlurmCommand::Logs(_) | SlurmCommand::Attach(_) => return Ok(()),
        },
        // `push`, `pull` and `shell` do not have the flag.
        Command::Push(_) | Command::Pull(_) | Command::Shell(_) => return Ok(()),
        Command::Tui(_) | Command::Attach(_) | Command::Replay(_) | Command::Demo(_) | Command::Sandbox(_) => return Ok(()),
        Command::Ps(_) | Command::Logs(_) | Command::Check(_) | Command::Stacks(_) | Command::Runs(_) => return Ok(()),
        Command::Plan(_) | Command::Render(_) | Command::Init(_) => return Ok(()),
    };
    if !common_args(command).is_some_and(|common| common.dashboard.readonly) {
        return Ok(());
    }
    let help = "use it with `tui`, `attach` or `replay`: it disables every key of the dashboard that changes something";
    let dry_run = if name == "exec" || name.starts_with("slurm") { "" } else { "; `--dry-run` prints what would be done" };
    Err(CliError::Usage(format!("--readonly: `{name}` changes hosts\n    help: {help}{dry_run}")))
}

async fn run(command: Command) -> Result<Outcome, CliError> {
    reject_readonly_changes(&command)?;
    match command {
        Command::Up(args) => up::run(&args).await,
        Command::Prepare(args) => prepare::run(&args).await,
        Command::Tui(args) => tui::run(&args).await,
        Command::Down(args) => down::run(&args).await,
        Command::Ps(args) => ps::run(&args).await,
        Command::Logs(args) => logs::run(&args).await,
        Command::Attach(args) => attach::run(&args).await,
        Command::Check(args) => check::run(&args).await,
        Command::Plan(args) => plan::run(&args).await,
        Command::Render(args) => render::run(&args).await,
        Command::Init(args) => init::run(&args),
        Command::Exec(args) => exec::run(&args).await,
        Command::Push(args) => push::run(&args).await,
        Command::Pull(args) => pull::run(&args).await,
        Command::Stacks(args) => stacks::run(&args).await,
        Command::Shell(args) => shell::run(&args).await,
        Command::Slurm(args) => slurm::run(&args.command).await,
        Command::Runs(args) => runs::run(&args),
        Command::Replay(args) => replay::run(&args).await,
        Command::Demo(args) => demo::run(&args).await,
        Command::Sandbox(args) => sandbox::run(&args).await,
    }
}

fn report_error(error: CliError, advice: &AdviceFormatter, lang: Lang) -> u8 {
    match error {
        CliError::Usage(text) => {
            print_stderr(&advice.complete_commands(&text));
            2
        }
        CliError::Inventory(problems) => {
            for problem in &problems {
                print_stderr(&advice.complete_commands(&problem.text(lang)));
            }
            print_stderr(&lang.count(problems.len(), "problem"));
            2
        }
        CliError::RemoteExit(code) => code,
        CliError::Bug(error) => {
            print_stderr(&format!("internal error: {error:#}"));
            print_stderr("    help: this is a bug of orchestrate; please report it with the command and this text");
            70
        }
    }
}

/// The options of a command that reads an inventory.
fn common_args(command: &Command) -> Option<CommonArgs> {
    Some(match command {
        Command::Up(args) => args.common.clone(),
        Command::Prepare(args) => args.common.clone(),
        Command::Tui(args) => args.common.clone(),
        Command::Down(args) => args.common.clone(),
        Command::Ps(args) => args.common.clone(),
        Command::Attach(args) => args.common.clone(),
        Command::Logs(args) => args.common.clone(),
        Command::Check(args) => args.common.clone(),
        Command::Plan(args) => args.common.clone(),
        Command::Render(args) => args.common.clone(),
        Command::Exec(args) => args.common.clone(),
        Command::Stacks(args) => args.common.clone(),
        Command::Shell(args) => args.common_args(),
        Command::Push(args) => args.transfer.common_args(),
        Command::Pull(args) => args.transfer.common_args(),
        Command::Slurm(args) => args.command.common_args().clone(),
        Command::Init(_) | Command::Runs(_) | Command::Replay(_) | Command::Demo(_) | Command::Sandbox(_) => return None,
    })
}

/// Library logs go to standard error, and only with `-v`. russh stays at `warn`: at lower levels it prints signed data.
fn init_tracing(verbose: u8) {
    let filter = match verbose {
        0 => "off",
        1 => "orchestrate=info,russh=warn",
        _ => "orchestrate=debug,russh=warn",
    };
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(|| StderrWriter).init();
}

/// Standard error; deferred while the dashboard has the screen.
struct StderrWriter;

impl std::io::Write for StderrWriter {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        // One log event per call, with its newline. It may quote text from a host.
        local_env::print_untranslated(String::from_utf8_lossy(text).trim_end());
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        // `print_stderr` does not buffer.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::diagnose::advice_formatter::POSITIONAL_INVENTORY_COMMANDS;

    #[test]
    fn readonly_rejects_mutating_commands() {
        let rejection = |arguments: &str| {
            let cli = Cli::try_parse_from(format!("orchestrate {arguments}").split(' ')).expect("valid arguments");
            match reject_readonly_changes(&cli.command) {
                Ok(()) => None,
                Err(CliError::Usage(text)) => Some(text),
                Err(other) => panic!("{other:?}"),
            }
        };
        for name in ["up", "prepare", "down", "exec", "slurm submit", "slurm cancel", "slurm down"] {
            let tail = if name == "exec" { " -- true" } else { "" };
            let text = rejection(&format!("{name} x.yaml --readonly{tail}")).expect("rejected");
            assert!(
                text.starts_with(&format!("--readonly: `{name}` changes hosts\n")) && text.contains("`tui`, `attach` or `replay`"),
                "{text}"
            );
            assert_eq!(rejection(&format!("{name} x.yaml{tail}")), None);
        }
        for allowed in ["tui x.yaml --readonly", "attach x.yaml --readonly", "replay 2026 --readonly", "ps x.yaml --readonly"] {
            assert_eq!(rejection(allowed), None, "{allowed}");
        }
    }

    #[test]
    fn every_command_takes_a_language() {
        for arguments in ["--lang zh runs", "runs prune --lang zh", "init --lang zh", "slurm status --lang zh", "shell --lang zh gpu01"] {
            let cli = Cli::try_parse_from(format!("orchestrate {arguments}").split(' ')).expect("valid arguments");
            assert_eq!(cli.lang, Some(args::Language::Zh), "{arguments}");
        }
    }

    #[test]
    fn flags_of_the_dashboard_are_shown_where_it_opens() {
        let shows = |words: &[&str]| {
            let mut command = command_line();
            for word in words {
                command = command.find_subcommand(word).expect("a command").clone();
            }
            let help = command.render_long_help().to_string();
            ["--readonly", "--theme", "--ascii"].map(|flag| help.contains(flag))
        };
        for words in [&["up"][..], &["tui"], &["attach"], &["replay"], &["slurm", "attach"]] {
            assert_eq!(shows(words), [true; 3], "{words:?}");
        }
        for words in [&["ps"][..], &["logs"], &["check"], &["plan"], &["exec"], &["down"], &["slurm", "status"]] {
            assert_eq!(shows(words), [false; 3], "{words:?}");
        }
    }

    /// An advised command would lack its inventory.
    #[test]
    fn commands_that_take_an_inventory_are_advised_with_it() {
        let takes_inventory = |command: &clap::Command| command.get_positionals().next().is_some_and(|first| first.get_id() == "inventory");
        let mut found = Vec::new();
        for command in Cli::command().get_subcommands() {
            let nested = command.get_subcommands().filter(|nested| takes_inventory(nested));
            found.extend(nested.map(|nested| format!("{} {}", command.get_name(), nested.get_name())));
            found.extend(takes_inventory(command).then(|| command.get_name().to_owned()));
        }
        // A script for sbatch is rendered by hand alone.
        found.retain(|name| name != "slurm render");
        found.sort();
        let mut known = POSITIONAL_INVENTORY_COMMANDS.map(str::to_owned);
        known.sort();
        assert_eq!(found, known);
    }
}
