//! The roof: reads the command line, joins those who may not know each other, and turns how it ended into words and an exit code.
//!
//! May use everything. One command a file.

pub mod args;
pub mod attach;
pub mod demo;
pub mod desk;
pub mod down;
pub mod exec;
pub mod exit;
pub mod laptop;
pub mod logs;
pub mod plan;
pub mod ps;
pub mod runs;
pub mod sandbox;
pub mod session;
pub mod signals;
pub mod undo;
pub mod up;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::args::{Cli, Command};
use crate::cli::exit::{Failure, code};
use crate::cli::laptop::say;
use crate::event::Outcome;

/// The whole program.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    trace(&cli);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            say(&format!("could not start: {error}"));
            return ExitCode::from(70);
        }
    };
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runtime.block_on(run(cli.command))))
        .unwrap_or_else(|_| Err(Failure::Bug(anyhow::anyhow!("orchestrate panicked; what it said stands above"))));
    runtime.shutdown_timeout(std::time::Duration::from_millis(500));
    ExitCode::from(match ended {
        Ok(outcome) => code(&outcome),
        Err(failure) => tell(failure),
    })
}

async fn run(command: Command) -> Result<Outcome, Failure> {
    match command {
        Command::Up(args) => up::run(&args).await,
        Command::Down(args) => down::run(&args).await,
        Command::Ps(args) => ps::run(&args).await,
        Command::Logs(args) => logs::run(&args).await,
        Command::Attach(args) => attach::run(&args).await,
        Command::Plan(args) => plan::run(&args).await,
        Command::Exec(args) => exec::run(&args).await,
        Command::Runs(args) => runs::run(&args),
        Command::Demo(args) => demo::run(&args).await,
        Command::Sandbox(args) => sandbox::run(&args).await,
    }
}

fn tell(failure: Failure) -> u8 {
    match failure {
        Failure::Usage(text) => {
            say(&text);
            2
        }
        Failure::Inventory(problems) => {
            for problem in &problems {
                say(&problem.to_string());
            }
            say(&crate::report::words::count(problems.len(), "problem"));
            2
        }
        Failure::Bug(error) => {
            say(&format!("internal error: {error:#}"));
            say("    help: this is a bug of orchestrate; please report it with the command and this text");
            70
        }
    }
}

/// What the libraries say goes to standard error, and only when asked for; russh prints signed data when it is let talk.
fn trace(cli: &Cli) {
    let verbose = match &cli.command {
        Command::Up(a) => a.host.verbose,
        Command::Down(a) => a.host.verbose,
        Command::Ps(a) | Command::Attach(a) => a.verbose,
        Command::Logs(a) => a.host.verbose,
        Command::Plan(_) | Command::Runs(_) | Command::Demo(_) | Command::Sandbox(_) => 0,
        Command::Exec(a) => a.host.verbose,
    };
    let filter = match verbose {
        0 => "off",
        1 => "orchestrate=info,russh=warn",
        _ => "orchestrate=debug,russh=warn",
    };
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}
