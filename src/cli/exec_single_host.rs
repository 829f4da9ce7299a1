//! `exec` on a single host: streams its output, unchanged into a file or a pipe, sanitized on a terminal. A pipe or a file on standard input
//! reaches the command, as with ssh.

use tokio::sync::mpsc;

use crate::cli::exit::CliError;
use crate::cli::interactive;
use crate::cli::interactive_end::InteractiveEnd;
use crate::cli::local_env::{print_stderr, user_lang};
use crate::cli::passthrough;
use crate::cli::unreachable::print_unreachable;
use crate::event::Outcome;
use crate::lifecycle::operator::run_in_thread;
use crate::lifecycle::session::Session;
use crate::model::remote_command::RemoteCommand;
use crate::remote::RemoteError;
use crate::report::style::Tone;

/// Chunks (at most 32 KiB each) that wait for standard output; with a full queue, the host waits.
const MAX_QUEUED_CHUNKS: usize = 64;

pub(super) async fn stream_single_host(session: &Session, name: &str, command: &RemoteCommand) -> Result<Outcome, CliError> {
    let Some(connection) = session.engine.connections().first() else { return Ok(Outcome::Ok) };
    let (chunk_sender, chunks) = mpsc::channel(MAX_QUEUED_CHUNKS);
    let sanitizer = session.reporter.sanitizer().clone();
    // A pipe without a reader blocks the write.
    let written = run_in_thread("output", move || passthrough::write_output(chunks, &sanitizer)).map_err(anyhow::Error::from)?;
    let exit = connection.exec_streaming(command, chunk_sender).await;
    let written = written.await.map_err(anyhow::Error::from)?;
    report_end(session, name, exit, written)
}

/// Whether standard input is something to hand on: no terminal, and no `/dev/null`.
pub(super) fn has_piped_input() -> bool {
    use rustix::fs::FileType;
    rustix::fs::fstat(std::io::stdin())
        .is_ok_and(|stat| matches!(FileType::from_raw_mode(stat.st_mode), FileType::Fifo | FileType::RegularFile | FileType::Socket))
}

/// Whether standard input has bytes that were not read.
pub(super) fn has_unread_input() -> bool {
    has_piped_input() && rustix::io::ioctl_fionread(std::io::stdin()).is_ok_and(|bytes| bytes > 0)
}

/// Runs the command with our standard input as its own.
pub(super) async fn pipe_to_single_host(session: &Session, name: &str, command: &RemoteCommand) -> Result<Outcome, CliError> {
    let Some(connection) = session.engine.connections().first() else { return Ok(Outcome::Ok) };
    let opened = async { connection.get_or_connect().await?.open_interactive(command, None).await };
    let end = match opened.await {
        Ok(channel) => match tokio::time::timeout(command.timeout, interactive::run(channel, false)).await {
            Ok(end) => end.map_err(anyhow::Error::from)?,
            Err(_) => InteractiveEnd::ConnectionLost(RemoteError::Timeout { title: command.title.clone(), after: command.timeout }),
        },
        Err(error) => InteractiveEnd::ConnectionLost(error),
    };
    match end {
        InteractiveEnd::Exited(code) => report_end(session, name, Ok(code), Ok(())),
        InteractiveEnd::ConnectionLost(error) => report_end(session, name, Err(error), Ok(())),
        InteractiveEnd::OutputFailed(error) => report_end(session, name, Ok(0), Err(error)),
        InteractiveEnd::Signal(number) => Ok(Outcome::Signal(number)),
        InteractiveEnd::Escaped => Ok(Outcome::Signal(1)),
    }
}

/// The remote command's status becomes the program's. A closed pipe (`| head`) is not an error.
fn report_end(session: &Session, name: &str, exit: Result<i32, RemoteError>, written: std::io::Result<()>) -> Result<Outcome, CliError> {
    let (style, lang) = (session.reporter.style(), user_lang());
    Ok(match (written, exit) {
        (Err(error), _) if error.kind() == std::io::ErrorKind::BrokenPipe => Outcome::Ok,
        (Err(error), _) => {
            let text = lang.tr_fill("standard output: {}", &[&error.to_string()]);
            print_stderr(&format!("{}{}{text}", style.paint(Tone::Bad, lang.tr("error")), lang.colon()));
            Outcome::Failed
        }
        (Ok(()), Ok(0)) => Outcome::Ok,
        (Ok(()), Ok(code)) => {
            let exit = lang.tr_fill("exit {}", &[&code.to_string()]);
            print_stderr(&format!("{}{}{exit}", style.paint(Tone::Warn, name), lang.colon()));
            return Err(CliError::RemoteExit(u8::try_from(code).unwrap_or(255)));
        }
        (Ok(()), Err(error)) => {
            let unreachable = (name.to_owned(), error.to_string(), error.hint().to_owned());
            print_unreachable(session, vec![unreachable]);
            Outcome::Unreachable
        }
    })
}
