//! `exec`: one command on every host, equal outputs folded as `clush -b` does. On one host there is nothing to fold: its output comes as
//! ssh gives it, byte for byte into a file or a pipe, cleaned on a terminal.

use tokio::sync::{mpsc, oneshot};

use crate::cli::args::{ExecArgs, Progress};
use crate::cli::desk::Faces;
use crate::cli::exit::{Failure, worse};
use crate::cli::laptop::{known_secrets, print, print_json, say};
use crate::cli::relay;
use crate::cli::session::{Need, Session, inventory};
use crate::event::Outcome;
use crate::remote::RemoteError;
use crate::report::fold::shared;
use crate::report::loglines::Logs;
use crate::report::recap::equal;
use crate::report::sanitize::Cleaner;
use crate::report::words::{Role, Style};
use crate::shell::{Command, Output};

/// Bytes of standard output, and as many of standard error, that are kept of all hosts together.
const KEPT: usize = 256 << 20;
/// Pieces of one host's output (32 KiB at most, each) that may wait for their reader; then the host waits.
const PIECES: usize = 64;

/// Runs it.
///
/// # Errors
/// What must be said to the person.
pub async fn run(args: &ExecArgs) -> Result<Outcome, Failure> {
    let (inventory, base) = inventory(&args.host, Need::Connection)?;
    let secrets = known_secrets(&inventory);
    let faces = Faces { progress: Progress::Quiet, logs: Logs::None, data: false };
    let session = Session::open("exec", &args.host, inventory, base, faces, &secrets)?;
    let command = match args.words.as_slice() {
        [line] => Command::sh("exec", line.as_str(), args.timeout),
        words => Command::argv("exec", words, args.timeout),
    };
    let names = session.names();
    if let ([name], false) = (names.as_slice(), args.host.progress == Progress::Json) {
        return alone(&session, name, &command).await;
    }
    let command = command.keeping(KEPT / names.len().max(1));
    let commands = (0..names.len()).map(|i| (i, command.clone())).collect();
    let mut answers: Vec<Option<Result<Output, RemoteError>>> = (0..names.len()).map(|_| None).collect();
    let fan_out = session.engine.fan_out(commands, |i, answer| {
        if let Some(place) = answers.get_mut(i) {
            *place = Some(answer);
        }
    });
    let outcome = match unless_stopped(fan_out).await? {
        Some(()) => show(&session, &names, answers, args),
        None => Outcome::Signal(2),
    };
    session.engine.close().await;
    Ok(outcome)
}

/// Waits for `work` until Ctrl-C; what is dropped then is ended on the hosts when they are told goodbye.
async fn unless_stopped<T>(work: impl Future<Output = T>) -> Result<Option<T>, Failure> {
    tokio::select! {
        done = work => Ok(Some(done)),
        result = tokio::signal::ctrl_c() => result.map(|()| None).map_err(|e| Failure::Bug(e.into())),
    }
}

/// Runs it on the only host.
async fn alone(session: &Session, name: &str, command: &Command) -> Result<Outcome, Failure> {
    let (pieces, queue) = mpsc::channel(PIECES);
    let (told, written) = oneshot::channel();
    let cleaner = session.desk.cleaner().clone();
    let write = move || {
        if told.send(relay::write(queue, &cleaner)).is_err() {
            tracing::debug!("nobody waits for the last of the output");
        }
    };
    // A thread of its own: a pipe that nobody reads must not stop a signal.
    std::thread::Builder::new().name("output".to_owned()).spawn(write).map_err(anyhow::Error::from)?;
    let links = session.engine.links();
    let running = async {
        let answer = match links.first() {
            Some(link) => link.relay(command, pieces).await,
            None => return Ok(Outcome::Ok),
        };
        let written = written.await.map_err(anyhow::Error::from)?;
        Ok::<_, Failure>(ended(session, name, answer, written))
    };
    let outcome = unless_stopped(running).await?.unwrap_or(Ok(Outcome::Signal(2)))?;
    session.engine.close().await;
    Ok(outcome)
}

/// Tells how it ended on the only host. A reader that went away (`| head`) is no error.
fn ended(session: &Session, name: &str, answer: Result<i32, RemoteError>, written: std::io::Result<()>) -> Outcome {
    let style = session.desk.style();
    match (written, answer) {
        (Err(error), _) if error.kind() == std::io::ErrorKind::BrokenPipe => Outcome::Ok,
        (Err(error), _) => {
            say(&format!("{}: standard output: {error}", style.paint(Role::Bad, "error")));
            Outcome::Failed
        }
        (Ok(()), Ok(0)) => Outcome::Ok,
        (Ok(()), Ok(code)) => {
            say(&format!("{}: exit {code}", style.paint(Role::Warn, name)));
            Outcome::Failed
        }
        (Ok(()), Err(error)) => {
            let lost = (name.to_owned(), error.to_string(), error.hint().to_owned());
            tell_unreached(session.desk.cleaner(), style, vec![lost]);
            Outcome::Unreachable
        }
    }
}

/// Says who could not be reached and why, equal reasons once.
pub fn tell_unreached(cleaner: &Cleaner, style: Style, lost: Vec<(String, String, String)>) {
    for sort in shared(lost) {
        for (at, line) in sort.lines().iter().enumerate() {
            say(&style.paint(if at == 0 { Role::Bad } else { Role::Plain }, &cleaner.line(line)));
        }
    }
}

fn show(session: &Session, names: &[String], answers: Vec<Option<Result<Output, RemoteError>>>, args: &ExecArgs) -> Outcome {
    let (mut spoken, mut failed, mut lost) = (Vec::new(), Vec::new(), Vec::new());
    let mut outcome = Outcome::Ok;
    let cleaner = session.desk.cleaner();
    let style = session.desk.style();
    for (name, answer) in names.iter().zip(answers) {
        match answer {
            Some(Ok(output)) => {
                let mut text = cleaner.text(&output.text());
                if output.dropped > 0 {
                    text.push_str(&format!("… {} more bytes: one host alone (--limit) gives all\n", output.dropped));
                }
                let complaint = cleaner.text(&String::from_utf8_lossy(&output.stderr));
                if args.host.progress == Progress::Json {
                    let line = serde_json::json!({ "host": name, "code": output.code, "stdout": text, "stderr": complaint });
                    print_json(&format!("{line}\n"));
                } else {
                    spoken.push((name.clone(), text));
                }
                if !output.ok() {
                    outcome = worse(Outcome::Failed, outcome);
                    failed.push((
                        name.clone(),
                        format!("exit {}{}{}", output.code, if complaint.is_empty() { "" } else { "\n" }, complaint.trim_end()),
                    ));
                } else if !complaint.is_empty() && args.host.progress != Progress::Json {
                    failed.push((name.clone(), format!("standard error:\n{}", complaint.trim_end())));
                }
            }
            Some(Err(error)) => {
                outcome = worse(Outcome::Unreachable, outcome);
                lost.push((name.clone(), error.to_string(), error.hint().to_owned()));
            }
            None => lost.push((name.clone(), "no answer".to_owned(), String::new())),
        }
    }
    for (hosts, text) in equal(&spoken) {
        if !text.is_empty() {
            print(&format!("---- {hosts}\n{text}{}", if text.ends_with('\n') { "" } else { "\n" }));
        }
    }
    if args.host.progress != Progress::Json {
        for (hosts, text) in equal(&failed) {
            say(&format!("{}: {text}", style.paint(Role::Warn, &hosts)));
        }
    }
    tell_unreached(cleaner, style, lost);
    outcome
}
