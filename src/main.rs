//! The program: a stand-in when called by a stand-in's name, else the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    let argv0 = args.next().unwrap_or_default();
    if let Some(code) = orchestrate::sandbox::dispatch_program(&argv0.to_string_lossy(), args.collect()) {
        return code;
    }
    orchestrate::cli::main()
}
