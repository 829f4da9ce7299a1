//! The roof: reads the command line, joins those who may not know each other, and turns how it ended into words and an exit code.
//!
//! May use everything. One command a file.

pub(crate) mod args;
pub(crate) mod attach;
pub(crate) mod check;
pub(crate) mod clipboard;
mod dashboard;
pub(crate) mod dashboard_config;
pub(crate) mod dashboard_shell;
pub(crate) mod demo;
pub(crate) mod down;
pub(crate) mod exec;
pub(crate) mod exit;
#[cfg(debug_assertions)]
mod fault_injection;
pub(crate) mod init;
pub(crate) mod interactive;
mod journal_player;
mod laptop_id;
mod launch;
pub(crate) mod local_env;
mod local_logs;
pub(crate) mod logs;
mod open_session;
mod output;
pub(crate) mod passthrough;
pub(crate) mod plan;
pub(crate) mod probe_listing;
pub(crate) mod ps;
pub(crate) mod render;
pub(crate) mod replay;
pub(crate) mod runs;
pub(crate) mod sandbox;
pub(crate) mod shell;
pub(crate) mod ssh_report;
pub(crate) mod stacks;
pub(crate) mod tui;
mod unreachable;
pub(crate) mod up;
mod value_parsers;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::args::{Cli, Command};
use crate::cli::exit::{CliError, exit_code};
use crate::cli::local_env::print_stderr;
use crate::event::Outcome;

/// The whole program.
pub fn main() -> ExitCode {
    local_env::disable_core_dumps();
    let cli = Cli::parse();
    // What a panic says may quote a host, like any other text.
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = std::backtrace::Backtrace::capture();
        let more = if backtrace.status() == std::backtrace::BacktraceStatus::Captured { format!("\n{backtrace}") } else { String::new() };
        print_stderr(&format!("{panic}{more}"));
    }));
    init_tracing(&cli);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            print_stderr(&format!("could not start: {error}"));
            return ExitCode::from(70);
        }
    };
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runtime.block_on(run(cli.command))))
        .unwrap_or_else(|_| Err(CliError::Bug(anyhow::anyhow!("orchestrate panicked; what it said stands above"))));
    // However it ended: the terminal is as it was before anything is said.
    crate::tui::terminal::restore();
    runtime.shutdown_timeout(std::time::Duration::from_millis(500));
    if crate::tui::terminal::has_panicked() {
        return ExitCode::from(70);
    }
    ExitCode::from(match ended {
        Ok(outcome) => exit_code(&outcome),
        Err(failure) => report_error(failure),
    })
}

/// A command that changes hosts is not asked to only look.
fn reject_readonly_changes(command: &Command) -> Result<(), CliError> {
    let (name, host) = match command {
        Command::Up(args) => ("up", &args.common),
        Command::Down(args) => ("down", &args.common),
        Command::Exec(args) => ("exec", &args.common),
        _ => return Ok(()),
    };
    if !host.dashboard.readonly {
        return Ok(());
    }
    let help = "`tui`, `attach` and `replay` have it: a dashboard without the keys that change something";
    let dry = if name == "exec" { "" } else { "; `--dry-run` says what would be done" };
    Err(CliError::Usage(format!("--readonly: `{name}` changes hosts\n    help: {help}{dry}")))
}

async fn run(command: Command) -> Result<Outcome, CliError> {
    reject_readonly_changes(&command)?;
    match command {
        Command::Up(args) => up::run(&args).await,
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
        Command::Stacks(args) => stacks::run(&args).await,
        Command::Shell(args) => shell::run(&args).await,
        Command::Runs(args) => runs::run(&args),
        Command::Replay(args) => replay::run(&args).await,
        Command::Demo(args) => demo::run(&args).await,
        Command::Sandbox(args) => sandbox::run(&args).await,
    }
}

fn report_error(failure: CliError) -> u8 {
    match failure {
        CliError::Usage(text) => {
            print_stderr(&text);
            2
        }
        CliError::Inventory(problems) => {
            for problem in &problems {
                print_stderr(&problem.to_string());
            }
            print_stderr(&crate::report::style::count_noun(problems.len(), "problem"));
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

/// What the libraries say goes to standard error, and only when asked for; russh prints signed data when it is let talk.
fn init_tracing(cli: &Cli) {
    let verbose = match &cli.command {
        Command::Up(a) => a.common.verbose,
        Command::Tui(a) => a.common.verbose,
        Command::Down(a) => a.common.verbose,
        Command::Ps(a) | Command::Attach(a) => a.verbose,
        Command::Logs(a) => a.common.verbose,
        Command::Check(a) => a.common.verbose,
        Command::Plan(_) | Command::Render(_) | Command::Init(_) => 0,
        Command::Runs(_) | Command::Replay(_) | Command::Demo(_) | Command::Sandbox(_) => 0,
        Command::Exec(a) => a.common.verbose,
        Command::Stacks(a) => a.common.verbose,
        Command::Shell(a) => a.verbose,
    };
    let filter = match verbose {
        0 => "off",
        1 => "orchestrate=info,russh=warn",
        _ => "orchestrate=debug,russh=warn",
    };
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(|| StderrWriter).init();
}

/// Standard error, or what is kept for it while the dashboard has the screen.
struct StderrWriter;

impl std::io::Write for StderrWriter {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        // One event a call, with its newline. What libraries quote of a host is cleaned like anything else.
        print_stderr(String::from_utf8_lossy(text).trim_end());
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        // `say` leaves nothing behind.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readonly_rejects_mutating_commands() {
        let told = |words: &str| {
            let cli = Cli::try_parse_from(format!("orchestrate {words}").split(' ')).expect("words of the command line");
            match reject_readonly_changes(&cli.command) {
                Ok(()) => None,
                Err(CliError::Usage(text)) => Some(text),
                Err(other) => panic!("{other:?}"),
            }
        };
        for name in ["up", "down", "exec"] {
            let tail = if name == "exec" { " -- true" } else { "" };
            let text = told(&format!("{name} x.yaml --readonly{tail}")).expect("refused");
            assert!(
                text.starts_with(&format!("--readonly: `{name}` changes hosts\n")) && text.contains("`tui`, `attach` and `replay`"),
                "{text}"
            );
            assert_eq!(told(&format!("{name} x.yaml{tail}")), None);
        }
        for fine in ["tui x.yaml --readonly", "attach x.yaml --readonly", "replay 2026 --readonly", "ps x.yaml --readonly"] {
            assert_eq!(told(fine), None, "{fine}");
        }
    }
}
