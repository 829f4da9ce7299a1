//! `exec`: one command on every host, equal outputs folded as `clush -b` does. On one host there is nothing to fold: its output comes as
//! ssh gives it, byte for byte into a file or a pipe, cleaned on a terminal.

use tokio::sync::{mpsc, oneshot};

use crate::cli::args::{ExecArgs, ProgressMode};
use crate::cli::exit::CliError;
use crate::cli::local_env::{print_json, print_stderr, print_stdout};
use crate::cli::open_session::{LoadMode, load_inventory, open_session};
use crate::cli::output::OutputOptions;
use crate::cli::passthrough;
use crate::cli::unreachable::print_unreachable;
use crate::event::Outcome;
use crate::lifecycle::error::worse_outcome;
use crate::lifecycle::session::Session;
use crate::model::remote_command::{CommandOutput, RemoteCommand};
use crate::remote::RemoteError;
use crate::report::recap::fold_equal_answers;
use crate::report::style::Tone;

/// Bytes of standard output, and as many of standard error, that are kept of all hosts together.
const MAX_OUTPUT_BYTES: usize = 256 << 20;
/// Pieces of one host's output (32 KiB at most, each) that may wait for their reader; then the host waits.
const MAX_QUEUED_CHUNKS: usize = 64;

pub(crate) async fn run(args: &ExecArgs) -> Result<Outcome, CliError> {
    let (inventory, base) = load_inventory(&args.common, LoadMode::ConnectionOnly)?;
    let session = open_session("exec", &args.common, (inventory, base), OutputOptions::progress_only(ProgressMode::Quiet))?;
    let command = match args.command.as_slice() {
        [line] => RemoteCommand::from_script("exec", line.as_str(), args.timeout),
        words => RemoteCommand::from_argv("exec", words, args.timeout),
    };
    let names = session.host_names();
    if let ([name], false) = (names.as_slice(), args.common.progress == ProgressMode::Json) {
        return run_on_single_host(&session, name, &command).await;
    }
    let command = command.with_output_limit(MAX_OUTPUT_BYTES / names.len().max(1));
    let commands = (0..names.len()).map(|i| (i, command.clone())).collect();
    let mut answers: Vec<Option<Result<CommandOutput, RemoteError>>> = (0..names.len()).map(|_| None).collect();
    let fan_out = session.engine.fan_out(commands, |i, answer| {
        if let Some(place) = answers.get_mut(i) {
            *place = Some(answer);
        }
    });
    let outcome = match run_until_ctrl_c(fan_out).await? {
        Some(()) => print_results(&session, &names, answers, args),
        None => Outcome::Signal(2),
    };
    session.engine.close().await;
    Ok(outcome)
}

/// Waits for `work` until Ctrl-C; what is dropped then is ended on the hosts when they are told goodbye.
async fn run_until_ctrl_c<T>(work: impl Future<Output = T>) -> Result<Option<T>, CliError> {
    tokio::select! {
        done = work => Ok(Some(done)),
        result = tokio::signal::ctrl_c() => result.map(|()| None).map_err(|e| CliError::Bug(e.into())),
    }
}

/// Runs it on the only host.
async fn run_on_single_host(session: &Session, name: &str, command: &RemoteCommand) -> Result<Outcome, CliError> {
    let (pieces, queue) = mpsc::channel(MAX_QUEUED_CHUNKS);
    let (told, written) = oneshot::channel();
    let cleaner = session.reporter.sanitizer().clone();
    let write = move || {
        if told.send(passthrough::write_output(queue, &cleaner)).is_err() {
            tracing::debug!("nobody waits for the last of the output");
        }
    };
    // A thread of its own: a pipe that nobody reads must not stop a signal.
    std::thread::Builder::new().name("output".to_owned()).spawn(write).map_err(anyhow::Error::from)?;
    let links = session.engine.connections();
    let running = async {
        let answer = match links.first() {
            Some(link) => link.exec_streaming(command, pieces).await,
            None => return Ok(Outcome::Ok),
        };
        let written = written.await.map_err(anyhow::Error::from)?;
        Ok::<_, CliError>(report_single_host(session, name, answer, written))
    };
    let outcome = run_until_ctrl_c(running).await?.unwrap_or(Ok(Outcome::Signal(2)))?;
    session.engine.close().await;
    Ok(outcome)
}

/// Tells how it ended on the only host. A reader that went away (`| head`) is no error.
fn report_single_host(session: &Session, name: &str, answer: Result<i32, RemoteError>, written: std::io::Result<()>) -> Outcome {
    let style = session.reporter.style();
    match (written, answer) {
        (Err(error), _) if error.kind() == std::io::ErrorKind::BrokenPipe => Outcome::Ok,
        (Err(error), _) => {
            print_stderr(&format!("{}: standard output: {error}", style.paint(Tone::Bad, "error")));
            Outcome::Failed
        }
        (Ok(()), Ok(0)) => Outcome::Ok,
        (Ok(()), Ok(code)) => {
            print_stderr(&format!("{}: exit {code}", style.paint(Tone::Warn, name)));
            Outcome::Failed
        }
        (Ok(()), Err(error)) => {
            let lost = (name.to_owned(), error.to_string(), error.hint().to_owned());
            print_unreachable(session.reporter.sanitizer(), style, vec![lost]);
            Outcome::Unreachable
        }
    }
}

fn print_results(
    session: &Session,
    names: &[String],
    answers: Vec<Option<Result<CommandOutput, RemoteError>>>,
    args: &ExecArgs,
) -> Outcome {
    let (mut spoken, mut failed, mut lost) = (Vec::new(), Vec::new(), Vec::new());
    let mut outcome = Outcome::Ok;
    let cleaner = session.reporter.sanitizer();
    let style = session.reporter.style();
    for (name, answer) in names.iter().zip(answers) {
        match answer {
            Some(Ok(output)) => {
                let mut text = cleaner.sanitize_multiline(&output.stdout_text());
                if output.dropped_bytes > 0 {
                    text.push_str(&format!("… {} more bytes: one host alone (--limit) gives all\n", output.dropped_bytes));
                }
                let complaint = cleaner.sanitize_multiline(&String::from_utf8_lossy(&output.stderr));
                if args.common.progress == ProgressMode::Json {
                    let line = serde_json::json!({ "host": name, "code": output.exit_code, "stdout": text, "stderr": complaint });
                    print_json(&format!("{line}\n"));
                } else {
                    spoken.push((name.clone(), text));
                }
                if !output.is_success() {
                    outcome = worse_outcome(Outcome::Failed, outcome);
                    failed.push((
                        name.clone(),
                        format!("exit {}{}{}", output.exit_code, if complaint.is_empty() { "" } else { "\n" }, complaint.trim_end()),
                    ));
                } else if !complaint.is_empty() && args.common.progress != ProgressMode::Json {
                    failed.push((name.clone(), format!("standard error:\n{}", complaint.trim_end())));
                }
            }
            Some(Err(error)) => {
                outcome = worse_outcome(Outcome::Unreachable, outcome);
                lost.push((name.clone(), error.to_string(), error.hint().to_owned()));
            }
            None => lost.push((name.clone(), "no answer".to_owned(), String::new())),
        }
    }
    for (hosts, text) in fold_equal_answers(&spoken) {
        if !text.is_empty() {
            print_stdout(&format!("---- {hosts}\n{text}{}", if text.ends_with('\n') { "" } else { "\n" }));
        }
    }
    if args.common.progress != ProgressMode::Json {
        for (hosts, text) in fold_equal_answers(&failed) {
            print_stderr(&format!("{}: {text}", style.paint(Tone::Warn, &hosts)));
        }
    }
    print_unreachable(cleaner, style, lost);
    outcome
}
