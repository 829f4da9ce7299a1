//! What the stand-ins of programs share: where one runs, what it answers, and how it starts or becomes another.

use std::io::Write as _;
use std::os::unix::process::{CommandExt, ExitStatusExt as _};
use std::process::{Command, ExitCode, ExitStatus};

use super::fake_host::FakeHost;

/// What a stand-in answers at once.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct ProgramOutput {
    pub(super) code: u8,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl ProgramOutput {
    pub(super) fn ok(stdout: impl Into<String>) -> Self {
        ProgramOutput { stdout: stdout.into(), ..ProgramOutput::default() }
    }

    /// A failure with one message; its newline is added.
    pub(super) fn fail(code: u8, stderr: impl Into<String>) -> Self {
        ProgramOutput { code, stdout: String::new(), stderr: format!("{}\n", stderr.into()) }
    }

    /// Says it and ends with its code; a reader that is gone ends it with 1.
    pub(super) fn print(&self) -> ExitCode {
        let out = std::io::stdout().write_all(self.stdout.as_bytes()).and_then(|()| std::io::stdout().flush());
        let err = std::io::stderr().write_all(self.stderr.as_bytes());
        if out.is_err() || err.is_err() { ExitCode::from(1) } else { ExitCode::from(self.code) }
    }
}

/// Where a stand-in runs.
#[derive(Debug, Clone)]
pub(super) struct ProgramContext {
    pub(super) host: FakeHost,
    /// The container it is in.
    pub(super) container_id: Option<String>,
    /// Whether it was reached through sudo.
    pub(super) via_sudo: bool,
}

/// This program, to be started again under another name.
pub(super) fn reexec_as(name: &str) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg0(name);
    Ok(command)
}

/// Becomes `program`; returns only if that is impossible.
pub(super) fn exec_program(program: &str, args: &[String]) -> ExitCode {
    let error = Command::new(program).args(args).exec();
    let code = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
    ProgramOutput::fail(code, format!("{program}: {error}")).print()
}

/// A process's status as a shell has it: 128 + n if signal n ended it.
pub(super) fn shell_code(status: ExitStatus) -> i32 {
    status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(255)
}

pub(super) fn exit_code(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(255))
}

/// Whether a list of words, separated by spaces, has this one.
pub(super) fn has_word(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|known| known == word)
}
