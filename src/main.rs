//! Runs the command line, or a simulated program of the sandbox if called by its name.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    let argv0 = args.next().unwrap_or_default();
    if let Some(code) = orchestrate::sandbox::dispatch_program(&argv0.to_string_lossy(), args.collect()) {
        return code;
    }
    orchestrate::cli::main()
}
